# SPDX-License-Identifier: Apache-2.0
unset SLUICE_QUIET
# What each rank would have to do, experts placed by their load; the published example's counts.
cat >s.json <<END
{"experts":12,"used":2,"layers":[
{"layer":1,"tokens":518,"counts":[90,132,40,61,104,165,39,4,73,56,183,86]},
{"layer":2,"tokens":528,"counts":[20,107,104,64,19,197,187,157,172,86,16,27]}]}
END
x="$SLUICE inspect $TINY/qwen3_moe.gguf --experts --expert-stats s.json"
$x --ranks 4 | sed 's/:.*//'
$x --ranks 8 --redundant 4 --nodes 2 | grep 'on 8'
$x --ranks 8 2>&1 || echo $?
$SLUICE inspect $TINY/qwen3_moe.gguf --ranks 8 2>&1 || echo $?
$x --redundant 8 2>&1 || echo $?
