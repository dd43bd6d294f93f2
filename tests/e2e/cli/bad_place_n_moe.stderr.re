sluice: place: 'experts@0-8=cpu': there is no layer 8: the last one is 2
