/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what this CPU can do, and the cap that SL_CPU sets. */
#include "base/cpu.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
#define X(name) #name,
    CPU_ISA_LIST(X)
#undef X
};

#if defined(__x86_64__)
#include <cpuid.h>

static uint64_t xgetbv0(void)
{
    uint32_t a, d;
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return ((uint64_t)d << 32) | a;
}

static uint32_t detect(void)
{
    uint32_t a, b, c, d, mask = 1u << CPU_ISA_ref;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return mask;
    uint32_t c1 = c;
    uint64_t xcr = xgetbv0();
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return mask;
    if ((xcr & 6) == 6 && (c1 & bit_FMA) && (c1 & bit_F16C) && (b & bit_AVX2))
        mask |= 1u << CPU_ISA_avx2;
    else
        return mask;
    uint32_t a1, b1, c2, d1;
    if (!__get_cpuid_count(7, 1, &a1, &b1, &c2, &d1)) a1 = 0;
    if (a1 & (1u << 4)) mask |= 1u << CPU_ISA_avxvnni;
    uint32_t f = bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ;
    if ((xcr & 0xe6) != 0xe6 || (b & f) != f) return mask;
    mask |= 1u << CPU_ISA_avx512;
    if (!(c & bit_AVX512VNNI)) return mask;
    mask |= 1u << CPU_ISA_vnni256;
    if (!(c & bit_AVX512VBMI)) return mask;
    mask |= 1u << CPU_ISA_avx512vnni;
    if (a1 & (1u << 5)) mask |= 1u << CPU_ISA_avx512bf16;
    return mask;
}

uint32_t cpu_family_model(void)
{
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    uint32_t family = (a >> 8) & 15, model = (a >> 4) & 15;
    if (family == 15) family += (a >> 20) & 255;
    if (family >= 6) model |= ((a >> 16) & 15) << 4;
    return (family << 8) | model;
}
#elif defined(__aarch64__)
#include <sys/auxv.h>
#ifndef HWCAP_ASIMDDP
#define HWCAP_ASIMDDP (1ul << 20)
#endif
#ifndef HWCAP2_I8MM
#define HWCAP2_I8MM (1ul << 13)
#endif

static uint32_t detect(void)
{
    uint32_t mask = 1u << CPU_ISA_ref;
    if (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) mask |= 1u << CPU_ISA_neon;
    else return mask;
    if (getauxval(AT_HWCAP2) & HWCAP2_I8MM) mask |= 1u << CPU_ISA_i8mm;
    return mask;
}

uint32_t cpu_family_model(void)
{
    return 0;
}
#else
static uint32_t detect(void)
{
    return 1u << CPU_ISA_ref;
}
uint32_t cpu_family_model(void)
{
    return 0;
}
#endif

uint32_t cpu_isa_native(void)
{
    return detect();
}

uint32_t cpu_isa_cap(const char *name)
{
    for (int i = 0; i < CPU_N_ISA; i++)
        if (strcmp(name, names[i]) == 0) return (2u << i) - 1;
    return 0;
}

uint32_t cpu_isa_mask(void)
{
    static _Atomic uint32_t cached; /* relaxed: every thread computes the same value */
    uint32_t mask = atomic_load_explicit(&cached, memory_order_relaxed);
    if (mask) return mask;
    mask = detect();
    const char *cap = getenv("SL_CPU");
    if (cap && cpu_isa_cap(cap)) mask &= cpu_isa_cap(cap);
    atomic_store_explicit(&cached, mask, memory_order_relaxed);
    return mask;
}

const char *cpu_isa_name(enum cpu_isa isa)
{
    return isa < CPU_N_ISA ? names[isa] : "?";
}

const char *cpu_isa_best(uint32_t mask)
{
    for (int i = CPU_N_ISA - 1; i >= 0; i--)
        if ((mask >> i) & 1u) return names[i];
    return "ref";
}
