/* SPDX-License-Identifier: Apache-2.0 */
/* The parts that JSON answers share: usage, timings, text, token ids, logprobs,
 * progress, and the frame of an event. */
#include <stdio.h>
#include <string.h>

#include "api/api_internal.h"

const char *api_finish_text(int finish)
{
    return finish == SL_FINISH_LENGTH ? "length" : "stop";
}

int64_t api_written(const api *a, int n_prompt, int n_cached)
{
    sl_stats s;
    if (a->o.no_prefix_cache) return 0;
    sl_stats_get(a->o.engine, &s);
    int64_t blk = BASE_MAX(s.kv_blk_tok, 1);
    return BASE_MAX(n_prompt / blk * blk - n_cached, 0);
}

void api_put_cached(struct json_w *w, const struct api_job *j)
{
    text_jw_key(w, "cached_tokens");
    text_jw_int(w, j->n_cached_tok);
    text_jw_key(w, "cache_write_tokens");
    text_jw_int(w, j->n_written_tok);
}

void api_put_usage(struct json_w *w, const struct api_job *j)
{
    text_jw_key(w, "usage");
    text_jw_obj(w);
    text_jw_key(w, "prompt_tokens");
    text_jw_int(w, j->n_prompt_tok);
    text_jw_key(w, "completion_tokens");
    text_jw_int(w, j->n_answer_tok);
    text_jw_key(w, "total_tokens");
    text_jw_int(w, j->n_prompt_tok + j->n_answer_tok);
    text_jw_key(w, "prompt_tokens_details");
    text_jw_obj(w);
    api_put_cached(w, j);
    text_jw_obj_end(w);
    if (j->n_reason_tok >= 0 || j->g->q.n_draft_ids) {
        text_jw_key(w, "completion_tokens_details");
        text_jw_obj(w);
        text_jw_key(w, "reasoning_tokens");
        text_jw_int(w, BASE_MAX(j->n_reason_tok, 0));
        if (j->g->q.n_draft_ids) {
            text_jw_key(w, "accepted_prediction_tokens");
            text_jw_int(w, j->n_text_right);
            text_jw_key(w, "rejected_prediction_tokens");
            text_jw_int(w, j->n_text_draft - j->n_text_right);
        }
        text_jw_obj_end(w);
    }
    text_jw_obj_end(w);
}

void api_put_timings(struct json_w *w, const struct api_job *j)
{
    const struct api_event *e = &j->last;
    double prefill = (double)BASE_MAX(e->ttft_ns - e->queue_ns, 0) * 1e-6,
           decode = e->n_token ? (double)BASE_MAX(e->done_ns - e->ttft_ns, 0) * 1e-6 : 0;
    const struct {
        const char *key;
        double v;
    } row[] = {
        {"queue_ms", (double)e->queue_ns * 1e-6},
        {"prefill_ms", prefill},
        {"ttft_ms", (double)e->ttft_ns * 1e-6},
        {"decode_ms", decode},
        {"total_ms", (double)e->done_ns * 1e-6},
        {"prefill_tps", prefill > 0 ? (e->n_prompt - e->n_cached) / prefill * 1e3 : 0},
        {"decode_tps", decode > 0 ? BASE_MAX(e->n_token - 1, 0) / decode * 1e3 : 0},
    };
    text_jw_key(w, "timings");
    text_jw_obj(w);
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        text_jw_key(w, row[i].key);
        text_jw_real(w, row[i].v, 6);
    }
    if (e->n_draft) {
        text_jw_key(w, "draft_n");
        text_jw_int(w, e->n_draft);
        text_jw_key(w, "draft_n_accepted");
        text_jw_int(w, e->n_right);
    }
    text_jw_obj_end(w);
}

void api_put_head(struct json_w *w, const struct api_job *j, const char *object)
{
    text_jw_key(w, "id");
    text_jw_strz(w, j->g->id);
    text_jw_key(w, "object");
    text_jw_strz(w, object);
    text_jw_key(w, "created");
    text_jw_int(w, j->g->created);
    text_jw_key(w, "model");
    text_jw_strz(w, j->g->model);
    text_jw_key(w, "system_fingerprint");
    text_jw_strz(w, j->a->fingerprint);
}

void api_put_text(struct json_w *w, const struct str *s)
{
    api_inherit(w->out, s);
    text_jw_str(w, str_c(s), s->n);
}

void api_put_json(struct json_w *w, const struct str *s)
{
    api_inherit(w->out, s);
    if (s->n) text_jw_raw(w, s->p, s->n);
}

void api_put_object(struct json_w *w, const struct str *s)
{
    struct arena a;
    const struct json *v = NULL;
    mem_arena_init(&a, MEM_REQUEST, 0);
    sl_status st = text_json_probe(&a, str_c(s), s->n, &v, NULL);
    if (st) w->out->failed = st;
    api_inherit(w->out, s);
    if (v && v->kind == JSON_OBJECT_K)
        text_jw_node(w, v);
    else
        text_jw_raw(w, "{}", 2);
    mem_arena_fini(&a);
}

void api_sse(struct str *out, const struct str *json)
{
    api_inherit(out, json);
    str_puts(out, "data: ");
    str_put(out, str_c(json), json->n);
    str_puts(out, "\n\n");
}

void api_token_bytes(const api *a, int32_t id, struct str *out)
{
    char *text = NULL;
    size_t n = 0;
    sl_status st =
        sl_detokenize(a->o.model, &id, 1, SL_DETOK_SPECIAL | SL_DETOK_PART, &text, &n, NULL);
    if (st == SL_OK) str_put(out, text, n);
    if (st == SL_NOMEM) out->failed = st;
    sl_free(text);
}

void api_put_ids(struct json_w *w, const char *key, const int32_t *ids, int n)
{
    text_jw_key(w, key);
    text_jw_arr(w);
    for (int i = 0; i < n; i++)
        text_jw_int(w, ids[i]);
    text_jw_arr_end(w);
}

/* {"token","logprob","bytes"} without the closing brace. */
static void put_token(const api *a, struct json_w *w, int32_t id, float logprob)
{
    struct str s;
    str_init(&s, MEM_REQUEST, 0);
    api_token_bytes(a, id, &s);
    text_jw_obj(w);
    text_jw_key(w, "token");
    api_put_text(w, &s);
    text_jw_key(w, "logprob");
    text_jw_real(w, (double)logprob, 9);
    text_jw_key(w, "bytes");
    text_jw_arr(w);
    for (size_t i = 0; i < s.n; i++)
        text_jw_int(w, (unsigned char)s.p[i]);
    text_jw_arr_end(w);
    str_fini(&s);
}

void api_put_logprob(const api *a, struct json_w *w, const struct api_event *ev)
{
    put_token(a, w, ev->token, ev->logprob);
    text_jw_key(w, "top_logprobs");
    text_jw_arr(w);
    for (int i = 0; i < ev->n_top; i++) {
        put_token(a, w, ev->top[i].token, ev->top[i].logprob);
        text_jw_obj_end(w);
    }
    text_jw_arr_end(w);
    text_jw_obj_end(w);
}

void api_put_progress(struct str *out, const struct api_event *ev)
{
    if (ev->n_done < ev->n_prompt) str_printf(out, ": prefill %d/%d\n\n", ev->n_done, ev->n_prompt);
}
