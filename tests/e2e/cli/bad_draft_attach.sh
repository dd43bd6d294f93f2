# SPDX-License-Identifier: Apache-2.0
$SLUICE serve -m $TINY/qwen3 --attach unix:engine.sock --draft-model demo
