# SPDX-License-Identifier: Apache-2.0
$SLUICE quantize $TINY/none out.gguf --weights q4_0 --shard 60000
