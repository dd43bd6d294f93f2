/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks whose groups come and go: sequences arrive at groups and leave them at random, so that now
 * one group has work, now none but one has none; all ranks run every step all the same, and every
 * row must come where it belongs. Steps go from stage to stage; home tells of the next one before
 * it has done its part of the last. In the end all ranks of a circle must have made the same joins.
 *
 * sim_dist N [SEED]: N steps in each of several layouts, of threads, whose columns are read where
 * they lie, and through slots, as processes do. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "dist/dist_internal.h"

#define RANKS 8
#define WIDE 24
#define TOK 12 /* of a group in a step, at most */
#define LAYERS 2

struct step {
    int32_t n, n_tok[RANKS]; /* its number; tokens of every group */
};

struct sim {
    int dp, tp, pp, n;
    dist *end[RANKS];
    long long n_step, n_idle, n_alone; /* idle: of a group; alone: one has all the work */
    atomic_int n_bad;
    uint64_t rng;
    int n_seq[RANKS]; /* of a group */
};

struct side {
    struct sim *s;
    int rank;
};

static void check(struct sim *s, bool good)
{
    if (!good) atomic_fetch_add(&s->n_bad, 1);
}

/* Token t of group g, as rank r of the stage has it. */
static float value(const struct step *p, int layer, int g, int t, int col)
{
    return (float)((p->n * 7 + layer * 5 + g * 3 + t) % 1000) + (float)col / 32;
}

/* The stage's rank to which the token goes. */
static int goes_to(const struct step *p, int layer, int g, int t, int n)
{
    return (p->n * 31 + layer * 17 + g * 13 + t * t * 7) % n;
}

/* Columns of the group's ranks are put together. */
static void cols(struct sim *s, int rank, const struct step *p, int layer)
{
    static _Thread_local float x[2][TOK * WIDE], y[TOK * WIDE];
    int g = rank / s->tp % s->dp, t = rank % s->tp, n = WIDE / s->tp, n_row = p->n_tok[g];
    float *mine = x[layer & 1];
    int32_t part[RANKS];
    for (int i = 0; i < s->tp; i++)
        part[i] = n;
    for (int i = 0; i < n_row * n; i++)
        mine[i] = value(p, layer, g, i / n, t * n + i % n);
    if (s->tp == 1 || !n_row) return;
    dist_cols(s->end[rank],
              &(struct dist_cols){.x = mine, .y = y, .n_row = n_row, .n = WIDE, .part = part});
    for (int i = 0; i < n_row * WIDE && !dist_status(s->end[rank], NULL); i++)
        check(s, y[i] == value(p, layer, g, i / WIDE, i % WIDE));
}

/* Tokens that a rank of the stage sends: those of its group are shared among its ranks. */
struct share {
    int g, t0, n;
};

static struct share share_of(const struct sim *s, const struct step *p, int r)
{
    int g = r / s->tp, t = r % s->tp, n = p->n_tok[g];
    return (struct share){g, n * t / s->tp, n * (t + 1) / s->tp - n * t / s->tp};
}

