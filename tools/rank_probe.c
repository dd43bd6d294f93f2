/* SPDX-License-Identifier: Apache-2.0 */
/* Speeds of ranks, and of what goes between them. */
#include "rank_probe.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

#define SMALL 16                          /* columns of a rank where time is measured */
#define LARGE ((int)(RANK_PROBE_ROW / 4)) /* where bytes are */
#define GROUPS 40 /* of each measurement, of which the lower quartile counts: what other programs
                     interrupt says nothing of ranks */
#define SMALL_TIMES 25 /* in a group */
#define LARGE_TIMES 1
#define OP_TIMES 100
#define WORK (64 << 10) /* floats that are read between two joins */
#define REST_NS 200000 /* between steps: as long as home chooses tokens, and others fall asleep */
#define PROBE_MS 50
#define PROBES 5
#define LEAST_S 1e-7

static void nothing(void *arg, int worker, int n_worker)
{
    (void)arg;
    (void)worker;
    (void)n_worker;
}

/* Of GROUPS times. */
static double quartile(double *s)
{
    for (int i = 1; i < GROUPS; i++)
        for (int k = i; k > 0 && s[k] < s[k - 1]; k--) {
            double t = s[k];
            s[k] = s[k - 1];
            s[k - 1] = t;
        }
    return s[GROUPS / 4];
}

static double time_op(dev *d)
{
    double s[GROUPS];
    for (int g = 0; g < GROUPS; g++) {
        int64_t t0 = clock_now_ns();
        for (int i = 0; i < OP_TIMES; i++)
            dev_host_run(d, nothing, NULL);
        s[g] = (double)(clock_now_ns() - t0) * 1e-3 / OP_TIMES;
    }
    return quartile(s);
}

/* A number of each rank's, side by side. */
static void join_one(dist *e, const float *x, float *y)
{
    int32_t one[DIST_RANK_MAX];
    for (int r = 0; r < dist_size(e); r++)
        one[r] = 1;
    dist_cols(e, &(struct dist_cols){.x = x, .y = y, .n_row = 1, .n = dist_size(e), .part = one});
}

/* Where ranks meet. x: what this one says, in turn: others may still read the last one. */
struct meet {
    dist *e; /* NULL: it is the only rank */
    float x[2];
    unsigned n;
};

/* What all ranks say, added up; they go on from here at the same time. */
static double sum_of(struct meet *m, double mine)
{
    float *x = &m->x[m->n++ & 1], y[DIST_RANK_MAX] = {0};
    double sum = 0;
    if (!m->e) return mine;
    *x = (float)mine;
    join_one(m->e, x, y);
    for (int r = 0; r < dist_size(m->e); r++)
        sum += y[r];
    return sum;
}

/* After it no rank of a team reads memory of another's any more. */
static void last_join(dist *e)
{
    static const float none = 0;
    float y[DIST_RANK_MAX];
    dist_set_join(e, dist_size(e));
    join_one(e, &none, y);
}

/* This rank's of the second best of several short times, in which all ranks that measure begin
 * together: what they share is divided then. is_mine: this one measures. */
static double probe(struct meet *m, dev *d, double (*of)(dev *d, int ms), bool is_mine)
{
    double mine[PROBES], sum[PROBES];
    int best = 0, next = -1;
    (void)sum_of(m, 0);
    for (int i = 0; i < PROBES; i++) {
        mine[i] = is_mine ? of(d, PROBE_MS) : 0;
        sum[i] = sum_of(m, mine[i]);
        if (i == 0) continue;
        if (sum[i] > sum[best]) {
            next = best;
            best = i;
        } else if (next < 0 || sum[i] > sum[next]) {
            next = i;
        }
    }
    return mine[next];
}

static struct rank_pace pace_of(struct meet *m, dev *d, bool is_mine)
{
    double gbps = probe(m, d, dev_probe_read_gbps, is_mine);
    return (struct rank_pace){gbps, probe(m, d, dev_probe_int8_gops, is_mine)};
}

sl_status rank_speed_get(dist *e, dev *d, const struct rank_turn *t, struct rank_speed *out,
                         sl_err *err)
{
    struct dev_info di;
    struct meet m = {.e = e};
    dev_info_get(d, &di);
    snprintf(out->isa, sizeof out->isa, "%s", di.isa);
    out->n_thread = di.n_thread;
    if (e) dist_set_join(e, dist_size(e));
    out->all = pace_of(&m, d, true);
    out->alone = out->all;
    for (int i = 0; i < t->n && t->n > 1; i++) {
        struct rank_pace p = pace_of(&m, d, i == t->i);
        if (i == t->i) out->alone = p;
    }
    out->op_us = time_op(d);
    if (!e) return SL_OK;
    last_join(e);
    return dist_status(e, err);
}

/* Rows that are moved to be timed: x this rank's n_col columns, y all ranks'. work: what a rank
 * reads before it moves them, as it computes in a step: ranks never arrive together, and one that
 * waits for long falls asleep. */
struct rows {
    dist *d;
    float *x, *y, sum;
    int n_work;
    int n_col, n_join; /* columns of a rank; ranks of a stage */
    int32_t part[DIST_RANK_MAX];
};

static void join(struct rows *w, int n_col)
{
    for (int r = 0; r < w->n_join; r++)
        w->part[r] = n_col;
    dist_cols(w->d, &(struct dist_cols){
                        .x = w->x, .y = w->y, .n_row = 1, .n = n_col * w->n_join, .part = w->part});
}

static void work(struct rows *w)
{
    float sum = 0;
    for (int i = 0; i < w->n_work; i++)
        sum += w->y[i];
    w->sum += sum;
}

