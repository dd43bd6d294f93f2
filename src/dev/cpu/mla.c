/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over a latent cache (MLA). Queries lie in lanes: a score row is one position times all
 * queries of a unit, its key row broadcast.
 *
 * Absorbed (expand 0): queries go through W_kb, the latent rows are keys and values for all heads,
 * results go through W_vb. Materialised (expand 1): a worker takes one head of one sequence, widens
 * W_kb and W_vb to f32 once, and makes keys and values of each span for all query tokens of the
 * step. Spans, folds and orders are the same in both; see attn.c for why rows are independent. */
#include "dev/cpu/mla.h"

#include "dev/cpu/keep.h"
#include "dev/cpu/kv_page.h"
#include "dev/cpu/mat.h"
#include "dev/cpu/product.h"
#include "dev/cpu/span.h"

void dev_cpu_mla_widen(struct cpu *c, const struct mla_span *s, int i, int end, float *x)
{
    const struct mla *a = s->a;
    const struct cpu_kv *kv = a->kv;
    for (int n; i < end; i += n) {
        n = s->copy ? end - i : BASE_MIN(kv->blk_tok - (s->p0 + i) % kv->blk_tok, end - i);
        c->k.get_v(kv->t, dev_cpu_mla_span_row(s, i), (int64_t)kv->row_bytes, n, a->d_k, x, a->ldx);
        x += (int64_t)n * a->ldx;
    }
}

#define PICK_AHEAD 4 /* rows that are fetched while one is copied */

static void fetch_row(const struct mla *a, const struct dev_step *b, int seq, int p)
{
    const uint8_t *row = dev_cpu_mla_row_at(a, b, seq, p);
    for (size_t i = 0; i < a->kv->row_bytes; i += 64)
        __builtin_prefetch(row + i);
}

int dev_cpu_mla_rows(const struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                     int p0, int32_t *hi, float *mem)
{
    const struct mla *a = j->op;
    const int32_t *pick = dev_cpu_mla_unit_pick(c, j, u), *tok = c->mla.tok_list + u->tok0;
    size_t n_bytes = a->kv->row_bytes;
    int to = 0, pos = j->b->pos[tok[0]];
    for (int i = 0; i < u->n_tok; i++) {
        int n = dev_cpu_clamp_span(dev_cpu_mla_seen(a->p, j->b, tok[i]) - p0);
        for (int h = 0; h < u->n_head; h++)
            hi[i * u->n_head + h] = n;
        to = BASE_MAX(to, n);
    }
    for (int i = 0; pick && i < to; i++) {
        int at = dev_cpu_mla_picked(a->p, pick, pos, p0 + i);
        if (i + PICK_AHEAD < to)
            fetch_row(a, j->b, u->seq, dev_cpu_mla_picked(a->p, pick, pos, p0 + i + PICK_AHEAD));
        memcpy((uint8_t *)mem + (size_t)i * n_bytes, dev_cpu_mla_row_at(a, j->b, u->seq, at),
               n_bytes);
    }
    return to;
}

struct cpu_ask dev_cpu_mla_ask(const struct cpu *c, const struct cpu_span_job *j,
                               const struct cpu_unit *u, const int where[2], int end, int n_time)
{
    const struct mla *a = j->op;
    const struct cpu_kv *kv = a->kv;
    struct cpu_ask x = {.n = 0};
    if (dev_cpu_mla_unit_pick(c, j, u)) return x;
    int p = end < VEC_SPAN ? where[0] * VEC_SPAN + end : where[1] * VEC_SPAN;
    int last = j->b->pos[c->mla.tok_list[u->tok0 + u->n_tok - 1]];
    int until = BASE_MIN(p + MLA_PIECE, last + 1);
    for (int n; p < until; p += n) {
        n = BASE_MIN(until - p, kv->blk_tok - p % kv->blk_tok);
        dev_cpu_ask_add(&x, dev_cpu_mla_row_at(a, j->b, u->seq, p), (size_t)n * kv->row_bytes);
    }
    dev_cpu_ask_in(&x, n_time);
    return x;
}

/* ---- absorbed ---- */
struct abs_mem {
    float *q, *s, *x; /* q [d_k][lanes], s [SPAN][lanes], x [SPAN][ldx] */
};

static struct abs_mem abs_carve(float *mem, const struct mla *a)
{
    struct abs_mem m = {.q = mem + a->n_gather};
    m.s = m.q + (size_t)a->d_k * (size_t)a->n_lane;
    m.x = m.s + (size_t)VEC_SPAN * (size_t)a->n_lane;
    return m;
}

