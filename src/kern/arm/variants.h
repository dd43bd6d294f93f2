/* SPDX-License-Identifier: Apache-2.0 */
/* V(op, isa): rising preference, the last one that the CPU supports wins. */
#ifndef KERN_ARM_VARIANTS_H
#define KERN_ARM_VARIANTS_H

#define KERN_VARIANTS(V)                                                                           \
    KERN_MM_FLOATS(V, neon)                                                                        \
    KERN_MM_CODES(V, neon)                                                                         \
    KERN_MM_CODES(V, i8mm)

#endif
