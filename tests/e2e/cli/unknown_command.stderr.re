sluice: .*frobnicate.*
