/* SPDX-License-Identifier: Apache-2.0 */
/* MLA on bf16 (kern/attn.h): scores and weighted sums of the latent rows, heads in lanes. Rows of a
 * bf16 cache are used where they lie (absorbed: of a q8 cache too); others are made for each span.
 */
#include "dev/cpu/keep.h"
#include "dev/cpu/kv_page.h"
#include "dev/cpu/mat.h"
#include "dev/cpu/mla.h"
#include "dev/cpu/rows.h"
#include "dev/cpu/span.h"

struct abs16_mem {
    uint16_t *q, *w, *x; /* q [d_k / 2][lanes][2], weights [SPAN / 2][lanes][2], rows [SPAN][row] */
    float *s;            /* [SPAN][lanes] */
    float *t;            /* [16][row] f32 on the way to x, or a row of queries */
};

static size_t abs_carve(float *mem, int d_k, struct abs16_mem *m)
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
    return (abs_carve(NULL, d_k, &m) + 15) / 16 * 16;
}

/* ---- absorbed ---- */

/* Queries in lanes for a q8 cache, in the place of those for a bf16 one. */
struct queries8 {
    int8_t *q;    /* [d_k / 4][lanes][4] */
    float *scale; /* [d_k / 32][lanes] */
    int32_t *bias;
};

static struct queries8 carve8(const struct abs16_mem *m, int d_k, int ld)
{
    struct queries8 x = {.q = (int8_t *)(void *)m->q};
    x.scale = (float *)(void *)(x.q + (int64_t)(d_k + 3) / 4 * 4 * ld);
    x.bias = (int32_t *)(void *)(x.scale + (int64_t)((d_k + 31) / 32) * ld);
    return x;
}

/* Row m->t as lane i. */
static void put_query(const struct mla *a, const struct abs16_mem *m, int i, int ld)
{
    const struct kern *k = kern_get();
    if (a->kv->t == VEC_KV_Q8) {
        struct queries8 x = carve8(m, a->d_k, ld);
        k->attn_q8_query(m->t, a->d_k, i, ld, x.q, x.scale, x.bias);
        return;
    }
    uint16_t *row = (uint16_t *)(void *)(m->t + a->row);
    row[a->d_k] = 0;
    k->attn_rows_bf16(m->t, 0, 1, a->d_k, row, 0);
    for (int d = 0; d < (a->d_k + 1) / 2; d++)
        memcpy(m->q + 2 * (d * ld + i), row + 2 * d, 2 * sizeof(uint16_t));
}

void dev_cpu_abs16_begin(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                         float *mem)
{
    const struct mla *a = j->op;
    struct abs16_mem m;
    (void)abs_carve(mem + a->n_gather, a->d_k, &m);
    int n = u->n_tok * u->n_head, ld = dev_cpu_round16(n);
    memset(m.q, 0, sizeof(uint16_t) * (size_t)a->row * (size_t)ld);
    for (int i = 0; i < n; i++) {
        dev_cpu_mla_query(c, a, u, i, m.t);
        put_query(a, &m, i, ld);
    }
}

/* Rows of positions [p, p + n) of one block as bf16: where they lie, or made in x. */
static const uint16_t *rows16(const struct mla *a, const uint8_t *from, int n, uint16_t *x)
{
    const struct cpu_kv *kv = a->kv;
    if (kv->t == VEC_KV_BF16) return (const uint16_t *)(const void *)from;
    const struct kern *k = kern_get();
    (kv->t == VEC_KV_Q8 ? k->attn_q8_rows : k->attn_f16_rows)(from, (int64_t)kv->row_bytes, n,
                                                              a->d_k, x, a->row);
    return x;
}

/* Elements from one of these rows to the next. */
static int64_t row_ld(const struct mla *a)
{
    return a->kv->t == VEC_KV_BF16 ? (int64_t)a->kv->row_bytes / 2 : a->row;
}

/* What is fetched while a span is computed, evenly: memory is slow where much is asked for at once.
 */
struct ahead {
    struct attn_region r[VEC_SPAN / 16 + MLA_AHEAD];
    int n;
    int64_t n_bytes;
};

