# SPDX-License-Identifier: Apache-2.0
$SLUICE run -m $DATA/../../models/demo/demo.gguf --ids 5 -n 1 --draft mtp --draft-vocab-from text
