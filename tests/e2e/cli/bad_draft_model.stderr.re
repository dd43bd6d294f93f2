sluice: .*draft_model: .*