/* Part part[0] of part[1] of n regions, n_bytes in all; returns the number of regions it has. */
static int regions_part(const struct attn_region *r, int n, int64_t n_bytes, const int part[2],
                        struct attn_region *out)
{
    int64_t b = n_bytes * part[0] / part[1], e = n_bytes * (part[0] + 1) / part[1];
    int m = 0;
    for (int i = 0; i < n; i++) {
        int64_t len = r[i].n_bytes, lo = b > 0 ? b : 0, hi = e < len ? e : len;
        if (lo < hi) out[m++] = (struct attn_region){r[i].at + lo, hi - lo};
        b -= len;
        e -= len;
    }
    return m;
}

/* The rows of the worker's next span, and a share of what is read after attention. */
static void look_ahead(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                       const int where[2], struct ahead *x)
{
    const struct mla *a = j->op;
    const struct mla_ahead *w = &a->ahead;
    int last = j->b->pos[c->mla.tok_list[u->tok0 + u->n_tok - 1]],
        n_run = dev_cpu_run_length(a->kv);
    bool picks = dev_cpu_mla_unit_pick(c, j, u) != NULL;
    x->n = 0;
    x->n_bytes = 0;
    for (int at = 0; at < VEC_SPAN && !picks; at += n_run) {
        int p = where[1] * VEC_SPAN + at, n = last + 1 - p < n_run ? last + 1 - p : n_run;
        if (n <= 0) break;
        x->r[x->n] = (struct attn_region){dev_cpu_mla_row_at(a, j->b, u->seq, p),
                                          n * (int64_t)a->kv->row_bytes};
        x->n_bytes += x->r[x->n++].n_bytes;
    }
    if (u != c->span.unit) return; /* once, however many units there are */
    const int part[2] = {where[0], w->n_span};
    int n = regions_part(w->r, w->n, w->n_bytes, part, x->r + x->n);
    for (; n > 0; n--)
        x->n_bytes += x->r[x->n++].n_bytes;
}

static int ahead_part(const struct ahead *x, const int part[2], struct attn_region *out)
{
    return regions_part(x->r, x->n, x->n_bytes, part, out);
}

/* A span under way: where its rows lie, n_run positions in each, and what is fetched meanwhile: one
 * half in the scores, the other in the sums. */
struct span_rows {
    struct mla_span of;
    int to; /* how many are seen; by every lane: hi */
    int32_t hi[CPU_LANES];
    const uint16_t *run[VEC_SPAN / 16];
    const uint8_t *run8[VEC_SPAN / 16];
    struct ahead ahead;
};

static void scores(const struct cpu_span_job *j, const struct cpu_unit *u,
                   const struct abs16_mem *m, struct span_rows *x)
{
    const struct mla *a = j->op;
    int ld = dev_cpu_round16(u->n_tok * u->n_head), n_run = dev_cpu_run_length(a->kv), to = x->to;
    int64_t ld_row = row_ld(a);
    struct attn_region next[VEC_SPAN / 16 + MLA_AHEAD];
    for (int at = 0; at < to; at += n_run) {
        int n = to - at < n_run ? to - at : n_run;
        x->run[at / n_run] =
            rows16(a, dev_cpu_mla_span_row(&x->of, at), n, m->x + (int64_t)at * a->row);
        struct attn_mm mm = {.a = x->run[at / n_run],
                             .lda = ld_row,
                             .lda_k = 2,
                             .b = m->q,
                             .ldb = 2 * ld,
                             .ldb_v = 32,
                             .c = m->s + at * ld,
                             .ldc = ld,
                             .n_row = n,
                             .n_vec = ld / 16,
                             .n_k = (a->d_k + 1) / 2,
                             .next = next};
        mm.n_next = ahead_part(&x->ahead, (const int[]){at / n_run, 2 * VEC_SPAN / n_run}, next);
        kern_get()->attn_dot_bf16(&mm);
    }
}

/* Weighted sums of the rows, token by token: each has its own number of positions. */
static void weigh(const struct cpu_span_job *j, const struct cpu_unit *u, const struct abs16_mem *m,
                  struct span_rows *x, float *o)
{
    const struct mla *a = j->op;
    const struct kern *k = kern_get();
    struct attn_region next[VEC_SPAN / 16 + MLA_AHEAD];
    int n = u->n_tok * u->n_head, ld = dev_cpu_round16(n);
    k->attn_pairs_bf16(m->s, ld, x->to, ld, m->w, 2 * ld);
    struct attn_mm mm = {.lda = 2,
                         .lda_k = 2 * ld,
                         .blk = x->run,
                         .blk_rows = dev_cpu_run_length(a->kv),
                         .ldb = row_ld(a),
                         .ldc = j->ldo,
                         .n_row = u->n_head,
                         .n_vec = a->r16 / 16,
                         .next = next,
                         .n_next = ahead_part(&x->ahead, (const int[]){1, 2}, next)};
    for (int i = 0; i < n; i += u->n_head, mm.n_next = 0) {
        mm.a = m->w + 2 * i;
        mm.c = o + (int64_t)i * j->ldo;
        mm.n_k = x->hi[i];
        k->attn_mix_bf16(&mm);
    }
}

