# SPDX-License-Identifier: Apache-2.0
$SLUICE doctor --place experts=check
