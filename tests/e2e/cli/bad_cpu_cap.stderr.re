sluice: bad value: SL_CPU=AVX2: there are ref .*avx2.*