/* Both on a q8 cache, whose rows are used where they lie. */
static struct attn_q8 rows8(struct span_rows *x)
{
    const struct mla *a = x->of.a;
    int n_run = dev_cpu_run_length(a->kv);
    for (int at = 0; at < x->to; at += n_run)
        x->run8[at / n_run] = dev_cpu_mla_span_row(&x->of, at);
    return (struct attn_q8){
        .blk = x->run8, .blk_rows = n_run, .d = a->d_k, .row_bytes = (int64_t)a->kv->row_bytes};
}

static void scores8(const struct cpu_span_job *j, const struct cpu_unit *u,
                    const struct abs16_mem *m, struct span_rows *x)
{
    const struct mla *a = j->op;
    int ld = dev_cpu_round16(u->n_tok * u->n_head);
    struct queries8 q = carve8(m, a->d_k, ld);
    struct attn_region next[VEC_SPAN / 16 + MLA_AHEAD];
    struct attn_q8 mm = rows8(x);
    mm.n_pos = x->to;
    mm.n_vec = ld / 16;
    mm.q = q.q;
    mm.q_scale = q.scale;
    mm.q_bias = q.bias;
    mm.s = m->s;
    mm.lds = ld;
    mm.next = next;
    mm.n_next = ahead_part(&x->ahead, (const int[]){0, 2}, next);
    kern_get()->attn_dot_q8(&mm);
}

static void weigh8(const struct cpu_span_job *j, const struct cpu_unit *u,
                   const struct abs16_mem *m, struct span_rows *x, float *o)
{
    const struct mla *a = j->op;
    int n = u->n_tok * u->n_head;
    struct attn_region next[VEC_SPAN / 16 + MLA_AHEAD];
    struct attn_q8 mm = rows8(x);
    mm.n_vec = a->r16 / 16;
    mm.n_row = u->n_head;
    mm.lds = dev_cpu_round16(n);
    mm.ldc = j->ldo;
    mm.next = next;
    mm.n_next = ahead_part(&x->ahead, (const int[]){1, 2}, next);
    for (int i = 0; i < n; i += u->n_head, mm.n_next = 0) {
        mm.s = m->s + i;
        mm.c = o + (int64_t)i * j->ldo;
        mm.n_pos = x->hi[i];
        kern_get()->attn_mix_q8(&mm);
    }
}

void dev_cpu_abs16_span(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                        const int where[2], float *mem, struct cpu_part out)
{
    const struct mla *a = j->op;
    struct abs16_mem m;
    struct span_rows x = {.of = dev_cpu_mla_span(c, j, u, where[0] * VEC_SPAN, mem)};
    (void)abs_carve(mem + a->n_gather, a->d_k, &m);
    int n = u->n_tok * u->n_head, ld = dev_cpu_round16(n), q8 = a->kv->t == VEC_KV_Q8;
    int32_t lo[CPU_LANES] = {0};
    x.to = dev_cpu_mla_rows(c, j, u, x.of.p0, x.hi, mem);
    look_ahead(c, j, u, where, &x.ahead);
    (q8 ? scores8 : scores)(j, u, &m, &x);
    float mx[CPU_LANES], l[CPU_LANES];
    c->k.span_col_f32(m.s, ld, x.to, ld / 16, lo, x.hi, mx, l);
    memcpy(out.m, mx, sizeof(float) * (size_t)n);
    memcpy(out.l, l, sizeof(float) * (size_t)n);
    (q8 ? weigh8 : weigh)(j, u, &m, &x, out.o);
}

/* ---- materialised ---- */
struct exp16_mem {
    uint16_t *wk, *wv;   /* [r / 2][nope16][2], [r / 2][v16][2] */
    uint16_t *x, *k, *v; /* latent rows [SPAN][row], keys [SPAN][kd], values [SPAN][v16] */
    uint16_t *q, *w;     /* [tiles][kd / 2][lanes][2], [SPAN / 2][LANES][2] */
    float *t, *s, *o;    /* [16][widest], [SPAN][LANES], [LANES][v16] */
    float *m, *l, *run;  /* [tokens], [tokens], [tokens][v16] */
};

