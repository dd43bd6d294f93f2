sluice: p\.jsonl: line 1: needs "prompt" \(text\), "messages" or "ids" \(lists\)