void dev_cpu_mla_query(struct cpu *c, const struct mla *a, const struct cpu_unit *u, int i,
                       float *row)
{
    const struct dev_attn_mla *p = a->p;
    int64_t at = u->tok0 + i / u->n_head, h = u->head0 + i % u->n_head, t = c->mla.tok_list[at];
    const float *rope = p->q + (t * p->n_head + h) * (p->nope + p->rope) + p->nope;
    memcpy(row, c->mla.lat + (at * p->n_head + h) * p->r, sizeof(float) * (size_t)p->r);
    memcpy(row + p->r, rope, sizeof(float) * (size_t)p->rope);
    c->k.scale_f32(row, p->scale, a->d_k);
}

static void abs_begin(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                      float *mem)
{
    const struct mla *a = j->op;
    struct abs_mem m = abs_carve(mem, a);
    int n = u->n_tok * u->n_head, ld = dev_cpu_round16(n);
    for (int i = 0; i < ld; i++) {
        if (i < n) dev_cpu_mla_query(c, a, u, i, m.x);
        for (int k = 0; k < a->d_k; k++)
            m.q[(int64_t)k * ld + i] = i < n ? m.x[k] : 0;
    }
}

static void abs_span(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                     const int where[2], float *mem, struct cpu_part out)
{
    const struct mla *a = j->op;
    struct abs_mem m = abs_carve(mem, a);
    bool f32 = a->kv->t == VEC_KV_F32; /* copied: the CPU sees by itself what comes next */
    int n = u->n_tok * u->n_head, ld = dev_cpu_round16(n), p0 = where[0] * VEC_SPAN;
    int32_t lo[CPU_LANES] = {0}, hi[CPU_LANES] = {0};
    int to = dev_cpu_mla_rows(c, j, u, p0, hi, mem);
    const struct mla_span rows = dev_cpu_mla_span(c, j, u, p0, mem);
    for (int at = 0, k; at < to; at += k) {
        float *x = m.x + (int64_t)at * a->ldx;
        struct cpu_ask next = {.n = 0};
        k = BASE_MIN(f32 ? VEC_PIECE : MLA_PIECE, to - at);
        if (!f32) next = dev_cpu_mla_ask(c, j, u, where, at + k, MLA_PIECE / MLA_MADE + 1);
        for (int i = 0, w; i < k; i += w) {
            w = BASE_MIN(f32 ? VEC_PIECE : MLA_MADE, k - i);
            dev_cpu_ask(&next);
            dev_cpu_mla_widen(c, &rows, at + i, at + i + w, x + (int64_t)i * a->ldx);
        }
        c->k.gemm_f32(x, a->ldx, 1, m.q, ld, m.s + at * ld, ld, k, ld / 16, a->d_k, 0);
        dev_cpu_ask(&next);
    }
    float mx[CPU_LANES], l[CPU_LANES];
    c->k.span_col_f32(m.s, ld, to, ld / 16, lo, hi, mx, l);
    memcpy(out.m, mx, sizeof(float) * (size_t)n);
    memcpy(out.l, l, sizeof(float) * (size_t)n);
    for (int i = 0; i < n; i += u->n_head) /* token by token: each its own number of positions */
        c->k.gemm_f32(m.s + i, 1, ld, m.x, a->ldx, out.o + (int64_t)i * j->ldo, j->ldo, u->n_head,
                      a->r16 / 16, hi[i], 0);
}

static void abs_end(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                    struct cpu_part in, const int rows[2])
{
    const struct mla *a = j->op;
    int r = a->p->r;
    for (int i = rows[0]; i < rows[1]; i++) {
        int64_t at = u->tok0 + i / u->n_head, h = u->head0 + i % u->n_head;
        float *y = c->mla.olat + (at * a->p->n_head + h) * r;
        memcpy(y, in.o + (int64_t)i * j->ldo, sizeof(float) * (size_t)r);
        c->k.scale_f32(y, 1.0f / in.l[i], r);
    }
}

