/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over rows of one head that are keys and values: of a window, then of entries. A unit is
 * a token with heads in lanes; its rows are counted from the first one that it sees, the window's
 * and then the entries', each in spans of their own. So what a token computes depends on nothing
 * else. */
#include "dev/cpu/ckv.h"

#include "dev/cpu/attn.h"

#define LANES_LEAST 16 /* heads of a unit, at least */
#define ITEMS 4        /* spans of units that a worker should have, about */

/* What a token sees: n_pos positions from pos0 on, n_entry entries, all from the first one on or
 * those of pick. */
struct seen {
    int pos0, n_pos, n_entry;
    const int32_t *pick;
};

static struct seen seen_of(const struct ckv *a, const struct dev_step *b, int t)
{
    const struct dev_attn_ckv *p = a->p;
    int pos = b->pos[t], n = dev_entries_at(pos, p->every);
    struct seen s = {.pos0 = BASE_MAX(pos + 1 - p->n_window, 0), .n_entry = n};
    s.n_pos = pos + 1 - s.pos0;
    if (p->pick && n > p->n_pick) {
        s.n_entry = p->n_pick;
        s.pick = p->pick + (int64_t)t * p->n_pick;
    }
    return s;
}

static int spans_of(int n)
{
    return (n + VEC_SPAN - 1) / VEC_SPAN;
}

struct ckv_span dev_cpu_ckv_span(const struct cpu_span_job *j, const struct cpu_unit *u, int span)
{
    const struct ckv *a = j->op;
    struct seen s = seen_of(a, j->b, u->tok0);
    int n_win = spans_of(s.n_pos), at = (span < n_win ? span : span - n_win) * VEC_SPAN;
    int n = BASE_MIN((span < n_win ? s.n_pos : s.n_entry) - at, VEC_SPAN);
    return (struct ckv_span){a, j->b, u->seq, n, at, span >= n_win, s.pos0, s.pick};
}

const uint8_t *dev_cpu_ckv_row(const struct ckv_span *s, int i, int *n)
{
    const struct ckv *a = s->a;
    int at = s->at + i;
    if (s->entries) {
        const struct cpu_kv *kv = a->more;
        struct cpu_entry e =
            dev_cpu_entry_at(kv, a->p->more_layer, s->b, s->seq, s->pick ? s->pick[at] : at);
        int left = dev_cpu_part(kv, a->p->more_layer)->n_row - e.row;
        *n = s->pick ? 1 : BASE_MIN(s->n - i, left);
        return e.page + (size_t)e.row * kv->row_bytes;
    }
    int pos = s->pos0 + at, in = pos % a->kv->blk_tok;
    *n = BASE_MIN(s->n - i, a->kv->blk_tok - in);
    return dev_cpu_page_of(a->kv, a->p->layer, s->b, s->seq, pos) + (size_t)in * a->kv->row_bytes;
}

struct ckv_mem {
    float *q, *s, *x; /* q [d][lanes], s [SPAN][lanes], x [SPAN][ldx] */
};

static struct ckv_mem carve(float *mem, int d)
{
    struct ckv_mem m = {.q = mem};
    m.s = m.q + (size_t)d * CPU_LANES;
    m.x = m.s + (size_t)VEC_SPAN * CPU_LANES;
    return m;
}

void dev_cpu_ckv_need(const struct dev_shapes *p, int *n_row, int *ldo, size_t *mem_floats)
{
    int d = p->ckv_d, ldx = dev_cpu_row_ld(dev_cpu_round16(d), 4);
    *n_row = CPU_LANES;
    *ldo = dev_cpu_round16(d);
    *mem_floats = (size_t)(d + VEC_SPAN) * CPU_LANES + (size_t)VEC_SPAN * (size_t)ldx + 64;
    *mem_floats = BASE_MAX(*mem_floats, dev_cpu_ckv16_floats(d) + 64);
}

static void begin(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u, float *mem)
{
    const struct ckv *a = j->op;
    int d = a->p->d, ld = dev_cpu_round16(u->n_head);
    struct ckv_mem m = carve(mem, d);
    for (int h = 0; h < ld; h++) {
        const float *q = a->p->q + ((int64_t)u->tok0 * a->p->n_head + u->head0 + h) * d;
        if (h < u->n_head) {
            memcpy(m.x, q, sizeof(float) * (size_t)d);
            c->k.scale_f32(m.x, a->p->scale, d);
        }
        for (int k = 0; k < d; k++)
            m.q[(int64_t)k * ld + h] = h < u->n_head ? m.x[k] : 0;
    }
}

