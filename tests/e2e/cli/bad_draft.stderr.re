sluice: .*draft: "guess": off, auto, ngram, mtp.*
