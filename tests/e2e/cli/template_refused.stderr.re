sluice: .*line 2.*
