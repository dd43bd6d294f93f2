/* SPDX-License-Identifier: Apache-2.0 */
/* The step loop: schedule, compute, tell. Nothing here allocates. */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/apart.h"

/* ---- the prefix tree ---- */

struct kv_path engine_path(const sl_engine *e, const struct request *r)
{
    return (struct kv_path){.ids = r->ids,
                            .n = r->n_ids,
                            .salt = r->g->salt,
                            .mark0 = e->form_from,
                            .mark1 = r->n_prompt,
                            .ahead = e->mtp.on};
}

/* A running prompt that begins like r for at least two blocks more than the tree has, and will have
 * computed them soon: then it pays to wait for it. */
static void find_leader(const sl_engine *e, const struct request *r, int n_have,
                        struct sched_match *m)
{
    int slot;
    const struct sched *s = engine_sched(e, r);
    for (int i = 0; (slot = sched_running(s, i)) >= 0; i++) {
        const struct request *o = e->req[slot];
        const struct sched_req *q = sched_request(s, slot);
        int n_done = q->held ? q->n_reused : q->n_done;
        struct kv_path path = engine_path(e, o);
        path.n = o->n_prompt;
        int most = kv_path_whole(&path, r->n_prompt - 1, ENGINE_BLK_TOK);
        if (o->g->no_cache || o->g->salt != r->g->salt || o->g->owner != r->g->owner ||
            n_done >= most || most < n_have + 2 * ENGINE_BLK_TOK)
            continue;
        int n = 0;
        while (n < most + path.ahead && o->ids[n] == r->ids[n])
            n++;
        n = (n - path.ahead) / ENGINE_BLK_TOK * ENGINE_BLK_TOK;
        if (n < n_have + 2 * ENGINE_BLK_TOK || n_done >= n) continue;
        *m = (struct sched_match){.after = slot, .after_tok = n};
        return;
    }
}

void engine_match(void *user, int slot, struct kv_seq *seq, struct sched_match *m)
{
    sl_engine *e = user;
    const struct request *r = e->req[slot];
    /* every row of these is wanted */
    if (r->g->no_cache || r->g->embed || (r->g->echo && r->index == 0)) return;
    struct kv_path path = engine_path(e, r);
    /* the last token's logits are wanted */
    int n = kv_cache_match(e->home[r->home].pool, &path, r->n_ids - 1, seq);
    if (r->n_ids == r->n_prompt) find_leader(e, r, n, m);
}

/* ---- the message of a step ---- */

static void begin_request(sl_engine *e, struct request *r, int64_t now)
{
    if (r->t_admit_ns) return;
    r->t_admit_ns = now;
    r->n_cached = engine_sched_req(e, r)->n_reused;
}

struct dev_step engine_step(const sl_engine *e, int n_tok, int n_seq, int n_row)
{
    struct dev_step s = engine_room_step(e->room, n_tok, n_seq, n_row);
    s.want = DEV_WANT_LOGITS;
    return s;
}

static sl_status fault(sl_engine *e, bool wait, sl_err *err)
{
    return e->fault ? e->fault(e->fault_user, wait, err) : SL_OK;
}

static sl_status launch_and_wait(sl_engine *e, const struct dev_step *s, bool told,
                                 struct model_rows *out, sl_err *err)
{
    if (told) {
        SL_TRY(engine_ranks_end(e, s, out, err));
    } else {
        SL_TRY(fault(e, false, err));
        SL_TRY(engine_ranks_run(e, s, out, err));
    }
    return fault(e, true, err);
}

static sl_status run(sl_engine *e, const struct dev_step *s, bool told, struct model_rows *out,
                     sl_err *err)
{
    sl_err why = {0};
    SL_TRY(engine_lost(e, err));
    if (e->record) engine_record_step(e, s);
    sl_status st = launch_and_wait(e, s, told, out, &why);
    if (e->record) engine_record_result(e, s, st, out);
    if (!st) return SL_OK;
    e->stats.n_step_failed++;
    if (st == SL_DEVICE) engine_lose(e, &why);
    if (err) *err = why;
    return st;
}

sl_status engine_run(sl_engine *e, const struct dev_step *s, struct model_rows *out, sl_err *err)
{
    return run(e, s, false, out, err);
}

sl_status engine_run_told(sl_engine *e, const struct dev_step *s, struct model_rows *out,
                          sl_err *err)
{
    return run(e, s, true, out, err);
}

/* A prompt that is not computed in one piece. */
static struct dev_keep keep_of(const struct request *r, const struct sched_item *it)
{
    int end = it->pos0 + it->n_tok;
    if (it->pos0 >= r->n_prompt || (it->pos0 == 0 && end >= r->n_prompt))
        return (struct dev_keep){0, false};
    return (struct dev_keep){r->g->id * ENGINE_SAMPLE_MAX + (uint64_t)r->index + 1,
                             end >= r->n_prompt};
}

