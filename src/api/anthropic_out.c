/* SPDX-License-Identifier: Apache-2.0 */
/* The message object, its usage and what ended it; errors and models in Anthropic's form. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "api/anthropic.h"

/* Tokens of the prompt by what the prefix cache did for them, as Anthropic counts: what was read
 * from it, what a request with cache marks left there (whole blocks), and the rest. */
void api_msg_put_usage(struct json_w *w, const struct api_job *j, bool delta)
{
    const struct api_msg *p = j->user;
    int64_t made = p->marked ? api_written(j->a, p->n_prompt, p->n_cached) : 0;
    text_jw_key(w, "usage");
    text_jw_obj(w);
    text_jw_key(w, "input_tokens");
    text_jw_int(w, p->n_prompt - p->n_cached - made);
    text_jw_key(w, "cache_creation_input_tokens");
    text_jw_int(w, made);
    text_jw_key(w, "cache_read_input_tokens");
    text_jw_int(w, p->n_cached);
    if (!delta) {
        text_jw_key(w, "cache_creation");
        text_jw_obj(w);
        text_jw_key(w, "ephemeral_5m_input_tokens");
        text_jw_int(w, made);
        text_jw_key(w, "ephemeral_1h_input_tokens");
        text_jw_int(w, 0);
        text_jw_obj_end(w);
    }
    text_jw_key(w, "output_tokens");
    text_jw_int(w, p->warm ? 0 : p->n_token);
    if (j->n_reason_tok >= 0) {
        text_jw_key(w, "output_tokens_details");
        text_jw_obj(w);
        text_jw_key(w, "thinking_tokens");
        text_jw_int(w, j->n_reason_tok);
        text_jw_obj_end(w);
    }
    if (!delta) {
        text_jw_key(w, "service_tier");
        text_jw_strz(w, "standard");
    }
    text_jw_obj_end(w);
}

static const char *reason_of(const struct api_job *j)
{
    const struct api_msg *p = j->user;
    if (p->x.finish == SL_FINISH_LENGTH)
        return p->warm || p->n_token >= p->g.q.max_tokens ? "max_tokens"
                                                          : "model_context_window_exceeded";
    if (p->x.finish == SL_FINISH_STOP_STRING && p->stop >= 0) return "stop_sequence";
    return p->x.n_call ? "tool_use" : "end_turn";
}

void api_msg_put_stop(struct json_w *w, const struct api_job *j)
{
    const struct api_msg *p = j->user;
    const char *why = p->x.finish != SL_FINISH_NONE ? reason_of(j) : NULL;
    text_jw_key(w, "stop_reason");
    if (why)
        text_jw_strz(w, why);
    else
        text_jw_null(w);
    text_jw_key(w, "stop_sequence");
    if (why && strcmp(why, "stop_sequence") == 0 && p->stop < p->g.q.n_stop)
        text_jw_strz(w, p->g.q.stop[p->stop]);
    else
        text_jw_null(w);
}

void api_msg_put(struct json_w *w, const struct api_job *j, bool open)
{
    const struct api_msg *p = j->user;
    text_jw_obj(w);
    text_jw_key(w, "id");
    text_jw_strz(w, p->g.id);
    text_jw_key(w, "type");
    text_jw_strz(w, "message");
    text_jw_key(w, "role");
    text_jw_strz(w, "assistant");
    text_jw_key(w, "model");
    text_jw_strz(w, j->g->model);
    text_jw_key(w, "content");
    text_jw_arr(w);
    if (!open) api_put_json(w, &p->content);
    text_jw_arr_end(w);
    api_msg_put_stop(w, j);
    if (api_field(p->body, "context_management")) {
        text_jw_key(w, "context_management");
        text_jw_raw(w, "{\"applied_edits\":[]}", 20);
    }
    api_msg_put_usage(w, j, false);
    text_jw_obj_end(w);
}

/* ---- errors ---- */

bool api_msg_speaks(const struct net_req *r)
{
    static const char one[] = "/v1/messages", other[] = "/v1/models";
    size_t n = sizeof one - 1;
    if (strncmp(r->path, one, n) == 0 && (!r->path[n] || r->path[n] == '/')) return true;
    return strncmp(r->path, other, sizeof other - 1) == 0 && net_req_header(r, "anthropic-version");
}

static const char *type_of(int http)
{
    switch (http) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 413:
        return "request_too_large";
    case 429:
        return "rate_limit_error";
    case 503:
        return "overloaded_error";
    case 504:
        return "timeout_error";
    default:
        return http >= 500 ? "api_error" : "invalid_request_error";
    }
}

