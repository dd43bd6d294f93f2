/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of devices that replay logs, with the lanes of a workgroup: one row each, and for
 * every run format: mv of integer codes, mm of these for many columns, mf of floats, row for
 * look-ups. cm_NAME is NAME on matrix units, cm of a format is mm so (kernel/cm.inc). Their code is
 * in kernel/, in a language that is GLSL and C; the build reads this list
 * (cmake/SluiceKernels.cmake). */
#ifndef DEV_GPU_KERNEL_LIST_H
#define DEV_GPU_KERNEL_LIST_H

/* clang-format off */
#define GPU_KERNEL_LIST(X) \
    X(norm, 64)            \
    X(prep, 128)           \
    X(floats, 64)          \
    X(rope, 64)            \
    X(put, 64)             \
    X(attn, 128)           \
    X(attn16, 128)         \
    X(fold, 128)           \
    X(glu, 64)             \
    X(add, 64)             \
    X(best, 256)           \
    X(route, 64)           \
    X(slots, 64)           \
    X(wsum, 64)            \
    X(sum, 64)             \
    X(combine, 64)         \
    X(mla, 128)            \
    X(mla16, 128)          \
    X(mla_i16, 128)        \
    X(expand, 128)         \
    X(expand16, 128)       \
    X(expanded, 128)       \
    X(expanded16, 128)     \
    X(delta_in, 64)        \
    X(delta, 64)           \
    X(delta_keep, 64)      \
    X(delta_out, 64)       \
    X(gate, 64)            \
    X(group, 256)          \
    X(sums, 128)           \
    X(halves, 128)         \
    X(selftest, 64)        \
    X(quotients, 64)
#define GPU_UNITS_LIST(X) \
    X(cm_sums, 128)       \
    X(cm_halves, 128)
#define GPU_MV_LANES 128
#define GPU_MM_LANES 128
#define GPU_MF_LANES 128
#define GPU_ROW_LANES 64
/* clang-format on */

#endif