static size_t exp_carve(float *mem, const struct dev_shapes *p, struct exp16_mem *m)
{
    size_t pair = ((size_t)p->mla_r + 1) / 2, nope = (size_t)dev_cpu_round16(p->mla_nope);
    size_t v = (size_t)dev_cpu_round16(p->mla_v), tok = (size_t)p->max.n_tok + CPU_LANES;
    size_t row = (size_t)dev_cpu_round16(p->mla_r + p->mla_rope);
    size_t kd = (size_t)dev_cpu_key_width(p->mla_nope, p->mla_rope),
           wide = BASE_MAX(BASE_MAX(row, nope), BASE_MAX(v, kd));
    float *t[6];
    uint16_t *h[7];
    size_t n[13] = {pair * nope,
                    pair * v,
                    VEC_SPAN * row / 2,
                    VEC_SPAN * kd / 2,
                    VEC_SPAN * v / 2,
                    tok * kd / 2,
                    VEC_SPAN / 2 * CPU_LANES,
                    VEC_SPAN * wide,
                    VEC_SPAN * CPU_LANES,
                    CPU_LANES * v,
                    tok,
                    tok,
                    tok * v};
    size_t at = 0;
    for (int i = 0; i < 13; i++) {
        if (mem && i < 7) h[i] = (uint16_t *)(void *)(mem + at);
        if (mem && i >= 7) t[i - 7] = mem + at;
        at += (n[i] + 15) / 16 * 16;
    }
    if (mem)
        *m = (struct exp16_mem){h[0], h[1], h[2], h[3], h[4], h[5], h[6],
                                t[0], t[1], t[2], t[3], t[4], t[5]};
    return at;
}

size_t dev_cpu_exp16_floats(const struct dev_shapes *p)
{
    return exp_carve(NULL, p, NULL);
}

/* W_kb by pairs of its rows, W_vb by pairs of its columns. */
static void widen_weights(const struct mla *a, int head, const struct exp16_mem *m)
{
    const struct dev_attn_mla *p = a->p;
    const struct kern *kn = kern_get();
    struct mm_mat k = dev_cpu_mat_at(dev_cpu_mat_of(p->w_kb), head);
    struct mm_mat v = dev_cpu_mat_at(dev_cpu_mat_of(p->w_vb), head);
    int nope = dev_cpu_round16(p->nope), v16 = dev_cpu_round16(p->v), r2 = (p->r + 1) / 2 * 2;
    memset(m->t, 0, sizeof(float) * 16 * (size_t)BASE_MAX(nope, r2));
    for (int t = 0; t < k.n_tile; t++) {
        int n = p->r - 16 * t < 16 ? p->r - 16 * t : 16;
        kern_mm_unpack_tile(&k, t, m->t, nope);
        kn->attn_pairs_bf16(m->t, nope, n, nope, m->wk + (int64_t)t * 16 * nope, 2 * nope);
    }
    memset(m->t, 0, sizeof(float) * 16 * (size_t)BASE_MAX(nope, r2));
    for (int t = 0; t < v.n_tile; t++) {
        kern_mm_unpack_tile(&v, t, m->t, r2);
        kn->attn_rows_bf16(m->t, r2, 16, r2, m->x, r2);
        for (int i = 0; i < r2; i += 2)
            for (int r = 0; r < 16; r++)
                memcpy(m->wv + (int64_t)i * v16 + 2 * (16 * t + r), m->x + r * r2 + i, 4);
    }
}

/* Where a head's widened weights are kept; false: nowhere. */
static bool kept_weights(const struct cpu *c, const struct mla *a, int head, struct exp16_mem *m)
{
    const struct dev_attn_mla *p = a->p;
    uint16_t *w = dev_cpu_keep_wide(c, p->layer, head, p->w_kb);
    if (!w) return false;
    m->wk = w;
    m->wv = w + (p->r + 1) / 2 * 2 * dev_cpu_round16(p->nope);
    return true;
}

static void widen_head(struct cpu *c, void *arg, int head, int worker)
{
    struct exp16_mem m;
    (void)exp_carve(c->scratch[worker].attn, &c->most, &m);
    if (kept_weights(c, arg, head, &m)) widen_weights(arg, head, &m);
}

