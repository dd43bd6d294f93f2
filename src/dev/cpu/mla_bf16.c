/* SPDX-License-Identifier: Apache-2.0 */
/* MLA on bf16 (kern/attn.h): scores and weighted sums of the latent rows, heads in lanes. Rows of a
 * bf16 cache are used where they lie; those of a q8 cache are made for each span. */
#include "dev/cpu/mla.h"

struct abs16_mem {
    uint16_t *q, *w, *x; /* q [d_k / 2][lanes][2], weights [SPAN / 2][lanes][2], rows [SPAN][row] */
    float *s;            /* [SPAN][lanes] */
    float *t;            /* [16][row] f32 on the way to x, or a row of queries */
};

static size_t carve16(float *mem, int d_k, struct abs16_mem *m)
{
    size_t row = (size_t)dev_cpu_round16(d_k), at = 0;
    m->s = mem;
    at += (size_t)VEC_SPAN * CPU_LANES;
    m->t = mem + at;
    at += 16 * row;
    m->q = (uint16_t *)(void *)(mem + at);
    at += row / 2 * CPU_LANES;
    m->w = (uint16_t *)(void *)(mem + at);
    at += (size_t)VEC_SPAN / 2 * CPU_LANES;
    m->x = (uint16_t *)(void *)(mem + at);
    return at + (size_t)VEC_SPAN * row / 2;
}

size_t dev_cpu_abs16_floats(int d_k)
{
    struct abs16_mem m;
    return (carve16(NULL, d_k, &m) + 15) / 16 * 16;
}

/* Lane t * n_head + h of a unit: token t of it, head head0 + h. */
void dev_cpu_abs16_begin(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                         float *mem)
{
    const struct mla *a = j->op;
    const struct dev_attn_mla *p = a->p;
    const struct kern *k = kern_get();
    struct abs16_mem m;
    (void)carve16(mem, a->d_k, &m);
    int n = u->n_tok * u->n_head, ld = dev_cpu_round16(n), n_pair = (a->d_k + 1) / 2;
    memset(m.q, 0, sizeof(uint16_t) * (size_t)(2 * n_pair * ld));
    for (int i = 0; i < n; i++) {
        int64_t at = u->tok0 + i / u->n_head, h = u->head0 + i % u->n_head, t = c->tok_list[at];
        const float *rope = p->q + (t * p->n_head + h) * (p->nope + p->rope) + p->nope;
        uint16_t *row = (uint16_t *)(void *)(m.t + a->row);
        memcpy(m.t, c->lat + (at * p->n_head + h) * p->r, sizeof(float) * (size_t)p->r);
        memcpy(m.t + p->r, rope, sizeof(float) * (size_t)p->rope);
        c->k.scale_f32(m.t, p->scale, a->d_k);
        row[a->d_k] = 0;
        k->attn_rows_bf16(m.t, 0, 1, a->d_k, row, 0);
        for (int d = 0; d < n_pair; d++)
            memcpy(m.q + 2 * (d * ld + i), row + 2 * d, 2 * sizeof(uint16_t));
    }
}

/* Rows of positions [p, p + n) of one block as bf16: where they lie, or made in x. */
static const uint16_t *rows16(struct cpu *c, const struct mla *a, const uint8_t *from, int n,
                              uint16_t *x, float *t)
{
    const struct cpu_kv *kv = a->kv;
    if (kv->t == VEC_KV_BF16) return (const uint16_t *)(const void *)from;
    for (int i = 0; i < n; i += 16) {
        int k = n - i < 16 ? n - i : 16;
        c->k.get_v(kv->t, from + (size_t)i * kv->row_bytes, (int64_t)kv->row_bytes, k, a->d_k, t,
                   a->row);
        kern_get()->attn_rows_bf16(t, a->row, k, a->row, x + (int64_t)i * a->row, a->row);
    }
    return x;
}