int api_msg_http(int http)
{
    return http == 503 ? 529 : http;
}

/* By this the SDK knows how to go on without a field: without threads, it sends the whole
 * conversation in every request. */
static void put_refused(struct json_w *w, const char *text)
{
    const struct api_field *f = api_field_refused(text, API_MESSAGES);
    if (!f) return;
    text_jw_key(w, "details");
    text_jw_obj(w);
    text_jw_key(w, "error_code");
    text_jw_strz(w, f->code);
    text_jw_key(w, "unsupported");
    text_jw_arr(w);
    text_jw_strz(w, f->name);
    text_jw_arr_end(w);
    text_jw_obj_end(w);
}

/* As Anthropic says it: clients look for the words, and for the numbers. */
static void put_too_long(struct str *s, const char *text)
{
    static const char of[] = "prompt of ", more[] = "more than ", most[] = "context length is ";
    const char *n = strstr(text, of), *max = strstr(text, most);
    str_puts(s, "prompt is too long: ");
    if (!n || !max) {
        str_puts(s, text);
        return;
    }
    n += sizeof of - 1, max += sizeof most - 1;
    if (strncmp(n, more, sizeof more - 1) == 0) {
        str_puts(s, more);
        n += sizeof more - 1;
    }
    str_put(s, n, strspn(n, "0123456789"));
    str_puts(s, " tokens > ");
    str_put(s, max, strspn(max, "0123456789"));
    str_puts(s, " maximum");
}

void api_msg_put_error(struct str *out, const struct net_req *r, int http, const char *code,
                       const char *text)
{
    struct json_w w;
    bool long_ = code && strcmp(code, "context_length_exceeded") == 0;
    text_jw_init(&w, out);
    text_jw_obj(&w);
    text_jw_key(&w, "type");
    text_jw_strz(&w, "error");
    text_jw_key(&w, "error");
    text_jw_obj(&w);
    text_jw_key(&w, "type");
    text_jw_strz(&w, type_of(http));
    text_jw_key(&w, "message");
    if (long_) {
        struct str s;
        str_init(&s, MEM_REQUEST, 0);
        put_too_long(&s, text);
        api_put_text(&w, &s);
        str_fini(&s);
    } else
        text_jw_strz(&w, text);
    put_refused(&w, text);
    text_jw_obj_end(&w);
    text_jw_key(&w, "request_id");
    text_jw_strz(&w, r->id);
    text_jw_obj_end(&w);
}

const char api_msg_lost[] =
    "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\","
    "\"message\":\"there is no memory for the rest now\"}}\n\n";

/* ---- models ---- */

static void put_model(const api *a, struct json_w *w, const char *name)
{
    char when[32] = "1970-01-01T00:00:00Z";
    time_t t = (time_t)a->started_s;
    struct tm tm;
    if (gmtime_r(&t, &tm)) strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &tm);
    text_jw_obj(w);
    text_jw_key(w, "type");
    text_jw_strz(w, "model");
    text_jw_key(w, "id");
    text_jw_strz(w, name);
    text_jw_key(w, "display_name");
    text_jw_strz(w, name);
    text_jw_key(w, "created_at");
    text_jw_strz(w, when);
    text_jw_key(w, "lifecycle");
    text_jw_strz(w, "active");
    text_jw_key(w, "max_input_tokens");
    text_jw_int(w, a->ei.n_ctx);
    text_jw_key(w, "max_tokens");
    text_jw_int(w, a->ei.n_ctx);
    text_jw_obj_end(w);
}

/* One page has them all: nobody gives so many names. */
static void put_models(const api *a, struct json_w *w)
{
    int n = a->o.n_alias;
    text_jw_obj(w);
    text_jw_key(w, "data");
    text_jw_arr(w);
    for (int i = -1; i < n; i++)
        put_model(a, w, i < 0 ? a->name : a->o.alias[i]);
    text_jw_arr_end(w);
    text_jw_key(w, "has_more");
    text_jw_bool(w, false);
    text_jw_key(w, "first_id");
    text_jw_strz(w, a->name);
    text_jw_key(w, "last_id");
    text_jw_strz(w, n > 0 ? a->o.alias[n - 1] : a->name);
    text_jw_obj_end(w);
}

void api_msg_models(api *a, struct net_req *r, const char *name)
{
    struct json_w w;
    struct str s;
    str_init(&s, MEM_REQUEST, 0);
    text_jw_init(&w, &s);
    if (name)
        put_model(a, &w, name);
    else
        put_models(a, &w);
    net_reply_header(r, "request-id", r->id);
    net_reply(r, 200, API_JSON, &s);
}