void dev_cpu_exp16_weights(struct cpu *c, const struct mla *a)
{
    if (dev_cpu_keep_claim(c, a->p->layer, a->p->w_kb))
        dev_cpu_for_rows(c, a->p->n_head, 1e5, widen_head, (void *)(uintptr_t)a);
}

/* Keys and values of positions [p0 + from, p0 + n) of one head, and some before them again. */
static void make_span(const struct mla_job *j, int seq, int p0, const int range[2],
                      const struct exp16_mem *m)
{
    const struct mla *a = &j->a;
    const struct dev_attn_mla *p = a->p;
    const struct kern *kn = kern_get();
    int nope = dev_cpu_round16(p->nope), v16 = dev_cpu_round16(p->v),
        n_run = dev_cpu_run_length(a->kv);
    int kd = dev_cpu_key_width(p->nope, p->rope);
    int n = range[1];
    for (int at = range[0] / n_run * n_run; at < n; at += n_run) {
        int k = n - at < n_run ? n - at : n_run;
        const uint16_t *x = rows16(a, dev_cpu_mla_row_at(a, j->b, seq, p0 + at), k, m->x);
        int64_t ld = row_ld(a);
        uint16_t *key = m->k + (int64_t)at * kd;
        struct attn_mm mm = {.a = x,
                             .lda = ld,
                             .lda_k = 2,
                             .b = m->wk,
                             .ldb = 2 * nope,
                             .ldb_v = 32,
                             .c = m->t,
                             .ldc = nope,
                             .n_row = k,
                             .n_vec = nope / 16,
                             .n_k = (p->r + 1) / 2};
        kn->attn_dot_bf16(&mm);
        kn->attn_rows_bf16(m->t, nope, k, p->nope, key, kd);
        for (int i = 0; i < k; i++) {
            if (kd > p->nope + p->rope) key[(int64_t)(i + 1) * kd - 1] = 0;
            memcpy(key + (int64_t)i * kd + p->nope, x + i * ld + p->r, 2 * (size_t)p->rope);
        }
        mm.b = m->wv;
        mm.ldb = 2 * v16;
        mm.ldc = v16;
        mm.n_vec = v16 / 16;
        kn->attn_dot_bf16(&mm);
        kn->attn_rows_bf16(m->t, v16, k, v16, m->v + (int64_t)at * v16, v16);
    }
}

/* One tile of up to CPU_LANES query tokens over one span; folds into the running result. */
static void query_tile(struct cpu *c, const struct mla_job *j, const int32_t *tok, int n_tok,
                       const int at[2], const struct exp16_mem *m)
{
    const struct dev_attn_mla *p = j->a.p;
    const struct kern *kn = kern_get();
    int tile0 = at[0], p0 = at[1], v16 = dev_cpu_round16(p->v),
        kd = dev_cpu_key_width(p->nope, p->rope);
    int to = 0, all = VEC_SPAN, ld = dev_cpu_round16(n_tok);
    int32_t lo[CPU_LANES] = {0}, hi[CPU_LANES] = {0};
    for (int i = 0; i < n_tok; i++) {
        hi[i] = dev_cpu_clamp_span(j->b->pos[tok[i]] + 1 - p0);
        to = hi[i] > to ? hi[i] : to;
        all = hi[i] < all ? hi[i] : all;
    }
    if (to == 0) return;
    struct attn_mm dot = {.a = m->k,
                          .lda = kd,
                          .lda_k = 2,
                          .b = m->q + (int64_t)tile0 * kd,
                          .ldb = 2 * ld,
                          .ldb_v = 32,
                          .c = m->s,
                          .ldc = ld,
                          .n_row = to,
                          .n_vec = ld / 16,
                          .n_k = kd / 2};
    kn->attn_dot_bf16(&dot);
    float mx[CPU_LANES], l[CPU_LANES];
    uint8_t none[CPU_LANES];
    dev_cpu_mla_mask(j, &(struct mla_tile){tok, n_tok, p0, ld, hi}, m->s, none);
    c->k.span_col_f32(m->s, ld, to, ld / 16, lo, hi, mx, l);
    kn->attn_pairs_bf16(m->s, ld, to, ld, m->w, 2 * ld);
    const uint16_t *rows = m->v;
    all = all / 2 * 2; /* whole pairs that all see at once */
    struct attn_mm mix = {.a = m->w,
                          .lda = 2,
                          .lda_k = 2 * ld,
                          .blk = &rows,
                          .blk_rows = VEC_SPAN,
                          .ldb = v16,
                          .c = m->o,
                          .ldc = v16,
                          .n_row = n_tok,
                          .n_vec = v16 / 16,
                          .n_k = all};
    kn->attn_mix_bf16(&mix);
    mix.n_row = mix.add = 1;
    mix.k0 = all;
    for (int i = 0; i < n_tok; i++) {
        mix.a = m->w + 2 * i;
        mix.c = m->o + (int64_t)i * v16;
        mix.n_k = hi[i];
        if (hi[i] > all) kn->attn_mix_bf16(&mix);
        if (l[i] != 0.0f && !none[i])
            c->k.fold_f32(&m->m[tile0 + i], &m->l[tile0 + i], m->run + (int64_t)(tile0 + i) * v16,
                          mx[i], l[i], mix.c, v16);
    }
}

