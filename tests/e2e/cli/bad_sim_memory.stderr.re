sluice: not enough memory on device 'sim:mem=200K': [0-9.]+ GiB are needed for what is placed there \(experts\), 0.00 GiB are available
