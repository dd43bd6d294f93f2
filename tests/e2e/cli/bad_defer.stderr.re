sluice: defer: 2: no layer of this model has experts
