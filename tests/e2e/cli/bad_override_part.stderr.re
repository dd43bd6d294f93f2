sluice: place: 're:ffn_gate_exps=cpu' matches blk\.1\.ffn_gate_exps\.weight but not blk\.1\.ffn_down_exps\.weight: they lie together
