/* SPDX-License-Identifier: Apache-2.0 */
/* Attention with keys and values per head on bf16 (kern/attn.h). Keys lie in groups of 16 positions
 * by pairs of dimensions, values in rows: those of a bf16 cache are used where they lie, those of
 * an f16 or q8 cache are made for each span. A row's weighted sum is one chain over pairs of
 * positions from the even one at or before the first that it sees, in which those before count
 * zero. */
#include "dev/cpu/attn.h"
#include "dev/cpu/kv_page.h"
#include "dev/cpu/span.h"

struct mem16 {
    uint16_t *q, *w; /* [rows][2 n_pair], [rows][SPAN] */
    uint16_t *k, *v; /* of an f16 or q8 cache: [SPAN / 16][n_pair][16][2], [SPAN][ldv] */
    float *s, *t;    /* [rows][SPAN], [16][wider of d_k and ldv] */
};

/* Offsets in floats, each part of whole cache lines; pointers where mem is not NULL. */
static size_t carve16(float *mem, int n_row, int d_k, int d_v, struct mem16 *m)
{
    size_t row = (size_t)n_row, pair = (size_t)(d_k + 1) / 2, ldv = ((size_t)d_v + 15) / 16 * 16;
    size_t wide = (size_t)d_k > ldv ? (size_t)d_k : ldv;
    size_t size[] = {row * VEC_SPAN,     16 * wide,       row * pair,
                     row * VEC_SPAN / 2, VEC_SPAN * pair, VEC_SPAN * ldv / 2};
    size_t at[7] = {0};
    for (int i = 0; i < 6; i++)
        at[i + 1] = at[i] + (size[i] + 15) / 16 * 16;
    if (mem)
        *m = (struct mem16){.s = mem,
                            .t = mem + at[1],
                            .q = (uint16_t *)(void *)(mem + at[2]),
                            .w = (uint16_t *)(void *)(mem + at[3]),
                            .k = (uint16_t *)(void *)(mem + at[4]),
                            .v = (uint16_t *)(void *)(mem + at[5])};
    return at[6];
}

size_t dev_cpu_attn16_floats(int n_row, int d_k, int d_v)
{
    return carve16(NULL, n_row, d_k, d_v, NULL);
}

void dev_cpu_attn16_begin(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                          float *mem)
{
    const struct attn *a = j->op;
    int d = a->kv->s.d_k, ld = d + d % 2;
    struct mem16 m;
    (void)carve16(mem, j->n_row, d, a->kv->s.d_v, &m);
    for (int r = 0; r < u->n_tok * a->group; r++) {
        int64_t row = (int64_t)(u->tok0 + r / a->group) * a->p->n_head + u->head0 + r % a->group;
        memcpy(m.t, a->p->q + row * d, sizeof(float) * (size_t)d);
        c->k.scale_f32(m.t, a->p->scale, d);
        m.q[(r + 1) * ld - 1] = 0;
        kern_get()->attn_rows_bf16(m.t, 0, 1, d, m.q + r * ld, 0);
    }
}

/* Where a run of positions from p on has its keys and its values. */
static void run_at(const struct cpu_span_job *j, const struct cpu_unit *u, int p, const uint8_t **k,
                   const uint8_t **v)
{
    const struct attn *a = j->op;
    const struct cpu_kv *kv = a->kv;
    int head = u->head0 / a->group, in = p % kv->blk_tok;
    const uint8_t *page = dev_cpu_seq_page(j, u, p);
    *k = page + dev_cpu_key_at(kv, head, in);
    *v = page + dev_cpu_value_at(kv, head, in);
}

/* Positions of a span that lie side by side. */
static int run_length(const struct cpu_span_job *j)
{
    return BASE_MIN(dev_cpu_run_length(((const struct attn *)j->op)->kv), j->len);
}

/* Where the next span has its runs, as far as there are any: keys and values. */
struct ahead {
    struct attn_region k[VEC_SPAN / 16], v[VEC_SPAN / 16];
    int n;
};

static void look_ahead(const struct cpu_span_job *j, const struct cpu_unit *u, int p, int n_run,
                       struct ahead *x)
{
    const struct cpu_kv *kv = ((const struct attn *)j->op)->kv;
    int last = j->b->pos[u->tok0 + u->n_tok - 1], n = 0;
    for (; n < j->len / n_run && p + n * n_run <= last; n++) {
        run_at(j, u, p + n * n_run, &x->k[n].at, &x->v[n].at);
        x->k[n].n_bytes = (int64_t)(n_run / 16) * (int64_t)kv->group_bytes;
        x->v[n].n_bytes = (int64_t)n_run * (int64_t)kv->row_bytes;
    }
    x->n = n;
}

/* Positions range[0] .. range[1] of the span that begins at range[2], in runs: scores, and rows of
 * values to blk. */
