/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of attention over rows that are keys and values share (ckv.c, ckv_bf16.c).
 * Room-internal. */
#ifndef DEV_CPU_CKV_H
#define DEV_CPU_CKV_H

#include "dev/cpu/cpu.h"
#include "dev/cpu/kv_page.h"
#include "dev/cpu/mla.h"

struct ckv {
    const struct dev_attn_ckv *p;
    const struct cpu_kv *kv, *more; /* more: NULL where there are no entries */
    int ldx, d16;
};
/* Rows of a span of a unit, which is a token: n from the token's row number `at` on, of positions
 * or of entries. */
struct ckv_span {
    const struct ckv *a;
    const struct dev_step *b;
    int seq, n, at;
    bool entries;
    int pos0;            /* the first position that the token sees */
    const int32_t *pick; /* NULL: entries are counted from the first one on */
};
struct ckv_span dev_cpu_ckv_span(const struct cpu_span_job *j, const struct cpu_unit *u, int span);
/* Row i of it, and how many lie side by side from there on. */
const uint8_t *dev_cpu_ckv_row(const struct ckv_span *s, int i, int *n);

/* On bf16: queries, weights and rows are rounded to bf16, sums are f32. */
void dev_cpu_ckv16_begin(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                         float *mem);
void dev_cpu_ckv16_span(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                        const int where[2], float *mem, struct cpu_part out);
size_t dev_cpu_ckv16_floats(int d);

#endif
