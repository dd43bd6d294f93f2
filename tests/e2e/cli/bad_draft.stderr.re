sluice: .*draft: "guess": off, auto, ngram.*
