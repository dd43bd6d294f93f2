sluice: not enough memory on device 'check:mem=1000': [0-9.]+ GiB are needed for what is placed there \(head\), 0.00 GiB are available
