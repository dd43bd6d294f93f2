/* SPDX-License-Identifier: Apache-2.0 */
/* Products of code formats with AVX-512 VL and VNNI, for CPUs that have them without VBMI. */
#define MM_ISA vnni256
#define DP "vpdpbusd"
#include "kern/tmpl/mm_dp.inc"
