sluice: .*b\.jsonl.*2.*
