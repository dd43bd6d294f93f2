/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over rows of one head that are keys and values: of a window, then of entries. A unit is
 * a token with heads in lanes; its rows are counted from the first one that it sees, the window's
 * and then the entries', each in spans of their own. So what a token computes depends on nothing
 * else. */
#include "dev/cpu/attn.h"
#include "dev/cpu/cpu.h"
#include "dev/cpu/kv_page.h"
#include "dev/cpu/mla.h"

struct ckv {
    const struct dev_attn_ckv *p;
    const struct cpu_kv *kv, *more; /* more: NULL where there are no entries */
    int ldx, d16;
};

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
    *mem_floats =
        (size_t)(d + VEC_SPAN) * CPU_LANES + (size_t)VEC_SPAN * (size_t)ldx + 64;
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

/* Rows of n positions from pos on, f32, to x. */
static void widen_window(struct cpu *c, const struct cpu_span_job *j, int seq, int pos, int n,
                         float *x)
{
    const struct ckv *a = j->op;
    const struct cpu_kv *kv = a->kv;
    for (int k; n > 0; n -= k, pos += k, x += (int64_t)k * a->ldx) {
        int in = pos % kv->blk_tok;
        k = BASE_MIN(n, kv->blk_tok - in);
        const uint8_t *page = dev_cpu_page_of(kv, a->p->layer, j->b, seq, pos);
        c->k.get_v(kv->t, page + (size_t)in * kv->row_bytes, (int64_t)kv->row_bytes, k, kv->s.d_k,
                   x, a->ldx);
    }
}

/* The same of entries i to end of those that a token sees. */
static void widen_entries(struct cpu *c, const struct cpu_span_job *j, int seq,
                          const struct seen *s, int i, int end, float *x)
{
    const struct ckv *a = j->op;
    const struct cpu_kv *kv = a->more;
    for (; i < end; i++, x += a->ldx) {
        int w = s->pick ? s->pick[i] : i;
        struct cpu_entry e = dev_cpu_entry_at(kv, a->p->more_layer, j->b, seq, w);
        c->k.get_v(kv->t, e.page + (size_t)e.row * kv->row_bytes, (int64_t)kv->row_bytes, 1,
                   kv->s.d_k, x, a->ldx);
    }
}

static void span_run(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                     const int where[2], float *mem, struct cpu_part out)
{
    const struct ckv *a = j->op;
    int d = a->p->d, ld = dev_cpu_round16(u->n_head), n_win, i = where[0];
    struct seen s = seen_of(a, j->b, u->tok0);
    struct ckv_mem m = carve(mem, d);
    int32_t lo[CPU_LANES] = {0}, hi[CPU_LANES];
    float mx[CPU_LANES], l[CPU_LANES];
    n_win = spans_of(s.n_pos);
    int at = (i < n_win ? i : i - n_win) * VEC_SPAN;
    int n = BASE_MIN((i < n_win ? s.n_pos : s.n_entry) - at, VEC_SPAN);
    if (i < n_win)
        widen_window(c, j, u->seq, s.pos0 + at, n, m.x);
    else
        widen_entries(c, j, u->seq, &s, at, at + n, m.x);
    c->k.gemm_f32(m.x, a->ldx, 1, m.q, ld, m.s, ld, n, ld / 16, d, 0);
    for (int h = 0; h < CPU_LANES; h++)
        hi[h] = n;
    c->k.span_col_f32(m.s, ld, n, ld / 16, lo, hi, mx, l);
    memcpy(out.m, mx, sizeof(float) * (size_t)u->n_head);
    memcpy(out.l, l, sizeof(float) * (size_t)u->n_head);
    c->k.gemm_f32(m.s, 1, ld, m.x, a->ldx, out.o, j->ldo, u->n_head, a->d16 / 16, n, 0);
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

static int make_units(struct cpu *c, const struct ckv *a, const struct dev_step *b, double *work)
{
    int n = 0, H = a->p->n_head;
    for (int t = 0; t < b->n_tok; t++) {
        struct seen s = seen_of(a, b, t);
        *work += s.n_pos + s.n_entry;
        for (int h = 0; h < H; h += CPU_LANES)
            c->span.unit[n++] = (struct cpu_unit){.seq = c->seq_of[t],
                                                  .tok0 = t,
                                                  .n_tok = 1,
                                                  .head0 = h,
                                                  .n_head = BASE_MIN(H - h, CPU_LANES),
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
    j.n_unit = make_units(c, &a, b, &work);
    j.products.flops = 4.0 * work * p->n_head * p->d;
    dev_cpu_spans(c, &j);
    if (!c->head.timing) return;
    c->head.cost.flops += j.products.flops;
    c->head.cost.bytes += work * (double)a.kv->row_bytes;
}
