/* SPDX-License-Identifier: Apache-2.0 */
/* Experts change ranks while steps go on. Home names some of a layer to all ranks (READ), whose
 * helper threads read them into spare room; it asks from time to time whether all are there and the
 * same as where they were (ASK); and then all ranks use them from the next step on (USE). No step
 * waits for a disk, and no answer changes: a copy has the same bytes. Or they come from the memory
 * of the ranks that have them (peer), some rows at each ASK, between steps; the helper threads then
 * only compute the sums. */
#include "engine/moves.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "dist/place.h"
#include "os/word.h"
#include "par/par.h"

#define PULL_ROOM ((size_t)(ENGINE_PULL_ROWS + ENGINE_MOVES_MAX) * ENGINE_PULL_BYTES)
#define FLOATS(type) ((int)(sizeof(type) / sizeof(float)))

/* What a rank says of a batch: sums of what it has loaded, and of the same where it was; rows of
 * each that it still needs. */
struct said {
    uint32_t state, left;
    uint64_t loaded[ENGINE_MOVES_MAX], held[ENGINE_MOVES_MAX];
};
struct verdict {
    uint32_t state;
    int32_t rank; /* that failed; -1 = what is there differs */
};

struct engine_mover {
    struct engine_mover_opts o;
    int32_t slot0[DIST_RANK_MAX + 1]; /* where the slots of each group of ranks begin */
    par_side *thread;
    struct os_word asked, over; /* batches */
    atomic_bool stop;
    /* of the batch: written before asked is raised */
    int layer, n;
    struct engine_move move[ENGINE_MOVES_MAX];
    int spare[ENGINE_MOVES_MAX]; /* in which each is, of this rank's; -1 = another's */
    /* published by over */
    sl_status st;
    sl_err err;
    struct said mine;
    /* the rank's own thread */
    unsigned n_batch;
    struct said told, all[DIST_RANK_MAX];
    struct verdict verdict;
    /* peer: rows of each move that were given; of the ranks the most that one still needs, -1 = not
     * known yet; room for rows on their way */
    int n_given, n_left;
    bool has_all; /* this rank, and its thread was told */
    uint8_t *give, *take; /* [ENGINE_PULL_ROWS + ENGINE_MOVES_MAX] */
};

/* ---- the helper thread ---- */

static int pace(void *user, int64_t bytes)
{
    const struct engine_mover *m = user;
    int64_t ns = bytes * 1000 / BASE_MAX(m->o.mbps, 1); /* of 1e6 bytes a second */
    nanosleep(&(struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000}, NULL);
    return !atomic_load_explicit(&m->stop, memory_order_relaxed);
}

static sl_status read_batch(struct engine_mover *m, sl_err *err)
{
    const struct model_pace p = {.after = pace, .user = m};
    for (int i = 0; i < m->n; i++) {
        const struct engine_move *v = &m->move[i];
        if (m->spare[i] >= 0) {
            struct model_move mv = {m->layer, v->slot, v->expert};
            if (!m->o.peer) SL_TRY(model_move_read(m->o.net, &mv, m->spare[i], &p, err));
            m->mine.loaded[i] = model_spare_sum(m->o.net, m->layer, m->spare[i]);
        }
        if (dist_place_rank(m->slot0, v->from) == model_group(&m->o.dims))
            m->mine.held[i] = model_slot_sum(m->o.net, m->layer, v->from);
    }
    return SL_OK;
}

static void mover_main(void *arg)
{
    struct engine_mover *m = arg;
    for (unsigned k = 1; !atomic_load(&m->stop); k++) {
        while (!os_word_sleep(&m->asked, k, -1)) {
        }
        if (atomic_load(&m->stop)) return;
        m->st = read_batch(m, &m->err);
        if (m->st && m->st != SL_CANCELLED)
            log_msg(LOG_ERROR, "layer %d: rank %d can not load an expert: %s", m->layer,
                    model_stage_rank(&m->o.dims), m->err.text);
        os_word_raise(&m->over);
    }
}

sl_status engine_mover_open(const struct engine_mover_opts *o, struct engine_mover **out,
                            sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof **out, &p, err));
    struct engine_mover *m = *out = p;
    m->o = *o;
    model_slots_dealt(&o->dims, o->n_slot, m->slot0);
    if (o->peer) {
        SL_TRY(mem_alloc(MEM_SCRATCH, 2 * PULL_ROOM, &p, err));
        m->give = p;
        m->take = m->give + PULL_ROOM;
    }
    return par_side_open(mover_main, m, &m->thread, err);
}