/* The queries of all tiles: tile at tile0 is [kd / 2][lanes of it][2]. */
static void tile_queries(struct cpu *c, const struct mla_job *j, const int32_t *tok, int n_tok,
                         int head, const struct exp16_mem *m)
{
    const struct dev_attn_mla *p = j->a.p;
    int qd = p->nope + p->rope, kd = dev_cpu_key_width(p->nope, p->rope);
    uint16_t *row = m->x;
    memset(m->q, 0, 2 * (size_t)kd * (size_t)(n_tok + CPU_LANES));
    row[kd - 1] = 0;
    for (int i = 0; i < n_tok; i++) {
        int t0 = i / CPU_LANES * CPU_LANES;
        int ld = dev_cpu_round16(n_tok - t0 < CPU_LANES ? n_tok - t0 : CPU_LANES);
        uint16_t *q = m->q + (int64_t)t0 * kd + 2 * (i - t0);
        memcpy(m->t, p->q + ((int64_t)tok[i] * p->n_head + head) * qd, sizeof(float) * (size_t)qd);
        c->k.scale_f32(m->t, p->scale, qd);
        kern_get()->attn_rows_bf16(m->t, 0, 1, qd, row, 0);
        for (int k = 0; k < kd; k += 2)
            memcpy(q + (int64_t)k * ld, row + k, 4);
    }
}

void dev_cpu_exp16_unit(struct cpu *c, const struct mla_job *j, const struct cpu_unit *u,
                        int worker)
{
    const struct dev_attn_mla *p = j->a.p;
    const int32_t *tok = c->mla.tok_list + u->tok0;
    int v16 = dev_cpu_round16(p->v), end = 0;
    struct exp16_mem m;
    (void)exp_carve(c->scratch[worker].attn, &c->most, &m);
    if (!kept_weights(c, &j->a, u->head0, &m)) widen_weights(&j->a, u->head0, &m);
    tile_queries(c, j, tok, u->n_tok, u->head0, &m);
    memset(m.l, 0, sizeof(float) * (size_t)u->n_tok);
    for (int i = 0; i < u->n_tok; i++)
        end = j->b->pos[tok[i]] + 1 > end ? j->b->pos[tok[i]] + 1 : end;
    const struct cpu_kept *kept = dev_cpu_keep_of(j, u->seq);
    struct exp16_mem own = m;
    for (int p0 = 0; p0 < end; p0 += VEC_SPAN) {
        uint16_t *there = dev_cpu_keep_span(c, kept, p->layer, u->head0, p0 / VEC_SPAN);
        int range[2] = {there ? dev_cpu_clamp_span(kept->valid[p->layer] - p0) : 0,
                        dev_cpu_clamp_span(end - p0)};
        m.k = there ? there : own.k;
        m.v = there ? there + VEC_SPAN * dev_cpu_key_width(p->nope, p->rope) : own.v;
        if (range[0] < range[1]) make_span(j, u->seq, p0, range, &m);
        for (int t0 = 0; t0 < u->n_tok; t0 += CPU_LANES) {
            int n = u->n_tok - t0 < CPU_LANES ? u->n_tok - t0 : CPU_LANES, at[2] = {t0, p0};
            query_tile(c, j, tok + t0, n, at, &m);
        }
    }
    for (int i = 0; i < u->n_tok; i++) {
        float *y = p->y + ((int64_t)tok[i] * p->n_head + u->head0) * p->v;
        memcpy(y, m.run + (int64_t)i * v16, sizeof(float) * (size_t)p->v);
        c->k.scale_f32(y, 1.0f / m.l[i], p->v);
    }
}
