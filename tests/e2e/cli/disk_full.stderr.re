sluice: .*/dev/full.*