void engine_mover_close(struct engine_mover *m)
{
    if (!m) return;
    atomic_store(&m->stop, true);
    os_word_set(&m->asked, m->n_batch + 1);
    par_side_close(m->thread);
    mem_free(m->give);
    mem_free(m);
}

/* ---- every rank ---- */

static bool has_layer(const struct engine_mover *m)
{
    return model_has_layer(model_config(m->o.net), &m->o.dims, m->layer);
}

static sl_status hear_read(struct engine_mover *m, int layer, int n, struct rd *r, sl_err *err)
{
    const struct arch_cfg *c = model_config(m->o.net);
    int n_spare = 0;
    const uint8_t *p = rd_bytes(r, (uint64_t)n * sizeof *m->move);
    if (!p || n < 1 || n > ENGINE_MOVES_MAX || layer < 0 || layer >= m->o.n_layer)
        return SL_FAIL(err, INTERNAL, "a message that moves no experts");
    m->layer = layer;
    m->n = n;
    memset(&m->mine, 0, sizeof m->mine);
    memcpy(m->move, p, (size_t)n * sizeof *m->move);
    for (int i = 0; i < n; i++) {
        const struct engine_move *v = &m->move[i];
        bool fits = v->slot >= 0 && v->slot < m->o.n_slot && v->from >= 0 &&
                    v->from < m->o.n_slot && v->expert >= 0 && v->expert < c->n_expert;
        bool ours = has_layer(m) &&
                    dist_place_rank(m->slot0, v->slot) == model_group(&m->o.dims);
        if (!fits || (ours && n_spare == m->o.n_spare))
            return SL_FAIL(err, INTERNAL, "a message that moves expert %d", v->expert);
        m->spare[i] = ours ? n_spare++ : -1;
    }
    if (!has_layer(m)) return SL_OK;
    m->n_batch++;
    m->n_given = 0;
    m->n_left = -1;
    m->has_all = false;
    if (!m->o.peer) os_word_raise(&m->asked);
    return SL_OK;
}

/* ---- from the memory of ranks that have them ---- */

static int rows_needed(const struct engine_mover *m)
{
    int64_t n = model_move_bytes(m->o.net, m->layer);
    return (int)((n + ENGINE_PULL_BYTES - 1) / ENGINE_PULL_BYTES);
}

/* Row number `row` of a move: what of its bytes there is. */
static struct model_stretch stretch_of(const struct engine_mover *m, int row)
{
    int64_t at = (int64_t)row * ENGINE_PULL_BYTES, n = model_move_bytes(m->o.net, m->layer) - at;
    return (struct model_stretch){at, BASE_MAX(BASE_MIN(n, ENGINE_PULL_BYTES), 0)};
}

/* The rows [n_given, n_given + n) of every move whose expert rank `from` gives, those for rank
 * `to`: they come to p, or (put) lie there, one after another, in the order of the moves. p NULL:
 * they stay. Returns how many. */
static int for_rank(struct engine_mover *m, int from, int to, int n, uint8_t *p, bool put)
{
    int n_etp = model_n_etp(&m->o.dims), n_row = 0;
    for (int i = 0; i < m->n; i++) {
        const struct engine_move *v = &m->move[i];
        if (dist_place_rank(m->slot0, v->from) != from / n_etp ||
            dist_place_rank(m->slot0, v->slot) != to / n_etp || from % n_etp != to % n_etp)
            continue;
        for (int k = 0; p && k < n; k++) {
            struct model_stretch s = stretch_of(m, m->n_given + k);
            uint8_t *row = p + (size_t)(n_row + k) * ENGINE_PULL_BYTES;
            if (put)
                model_move_put(m->o.net, m->layer, m->spare[i], s, row);
            else
                model_move_get(m->o.net, m->layer, v->from, s, row);
        }
        n_row += n;
    }
    return n_row;
}

/* Of each move the next n rows, which ranks of the same place in their group have alike. */
static void pull(struct engine_mover *m, int n)
{
    int32_t count[DIST_RANK_MAX * DIST_RANK_MAX];
    int R = model_stage_n(&m->o.dims), me = model_stage_rank(&m->o.dims);
    size_t out = 0, in = 0;
    for (int r = 0; r < R; r++)
        for (int q = 0; q < R; q++)
            count[r * R + q] = for_rank(m, r, q, n, NULL, false);
    for (int q = 0; q < R; q++)
        out += (size_t)for_rank(m, me, q, n, m->give + out * ENGINE_PULL_BYTES, false);
    dist_swap(m->o.end, &(struct dist_swap){.of = DIST_STAGE,
                                            .x = (const float *)(const void *)m->give,
                                            .y = (float *)(void *)m->take,
                                            .n = ENGINE_PULL_BYTES / (int)sizeof(float),
                                            .count = count});
    if (dist_status(m->o.end, NULL)) return; /* what came is anything */
    for (int r = 0; r < R; r++)
        in += (size_t)for_rank(m, r, me, n, m->take + in * ENGINE_PULL_BYTES, true);
    m->n_given += n;
}

