sluice: .*draft-vocab 0: an integer from 1 to .*