static void runs(const struct cpu_span_job *j, const struct cpu_unit *u, const int range[3],
                 const struct mem16 *m, const uint16_t **blk, const struct ahead *next)
{
    const struct attn *a = j->op;
    const struct cpu_kv *kv = a->kv;
    const struct kern *kn = kern_get();
    int n_run = run_length(j), d = kv->s.d_k, n_pair = (d + 1) / 2, p0 = range[2];
    for (int at = range[0] / n_run * n_run; at < range[1]; at += n_run) {
        const uint8_t *k, *v;
        int n = range[1] - at < n_run ? range[1] - at : n_run, i = at / n_run;
        run_at(j, u, p0 + at, &k, &v);
        struct attn_mm dot = {.a = m->q,
                              .lda = 2 * n_pair,
                              .lda_k = 2,
                              .ldb = 32,
                              .c = m->s + at,
                              .ldc = VEC_SPAN,
                              .n_row = u->n_tok * a->group,
                              .n_vec = (n + 15) / 16,
                              .n_k = n_pair};
        if (kv->t == VEC_KV_BF16) {
            dot.b = (const uint16_t *)(const void *)k;
            dot.ldb_v = (int64_t)kv->group_bytes / 2;
            blk[i] = (const uint16_t *)(const void *)v;
        } else {
            uint16_t *x = m->k + (int64_t)at * n_pair * 2, *y = m->v + (int64_t)at * a->ldv;
            int q8 = kv->t == VEC_KV_Q8;
            for (int g = 0; g < dot.n_vec; g++)
                (q8 ? kn->attn_q8_keys : kn->attn_f16_keys)(k + (size_t)g * kv->group_bytes, d,
                                                            x + 32 * g * n_pair);
            (q8 ? kn->attn_q8_rows : kn->attn_f16_rows)(v, (int64_t)kv->row_bytes, n, kv->s.d_v, y,
                                                        a->ldv);
            dot.b = x;
            dot.ldb_v = 32 * n_pair;
            blk[i] = y;
        }
        if (i < next->n) {
            dot.next = &next->k[i];
            dot.n_next = 1;
        }
        kn->attn_dot_bf16(&dot);
    }
}

static void weigh(const struct attn_mm *mix, int row0, int n_row, int lo, int hi)
{
    struct attn_mm m = *mix;
    if (n_row < m.n_row) m.n_next = 0; /* the big product fetches */
    m.a += row0 * m.lda;
    m.c += row0 * m.ldc;
    m.n_row = n_row;
    m.k0 = lo;
    m.n_k = hi;
    if (hi > lo) kern_get()->attn_mix_bf16(&m);
}

/* Whole pairs that all tokens see for all rows at once, the others token by token. */
static void weigh_all(const struct attn_mm *mix, const struct cpu_span_job *j,
                      const struct cpu_unit *u, int span)
{
    int group = ((const struct attn *)j->op)->group, all0 = 0, all1 = VEC_SPAN, lo, hi;
    for (int t = 0; t < u->n_tok; t++) {
        dev_cpu_seen(j, u, u->tok0 + t, span, &lo, &hi);
        all0 = lo > all0 ? lo : all0;
        all1 = hi < all1 ? hi : all1;
    }
    all0 = (all0 + 1) / 2 * 2;
    all1 = all1 > 0 ? all1 / 2 * 2 : 0;
    int some = all1 > all0;
    for (int part = 0; part < 2; part++) {
        for (int t = 0; t < u->n_tok; t++) {
            dev_cpu_seen(j, u, u->tok0 + t, span, &lo, &hi);
            lo = lo / 2 * 2;
            if (part == 0)
                weigh(mix, t * group, group, lo, some ? all0 : hi);
            else
                weigh(mix, t * group, group, all1, hi);
        }
        if (!some) return;
        if (part == 0) weigh(mix, 0, u->n_tok * group, all0, all1);
    }
}

void dev_cpu_attn16_span(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                         const int where[2], float *mem, struct cpu_part out)
{
    const struct attn *a = j->op;
    const struct cpu_kv *kv = a->kv;
    struct mem16 m;
    (void)c;
    (void)carve16(mem, j->n_row, kv->s.d_k, kv->s.d_v, &m);
    int n_row = u->n_tok * a->group, span = where[0], lo, hi;
    int range[3] = {VEC_SPAN, 0, span * j->len}, n_run = run_length(j);
    for (int t = 0; t < u->n_tok; t++) {
        dev_cpu_seen(j, u, u->tok0 + t, span, &lo, &hi);
        if (hi <= lo) continue;
        range[0] = lo < range[0] ? lo : range[0];
        range[1] = hi > range[1] ? hi : range[1];
    }
    const uint16_t *blk[VEC_SPAN / 16];
    struct attn_mm mix = {.a = m.w,
                          .lda = VEC_SPAN,
                          .lda_k = 2,
                          .blk = blk,
                          .blk_rows = n_run,
                          .ldb = kv->t == VEC_KV_BF16 ? (int64_t)kv->row_bytes / 2 : a->ldv,
                          .c = out.o,
                          .ldc = j->ldo,
                          .n_row = n_row,
                          .n_vec = a->ldv / 16,
                          .add = 1};
    struct ahead next;
    look_ahead(j, u, where[1] * j->len, n_run, &next);
    mix.next = next.v;
    mix.n_next = next.n;
    runs(j, u, range, &m, blk, &next);
    for (int t = 0, r = 0; t < u->n_tok; t++, r += a->group) {
        dev_cpu_seen(j, u, u->tok0 + t, span, &lo, &hi);
        memset(out.l + r, 0, sizeof(float) * (size_t)a->group);
        struct attn_soft soft = {.s = m.s + r * VEC_SPAN,
                                 .lds = VEC_SPAN,
                                 .w = m.w + r * VEC_SPAN,
                                 .ldw = VEC_SPAN,
                                 .n_row = a->group,
                                 .lo = lo,
                                 .hi = hi,
                                 .m = out.m + r,
                                 .l = out.l + r};
        if (hi > lo) kern_get()->attn_soft_bf16(&soft);
    }
    memset(out.o, 0, sizeof(float) * (size_t)n_row * (size_t)j->ldo);
    weigh_all(&mix, j, u, span);
}
