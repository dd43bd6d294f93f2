# SPDX-License-Identifier: Apache-2.0
# more layers than there are: all, as llama.cpp takes it
for n in 2 3 99; do
  SL_DEVICE=check $SLUICE inspect $TINY/deepseek_v3 --n-cpu-moe $n --json |
    grep -o '"place":.*' | grep -o '"parts":"[^"]*"'
done
