sluice: layout: 2 ranks need a thread each, there are 1 threads
