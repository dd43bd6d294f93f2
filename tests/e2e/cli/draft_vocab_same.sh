# SPDX-License-Identifier: Apache-2.0
# One answer, from the source, a packed file and two ranks; the first tokens or those of a text.
same='import json,sys; a = [json.loads(l) for l in sys.stdin]
print(len(a), len({x["run_hash"] for x in a}), all(x["draft"]["drafted"] > 0 for x in a[1:]))'
m=$DATA/../../models/demo/demo.gguf
run() {
    $SLUICE run -p "The capital of France is" -n 60 --ignore-eos --temp 0 --json "$@"
}
$SLUICE pack $m demo.packed >/dev/null
{
    run -m $m
    run -m $m --draft mtp --draft-vocab 500
    run -m demo.packed --draft mtp --draft-vocab 512
    SL_DEVICE=cpu run -m $m --draft mtp --draft-vocab 512 --layout tp=2 -t 2
    seq 400 >text
    run -m $m --draft mtp --draft-vocab 128 --draft-vocab-from text
    SL_DEVICE=cpu run -m $m --draft mtp --draft-vocab 128 --draft-vocab-from text --layout tp=2 -t 2
} | python3 -c "$same"
