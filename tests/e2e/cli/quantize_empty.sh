# SPDX-License-Identifier: Apache-2.0
$SLUICE quantize $TINY/none "" --weights int8
