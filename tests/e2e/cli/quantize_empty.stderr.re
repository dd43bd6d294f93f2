sluice: DST: an empty name
