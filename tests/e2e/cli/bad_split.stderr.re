sluice: --split 1: a weight for every device of --device, as in --device vulkan:0,vulkan:1 --split 3,2
