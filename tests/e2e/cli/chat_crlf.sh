# SPDX-License-Identifier: Apache-2.0
# lines that end in CR LF are lines
printf 'hi\r\n/save got\r\n/quit\r\nnever\r\n' | $SLUICE chat -m $TINY/qwen3 -n 2 > /dev/null 2>&1
grep -o '"content":"hi"' got