static int abs_units(struct cpu *c, const struct dev_step *b, const struct mla *a, double *work)
{
    int n = 0, H = a->p->n_head, heads = H < CPU_LANES ? H : CPU_LANES, tile = CPU_LANES / heads;
    for (int i = 0, k; i < a->n_list; i = k) {
        const int32_t *tok = c->mla.tok_list;
        int seq = c->seq_of[tok[i]], hi = dev_cpu_mla_seen(a->p, b, tok[i]);
        bool alone = dev_cpu_mla_pick(a->p, b, tok[i]) != NULL;
        *work += hi;
        for (k = i + 1; !alone && k < a->n_list && k < i + tile; k++) {
            int end = b->pos[tok[k]] + 1;
            if (c->seq_of[tok[k]] != seq || dev_cpu_mla_pick(a->p, b, tok[k])) break;
            hi = BASE_MAX(hi, end);
            *work += end;
        }
        for (int h = 0; h < H; h += heads)
            c->span.unit[n++] = (struct cpu_unit){.seq = seq,
                                                  .tok0 = i,
                                                  .n_tok = k - i,
                                                  .head0 = h,
                                                  .n_head = BASE_MIN(H - h, heads),
                                                  .span1 = (hi + VEC_SPAN - 1) / VEC_SPAN};
    }
    return n;
}

/* Bytes for a span: memory gives them while the span is computed, even where it is slow. And in
 * all: they and the latent rows stay in a shared cache of ordinary size. */
#define AHEAD_SPAN ((int64_t)192 << 10)
#define AHEAD_MAX ((int64_t)8 << 20)
#define AHEAD_TOKENS 16 /* with more the products are no longer bound by memory */

void dev_cpu_mla_look_ahead(struct mla *a, int n_span)
{
    const struct dev_attn_mla *p = a->p;
    const dev_mat *mat[MLA_AHEAD] = {p->w_vb, p->next[0], p->next[1], p->next[2], p->next[3]};
    int64_t left = n_span * AHEAD_SPAN < AHEAD_MAX ? n_span * AHEAD_SPAN : AHEAD_MAX;
    struct mla_ahead *x = &a->ahead;
    *x = (struct mla_ahead){.n_span = n_span};
    if (a->n_list > AHEAD_TOKENS) return;
    for (int i = 0; i < MLA_AHEAD && left > 0; i++) {
        const struct cpu_mat *w = dev_cpu_mat_of(mat[i]);
        if (!w) continue;
        int64_t n = (int64_t)((size_t)w->n * w->stride);
        if (n > left) n = left;
        x->r[x->n++] = (struct attn_region){w->m.data, n};
        x->n_bytes += n;
        left -= n;
    }
}

void dev_cpu_mla_job(struct cpu *c, const struct dev_step *b, const struct mla *a,
                     struct cpu_span_job *j)
{
    const struct dev_attn_mla *p = a->p;
    double work = 0;
    int H = p->n_head, heads = H < CPU_LANES ? H : CPU_LANES;
    bool bf16 = dev_cpu_bf16_attn(c, a->kv->t), by_codes = bf16 && a->kv->t == VEC_KV_Q8;
    *j = (struct cpu_span_job){.b = b, .op = a, .n_row = CPU_LANES / heads * heads, .ldo = a->r16};
    j->begin = abs_begin;
    j->span = abs_span;
    j->end = abs_end;
    j->mem_floats =
        (size_t)(a->d_k + VEC_SPAN) * (size_t)a->n_lane + (size_t)VEC_SPAN * (size_t)a->ldx;
    if (bf16) {
        j->begin = dev_cpu_abs16_begin;
        j->span = dev_cpu_abs16_span;
        j->mem_floats = dev_cpu_abs16_floats(a->d_k);
    } else if (dev_cpu_i16_attn(c, a->kv->t)) {
        j->begin = dev_cpu_abs_i16_begin;
        j->span = dev_cpu_abs_i16_span;
        j->mem_floats = dev_cpu_abs_i16_floats(p->r, p->rope);
    }
    j->mem_floats += (size_t)a->n_gather;
    j->n_unit = abs_units(c, b, a, &work);
    j->products.flops = 2.0 * work * H * (p->r + (by_codes ? 0 : a->d_k)); /* codes: the scores */
    j->products.ops = by_codes ? 2.0 * work * H * a->d_k : 0;
}

