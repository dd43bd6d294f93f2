# SPDX-License-Identifier: Apache-2.0
# words and layouts that nobody knows are wrong usage
for o in "--draft bogus" "--draft mtp:1" "--layout foo" "--layout tp=2,tp=2" "--gpu-layers -1" \
    "--hot-experts some" "--stream-from 1k" "--combine q4" "--dispatch all" "--mock-type q9"; do
    rc=0
    $SLUICE run -m $TINY/qwen3 --ids 5 -n 1 $o || rc=$?
    echo "$rc $o"
done
SLUICE_DRAFT=bogus $SLUICE run -m $TINY/qwen3 --ids 5 -n 1 || echo $?
for o in "--draft replay:" "--draft replay:1.5"; do
    $SLUICE bench -m $TINY/qwen3 -n 4 -r 1 $o || echo "$? $o"
done
