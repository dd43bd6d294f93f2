/* SPDX-License-Identifier: Apache-2.0 */
/* The streaming kernels of tmpl/vec.inc with AVX2. */
#include "kern/x86/simd_avx2.h"

#define K(op) kern_##op##_avx2
#include "kern/tmpl/vec.inc"