static void absorbed(struct cpu *c, const struct dev_step *b, struct mla *a,
                     struct dev_cost *products)
{
    const struct dev_attn_mla *p = a->p;
    int H = p->n_head, qd = p->nope + p->rope, n = a->n_list, all = n == b->n_tok;
    dev_cpu_heads(c,
                  &(struct dev_matmul_heads){.w = p->w_kb,
                                             .n_head = H,
                                             .n_tok = n,
                                             .x = p->q,
                                             .ldx = (int64_t)H * qd,
                                             .ldx_h = qd,
                                             .y = c->mla.lat,
                                             .ldy = (int64_t)H * p->r,
                                             .ldy_h = p->r},
                  c->mla.tok_list);
    struct cpu_span_job j;
    dev_cpu_mla_job(c, b, a, &j);
    dev_cpu_mla_look_ahead(a, c->span.unit[0].span1);
    dev_cpu_spans(c, &j);
    products->ops += j.products.ops;
    products->flops += j.products.flops;
    float *y = all ? p->y : c->mla.lat; /* results of a part of the tokens go by way of lat */
    dev_cpu_heads(c,
                  &(struct dev_matmul_heads){.w = p->w_vb,
                                             .n_head = H,
                                             .n_tok = n,
                                             .x = c->mla.olat,
                                             .ldx = (int64_t)H * p->r,
                                             .ldx_h = p->r,
                                             .y = y,
                                             .ldy = (int64_t)H * p->v,
                                             .ldy_h = p->v},
                  NULL);
    if (all) return;
    int64_t row = (int64_t)H * p->v;
    for (int i = 0; i < n; i++)
        memcpy(p->y + c->mla.tok_list[i] * row, y + i * row, sizeof(float) * (size_t)row);
}

/* ---- materialised ---- */
struct exp_mem {
    float *wk, *wv;     /* [r][nope16], [r][v16] */
    float *x, *k, *v;   /* [PIECE][ldx], [SPAN][key_ld], [SPAN][v_ld] */
    float *q, *s, *o;   /* [tiles][nope + rope][LANES], [SPAN][LANES], [LANES][v16] */
    float *m, *l, *run; /* [tokens], [tokens], [tokens][v16] */
};

static size_t exp_carve(float *mem, const struct dev_shapes *p, struct exp_mem *m)
{
    size_t r = (size_t)dev_cpu_round16(p->mla_r), nope = (size_t)dev_cpu_round16(p->mla_nope),
           v = (size_t)dev_cpu_round16(p->mla_v);
    size_t row = (size_t)dev_cpu_row_ld(p->mla_r + p->mla_rope, 4),
           tok = (size_t)p->max.n_tok + CPU_LANES;
    float *at = mem;
    struct {
        float **p;
        size_t n;
    } part[] = {
        {&m->wk, r * nope},
        {&m->wv, r * v},
        {&m->x, VEC_PIECE * row},
        {&m->k, VEC_SPAN * (size_t)dev_cpu_row_ld(p->mla_nope + p->mla_rope, 4)},
        {&m->v, VEC_SPAN * (size_t)dev_cpu_row_ld(p->mla_v, 4)},
        {&m->q, tok * (size_t)(p->mla_nope + p->mla_rope)},
        {&m->s, VEC_SPAN * CPU_LANES},
        {&m->o, CPU_LANES * v},
        {&m->m, tok},
        {&m->l, tok},
        {&m->run, tok * v},
    };
    for (int i = 0; i < BASE_COUNT_OF(part); i++) {
        *part[i].p = at;
        at += (part[i].n + 15) / 16 * 16;
    }
    return (size_t)(at - mem);
}

/* W_kb as [r][nope16], W_vb transposed as [r][v16]. */
static void widen_weights(const struct mla *a, int head, const struct exp_mem *m)
{
    const struct dev_attn_mla *p = a->p;
    struct mm_mat k = dev_cpu_mat_at(dev_cpu_mat_of(p->w_kb), head);
    struct mm_mat v = dev_cpu_mat_at(dev_cpu_mat_of(p->w_vb), head);
    int nope = dev_cpu_round16(p->nope), v16 = dev_cpu_round16(p->v);
    for (int t = 0; t < k.n_tile; t++)
        kern_mm_unpack_tile(&k, t, m->wk + (int64_t)t * 16 * nope, nope);
    for (int t = 0; t < v.n_tile; t++) {
        float *rows = m->x; /* [16][r] */
        kern_mm_unpack_tile(&v, t, rows, p->r);
        for (int i = 0; i < p->r; i++)
            for (int k16 = 0; k16 < 16; k16++)
                m->wv[(int64_t)i * v16 + 16 * t + k16] = rows[k16 * p->r + i];
    }
}

