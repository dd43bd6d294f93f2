# SPDX-License-Identifier: Apache-2.0
# the first layers, the look-up and the head on the CPU; layers whole on several: the same tokens
for a in "" "--device check -ngl 1" "--device check -ngl 2" "--device check -ngl 3" \
    "--device cpu,check" "--device check,sim -ngl 1"; do
    $SLUICE run -q -m $TINY/deepseek_v3 --ids 5,6,7 -n 8 --draft mtp --json $a |
        python3 -c "import json, sys; print(json.load(sys.stdin)[\"tokens\"])"
done | sort -u | wc -l
$SLUICE inspect $TINY/deepseek_v3 --device check -ngl 1 | grep -o ": .*" | tail -2
