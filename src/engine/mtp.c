/* SPDX-License-Identifier: Apache-2.0 */
/* Drafts of the model's MTP layers. After the rows of a step were drawn, the layer's pass of the
 * same step runs over every token that the step computed and kept: on the hidden state of its
 * position and the token after it, which is known by now. That stores the layer's keys and values
 * (its entries) along prompts and answers, and the row of a sequence's last position guesses the
 * token after the known ones. More passes, of one row per sequence, take the layer's own hidden
 * state and guess and make the next guess; what they store is overwritten by the pass of a later
 * step before anything reads it.
 *
 * Of several layers each has such a pass, over what the layer before made of a position and the
 * token one further on (passes.c), and entries at the same places. What comes after a step's last
 * position is not known two tokens on: there a guess takes the token's place, in the entry too, and
 * is not mended where it was wrong. So the guesses of later layers are a little worse than they
 * might be, and after a hit not quite those without it.
 *
 * The layer reads no entry that was not stored. A sequence's entries are a chain: those of
 * positions [mtp_from, mtp_done). Where one is missing, because the layer was off or another
 * request left a block of the prefix tree without them, the chain begins anew at the next block,
 * and the layer sees the sequence as if it began there. m->from says of every block where the chain
 * began that filled it, so a hit in the tree goes on with it.
 *
 * An entry depends on the token after its position, that of a block's last one on the first token
 * of the next block. So where there is the layer the prefix tree's key of a block has that token
 * (kv_path.ahead), and a hit changes no draft. It costs hits a block where two texts part exactly
 * at its end. (The other way, entries that stand one position later, needs a hidden state kept
 * per block and attention that leaves out the first position.) For the same reason a sample of a
 * prompt that gets another first token than the first sample computes the prompt's last position
 * again, in a copy of its block. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/engine_internal.h"

#define NO_CHAIN (-1)
/* A chain that begins anew guesses worse than one that has seen the prompt. */
#define ANEW_LEAST 64 /* known tokens that it must have to begin with, or */
#define ANEW_AT 1024  /* of an answer that is so long already */

/* ---- chains ---- */

static const int32_t *table_of(const sl_engine *e, int i)
{
    return engine_table(e, e->mtp.group, i);
}

/* The sequence's block j, as a table has it; -1: nobody sees it any more. */
static int32_t block_of(const sl_engine *e, int home, const struct kv_seq *seq, int j)
{
    int32_t blk = seq->blk[j];
    if (e->mtp.group == DEV_KV_WINDOW) blk = kv_win_of(e->home[home].pool, blk);
    return blk < 0 ? -1 : engine_blk0(e, home, e->mtp.group) + blk;
}

/* Where the chain begins that fills all blocks before position pos, the end of a block, that the
 * layer sees from there. */
static int chain_of(const sl_engine *e, const int32_t *blk, int pos)
{
    const struct arch_cfg *c = &e->m->cfg;
    int n = pos / ENGINE_BLK_TOK, from = n ? e->mtp.from[blk[n - 1]] : 0, first = BASE_MAX(from, 0);
    if (e->mtp.group == DEV_KV_WINDOW)
        first = BASE_MAX(first, pos + 1 - c->layer[c->n_layer].n_window);
    for (int j = first / ENGINE_BLK_TOK; j < n; j++)
        if (e->mtp.from[blk[j]] != from) return NO_CHAIN;
    return from;
}

static int up(int pos)
{
    return engine_blocks(pos) * ENGINE_BLK_TOK;
}

/* Where the chain of item i begins that its tokens go on with, or begins anew; NO_CHAIN: the
 * layer has seen too little of the sequence, so that its guesses would be worth little and would
 * say nothing about those for others. */
