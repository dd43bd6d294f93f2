sluice: --prompts, --temp, --draft-max and --draft-vocab: with --draft only
