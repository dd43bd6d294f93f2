/* SPDX-License-Identifier: Apache-2.0 */
/* Attention with keys and values per head. Rows of a unit are (token, query head of one KV head).
 * Where tokens see some blocks only, a block is a span, and a unit has a list of those that any of
 * its tokens sees.
 * Keys lie transposed, so positions are lanes in the scores; keys and values of a piece are widened
 * to f32 once and serve all rows of the unit.
 *
 * What a row computes does not depend on the other rows: each score is one fused multiply-add chain
 * over the head's width, the softmax of a span has its lanes fixed by position, and each output is
 * one chain over the positions that the row sees, in rising order. Positions that a row does not
 * see never enter its arithmetic. */
#include "dev/cpu/attn.h"
#include "dev/cpu/ask.h"
#include "dev/cpu/kv_page.h"
#include "dev/cpu/span.h"

/* Positions whose keys or values are widened at a time: they stay in the L1 while all rows use
 * them. */
#define PIECE 32

struct attn_mem {
    float *q, *s, *k, *v;
    struct cpu_ask next; /* keys or values of the next piece */
};

static struct attn_mem carve(float *mem, const struct attn *a, int n_row)
{
    struct attn_mem m = {.q = mem};
    m.s = m.q + (size_t)n_row * (size_t)a->kv->s.d_k;
    m.k = m.s + (size_t)n_row * VEC_SPAN;
    m.v = m.k + (size_t)a->kv->s.d_k * PIECE;
    return m;
}

static int tile_tokens(int group, int bf16)
{
    int rows = bf16 ? CPU_ROWS_BF16 : CPU_ROWS;
    return group >= rows ? 1 : rows / group;
}

void dev_cpu_attn_need(const struct dev_shapes *p, int *n_row, int *ldo, size_t *mem_floats)
{
    *n_row = p->n_head > CPU_ROWS_BF16 ? p->n_head : CPU_ROWS_BF16;
    *ldo = (p->d_v + 15) / 16 * 16;
    size_t f32 =
        (size_t)*n_row * (size_t)(p->d_k + VEC_SPAN) + (size_t)PIECE * (size_t)(p->d_k + *ldo) + 64;
    *mem_floats = BASE_MAX(f32, dev_cpu_attn16_floats(*n_row, p->d_k, p->d_v));
}

static void begin(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u, float *mem)
{
    const struct attn *a = j->op;
    struct attn_mem m = carve(mem, a, j->n_row);
    int d = a->kv->s.d_k;
    for (int t = 0; t < u->n_tok; t++)
        for (int g = 0; g < a->group; g++) {
            int64_t row = (int64_t)(u->tok0 + t) * a->p->n_head + u->head0 + g;
            float *q = m.q + (t * a->group + g) * d;
            memcpy(q, a->p->q + row * d, sizeof(float) * (size_t)d);
            c->k.scale_f32(q, a->p->scale, d);
        }
}

static const uint8_t *keys_at(const struct cpu_span_job *j, const struct cpu_unit *u, int p)
{
    const struct attn *a = j->op;
    return dev_cpu_seq_page(j, u, p) +
           dev_cpu_key_at(a->kv, u->head0 / a->group, p % a->kv->blk_tok);
}

static const uint8_t *values_at(const struct cpu_span_job *j, const struct cpu_unit *u, int p)
{
    const struct attn *a = j->op;
    return dev_cpu_seq_page(j, u, p) +
           dev_cpu_value_at(a->kv, u->head0 / a->group, p % a->kv->blk_tok);
}

/* The last position that a token of the unit sees. */
static int last_of(const struct cpu_span_job *j, const struct cpu_unit *u)
{
    return j->b->pos[u->tok0 + u->n_tok - 1];
}

/* Rows of a product after which the next lines are asked for: of few rows as many as AVX2 has in a
 * tile, of many a multiple of what any CPU has. */
static int rows_at_once(int n_row)
{
    return n_row > 12 ? 12 : 3;
}

