sluice: .*--seed: seeds come with requests.*
