/* SPDX-License-Identifier: Apache-2.0 */
/* Steps from their plan until they are computed. Where layers are in several stages there are as
 * many lanes (sched/lane.c): each has a step under way, told to all ranks, while the others' are in
 * other stages; the engine's own thread is the last stage, which computes a lane's step, draws and
 * tells the lane's next one before it goes on with the next lane's. So all ranks compute steps in
 * the order in which they were planned, and blocks that one step leaves another may take at once.
 * What is drawn of a request that lost its blocks meanwhile, or is over, is dropped. */
#include <stdlib.h>

#include "base/clock.h"
#include "engine/apart.h"

static sl_status open_lane(const sl_engine *e, struct engine_lane *l, sl_err *err)
{
    size_t n_seq = (size_t)e->n_seq_max;
    struct step_most most = {.n_tok = e->n_tok_max,
                             .n_seq = e->n_seq_max,
                             .n_row = BASE_MAX(e->n_tok_max, e->n_logit_max),
                             .n_copy = MODEL_COPIES * e->n_seq_max,
                             .n_table = engine_n_table(e),
                             .ld_blk = e->ld_blk};
    SL_TRY(engine_room_open(&l->room, &most, err));
    SL_TRY(engine_array(n_seq, sizeof *l->item, &l->item, err));
    SL_TRY(engine_array(MODEL_COPIES * n_seq, sizeof *l->copy, &l->copy, err));
    return engine_array(n_seq, sizeof *l->item_row, &l->item_row, err);
}

static void close_lane(struct engine_lane *l)
{
    engine_room_close(&l->room);
    mem_free(l->item);
    mem_free(l->copy);
    mem_free(l->item_row);
}

/* The engine's room is that of lane i. */
static struct engine_lane *use(sl_engine *e, int i)
{
    struct engine_lane *l = &e->lane[i];
    e->at_lane = i;
    e->room = &l->room;
    e->item_row = l->item_row;
    return l;
}

/* As many as stages; but a pass of MTP layers that several ranks share would come in between. */
static int count(const sl_engine *e)
{
    const char *text = getenv("SL_LANES"); /* to measure what they gain */
    bool passes = e->mtp.on && model_n_mtp(e->net) > 0 && !engine_ranks_last_alone(e);
    int n = passes ? 1 : BASE_MIN(engine_n_stage(e), DIST_AHEAD_MAX), most = text ? atoi(text) : n;
    return BASE_MAX(BASE_MIN(n, most), 1);
}

sl_status engine_lanes_open(sl_engine *e, sl_err *err)
{
    e->n_lane = count(e);
    SL_TRY(engine_array((size_t)e->n_lane, sizeof *e->lane, &e->lane, err));
    for (int i = 0; i < e->n_lane; i++)
        SL_TRY(open_lane(e, &e->lane[i], err));
    (void)use(e, 0);
    return SL_OK;
}

void engine_lanes_close(sl_engine *e)
{
    for (int i = 0; e->lane && i < e->n_lane; i++)
        close_lane(&e->lane[i]);
    mem_free(e->lane);
}

/* Rows of requests that are not as they were when the step was planned. */
static void drop_dead(sl_engine *e, struct engine_lane *l)
{
    for (int h = 0; h < e->n_home; h++)
        sched_landed(e->home[h].sched, (int)(l - e->lane));
    for (int i = 0; i < l->plan.n_item; i++) {
        struct sched_item *it = &l->item[i];
        if (!sched_is_live(e->home[it->seat / e->n_seat].sched, it)) it->req = -1;
    }
}

/* The step that the lane has under way. Errors: DEVICE: the engine is lost. */
static sl_status finish(sl_engine *e, struct engine_lane *l, sl_err *err)
{
    struct model_rows rows;
    sl_err why = {0};
    int64_t t0 = BASE_MAX(l->t_told, e->t_landed);
    l->under_way = false;
    sl_status st = engine_run_told(e, &l->step, &rows, &why);
    e->t_landed = clock_now_ns();
    drop_dead(e, l);
    if (st) return engine_step_failed(e, l, &why, err);
    engine_step_end(e, l, &rows, e->t_landed - t0);
    return SL_OK;
}

void engine_lanes_drain(sl_engine *e)
{
    int at = e->at_lane;
    for (int i = 1; i <= e->n_lane && e->lane; i++) {
        struct engine_lane *l = &e->lane[(at + i) % e->n_lane];
        if (!l->under_way || atomic_load(&e->lost)) continue;
        if (finish(e, use(e, (int)(l - e->lane)), NULL)) return; /* the next step says why */
    }
}

/* The lanes take turns: what is under way is finished, and the next one told. */
static sl_status next_lane(sl_engine *e, bool *did, sl_err *err)
{
    struct engine_lane *l = use(e, (e->at_lane + 1) % e->n_lane);
    *did = l->under_way;
    if (l->under_way) SL_TRY(finish(e, l, err));
    if (atomic_load(&e->lost) || !engine_step_begin(e, l)) return SL_OK;
    l->t_told = clock_now_ns();
    l->under_way = *did = true;
    engine_ranks_begin(e, &l->step);
    return SL_OK;
}

sl_status engine_lanes_step(sl_engine *e, sl_err *err)
{
    bool did = false;
    if (engine_counts_due(e)) engine_lanes_drain(e); /* the last of them asks */
    for (int i = 0; i < e->n_lane && !did; i++)
        SL_TRY(next_lane(e, &did, err));
    if (!sl_pending(e)) engine_lanes_drain(e); /* nobody may ask for a step for long */
    if (!did) {
        engine_publish(e);
        engine_apart_idle(e);
    }
    return SL_OK;
}
