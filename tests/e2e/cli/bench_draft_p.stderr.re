sluice: --draft: not with -p, --ops, --csv, --svg or --expert-stats
