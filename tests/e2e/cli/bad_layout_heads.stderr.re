sluice: layout: 3 ranks: the model's heads of keys can be shared by 2 at most
