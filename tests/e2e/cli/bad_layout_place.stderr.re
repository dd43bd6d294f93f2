sluice: layout: ranks that share layers \(tp, dp, ep\) compute on the CPU: with --device or --place it is pp alone
