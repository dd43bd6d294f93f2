sluice: check:mem=1000: [0-9.]+ MiB needed for what is placed there \(head\), 0.0 free: --place puts parts elsewhere
