sluice: bad value: --gpu-layers 99999999999: one of N\|auto\|all
