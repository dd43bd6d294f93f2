sluice: .*99999.*
