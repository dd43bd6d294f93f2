sluice: place: 'experts=check': no layer of this model has 'experts'