/* At an ASK for n_row rows; once this rank has all, its helper thread computes the sums. */
static void pull_some(struct engine_mover *m, int n_row)
{
    if (m->n_left > 0) pull(m, BASE_MIN(BASE_MAX(n_row / BASE_MAX(m->n, 1), 1), m->n_left));
    m->told.left = (uint32_t)BASE_MAX(rows_needed(m) - m->n_given, 0);
    if (m->told.left || m->has_all) return;
    m->has_all = true;
    os_word_raise(&m->asked);
}

static struct verdict judge(const struct engine_mover *m)
{
    int n = model_stage_n(&m->o.dims);
    for (int r = 0; r < n; r++)
        if (m->all[r].state == MOVED_BUSY) return (struct verdict){MOVED_BUSY, r};
    for (int r = 0; r < n; r++)
        if (m->all[r].state != MOVED_READY) return (struct verdict){MOVED_FAILED, r};
    for (int i = 0; i < m->n; i++) {
        const struct engine_move *v = &m->move[i];
        int to = dist_place_rank(m->slot0, v->slot), from = dist_place_rank(m->slot0, v->from);
        int n_etp = model_n_etp(&m->o.dims); /* each has its rows */
        for (int k = 0; k < n_etp; k++)
            if (m->all[to * n_etp + k].loaded[i] != m->all[from * n_etp + k].held[i])
                return (struct verdict){MOVED_FAILED, -1};
    }
    return (struct verdict){MOVED_READY, -1};
}

/* All ranks of the layer's stage tell each other. */
static void ask_all(struct engine_mover *m, int n_row)
{
    int32_t part[DIST_RANK_MAX];
    int n = model_stage_n(&m->o.dims);
    m->told = (struct said){.state = MOVED_BUSY};
    if (m->o.peer) pull_some(m, n_row);
    if (os_word_there(&m->over, m->n_batch)) {
        m->mine.left = m->told.left;
        m->told = m->mine;
        m->told.state = m->st ? MOVED_FAILED : MOVED_READY;
    }
    for (int r = 0; r < n; r++)
        part[r] = FLOATS(struct said);
    dist_cols(m->o.end, &(struct dist_cols){.of = DIST_STAGE,
                                            .x = (const float *)(const void *)&m->told,
                                            .y = (float *)(void *)m->all,
                                            .n_row = 1,
                                            .n = n * FLOATS(struct said),
                                            .part = part});
    m->n_left = 0;
    for (int r = 0; r < n; r++)
        m->n_left = BASE_MAX(m->n_left, (int)m->all[r].left);
    m->verdict = judge(m);
}

/* What they say goes from their stage on to home. */
static void hear_ask(struct engine_mover *m, int n_row)
{
    const struct model_dims *d = &m->o.dims;
    void *v = &m->verdict;
    if (has_layer(m))
        ask_all(m, n_row);
    else if (m->layer < d->layer0 && model_stage_rank(d) == 0)
        dist_take(m->o.end, v, 1, FLOATS(struct verdict));
    if (m->layer < d->layer0 + d->n_layer && model_stage_rank(d) == 0 && !model_is_last(d))
        dist_give(m->o.end, v, 1, FLOATS(struct verdict));
}

sl_status engine_mover_hear(struct engine_mover *m, uint32_t what, int layer, int n, struct rd *r,
                            sl_err *err)
{
    if (what == MOVES_READ) return hear_read(m, layer, n, r, err);
    if (layer != m->layer || !m->n) return SL_FAIL(err, INTERNAL, "a message of other experts");
    if (what == MOVES_ASK) {
        if (n < 0 || n > ENGINE_PULL_ROWS)
            return SL_FAIL(err, INTERNAL, "a message that asks for %d rows of experts", n);
        hear_ask(m, n);
        return SL_OK;
    }
    for (int i = 0; i < m->n; i++) {
        struct model_move mv = {m->layer, m->move[i].slot, m->move[i].expert};
        model_move_apply(m->o.net, &mv, m->spare[i]);
    }
    m->n = 0;
    return SL_OK;
}

enum engine_moved engine_mover_state(const struct engine_mover *m, int *rank)
{
    *rank = m->verdict.rank;
    return (enum engine_moved)m->verdict.state;
}
