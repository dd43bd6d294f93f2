sluice: --gpu-layers 2: attention of all 2 layers lies on one device: 0, or 3 and more; --n-cpu-moe, or --place blocks@0-M=cpu, has the rest of the first layers on the CPU
