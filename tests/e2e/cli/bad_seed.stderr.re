sluice: bad value: --seed -1: an integer from 0 to 18446744073709551615
