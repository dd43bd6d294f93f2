sluice: --ops: not with --json, --kernels or --ablation
