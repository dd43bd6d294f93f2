/* SPDX-License-Identifier: Apache-2.0 */
/* Home's part of moving experts: when experts are counted anew, which are to move, a batch of one
 * layer at a time, and when all ranks use what they have read. Called between steps; it never
 * waits and does not allocate. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "dist/place.h"
#include "engine/moves.h"
#include "engine/ranks.h"

#define ASK_NS 4000000      /* between two questions */
#define LEAST_PER_EXPERT 16 /* choices that a layer must have seen before it is moved unasked */

struct engine_rebalance {
    /* fixed after open */
    struct dist_experts shape;
    int32_t *slot; /* [n_layer, n_slot] the table of ranks.c */
    int32_t slot0[DIST_RANK_MAX + 1]; /* where the slots of each group of ranks begin */
    int n_layer, n_spare;
    int64_t every_ns; /* 0 = only when asked */
    /* any thread */
    atomic_int asked;
    /* engine thread */
    int64_t next_ns, ask_ns;
    int n_row; /* of the next question: that may go from rank to rank first */
    bool by_hand; /* this pass was asked for */
    int layer;    /* of the pass; -1 = none is under way */
    bool planned, reading;
    uint64_t *seen, *load; /* [n_layer, n_expert] counts at the last pass; what they say of now */
    int32_t *goal;         /* [n_slot] */
    struct dist_exchange exchange[DIST_GOAL_LOADS];
    struct dist_steps step;
    int at; /* steps of the layer that are done */
    struct engine_move batch[ENGINE_MOVES_MAX];
    int n_batch, n_step_batch;
    double before, after; /* sums of the layers' ratios */
    int n_ratio;
};

/* ---- opening ---- */

static sl_status array(size_t n, size_t size, void *out, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, n + 1, size, &p, err));
    memcpy(out, &p, sizeof p);
    return SL_OK;
}

sl_status engine_rebalance_open(sl_engine *e, sl_err *err)
{
    struct engine_spread s = engine_ranks_spread(e);
    struct engine_rebalance *b = NULL;
    if (!s.n_spare || engine_rank_here(e)) return SL_OK;
    SL_TRY(array(1, sizeof *b, &b, err));
    e->rebalance = b;
    b->shape = (struct dist_experts){.n_expert = e->m->cfg.n_expert,
                                     .n_slot = s.n_slot,
                                     .n_rank = s.n_rank,
                                     .n_group = 1,
                                     .n_node = 1,
                                     .weight = s.weight};
    for (int r = 0; r <= s.n_rank; r++)
        b->slot0[r] = dist_place_begin(&b->shape, r);
    b->slot = s.slot;
    b->n_layer = s.n_layer;
    b->n_spare = s.n_spare;
    b->every_ns = (int64_t)e->opts.rebalance_s * 1000000000;
    b->next_ns = clock_now_ns() + b->every_ns;
    b->layer = -1;
    size_t n = (size_t)s.n_layer * (size_t)b->shape.n_expert;
    SL_TRY(array(n, sizeof *b->seen, &b->seen, err));
    SL_TRY(array(n, sizeof *b->load, &b->load, err));
    SL_TRY(array((size_t)s.n_slot, sizeof *b->goal, &b->goal, err));
    SL_TRY(array(dist_improve_room(&b->shape), 1, &b->step.room, err));
    b->step.v = b->exchange;
    e->stats.n_spare = (uint64_t)s.n_spare;
    return SL_OK;
}

void engine_rebalance_close(sl_engine *e)
{
    struct engine_rebalance *b = e->rebalance;
    if (!b) return;
    mem_free(b->seen);
    mem_free(b->load);
    mem_free(b->goal);
    mem_free(b->step.room);
    mem_free(b);
    e->rebalance = NULL;
}

/* ---- a pass ---- */

static uint64_t *load_of(struct engine_rebalance *b, int layer)
{
    return b->load + (int64_t)layer * b->shape.n_expert;
}

