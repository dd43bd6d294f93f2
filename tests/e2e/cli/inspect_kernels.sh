# SPDX-License-Identifier: Apache-2.0
SL_CPU=ref $SLUICE inspect --kernels | awk '{ print $3 }' | sort -u
