# SPDX-License-Identifier: Apache-2.0
# a byte order mark in front of a prompt or a grammar is none of it, UTF-16 is said
printf '\357\273\277hi' > bom
printf '\357\273\277root ::= "yes"' > gbnf
printf '\377\376h\0i\0' > utf16
[ "$($SLUICE run -q -m $TINY/qwen3 -f bom -n 3)" = "$($SLUICE run -q -m $TINY/qwen3 -p hi -n 3)" ]
$SLUICE run -q -m $TINY/qwen3 -p a -n 9 --grammar gbnf
$SLUICE run -q -m $TINY/qwen3 -f utf16 -n 3
