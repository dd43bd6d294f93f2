/* SPDX-License-Identifier: Apache-2.0 */
/* Errors as OpenAI's clients read them. What an SDK retries (408, 409, 429, 500 and more) is only
 * what may work the second time; a request that can not is another 4xx or says x-should-retry:
 * false. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "api/api_internal.h"

/* No memory now; not a bound on what one request may need, which it would meet again. */
static bool is_short(const sl_err *err)
{
    return err->code == SL_NOMEM && !strstr(err->text, "out of memory: limit of");
}

int api_error_http(const sl_err *err)
{
    if (is_short(err)) return 429;
    switch (err->code) {
    case SL_REQUEST:
    case SL_LIMIT:
    case SL_NOTFOUND:
    case SL_UNSUPPORTED:
    case SL_FORMAT:
        return 400;
    case SL_NOMEM:
        return 413;
    default:
        return sl_status_http(err->code);
    }
}

/* Clients cut a conversation short for this one. */
static bool is_long_prompt(const sl_err *err)
{
    return err->code == SL_LIMIT && strncmp(err->text, "prompt of ", 10) == 0;
}

const char *api_error_code(const sl_err *err)
{
    if (is_short(err)) return "rate_limit_exceeded";
    switch (err->code) {
    case SL_LIMIT:
        return is_long_prompt(err) ? "context_length_exceeded" : "invalid_value";
    case SL_UNSUPPORTED:
    case SL_NOTFOUND:
        return "not_supported";
    case SL_NOMEM:
        return "request_too_large";
    case SL_BUSY:
        return "rate_limit_exceeded";
    case SL_TIMEOUT:
        return "timeout";
    case SL_REQUEST:
    case SL_FORMAT:
        return "invalid_value";
    default:
        return "server_error";
    }
}

const char *api_error_text(const sl_err *err)
{
    return is_short(err) ? "there is no memory for it now" : err->text;
}

const char *api_error_field(const struct net_req *r, const sl_err *err)
{
    const struct api_route *t = r->route;
    return is_long_prompt(err) ? t->prompt_field : NULL;
}

static const char *type_of(int http)
{
    if (http == 401) return "authentication_error";
    if (http == 403) return "permission_error";
    if (http == 429) return "rate_limit_error";
    return http >= 500 ? "server_error" : "invalid_request_error";
}

/* "messages[2].content: ..." begins with a field's name. */
static bool field_of(const char *text, char *out, size_t n)
{
    size_t k = 0;
    while (islower((unsigned char)text[k]) || isdigit((unsigned char)text[k]) ||
           (text[k] && strchr("_.[]", text[k])))
        k++;
    if (k == 0 || k >= n || text[k] != ':') return false;
    memcpy(out, text, k);
    out[k] = 0;
    return true;
}

void api_error_json(struct str *out, int http, const char *code, const char *param,
                    const char *text)
{
    struct json_w w;
    char field[80];
    if (!param && http < 500 && field_of(text, field, sizeof field)) param = field;
    text_jw_init(&w, out);
    text_jw_obj(&w);
    text_jw_key(&w, "error");
    text_jw_obj(&w);
    text_jw_key(&w, "message");
    text_jw_strz(&w, text);
    text_jw_key(&w, "type");
    text_jw_strz(&w, type_of(http));
    text_jw_key(&w, "param");
    if (param && *param)
        text_jw_strz(&w, param);
    else
        text_jw_null(&w);
    text_jw_key(&w, "code");
    if (code)
        text_jw_strz(&w, code);
    else
        text_jw_null(&w);
    text_jw_obj_end(&w);
    text_jw_obj_end(&w);
}

/* How long until a place is free: what runs and waits, at the pace of the last requests. */
static int retry_after(const api *a)
{
    const struct net_hist *h = &a->metrics.e2e;
    uint64_t n = 0;
    for (int i = 0; i <= h->n; i++)
        n += atomic_load_explicit(&h->count[i], memory_order_relaxed);
    double mean =
        n ? (double)atomic_load_explicit(&h->sum_micro, memory_order_relaxed) * 1e-6 / (double)n
          : 1;
    double s = mean * ((double)net_count_get(&a->n_gen) / BASE_MAX(a->o.max_batch, 1)) / 2;
    return s < 1 ? 1 : s > 60 ? 60 : (int)s; /* longer is not heeded by OpenAI's clients */
}

void api_error(api *a, struct net_req *r, int http, const char *code, const char *param,
               const char *text)
{
    struct str s;
    char num[16];
    bool msg = api_msg_speaks(r);
    str_init(&s, MEM_REQUEST, 0);
    if (msg) {
        api_msg_put_error(&s, r, http, code, text);
        net_reply_header(r, "request-id", r->id);
    } else
        api_error_json(&s, http, code, param, text);
    if (http == 401) net_reply_header(r, "WWW-Authenticate", "Bearer");
    if (http == 429 || http == 503) {
        snprintf(num, sizeof num, "%d", r->retry_s ? r->retry_s : retry_after(a));
        net_reply_header(r, "Retry-After", num);
        net_count_add(&a->metrics.n_refused, 1);
    } else if (http >= 500)
        net_reply_header(r, "x-should-retry", "false");
    net_reply(r, msg ? api_msg_http(http) : http, API_JSON, &s);
}

void api_error_of(api *a, struct net_req *r, const sl_err *err)
{
    api_error(a, r, api_error_http(err), api_error_code(err), api_error_field(r, err),
              api_error_text(err));
}
