sluice: .*(SLUICE_THREADS|many).*
