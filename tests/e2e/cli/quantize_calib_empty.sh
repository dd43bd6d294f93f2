# SPDX-License-Identifier: Apache-2.0
$SLUICE quantize $TINY/none out --weights int4 --calib ''
