/* SPDX-License-Identifier: Apache-2.0 */
/* Attention's work: units (query rows that go through the context together) times spans of VEC_SPAN
 * positions, or of a block where blocks are chosen. A span's result depends on the span and the
 * rows only; the results of a unit are folded in rising order of spans. With enough units each is
 * one worker's; with few, unit-spans are handed out and folded after a barrier, a window of spans
 * at a time so that partial results stay few. The arithmetic is the same. */
#include "dev/cpu/span.h"

#include "dev/cpu/cpu.h"

#define INLINE_OPS 150e3 /* fewer are not worth waking the team */

/* May attention over a cache of type t round to 16 bits? */
static bool may_round(const struct cpu *c, int t)
{
    return c->acts != DEV_ACTS_F32 && t != VEC_KV_F32 && !c->exact;
}

bool dev_cpu_bf16_attn(const struct cpu *c, int t)
{
    return kern_get()->attn_bf16 && may_round(c, t);
}

bool dev_cpu_i16_attn(const struct cpu *c, int t)
{
    return kern_get()->attn_i16 && may_round(c, t);
}

struct spans_job {
    struct cpu *c;
    struct cpu_span_job *j;
};

/* Which span is number i of a unit; after the last one of its list: one that nobody sees. */
static int span_of(const struct cpu_span_job *j, const struct cpu_unit *u, int i)
{
    if (!u->list) return i;
    return i < u->span1 ? u->list[i] : j->b->pos[u->tok0 + u->n_tok - 1] / j->len + 1;
}

/* Rows [r[0], r[1]) of part to those of run. */
static void fold(struct cpu *c, const struct cpu_span_job *j, const int r01[2], struct cpu_part run,
                 struct cpu_part part)
{
    for (int r = r01[0]; r < r01[1]; r++)
        if (part.l[r] != 0.0f)
            c->k.fold_f32(&run.m[r], &run.l[r], run.o + (int64_t)r * j->ldo, part.m[r], part.l[r],
                          part.o + (int64_t)r * j->ldo, j->ldo);
}

/* Each unit by one worker, the longest (last) first; a worker's first one is known beforehand. */
static void run_whole(void *arg, int worker, int n_w)
{
    struct spans_job *s = arg;
    struct cpu *c = s->c;
    struct cpu_span_job *j = s->j;
    float *mem = c->scratch[worker].attn;
    struct cpu_part part = dev_cpu_part_at(mem + j->mem_floats, j->n_row);
    struct cpu_part run = dev_cpu_part_at(mem + j->mem_floats + c->span.part_floats, j->n_row);
    int first = worker < j->n_unit, b = worker, e;
    while (first || par_take(c->span.counter, j->n_unit, 1, &b, &e)) {
        if (!first && b < n_w) continue;
        first = 0;
        const struct cpu_unit *u = &c->span.unit[j->n_unit - 1 - b];
        int rows[2] = {0, u->n_tok * u->n_head};
        j->begin(c, j, u, mem);
        for (int i = u->span0; i < u->span1; i++) {
            int alone = i == u->span0; /* folded into nothing it stays what it is */
            const int at[2] = {span_of(j, u, i), span_of(j, u, i + 1)};
            j->span(c, j, u, at, mem, alone ? run : part);
            if (!alone) fold(c, j, rows, run, part);
        }
        j->end(c, j, u, run, rows);
    }
}

static float *part_of(struct cpu *c, const struct cpu_span_job *j, int unit, int i)
{
    return c->span.part + (size_t)(c->span.n_run + unit * j->window + i) * c->span.part_floats;
}

/* Fold what the units' spans of a window gave; each worker takes its share of all rows. */
static void fold_window(struct cpu *c, const struct cpu_span_job *j, int w0, int worker, int n_w)
{
    int n_row = 0, row = 0;
    for (int i = 0; i < j->n_unit; i++)
        n_row += c->span.unit[i].n_tok * c->span.unit[i].n_head;
    int64_t begin, end;
    par_split(n_row, worker, n_w, &begin, &end);
    for (int ui = 0; ui < j->n_unit; ui++) {
        const struct cpu_unit *u = &c->span.unit[ui];
        int n = u->n_tok * u->n_head, b = (int)begin - row, e = (int)end - row;
        int rows[2] = {b < 0 ? 0 : b, e > n ? n : e};
        row += n;
        if (rows[0] >= rows[1]) continue;
        struct cpu_part run =
            dev_cpu_part_at(c->span.part + (size_t)ui * c->span.part_floats, j->n_row);
        if (w0 == 0) memset(run.l + rows[0], 0, sizeof(float) * (size_t)(rows[1] - rows[0]));
        for (int i = w0; i < w0 + j->window; i++)
            if (i >= u->span0 && i < u->span1)
                fold(c, j, rows, run, dev_cpu_part_at(part_of(c, j, ui, i - w0), j->n_row));
        if (w0 + j->window >= j->n_span) j->end(c, j, u, run, rows);
    }
}

