sluice: layout: experts of layer 1 are placed on another device than those before: with dp all are on one
