/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing kernels: the reference first, then the variants in rising preference. */
#include <stdatomic.h>
#include <string.h>

#include "kern/kern.h"

#if defined(__x86_64__)
#include "kern/x86/variants.h"
#elif defined(__aarch64__)
#include "kern/arm/variants.h"
#else
#define KERN_VARIANTS(V)
#endif

void kern_select(struct kern *k, uint32_t mask)
{
#define X(op, ret, params) k->op = kern_##op##_ref;
    KERN_LIST(X)
#undef X
    (void)mask;
#define V(name, isa)                                                                               \
    if (cpu_has(mask, CPU_ISA_##isa)) k->name = kern_##name##_##isa;
    KERN_VARIANTS(V)
#undef V
    k->bf16_pairs = k->mm_bf16x != kern_mm_bf16x_ref;
    k->attn_bf16 = k->attn_dot_bf16 != kern_attn_dot_bf16_ref;
    k->attn_i16 = 0;
    int brief = 0;
#if defined(__x86_64__)
    k->attn_i16 = k->attn_dot_i16 == kern_attn_dot_i16_avx2 && !cpu_has(mask, CPU_ISA_avx512);
    brief = k->mm_q4_0 == kern_mm_q4_0_avx512vnni;
#endif
    uint32_t fm = cpu_family_model();
    int zen5 = (fm >> 8) == 0x1a;
    int zen4 =
        (fm >> 8) == 0x19 && (((fm & 0xff) >= 0x10 && (fm & 0xff) <= 0x1f) || (fm & 0xff) >= 0x60);
    int zen3 = (fm >> 8) == 0x19 && !zen4;
    /* A column of one tile has a load for each of its eight products, and one for each of its
     * scales: where the core has as many ports for products as for loads, that bounds it (Zen 5:
     * 52 % of the integer peak with one tile, 68 with two; not measured elsewhere). */
    k->two_tiles = !zen4;
    /* Two tiles begin at eight columns; sums in registers end before. */
    k->brief = !brief ? 0 : k->two_tiles ? 6 : MM_FEW;
    /* At one column a software prefetch costs 10-20 % on Zen 4 (PERF.md) and gains 15-25 points on
     * Zen 3; at several it gains on both, but at two of them not on Zen 4 (94 % of the read
     * bandwidth without, 85 with). Zen 5 wants it far ahead everywhere: one thread reads q4_k at
     * one column at 53 % of the read bandwidth without, 70 with 2 KiB, 92 with 8 KiB. */
    k->prefetch_1 = zen5 ? 8192 : zen4 ? 0 : zen3 ? 2048 : 1024;
    k->prefetch_n = zen5 ? 8192 : zen4 ? 3072 : 2048;
    k->prefetch_from = zen4 ? 3 : 2;
    /* Lines under way to the first-level cache are few: with three to eight columns a core of Zen 4
     * computes longer than memory at 60 GB/s takes, and waits nevertheless unless the second level
     * was told long before (45.7 and 53.4 GB/s with three of q4_0, 40 and 50 with those of q6_k; at
     * 35 GB/s 0 to 5 % more, 15 at eight of q6_k; not measured elsewhere). */
    k->prefetch_far = zen4 ? 12288 : 0;
}

const struct kern *kern_get(void)
{
    static struct kern table;
    static atomic_int state; /* 0 none, 1 being filled, 2 ready; release pairs with acquire below */
    if (atomic_load_explicit(&state, memory_order_acquire) == 2) return &table;
    int none = 0;
    if (atomic_compare_exchange_strong(&state, &none, 1)) {
        kern_select(&table, cpu_isa_mask());
        atomic_store_explicit(&state, 2, memory_order_release);
    }
    while (atomic_load_explicit(&state, memory_order_acquire) != 2) {
    }
    return &table;
}

const char *kern_op_name(int op)
{
    static const char *const names[] = {
#define X(name, ret, params) #name,
        KERN_LIST(X)
#undef X
    };
    return op >= 0 && op < KERN_N_OP ? names[op] : "?";
}

const char *kern_op_isa(int op, uint32_t mask)
{
    const char *isa_name = "ref";
#define V(name, isa)                                                                               \
    if (op == KERN_OP_##name && cpu_has(mask, CPU_ISA_##isa)) isa_name = #isa;
    KERN_VARIANTS(V)
#undef V
    (void)mask, (void)op;
    return isa_name;
}
