/* SPDX-License-Identifier: Apache-2.0 */
/* V(op, isa): rising preference, the last one that the CPU supports wins. */
#ifndef KERN_X86_VARIANTS_H
#define KERN_X86_VARIANTS_H

/* The sets that take the longest to compile: a build for tests leaves out those that its CPU lacks
 * (SL_OWN_SETS, CMakeLists.txt). */
#ifdef KERN_NO_avxvnni
#define KERN_OF_avxvnni(V)
#else
#define KERN_OF_avxvnni(V) KERN_MM_CODES(V, avxvnni)
#endif
#ifdef KERN_NO_vnni256
#define KERN_OF_vnni256(V)
#else
#define KERN_OF_vnni256(V) KERN_MM_CODES(V, vnni256)
#endif
#ifdef KERN_NO_avx512vnni
#define KERN_OF_avx512vnni(V)
#else
#define KERN_OF_avx512vnni(V) KERN_MM_CODES(V, avx512vnni)
#endif
#ifdef KERN_NO_avx512bf16
#define KERN_OF_avx512bf16(V)
#else
#define KERN_OF_avx512bf16(V)                                                                      \
    V(mm_amax, avx512bf16) V(mm_quant, avx512bf16)                                                 \
    V(mm_bf16x, avx512bf16) V(mm_bf16_row, avx512bf16)                                             \
    V(attn_dot_bf16, avx512bf16) V(attn_mix_bf16, avx512bf16)                                      \
    V(attn_soft_bf16, avx512bf16)                                                                  \
    V(attn_rows_bf16, avx512bf16) V(attn_pairs_bf16, avx512bf16)                                   \
    V(attn_f16_rows, avx512bf16) V(attn_f16_keys, avx512bf16)                                      \
    V(attn_q8_rows, avx512bf16) V(attn_q8_keys, avx512bf16)                                        \
    V(attn_q8_query, avx512bf16) V(attn_dot_q8, avx512bf16) V(attn_mix_q8, avx512bf16)
#endif

#define KERN_VARIANTS(V)                                                                           \
    V(mm_amax, avx2) V(mm_quant, avx2)                                                             \
    V(draw_next, avx2) V(draw_mass, avx2)                                                          \
    KERN_MM_FLOATS(V, avx2)                                                                        \
    KERN_MM_CODES(V, avx2)                                                                         \
    KERN_OF_avxvnni(V)                                                                             \
    KERN_OF_vnni256(V)                                                                             \
    KERN_MM_FLOATS(V, avx512)                                                                      \
    KERN_OF_avx512vnni(V)                                                                          \
    V(attn_rows_i16, avx2) V(attn_f16_i16, avx2) V(attn_query_i16, avx2)                           \
    V(attn_dot_i16, avx2) V(attn_weights_i16, avx2) V(attn_mix_i16, avx2)                          \
    KERN_OF_avx512bf16(V)

#endif
