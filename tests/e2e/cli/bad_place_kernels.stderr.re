sluice: --kernels: products alone are on one device: without --place
