sluice: --kernels: q4_9: there are all .*
