# SPDX-License-Identifier: Apache-2.0
printf "hello\n/quit\n" | $SLUICE chat -m $TINY/qwen3 >o 2>e; echo $?