/* All rows to all, and each to one rank. */
static void rows(struct sim *s, int rank, const struct step *p, int layer)
{
    static _Thread_local float x[2][TOK * WIDE], z[2][TOK * WIDE], y[RANKS * TOK * WIDE];
    int R = s->dp * s->tp, me = rank % R, n = 0;
    struct share mine = share_of(s, p, me);
    float *all = x[layer & 1], *each = z[layer & 1];
    int32_t n_of[RANKS], count[RANKS * RANKS] = {0};
    for (int r = 0; r < R; r++) {
        struct share a = share_of(s, p, r);
        n_of[r] = a.n;
        for (int t = a.t0; t < a.t0 + a.n; t++)
            count[r * R + goes_to(p, layer, a.g, t, R)]++;
    }
    for (int i = 0; i < mine.n * WIDE; i++)
        all[i] = value(p, layer, mine.g, mine.t0 + i / WIDE, i % WIDE);
    for (int q = 0; q < R; q++)
        for (int t = mine.t0; t < mine.t0 + mine.n; t++)
            if (goes_to(p, layer, mine.g, t, R) == q)
                memcpy(each + n++ * WIDE, all + (t - mine.t0) * WIDE, WIDE * sizeof *each);
    dist_gather(
        s->end[rank],
        &(struct dist_gather){.of = DIST_STAGE, .x = all, .y = y, .n = WIDE, .n_of = n_of});
    if (dist_status(s->end[rank], NULL)) return;
    for (int r = 0, at = 0; r < R; r++) {
        struct share a = share_of(s, p, r);
        for (int i = 0; i < a.n * WIDE; i++, at++)
            check(s, y[at] == value(p, layer, a.g, a.t0 + i / WIDE, i % WIDE));
    }
    dist_swap(s->end[rank],
              &(struct dist_swap){.of = DIST_STAGE, .x = each, .y = y, .n = WIDE, .count = count});
    if (dist_status(s->end[rank], NULL)) return;
    for (int r = 0, at = 0; r < R; r++) {
        struct share a = share_of(s, p, r);
        for (int t = a.t0; t < a.t0 + a.n; t++) {
            if (goes_to(p, layer, a.g, t, R) != me) continue;
            for (int k = 0; k < WIDE; k++, at++)
                check(s, y[at] == value(p, layer, a.g, t, k));
        }
    }
}

static void run_step(struct sim *s, int rank, const struct step *p)
{
    static _Thread_local float x[TOK * WIDE], y[RANKS * TOK * WIDE];
    dist *d = s->end[rank];
    int R = s->dp * s->tp, stage = s->pp - 1 - rank / R, g = rank / s->tp % s->dp;
    int n_row = p->n_tok[g];
    if (stage > 0) dist_take(d, x, n_row, WIDE);
    for (int i = 0; i < n_row * WIDE && stage > 0 && !dist_status(d, NULL); i++)
        check(s, x[i] == value(p, stage, g, i / WIDE, i % WIDE));
    for (int layer = 0; layer < LAYERS; layer++) {
        cols(s, rank, p, layer);
        rows(s, rank, p, layer);
    }
    for (int i = 0; i < n_row * WIDE; i++)
        x[i] = value(p, stage + 1, g, i / WIDE, i % WIDE);
    if (stage < s->pp - 1) {
        dist_give(d, x, n_row, WIDE);
        return;
    }
    int32_t n_of[RANKS] = {0};
    for (int i = 0; i < s->dp; i++)
        n_of[i * s->tp] = p->n_tok[i];
    dist_gather(d, &(struct dist_gather){.of = DIST_STAGE,
                                         .x = x,
                                         .y = y,
                                         .n = WIDE,
                                         .n_of = n_of,
                                         .home = true});
    if (rank || dist_status(d, NULL)) return;
    for (int i = 0, at = 0; i < s->dp; i++)
        for (int k = 0; k < p->n_tok[i] * WIDE; k++, at++)
            check(s, y[at] == value(p, s->pp, i, k / WIDE, k % WIDE));
}

static void *side_main(void *arg)
{
    const struct side *a = arg;
    dist *d = a->s->end[a->rank];
    size_t n;
    for (const void *msg; (msg = dist_hear(d, &n)); dist_done(d)) {
        struct step p;
        memcpy(&p, msg, sizeof p);
        run_step(a->s, a->rank, &p);
    }
    return NULL;
}

static int pick(struct sim *s, int n)
{
    return (int)(rng_next(&s->rng) % (uint64_t)n);
}

/* Sequences come, rarely to others than the group of the hour, and go. */
static void plan(struct sim *s, struct step *p)
{
    int busy = (int)(s->n_step / 50) % s->dp, n_with = 0;
    *p = (struct step){.n = (int32_t)s->n_step++};
    for (int g = 0; g < s->dp; g++) {
        if (s->n_seq[g] < TOK / 2 && pick(s, g == busy ? 4 : 200) == 0) s->n_seq[g]++;
        if (s->n_seq[g] && pick(s, 20) == 0) s->n_seq[g]--;
        p->n_tok[g] = s->n_seq[g];
        if (s->n_seq[g] && pick(s, 10) == 0) p->n_tok[g] += pick(s, TOK / 2); /* a prompt */
        n_with += p->n_tok[g] > 0;
        s->n_idle += p->n_tok[g] == 0;
    }
    s->n_alone += n_with == 1 && s->dp > 1;
}

