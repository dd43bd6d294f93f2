sluice: --memory: CTX in 1 \.\. 16777216 and BATCH in 1 \.\. 4096 are taken