/* Keys and values of positions [p0 + range[0], p0 + range[1]) of one head. */
static void materialise(struct cpu *c, const struct mla_job *j, int seq, int p0, const int range[2],
                        const struct exp_mem *m)
{
    const struct mla *a = &j->a;
    const struct dev_attn_mla *p = a->p;
    int nope = dev_cpu_round16(p->nope), v16 = dev_cpu_round16(p->v);
    int ldk = dev_cpu_row_ld(p->nope + p->rope, 4), ldv = dev_cpu_row_ld(p->v, 4);
    const struct mla_span rows = {.a = a, .b = j->b, .seq = seq, .p0 = p0};
    for (int at = range[0]; at < range[1]; at += VEC_PIECE) {
        int k = range[1] - at < VEC_PIECE ? range[1] - at : VEC_PIECE;
        dev_cpu_mla_widen(c, &rows, at, at + k, m->x);
        c->k.gemm_f32(m->x, a->ldx, 1, m->wk, nope, m->k + (int64_t)at * ldk, ldk, k, nope / 16,
                      p->r, 0);
        c->k.gemm_f32(m->x, a->ldx, 1, m->wv, v16, m->v + (int64_t)at * ldv, ldv, k, v16 / 16, p->r,
                      0);
        for (int i = 0; i < k; i++)
            memcpy(m->k + (int64_t)(at + i) * ldk + p->nope, m->x + (int64_t)i * a->ldx + p->r,
                   sizeof(float) * (size_t)p->rope);
    }
}

void dev_cpu_mla_mask(const struct mla_job *j, const struct mla_tile *t, float *s, uint8_t *none)
{
    const struct dev_attn_mla *p = j->a.p;
    memset(none, 0, (size_t)t->n_tok);
    for (int i = 0; i < t->n_tok && p->pick; i++) {
        const int32_t *pick = dev_cpu_mla_pick(p, j->b, t->tok[i]);
        int at = 0, hi = t->hi[i], k = 0, pos = j->b->pos[t->tok[i]];
        int end = dev_cpu_mla_seen(p, j->b, t->tok[i]);
        if (!pick || !hi) continue;
        for (int n = end; n > 0; n /= 2) /* the first that is not before the span */
            while (k + n <= end && dev_cpu_mla_picked(p, pick, pos, k + n - 1) < t->p0)
                k += n;
        none[i] = k == end || dev_cpu_mla_picked(p, pick, pos, k) >= t->p0 + hi;
        for (; !none[i] && at < hi; at++) {
            if (k < end && dev_cpu_mla_picked(p, pick, pos, k) == t->p0 + at)
                k++;
            else
                s[(int64_t)at * t->ld + i] = -INFINITY;
        }
    }
}

/* One tile of up to CPU_LANES query tokens over one span; folds into the running result. */
static void exp_tile(const struct mla_job *j, const int32_t *tok, int n_tok, int tile0, int p0,
                     const struct exp_mem *m)
{
    struct cpu *c = j->c;
    const struct dev_attn_mla *p = j->a.p;
    int qd = p->nope + p->rope, ldk = dev_cpu_row_ld(qd, 4), ldv = dev_cpu_row_ld(p->v, 4);
    int v16 = dev_cpu_round16(p->v), to = 0, all = VEC_SPAN, ld = dev_cpu_round16(n_tok);
    int32_t lo[CPU_LANES] = {0}, hi[CPU_LANES] = {0};
    const float *q = m->q + (int64_t)tile0 * qd;
    for (int i = 0; i < n_tok; i++) {
        hi[i] = dev_cpu_clamp_span(j->b->pos[tok[i]] + 1 - p0);
        to = hi[i] > to ? hi[i] : to;
        all = hi[i] < all ? hi[i] : all;
    }
    if (to == 0) return;
    c->k.gemm_f32(m->k, ldk, 1, q, ld, m->s, ld, to, ld / 16, qd, 0);
    float mx[CPU_LANES], l[CPU_LANES];
    uint8_t none[CPU_LANES];
    dev_cpu_mla_mask(j, &(struct mla_tile){tok, n_tok, p0, ld, hi}, m->s, none);
    c->k.span_col_f32(m->s, ld, to, ld / 16, lo, hi, mx, l);
    c->k.gemm_f32(m->s, 1, ld, m->v, ldv, m->o, v16, n_tok, v16 / 16, all, 0);
    for (int i = 0; i < n_tok; i++) {
        if (hi[i] > all)
            c->k.gemm_f32(m->s + all * ld + i, 1, ld, m->v + (int64_t)all * ldv, ldv,
                          m->o + (int64_t)i * v16, v16, 1, v16 / 16, hi[i] - all, 1);
        if (l[i] != 0.0f && !none[i])
            c->k.fold_f32(&m->m[tile0 + i], &m->l[tile0 + i], m->run + (int64_t)(tile0 + i) * v16,
                          mx[i], l[i], m->o + (int64_t)i * v16, v16);
    }
}

