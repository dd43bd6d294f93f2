sluice: .*int9.*
