sluice: --memory: is of one device: without --place \(SL_PLACE\) and --device
sluice: --memory: is of one device: without --place \(SL_PLACE\) and --device
