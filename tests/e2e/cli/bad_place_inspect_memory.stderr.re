sluice: --memory: is of one device: without --place and --device
