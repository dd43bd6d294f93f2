# SPDX-License-Identifier: Apache-2.0
$SLUICE --version | head -1 | cut -d" " -f1-2
