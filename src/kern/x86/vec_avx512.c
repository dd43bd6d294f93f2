/* SPDX-License-Identifier: Apache-2.0 */
/* The streaming kernels of tmpl/vec.inc with AVX-512. */
#include "kern/x86/simd_avx512.h"

#define K(op) kern_##op##_avx512
#include "kern/tmpl/vec.inc"
