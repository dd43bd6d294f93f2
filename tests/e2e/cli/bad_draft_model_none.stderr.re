sluice: .*draft: model: which one\? draft_model is not given