/* The span that a worker will most likely compute after item: what follows in its range, at the
 * range's end its first one of the next window. */
static int comes_next(const struct cpu *c, const struct cpu_span_job *j, const int w[2], int w0,
                      int item)
{
    int64_t b, e;
    par_split((int64_t)j->n_unit * j->window, w[0], w[1], &b, &e);
    int i = w0 + item % j->window;
    if (w[1] != c->n_worker || item + 1 != e || b / j->window != item / j->window) return i + 1;
    return w0 + j->window + (int)b % j->window;
}

static void set_ranges(struct cpu *c, int n_item, int n_w)
{
    for (int w = 0; w < n_w; w++) {
        int64_t b, e;
        par_split(n_item, w, n_w, &b, &e);
        par_range_set(&c->span.range[w], (int)b, (int)e);
    }
}

/* Spans of a window in contiguous ranges, so that what a worker fetches ahead is its own. */
static void run_split(void *arg, int worker, int n_w)
{
    struct spans_job *s = arg;
    struct cpu *c = s->c;
    struct cpu_span_job *j = s->j;
    float *mem = c->scratch[worker].attn;
    int begun = -1, n_item = j->n_unit * j->window;
    if (n_w != c->n_worker) { /* the caller alone */
        ASSERT(n_w == 1);
        set_ranges(c, n_item, 1);
    }
    for (int w0 = 0; w0 < j->n_span; w0 += j->window) {
        int b, e;
        while (par_range_take(c->span.range, worker, n_w, (struct par_piece){1, 2}, &b, &e))
            for (; b < e; b++) {
                int ui = b / j->window, i = w0 + b % j->window;
                const struct cpu_unit *u = &c->span.unit[ui];
                if (i < u->span0 || i >= u->span1) continue;
                if (begun != ui) j->begin(c, j, u, mem);
                begun = ui;
                int next = comes_next(c, j, (const int[]){worker, n_w}, w0, b);
                const int at[2] = {span_of(j, u, i), span_of(j, u, next)};
                j->span(c, j, u, at, mem, dev_cpu_part_at(part_of(c, j, ui, i - w0), j->n_row));
            }
        par_barrier(c->team);
        if (worker == 0) set_ranges(c, n_item, n_w);
        fold_window(c, j, w0, worker, n_w);
        par_barrier(c->team);
    }
}

/* Give out every span and unit anew; before the region. */
static void deal(struct cpu *c, const struct cpu_span_job *j)
{
    atomic_store_explicit(&c->span.counter->next, 0, memory_order_relaxed);
    if (j->window) set_ranges(c, j->n_unit * j->window, c->n_worker);
}

void dev_cpu_spans_begin(struct cpu *c, struct cpu_span_job *j)
{
    int most = 0;
    j->n_span = j->window = 0;
    for (int i = 0; i < j->n_unit; i++) {
        const struct cpu_unit *u = &c->span.unit[i];
        if (u->span1 > j->n_span) j->n_span = u->span1;
        if (u->span1 - u->span0 > most) most = u->span1 - u->span0;
    }
    ASSERT(dev_cpu_part_floats(j->n_row, j->ldo) <= c->span.part_floats);
    if (j->n_unit < CPU_SPLIT * c->n_worker && most >= 2 && c->n_worker > 1) {
        j->window = CPU_SPLIT_ITEMS * c->n_worker / j->n_unit;
        if (j->window < 1) j->window = 1;
        if (j->window > j->n_span) j->window = j->n_span;
    }
    deal(c, j);
}

void dev_cpu_spans_again(struct cpu *c, const struct cpu_span_job *j)
{
    if (!j->window) deal(c, j); /* ranges are dealt at the end of a window */
}

void dev_cpu_spans_run(struct cpu *c, struct cpu_span_job *j, int worker, int n_w)
{
    struct spans_job s = {c, j};
    if (j->window)
        run_split(&s, worker, n_w);
    else
        run_whole(&s, worker, n_w);
}

void dev_cpu_spans(struct cpu *c, struct cpu_span_job *j)
{
    struct spans_job s = {c, j};
    dev_cpu_spans_begin(c, j);
    if (j->products.flops + j->products.ops < INLINE_OPS) {
        j->window = 0;
        run_whole(&s, 0, 1);
    } else {
        par_run(c->team, j->window ? run_split : run_whole, &s);
    }
}
