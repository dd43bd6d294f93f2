/* SPDX-License-Identifier: Apache-2.0 */
/* Drafts of a small model that has the same tokens. It lies on the device of attention, and its
 * cache has blocks of the same numbers, so a sequence's table is that of both. Before a step is
 * planned it runs over what it lacks of the sequences, pieces of prompts too, and where nothing
 * else has drafts it makes guesses.
 *
 * What it stores of a position (its entry) depends on the tokens up to there only. So whatever is
 * missing, because it was off, or another request left the blocks without, is made up for later,
 * and a hit in the prefix tree changes no guess. full says of every block whether all of its
 * entries are stored; a request says how far they are in the block after those.
 *
 * A recurrent state (of the request's seat) is of one position alone. So a small model that has
 * some begins at the first token of a request, whatever is stored of it, and once more where it can
 * not go on; and its last known token and its guesses are drafts of its own steps, which may be
 * taken back.
 *
 * Guesses may need a block more than the sequence has: the spare one of its seat. What is stored
 * there is not kept. A block that samples still share before its end is copied by the next step,
 * and is not written before. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/engine_internal.h"

#define FIRST_PASS 1       /* that of the small model; the large one has no other */
#define FEW (SPEC_MAX + 1) /* tokens that a sequence which decodes may lack */

/* ---- opening ---- */

/* A token for people: its bytes, those that can be read. */
static void show(const sl_model *m, int32_t id, char *out, size_t n_out)
{
    int n = 0;
    const char *p = m->tok ? tok_bytes(m->tok, id, &n) : NULL;
    size_t k = 0;
    for (int i = 0; i < n && k + 5 < n_out; i++) {
        bool plain = p[i] >= ' ' && p[i] < 0x7f && p[i] != '"';
        k += (size_t)snprintf(out + k, n_out - k, plain ? "%c" : "\\x%02x", (unsigned char)p[i]);
    }
    out[k] = 0;
}

static sl_status same_tokens(const sl_model *a, const sl_model *b, sl_err *err)
{
    char text[2][64];
    if (!a->tok != !b->tok)
        return SL_FAIL(err, REQUEST, "draft_model: %.100s has no tokenizer, %.100s has one",
                       (a->tok ? b : a)->name, (a->tok ? a : b)->name);
    int n_a = a->tok ? tok_n_vocab(a->tok) : a->cfg.n_vocab,
        n_b = b->tok ? tok_n_vocab(b->tok) : b->cfg.n_vocab;
    if (!a->tok && n_a != n_b)
        return SL_FAIL(err, REQUEST, "draft_model: %.100s has %d tokens, %.100s %d", b->name, n_b,
                       a->name, n_a);
    for (int32_t id = 0; a->tok && id < BASE_MAX(n_a, n_b); id++) {
        int k_a = 0, k_b = 0;
        const char *x = id < n_a ? tok_bytes(a->tok, id, &k_a) : NULL,
                   *y = id < n_b ? tok_bytes(b->tok, id, &k_b) : NULL;
        if (k_a == k_b && (k_a == 0 || memcmp(x, y, (size_t)k_a) == 0)) continue;
        show(a, k_a ? id : -1, text[0], sizeof text[0]);
        show(b, k_b ? id : -1, text[1], sizeof text[1]);
        return SL_FAIL(err, REQUEST,
                       "draft_model: %.80s has other tokens than %.80s: number %d is \"%s\", not "
                       "\"%s\"",
                       b->name, a->name, (int)id, text[1], text[0]);
    }
    return SL_OK;
}

sl_status engine_small_check(sl_engine *e, sl_err *err)
{
    const sl_model *s = e->opts.draft_model;
    if (!s) return SL_OK;
    if (!s->has_cfg)
        return SL_FAIL(err, REQUEST, "draft_model: %.100s: opened for its vocabulary only",
                       s->name);
    if (e->ranks)
        return SL_FAIL(err, UNSUPPORTED, "draft_model: not with layout: ranks share one model");
    if (s->cfg.d_head_win)
        return SL_FAIL(err, UNSUPPORTED,
                       "draft_model: %.100s: heads of its layers with a window have another width",
                       s->name);
    return same_tokens(e->m, s, err);
}

