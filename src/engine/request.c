/* SPDX-License-Identifier: Apache-2.0 */
/* A request's life outside of steps: every field is checked here, once; after that only resources
 * can fail. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "engine/engine_internal.h"

#define TEXT_BYTES_PER_TOKEN                                                                       \
    512 /* no vocabulary makes fewer tokens of so many bytes than this on real text; longer        \
           prompts are refused unread */

/* ---- checks ---- */

static sl_status real_in(const char *name, float v, double lo, double hi, sl_err *err)
{
    if (!((double)v >= lo && (double)v <= hi)) /* also NaN */
        return SL_FAIL(err, REQUEST, "%s: %g: a number from %g to %g", name, (double)v, lo, hi);
    return SL_OK;
}

static sl_status int_in(const char *name, int v, int lo, int hi, sl_err *err)
{
    if (v < lo || v > hi) return SL_FAIL(err, REQUEST, "%s: %d: from %d to %d", name, v, lo, hi);
    return SL_OK;
}

static sl_status id_ok(const sl_engine *e, const char *name, int i, int32_t id, sl_err *err)
{
    if (id < 0 || id >= e->n_vocab)
        return SL_FAIL(err, REQUEST, "%s: token %d at place %d: the vocabulary has ids 0 to %d",
                       name, id, i, e->n_vocab - 1);
    return SL_OK;
}

static sl_status check_sampling(const sl_engine *e, const sl_sampling *s, sl_err *err)
{
    SL_TRY(real_in("temperature", s->temperature, 0, 100, err));
    SL_TRY(int_in("top_k", s->top_k, 0, INT32_MAX, err));
    SL_TRY(real_in("top_p", s->top_p, 0, 1, err));
    SL_TRY(real_in("min_p", s->min_p, 0, 1, err));
    SL_TRY(real_in("repeat_penalty", s->repeat_penalty, 0, 100, err));
    SL_TRY(real_in("presence_penalty", s->presence_penalty, -100, 100, err));
    SL_TRY(real_in("frequency_penalty", s->frequency_penalty, -100, 100, err));
    SL_TRY(int_in("n_bias", s->n_bias, 0, ENGINE_BIAS_MAX, err));
    if (s->n_bias && !s->bias) return SL_FAIL(err, REQUEST, "bias: missing");
    for (int i = 0; i < s->n_bias; i++) {
        SL_TRY(id_ok(e, "bias", i, s->bias[i].token, err));
        if (!isfinite(s->bias[i].bias) && s->bias[i].bias != -INFINITY)
            return SL_FAIL(err, REQUEST, "bias: of token %d: not a finite number",
                           s->bias[i].token);
    }
    return SL_OK;
}

static sl_status check(const sl_engine *e, const sl_request *q, sl_err *err)
{
    if (!q->ids && !q->text) return SL_FAIL(err, REQUEST, "prompt: neither text nor ids");
    SL_TRY(int_in("max_tokens", q->max_tokens, 0, INT32_MAX, err));
    SL_TRY(int_in("min_tokens", q->min_tokens, 0, INT32_MAX, err));
    SL_TRY(int_in("n_logprob", q->n_logprob, -1, ENGINE_TOP_MAX, err));
    SL_TRY(int_in("n_stop", q->n_stop, 0, ENGINE_STOP_MAX, err));
    SL_TRY(int_in("n_stop_ids", q->n_stop_ids, 0, ENGINE_STOP_IDS, err));
    if ((q->n_stop && !q->stop) || (q->n_stop_ids && !q->stop_ids))
        return SL_FAIL(err, REQUEST, "stop: missing");
    for (int i = 0; i < q->n_stop; i++) {
        size_t n = q->stop[i] ? strnlen(q->stop[i], ENGINE_STOP_BYTES + 1) : 0;
        if (n < 1 || n > ENGINE_STOP_BYTES)
            return SL_FAIL(err, REQUEST, "stop: string %d: %s", i,
                           n ? "longer than 1024 bytes" : "empty");
    }
    for (int i = 0; i < q->n_stop_ids; i++)
        SL_TRY(id_ok(e, "stop_ids", i, q->stop_ids[i], err));
    return check_sampling(e, &q->sampling, err);
}

