sluice: bad value: -t 513: an integer from 0 to 512
