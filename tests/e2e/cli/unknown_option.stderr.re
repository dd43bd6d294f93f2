sluice: .*--sed.*--seed.*
