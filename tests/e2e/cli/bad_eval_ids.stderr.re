sluice: --ids: goes with --dump-logits
