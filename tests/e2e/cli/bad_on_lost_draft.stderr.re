sluice: --on-lost reopen: not with --draft-model.*