/* Keys or values of the piece at p, while a product of n_row rows uses those before them. */
static struct cpu_ask ask_for(const struct cpu_span_job *j, const struct cpu_unit *u, int p,
                              int n_row, bool keys)
{
    const struct cpu_kv *kv = ((const struct attn *)j->op)->kv;
    int rows = rows_at_once(n_row);
    struct cpu_ask x = {.n = 0};
    for (int at = p; at < p + PIECE && at <= last_of(j, u); at += 16)
        dev_cpu_ask_add(&x, keys ? keys_at(j, u, at) : values_at(j, u, at),
                        keys ? kv->group_bytes : 16 * kv->row_bytes);
    dev_cpu_ask_in(&x, PIECE / 16 + (n_row + rows - 1) / rows);
    return x;
}

/* The piece after that at `at` of span where[0], which is seen up to `to`. */
static int next_piece(const struct cpu_span_job *j, const int where[2], int at, int to)
{
    return at + PIECE < to ? where[0] * j->len + at + PIECE : where[1] * j->len;
}

/* Keys of positions [p, p + 16 n) (p a multiple of 16) to m->k[d][PIECE]. */
static void widen_keys(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u, int p,
                       int n, struct attn_mem *m)
{
    const struct cpu_kv *kv = ((const struct attn *)j->op)->kv;
    for (int g = 0; g < n; g++, p += 16) {
        dev_cpu_ask(&m->next);
        c->k.get_k(kv->t, keys_at(j, u, p), kv->s.d_k, m->k + 16 * g, PIECE);
    }
}

/* Scores of the n groups of 16 positions in m->k, from position at of the span on. */
static void score(struct cpu *c, struct attn_mem *m, int n_row, int d, int at, int n)
{
    int rows = rows_at_once(n_row);
    for (int r = 0; r < n_row; r += rows) {
        c->k.gemm_f32(m->q + (int64_t)r * d, d, 1, m->k, PIECE, m->s + r * VEC_SPAN + at, VEC_SPAN,
                      BASE_MIN(rows, n_row - r), n, d, 0);
        dev_cpu_ask(&m->next);
    }
}

/* Values of positions [p, end) to m->v[][ldv]. */
static void widen_values(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                         int p, int end, struct attn_mem *m)
{
    const struct attn *a = j->op;
    const struct cpu_kv *kv = a->kv;
    float *v = m->v;
    while (p < end) {
        int n = 16 - p % 16 < end - p ? 16 - p % 16 : end - p;
        dev_cpu_ask(&m->next);
        c->k.get_v(kv->t, values_at(j, u, p), (int64_t)kv->row_bytes, n, kv->s.d_v, v, a->ldv);
        v += (int64_t)n * a->ldv;
        p += n;
    }
}

struct pv {
    struct cpu *c;
    const float *s, *v; /* v: row of position 0 of the span */
    float *o;
    int ldv, ldo;
    struct cpu_ask *next;
};

static void weigh(const struct pv *x, int row0, int n_row, int lo, int hi)
{
    int rows = rows_at_once(n_row);
    if (hi <= lo) return;
    for (int r = row0; r < row0 + n_row; r += rows) {
        x->c->k.gemm_f32(x->s + r * VEC_SPAN + lo, VEC_SPAN, 1, x->v + (int64_t)lo * x->ldv, x->ldv,
                         x->o + (int64_t)r * x->ldo, x->ldo, BASE_MIN(rows, row0 + n_row - r),
                         x->ldv / 16, hi - lo, 1);
        dev_cpu_ask(x->next);
    }
}

/* o += weights times values of positions [a0, a1) of the span: those that all tokens see for all
 * rows at once, the others token by token. */
static void weigh_piece(const struct pv *x, const struct cpu_span_job *j, const struct cpu_unit *u,
                        int span, int a0, int a1)
{
    int group = ((const struct attn *)j->op)->group, all0 = a0, all1 = a1;
    for (int t = 0; t < u->n_tok; t++) {
        int lo, hi;
        dev_cpu_seen(j, u, u->tok0 + t, span, &lo, &hi);
        all0 = lo > all0 ? lo : all0;
        all1 = hi < all1 ? hi : all1;
    }
    int some = all1 > all0;
    for (int t = 0; t < u->n_tok; t++) {
        int lo, hi;
        dev_cpu_seen(j, u, u->tok0 + t, span, &lo, &hi);
        lo = lo > a0 ? lo : a0;
        hi = hi < a1 ? hi : a1;
        weigh(x, t * group, group, lo, some ? all0 : hi);
    }
    if (!some) return;
    weigh(x, 0, u->n_tok * group, all0, all1);
    for (int t = 0; t < u->n_tok; t++) {
        int lo, hi;
        dev_cpu_seen(j, u, u->tok0 + t, span, &lo, &hi);
        weigh(x, t * group, group, all1, hi < a1 ? hi : a1);
    }
}

