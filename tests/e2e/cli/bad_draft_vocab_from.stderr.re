sluice: .*--draft-vocab-from: goes with --draft-vocab.*
