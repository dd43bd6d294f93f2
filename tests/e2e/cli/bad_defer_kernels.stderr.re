sluice: --kernels: not with --layout or --defer
