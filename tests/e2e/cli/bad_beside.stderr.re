sluice: bad value: --record: empty: give FILE
sluice: bad value: c\.json: record: empty: give FILE
sluice: bad value: --config: empty: give FILE
sluice: bad value: --ids: empty: give 1,2,3
sluice: bad value: --api-key-file: empty: give FILE
sluice: bad value: SLUICE_API_KEY_FILE: empty: give FILE
sluice: bad value: --memory: empty: give CTX\[,BATCH\]
sluice: bad value: --messages: empty: give FILE
sluice: --model: .*qwen3 is there already: one model
sluice: --split: what lies where depends on the model: -m MODEL is needed
sluice: --gpu-layers: what lies where depends on the model: -m MODEL is needed
sluice: --hot-from: goes with --hot-experts
sluice: --trace has its own times: without --parallel
sluice: --json-schema: not with --replay: the drafts are those of the recording
sluice: --temp: not with --kernels or --ablation
sluice: --expert-stats: none/load\.json: No such file or directory
exit 1
sluice: c\.json: no file of --calibrate: neither priors nor sets
exit 1
