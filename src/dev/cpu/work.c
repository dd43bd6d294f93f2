/* SPDX-License-Identifier: Apache-2.0 */
/* Splitting work over the team. Every result is computed by the same arithmetic whoever computes
 * it, so any worker may take what is left. */
#include "dev/cpu/work.h"

#include "dev/cpu/cpu.h"
#include "dev/cpu/mat.h"
#include "dev/cpu/product.h"
#include "dev/cpu/rows.h"

#define INLINE_NS 3000.0 /* less than this is not worth waking the team */
#define PIECE_MIN ((size_t)64 << 10)
#define PIECE_CACHED                                                                               \
    ((size_t)256 << 10) /* read once for every set of tokens: stays in a core's own cache */
#define AHEAD_BYTES                                                                                \
    ((size_t)128 << 10) /* fetched by a worker that waits: stays in its own cache                  \
                         */
#define AHEAD_TOK 8     /* with more tokens products wait for arithmetic */
#define TILES_MANY 4    /* with many tokens a piece first lays their records side by side */

struct rows_job {
    struct cpu *c;
    void (*fn)(struct cpu *c, void *arg, int row, int worker);
    void *arg;
    int n_row;
};

static void rows_run(void *arg, int w, int n_w)
{
    struct rows_job *j = arg;
    int64_t b, e;
    par_split(j->n_row, w, n_w, &b, &e);
    for (int64_t i = b; i < e; i++)
        j->fn(j->c, j->arg, (int)i, w);
}

void dev_cpu_for_rows(struct cpu *c, int n_row, double ns,
                      void (*fn)(struct cpu *c, void *arg, int row, int worker), void *arg)
{
    struct rows_job j = {c, fn, arg, n_row};
    if (n_row < 2 || c->n_worker == 1 || n_row * ns < INLINE_NS) {
        for (int i = 0; i < n_row; i++)
            fn(c, arg, i, 0);
        return;
    }
    par_run(c->team, rows_run, &j);
}

void dev_cpu_work_clear(struct cpu_work *w)
{
    w->n_seg = w->n_tok = 0;
}

static int unit_tiles(const struct mm_mat *m)
{
    return m->is_pair ? 2 : 1;
}

/* Bytes of one unit. */
static size_t unit_bytes(const struct cpu_seg *s)
{
    size_t second = s->m2.data ? s->m2.tile_bytes : 0;
    return (s->m.tile_bytes + second) * (size_t)s->unit;
}

struct cpu_seg *dev_cpu_work_add(struct cpu_work *w, const struct cpu_mat *of, int i, int n_tok,
                                 int rows)
{
    ASSERT(w->n_seg < w->n_seg_max);
    struct cpu_seg *s = &w->seg[w->n_seg];
    struct mm_mat m = dev_cpu_mat_at(of, i);
    int begin = w->n_seg ? s[-1].end : 0, unit = unit_tiles(&m) * rows / 16;
    *s = (struct cpu_seg){.m = m,
                          .m2 = dev_cpu_mat2_at(of, i),
                          .bias = dev_mat_bias(&of->head, i),
                          .unit = unit,
                          .begin = begin,
                          .end = begin + m.n_tile / unit,
                          .n_tok = n_tok};
    w->n_tok = BASE_MAX(w->n_tok, n_tok);
    w->n_seg++;
    return s;
}

/* What a set of products reads and computes, for dev_op_times. */
void dev_cpu_work_count(struct cpu *c, const struct cpu_work *w)
{
    for (int i = 0; i < w->n_seg; i++) {
        const struct cpu_seg *s = &w->seg[i];
        int n_mat = s->m.is_pair || s->m2.data ? 2 : 1;
        c->head.cost.bytes += (double)(s->end - s->begin) * (double)unit_bytes(s);
        c->head.cost.ops += 2.0 * n_mat * s->m.n_row * (double)s->m.n_col * s->n_tok;
    }
}

