/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are processes, one of which leaves the order of joins: it leaves one out, or brings a
 * row more, or stops after a step that was long. Under mpirun: dist_broken RANK AT
 * skip|more|stop|none DEADLINE_MS. Rank 0 prints how it ended, and when since the last step began:
 * "OK" or what was wrong. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "dist/dist.h"

#define WIDE 60
#define ROUNDS 40
#define ROWS 5
#define LONG_NS 400000000 /* a step, twenty of which are over any deadline asked for here */

struct plan {
    int rank, at, skip, more, stop;
};

/* Each round is another kind of join, of another number of rows. */
static void join(dist *d, const struct plan *p, int round)
{
    static float x[2][(ROWS + 1) * WIDE], y[DIST_RANK_MAX * (ROWS + 1) * WIDE];
    int n = dist_size(d), me = dist_rank(d), n_row = 1 + round % ROWS;
    int32_t part[DIST_RANK_MAX], of[ROWS + 1] = {0}, n_of[DIST_RANK_MAX];
    for (int r = 0; r < n; r++) {
        part[r] = r == n - 1 ? WIDE - r * (WIDE / n) : WIDE / n;
        n_of[r] = (round + r) % ROWS;
    }
    bool odd = p->more && me == p->rank && round == p->at;
    n_row += odd;
    n_of[me] += odd;
    float *mine = x[round & 1];
    if (round % 3 == 0)
        dist_cols(d, &(struct dist_cols){
                         .x = mine, .y = y, .n_row = n_row, .n = WIDE, .part = part});
    else if (round % 3 == 1)
        dist_pick(d, &(struct dist_pick){mine, y, n_row, WIDE, of});
    else
        dist_gather(d, &(struct dist_gather){.x = mine, .y = y, .n = WIDE, .n_of = n_of});
}

static void step(dist *d, const struct plan *p)
{
    for (int round = 0; round < ROUNDS && !dist_status(d, NULL); round++) {
        bool now = dist_rank(d) == p->rank && round == p->at;
        if (now && p->stop) (void)raise(SIGSTOP);
        if (!(now && p->skip)) join(d, p, round);
    }
}

static void long_step(void)
{
    nanosleep(&(struct timespec){.tv_nsec = LONG_NS}, NULL);
}

static sl_status run(dist *d, const struct plan *p, int64_t *t0, sl_err *err)
{
    size_t n;
    int k = 0;
    SL_TRY(dist_room(d, WIDE * (int64_t)sizeof(float), 64, err));
    if (dist_rank(d)) {
        while (dist_hear(d, &n)) {
            if (p->stop && k++ == 0)
                long_step();
            else
                step(d, p);
            dist_done(d);
        }
        return dist_status(d, err);
    }
    if (p->stop) {
        dist_tell(d, "go", 2);
        long_step();
        SL_TRY(dist_all_done(d, err));
    }
    *t0 = clock_now_ns();
    dist_tell(d, "go", 2);
    step(d, p);
    sl_status st = dist_all_done(d, err);
    if (!st) dist_tell(d, NULL, 0);
    return st;
}

int main(int argc, char **argv)
{
    sl_err err = {0};
    dist *d = NULL;
    if (argc != 5) return 2;
    struct plan p = {atoi(argv[1]), atoi(argv[2]), !strcmp(argv[3], "skip"),
                     !strcmp(argv[3], "more"), !strcmp(argv[3], "stop")};
    struct dist_opts o = {.deadline_ms = atoi(argv[4]), .crowded = true};
    sl_status st = dist_mpi_open(&o, &d, &err);
    int64_t t0 = clock_now_ns();
    if (!st) st = run(d, &p, &t0, &err);
    if (dist_launched().rank == 0)
        printf("%.3f %s\n", (double)(clock_now_ns() - t0) * 1e-9, st ? err.text : "OK");
    fflush(stdout);
    if (st && dist_launched().rank) /* mpirun ends the others when one ends so: rank 0 is to */
        nanosleep(&(struct timespec){.tv_sec = 20}, NULL);
    dist_close(d);
    return 0;
}
