# SPDX-License-Identifier: Apache-2.0
$SLUICE inspect $TINY/qwen3 --dump model.embed_tokens.weight /dev/full