void dev_cpu_work_begin(struct cpu *c, int pass)
{
    c->order = &c->orders[pass];
    c->order->last = c->order->n;
    c->order->n = 0;
}

/* What a worker reads first. seg: where the worker before it begins, moved on. */
static struct cpu_stream start_of(const struct cpu_work *w, int worker, int *seg)
{
    const struct par_range *r = &w->range[worker];
    int at = atomic_load_explicit(&r->next, memory_order_relaxed);
    while (*seg < w->n_seg && w->seg[*seg].end <= at)
        ++*seg;
    if (*seg == w->n_seg || at >= r->end) return (struct cpu_stream){0};
    const struct cpu_seg *g = &w->seg[*seg];
    size_t unit = (size_t)g->unit * g->m.tile_bytes;
    return (struct cpu_stream){.p = g->m.data + (size_t)(at - g->begin) * unit,
                               .n = (size_t)(BASE_MIN(g->end, r->end) - at) * unit};
}

void dev_cpu_work_starts(const struct cpu *c, const struct cpu_work *w, struct cpu_stream *start)
{
    for (int i = 0, seg = 0; i < c->n_worker; i++) {
        start[i] = start_of(w, i, &seg);
        start[i].again = 1;
    }
}

/* Where each worker begins is remembered: in the next step it will begin there again, but for the
 * experts. */
void dev_cpu_work_remember(struct cpu *c, struct cpu_work *w)
{
    struct cpu_order *o = c->order;
    int k = o->n++, seg = 0;
    w->next = NULL;
    if (k >= CPU_ORDER_MAX) return;
    struct cpu_stream *s = o->set + (size_t)k * (size_t)c->n_worker;
    for (int i = 0; i < c->n_worker; i++) {
        struct cpu_stream now = start_of(w, i, &seg);
        now.again = s[i].p == now.p;
        s[i] = now;
    }
    int next = k + 1 == o->last ? 0 : k + 1;
    if (w->n_tok <= AHEAD_TOK && next < CPU_ORDER_MAX)
        w->next = o->set + (size_t)next * (size_t)c->n_worker;
}

/* Reads, not prefetches: those are dropped when more are under way than the core can hold. Weights
 * that are streamed may be written meanwhile. */
BASE_UNWATCHED int dev_cpu_work_ahead(void *cpu, int worker)
{
    struct cpu *c = cpu;
    if (worker >= CPU_AHEAD_MAX) return 0;
    struct cpu_ahead *a = &c->ahead[worker];
    if (a->p >= a->end) return 0;
    for (int i = 0; i < 8 && a->p < a->end; i++, a->p += 64)
        (void)*(const volatile uint8_t *)a->p;
    return 1;
}

/* A worker has no more to do in w. */
static void look_ahead(struct cpu *c, const struct cpu_work *w, int worker)
{
    const struct cpu_stream *s = w->next ? &w->next[worker] : NULL;
    if (worker >= CPU_AHEAD_MAX) return;
    struct cpu_ahead *a = &c->ahead[worker];
    a->p = a->end = NULL;
    if (!s || !s->again || !s->p) return;
    a->p = s->p;
    a->end = s->p + BASE_MIN(s->n, AHEAD_BYTES);
}