_Static_assert(SCHED_DRAFT_MAX <= DEV_STATE_BACK, "states go back by so many");

static void fill_step(sl_engine *e, const struct sched_plan *p, struct dev_step *s)
{
    int n_tok = 0, n_row = 0;
    struct step_room *room = e->room;
    unsigned want = DEV_WANT_FINITE;
    int64_t now = clock_now_ns();
    for (int i = 0; i < p->n_item; i++) {
        const struct sched_item *it = &p->item[i];
        struct request *r = e->req[it->req];
        const struct kv_seq *seq = engine_seq(e, it->seat);
        begin_request(e, r, now);
        if (r->pool) want |= DEV_WANT_HIDDEN;
        room->seq_tok0[i] = n_tok;
        e->item_row[i] = n_row;
        room->seat[i] = it->seat;
        room->n_prompt[i] = r->n_prompt;
        room->n_draft[i] = it->n_draft;
        room->keep[i] = keep_of(r, it);
        engine_cache_table(e, i, it->seat / e->n_seat, seq);
        for (int k = 0; k < it->n_tok; k++) {
            int at = k - (it->n_tok - 1 - it->n_draft); /* rows of tokens begin at 0 */
            bool draws = it->sample && at >= 0 && !r->pool;
            unsigned of_row =
                (it->all_rows ? DEV_WANT_LOGITS : 0u) | (draws ? engine_row_want(e, r, at) : 0u);
            want |= of_row;
            if (of_row) {
                room->row_want[n_row] = (uint8_t)of_row;
                room->row_tok[n_row++] = n_tok;
            }
            room->ids[n_tok] = r->ids[it->pos0 + k]; /* drafts are after the known ones */
            room->pos[n_tok++] = it->pos0 + k;
        }
    }
    room->seq_tok0[p->n_item] = n_tok;
    *s = engine_step(e, n_tok, p->n_item, n_row);
    s->row_want = room->row_want;
    s->keep = room->keep;
    s->n_draft = e->pool.has_state && p->n_draft ? room->n_draft : NULL;
    s->n_copy = engine_cache_copies(e, p);
    s->copy = room->copy;
    s->want = want;
}

/* ---- counting ---- */

static void count_step(sl_engine *e, const struct sched_plan *p, const sl_step_record *r)
{
    sl_stats *s = &e->stats;
    double share = 1.0 / p->n_tok;
    s->n_step++;
    s->n_prompt_tok += (uint64_t)r->n_prompt;
    s->n_decode_tok += (uint64_t)r->n_decode;
    s->step_ns += r->compute_ns;
    s->prefill_ns += (int64_t)((double)r->compute_ns * r->n_prompt * share);
    s->decode_ns += (int64_t)((double)r->compute_ns * r->n_decode * share);
    s->n_mixed_step += r->n_prompt && r->n_decode;
    s->last_step_ns = r->plan_ns + r->compute_ns + r->sample_ns;
    s->max_step_ns = BASE_MAX(s->max_step_ns, s->last_step_ns);
    s->plan_ns += r->plan_ns;
    s->sample_ns += r->sample_ns;
}

static int n_right(const sl_stats *s)
{
    uint64_t n = 0;
    for (int j = 0; j < SL_DRAFT_MAX; j++)
        n += s->n_right[j];
    return (int)n;
}

#ifdef SL_DEBUG
/* Every invariant of kv and sched, in debug builds after every plan. */
static void check_all(const sl_engine *e)
{
    const struct kv_seq *seq[SCHED_OWNER_MAX + 1];
    for (int h = 0; h < e->n_home; h++) {
        int n = 0;
        ASSERT(sched_check(e->home[h].sched) == 0);
        if (e->n_seat > SCHED_OWNER_MAX) return;
        for (int i = 0; i < e->n_seat; i++)
            seq[n++] = sched_seq(e->home[h].sched, i);
        if (h == 0) seq[n++] = &e->score;
        ASSERT(kv_pool_check(e->home[h].pool, seq, n) == 0);
    }
}
#else
static void check_all(const sl_engine *e)
{
    (void)e;
}
#endif

/* ---- steps that fail ---- */

/* The model has recurrent states, of which the step may have made no copies: nobody goes on. */
static void end_states(sl_engine *e, const sl_err *why)
{
    for (int slot; (slot = engine_running(e, 0)) >= 0;)
        engine_request_end(e, e->req[slot], -1, SL_FINISH_ERROR, why);
    kv_cache_drop(&e->pool);
}

