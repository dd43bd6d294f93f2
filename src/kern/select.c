/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing kernels: the reference first, then the variants in rising preference. */
#include <stdatomic.h>
#include <string.h>

#include "kern/cpu_tune.h"
#include "kern/kern.h"

#if defined(__x86_64__)
#include "kern/x86/variants.h"
#elif defined(__aarch64__)
#include "kern/arm/variants.h"
#else
#define KERN_VARIANTS(V)
#endif

const struct kern_tune *kern_tune_for(uint32_t family_model)
{
    static const struct kern_tune rows[] = {
#define X(core, family, model0, model1, two, one, several, from, far_1, far)                       \
    {#core, family, model0, model1, two, one, several, from, far_1, far},
        KERN_CPU_TUNE_LIST(X)
#undef X
    };
    int family = (int)(family_model >> 8), model = (int)(family_model & 0xff);
    const struct kern_tune *t = rows;
    while (t->family != KERN_CPU_ANY &&
           (t->family != family || model < t->model0 || model > t->model1))
        t++;
    return t;
}

/* The bundle whose variant of an operator a mask selects. */
static enum cpu_isa variant_of(int op, uint32_t mask)
{
    enum cpu_isa best = CPU_ISA_ref;
#define V(name, isa)                                                                               \
    if (op == KERN_OP_##name && cpu_has(mask, CPU_ISA_##isa)) best = CPU_ISA_##isa;
    KERN_VARIANTS(V)
#undef V
    (void)mask, (void)op;
    return best;
}

void kern_select_for(struct kern *k, uint32_t mask, uint32_t family_model)
{
    const struct kern_tune *t = kern_tune_for(family_model);
#define X(op, ret, params) k->op = kern_##op##_ref;
    KERN_LIST(X)
#undef X
#define V(name, isa)                                                                               \
    if (cpu_has(mask, CPU_ISA_##isa)) k->name = kern_##name##_##isa;
    KERN_VARIANTS(V)
#undef V
    k->bf16_pairs = variant_of(KERN_OP_mm_bf16x, mask) != CPU_ISA_ref;
    k->attn_bf16 = variant_of(KERN_OP_attn_dot_bf16, mask) != CPU_ISA_ref;
    k->attn_i16 =
        variant_of(KERN_OP_attn_dot_i16, mask) == CPU_ISA_avx2 && !cpu_has(mask, CPU_ISA_avx512);
    k->two_tiles = t->two_tiles;
    /* Only these variants read them. Two tiles begin at eight columns; sums in registers end
     * before. */
    k->short_rec = 0;
    if (variant_of(KERN_OP_mm_q4_0, mask) == CPU_ISA_avx512vnni)
        k->short_rec = k->two_tiles ? 6 : MM_FEW;
    k->prefetch_1 = t->prefetch_1;
    k->prefetch_n = t->prefetch_n;
    k->prefetch_from = t->prefetch_from;
    k->prefetch_far_1 = t->prefetch_far_1;
    k->prefetch_far = t->prefetch_far;
}

void kern_select(struct kern *k, uint32_t mask)
{
    kern_select_for(k, mask, cpu_family_model());
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
    return cpu_isa_name(variant_of(op, mask));
}
