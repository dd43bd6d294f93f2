# SPDX-License-Identifier: Apache-2.0
$SLUICE run -m $TINY/none -p a --stop b --stop ""
