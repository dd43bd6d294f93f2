sluice: sim:mem=200K: [0-9.]+ MiB needed for what is placed there \(experts\), 0.2 free: --place puts parts elsewhere
