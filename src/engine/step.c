/* SPDX-License-Identifier: Apache-2.0 */
/* The step loop: schedule, compute, choose, tell. Nothing here allocates. */
#include <string.h>

#include "base/clock.h"
#include "engine/engine_internal.h"

/* Offer the next request the parked tokens with which it has most in common. */
static void offer(sl_engine *e)
{
    int slot = sched_next_waiting(&e->sched);
    if (slot < 0 || e->opts.no_reuse) return;
    const struct request *r = e->req[slot];
    int best = 0, best_run = -1;
    for (int run = 0; run < e->n_seq_max; run++) {
        if (!e->sched.run[run].parked) continue;
        const struct parked *p = &e->parked[run];
        int n = 0, cap = BASE_MIN(p->n, r->n_prompt - 1); /* the last token's logits are wanted */
        while (n < cap && p->ids[n] == r->ids[n])
            n++;
        if (n > best) best = n, best_run = run;
    }
    if (best_run >= 0) sched_offer(&e->sched, slot, best_run, best);
}

static void fill_batch(sl_engine *e, const struct sched_plan *p, struct model_batch *b)
{
    int n_tok = 0, n_logit = 0;
    for (int i = 0; i < p->n_item; i++) {
        const struct sched_item *it = &p->item[i];
        const struct request *r = e->req[it->req];
        const struct kv_seq *seq = &e->sched.run[it->run].seq;
        if (it->copy_src >= 0) dev_kv_copy(e->d, e->kv, it->copy_src, it->copy_dst);
        e->seq_tok0[i] = n_tok;
        e->n_prompt[i] = r->n_prompt;
        memcpy(e->blk + (int64_t)i * e->ld_blk, seq->blk, (size_t)seq->n_blk * sizeof *seq->blk);
        for (int k = 0; k < it->n_tok; k++) {
            e->ids[n_tok] = r->ids[it->pos0 + k];
            e->pos[n_tok++] = it->pos0 + k;
        }
        if (it->sample) {
            e->logit_item[n_logit] = i;
            e->logit_tok[n_logit++] = n_tok - 1;
        }
    }
    e->seq_tok0[p->n_item] = n_tok;
    *b = (struct model_batch){.n_tok = n_tok,
                              .n_seq = p->n_item,
                              .ids = e->ids,
                              .pos = e->pos,
                              .seq_tok0 = e->seq_tok0,
                              .blk = e->blk,
                              .ld_blk = e->ld_blk,
                              .n_prompt = e->n_prompt,
                              .n_logit = n_logit,
                              .logit_tok = e->logit_tok};
}

static bool in_list(const int32_t *list, int n, int32_t id)
{
    for (int i = 0; i < n; i++)
        if (list[i] == id) return true;
    return false;
}

static sl_status choose(sl_engine *e, const struct request *r, const float *logit, int32_t *token,
                        sl_err *err)
{
    const struct group *g = r->g;
    bool early = r->n_ids - r->n_prompt < g->min_new;
    struct engine_draw d = {.logit = logit,
                            .p = &g->sampling,
                            .known = r->ids,
                            .n_prompt = r->n_prompt,
                            .n_known = r->n_ids,
                            .forbid = {e->m->hole, e->m->eog, g->stop_id},
                            .n_forbid = {e->m->n_hole, early && !g->ignore_eos ? e->m->n_eog : 0,
                                         early ? g->n_stop_id : 0},
                            .stream = (uint64_t)r->index,
                            .index = (uint64_t)(r->n_ids - r->n_prompt)};
    return engine_sample(&e->sampler, &d, token, err);
}

/* The text that a token makes visible: *n_out bytes at the front of held. True when a stop string
 * follows. */
