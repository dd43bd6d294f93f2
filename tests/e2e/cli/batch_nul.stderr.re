sluice: 1 of 1 lines failed: b\.jsonl: see their "error"