static const uint8_t *row_at(const struct mla *a, const struct dev_batch *b, int seq, int p)
{
    const struct cpu_kv *kv = a->kv;
    int blk = b->blk[(int64_t)seq * b->ld_blk + p / kv->s.blk_tok];
    return dev_cpu_page(kv, a->p->layer, blk) + (size_t)(p % kv->s.blk_tok) * kv->row_bytes;
}

/* Scores of positions [p0, p0 + to) of a span; run[i] becomes the rows of its i-th n_run positions.
 * While a run is worked on, the next one is fetched. */
static void scores(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u, int p0,
                   int to, const struct abs16_mem *m, const uint16_t **run, int n_run)
{
    const struct mla *a = j->op;
    int ld = dev_cpu_round16(u->n_tok * u->n_head), end = u->span1 * VEC_SPAN;
    int64_t ld_row = a->kv->t == VEC_KV_BF16 ? (int64_t)a->kv->row_bytes / 2 : a->row;
    int last = j->b->pos[c->tok_list[u->tok0 + u->n_tok - 1]] + 1;
    for (int at = 0; at < to; at += n_run) {
        int n = to - at < n_run ? to - at : n_run, p = p0 + at;
        const uint16_t *x = rows16(c, a, row_at(a, j->b, u->seq, p), n,
                                   m->x + (int64_t)at * a->row, m->t);
        run[at / n_run] = x;
        struct attn_mm mm = {.a = x, .lda = ld_row, .lda_k = 2, .b = m->q, .ldb = 2 * ld,
                             .ldb_v = 32, .c = m->s + at * ld, .ldc = ld, .n_row = n,
                             .n_vec = ld / 16, .n_k = (a->d_k + 1) / 2};
        if (p + n_run < end && p + n_run < last) {
            mm.n_next = (int64_t)n_run * (int64_t)a->kv->row_bytes / 2;
            mm.next[0] = row_at(a, j->b, u->seq, p + n_run);
            mm.next[1] = mm.next[0] + mm.n_next;
        }
        kern_get()->attn_dot_bf16(&mm);
    }
}

void dev_cpu_abs16_span(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                        int span, float *mem, struct cpu_part out)
{
    const struct mla *a = j->op;
    const struct kern *k = kern_get();
    struct abs16_mem m;
    (void)carve16(mem, a->d_k, &m);
    int n = u->n_tok * u->n_head, ld = dev_cpu_round16(n), to = 0, p0 = span * VEC_SPAN;
    int32_t lo[CPU_LANES] = {0}, hi[CPU_LANES] = {0};
    for (int i = 0; i < n; i++) {
        hi[i] = dev_cpu_clamp_span(j->b->pos[c->tok_list[u->tok0 + i / u->n_head]] + 1 - p0);
        to = hi[i] > to ? hi[i] : to;
    }
    const uint16_t *run[VEC_SPAN / 16];
    int n_run = VEC_SPAN; /* positions of one block side by side */
    while (a->kv->s.blk_tok % n_run)
        n_run /= 2;
    scores(c, j, u, p0, to, &m, run, n_run);
    float mx[CPU_LANES], l[CPU_LANES];
    c->k.span_col_f32(m.s, ld, to, ld / 16, lo, hi, mx, l);
    memcpy(out.m, mx, sizeof(float) * (size_t)n);
    memcpy(out.l, l, sizeof(float) * (size_t)n);
    k->attn_pairs_bf16(m.s, ld, to, ld, m.w, 2 * ld);
    struct attn_mm mm = {.lda = 2, .lda_k = 2 * ld, .blk = run, .blk_rows = n_run,
                         .ldb = a->kv->t == VEC_KV_BF16 ? (int64_t)a->kv->row_bytes / 2 : a->row,
                         .ldc = j->ldo, .n_row = u->n_head, .n_vec = a->r16 / 16};
    for (int i = 0; i < n; i += u->n_head) { /* token by token: each its own number of positions */
        mm.a = m.w + 2 * i;
        mm.c = out.o + (int64_t)i * j->ldo;
        mm.n_k = hi[i];
        k->attn_mix_bf16(&mm);
    }
}
