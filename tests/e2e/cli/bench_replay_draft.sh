# SPDX-License-Identifier: Apache-2.0
$SLUICE bench --replay steps --draft-vocab 512
