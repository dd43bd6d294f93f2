sluice: layout: 'tp=0': a number from 1 on comes after '='