/* The queries of all tiles, transposed: tile at tile0 is [nope + rope][lanes of it]. */
static void exp_queries(const struct mla_job *j, const int32_t *tok, int n_tok, int head,
                        const struct exp_mem *m)
{
    const struct dev_attn_mla *p = j->a.p;
    int qd = p->nope + p->rope;
    for (int t0 = 0; t0 < n_tok; t0 += CPU_LANES) {
        int n = n_tok - t0 < CPU_LANES ? n_tok - t0 : CPU_LANES, ld = dev_cpu_round16(n);
        float *q = m->q + (int64_t)t0 * qd;
        for (int i = 0; i < ld; i++)
            for (int k = 0; k < qd; k++)
                q[(int64_t)k * ld + i] =
                    i < n ? p->q[((int64_t)tok[t0 + i] * p->n_head + head) * qd + k] * p->scale : 0;
    }
}

static void exp_unit(struct cpu *c, const struct mla_job *j, const struct cpu_unit *u, int worker)
{
    const struct dev_attn_mla *p = j->a.p;
    const int32_t *tok = c->mla.tok_list + u->tok0;
    int v16 = dev_cpu_round16(p->v);
    struct exp_mem m;
    (void)exp_carve(c->scratch[worker].attn, &c->most, &m);
    widen_weights(&j->a, u->head0, &m);
    exp_queries(j, tok, u->n_tok, u->head0, &m);
    memset(m.l, 0, sizeof(float) * (size_t)u->n_tok);
    int end = 0;
    for (int i = 0; i < u->n_tok; i++)
        end = j->b->pos[tok[i]] + 1 > end ? j->b->pos[tok[i]] + 1 : end;
    const struct cpu_kept *kept = dev_cpu_keep_of(j, u->seq);
    struct exp_mem own = m;
    for (int p0 = 0; p0 < end; p0 += VEC_SPAN) {
        float *there = dev_cpu_keep_span(c, kept, p->layer, u->head0, p0 / VEC_SPAN);
        int range[2] = {there ? dev_cpu_clamp_span(kept->valid[p->layer] - p0) : 0,
                        dev_cpu_clamp_span(end - p0)};
        m.k = there ? there : own.k;
        m.v = there ? there + (int64_t)VEC_SPAN * dev_cpu_row_ld(p->nope + p->rope, 4) : own.v;
        if (range[0] < range[1]) materialise(c, j, u->seq, p0, range, &m);
        for (int t0 = 0; t0 < u->n_tok; t0 += CPU_LANES)
            exp_tile(j, tok + t0, u->n_tok - t0 < CPU_LANES ? u->n_tok - t0 : CPU_LANES, t0, p0,
                     &m);
    }
    for (int i = 0; i < u->n_tok; i++) {
        float *y = p->y + ((int64_t)tok[i] * p->n_head + u->head0) * p->v;
        memcpy(y, m.run + (int64_t)i * v16, sizeof(float) * (size_t)p->v);
        c->k.scale_f32(y, 1.0f / m.l[i], p->v);
    }
}

static void exp_run(void *arg, int worker, int n_w)
{
    (void)n_w;
    struct mla_job *j = arg;
    int b, e;
    int bf16 = dev_cpu_bf16_attn(j->c, j->a.kv->t);
    while (par_take(j->c->span.counter, j->n_unit, 1, &b, &e))
        (bf16 ? dev_cpu_exp16_unit : exp_unit)(j->c, j, &j->c->span.unit[b], worker);
}

