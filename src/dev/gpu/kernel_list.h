/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of devices that replay logs: one row each, and for every run format three: mv of
 * integer codes, mf of floats, row for look-ups. A driver has code of that name (vk/shader). */
#ifndef DEV_GPU_KERNEL_LIST_H
#define DEV_GPU_KERNEL_LIST_H

/* clang-format off */
#define GPU_KERNEL_LIST(X) \
    X(norm)                \
    X(prep)                \
    X(floats)              \
    X(rope)                \
    X(put)                 \
    X(attn)                \
    X(glu)                 \
    X(add)                 \
    X(best)                \
    X(route)               \
    X(wsum)                \
    X(mla)                 \
    X(selftest)
/* clang-format on */

#endif
