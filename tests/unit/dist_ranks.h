/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of a test, one a thread: rank 0 is the test's own, the others run when they are told. */
#ifndef TEST_DIST_RANKS_H
#define TEST_DIST_RANKS_H

#include "base/mem.h"
#include "dist/dist_internal.h"
#include "par/par.h"
#include "test.h"

#define RANKS_MAX 6

struct ranks;
struct ranks_side {
    struct ranks *all;
    int rank;
};
struct ranks {
    dist *end[RANKS_MAX];
    int n;
    size_t half; /* 0, or: ends with slots, as of processes: what is longer goes in pieces */
    void (*run)(struct ranks *all, int rank); /* what each does when it is told */
    par_side *side[RANKS_MAX];
    struct ranks_side arg[RANKS_MAX];
};

static void ranks_side_main(void *arg)
{
    const struct ranks_side *s = arg;
    dist *end = s->all->end[s->rank];
    size_t n;
    while (dist_hear(end, &n)) {
        s->all->run(s->all, s->rank);
        dist_done(end);
    }
}

static void ranks_use_slots(const struct ranks *a)
{
    void *p = NULL;
    size_t bytes = dist_board_bytes(a->n) + dist_board_room(a->end[0], a->half, sizeof a->n);
    assert_int_equal(mem_alloc_array(MEM_MISC, 1, bytes, &p, NULL), SL_OK);
    mem_free(a->end[0]->board);
    dist_board_init(p, a->n, true);
    for (int r = 0; r < a->n; r++)
        dist_board_attach(a->end[r], p, a->half, sizeof a->n);
}

static void ranks_open(struct ranks *a, const struct dist_opts *o)
{
    assert_int_equal(dist_team_open(a->n, o, a->end, NULL), SL_OK);
    if (a->half) ranks_use_slots(a);
    for (int r = 1; r < a->n; r++) {
        a->arg[r] = (struct ranks_side){a, r};
        assert_int_equal(par_side_open(ranks_side_main, &a->arg[r], &a->side[r], NULL), SL_OK);
    }
}

/* All run once. */
static sl_status ranks_run(struct ranks *a, sl_err *err)
{
    dist_tell(a->end[0], &a->n, sizeof a->n);
    a->run(a, 0);
    return dist_all_done(a->end[0], err);
}

static void ranks_close(struct ranks *a)
{
    dist_tell(a->end[0], NULL, 0);
    for (int r = 1; r < a->n; r++)
        par_side_close(a->side[r]);
    dist_close(a->end[0]);
}

#endif
