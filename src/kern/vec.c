/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the variants of the streaming kernels for this CPU. */
#include "kern/vec.h"

#include "base/cpu.h"

#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#define X(op, ret, args) k->op = VARIANT(op);
#define CHOOSE(name)                                                                               \
    do {                                                                                           \
        VEC_LIST(X)                                                                                \
        k->isa = name;                                                                             \
    } while (0)

void kern_vec_select(struct vec_kern *k, uint32_t isa_mask)
{
#define VARIANT(op) kern_##op##_ref
    CHOOSE("ref");
#undef VARIANT
    k->peak_i8 = kern_peak_i8_ref;
    k->peak_f32 = kern_peak_f32_ref;
    k->peak_bf16 = NULL;
    k->peak_i16 = NULL;
#if defined(__x86_64__)
#define VARIANT(op) kern_##op##_avx2
    if (cpu_has(isa_mask, CPU_ISA_avx2)) CHOOSE("avx2");
#undef VARIANT
#define VARIANT(op) kern_##op##_avx512
    if (cpu_has(isa_mask, CPU_ISA_avx512)) CHOOSE("avx512");
#undef VARIANT
    if (cpu_has(isa_mask, CPU_ISA_avx2)) k->peak_i8 = kern_peak_i8_avx2;
    if (cpu_has(isa_mask, CPU_ISA_avx2)) k->peak_f32 = kern_peak_f32_avx2;
    if (cpu_has(isa_mask, CPU_ISA_avx2)) k->peak_i16 = kern_peak_i16_avx2;
    if (cpu_has(isa_mask, CPU_ISA_avx512)) k->peak_f32 = kern_peak_f32_avx512;
    if (cpu_has(isa_mask, CPU_ISA_avx512bf16)) k->peak_bf16 = kern_peak_bf16_avx512bf16;
#ifndef KERN_NO_avxvnni
    if (cpu_has(isa_mask, CPU_ISA_avxvnni)) k->peak_i8 = kern_peak_i8_avxvnni;
#endif
#ifndef KERN_NO_vnni256
    if (cpu_has(isa_mask, CPU_ISA_vnni256)) k->peak_i8 = kern_peak_i8_vnni256;
#endif
    if (cpu_has(isa_mask, CPU_ISA_avx512vnni)) k->peak_i8 = kern_peak_i8_avx512vnni;
#elif defined(__aarch64__)
#define VARIANT(op) kern_##op##_neon
    if (cpu_has(isa_mask, CPU_ISA_neon)) CHOOSE("neon");
#undef VARIANT
    if (cpu_has(isa_mask, CPU_ISA_neon)) k->peak_i8 = kern_peak_i8_neon;
    if (cpu_has(isa_mask, CPU_ISA_neon)) k->peak_f32 = kern_peak_f32_neon;
#endif
    (void)isa_mask;
}

bool kern_zero_uncached(void *p, size_t n)
{
#if defined(__x86_64__)
    for (size_t i = 0; i < n; i += 16)
        _mm_stream_si128((__m128i *)((char *)p + i), _mm_setzero_si128());
    _mm_sfence();
    return true;
#else
    memset(p, 0, n);
    return false;
#endif
}