/* Blocks of the large model's numbers, and a spare one of each seat; a state of each seat. */
static struct dev_kv_shape kv_shape(const sl_engine *e, const struct arch_cfg *c, int n_blk)
{
    struct dev_kv_shape s =
        model_kv_shape(c, NULL, engine_kv_type(e), n_blk + e->n_seq_max, ENGINE_BLK_TOK);
    s.group[DEV_KV_STATE].n_blk = e->n_seq_max;
    return s;
}

int64_t engine_small_kv_bytes(const sl_engine *e, int n_blk)
{
    struct arch_cfg c;
    if (!e->opts.draft_model) return 0;
    c = e->opts.draft_model->cfg;
    c.paged = true;
    c.n_mtp = 0;
    struct dev_kv_shape s = kv_shape(e, &c, n_blk);
    return dev_kv_bytes(e->d, &s);
}

sl_status engine_small_load(sl_engine *e, int n_blk, sl_err *err)
{
    struct engine_small *s = &e->small;
    const sl_model *m = e->opts.draft_model;
    const io_pack *pack = NULL;
    if (!m) return SL_OK;
    SL_TRY(engine_pack_of(m, e->d, &pack, err));
    struct model_opts o = {.n_tok_max = e->n_tok_max,
                           .n_seq_max = e->n_seq_max,
                           .n_ctx = e->n_ctx,
                           .blk_tok = ENGINE_BLK_TOK,
                           .n_logit_max = e->n_seq_max,
                           .kv = engine_kv_type(e),
                           .no_mtp = true,
                           .pack = pack,
                           .first_pass = FIRST_PASS,
                           .paged = true,
                           .edit = m->edit,
                           .progress = e->opts.progress,
                           .user = e->opts.user};
    sl_status st = model_open(m->io, e->d, &o, &s->net, err);
    if (st) {
        status_prefix(err, "draft_model: %.100s", m->name);
        return st;
    }
    if (e->n_ctx > m->cfg.n_ctx_train)
        log_msg(LOG_WARN,
                "context of %d tokens is more than the %d that %.100s was trained on: its guesses "
                "get worse there",
                e->n_ctx, m->cfg.n_ctx_train, m->name);
    s->has_state = engine_kv_has(model_config(s->net), DEV_KV_STATE);
    struct dev_kv_shape shape = kv_shape(e, model_config(s->net), n_blk);
    return dev_kv_open(e->d, &shape, &s->kv, err);
}

sl_status engine_small_open(sl_engine *e, sl_err *err)
{
    struct engine_small *s = &e->small;
    if (!s->net) return SL_OK;
    s->on = true;
    return engine_array((size_t)e->pool.n_blk, sizeof *s->full, &s->full, err);
}

void engine_small_close(sl_engine *e)
{
    mem_free(e->small.full);
    model_close(e->small.net);
}

/* ---- which entries are stored ---- */

void engine_small_begin(sl_engine *e, const struct sched_plan *p)
{
    struct engine_small *s = &e->small;
    if (!s->on) return;
    for (int i = 0; i < p->n_item; i++) {
        const struct sched_item *it = &p->item[i];
        struct request *r = e->req[it->req];
        const struct kv_seq *seq = sched_seq(&e->sched, it->seat);
        bool goes_on = it->pos0 == r->small_at && it->copy_src < 0;
        int j = it->pos0 / ENGINE_BLK_TOK + (goes_on && it->pos0 % ENGINE_BLK_TOK);
        if (!goes_on) r->small_blk = 0;
        for (; j * ENGINE_BLK_TOK < it->pos0 + it->n_tok; j++)
            s->full[seq->blk[j]] = false;
    }
}

