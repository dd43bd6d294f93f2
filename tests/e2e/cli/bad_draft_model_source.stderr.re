sluice: .*draft_model: qwen3: draft: auto or model, not "ngram"
