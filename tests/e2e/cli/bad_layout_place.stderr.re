sluice: layout: ranks of one CPU device each are all there is