void dev_cpu_work_divide(struct cpu *c, struct cpu_work *w)
{
    int n_tok = w->n_tok, n = w->n_seg ? w->seg[w->n_seg - 1].end : 0, n_w = c->n_worker;
    double total = 0, done = 0;
    for (int i = 0; i < w->n_seg; i++)
        total += (double)(w->seg[i].end - w->seg[i].begin) * (double)unit_bytes(&w->seg[i]);
    int at = 0, seg = 0;
    for (int k = 0; k < n_w; k++) { /* range k ends where k+1 n_w-ths of the bytes are passed */
        double goal = total * (k + 1) / n_w;
        int end = at;
        while (seg < w->n_seg) {
            const struct cpu_seg *s = &w->seg[seg];
            double bytes = (double)unit_bytes(s), left = (double)(s->end - end) * bytes;
            if (done + left > goal + 0.5 * bytes) {
                int more = (int)((goal - done) / bytes + 0.5);
                end += more;
                done += more * bytes;
                break;
            }
            done += left;
            end = s->end;
            seg++;
        }
        if (k == n_w - 1) end = n;
        par_range_set(&w->range[k], at, end);
        at = end;
    }
    size_t bytes = w->n_seg ? unit_bytes(&w->seg[0]) : 1;
    int min = n / (n_w * 16), max = n, many = n_tok > CPU_SET;
    if (many || bytes * (size_t)min > PIECE_MIN) min = many ? 1 : (int)(PIECE_MIN / bytes);
    if (many && bytes * (size_t)max > PIECE_CACHED) max = (int)(PIECE_CACHED / bytes);
    int unit = w->n_seg ? w->seg[0].unit : 1;
    int fit = (int)(c->tile_floats / (16 * (size_t)BASE_MAX(unit, 2)) /
                    (size_t)BASE_MIN(BASE_MAX(n_tok, 1), CPU_SET));
    w->step_max = BASE_MAX(1, BASE_MIN(max, fit));
    w->step_min = BASE_MIN(w->step_max, BASE_MAX(min, n_tok < 16 || many ? 1 : TILES_MANY));
}

void dev_cpu_work_split(struct cpu *c, struct cpu_work *w)
{
    dev_cpu_work_divide(c, w);
    dev_cpu_work_remember(c, w);
    if (c->head.timing) dev_cpu_work_count(c, w);
}

/* What the worker reads after the piece, which is of seg: what it has taken and not handed out, the
 * rest of its range, or where it begins in the next set. */
static const uint8_t *read_then(const struct cpu_work *w, int worker, const struct cpu_piece *p,
                                int seg)
{
    const struct par_range *r = &w->range[worker];
    int at = p->at < p->end ? p->at : atomic_load_explicit(&r->next, memory_order_relaxed);
    if (p->at >= p->end && at >= r->end) {
        const struct cpu_stream *s = w->next ? &w->next[worker] : NULL;
        return s && s->again ? s->p : NULL;
    }
    while (seg < w->n_seg - 1 && w->seg[seg].end <= at)
        seg++;
    const struct cpu_seg *s = &w->seg[seg];
    return s->m.data + (size_t)(at - s->begin) * (size_t)s->unit * s->m.tile_bytes;
}

int dev_cpu_work_take(struct cpu *c, struct cpu_work *w, int worker, struct cpu_piece *p)
{
    if (worker == 0 && c->head.look) c->head.look(c->head.look_user);
    if (p->at >= p->end &&
        !par_range_take(w->range, worker, c->n_worker, (struct par_piece){w->step_min, w->step_max},
                        &p->at, &p->end)) {
        look_ahead(c, w, worker);
        return 0;
    }
    int lo = 0, hi = w->n_seg - 1;
    while (lo < hi) { /* the last seg that begins at or before p->at */
        int mid = (lo + hi + 1) / 2;
        if (w->seg[mid].begin <= p->at)
            lo = mid;
        else
            hi = mid - 1;
    }
    p->again = p->seg != NULL;
    const struct cpu_seg *s = p->seg = &w->seg[lo];
    int end = p->end < s->end ? p->end : s->end, u = s->unit;
    p->tile0 = (p->at - s->begin) * u;
    p->n_tile = (end - p->at) * u;
    p->at = end;
    p->then = read_then(w, worker, p, lo);
    return 1;
}