/* ---- submit ---- */

static sl_status too_long(const sl_engine *e, long long n, const char *unit, sl_err *err)
{
    return SL_FAIL(err, LIMIT, "prompt of %lld %s: longer than the context of %d tokens", n, unit,
                   e->n_ctx);
}

/* The prompt's ids; *t is freed by the caller when it is not what *ids points to. */
static sl_status prompt_ids(const sl_engine *e, const sl_request *q, struct tok_ids *t,
                            const int32_t **ids, int *n, sl_err *err)
{
    *ids = q->ids;
    *n = q->n_ids;
    if (!q->ids) {
        const tok *tk = e->m->tok;
        if (!tk)
            return SL_FAIL(err, NOTFOUND,
                           "%s: text needs a tokenizer: this model has none, token ids work",
                           e->m->name);
        size_t len = strlen(q->text);
        if (len / TEXT_BYTES_PER_TOKEN > (size_t)e->n_ctx)
            return too_long(e, (long long)len, "bytes", err);
        bool bos = q->bos > 0 || (q->bos == 0 && tok_add_bos(tk));
        SL_TRY(tok_encode(tk, q->text, len, (q->special ? TOK_SPECIAL : 0) | (bos ? TOK_BOS : 0), t,
                          err));
        *ids = t->id;
        *n = t->n;
    }
    if (*n < 1) return SL_FAIL(err, REQUEST, "prompt: empty");
    if (*n > e->n_ctx) return too_long(e, *n, "tokens", err);
    for (int i = 0; i < *n; i++)
        SL_TRY(id_ok(e, "prompt", i, (*ids)[i], err));
    return SL_OK;
}

static sl_status copy(struct arena *a, const void *src, size_t n, const void *out, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_arena_alloc(a, n, &p, err));
    if (n) memcpy(p, src, n);
    memcpy((void *)(uintptr_t)out, &p, sizeof p);
    return SL_OK;
}

static sl_status fill(sl_engine *e, struct request *r, const sl_request *q, const int32_t *ids,
                      int n, sl_err *err)
{
    void *p = NULL;
    int room = e->n_ctx - n;
    r->n_prompt = r->n_ids = n;
    /* the context holds n_ctx tokens; a prompt that fills it still gets one token, which is never
     * stored */
    r->max_new = BASE_MAX(1, q->max_tokens ? BASE_MIN(q->max_tokens, room) : room);
    r->min_new = q->min_tokens;
    r->ignore_eos = q->ignore_eos;
    r->keep_special = q->keep_special;
    r->n_top = q->want_logprob ? BASE_MAX(q->n_logprob, 0) : q->n_logprob > 0 ? q->n_logprob : -1;
    r->sampling = q->sampling;
    r->on_event = q->on_event;
    r->user = q->user;
    r->cap = n + r->max_new;
    SL_TRY(mem_alloc_array(MEM_REQUEST, (size_t)r->cap, sizeof *r->ids, &p, err));
    r->ids = p;
    memcpy(r->ids, ids, (size_t)n * sizeof *ids);
    SL_TRY(copy(&r->arena, q->sampling.bias, (size_t)q->sampling.n_bias * sizeof(sl_bias),
                &r->sampling.bias, err));
    SL_TRY(copy(&r->arena, q->stop_ids, (size_t)q->n_stop_ids * sizeof *q->stop_ids, &r->stop_id,
                err));
    r->n_stop_id = q->n_stop_ids;
    size_t held = 64 + 4 * (size_t)e->m->max_piece; /* invalid bytes grow to three each */
    for (int i = 0; i < q->n_stop; i++) {
        char *s = NULL;
        size_t len = strlen(q->stop[i]);
        SL_TRY(mem_arena_str(&r->arena, q->stop[i], len, &s, err));
        r->stop.s[i] = s;
        r->stop.len[i] = (int)len;
        if (held < 64 + 4 * (size_t)e->m->max_piece + len)
            held = 64 + 4 * (size_t)e->m->max_piece + len;
    }
    r->stop.n = q->n_stop;
    /* so that no step has to grow it */
    SL_TRY(mem_alloc(MEM_REQUEST, held, &p, err));
    r->stop.held.p = p;
    r->stop.held.p[0] = 0;
    r->stop.held.cap = held;
    return SL_OK;
}

