sluice: .*draft_vocab: 1000000: from 1 to the vocabulary.s [0-9]* tokens.*
