/* SPDX-License-Identifier: Apache-2.0 */
/* sluice plan --this-machine without files: the engine is run here, through the public API, on
 * random tokens. One set of prompts serves all batch sizes of a depth: the largest batch is
 * measured first, then sequences end until the next size is left. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/rng.h"
#include "cmd_plan.h"
#include "compute.h"

/* Decode steps: groups with a pause between them, the lower quartile of all counts. A step that
 * another process interrupted says nothing about this engine; on an idle machine all are alike. */
#define GROUP 8  /* steps of a group, after two that are not counted */
#define GROUPS 4 /* of these, PAUSE_NS apart: another process rarely has all of them */
#define WINDOW (GROUP * GROUPS)
#define PAUSE_NS 50000000
#define SLOW_NS 60000000 /* steps that take longer are averaged by themselves: half the groups */
#define BATCH_MAX 32     /* sequences at most */
#define REPEATS 7        /* of a prompt; the lower quartile counts */
#define FILL_S 30        /* contexts of a depth that would take longer are cut: fewer sequences */

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
    double prompt_tps; /* of the last prompt, the shortest */
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
    /* as sluice bench: each keeps to a token of its own */
    sl_bias own = {(int32_t)(rng_next(&m->rng) % (uint64_t)m->c.mi.n_vocab), 100.0f};
    q.sampling.bias = &own;
    q.sampling.n_bias = n_new > 1;
    m->seat[i] = (struct seat){0};
    return sl_submit(m->c.e, &q, &m->seat[i].id, err);
}

static sl_status step(struct meter *m, sl_err *err)
{
    SL_TRY(sl_step(m->c.e, err));
    if (m->failed) return SL_FAIL(err, INTERNAL, "%s", m->error);
    return cmd_stop ? SL_FAIL(err, CANCELLED, "cancelled") : SL_OK;
}

static void pause_ns(long ns)
{
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
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
    return g->batch[0] * (depth / 512 + 2) + g->n_batch * (WINDOW + 2 * GROUPS + 6) + 8;
}

/* Contexts of n sequences, each computed by itself into the prefix tree: beside sequences that
 * decode, prompts are computed in small pieces. Then all begin. */
static sl_status seat_all(struct meter *m, int n, int depth, int room, sl_err *err)
{
    uint64_t start = m->rng;
    for (int i = 0; i < n && depth > 0; i++) {
        SL_TRY(sit(m, 0, depth, 1, err));
        while (sl_pending(m->c.e))
            SL_TRY(step(m, err));
    }
    m->rng = start; /* the same prompts again */
    for (int i = 0; i < n; i++)
        SL_TRY(sit(m, i, BASE_MAX(depth, 1), room, err));
    for (bool all = false; !all;) {
        SL_TRY(step(m, err));
        all = true;
        for (int i = 0; i < n; i++)
            all = all && m->seat[i].n_token > 0;
    }
    return SL_OK;
}

/* Seconds of one step, at mean context *ctx. bytes: of weights, counted by the engine. */
static sl_status time_steps(struct meter *m, int batch, double *ctx, double *bytes, double *s,
                            sl_err *err)
{
    double t[WINDOW], from = gap(m, batch);
    int n = 0, groups = GROUPS, n_step = 0;
    sl_op_stat op[64];
    sl_op_stats(m->c.e, NULL, 0); /* from here on */
    for (int g = 0; g < groups; g++) {
        for (int i = -2; i < GROUP; i++, n_step++) {
            int64_t t0 = clock_now_ns();
            SL_TRY(step(m, err));
            int64_t ns = clock_now_ns() - t0;
            if (i >= 0) t[n++] = (double)ns * 1e-9;
            if (ns > SLOW_NS) groups = GROUPS / 2;
        }
        if (g + 1 < groups) pause_ns(PAUSE_NS);
    }
    for (int i = 0; i < batch; i++) {
        if (m->seat[i].over)
            return SL_FAIL(err, INTERNAL, "a sequence ended before the measured steps did");
    }
    int n_op = sl_op_stats(m->c.e, op, BASE_COUNT_OF(op));
    *bytes = 0;
    for (int i = 0; i < n_op && i < BASE_COUNT_OF(op); i++)
        *bytes += op[i].bytes / n_step;
    *ctx += 0.5 * (from + gap(m, batch));
    qsort(t, (size_t)n, sizeof *t, compute_by_value);
    *s = t[n / 4];
    return SL_OK;
}

/* All batch sizes of one depth: one set of prompts serves them, the largest first; without depth
 * each has its own. */
static sl_status decode_points(struct meter *m, const struct grid *g, int depth,
                               struct plan_point *p, int *n, sl_err *err)
{
    int first = 0; /* largest batch that can be filled in time */
    while (first + 1 < g->n_batch && g->batch[first] * (double)depth > FILL_S * m->prompt_tps)
        first++;
    for (int b = first; b < g->n_batch; b++) {
        int batch = g->batch[b], left = b + 1 < g->n_batch && depth > 0 ? g->batch[b + 1] : 0;
        double s = 0, ctx = BASE_MAX(depth, 1), bytes = 0;
        if (b == first || depth == 0) SL_TRY(seat_all(m, batch, depth, room_for(g, depth), err));
        SL_TRY(time_steps(m, batch, &ctx, &bytes, &s, err));
        p[(*n)++] = (struct plan_point){.tokens = WINDOW,
                                        .batch = batch,
                                        .depth = depth,
                                        .ctx = ctx,
                                        .bytes = bytes,
                                        .tps = batch / s};
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
        int64_t ns = clock_now_ns() - t0;
        if (k >= 0) s[k] = (double)ns * 1e-9;
        if (ns < SLOW_NS) pause_ns(PAUSE_NS);
    }
    qsort(s, REPEATS, sizeof *s, compute_by_value);
    m->prompt_tps = len / s[REPEATS / 4];
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
    sl_engine_opts eo = {
        .n_seq_max = batch, .n_ctx = longest, .kv_tokens = (int64_t)batch * (longest + 64)};
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
