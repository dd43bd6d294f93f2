# SPDX-License-Identifier: Apache-2.0
export SL_DEVICE=cpu
counts() {
    $SLUICE run -m $TINY/qwen3_moe --ids 5,6,7,8,5,6,7,8,5,6,7 -n 24 --ignore-eos -q \
        --expert-stats counts$1.json --layout $2 -t 4 >/dev/null
}
counts 1 tp=1
counts 2 pp=2
cmp counts1.json counts2.json && grep -o '"layer":[0-9]*' counts1.json
