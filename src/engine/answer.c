/* SPDX-License-Identifier: Apache-2.0 */
/* What the rows of a step lead to: tokens, text, echoed prompts, embeddings, ends. Nothing here
 * allocates. */
#include <string.h>

#include "base/clock.h"
#include "engine/engine_internal.h"

static bool in_list(const int32_t *list, int n, int32_t id)
{
    for (int i = 0; i < n; i++)
        if (list[i] == id) return true;
    return false;
}

/* Which tokens a grammar allows next, into e->mask. */
static sl_status mask_of(sl_engine *e, struct request *r, sl_err *err)
{
    if (!r->grammar) return SL_OK;
    int64_t t0 = clock_now_ns();
    sl_status st = engine_grammar_mask(r->grammar, e->mask, err);
    e->stats.n_mask++;
    e->stats.mask_ns += clock_now_ns() - t0;
    return st;
}

/* *done: a grammar says that the answer is complete. */
static sl_status choose(sl_engine *e, struct request *r, const struct engine_pick *pick,
                        int32_t *token, bool *done, sl_err *err)
{
    SL_TRY(mask_of(e, r, err));
    SL_TRY(engine_pick_one(e, r, pick, r->grammar ? e->mask : NULL, token, err));
    return r->grammar ? engine_grammar_push(r->grammar, *token, done, err) : SL_OK;
}

/* A token's text onto held, as keep_special has it. */
static sl_status put_token(sl_engine *e, struct request *r, int32_t token, sl_err *err)
{
    struct str *held = &r->stop.held;
    bool mark = r->g->keep_special == 2 && tok_is_special(e->m->tok, token);
    if (!mark)
        return tok_stream_put(e->m->tok, &r->stream, token, r->g->keep_special == 1, held, err);
    SL_TRY(tok_stream_end(&r->stream, held, err));
    str_putc(held, (char)SL_MARK);
    SL_TRY(tok_stream_put(e->m->tok, &r->stream, token, true, held, err));
    SL_TRY(tok_stream_end(&r->stream, held, err));
    str_putc(held, (char)SL_MARK);
    return str_status(held, err);
}

/* What a token makes visible: n bytes at the front of held. stopped: a stop string follows. */
struct shown {
    size_t n;
    bool stopped;
};

static sl_status put_text(sl_engine *e, struct request *r, int32_t token, bool last,
                          struct shown *out, sl_err *err)
{
    struct engine_stop *s = &r->stop;
    *out = (struct shown){0, false};
    if (!e->m->tok) return SL_OK;
    if (token >= 0) SL_TRY(put_token(e, r, token, err));
    out->stopped = engine_stop_scan(s, &out->n);
    if (out->stopped || !last) return SL_OK;
    SL_TRY(tok_stream_end(&r->stream, &s->held, err));
    out->stopped = engine_stop_scan(s, &out->n);
    if (!out->stopped) out->n = s->held.n;
    return SL_OK;
}

/* Of ev's token, where they are asked for. */
static void add_logprobs(sl_engine *e, const struct request *r, const float *logit, sl_event *ev)
{
    if (r->g->n_top < 0) return;
    engine_logprobs(logit, e->n_vocab, ev->token, r->g->n_top, &ev->logprob, e->top);
    ev->top = e->top;
    ev->n_top = r->g->n_top;
}

