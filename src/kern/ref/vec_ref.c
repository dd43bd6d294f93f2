/* SPDX-License-Identifier: Apache-2.0 */
/* The streaming kernels of tmpl/vec.inc in plain C: the reference of all others. */
#include "kern/ref/simd_ref.h"

#define K(op) kern_##op##_ref
#include "kern/tmpl/vec.inc"
