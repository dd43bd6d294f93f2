sluice: --ablation: 1 to 256 requests \(-b\).*
