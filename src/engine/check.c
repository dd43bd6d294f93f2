/* SPDX-License-Identifier: Apache-2.0 */
/* Every field of a request is checked here, once; after that only resources can fail. */
#include <math.h>
#include <string.h>

#include "engine/apart.h"

#define PRIORITY_MAX 100
#define TIMEOUT_MS_MAX (1ll << 40)

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

sl_status engine_check_ids(const sl_engine *e, const char *name, const int32_t *ids, int n,
                           sl_err *err)
{
    for (int i = 0; i < n; i++)
        SL_TRY(id_ok(e, name, i, ids[i], err));
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

static sl_status check_serving(const sl_request *q, sl_err *err)
{
    SL_TRY(int_in("n", q->n, 0, ENGINE_SAMPLE_MAX, err));
    SL_TRY(int_in("priority", q->priority, -PRIORITY_MAX, PRIORITY_MAX, err));
    SL_TRY(int_in("embed", q->embed, 0, 2, err));
    if (q->timeout_ms < 0 || q->timeout_ms > TIMEOUT_MS_MAX)
        return SL_FAIL(err, REQUEST, "timeout_ms: %lld: from 0 to %lld", (long long)q->timeout_ms,
                       TIMEOUT_MS_MAX);
    SL_TRY(int_in("first", q->first, 0, ENGINE_SAMPLE_MAX - BASE_MAX(q->n, 1), err));
    SL_TRY(int_in("n_given", q->n_given, 0, INT32_MAX, err));
    if (q->n_given && !q->given) return SL_FAIL(err, REQUEST, "given: missing");
    if (q->n_given && (q->n > 1 || q->embed))
        return SL_FAIL(err, REQUEST, "given: not together with n or embed");
    if (q->embed && (q->n > 1 || q->echo_logprob || q->grammar))
        return SL_FAIL(err, REQUEST, "embed: not together with n, echo_logprob or grammar");
    return SL_OK;
}

sl_status engine_check_request(const sl_engine *e, const sl_request *q, sl_err *err)
{
    if (!q->ids && !q->text) return SL_FAIL(err, REQUEST, "prompt: neither text nor ids");
    SL_TRY(int_in("max_tokens", q->max_tokens, q->echo_logprob ? -1 : 0, INT32_MAX, err));
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
    SL_TRY(engine_check_ids(e, "stop_ids", q->stop_ids, q->n_stop_ids, err));
    SL_TRY(check_serving(q, err));
    SL_TRY(int_in("n_draft", q->n_draft, -1, SL_DRAFT_MAX, err));
    SL_TRY(int_in("n_draft_ids", q->n_draft_ids, 0, INT32_MAX, err));
    if (q->n_draft_ids && !q->draft_ids) return SL_FAIL(err, REQUEST, "draft_ids: missing");
    if (q->n_draft_ids && q->n > 1)
        return SL_FAIL(err, REQUEST, "draft_ids: not together with n: %d", q->n);
    SL_TRY(engine_check_ids(e, "draft_ids", q->draft_ids, q->n_draft_ids, err));
    SL_TRY(engine_check_ids(e, "given", q->given, q->n_given, err));
    SL_TRY(engine_give_check(e, q, err));
    return check_sampling(e, &q->sampling, err);
}
