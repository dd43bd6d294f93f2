sluice: device 'gpu' is not known \(there are: cpu, check, sim.*, auto\)
