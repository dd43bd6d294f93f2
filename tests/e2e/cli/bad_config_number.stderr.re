sluice: bad value: c\.json: draft 5: one of off\|auto\|ngram\|mtp\|model; how many at most is --draft-max
