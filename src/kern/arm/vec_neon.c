/* SPDX-License-Identifier: Apache-2.0 */
/* The streaming kernels of tmpl/vec.inc with NEON. */
#include "kern/arm/simd_neon.h"

#define K(op) kern_##op##_neon
#include "kern/tmpl/vec.inc"
