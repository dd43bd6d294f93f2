# SPDX-License-Identifier: Apache-2.0
$SLUICE engine -m $TINY/qwen3 --listen unix:engine.sock --seed 7
