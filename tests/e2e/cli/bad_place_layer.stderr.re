sluice: place: 'experts@1-9=check': there is no layer 9: the last one is 2
