sluice: bad value: --draft replay:0\.5: one of off\|auto\|ngram\|mtp\|model