/* Home: tells a step, and does its part of the one told so many before. */
static sl_status home_main(struct sim *s, long long n, sl_err *err)
{
    static struct step told[DIST_AHEAD_MAX];
    int ahead = s->end[0]->n_ahead;
    sl_status st = SL_OK;
    for (long long i = 0; i < n + ahead - 1 && !st; i++) {
        struct step *p = &told[i % ahead];
        if (i < n) {
            plan(s, p);
            dist_tell(s->end[0], p, sizeof *p);
        }
        if (i < ahead - 1) continue;
        run_step(s, 0, &told[(i - ahead + 1) % ahead]);
        st = dist_all_done(s->end[0], err);
    }
    return st;
}

static void use_slots(const struct sim *s, size_t half)
{
    void *p = NULL;
    size_t bytes = dist_board_bytes(s->n) +
                   dist_board_room(s->end[0], half, sizeof(struct step));
    if (mem_alloc_array(MEM_MISC, 1, bytes, &p, NULL)) exit(1);
    mem_free(s->end[0]->board);
    dist_board_init(p, s->n, true);
    for (int r = 0; r < s->n; r++)
        dist_board_attach(s->end[r], p, half, sizeof(struct step));
}

static void check_histories(struct sim *s)
{
    for (int r = 0; r < s->n; r++)
        for (int k = 0; k < s->end[r]->n_circle; k++) {
            const struct dist_circle *c = &s->end[r]->circle[k];
            check(s, c->history == s->end[c->first]->circle[k].history);
        }
}

static bool simulate(int dp, int tp, int pp, size_t half, long long n, uint64_t seed)
{
    struct sim s = {.dp = dp, .tp = tp, .pp = pp, .n = dp * tp * pp, .rng = seed};
    struct side side[RANKS];
    pthread_t thread[RANKS];
    sl_err err = {0};
    struct dist_opts o = {.deadline_ms = 60000,
                          .n_join = dp * tp,
                          .n_tp = tp,
                          .n_ahead = pp,
                          .crowded = true};
    if (dist_team_open(s.n, &o, s.end, &err)) exit(1);
    if (half) use_slots(&s, half);
    for (int r = 1; r < s.n; r++) {
        side[r] = (struct side){&s, r};
        if (pthread_create(&thread[r], NULL, side_main, &side[r])) exit(1);
    }
    sl_status st = home_main(&s, n, &err);
    dist_tell(s.end[0], NULL, 0);
    for (int r = 1; r < s.n; r++)
        pthread_join(thread[r], NULL);
    check_histories(&s);
    dist_close(s.end[0]);
    printf("dp=%d,tp=%d,pp=%d %s: %lld steps, %lld times a group had nothing, %lld steps of one "
           "group alone: %s\n",
           dp, tp, pp, half ? "slots " : "memory", s.n_step, s.n_idle, s.n_alone,
           st ? err.text : atomic_load(&s.n_bad) ? "rows differ" : "all rows there");
    fflush(stdout);
    return !st && !atomic_load(&s.n_bad) && s.n_idle;
}

int main(int argc, char **argv)
{
    static const int layout[][3] = {{4, 1, 1}, {2, 2, 1}, {2, 2, 2}, {2, 1, 3}};
    long long n = argc > 1 ? atoll(argv[1]) : 1000;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    bool good = true;
    for (int i = 0; i < BASE_COUNT_OF(layout); i++)
        for (int k = 0; k < 2; k++)
            good &= simulate(layout[i][0], layout[i][1], layout[i][2], k ? 5 * WIDE * 4 : 0, n,
                             seed + (uint64_t)i);
    return good ? 0 : 1;
}