/* What one row's logits lead to: a token more. False: the request is over. */
static bool answer(sl_engine *e, struct request *r, const struct engine_pick *pick)
{
    const float *logit = pick->logit;
    sl_err err = {0};
    int32_t token = -1;
    struct shown shown;
    bool done = false;
    sl_event ev = {.prompt_pos = -1};
    if (e->tap) e->tap(e->tap_user, r, logit);
    if (choose(e, r, pick, &token, &done, &err)) {
        engine_request_end(e, r, -1, SL_FINISH_ERROR, &err);
        return false;
    }
    if (!r->t_first_ns) r->t_first_ns = clock_now_ns();
    ev.token = token;
    add_logprobs(e, r, logit, &ev);
    r->ids[r->n_ids++] = token;
    e->stats.n_answer_tok++;
    int n_new = r->n_ids - r->n_prompt;
    sl_finish finish = SL_FINISH_NONE;
    if (!r->g->ignore_eos && in_list(e->m->eog, e->m->n_eog, token))
        finish = SL_FINISH_STOP;
    else if (in_list(r->g->stop_id, r->g->n_stop_id, token))
        finish = SL_FINISH_STOP_STRING;
    bool silent = finish != SL_FINISH_NONE; /* the token that ends is not text */
    if (!silent && done)
        finish = SL_FINISH_STOP; /* nothing but an end of sequence could follow */
    else if (!silent && n_new >= r->g->max_new)
        finish = SL_FINISH_LENGTH;
    if (put_text(e, r, silent ? -1 : token, finish != SL_FINISH_NONE, &shown, &err)) {
        engine_request_end(e, r, token, SL_FINISH_ERROR, &err);
        return false;
    }
    if (shown.stopped) finish = SL_FINISH_STOP_STRING;
    ev.stop = shown.stopped ? r->stop.which : -1;
    ev.text = str_c(&r->stop.held);
    ev.n_text = shown.n;
    ev.n_held = r->stop.held.n - shown.n;
    ev.is_end = silent;
    if (finish == SL_FINISH_NONE) {
        engine_event(e, r, &ev);
        engine_stop_drop(&r->stop, shown.n);
        return true;
    }
    ev.finish = finish;
    engine_request_done(e, r, &ev);
    return false;
}

sl_status engine_answer_given(sl_engine *e, struct request *r, const int32_t *given, sl_err *err)
{
    bool done = false;
    struct shown shown;
    for (int i = 0; i < r->g->n_given; i++) {
        if (r->grammar) SL_TRY(engine_grammar_push(r->grammar, given[i], &done, err));
        SL_TRY(put_text(e, r, given[i], false, &shown, err));
        if (done || shown.stopped)
            return SL_FAIL(err, REQUEST, "given: the answer ends with token number %d", i);
        engine_stop_drop(&r->stop, shown.n);
        r->ids[r->n_ids++] = given[i];
    }
    return SL_OK;
}

/* ---- prompts ---- */

/* The log probabilities of prompt tokens that n_row rows from position pos0 on predict. */
static void echo(sl_engine *e, struct request *r, int pos0, int n_row, const float *logits)
{
    if (r->n_echo == 0) {
        sl_event first = {.token = r->ids[0], .text = "", .prompt_pos = 0};
        engine_event(e, r, &first);
        r->n_echo = 1;
    }
    for (int i = 0; i < n_row; i++) {
        int pos = pos0 + i + 1;
        if (pos < r->n_echo || pos >= r->n_prompt) continue; /* told before it was preempted */
        sl_event ev = {.token = r->ids[pos], .text = "", .prompt_pos = pos};
        add_logprobs(e, r, logits + (int64_t)i * e->n_vocab, &ev);
        r->n_echo = pos + 1;
        engine_event(e, r, &ev);
    }
}

/* Take the hidden states of a row's tokens into the embedding; true: it was the last piece, and the
 * request is over. */
static bool embed(sl_engine *e, struct request *r, const struct sched_item *it, const float *hidden)
{
    int d = e->m->cfg.d_model, end = it->pos0 + it->n_tok;
    if (it->pos0 == 0) memset(r->pool, 0, (size_t)d * sizeof *r->pool); /* also after preemption */
    for (int i = 0; i < it->n_tok; i++) {
        if (r->g->embed == 2 && it->pos0 + i < r->n_prompt - 1) continue;
        for (int k = 0; k < d; k++)
            r->pool[k] += (double)hidden[(int64_t)i * d + k];
    }
    if (end < r->n_prompt) return false;
    double by = r->g->embed == 1 ? 1.0 / r->n_prompt : 1.0;
    for (int k = 0; k < d; k++)
        e->row[k] = (float)(r->pool[k] * by);
    r->t_first_ns = clock_now_ns();
    sl_event ev = {.token = -1,
                   .text = "",
                   .prompt_pos = -1,
                   .finish = SL_FINISH_STOP,
                   .embedding = e->row,
                   .n_embedding = d};
    engine_request_done(e, r, &ev);
    return true;
}

/* The prompt is computed: the other samples share its blocks, as far as there are sequences for
 * them. Returns how many begin now, in e->forked. */
