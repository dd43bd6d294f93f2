sluice: --draft: not with --kernels, --ablation or --replay
