sluice: --calib: an empty name
