sluice: --base: not with --dump-logits