static sl_status put_text(sl_engine *e, struct request *r, int32_t token, bool last, size_t *n_out,
                          bool *stopped, sl_err *err)
{
    struct engine_stop *s = &r->stop;
    *n_out = 0;
    *stopped = false;
    if (!e->m->tok) return SL_OK;
    if (token >= 0)
        SL_TRY(tok_stream_put(e->m->tok, &r->stream, token, r->g->keep_special, &s->held, err));
    *stopped = engine_stop_scan(s, n_out);
    if (*stopped || !last) return SL_OK;
    SL_TRY(tok_stream_end(&r->stream, &s->held, err));
    *stopped = engine_stop_scan(s, n_out);
    if (!*stopped) *n_out = s->held.n;
    return SL_OK;
}

/* What one row's logits lead to. */
static void answer(sl_engine *e, struct request *r, const float *logit)
{
    sl_err err = {0};
    int32_t token = -1;
    size_t n_out = 0;
    bool stopped = false;
    sl_event ev = {.prompt_pos = -1};
    if (e->tap) e->tap(e->tap_user, r, logit);
    if (choose(e, r, logit, &token, &err)) {
        engine_request_end(e, r, -1, SL_FINISH_ERROR, &err);
        return;
    }
    if (!r->t_first_ns) r->t_first_ns = clock_now_ns();
    if (r->g->n_top >= 0) {
        engine_logprobs(logit, e->n_vocab, token, r->g->n_top, &ev.logprob,
                        e->top);
        ev.top = e->top;
        ev.n_top = r->g->n_top;
    }
    r->ids[r->n_ids++] = token;
    int n_new = r->n_ids - r->n_prompt;
    sl_finish finish = SL_FINISH_NONE;
    if (!r->g->ignore_eos && in_list(e->m->eog, e->m->n_eog, token))
        finish = SL_FINISH_STOP;
    else if (in_list(r->g->stop_id, r->g->n_stop_id, token))
        finish = SL_FINISH_STOP_STRING;
    bool silent = finish != SL_FINISH_NONE; /* the token that ends is not text */
    if (!silent && n_new >= r->g->max_new) finish = SL_FINISH_LENGTH;
    if (put_text(e, r, silent ? -1 : token, finish != SL_FINISH_NONE, &n_out, &stopped, &err)) {
        engine_request_end(e, r, token, SL_FINISH_ERROR, &err);
        return;
    }
    if (stopped) finish = SL_FINISH_STOP_STRING;
    ev.token = token;
    ev.text = str_c(&r->stop.held);
    ev.n_text = n_out;
    if (finish == SL_FINISH_NONE) {
        sched_push(&e->sched, r->slot);
        engine_event(e, r, &ev);
        engine_stop_drop(&r->stop, n_out);
        return;
    }
    ev.finish = finish;
    engine_request_done(e, r, &ev);
}

static void count_step(sl_engine *e, const struct sched_plan *p, int64_t ns)
{
    int n_prompt = p->n_tok - p->n_decode;
    e->stats.n_step++;
    e->stats.n_prompt_tok += (uint64_t)n_prompt;
    e->stats.n_decode_tok += (uint64_t)p->n_decode;
    e->stats.step_ns += ns;
    e->stats.prefill_ns += (int64_t)((double)ns * n_prompt / p->n_tok);
    e->stats.decode_ns += (int64_t)((double)ns * p->n_decode / p->n_tok);
}

sl_status sl_step(sl_engine *e, sl_err *err)
{
    (void)err; /* no step of this device can fail; a request that fails ends by its event */
    struct model_batch b;
    const float *logits = NULL;
    engine_intake(e);
    uint64_t n_alloc = mem_n_alloc();
    offer(e);
    const struct sched_plan *p = sched_step(&e->sched);
    DEBUG_ASSERT(sched_check(&e->sched) == 0);
    if (p->n_item == 0) {
        engine_publish(e);
        return SL_OK;
    }
    fill_batch(e, p, &b);
    int64_t t0 = clock_now_ns();
    model_step(e->net, e->kv, &b, &logits, NULL);
    count_step(e, p, clock_now_ns() - t0);
    DEBUG_ASSERT(mem_n_alloc() == n_alloc);
    (void)n_alloc;
    for (int i = 0; i < b.n_logit; i++) {
        const struct sched_item *it = &p->item[e->logit_item[i]];
        struct request *r = e->req[it->req];
        if (it->pos0 < r->n_prompt) r->n_cached = e->sched.req[it->req].n_reused;
        answer(e, r, logits + (int64_t)i * e->n_vocab);
    }
    engine_publish(e);
    return SL_OK;
}

