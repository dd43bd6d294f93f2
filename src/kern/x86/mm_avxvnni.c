/* SPDX-License-Identifier: Apache-2.0 */
/* Products of code formats with AVX-VNNI. */
#define MM_ISA avxvnni
#define DP "%{vex%} vpdpbusd"
#include "kern/tmpl/mm_dp.inc"
