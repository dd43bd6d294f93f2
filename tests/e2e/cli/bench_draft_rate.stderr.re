sluice: bad value: --draft replay:2: one of .*\|replay:RATE