/* ---- scoring ---- */

static sl_status score_chunk(sl_engine *e, const int32_t *ids, int n, int pos0, int n_chunk,
                             int first_row, const float **logits, int *n_row, sl_err *err)
{
    int32_t src, dst;
    SL_TRY(kv_seq_grow(&e->pool, &e->score, n_chunk, &src, &dst, err));
    int n_logit = 0;
    for (int i = 0; i < n_chunk; i++) {
        e->pos[i] = pos0 + i;
        if (pos0 + i >= first_row) e->logit_tok[n_logit++] = i;
    }
    e->seq_tok0[0] = 0;
    e->seq_tok0[1] = n_chunk;
    e->n_prompt[0] = n;
    struct model_batch b = {.n_tok = n_chunk,
                            .n_seq = 1,
                            .ids = ids + pos0,
                            .pos = e->pos,
                            .seq_tok0 = e->seq_tok0,
                            .blk = e->score.blk,
                            .ld_blk = e->ld_blk,
                            .n_prompt = e->n_prompt,
                            .n_logit = n_logit,
                            .logit_tok = e->logit_tok};
    model_step(e->net, e->kv, &b, logits, NULL);
    *n_row = n_logit;
    return SL_OK;
}

sl_status sl_score(sl_engine *e, const int32_t *ids, int n, int first_row,
                   int (*on_rows)(void *user, int row0, int n_row, const float *logits), void *user,
                   sl_err *err)
{
    sl_status st = SL_OK;
    if (n < 1 || n > e->n_ctx)
        return SL_FAIL(err, REQUEST, "ids: %d tokens: from 1 to the context of %d", n, e->n_ctx);
    if (first_row < 0 || first_row >= n)
        return SL_FAIL(err, REQUEST, "first_row: %d: from 0 to %d", first_row, n - 1);
    for (int i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= e->n_vocab)
            return SL_FAIL(err, REQUEST,
                           "ids: token %d at place %d: the vocabulary has ids 0 to %d", ids[i], i,
                           e->n_vocab - 1);
    if (e->sched.n_active == 0) sched_unpark_all(&e->sched);
    for (int pos = 0; pos < n && !st;) {
        const float *logits = NULL;
        int n_row = 0, n_chunk = BASE_MIN(n - pos, e->opts.n_chunk);
        if (pos + n_chunk > first_row)
            n_chunk = BASE_MIN(n_chunk, BASE_MAX(first_row - pos, 0) + e->n_logit_max);
        st = score_chunk(e, ids, n, pos, n_chunk, first_row, &logits, &n_row, err);
        if (!st && n_row && on_rows(user, pos + n_chunk - n_row, n_row, logits))
            st = SL_FAIL(err, CANCELLED, "cancelled");
        pos += n_chunk;
    }
    kv_seq_clear(&e->pool, &e->score);
    return st;
}

struct copy_rows {
    float *out;
    int first_row, n_vocab;
};

static int copy_rows(void *user, int row0, int n_row, const float *logits)
{
    struct copy_rows *c = user;
    memcpy(c->out + (int64_t)(row0 - c->first_row) * c->n_vocab, logits,
           (size_t)n_row * (size_t)c->n_vocab * sizeof *logits);
    return 0;
}

sl_status sl_logits(sl_engine *e, const int32_t *ids, int n, int first_row, float *out, sl_err *err)
{
    struct copy_rows c = {out, first_row, e->n_vocab};
    return sl_score(e, ids, n, first_row, copy_rows, &c, err);
}
