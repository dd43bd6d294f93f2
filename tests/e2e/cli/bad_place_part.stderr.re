sluice: place: 'expertz=check': 'expertz' is no part of a model \(there are: embed, attn, dense, shared, router, experts, head; blocks are all four of a layer\)
