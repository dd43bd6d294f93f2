# SPDX-License-Identifier: Apache-2.0
$SLUICE eval -m $TINY/qwen3 --ids 5,6,7 --dump-logits /dev/full --acts f32 --json
