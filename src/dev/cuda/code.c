/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels' code, PTX that the build made of gpu/kernel. */
#include "dev/cuda/cuda.h"

/* The bytes of a file, and a 0. */
#define CUDA_PTX(of, path)                                                                         \
    __asm__(".section .rodata\n"                                                                   \
            "dev_cuda_ptx_" #of ":\n"                                                              \
            ".incbin \"" path "\"\n"                                                               \
            ".byte 0\n"                                                                            \
            ".previous\n");                                                                        \
    extern const char dev_cuda_ptx_##of[];
#include <ptx.inc>

#define CODE(of, lanes)                                                                            \
    {                                                                                              \
        .name = #of, .ptx = dev_cuda_ptx_##of, .n_lane = lanes                                     \
    }
#define NONE(of)                                                                                   \
    {                                                                                              \
        .name = #of                                                                                \
    }

const struct cuda_code dev_cuda_code[GPU_N_KERNEL] = {
#define X(of, lanes) CODE(of, lanes),
    GPU_KERNEL_LIST(X) GPU_UNITS_LIST(X)
#undef X
#define X(of, type, k, bytes, hdr, grp, header, planes, half, min, off)                            \
    CODE(mv_##of, GPU_MV_LANES), CODE(mf_##of, GPU_MF_LANES), CODE(row_##of, GPU_ROW_LANES),       \
        CODE(mm_##of, GPU_MM_LANES), CODE(cm_##of, GPU_MM_LANES),
        MM_CODE_FMTS(X)
#undef X
#define X(of, type, k, bytes)                                                                      \
    NONE(mv_##of), CODE(mf_##of, GPU_MF_LANES), CODE(row_##of, GPU_ROW_LANES), NONE(mm_##of),      \
        NONE(cm_##of),
            MM_FLOAT_FMTS(X)
#undef X
};
