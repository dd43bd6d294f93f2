# SPDX-License-Identifier: Apache-2.0
mkdir d; $SLUICE run -m d --ids 5 -n 1
