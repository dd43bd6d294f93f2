sluice: place: 'expertz=check': 'expertz' is no part of a model \(there are: embed, attn, dense, shared, router, experts, head; layers are all of a layer's, blocks all but attn\)
