sluice: --special: not with --ids: only of a raw prompt
