# SPDX-License-Identifier: Apache-2.0
mkdir d; cp $TINY/llama2/config.json $TINY/llama2/model.safetensors d/
$SLUICE run -m d -p hello -n 1
