sluice: --ablation: one -p, one -n and one -b, without -d and --expert-stats