static void span_run(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                     const int where[2], float *mem, struct cpu_part out)
{
    const struct ckv *a = j->op;
    int d = a->p->d, ld = dev_cpu_round16(u->n_head);
    struct ckv_span s = dev_cpu_ckv_span(j, u, where[0]);
    struct ckv_mem m = carve(mem, d);
    int32_t lo[CPU_LANES] = {0}, hi[CPU_LANES];
    float mx[CPU_LANES], l[CPU_LANES];
    for (int i = 0, n; i < s.n; i += n) {
        const uint8_t *row = dev_cpu_ckv_row(&s, i, &n);
        c->k.get_v(a->kv->t, row, (int64_t)a->kv->row_bytes, n, d, m.x + (int64_t)i * a->ldx,
                   a->ldx);
    }
    c->k.gemm_f32(m.x, a->ldx, 1, m.q, ld, m.s, ld, s.n, ld / 16, d, 0);
    for (int h = 0; h < CPU_LANES; h++)
        hi[h] = s.n;
    c->k.span_col_f32(m.s, ld, s.n, ld / 16, lo, hi, mx, l);
    memcpy(out.m, mx, sizeof(float) * (size_t)u->n_head);
    memcpy(out.l, l, sizeof(float) * (size_t)u->n_head);
    c->k.gemm_f32(m.s, 1, ld, m.x, a->ldx, out.o, j->ldo, u->n_head, a->d16 / 16, s.n, 0);
}

static void end(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                struct cpu_part in, const int rows[2])
{
    const struct ckv *a = j->op;
    const float *sink = a->p->sink;
    int d = a->p->d;
    for (int r = rows[0]; r < rows[1]; r++) {
        int h = u->head0 + r;
        float *y = a->p->y + ((int64_t)u->tok0 * a->p->n_head + h) * d;
        memcpy(y, in.o + (int64_t)r * j->ldo, sizeof(float) * (size_t)d);
        c->k.scale_f32(y, dev_cpu_weight_of(c, in.m[r], in.l[r], sink ? sink + h : NULL), d);
    }
}

/* Heads of a unit: as many as there are lanes, or fewer where workers would wait for each other;
 * every unit brings all rows to itself, which takes little. A head's numbers do not depend on it.
 */
static int heads_of(const struct cpu *c, const struct ckv *a, const struct dev_step *b)
{
    int n_span = 0, n = CPU_LANES, want = ITEMS * c->n_worker;
    for (int t = 0; t < b->n_tok && n_span < want; t++) {
        struct seen s = seen_of(a, b, t);
        n_span += spans_of(s.n_pos) + spans_of(s.n_entry);
    }
    while (n > LANES_LEAST && n_span * ((a->p->n_head + n - 1) / n) < want)
        n /= 2;
    return n;
}

static int make_units(struct cpu *c, const struct ckv *a, const struct dev_step *b, double *work)
{
    int n = 0, H = a->p->n_head, lanes = heads_of(c, a, b);
    for (int t = 0; t < b->n_tok; t++) {
        struct seen s = seen_of(a, b, t);
        *work += s.n_pos + s.n_entry;
        for (int h = 0; h < H; h += lanes)
            c->span.unit[n++] = (struct cpu_unit){.seq = c->seq_of[t],
                                                  .tok0 = t,
                                                  .n_tok = 1,
                                                  .head0 = h,
                                                  .n_head = BASE_MIN(H - h, lanes),
                                                  .span1 = spans_of(s.n_pos) + spans_of(s.n_entry)};
    }
    return n;
}

void dev_cpu_attn_ckv(dev *d, const struct dev_step *b, const struct dev_attn_ckv *p)
{
    struct cpu *c = dev_cpu_of(d);
    struct ckv a = {.p = p, .kv = dev_cpu_kv_of(p->kv, p->group), .d16 = dev_cpu_round16(p->d)};
    double work = 0;
    a.ldx = dev_cpu_row_ld(a.d16, 4);
    a.more = p->every ? dev_cpu_kv_of(p->kv, p->more) : NULL;
    ASSERT(b->n_tok <= c->most.max.n_tok && p->n_head <= c->most.n_head && p->d <= c->most.ckv_d &&
           a.kv->s.d_k == p->d && (!a.more || a.more->s.d_k == p->d));
    struct cpu_span_job j = {.b = b, .op = &a, .n_row = CPU_LANES, .ldo = a.d16, .len = VEC_SPAN};
    j.begin = begin;
    j.span = span_run;
    j.end = end;
    j.mem_floats = (size_t)(p->d + VEC_SPAN) * CPU_LANES + (size_t)VEC_SPAN * (size_t)a.ldx;
    if (dev_cpu_bf16_attn(c, a.kv->t)) {
        j.begin = dev_cpu_ckv16_begin;
        j.span = dev_cpu_ckv16_span;
        j.mem_floats = dev_cpu_ckv16_floats(p->d);
    }
    j.n_unit = make_units(c, &a, b, &work);
    j.products.flops = 4.0 * work * p->n_head * p->d;
    dev_cpu_spans(c, &j);
    if (!c->head.timing) return;
    c->head.cost.flops += j.products.flops;
    c->head.cost.bytes += work * (double)a.kv->row_bytes;
}
