sluice: --cpu-moe and --experts-device check: give one of them
