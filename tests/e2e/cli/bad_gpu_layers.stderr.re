sluice: bad value: --gpu-layers 2x: one of N\|auto\|all
