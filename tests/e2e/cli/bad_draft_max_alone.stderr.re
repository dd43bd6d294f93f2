sluice: .*draft_max: 3: there are no drafts.*
