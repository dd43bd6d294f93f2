/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels' code, SPIR-V that the build made of gpu/kernel. */
#include "dev/vk/vk.h"

#include <spirv.inc>

#define CODE(of)                                                                                   \
    {                                                                                              \
        .name = #of, .words = dev_vk_spv_##of, .n_bytes = sizeof dev_vk_spv_##of                   \
    }
#define NONE(of)                                                                                   \
    {                                                                                              \
        .name = #of                                                                                \
    }
#if DEV_VK_UNITS
#define UNITS(of) CODE(of)
#else
#define UNITS(of) NONE(of)
#endif
const bool dev_vk_has_units = DEV_VK_UNITS;

const struct vk_code dev_vk_code[GPU_N_KERNEL] = {
#define X(of, lanes) CODE(of),
    GPU_KERNEL_LIST(X)
#undef X
#define X(of, lanes) UNITS(of),
        GPU_UNITS_LIST(X)
#undef X
#define X(of, type, k, bytes, hdr, grp, header, planes, half, min, off)                            \
    CODE(mv_##of), CODE(mf_##of), CODE(row_##of), CODE(mm_##of), UNITS(cm_##of),
            MM_CODE_FMTS(X)
#undef X
#define X(of, type, k, bytes)                                                                      \
    NONE(mv_##of), CODE(mf_##of), CODE(row_##of), NONE(mm_##of), NONE(cm_##of),
                MM_FLOAT_FMTS(X)
#undef X
};
