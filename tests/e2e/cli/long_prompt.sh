# SPDX-License-Identifier: Apache-2.0
ids=$(seq -s, 5 80); $SLUICE run -m $TINY/qwen3 --ids $ids -n 1 -c 32
