sluice: .*
