# SPDX-License-Identifier: Apache-2.0
$SLUICE tokenise -m $TINY/qwen3
