sluice: layout: a rank has one device: --place is not for ranks
