sluice: .*--seed: eval draws nothing.*