static int chain_before(const sl_engine *e, const struct request *r, const struct sched_item *it,
                        int i)
{
    int from = it->pos0 == r->mtp_done ? r->mtp_from : NO_CHAIN, anew = up(it->pos0);
    bool must = e->spec.plan.always || r->g->n_draft > 0;
    if (it->pos0 % ENGINE_BLK_TOK == 0) from = chain_of(e, table_of(e, i), it->pos0);
    if (from != NO_CHAIN) return from;
    return must || r->n_ids - anew >= ANEW_LEAST || it->pos0 >= ANEW_AT ? anew : NO_CHAIN;
}

void engine_mtp_begin(sl_engine *e, const struct sched_plan *p)
{
    struct engine_mtp *m = &e->mtp;
    if (!m->on) return;
    bool off = spec_plan_drafter_is_off(&e->spec.plan);
    for (int i = 0; i < p->n_item; i++) {
        const struct sched_item *it = &p->item[i];
        struct request *r = engine_item_req(e, it);
        struct engine_mtp_item *x = &m->item[i];
        if (!r) x->in = false;
        if (!r) continue;
        const struct group *g = r->g;
        *x = (struct engine_mtp_item){.n_known = it->n_tok - it->n_draft - it->sample,
                                      .done = NO_CHAIN};
        x->from = chain_before(e, r, it, i);
        x->in = !r->pool && g->n_draft >= 0 && (!off || g->n_draft > 0) && x->from != NO_CHAIN;
        for (int j = it->pos0 / ENGINE_BLK_TOK; j * ENGINE_BLK_TOK < it->pos0 + it->n_tok; j++)
            m->from[table_of(e, i)[j]] = NO_CHAIN;
        for (int k = 0; k < x->n_known; k++)
            m->next[e->room->seq_tok0[i] + k] = r->ids[it->pos0 + k + 1];
        if (!x->in) r->mtp_done = NO_CHAIN;
    }
}

/* ---- samples of one prompt ---- */

/* They share its entries but that of its last position, which depends on the first token. A window
 * and a state can not go back to it: there the entry stays the first sample's. */
void engine_mtp_fork(sl_engine *e, struct request *r, int32_t first)
{
    const struct engine_mtp *m = &e->mtp;
    const struct kv_pool *pool = e->home[r->home].pool;
    bool may = m->on && r->has_spec && e->n_lane == 1 && pool->n_win == 0 && !pool->has_state;
    if (!may || r->ids[r->n_prompt] == first || spec_plan_drafter_is_off(&e->spec.plan)) return;
    (void)sched_rewind(engine_sched(e, r), r->slot, r->n_prompt - 1);
}

/* Samples share the prompt of item it, which was computed just now. */
static bool has_forks(const sl_engine *e, const struct sched_item *it)
{
    int slot;
    for (int k = 0; (slot = engine_running(e, k)) >= 0; k++)
        if (e->req[slot]->mtp_like == it->req + 1) return true;
    return false;
}

/* They go on with its chain. */
static void fork_chains(sl_engine *e, const struct sched_plan *p)
{
    int slot;
    for (int k = 0; (slot = engine_running(e, k)) >= 0; k++) {
        struct request *r = e->req[slot];
        for (int i = 0; i < p->n_item && r->mtp_like; i++) {
            const struct engine_mtp_item *x = &e->mtp.item[i];
            if (p->item[i].req != r->mtp_like - 1) continue;
            r->mtp_from = x->from;
            r->mtp_done = BASE_MIN(x->done, engine_sched_req(e, r)->n_done);
        }
        r->mtp_like = 0;
    }
}

/* ---- the tokens of a pass ---- */

/* The tokens of item i that stay; r: NULL where its request is over. *first: the position from
 * which on they go into the pass. Those before it are of no chain, or of a block that was given up
 * for an equal one of the tree, which has its entries or will never have all of them. The block
 * before the item's may have been given up only now that the token after it was known. */
