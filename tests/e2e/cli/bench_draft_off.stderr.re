sluice: --prompts, --temp and other options of --draft: with --draft only
