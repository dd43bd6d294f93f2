# SPDX-License-Identifier: Apache-2.0
$SLUICE bench --kernels q4_0 --defer 1
