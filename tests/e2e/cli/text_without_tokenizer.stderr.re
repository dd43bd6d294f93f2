sluice: .*token.*