/* The entries of positions [from, to) are stored. */
static void settle(sl_engine *e, struct request *r, int from, int to)
{
    struct engine_small *s = &e->small;
    const struct kv_seq *seq = engine_req_seq(e, r);
    to = BASE_MIN(to, seq->n_blk * ENGINE_BLK_TOK);
    for (int j = from / ENGINE_BLK_TOK; j * ENGINE_BLK_TOK < to; j++)
        s->full[seq->blk[j]] = (j + 1) * ENGINE_BLK_TOK <= to;
    r->small_done = to;
    r->small_blk = to ? 1 + seq->blk[(to - 1) / ENGINE_BLK_TOK] : 0;
}

/* Count r's entries that are stored, from the first on: small_done. Those of guesses are, as far as
 * the guesses have become tokens. */
static void count_stored(sl_engine *e, struct request *r)
{
    const struct engine_small *s = &e->small;
    const struct kv_seq *seq = engine_req_seq(e, r);
    int j = 0, last = BASE_MAX(r->small_done - 1, 0) / ENGINE_BLK_TOK;
    bool kept = r->small_blk && last < seq->n_blk && seq->blk[last] == r->small_blk - 1;
    int k = r->small_done;
    while (kept && k < r->small_end && k < r->n_ids && r->spec.offer_at == r->small_done &&
           r->ids[k] == r->spec.offer[k - r->small_done])
        k++;
    r->small_end = 0;
    if (k > r->small_done && kept) settle(e, r, r->small_done, k);
    while (j < seq->n_blk && s->full[seq->blk[j]])
        j++;
    if (kept && (r->small_done - 1) / ENGINE_BLK_TOK == j) return;
    r->small_blk = 0;
    r->small_done = BASE_MIN(j * ENGINE_BLK_TOK, r->n_ids);
}

/* Where the seat's state can not go on after what is stored, nothing is. */
static void count_state(sl_engine *e, struct request *r)
{
    bool is_mine = r->small_start == engine_sched_req(e, r)->start;
    int more = r->small_done - r->small_state;
    if (!e->small.has_state || (is_mine && more >= 0 && more <= r->small_back)) return;
    r->small_done = r->small_blk = 0;
}

/* A pass takes r's tokens up to end, the last n_draft of them as drafts. */
static void settle_state(sl_engine *e, struct request *r, int end, int n_draft)
{
    r->small_start = engine_sched_req(e, r)->start;
    r->small_state = end - n_draft;
    r->small_back = n_draft;
}

/* ---- the tokens of a pass ---- */

/* As far as end, the positions of r whose entries may be stored. */
static int may_store(const sl_engine *e, const struct request *r, int from, int end)
{
    const struct sched_req *q = engine_sched_req(e, r);
    const struct kv_seq *seq = engine_req_seq(e, r);
    int n_vocab = model_config(e->small.net)->n_vocab, last = q->n_done / ENGINE_BLK_TOK;
    for (int t = from; t < end; t++)
        if (r->ids[t] >= n_vocab) end = t; /* one without a name, which only ids can ask for */
    bool shared = last < seq->n_blk && e->pool.ref[seq->blk[last]] > 1;
    return shared ? BASE_MIN(end, BASE_MAX(last * ENGINE_BLK_TOK, from)) : end;
}

