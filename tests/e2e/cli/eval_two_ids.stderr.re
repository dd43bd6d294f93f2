sluice: --dump-logits: goes with one of --ids and --ids-file, without -f
