sluice: layout: pp=20: the model has \d+ layers: as many stages at most