static void span_run(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                     const int where[2], float *mem, struct cpu_part out)
{
    const struct attn *a = j->op;
    struct attn_mem m = carve(mem, a, j->n_row);
    int n_row = u->n_tok * a->group, from = VEC_SPAN, to = 0, span = where[0], p0 = span * j->len;
    for (int t = 0; t < u->n_tok; t++) {
        int lo, hi;
        dev_cpu_seen(j, u, u->tok0 + t, span, &lo, &hi);
        if (hi <= lo) continue;
        from = lo < from ? lo : from;
        to = hi > to ? hi : to;
    }
    for (int at = from / PIECE * PIECE; at < to; at += PIECE) {
        int n = ((to - at < PIECE ? to - at : PIECE) + 15) / 16;
        m.next = ask_for(j, u, next_piece(j, where, at, to), n_row, true);
        widen_keys(c, j, u, p0 + at, n, &m);
        score(c, &m, n_row, a->kv->s.d_k, at, n);
    }
    for (int r = 0; r < n_row; r++) {
        int lo, hi;
        dev_cpu_seen(j, u, u->tok0 + r / a->group, span, &lo, &hi);
        out.l[r] = 0;
        if (hi > lo) c->k.span_row_f32(m.s + r * VEC_SPAN, lo, hi, &out.m[r], &out.l[r]);
    }
    memset(out.o, 0, sizeof(float) * (size_t)n_row * (size_t)j->ldo);
    for (int at = from; at < to;) {
        int end = at / PIECE * PIECE + PIECE;
        if (end > to) end = to;
        m.next = ask_for(j, u, next_piece(j, where, at / PIECE * PIECE, to), n_row, false);
        widen_values(c, j, u, p0 + at, p0 + end, &m);
        struct pv x = {c, m.s, m.v - (int64_t)at * a->ldv, out.o, a->ldv, j->ldo, &m.next};
        weigh_piece(&x, j, u, span, at, end);
        at = end;
    }
}

float dev_cpu_weight_of(const struct cpu *c, float m, float l, const float *sink)
{
    float f = 1.0f, none = 0.0f;
    if (sink) c->k.fold_f32(&m, &l, &f, *sink, 1.0f, &none, 1);
    return f / l;
}

static void end(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                struct cpu_part in, const int rows[2])
{
    const struct attn *a = j->op;
    const float *sink = a->p->per_head.of[PER_HEAD_SINKS];
    int d = a->kv->s.d_v;
    for (int r = rows[0]; r < rows[1]; r++) {
        int h = u->head0 + r % a->group;
        int64_t row = (int64_t)(u->tok0 + r / a->group) * a->p->n_head + h;
        float *y = a->p->y + row * d;
        memcpy(y, in.o + (int64_t)r * j->ldo, sizeof(float) * (size_t)d);
        c->k.scale_f32(y, dev_cpu_weight_of(c, in.m[r], in.l[r], sink ? sink + h : NULL), d);
    }
}

/* Which spans of a unit any of its tokens sees, to list; how many. */
static int list_spans(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                      int32_t *list)
{
    const struct attn *a = j->op;
    uint64_t *seen = c->span.seen;
    int end = j->b->pos[u->tok0 + u->n_tok - 1] / j->len + 1, n = 0;
    memset(seen, 0, sizeof *seen * (size_t)(end / 64 + 1));
    for (int t = u->tok0; t < u->tok0 + u->n_tok; t++) {
        const int32_t *picked = dev_cpu_picked(j, u, t);
        int n_of = picked ? a->p->some.n_pick : j->b->pos[t] / j->len + 1;
        for (int i = 0; i < n_of; i++) {
            int span = picked ? picked[i] : i;
            seen[span / 64] |= (uint64_t)1 << span % 64;
        }
    }
    for (int i = 0; i * 64 < end; i++)
        for (uint64_t bits = seen[i]; bits; bits &= bits - 1)
            list[n++] = 64 * i + __builtin_ctzll(bits);
    return n;
}

