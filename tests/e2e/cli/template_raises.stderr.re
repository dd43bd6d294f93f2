sluice: .*no such role.*