static void join_once(struct rows *w)
{
    work(w);
    join(w, w->n_col);
}

static void rest(void)
{
    int64_t t0 = clock_now_ns();
    while (clock_now_ns() < t0 + REST_NS)
        continue;
}

/* From the first stage, which has the last ranks, to the last; then all join a few columns, so that
 * the next time begins when this one is over. */
static void hop_once(struct rows *w)
{
    int n = dist_size(w->d), k = w->n_join, stage = n / k - 1 - dist_rank(w->d) / k;
    if (stage > 0) dist_take(w->d, w->y, 1, w->n_col);
    rest(); /* as long as a stage computes at least */
    if (stage < n / k - 1) dist_give(w->d, w->x, 1, w->n_col);
    dist_set_join(w->d, w->n_join = n);
    join(w, SMALL);
    dist_set_join(w->d, w->n_join = k);
}

/* Seconds of one, in groups of so many. */
static sl_status time_rows(struct rows *w, void (*once)(struct rows *w), int times, double *s,
                           sl_err *err)
{
    double of[GROUPS];
    sl_status st = SL_OK;
    for (int g = -2; g < GROUPS && !st; g++) {
        int64_t t0 = clock_now_ns();
        for (int i = 0; i < times; i++)
            once(w);
        if (g >= 0) of[g] = (double)(clock_now_ns() - t0) * 1e-9 / times;
        st = dist_status(w->d, err);
    }
    if (!st) *s = quartile(of);
    return st;
}

/* us of a step of nothing: home tells of it and waits until all others are through. */
static sl_status time_step(dist *d, double *us, sl_err *err)
{
    double of[GROUPS];
    char word[64] = "step";
    size_t n;
    sl_status st = SL_OK;
    for (int g = 0; g < GROUPS && !st; g++) {
        if (dist_rank(d) > 0) {
            if (dist_hear(d, &n)) dist_done(d);
            st = dist_status(d, err);
            continue;
        }
        rest();
        int64_t t0 = clock_now_ns();
        dist_tell(d, word, sizeof word);
        st = dist_all_done(d, err);
        of[g] = (double)(clock_now_ns() - t0) * 1e-3;
    }
    if (!st && dist_rank(d) == 0) *us = quartile(of);
    return st;
}

/* Seconds in which this rank copies its row: no rank takes another's sooner. Where others use the
 * CPUs, a long move may seem to take less than a short one. */
static double time_copy(struct rows *w)
{
    double s[GROUPS];
    for (int g = 0; g < GROUPS; g++) {
        int64_t t0 = clock_now_ns();
        memcpy(w->y, w->x, (size_t)RANK_PROBE_ROW);
        s[g] = (double)(clock_now_ns() - t0) * 1e-9;
    }
    return quartile(s);
}

/* hop: what the join at its end takes; 0: it is a join. */
static sl_status time_way(struct rows *w, double hop, struct rank_way *out, sl_err *err)
{
    void (*once)(struct rows *w) = hop > 0 ? hop_once : join_once;
    double alone = 0, s[2], n = hop > 0 ? dist_size(w->d) / w->n_join - 1 : 1;
    if (hop > 0) alone = hop + (n + 1) * REST_NS * 1e-9;
    w->n_work = hop > 0 ? 0 : WORK;
    if (hop == 0) SL_TRY(time_rows(w, work, SMALL_TIMES, &alone, err));
    for (int i = 0; i < 2; i++) {
        w->n_col = i ? LARGE : SMALL;
        SL_TRY(time_rows(w, once, i ? LARGE_TIMES : SMALL_TIMES, &s[i], err));
        s[i] = (s[i] - alone) / n;
        if (s[i] < LEAST_S) s[i] = LEAST_S;
    }
    w->n_work = 0;
    double from = hop > 0 ? 1 : w->n_join - 1, more = s[1] - s[0], least = from * time_copy(w);
    if (more < least) more = s[1] > least ? s[1] : least;
    *out = (struct rank_way){s[0] * 1e6, (double)RANK_PROBE_ROW * from / more * 1e-9};
    return SL_OK;
}

static sl_status time_all(struct rows *w, int n_here, struct rank_ways *out, sl_err *err)
{
    int n = dist_size(w->d);
    bool several = n_here > 1 && n_here < n;
    dist_set_join(w->d, w->n_join = n);
    SL_TRY(time_step(w->d, &out->step_us, err));
    SL_TRY(time_way(w, 0, &out->all, err));
    out->host = out->all;
    dist_set_join(w->d, w->n_join = several ? n_here : 1);
    if (several) SL_TRY(time_way(w, 0, &out->host, err));
    double end = 0;
    dist_set_join(w->d, w->n_join = n);
    w->n_col = SMALL;
    SL_TRY(time_rows(w, join_once, SMALL_TIMES, &end, err)); /* the join after hand-overs */
    dist_set_join(w->d, w->n_join = several ? n_here : 1);
    return time_way(w, end, &out->hop, err);
}

sl_status rank_ways_get(dist *d, int n_here, struct rank_ways *out, sl_err *err)
{
    void *x = NULL, *y = NULL;
    size_t n = (size_t)dist_size(d);
    SL_TRY(mem_alloc_array(MEM_SCRATCH, LARGE, sizeof(float), &x, err));
    sl_status st = mem_alloc_array(MEM_SCRATCH, (size_t)LARGE * n, sizeof(float), &y, err);
    if (!st) memset(y, 0, (size_t)LARGE * n * sizeof(float));
    struct rows w = {.d = d, .x = x, .y = y};
    if (!st) st = time_all(&w, n_here, out, err);
    if (!st) last_join(d);
    mem_free(x);
    mem_free(y);
    return st;
}