/* Units of tokens of which some see chosen blocks only get their lists. */
static void list_units(struct cpu *c, const struct cpu_span_job *j, int n_unit)
{
    const struct dev_blocks *s = &((const struct attn *)j->op)->p->some;
    int32_t *list = c->span.list;
    for (int i = 0; i < n_unit && s->pick; i++) {
        struct cpu_unit *u = &c->span.unit[i];
        if (j->b->pos[u->tok0 + u->n_tok - 1] < s->n_pick * s->blk) continue;
        u->span0 = 0;
        u->span1 = list_spans(c, j, u, list);
        u->list = list;
        list += u->span1;
    }
}

/* Units of the step: per sequence tiles of tokens, times KV heads. */
static int make_units(struct cpu *c, const struct cpu_span_job *j, int tile, double *work)
{
    const struct attn *a = j->op;
    const struct dev_step *b = j->b;
    const struct dev_blocks *some = &a->p->some;
    int n = 0, w = some->pick ? some->n_pick * some->blk : a->p->n_window;
    for (int s = 0; s < b->n_seq; s++)
        for (int t0 = b->seq_tok0[s]; t0 < b->seq_tok0[s + 1]; t0 += tile) {
            int t1 = t0 + tile < b->seq_tok0[s + 1] ? t0 + tile : b->seq_tok0[s + 1];
            int lo = INT32_MAX, hi = 0;
            for (int t = t0; t < t1; t++) {
                int from = w > 0 && b->pos[t] - w + 1 > 0 ? b->pos[t] - w + 1 : 0;
                lo = from < lo ? from : lo;
                hi = b->pos[t] + 1 > hi ? b->pos[t] + 1 : hi;
                *work += b->pos[t] + 1 - from;
            }
            for (int h = 0; h < a->kv->s.n_head; h++)
                c->span.unit[n++] = (struct cpu_unit){s,
                                                      t0,
                                                      t1 - t0,
                                                      h * a->group,
                                                      a->group,
                                                      some->pick ? 0 : lo / j->len,
                                                      (hi + j->len - 1) / j->len,
                                                      NULL};
        }
    list_units(c, j, n);
    return n;
}

void dev_cpu_attn_job(struct cpu *c, const struct dev_step *b, const struct dev_attn *p,
                      struct attn *a, struct cpu_span_job *j)
{
    const struct cpu_kv *kv = dev_cpu_kv_of(p->kv, p->group);
    *a = (struct attn){p, kv, p->n_head / kv->s.n_head, (kv->s.d_v + 15) / 16 * 16};
    ASSERT(b->n_tok <= c->most.max.n_tok && p->n_head <= c->most.n_head &&
           kv->s.d_k <= c->most.d_k && kv->s.d_v <= c->most.d_v && p->n_head % kv->s.n_head == 0 &&
           kv->s.d_k == p->d_k && kv->s.d_v == p->d_v);
    int bf16 = dev_cpu_bf16_attn(c, kv->t), tile = tile_tokens(a->group, bf16);
    int n_row = a->group * tile;
    *j = (struct cpu_span_job){.b = b, .op = a, .n_row = n_row, .ldo = a->ldv};
    j->len = p->some.blk ? p->some.blk : VEC_SPAN;
    ASSERT(!p->some.pick || p->some.n_pick * kv->s.n_head <= c->most.index_list);
    j->begin = begin;
    j->span = span_run;
    j->end = end;
    j->mem_floats = (size_t)n_row * (size_t)(kv->s.d_k + VEC_SPAN) +
                    (size_t)PIECE * (size_t)(kv->s.d_k + a->ldv);
    if (bf16) {
        j->begin = dev_cpu_attn16_begin;
        j->span = dev_cpu_attn16_span;
        j->mem_floats = dev_cpu_attn16_floats(n_row, kv->s.d_k, kv->s.d_v);
    }
    double work = 0;
    j->n_unit = make_units(c, j, tile, &work);
    j->products.flops = 2.0 * work * p->n_head * (kv->s.d_k + kv->s.d_v);
}

void dev_cpu_attn(dev *d, const struct dev_step *b, const struct dev_attn *p)
{
    struct cpu *c = dev_cpu_of(d);
    struct attn a;
    struct cpu_span_job j;
    dev_cpu_attn_job(c, b, p, &a, &j);
    dev_cpu_spans(c, &j);
    dev_cpu_attn_count(c, a.kv, b, p->some.pick ? p->some.n_pick * p->some.blk : p->n_window,
                       &j.products);
}
