# SPDX-License-Identifier: Apache-2.0
unset SLUICE_QUIET
for v in "" -v; do
    $SLUICE run -m $TINY/llama3 --ids 5,6,7 -n 8 --draft auto $v 2>&1 >out |
        grep -c "draft: auto: llama3 has no MTP layer: drafts come from the text alone" || true
done
