# SPDX-License-Identifier: Apache-2.0
$SLUICE engine -m $TINY/deepseek_v2 --device check --layout dp=2,ep=2 --spare 1 -t 2 \
  --listen unix:e.sock
