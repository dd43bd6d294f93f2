sluice: --prefix-length: not with --dataset, which has prompts of its own