static void product(struct cpu *c, int worker, const struct cpu_piece *p, const struct cpu_cols *in,
                    float *y, int64_t ldy)
{
    const struct mm_mat *m = &p->seg->m;
    struct cpu_scratch *s = &c->scratch[worker];
    int n_full = m->n_row / 16 - p->tile0, rest = m->n_row % 16;
    if (n_full > p->n_tile) n_full = p->n_tile;
    if (n_full > 0)
        kern_mm(m, p->tile0, n_full, in->x, in->form, in->idx, in->n_tok, y + 16 * p->tile0, ldy,
                p->then, p->again, s->mm);
    if (n_full == p->n_tile) return;
    int tile = p->tile0 + n_full;
    kern_mm(m, tile, 1, in->x, in->form, in->idx, in->n_tok, s->tile, 16, p->then,
            p->again || n_full > 0, s->mm);
    for (int j = 0; j < in->n_tok; j++)
        memcpy(y + j * ldy + 16 * tile, s->tile + 16 * j, sizeof(float) * (size_t)rest);
}

void dev_cpu_product(struct cpu *c, int worker, const struct cpu_piece *p,
                     const struct cpu_cols *in, float *y, int64_t ldy)
{
    int r0 = 16 * p->tile0, n = BASE_MIN(16 * p->n_tile, p->seg->m.n_row - r0);
    product(c, worker, p, in, y, ldy);
    for (int t = 0; p->seg->bias && t < in->n_tok; t++)
        c->k.add_f32(y + t * ldy + r0, p->seg->bias + r0, n);
}

void dev_cpu_product_pairs(struct cpu *c, int worker, const struct cpu_piece *p,
                           const struct cpu_cols *in, const struct cpu_mat *w,
                           const struct cpu_hidden *out)
{
    const struct mm_act_buf *x = in->x;
    const int32_t *idx = in->idx ? in->idx : c->iota;
    const struct mm_mat *m = &p->seg->m, *m2 = &p->seg->m2;
    struct cpu_scratch *s = &c->scratch[worker];
    int unit0 = p->tile0 / unit_tiles(m), n_unit = p->n_tile / unit_tiles(m);
    int row0 = unit0 * 16, n = BASE_MIN(n_unit * 16, m->n_row - row0);
    int n_tok = in->n_tok, n_set = (n_tok + CPU_SET - 1) / CPU_SET;
    int64_t ld = 32 * (int64_t)n_unit;
    const struct glu *glu = &w->head.epilogue.glu;
    const float *bg = p->seg->bias ? p->seg->bias + row0 : NULL, *bu = bg ? bg + m->n_row : NULL;
    bool is_silu = glu_is_silu(glu) && !bg;
    for (int i = 0; i < n_set; i++) {
        int j0 = (int)((int64_t)n_tok * i / n_set),
            n_j = (int)((int64_t)n_tok * (i + 1) / n_set) - j0;
        if (!m2->data)
            kern_mm(m, p->tile0, p->n_tile, x, w->form, idx + j0, n_j, s->tile, ld, p->then,
                    p->again, s->mm);
        for (int k = 0; m2->data && k < n_unit; k++) { /* two streams, laid as a pair's tiles */
            float *y = s->tile + 32 * k;
            bool again = p->again || k > 0;
            kern_mm(m, unit0 + k, 1, x, w->form, idx + j0, n_j, y, ld, NULL, again, s->mm);
            kern_mm(m2, unit0 + k, 1, x, w->form2, idx + j0, n_j, y + 16, ld, NULL, true, s->mm);
        }
        for (int j = 0; j < n_j; j++) {
            float *h = out->act ? s->row : out->h + (j0 + j) * out->ldh + row0;
            if (is_silu)
                c->k.silu_pairs_f32(h, s->tile + j * ld, n);
            else
                c->k.glu_pairs_f32(h, s->tile + j * ld, bg, bu, n, glu);
            if (out->act) kern_mm_prep_part(out->act, out->row0 + j0 + j, out->group0 + row0 / 32,
                                            n / 32, h);
        }
    }
}