/* What was chosen since the last pass, and half as much what was before. */
static sl_status count_layer(sl_engine *e, struct engine_rebalance *b, int layer, sl_err *err)
{
    int n = b->shape.n_expert;
    uint64_t *seen = b->seen + (int64_t)layer * n, *load = load_of(b, layer);
    for (int i = 0; i < n; i++)
        load[i] = load[i] / 2 - seen[i];
    sl_status st = engine_ranks_routed(e, layer, seen, n, err);
    if (st == SL_NOTFOUND) memset(seen, 0, sizeof *seen * (size_t)n); /* a dense one */
    for (int i = 0; i < n; i++)
        load[i] += seen[i];
    return st == SL_NOTFOUND ? SL_OK : st;
}

static sl_status begin_pass(sl_engine *e, struct engine_rebalance *b, sl_err *err)
{
    b->by_hand = atomic_exchange(&b->asked, 0) > 0;
    for (int il = 0; il < b->n_layer; il++)
        SL_TRY(count_layer(e, b, il, err));
    b->layer = 0;
    b->planned = false;
    b->before = b->after = 0;
    b->n_ratio = 0;
    return SL_OK;
}

static void end_pass(sl_engine *e, struct engine_rebalance *b)
{
    b->layer = -1;
    b->next_ns = clock_now_ns() + b->every_ns;
    e->stats.n_rebalance++;
    if (!b->n_ratio) return;
    e->stats.rank_load_ppm = (uint64_t)(b->after / b->n_ratio * 1e6);
    log_msg(LOG_INFO, "experts moved: the fullest rank has %.2fx the mean, had %.2fx",
            b->after / b->n_ratio, b->before / b->n_ratio);
}

/* What is to move in the layer. */
static void plan_layer(struct engine_rebalance *b)
{
    const struct dist_experts *p = &b->shape;
    const uint64_t *load = load_of(b, b->layer);
    const int32_t *slot = b->slot + (int64_t)b->layer * p->n_slot;
    uint64_t sum = 0;
    b->planned = true;
    b->at = b->step.n = 0;
    for (int i = 0; i < p->n_expert; i++)
        sum += load[i];
    if (sum == 0 || (!b->by_hand && sum < (uint64_t)p->n_expert * LEAST_PER_EXPERT)) return;
    memcpy(b->goal, slot, sizeof *slot * (size_t)p->n_slot);
    b->before += dist_place_ratio(p, load, slot);
    dist_improve(p, load, &(struct dist_goal){DIST_GOAL_RATIO, DIST_GOAL_LOADS}, b->goal, &b->step);
    b->after += dist_place_ratio(p, load, b->goal);
    b->n_ratio++;
}

/* Does the exchange fit into the batch: a slot once, and no more on a rank than it has room for? */
static bool fits(const struct engine_rebalance *b, const struct dist_exchange *x)
{
    if (b->n_batch + x->n > ENGINE_MOVES_MAX) return false;
    for (int k = 0; k < x->n; k++) {
        int n = 0, rank = dist_place_rank(b->slot0, x->slot[k]);
        for (int i = 0; i < b->n_batch; i++) {
            n += dist_place_rank(b->slot0, b->batch[i].slot) == rank;
            if (b->batch[i].slot == x->slot[k]) return false;
        }
        if (n == b->n_spare) return false;
    }
    return true;
}

static int32_t where(const struct engine_rebalance *b, int32_t expert)
{
    const int32_t *slot = b->slot + (int64_t)b->layer * b->shape.n_slot;
    int32_t i = 0;
    while (slot[i] != expert)
        i++;
    return i; /* every expert has one */
}

