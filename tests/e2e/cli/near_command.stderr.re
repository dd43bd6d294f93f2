sluice: .*tokenise.*tokenize.*