/* Nothing of the step is in the prefix tree: its requests end, the others go on. */
static void end_step(sl_engine *e, const struct sched_plan *p, const sl_err *why)
{
    log_msg(LOG_WARN, "a step of %d tokens failed: %s: its %d sequences end", p->n_tok, why->text,
            p->n_item);
    for (int i = 0; i < p->n_item; i++)
        if (engine_item_req(e, &p->item[i]))
            engine_request_end(e, e->req[p->item[i].req], -1, SL_FINISH_ERROR, why);
    if (e->pool.has_state) end_states(e, why);
}

/* The device is lost: every request ends. */
static sl_status end_all(sl_engine *e, sl_err *err)
{
    int n = 0;
    for (int i = 0; i < e->n_req_max; i++)
        if (e->req[i]) {
            engine_request_end(e, e->req[i], -1, SL_FINISH_ERROR, &e->lost_err);
            n++;
        }
    engine_publish(e);
    if (!n) return engine_lost(e, err);
    return SL_FAIL(err, DEVICE, "%s in step %" PRIu64 ": %s %d request%s ended", e->lost_err.text,
                   e->stats.n_step + 1, n > 1 ? "all" : "the", n, n == 1 ? "" : "s");
}

sl_status engine_step_failed(sl_engine *e, const struct engine_lane *l, const sl_err *why,
                             sl_err *err)
{
    if (atomic_load(&e->lost)) return end_all(e, err);
    end_step(e, &l->plan, why);
    engine_publish(e);
    return SL_OK;
}

/* ---- a step ---- */

bool engine_step_begin(sl_engine *e, struct engine_lane *l)
{
    l->rec = (sl_step_record){.t0_ns = clock_now_ns()};
    l->drafted = engine_spec_propose(e, &l->passes);
    l->rec.t0_ns += e->small.ns;
    engine_plan(e, l);
    check_all(e);
    if (e->n_lane == 1) engine_away_ask(e);
    if (l->plan.n_item == 0) return false;
    fill_step(e, &l->plan, &l->step);
    l->rec.plan_ns = clock_now_ns() - l->rec.t0_ns;
    return true;
}

void engine_step_end(sl_engine *e, struct engine_lane *l, const struct model_rows *rows,
                     int64_t ns)
{
    const struct sched_plan *p = &l->plan;
    sl_step_record *rec = &l->rec;
    int64_t t0 = clock_now_ns();
    engine_homes_observe(e, l, ns);
    rec->n = e->stats.n_step + 1;
    rec->compute_ns = ns;
    rec->n_decode = p->n_decode;
    rec->n_prompt = p->n_tok - p->n_decode;
    rec->n_seq = p->n_item;
    rec->n_preempt = p->n_preempt;
    rec->n_draft = p->n_draft;
    int right0 = n_right(&e->stats);
    uint64_t answer0 = e->stats.n_answer_tok;
    engine_mtp_begin(e, p);
    engine_small_begin(e, p);
    engine_rows(e, p, rows);
    rec->sample_ns = clock_now_ns() - t0;
    rec->n_right = n_right(&e->stats) - right0;
    count_step(e, p, rec);
    int n_new = (int)(e->stats.n_answer_tok - answer0);
    l->drafted = engine_mtp_run(e, p, &l->passes) || l->drafted;
    engine_spec_observe(e, p, n_new, e->stats.last_step_ns, l->drafted ? &l->passes : NULL);
    engine_publish(e);
    engine_hot_idle(e);
    rec->n_running = e->stats.n_running;
    rec->n_waiting = e->stats.n_waiting;
    rec->kv_used_tok = e->stats.kv_used_tok;
    if (e->opts.on_step) e->opts.on_step(e->opts.step_user, rec);
}

/* Where there is one lane. */
static sl_status one_step(sl_engine *e, sl_err *err)
{
    struct engine_lane *l = &e->lane[0];
    struct model_rows rows;
    sl_err why = {0};
    if (!engine_step_begin(e, l)) {
        engine_publish(e);
        engine_apart_idle(e);
        return SL_OK;
    }
    int64_t t0 = clock_now_ns();
    engine_give_watch(e, &l->plan);
    sl_status st = engine_run(e, &l->step, &rows, &why);
    engine_give_watch(e, NULL);
    if (st) return engine_step_failed(e, l, &why, err);
    engine_step_end(e, l, &rows, clock_now_ns() - t0);
    return SL_OK;
}

sl_status sl_step(sl_engine *e, sl_err *err)
{
    sl_err why = {0};
    if (e->remote) return e->remote->step(e->remote->user, err);
    engine_intake(e);
    engine_away_step(e);
    engine_give_step(e);
    if (engine_rebalance_step(e, &why)) engine_lose(e, &why);
    if (atomic_load(&e->lost)) return end_all(e, err);
    return e->n_lane > 1 ? engine_lanes_step(e, err) : one_step(e, err);
}
