sluice: --gpu-layers 2x: a number of layers, or all
