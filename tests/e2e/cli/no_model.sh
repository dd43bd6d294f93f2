# SPDX-License-Identifier: Apache-2.0
$SLUICE run -m ./not-there.gguf --ids 5 -n 1
