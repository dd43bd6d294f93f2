# SPDX-License-Identifier: Apache-2.0
$SLUICE --version | head -1 | grep -oE "^sluice 0\.1\.0"
