sluice: .*draft-max 8: an integer from 0 to 7.*