/* r's tokens from its first that is not stored to end into the arrays; wants: with a guess. */
static void add(sl_engine *e, struct request *r, int end, bool wants, struct engine_pass *at)
{
    struct engine_drafter *d = &e->drafter;
    struct step_room *room = e->room;
    const struct sched_req *q = engine_sched_req(e, r);
    const struct kv_seq *seq = engine_req_seq(e, r);
    int from = BASE_MIN(r->small_done, end - wants), most = e->n_tok_max - at->tok;
    int to = may_store(e, r, from, BASE_MIN(end, from + most));
    r->small_wants = false;
    if (to <= from) return;
    room->seq_tok0[at->seq] = at->tok;
    engine_cache_table(e, at->seq, 0, seq);
    if (seq->n_blk < e->ld_blk)
        engine_table(e, DEV_KV_PAGED, at->seq)[seq->n_blk] = e->pool.n_blk + q->seat;
    room->seat[at->seq] = q->seat;
    room->n_prompt[at->seq] = r->n_prompt;
    for (int t = from; t < to; t++) {
        d->ids[at->tok] = r->ids[t];
        d->pos[at->tok++] = t;
    }
    room->n_draft[at->seq] = wants && to == end;
    settle_state(e, r, to, room->n_draft[at->seq]);
    if (wants && to == end) {
        struct engine_drafter_row *row = &d->row[at->row];
        *row = (struct engine_drafter_row){.r = r, .seq = at->seq, .guess = -1};
        row->end = BASE_MIN(seq->n_blk + 1, e->ld_blk) * ENGINE_BLK_TOK;
        d->row_tok[at->row++] = at->tok - 1;
    }
    settle(e, r, from, to);
    room->seq_tok0[++at->seq] = at->tok;
}

/* Where r's tokens end that the pass takes. */
static int end_of(const sl_engine *e, const struct request *r)
{
    return r->small_wants ? r->n_ids : engine_sched_req(e, r)->n_done;
}

static struct engine_pass add_all(sl_engine *e, bool *many)
{
    struct engine_pass at = {0, 0, 0};
    bool off = spec_plan_drafter_is_off(&e->spec.plan);
    int slot;
    *many = false;
    for (int lacks_many = 0; lacks_many < 2; lacks_many++)
        for (int i = 0; (slot = sched_running(&e->sched, i)) >= 0; i++) {
            struct request *r = e->req[slot];
            if (!r->has_spec || (off && r->g->n_draft <= 0)) continue;
            if (!lacks_many) {
                count_stored(e, r);
                count_state(e, r);
            }
            int end = end_of(e, r), n = end - r->small_done + r->small_wants;
            if (n <= 0 || (n > FEW) != lacks_many || at.tok >= e->n_tok_max) continue;
            *many = *many || lacks_many;
            add(e, r, end, r->small_wants, &at);
        }
    return at;
}

/* ---- running ---- */

sl_status engine_small_launch(sl_engine *e, const struct dev_step *s, struct model_rows *out,
                              sl_err *err)
{
    SL_TRY(model_launch(e->small.net, e->small.kv, s, err));
    return model_wait(e->small.net, out, err);
}

/* A pass failed: what it stored is not known. A lost device ends the next step. */
static void forget(sl_engine *e, const sl_err *why)
{
    int slot;
    log_msg(LOG_WARN, "the small model failed: %s: no drafts of it for now", why->text);
    memset(e->small.full, 0, (size_t)e->pool.n_blk * sizeof *e->small.full);
    for (int i = 0; (slot = sched_running(&e->sched, i)) >= 0; i++)
        e->req[slot]->small_blk = 0, e->req[slot]->small_start = 0;
}

bool engine_small_run(sl_engine *e, struct spec_passes *t)
{
    sl_err err = {0};
    int64_t t0 = clock_now_ns();
    bool many;
    struct engine_pass n = add_all(e, &many);
    if (n.seq && engine_passes(e, n, t0, t, &err)) forget(e, &err);
    e->small.ns = n.seq ? clock_now_ns() - t0 : 0;
    int slot;
    for (int i = 0; (slot = sched_running(&e->sched, i)) >= 0; i++) {
        struct request *r = e->req[slot];
        const struct sched_req *q = engine_sched_req(e, r);
        const struct kv_seq *seq = engine_req_seq(e, r);
        r->small_at = q->n_done;
        if (!r->has_spec || r->spec.offer_at != r->n_ids || r->small_done != r->n_ids) continue;
        r->small_end = BASE_MIN(r->n_ids + r->spec.n_offer - 1, seq->n_blk * ENGINE_BLK_TOK);
        r->small_back = BASE_MAX(r->spec.n_offer, 1);
    }
    return n.seq && !many;
}
