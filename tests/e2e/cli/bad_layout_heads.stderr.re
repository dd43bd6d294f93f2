sluice: layout: 3 ranks: the model's heads can be shared by 2 at most
