/* SPDX-License-Identifier: Apache-2.0 */
/* The table of kernels chosen for this CPU. Pure functions; the rows and what they do: kern_list.h.
 */
#ifndef KERN_KERN_H
#define KERN_KERN_H

#include "base/cpu.h"
#include "kern/attn.h"
#include "kern/draw.h"
#include "kern/kern_list.h"
#include "kern/mm_fmt.h"

struct kern {
#define X(op, ret, params) ret(*op) params;
    KERN_LIST(X)
#undef X
    int bf16_pairs; /* mm_bf16x is faster than mm_bf16 */
    int attn_bf16;  /* attention on bf16 is faster than on f32 */
    int attn_i16;   /* attention on 16-bit integers is */
    int short_rec;  /* the code formats take short records up to so many columns; 0 = none */
    int two_tiles;  /* all code formats take two tiles at once, where a variant does at all */
    int prefetch_1; /* bytes ahead of a weight stream at one column; 0 = none */
    int prefetch_n; /* at several columns, prefetch_from or more */
    int prefetch_from;
    int prefetch_far_1; /* into the second-level cache as well, at one column */
    int prefetch_far;   /* from prefetch_from to MM_FEW columns */
};

enum kern_op {
#define X(op, ret, params) KERN_OP_##op,
    KERN_LIST(X)
#undef X
        KERN_N_OP
};

/* Prototypes of every op for every ISA; which exist is the variants lists' business. */
#define KERN_PROTO(isa, op, ret, params) ret kern_##op##_##isa params;
#define X(op, ret, params)                                                                         \
    KERN_PROTO(ref, op, ret, params)                                                               \
    KERN_PROTO(avx2, op, ret, params)                                                              \
    KERN_PROTO(avxvnni, op, ret, params)                                                           \
    KERN_PROTO(vnni256, op, ret, params)                                                           \
    KERN_PROTO(avx512, op, ret, params)                                                            \
    KERN_PROTO(avx512vnni, op, ret, params)                                                        \
    KERN_PROTO(avx512bf16, op, ret, params)                                                        \
    KERN_PROTO(neon, op, ret, params)                                                              \
    KERN_PROTO(i8mm, op, ret, params)
KERN_LIST(X)
#undef X

/* A row of cpu_tune.h, which says what the fields mean. family KERN_CPU_ANY: of every CPU. */
struct kern_tune {
    const char *core;
    int family, model0, model1;
    int two_tiles, prefetch_1, prefetch_n, prefetch_from, prefetch_far_1, prefetch_far;
};
/* The row for a CPU by cpu_family_model's number; never NULL. Pure. */
const struct kern_tune *kern_tune_for(uint32_t family_model);
/* Fill *k with the best variants in an ISA mask (base/cpu.h), and the constants of a core. Pure. */
void kern_select_for(struct kern *k, uint32_t isa_mask, uint32_t family_model);
/* The same for the core that this is. */
void kern_select(struct kern *k, uint32_t isa_mask);
/* The table for this CPU (capped by SL_CPU), chosen at the first call. Threads: any. */
const struct kern *kern_get(void);
/* kern_mm with a table of one's own (tests). */
void kern_mm_with(const struct kern *k, const struct mm_mat *m, int tile0, int n_tile,
                  const struct mm_act_buf *x, enum mm_act form, const int32_t *idx, int n_tok,
                  float *y, int64_t ldy, const uint8_t *then, int again, void *scratch);
/* For lists: the name of an op, and of the ISA whose variant the mask selects. */
const char *kern_op_name(int op);
const char *kern_op_isa(int op, uint32_t isa_mask);

/* mm_bf16x: bf16 weights times bf16 activations (mm_run.xb), the results of mm_bf16 (but for
 * subnormal products, which the instruction may flush).
 * mm_bf16_row: y = x[n] rounded to bf16 (nearest even; subnormal values too; NaN quiet).
 * mm_amax: the largest |x| of each of n_group groups of 32 (NaN ignored).
 * The quantiser's row, mm_quant: n_group groups of 32 values of x to integers, |amax[g]| the
 * largest magnitude of each. hi: as form INT8. lo (may be NULL): then the groups are quantised as
 * in INT15 wherever amax[g] has no sign, and as INT8 where it has one. What is quantised is x * inv
 * (mm.h: 1 / unit). See kern_mm_prep. attn_dot_bf16, attn_mix_bf16, attn_soft_bf16: attn.h.
 * attn_rows_bf16: y[r * ldy + i] = x[r * ldx + i] rounded to bf16 (nearest even), i < n.
 * attn_pairs_bf16: the same with pairs of rows side by side: y[r / 2 * ldy + 2 i + r % 2]; after
 * an odd last row zeros. attn_f16_rows, attn_f16_keys: as attn_q8_rows, attn_q8_keys, of an f16
 * cache. attn_q8_rows: rows of d values of a q8 cache (vec.h) to bf16, d rounded up to 16.
 * attn_q8_keys: a group of 16 keys of a q8 cache to the pairs of a bf16 one.
 * attn_q8_query: x[d] (finite) to int8 in lane lane of ld: code i to q[4 (i / 4 ld + lane) + i %
 * 4], i < d rounded up to 4, zeros after d; for group g of 32 scale[g ld + lane] = max|x| / 127
 * and bias[g ld + lane] = -128 times the sum of its codes. attn_dot_q8, attn_mix_q8: attn.h.
 * draw_next: the first tile of DRAW_TILE ids from id0 (a multiple of it) on in which one may beat
 * r->best, and its words; r->n where there is none.
 * draw_mass: the sum of base/fp_math.h's e^z over those of n with z > -inf and z >= least, in
 * order. */

#endif
