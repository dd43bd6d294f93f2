/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over rows that are keys and values on bf16 (kern/attn.h), heads in lanes. The rows of a
 * span are copied side by side, as bf16: that takes little beside what all heads do with them. */
#include "dev/cpu/ckv.h"

struct mem16 {
    uint16_t *q, *w, *x; /* q [d / 2][lanes][2], weights [SPAN / 2][lanes][2], rows [SPAN][d16] */
    float *s, *t;        /* [SPAN][lanes], a query and its bf16 */
};

static size_t carve(float *mem, int d, struct mem16 *m)
{
    size_t row = (size_t)dev_cpu_round16(d);
    size_t size[] = {(size_t)VEC_SPAN * CPU_LANES, 2 * row, row / 2 * CPU_LANES,
                     (size_t)VEC_SPAN / 2 * CPU_LANES, VEC_SPAN * row / 2};
    size_t at[6] = {0};
    for (int i = 0; i < 5; i++)
        at[i + 1] = at[i] + size_round(size[i], 16);
    if (mem)
        *m = (struct mem16){.s = mem,
                            .t = mem + at[1],
                            .q = (uint16_t *)(void *)(mem + at[2]),
                            .w = (uint16_t *)(void *)(mem + at[3]),
                            .x = (uint16_t *)(void *)(mem + at[4])};
    return at[5];
}

size_t dev_cpu_ckv16_floats(int d)
{
    return carve(NULL, d, NULL);
}

void dev_cpu_ckv16_begin(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                         float *mem)
{
    const struct ckv *a = j->op;
    int d = a->p->d, ld = dev_cpu_round16(u->n_head), pair = (d + 1) / 2;
    struct mem16 m;
    (void)carve(mem, d, &m);
    uint16_t *row = (uint16_t *)(void *)(m.t + a->d16);
    memset(m.q, 0, sizeof *m.q * (size_t)(2 * pair * ld));
    for (int h = 0; h < u->n_head; h++) {
        memcpy(m.t, a->p->q + ((int64_t)u->tok0 * a->p->n_head + u->head0 + h) * d,
               sizeof *m.t * (size_t)d);
        c->k.scale_f32(m.t, a->p->scale, d);
        row[2 * pair - 1] = 0;
        kern_get()->attn_rows_bf16(m.t, 0, 1, d, row, 0);
        for (int k = 0; k < pair; k++)
            memcpy(m.q + 2 * (k * ld + h), row + 2 * k, 2 * sizeof *row);
    }
}

/* The span's rows to x, and where their number is odd one of zeros. */
static void rows16(const struct ckv_span *s, uint16_t *x)
{
    const struct cpu_kv *kv = s->a->kv;
    const struct kern *kn = kern_get();
    int d16 = s->a->d16;
    for (int i = 0, n; i < s->n; i += n, x += (int64_t)n * d16) {
        const uint8_t *from = dev_cpu_ckv_row(s, i, &n);
        if (kv->t == VEC_KV_BF16)
            for (int k = 0; k < n; k++)
                memcpy(x + (int64_t)k * d16, from + (size_t)k * kv->row_bytes,
                       sizeof *x * (size_t)d16);
        else
            (kv->t == VEC_KV_Q8 ? kn->attn_q8_rows : kn->attn_f16_rows)(
                from, (int64_t)kv->row_bytes, n, kv->s.d_k, x, d16);
    }
    if (s->n % 2) memset(x, 0, sizeof *x * (size_t)d16);
}

void dev_cpu_ckv16_span(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                        const int where[2], float *mem, struct cpu_part out)
{
    const struct ckv *a = j->op;
    const struct kern *kn = kern_get();
    int d = a->p->d, ld = dev_cpu_round16(u->n_head);
    struct ckv_span s = dev_cpu_ckv_span(j, u, where[0]);
    struct mem16 m;
    int32_t lo[CPU_LANES] = {0}, hi[CPU_LANES];
    float mx[CPU_LANES], l[CPU_LANES];
    (void)carve(mem, d, &m);
    rows16(&s, m.x);
    struct attn_mm dot = {.a = m.x,
                          .lda = a->d16,
                          .lda_k = 2,
                          .b = m.q,
                          .ldb = 2 * ld,
                          .ldb_v = 32,
                          .c = m.s,
                          .ldc = ld,
                          .n_row = s.n,
                          .n_vec = ld / 16,
                          .n_k = (d + 1) / 2};
    kn->attn_dot_bf16(&dot);
    for (int h = 0; h < CPU_LANES; h++)
        hi[h] = s.n;
    c->k.span_col_f32(m.s, ld, s.n, ld / 16, lo, hi, mx, l);
    memcpy(out.m, mx, sizeof(float) * (size_t)u->n_head);
    memcpy(out.l, l, sizeof(float) * (size_t)u->n_head);
    kn->attn_pairs_bf16(m.s, ld, s.n, ld, m.w, 2 * ld);
    const uint16_t *blk = m.x;
    struct attn_mm mix = {.a = m.w,
                          .lda = 2,
                          .lda_k = 2 * ld,
                          .blk = &blk,
                          .blk_rows = VEC_SPAN,
                          .ldb = a->d16,
                          .c = out.o,
                          .ldc = j->ldo,
                          .n_row = u->n_head,
                          .n_vec = a->d16 / 16,
                          .n_k = s.n};
    kn->attn_mix_bf16(&mix);
}
