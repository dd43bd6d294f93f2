# SPDX-License-Identifier: Apache-2.0
$SLUICE run -m $TINY/qwen3 --ids 5,99999,7 -n 1
