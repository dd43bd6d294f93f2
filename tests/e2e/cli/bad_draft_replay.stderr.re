sluice: --draft replay:0.5: .*
