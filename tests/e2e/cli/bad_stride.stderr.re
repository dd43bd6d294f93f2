sluice: --stride 17: windows have 16 tokens: .*
