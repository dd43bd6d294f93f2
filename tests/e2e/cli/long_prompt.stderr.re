sluice: .*76.*32.*
