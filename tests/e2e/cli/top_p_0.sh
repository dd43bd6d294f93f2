# SPDX-License-Identifier: Apache-2.0
a=$($SLUICE run -m demo -q -p "Once upon" -n 12)
b=$($SLUICE run -m demo -q -p "Once upon" -n 12 --temp 1.9 --top-p 0 --seed 3)
test "$a" = "$b" && echo same
