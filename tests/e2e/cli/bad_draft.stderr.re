sluice: bad value: --draft guess: one of off\|auto\|ngram\|mtp\|model
