sluice: .*twelve.*
