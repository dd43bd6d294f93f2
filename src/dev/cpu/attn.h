/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of attention with keys and values per head share (attn.c, attn_bf16.c).
 * Room-internal. */
#ifndef DEV_CPU_ATTN_H
#define DEV_CPU_ATTN_H

#include "dev/cpu/cpu.h"
#include "dev/cpu/kv_page.h"

/* Rows and row floats of a part, and floats of scratch per worker, at most. */
void dev_cpu_attn_need(const struct dev_shapes *p, int *n_row, int *ldo, size_t *mem_floats);

struct attn {
    const struct dev_attn *p;
    const struct cpu_kv *kv;
    int group, ldv; /* query heads per KV head; d_v rounded up to 16 */
};

/* Attention of p over the step: units into c->span.unit, the rest into *a and *j, which points to
 * *a and *a to *p. */
void dev_cpu_attn_job(struct cpu *c, const struct dev_step *b, const struct dev_attn *p,
                      struct attn *a, struct cpu_span_job *j);

/* What a row's values are multiplied by at the end: 1 / l, where m and l are its largest score and
 * the sum of exp(score - m). A sink is one more score, without a value. */
float dev_cpu_weight_of(const struct cpu *c, float m, float l, const float *sink);

/* The blocks that token t of the step sees in the heads of a unit; NULL: all. */
static inline const int32_t *dev_cpu_picked(const struct cpu_span_job *j, const struct cpu_unit *u,
                                            int t)
{
    const struct attn *a = j->op;
    const struct dev_blocks *s = &a->p->some;
    if (!s->pick || j->b->pos[t] < s->n_pick * s->blk) return NULL;
    return s->pick + ((int64_t)t * a->kv->s.n_head + u->head0 / a->group) * s->n_pick;
}

/* Is x among n rising numbers? */
static inline bool dev_cpu_is_among(const int32_t *v, int n, int x)
{
    while (n > 1) {
        int half = n / 2;
        v += v[half] <= x ? half : 0;
        n -= half;
    }
    return *v == x;
}

/* The positions of a span that token t of the step sees, from the span's first: [*lo, *hi); empty
 * when *hi <= *lo. Where blocks are chosen each is a span. */
static inline void dev_cpu_seen(const struct cpu_span_job *j, const struct cpu_unit *u, int t,
                                int span, int *lo, int *hi)
{
    const struct attn *a = j->op;
    int pos = j->b->pos[t] - span * j->len, w = a->p->n_window;
    const int32_t *picked = dev_cpu_picked(j, u, t);
    *hi = pos + 1 < j->len ? pos + 1 : j->len;
    *lo = w > 0 && pos - w + 1 > 0 ? pos - w + 1 : 0;
    if (picked && !dev_cpu_is_among(picked, a->p->some.n_pick, span)) *hi = 0;
}

static inline const uint8_t *dev_cpu_seq_page(const struct cpu_span_job *j,
                                              const struct cpu_unit *u, int p)
{
    const struct attn *a = j->op;
    return dev_cpu_page_of(a->kv, a->p->layer, j->b, u->seq, p);
}

/* On bf16: queries, weights, keys and values are rounded to bf16, sums are f32. */
void dev_cpu_attn16_begin(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                          float *mem);
void dev_cpu_attn16_span(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                         const int where[2], float *mem, struct cpu_part out);
/* Floats of scratch that they use. */
size_t dev_cpu_attn16_floats(int n_row, int d_k, int d_v);

#endif