static int tokens_of(sl_engine *e, const struct request *r, const struct sched_item *it, int i,
                     int *first)
{
    struct engine_mtp_item *x = &e->mtp.item[i];
    const int32_t *old = engine_table(e, DEV_KV_PAGED, i);
    const struct kv_seq *seq = r ? engine_seq(e, it->seat) : NULL;
    int home = it->seat / e->n_seat, blk0 = engine_blk0(e, home, DEV_KV_PAGED);
    const struct kv_pool *pool = e->home[home].pool;
    int n = r ? engine_sched_req(e, r)->n_done - it->pos0 : x->n_known;
    int j = it->pos0 / ENGINE_BLK_TOK;
    bool shared = !r && has_forks(e, it);
    *first = it->pos0;
    if (r && j > 0) j--;
    for (; j * ENGINE_BLK_TOK < it->pos0 + n; j++) {
        int end = (j + 1) * ENGINE_BLK_TOK;
        if (!r && !shared && (!pool->node || !pool->node[old[j] - blk0].in_tree)) break;
        if (!r || blk0 + seq->blk[j] == old[j] || end <= x->from) continue;
        int32_t now = block_of(e, home, seq, j);
        if (now < 0) continue;
        int has = e->mtp.from[now];
        if (has == NO_CHAIN && end - ENGINE_BLK_TOK >= it->pos0) continue; /* it gets them now */
        if (has != x->from) x->from = up(BASE_MAX(end, it->pos0));
        *first = BASE_MAX(*first, end);
    }
    if (!r && !shared) /* nobody finds the other blocks */
        n = BASE_MIN(n, j * ENGINE_BLK_TOK - it->pos0);
    *first = BASE_MAX(*first, x->from);
    return n;
}

/* The table of item i as that of sequence s of the pass, from the chain's first block on. The
 * arrays are still those of the step: entries up to the item's own are free. */
static void move_table(sl_engine *e, const struct request *r, const struct sched_item *it, int i,
                       int s)
{
    if (r) engine_cache_table(e, i, it->seat / e->n_seat, engine_seq(e, it->seat));
    engine_cache_move(e, i, e->mtp.item[i].from / ENGINE_BLK_TOK, s);
}

/* The tokens of item i into the engine's arrays as the next sequence of the pass; how many. */
static int add_item(sl_engine *e, const struct request *r, const struct sched_item *it, int i,
                    struct engine_pass at)
{
    const struct engine_mtp *m = &e->mtp;
    const struct engine_drafter *d = &e->drafter;
    struct step_room *room = e->room;
    struct engine_mtp_item *x = &e->mtp.item[i];
    int first, row0 = room->seq_tok0[i], n_prompt = room->n_prompt[i];
    int home = it->seat / e->n_seat;
    int n = tokens_of(e, r, it, i, &first), k0 = first - it->pos0;
    x->done = it->pos0 + n;
    if (k0 >= n) return 0;
    for (int j = first / ENGINE_BLK_TOK; (j + 1) * ENGINE_BLK_TOK <= it->pos0 + n; j++) {
        int32_t b = r ? block_of(e, home, engine_seq(e, it->seat), j) : table_of(e, i)[j];
        if (b >= 0) m->from[b] = x->from;
    }
    move_table(e, r, it, i, at.seq);
    room->seq_tok0[at.seq] = at.tok;
    room->seat[at.seq] = it->seat;
    room->n_prompt[at.seq] = BASE_MAX(n_prompt - x->from, 0);
    for (int k = k0; k < n; k++) {
        int t = at.tok + k - k0;
        d->ids[t] = r ? r->ids[it->pos0 + k + 1] : m->next[row0 + k];
        d->pos[t] = it->pos0 + k - x->from;
        d->hidden_row[t] = row0 + k;
    }
    e->drafter.after[at.seq] = r ? r->ids + x->done + 1 : NULL;
    e->drafter.n_after[at.seq] = r ? BASE_MAX(r->n_ids - (x->done + 1), 0) : 0;
    return n - k0;
}