void engine_request_free(struct request *r)
{
    if (!r) return;
    mem_free(r->ids);
    str_fini(&r->stop.held);
    mem_arena_fini(&r->arena);
    mem_free(r);
}

sl_status sl_submit(sl_engine *e, const sl_request *q, uint64_t *id, sl_err *err)
{
    struct tok_ids t = {0};
    const int32_t *ids = NULL;
    struct request *r = NULL;
    void *p = NULL;
    int n = 0;
    sl_status st = SL_OK;
    SL_TRY(check(e, q, err));
    if (e->n_pending >= e->n_req_max) /* before any text is tokenised */
        return SL_FAIL(err, BUSY, "the queue is full: %d requests", e->n_req_max);
    SL_TRY_OUT(prompt_ids(e, q, &t, &ids, &n, err));
    SL_TRY_OUT(mem_alloc_array(MEM_REQUEST, 1, sizeof *r, &p, err));
    r = p;
    mem_arena_init(&r->arena, MEM_REQUEST, 0);
    str_init(&r->stop.held, MEM_REQUEST, 0);
    SL_TRY_OUT(fill(e, r, q, ids, n, err));
    SL_TRY_OUT(sched_submit(&e->sched, n, &r->slot, err));
    r->id = ++e->n_id;
    r->t_submit_ns = clock_now_ns();
    e->req[r->slot] = r;
    e->n_pending++;
    if (id) *id = r->id;
    r = NULL;
out:
    mem_free(t.id);
    engine_request_free(r);
    return st;
}

void sl_cancel(sl_engine *e, uint64_t id)
{
    for (int i = 0; i < e->n_req_max; i++)
        if (e->req[i] && e->req[i]->id == id) e->req[i]->cancel = true;
}

int sl_pending(const sl_engine *e)
{
    return e->n_pending;
}

/* ---- events and the end ---- */

void engine_event(sl_engine *e, struct request *r, sl_event *ev)
{
    (void)e;
    if (!r->on_event) return;
    ev->id = r->id;
    ev->n_prompt = r->n_prompt;
    ev->n_token = r->n_ids - r->n_prompt;
    ev->n_cached = r->n_cached;
    ev->ttft_ns = r->t_first_ns ? r->t_first_ns - r->t_submit_ns : 0;
    if (ev->finish != SL_FINISH_NONE) ev->done_ns = clock_now_ns() - r->t_submit_ns;
    r->on_event(r->user, ev);
}

/* How many of the stored positions a later prompt may take over bitwise: in MLA, answer tokens are
 * computed in another form than prompt tokens. */
static int reusable(const sl_engine *e, const struct request *r, int n_done)
{
    return e->m->cfg.kv_lora ? BASE_MIN(n_done, r->n_prompt) : n_done;
}

void engine_request_done(sl_engine *e, struct request *r, sl_event *ev)
{
    const struct sched_req *sr = &e->sched.req[r->slot];
    int run = sr->run, park = 0;
    if (run >= 0 && !e->opts.no_reuse && ev->finish != SL_FINISH_ERROR)
        park = reusable(e, r, sr->n_done);
    sched_finish(&e->sched, r->slot, park);
    if (park > 0) {
        mem_free(e->parked[run].ids);
        e->parked[run] = (struct parked){.ids = r->ids, .n = park};
    }
    e->req[r->slot] = NULL;
    e->n_pending--;
    engine_event(e, r, ev);
    if (park > 0) r->ids = NULL;
    engine_request_free(r);
}

void engine_request_end(sl_engine *e, struct request *r, int32_t token, sl_finish finish,
                        const sl_err *why)
{
    sl_event ev = {.token = token, .text = "", .finish = finish};
    if (why) {
        ev.status = why->code;
        ev.error = why->text;
    }
    engine_request_done(e, r, &ev);
}
