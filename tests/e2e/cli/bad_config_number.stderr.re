sluice: draft: "5": off, auto, ngram, mtp, model or replay:RATE; how many at most is draft_max
