sluice: --gpu-layers 99999999999: a number of layers, or all