static void materialised(struct cpu *c, const struct dev_step *b, const struct mla *a,
                         struct dev_cost *products)
{
    struct mla_job j = {c, b, *a, 0};
    for (int i = 0; i < a->n_list;) {
        int seq = c->seq_of[c->mla.tok_list[i]], k = i;
        while (k < a->n_list && c->seq_of[c->mla.tok_list[k]] == seq)
            k++;
        for (int h = 0; h < a->p->n_head; h++)
            c->span.unit[j.n_unit++] = (struct cpu_unit){seq, i, k - i, h, 1, 0, 0, NULL};
        i = k;
    }
    if (dev_cpu_bf16_attn(c, a->kv->t)) dev_cpu_exp16_weights(c, a);
    atomic_store_explicit(&c->span.counter->next, 0, memory_order_relaxed);
    par_run(c->team, exp_run, &j);
    int width = a->p->n_head * (a->p->nope + a->p->rope + a->p->v);
    for (int i = 0; i < a->n_list; i++)
        products->flops += 2.0 * width * (b->pos[c->mla.tok_list[i]] + 1);
    for (int i = 0; i < j.n_unit; i += a->p->n_head) {
        const struct cpu_unit *u = &c->span.unit[i];
        struct cpu_kept *e = dev_cpu_keep_of(&j, u->seq);
        int end = b->pos[c->mla.tok_list[u->tok0 + u->n_tok - 1]] + 1;
        if (!e) continue;
        end = BASE_MIN(end, e->n_page * VEC_SPAN); /* others are not kept */
        e->valid[a->p->layer] = BASE_MAX(e->valid[a->p->layer], end);
    }
}

/* ---- both ---- */
void dev_cpu_mla_need(const struct dev_shapes *p, int *n_row, int *ldo, size_t *mem_floats)
{
    struct exp_mem m;
    size_t d_k = (size_t)p->mla_r + (size_t)p->mla_rope, row = (size_t)dev_cpu_row_ld((int)d_k, 4);
    size_t abs = (d_k + VEC_SPAN) * CPU_LANES + VEC_SPAN * row + 64;
    size_t exp = exp_carve(NULL, p, &m) + 64, exp16 = dev_cpu_exp16_floats(p) + 64;
    size_t abs16 = dev_cpu_abs16_floats((int)d_k) + 64;
    size_t abs_i16 = dev_cpu_abs_i16_floats(p->mla_r, p->mla_rope) + 64;
    abs16 = BASE_MAX(BASE_MAX(abs16, abs_i16), abs);
    if (p->index_top) abs16 += VEC_SPAN * vec_v_row_bytes(VEC_KV_F32, (int)d_k) / sizeof(float);
    *n_row = CPU_LANES;
    *ldo = dev_cpu_round16(p->mla_r);
    *mem_floats = BASE_MAX(abs16, BASE_MAX(exp16, exp));
}

void dev_cpu_mla_init(struct mla *a, const struct dev_attn_mla *p, const struct cpu_kv *kv)
{
    *a = (struct mla){.p = p, .kv = kv, .d_k = p->r + p->rope};
    a->row = dev_cpu_round16(a->d_k);
    a->ldx = dev_cpu_row_ld(a->d_k, 4);
    a->r16 = dev_cpu_round16(p->r);
    a->n_lane = CPU_LANES;
    if (p->pick) a->n_gather = (int)(VEC_SPAN * kv->row_bytes / sizeof(float));
}

/* Are the keys and values that token t sees materialised? */
static bool is_made(const struct cpu *c, const struct dev_attn_mla *p, const struct dev_step *b,
                    int t)
{
    bool some = dev_cpu_mla_pick(p, b, t) != NULL;
    return c->expand[t] && !(some && b->pos[t] >= p->n_mask);
}

void dev_cpu_attn_mla(dev *d, const struct dev_step *b, const struct dev_attn_mla *p)
{
    struct cpu *c = dev_cpu_of(d);
    struct mla a;
    dev_cpu_mla_init(&a, p, dev_cpu_kv_of(p->kv, p->group));
    const struct dev_shapes *most = &c->most;
    ASSERT(b->n_tok <= most->max.n_tok && p->n_head <= most->n_head && p->r <= most->mla_r &&
           p->nope <= most->mla_nope && p->rope <= most->mla_rope && p->v <= most->mla_v);
    struct dev_cost products = {0};
    for (int form = 0; form < 2; form++) {
        a.n_list = 0;
        for (int t = 0; t < b->n_tok; t++)
            if (is_made(c, p, b, t) == form) c->mla.tok_list[a.n_list++] = t;
        if (a.n_list == 0) continue;
        if (form)
            materialised(c, b, &a, &products);
        else
            absorbed(c, b, &a, &products);
    }
    dev_cpu_attn_count(c, a.kv, b, 0, &products);
}
