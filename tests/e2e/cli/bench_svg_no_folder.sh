# SPDX-License-Identifier: Apache-2.0
$SLUICE bench --kernels q8_0 --csv b.csv --svg out/b.svg
