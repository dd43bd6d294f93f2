sluice: --stop: an empty text
