sluice: bad value: --mem-fraction 1.5: a number from 0.05 to 1
