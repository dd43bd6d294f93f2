/* SPDX-License-Identifier: Apache-2.0 */
/* sluice plan --this-machine without files: the engine is run here, through the public API, on
 * random tokens. One set of prompts serves all batch sizes of a depth: the largest batch is
 * measured first, then sequences end until the next size is left. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "cmd_plan.h"
#include "compute.h"

#define WINDOW                                                                                     \
    16 /* decode steps of one window; the lower quartile counts: a step that another process       \
        interrupted says nothing about this engine, and on an idle machine all are alike */
#define BATCH_MAX 32 /* sequences at most */
#define REPEATS 5    /* of a prompt; the lower quartile counts */

/* What is measured. Every list falls; batch ends with 1, depth begins with 0. */
struct grid {
    int batch[8], n_batch, depth[4], n_depth, prompt[4], n_prompt;
};

static const struct grid FULL = {{32, 16, 8, 4, 2, 1}, 6, {0, 1024, 4096}, 3, {2048, 512, 128}, 3};
static const struct grid SMALL = {{8, 4, 1}, 3, {0, 512}, 2, {512, 128}, 2};

struct seat {
    uint64_t id;
    int n_token;
    bool over;
};

struct meter {
    struct compute c;
    struct seat seat[BATCH_MAX];
    int32_t *ids;
    uint64_t rng;
    bool failed;
    char error[240];
};

static void on_event(void *user, const sl_event *ev)
{
    struct meter *m = user;
    for (int i = 0; i < BATCH_MAX; i++) {
        if (m->seat[i].id != ev->id) continue;
        m->seat[i].n_token = ev->n_token;
        m->seat[i].over = ev->finish != SL_FINISH_NONE;
    }
    if (ev->finish != SL_FINISH_ERROR) return;
    m->failed = true;
    snprintf(m->error, sizeof m->error, "%s", ev->error);
}

static sl_status sit(struct meter *m, int i, int n_prompt, int n_new, sl_err *err)
{
    for (int k = 0; k < n_prompt; k++)
        m->ids[k] = (int32_t)(rng_next(&m->rng) % (uint64_t)m->c.mi.n_vocab);
    sl_request q = {.ids = m->ids,
                    .n_ids = n_prompt,
                    .max_tokens = n_new,
                    .ignore_eos = 1,
                    .n_logprob = -1,
                    .on_event = on_event,
                    .user = m};
    m->seat[i] = (struct seat){0};
    return sl_submit(m->c.e, &q, &m->seat[i].id, err);
}

