/* SPDX-License-Identifier: Apache-2.0 */
#include "kern/ref/simd_ref.h"

#define K(op) kern_##op##_ref
#include "kern/tmpl/vec.inc"
