sluice: .*--draft-model: not together with --attach.*
