/* SPDX-License-Identifier: Apache-2.0 */
/* Attention's work: units (query rows that go through the context together) times spans of VEC_SPAN
 * positions. A span's result depends on the span and the rows only; the results of a unit are
 * folded in rising order of spans. With enough units each is one worker's; with few, unit-spans are
 * handed out and folded after a barrier, a window of spans at a time so that partial results stay
 * few. The arithmetic is the same. */
#include "dev/cpu/cpu.h"

#define INLINE_NS 2500.0

struct spans_job {
    struct cpu *c;
    struct cpu_span_job *j;
};

static void fold(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                 struct cpu_part run, struct cpu_part part)
{
    for (int r = 0; r < u->n_tok * u->n_head; r++)
        if (part.l[r] != 0.0f)
            c->k.fold_f32(&run.m[r], &run.l[r], run.o + (int64_t)r * j->ldo, part.m[r], part.l[r],
                          part.o + (int64_t)r * j->ldo, j->ldo);
}

static void clear(const struct cpu_span_job *j, struct cpu_part run)
{
    memset(run.l, 0, sizeof(float) * (size_t)j->n_row);
}

/* Each unit by one worker, the longest (last) first. */
static void run_whole(void *arg, int worker, int n_w)
{
    (void)n_w;
    struct spans_job *s = arg;
    struct cpu *c = s->c;
    struct cpu_span_job *j = s->j;
    float *mem = c->scratch[worker].attn;
    struct cpu_part part = dev_cpu_part_at(mem + j->mem_floats, j->n_row);
    struct cpu_part run = dev_cpu_part_at(mem + j->mem_floats + c->part_floats, j->n_row);
    int b, e;
    while (par_take(c->counter, j->n_unit, 1, &b, &e)) {
        const struct cpu_unit *u = &c->unit[j->n_unit - 1 - b];
        clear(j, run);
        j->begin(c, j, u, mem);
        for (int i = u->span0; i < u->span1; i++) {
            j->span(c, j, u, i, mem, part);
            fold(c, j, u, run, part);
        }
        j->end(c, j, u, run);
    }
}

static float *part_of(struct cpu *c, const struct cpu_span_job *j, int unit, int i)
{
    return c->part + (size_t)(c->n_run + unit * j->window + i) * c->part_floats;
}

static void run_split(void *arg, int worker, int n_w)
{
    struct spans_job *s = arg;
    struct cpu *c = s->c;
    struct cpu_span_job *j = s->j;
    float *mem = c->scratch[worker].attn;
    int begun = -1, n_item = j->n_unit * j->window;
    for (int w0 = 0; w0 < j->n_span; w0 += j->window) {
        int b, e;
        while (par_take(c->counter, n_item, 1, &b, &e)) {
            int ui = b / j->window, i = w0 + b % j->window;
            const struct cpu_unit *u = &c->unit[ui];
            if (i < u->span0 || i >= u->span1) continue;
            if (begun != ui) j->begin(c, j, u, mem);
            begun = ui;
            j->span(c, j, u, i, mem, dev_cpu_part_at(part_of(c, j, ui, i - w0), j->n_row));
        }
        par_barrier(c->team);
        if (worker == 0) atomic_store_explicit(&c->counter->next, 0, memory_order_relaxed);
        for (int ui = worker; ui < j->n_unit; ui += n_w) {
            const struct cpu_unit *u = &c->unit[ui];
            struct cpu_part run = dev_cpu_part_at(c->part + (size_t)ui * c->part_floats, j->n_row);
            if (w0 == 0) clear(j, run);
            for (int i = w0; i < w0 + j->window; i++)
                if (i >= u->span0 && i < u->span1)
                    fold(c, j, u, run, dev_cpu_part_at(part_of(c, j, ui, i - w0), j->n_row));
            if (w0 + j->window >= j->n_span) j->end(c, j, u, run);
        }
        par_barrier(c->team);
    }
}

void dev_cpu_spans(struct cpu *c, struct cpu_span_job *j)
{
    struct spans_job s = {c, j};
    j->n_span = 0;
    int most = 0;
    for (int i = 0; i < j->n_unit; i++) {
        const struct cpu_unit *u = &c->unit[i];
        if (u->span1 > j->n_span) j->n_span = u->span1;
        if (u->span1 - u->span0 > most) most = u->span1 - u->span0;
    }
    ASSERT(dev_cpu_part_floats(j->n_row, j->ldo) <= c->part_floats);
    atomic_store_explicit(&c->counter->next, 0, memory_order_relaxed);
    if (j->ns < INLINE_NS) {
        run_whole(&s, 0, 1);
    } else if (j->n_unit >= CPU_SPLIT * c->n_worker || most < 2 || c->n_worker == 1) {
        par_run(c->team, run_whole, &s);
    } else {
        j->window = CPU_SPLIT_ITEMS * c->n_worker / j->n_unit;
        if (j->window < 1) j->window = 1;
        par_run(c->team, run_split, &s);
    }
}
