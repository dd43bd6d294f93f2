sluice: --draft: not with --kernels or --ablation
