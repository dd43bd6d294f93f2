sluice: --prompts, --temp and --draft-max: with --draft only
