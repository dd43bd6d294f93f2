sluice: .*4000.*
