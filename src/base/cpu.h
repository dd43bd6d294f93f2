/* SPDX-License-Identifier: Apache-2.0 */
/* What this CPU can do, as bundles of instruction sets (docs/house.md, Kernels). */
#ifndef BASE_CPU_H
#define BASE_CPU_H

#include <stdbool.h>
#include <stdint.h>

/* X(name): bit i of a mask is the i-th bundle. Rising within an architecture. */
#define CPU_ISA_LIST(X)                                                                            \
    X(ref)                                                                                         \
    X(avx2)                                                                                        \
    X(avxvnni)                                                                                     \
    X(avx512)                                                                                      \
    X(vnni256)                                                                                     \
    X(avx512vnni)                                                                                  \
    X(avx512bf16)                                                                                  \
    X(neon)                                                                                        \
    X(i8mm)

enum cpu_isa {
#define X(name) CPU_ISA_##name,
    CPU_ISA_LIST(X)
#undef X
        CPU_N_ISA
};

/* Bundles that this CPU and the operating system support, capped by the environment's SL_CPU (a
 * bundle's name: it and what is below it in the list). Read once; the first call decides. ref is
 * always set. Threads: any. */
uint32_t cpu_isa_mask(void);
/* The mask for a cap by name; 0 when the name is unknown. Without regard to this CPU. */
uint32_t cpu_isa_cap(const char *name);
/* What the machine has, without SL_CPU. */
uint32_t cpu_isa_native(void);
const char *cpu_isa_name(enum cpu_isa isa);
/* The best bundle in a mask, by name. */
const char *cpu_isa_best(uint32_t mask);
static inline bool cpu_has(uint32_t mask, enum cpu_isa isa)
{
    return (mask >> isa) & 1u;
}
/* "AMD EPYC ..." from /proc is the business of os; this is family/model for per-CPU tables: 0xFFMM,
 * 0 elsewhere. Zen 3 and 4 are 0x19MM, Zen 5 is 0x1AMM. */
uint32_t cpu_family_model(void);

#endif
