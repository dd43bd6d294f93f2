sluice: --override-tensor exps=ROCm0: no such device is known: CPU, CUDA0, Vulkan0, or as doctor names it
