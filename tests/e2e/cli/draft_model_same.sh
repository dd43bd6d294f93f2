# SPDX-License-Identifier: Apache-2.0
# One answer, with a small model (here the model itself), a packed one, of a chunked prompt.
same='import json,sys; a = [json.loads(l) for l in sys.stdin]
print(len(a), len({x["run_hash"] for x in a}), [x["draft"]["source"] for x in a[1:]],
      all(x["draft"]["drafted"] > 0 for x in a[1:]))'
m=$DATA/../../models/demo/demo.gguf
run() {
    $SLUICE run -m $m -p "The capital of France is" -n 60 --ignore-eos --temp 0 --json "$@"
}
$SLUICE pack $m demo.packed >/dev/null
{
    run
    run --draft-model $m
    run --draft model --draft-model demo.packed --draft-max 4
    run --draft auto --draft-model $m -t 1
} | python3 -c "$same"
