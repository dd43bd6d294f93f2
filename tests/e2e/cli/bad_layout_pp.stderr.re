sluice: layout: 'pp=2': there is only tp yet
