sluice: --experts: not with --dump-logits.*
sluice: --experts: .* has no routed experts
