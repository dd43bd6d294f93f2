sluice: .*q7.*
