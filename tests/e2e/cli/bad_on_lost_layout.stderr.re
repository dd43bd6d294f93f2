sluice: --on-lost reopen: not where ranks share the model \(layout\)
