sluice: draft: "replay:2": a rate from 0 to 1
