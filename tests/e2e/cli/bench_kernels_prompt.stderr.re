sluice: --kernels: not with -p, -n, -b, -d or --expert-stats
