sluice: .*m\.json.*
