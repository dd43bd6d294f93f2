# SPDX-License-Identifier: Apache-2.0
{ printf 'GGUF\003\000\000\000\001\000\000\000\000\000\000\000\001\000\000\000\000\000\000\000'
  printf '\024\000\000\000\000\000\000\000general.architecture'
  printf '\010\000\000\000\004\000\000\000\000\000\000\000frob'
  printf '\016\000\000\000\000\000\000\000blk.6.x.weight'
  printf '\002\000\000\000\004\000\000\000\000\000\000\000\002\000\000\000\000\000\000\000'
  printf '\000\000\000\000\000\000\000\000\000\000\000\000'; head -c 128 /dev/zero; } > x.gguf
$SLUICE inspect x.gguf | sed "s/ (known.*//"
$SLUICE inspect x.gguf --tensors
$SLUICE inspect x.gguf --experts