static int fork_samples(sl_engine *e, struct request *r)
{
    struct group *g = r->g;
    int n = 0;
    for (int i = 0; i < g->n; i++) {
        struct request *s = g->r[i];
        if (!s || s == r || s->n_ids > s->n_prompt) continue;
        if (!sched_may_fork(engine_sched(e, r), r->slot, s->slot)) continue;
        if (!sched_fork(engine_sched(e, r), r->slot, s->slot)) break;
        s->t_admit_ns = r->t_admit_ns;
        s->n_cached = r->n_cached;
        s->mtp_like = r->slot + 1;
        e->forked[n++] = s;
    }
    return n;
}

static void end_nan(sl_engine *e, struct request *r)
{
    sl_err why;
    (void)SL_FAIL(&why, INTERNAL, "the model's output is not a number");
    e->stats.n_nan++;
    engine_request_end(e, r, -1, SL_FINISH_ERROR, &why);
}

/* The row of a request that computed all it knows, and n_draft drafts, of whose positions n_good
 * have finite hidden states: a token, and one more for every draft that was what is drawn. False:
 * the request is over. */
static bool end_row(sl_engine *e, struct request *r, int n_draft, int n_good,
                    const struct engine_pick *pick)
{
    int n_right = 0;
    engine_spec_computed(e, r, n_draft);
    for (;;) {
        int32_t draft = n_right < n_draft ? r->ids[r->n_ids] : -1;
        if (!answer(e, r, &pick[n_right])) return false;
        if (n_right == n_draft) break;
        bool right = r->ids[r->n_ids - 1] == draft;
        engine_spec_judge(e, r, n_right, right);
        if (!right) break;
        if (++n_right > n_good) {
            end_nan(e, r);
            return false;
        }
    }
    sched_accept(engine_sched(e, r), r->slot, n_right);
    engine_spec_learn(e, r);
    return true;
}

/* A prompt was computed to its end: its first token, and those of the samples that share it. */
static void end_prompt(sl_engine *e, struct request *r, const struct engine_pick *pick)
{
    int n_fork = r->g->n > 1 && r->index == 0 ? fork_samples(e, r) : 0;
    if (r->g->max_new == 0) {
        r->t_first_ns = clock_now_ns(); /* all of its time is the prompt's */
        if (r->g->on_kv) return;        /* it ends when all has gone */
        engine_request_end(e, r, -1, SL_FINISH_LENGTH, NULL);
        return;
    }
    int32_t first = end_row(e, r, 0, 0, pick) ? r->ids[r->n_prompt] : -1;
    for (int i = 0; i < n_fork; i++)
        if (end_row(e, e->forked[i], 0, 0, pick)) engine_mtp_fork(e, e->forked[i], first);
}

static void one_row(sl_engine *e, const struct sched_plan *p, int i, const struct model_rows *rows)
{
    const struct sched_item *it = &p->item[i];
    const struct engine_pick *pick = &e->pick[BASE_MAX(e->item_pick[i], 0)];
    struct request *r = engine_item_req(e, it);
    if (!r) return;
    struct kv_path path = engine_path(e, r);
    int n_good = it->n_draft - rows->n_bad[i]; /* of the drafts; a bad one says nothing of others */
    if (n_good < 0) { /* all after it would not be either: its blocks are not cached */
        end_nan(e, r);
        return;
    }
    if (!r->g->no_cache) sched_put(engine_sched(e, r), it->req, &path);
    if (r->pool) {
        int64_t at = (int64_t)e->room->seq_tok0[i] * e->m->cfg.d_model;
        if (embed(e, r, it, rows->hidden + at)) return;
    } else if (it->all_rows) {
        echo(e, r, it->pos0, it->n_tok, rows->logits + (int64_t)e->item_row[i] * e->n_vocab);
    }
    if (it->sample && !r->pool) {
        if (r->n_ids == r->n_prompt)
            end_prompt(e, r, pick);
        else
            (void)end_row(e, r, it->n_draft, n_good, pick);
        return;
    }
    if (r->g->progress && it->pos0 < r->n_prompt) {
        sl_event ev = {.token = -1, .text = "", .prompt_pos = -1};
        engine_event(e, r, &ev);
    }
}

void engine_rows(sl_engine *e, const struct sched_plan *p, const struct model_rows *rows)
{
    engine_pick_all(e, p, rows);
    for (int i = 0; i < p->n_item; i++)
        one_row(e, p, i, rows);
}
