sluice: --prefill-from: goes with --prefill
sluice: --prefill-from: goes with --prefill
sluice: --place-mbps: goes with --spare or --rebalance
sluice: --expert-half-life: goes with --expert-stats
sluice: --dist-deadline-ms: goes with --layout or --prefill
sluice: --sla-percentile: goes with --sla-ttft or --sla-tpot
sluice: --threads: goes with --memory
sluice: --hot: goes with --device
sluice: --goal: goes with --emit
sluice: --chat-template: goes with --chat or --batch-file
