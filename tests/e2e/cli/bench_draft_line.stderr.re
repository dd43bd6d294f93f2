sluice: p\.jsonl: line 1: needs "prompt" \(text\) or "ids" \(list\)
