sluice: .*no\.such\.tensor.*
