sluice: --gpu-layers 0 and --device check: give one of them
