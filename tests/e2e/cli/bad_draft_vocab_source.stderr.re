sluice: .*draft_vocab: 64: no MTP layer makes drafts \(draft: ngram\).*