/* All items into the arrays; rows are wanted of those that get a draft. */
static struct engine_pass add_items(sl_engine *e, const struct sched_plan *p)
{
    struct engine_mtp *m = &e->mtp;
    struct engine_pass at = {0, 0, 0};
    for (int i = 0; i < p->n_item; i++) {
        const struct sched_item *it = &p->item[i];
        struct request *r = engine_item_req(e, it);
        if (!m->item[i].in) continue;
        int n = add_item(e, r, it, i, at);
        if (r) {
            r->mtp_from = m->item[i].from;
            r->mtp_done = m->item[i].done;
        }
        if (n == 0) continue;
        at.tok += n;
        at.seq++;
        if (!r || !r->has_spec || !it->sample) continue;
        struct engine_drafter_row *row = &e->drafter.row[at.row];
        const struct kv_seq *seq = engine_seq(e, it->seat);
        *row = (struct engine_drafter_row){.r = r, .seq = at.seq - 1};
        row->end = seq->n_blk * ENGINE_BLK_TOK - r->mtp_from;
        e->drafter.row_tok[at.row++] = at.tok - 1;
    }
    e->room->seq_tok0[at.seq] = at.tok;
    fork_chains(e, p);
    return at;
}

/* ---- passes ---- */

void engine_mtp_forget(sl_engine *e)
{
    for (int b = 0; e->mtp.from && b < e->n_home * e->pool.n_blk; b++)
        e->mtp.from[b] = NO_CHAIN;
}

/* A pass failed: what it stored is not known. A lost device ends the next step. */
static void forget(sl_engine *e, const struct sched_plan *p, const sl_err *why)
{
    log_msg(LOG_WARN, "the MTP layer failed: %s: no drafts of it for now", why->text);
    engine_mtp_forget(e);
    for (int i = 0; i < p->n_item; i++)
        if (engine_item_req(e, &p->item[i])) e->req[p->item[i].req]->mtp_done = NO_CHAIN;
}

bool engine_mtp_run(sl_engine *e, const struct sched_plan *p, struct spec_passes *t)
{
    sl_err err = {0};
    int64_t t0 = clock_now_ns();
    if (!e->mtp.on) return false;
    struct engine_pass n = add_items(e, p);
    if (!n.seq) return false;
    if (engine_passes(e, n, t0, t, &err)) forget(e, p, &err);
    return true;
}

sl_status engine_mtp_open(sl_engine *e, sl_err *err)
{
    struct engine_mtp *m = &e->mtp;
    size_t n_tok = (size_t)e->n_tok_max, n_seq = (size_t)e->n_seq_max;
    bool none = model_n_mtp(e->net) < 1;
    if (m->must && none)
        return SL_FAIL(err, REQUEST, "draft: mtp: %.120s has no MTP layer", e->m->name);
    if (e->opts.draft_vocab && none)
        return SL_FAIL(err, REQUEST, "draft_vocab: %.120s has no MTP layer", e->m->name);
    m->on = m->on && !none;
    if (!m->on && !e->opts.draft_model && strcmp(e->spec.name, "auto") == 0)
        log_msg(LOG_DEBUG, "draft: auto: %s has no MTP layer: drafts come from the text alone",
                e->m->name);
    if (!m->on) return SL_OK;
    bool window = e->pool.n_win && e->m->cfg.layer[e->m->cfg.n_layer].n_window;
    m->group = window ? DEV_KV_WINDOW : DEV_KV_PAGED; /* which has fewer blocks */
    SL_TRY(engine_array(n_tok, sizeof *m->next, &m->next, err));
    SL_TRY(engine_array(n_seq, sizeof *m->item, &m->item, err));
    SL_TRY(engine_array((size_t)(e->n_home * e->pool.n_blk), sizeof *m->from, &m->from, err));
    engine_mtp_forget(e);
    return SL_OK;
}

void engine_mtp_close(sl_engine *e)
{
    mem_free(e->mtp.next);
    mem_free(e->mtp.item);
    mem_free(e->mtp.from);
    mem_free(e->mtp.ids);
}