static sl_status step(struct meter *m, sl_err *err)
{
    SL_TRY(sl_step(m->c.e, err));
    if (m->failed) return SL_FAIL(err, INTERNAL, "%s", m->error);
    return cmd_stop ? SL_FAIL(err, CANCELLED, "cancelled") : SL_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static sl_status drain(struct meter *m, int from, int to, sl_err *err)
{
    for (int i = from; i < to; i++)
        sl_cancel(m->c.e, m->seat[i].id);
    for (int k = 0; k < 4; k++) { /* a cancelled request ends within two steps */
        if (sl_pending(m->c.e)) SL_TRY(step(m, err));
    }
    return SL_OK;
}

static double gap(const struct meter *m, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += m->seat[i].n_token;
    return sum / n;
}

/* Tokens that a sequence makes besides those that are counted, and those that are. */
static int room_for(const struct grid *g, int depth)
{
    return g->batch[0] * (depth / 512 + 2) + g->n_batch * (WINDOW + 6) + 8;
}

static sl_status decode_points(struct meter *m, const struct grid *g, int depth,
                               struct plan_point *p, int *n, sl_err *err)
{
    double s[WINDOW];
    for (int i = 0; i < g->batch[0]; i++)
        SL_TRY(sit(m, i, BASE_MAX(depth, 1), room_for(g, depth), err));
    for (bool all = false; !all;) {
        SL_TRY(step(m, err));
        all = true;
        for (int i = 0; i < g->batch[0]; i++)
            all = all && m->seat[i].n_token > 0;
    }
    for (int b = 0; b < g->n_batch; b++) {
        int batch = g->batch[b];
        double at = BASE_MAX(depth, 1) + gap(m, batch);
        for (int i = 0; i < WINDOW; i++) {
            int64_t t0 = clock_now_ns();
            SL_TRY(step(m, err));
            s[i] = (double)(clock_now_ns() - t0) * 1e-9;
        }
        qsort(s, WINDOW, sizeof *s, by_value);
        p[(*n)++] = (struct plan_point){.tokens = WINDOW,
                                        .batch = batch,
                                        .depth = depth,
                                        .ctx = at + WINDOW / 2.0,
                                        .tps = batch / s[WINDOW / 4]};
        int left = b + 1 < g->n_batch ? g->batch[b + 1] : 0;
        SL_TRY(drain(m, left, batch, err));
    }
    while (sl_pending(m->c.e))
        SL_TRY(step(m, err));
    return SL_OK;
}

static sl_status prompt_point(struct meter *m, int len, struct plan_point *p, int *n, sl_err *err)
{
    double s[REPEATS];
    for (int k = -1; k < REPEATS; k++) { /* the first one warms up */
        SL_TRY(sit(m, 0, len, 1, err));
        int64_t t0 = clock_now_ns();
        while (sl_pending(m->c.e))
            SL_TRY(step(m, err));
        if (k >= 0) s[k] = (double)(clock_now_ns() - t0) * 1e-9;
    }
    qsort(s, REPEATS, sizeof *s, by_value);
    p[(*n)++] = (struct plan_point){
        .prefill = true, .tokens = len, .batch = 1, .tps = len / s[REPEATS / 4]};
    return SL_OK;
}

static sl_status run_grid(struct meter *m, const struct grid *g, struct plan_measured *out,
                          sl_err *err)
{
    sl_probe_result r;
    struct cmd_progress *bar = &m->c.progress;
    int parts = g->n_prompt + g->n_depth, done = 0;
    sl_probe(m->c.e, 300, &r);
    out->gbps = r.read_gbps, out->gops = r.int8_gops;
    out->threads = m->c.ei.n_thread;
    for (int i = 0; i < g->n_prompt; i++) {
        cmd_progress_count(bar, "measuring", "parts", done++, parts);
        SL_TRY(prompt_point(m, g->prompt[i], out->p, &out->n, err));
    }
    for (int i = 0; i < g->n_depth; i++) {
        cmd_progress_count(bar, "measuring", "parts", done++, parts);
        SL_TRY(decode_points(m, g, g->depth[i], out->p, &out->n, err));
    }
    cmd_progress_end(bar);
    return SL_OK;
}

sl_status plan_measure(const struct opt_common *common, enum plan_grid which,
                       struct plan_measured *out, sl_err *err)
{
    /* the three points that constants come from: one sequence, a deep batch, a long prompt */
    static const struct grid three[2] = {{{1}, 1, {0}, 1, {512}, 1}, {{8}, 1, {1024}, 1, {0}, 0}};
    struct meter m = {.rng = 1};
    const struct grid *g = which == PLAN_GRID_FULL ? &FULL : &SMALL;
    int batch = g->batch[0], deep = g->depth[g->n_depth - 1];
    void *mem;
    if (which == PLAN_GRID_NONE) g = &three[1], batch = 8, deep = 1024;
    *out = (struct plan_measured){0};
    int longest = BASE_MAX(deep + room_for(g, deep), BASE_MAX(g->prompt[0], 512)) + 2;
    sl_engine_opts eo = {.n_seq_max = batch,
                         .n_ctx = longest,
                         .kv_tokens = (int64_t)batch * (longest + 64),
                         .no_reuse = 1};
    SL_TRY(compute_open(&m.c, common, &eo, err));
    sl_status st = mem_alloc_array(MEM_MISC, (size_t)longest, sizeof *m.ids, &mem, err);
    if (!st) {
        m.ids = mem;
        if (which == PLAN_GRID_NONE) st = run_grid(&m, &three[0], out, err);
        if (!st) st = run_grid(&m, g, out, err);
        mem_free(mem);
    }
    compute_close(&m.c);
    return st;
}