static void fill_batch(struct engine_rebalance *b)
{
    b->n_batch = b->n_step_batch = 0;
    for (int s = b->at; s < b->step.n && fits(b, &b->step.v[s]); s++, b->n_step_batch++)
        for (int k = 0; k < b->step.v[s].n; k++) {
            int32_t expert = b->step.v[s].expert[k];
            b->batch[b->n_batch++] =
                (struct engine_move){b->step.v[s].slot[k], expert, where(b, expert)};
        }
}

static sl_status tell(sl_engine *e, struct engine_rebalance *b, uint32_t what, sl_err *err)
{
    int n = what == MOVES_READ ? b->n_batch : 0;
    struct engine_say s = {.what = what,
                           .layer = b->layer,
                           .n = what == MOVES_ASK ? b->n_row : n,
                           .body = b->batch,
                           .bytes = (size_t)n * sizeof *b->batch};
    return engine_ranks_say(e, &s, err);
}

static sl_status use(sl_engine *e, struct engine_rebalance *b, sl_err *err)
{
    int32_t *slot = b->slot + (int64_t)b->layer * b->shape.n_slot;
    SL_TRY(tell(e, b, MOVES_USE, err));
    for (int i = 0; i < b->n_batch; i++)
        slot[b->batch[i].slot] = b->batch[i].expert;
    b->at += b->n_step_batch;
    e->stats.n_placement++;
    e->stats.n_expert_moved += (uint64_t)b->n_batch;
    return SL_OK;
}

static sl_status ask(sl_engine *e, struct engine_rebalance *b, sl_err *err)
{
    int rank;
    int64_t now = clock_now_ns();
    if (now - b->ask_ns < ASK_NS) return SL_OK;
    int64_t ns = BASE_MIN(now - b->ask_ns, 1000000000); /* the first time, since none */
    int64_t rows = ns * e->ranks->place_mbps / 1000 / ENGINE_PULL_BYTES;
    b->n_row = (int)BASE_MIN(BASE_MAX(rows, 1), ENGINE_PULL_ROWS);
    b->ask_ns = now;
    SL_TRY(tell(e, b, MOVES_ASK, err));
    enum engine_moved state = engine_mover_state(engine_ranks_mover(e), &rank);
    if (state == MOVED_BUSY) return SL_OK;
    b->reading = false;
    if (state == MOVED_READY) return use(e, b, err);
    if (rank < 0)
        log_msg(LOG_WARN, "layer %d: experts that were read are not those of the ranks that have "
                          "them: they stay where they are", b->layer);
    else
        log_msg(LOG_WARN, "layer %d: rank %d can not read experts: they stay where they are",
                b->layer, rank);
    e->stats.n_move_failed++;
    end_pass(e, b);
    return SL_OK;
}

static bool is_due(struct engine_rebalance *b)
{
    return atomic_load(&b->asked) > 0 || (b->every_ns && clock_now_ns() >= b->next_ns);
}

sl_status engine_rebalance_step(sl_engine *e, sl_err *err)
{
    struct engine_rebalance *b = e->rebalance;
    if (!b) return SL_OK;
    if (b->reading) return ask(e, b, err);
    if (b->layer < 0) return is_due(b) ? begin_pass(e, b, err) : SL_OK;
    if (!b->planned) plan_layer(b);
    fill_batch(b);
    if (b->n_batch) {
        b->reading = true;
        return tell(e, b, MOVES_READ, err);
    }
    b->planned = false;
    if (++b->layer == b->n_layer) end_pass(e, b);
    return SL_OK;
}

bool engine_rebalance_busy(const sl_engine *e)
{
    return e->rebalance && (e->rebalance->layer >= 0 || is_due(e->rebalance));
}

sl_status sl_rebalance(sl_engine *e, sl_err *err)
{
    if (e->remote && e->remote->rebalance) return e->remote->rebalance(e->remote->user, err);
    if (!e->rebalance)
        return SL_FAIL(err, REQUEST,
                       "no experts can move: that needs a layout with ep, and --spare");
    atomic_store(&e->rebalance->asked, 1);
    sl_wake(e);
    return SL_OK;
}
