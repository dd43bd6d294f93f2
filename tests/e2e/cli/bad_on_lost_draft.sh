# SPDX-License-Identifier: Apache-2.0
timeout 20 $SLUICE serve -m $TINY/qwen3 --port 0 --on-lost reopen --draft-model $TINY/qwen3
