/* SPDX-License-Identifier: Apache-2.0 */
/* Routes that do not make the model compute: models, health, ready, tokenize, detokenize,
 * apply-template. */
#include <string.h>

#include "api/api_internal.h"
#include "base/clock.h"

#define BEAT_MAX_NS ((int64_t)5 * 1000000000)

static void begin(struct json_w *w, struct str *s)
{
    str_init(s, MEM_REQUEST, 0);
    text_jw_init(w, s);
    text_jw_obj(w);
}

static void send(struct net_req *r, struct json_w *w, struct str *s)
{
    text_jw_obj_end(w);
    net_reply(r, 200, API_JSON, s);
}

static void put_sampling(struct json_w *w, const sl_sampling *s)
{
    const struct {
        const char *key;
        float v;
    } row[] = {{"temperature", s->temperature},
               {"top_p", s->top_p},
               {"min_p", s->min_p},
               {"repetition_penalty", s->repeat_penalty},
               {"presence_penalty", s->presence_penalty},
               {"frequency_penalty", s->frequency_penalty}};
    text_jw_key(w, "sampling");
    text_jw_obj(w);
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        text_jw_key(w, row[i].key);
        text_jw_real(w, (double)row[i].v, 6);
    }
    text_jw_key(w, "top_k");
    text_jw_int(w, s->top_k);
    text_jw_obj_end(w);
}

/* The members of the one model, into an open object. */
static void put_model(api *a, struct json_w *w, const char *name)
{
    text_jw_key(w, "id");
    text_jw_strz(w, name);
    text_jw_key(w, "object");
    text_jw_strz(w, "model");
    text_jw_key(w, "created");
    text_jw_int(w, a->started_s);
    text_jw_key(w, "owned_by");
    text_jw_strz(w, "sluice");
    text_jw_key(w, "max_model_len");
    text_jw_int(w, a->ei.n_ctx);
    text_jw_key(w, "meta");
    text_jw_obj(w);
    text_jw_key(w, "arch");
    text_jw_strz(w, a->mi.arch);
    text_jw_key(w, "params");
    text_jw_int(w, a->mi.params);
    text_jw_key(w, "active_params");
    text_jw_int(w, a->mi.active_params);
    text_jw_key(w, "bytes");
    text_jw_int(w, a->mi.bytes);
    text_jw_key(w, "n_vocab");
    text_jw_int(w, a->mi.n_vocab);
    text_jw_key(w, "n_ctx_train");
    text_jw_int(w, a->mi.n_ctx_train);
    put_sampling(w, &a->o.sampling);
    text_jw_obj_end(w);
}

sl_status api_models(api *a, struct net_req *r, sl_err *err)
{
    struct json_w w;
    struct str s;
    (void)err;
    if (api_msg_speaks(r)) {
        api_msg_models(a, r, NULL);
        return SL_OK;
    }
    begin(&w, &s);
    text_jw_key(&w, "object");
    text_jw_strz(&w, "list");
    text_jw_key(&w, "data");
    text_jw_arr(&w);
    for (int i = -1; i < a->o.n_alias; i++) {
        text_jw_obj(&w);
        put_model(a, &w, i < 0 ? a->name : a->o.alias[i]);
        text_jw_obj_end(&w);
    }
    text_jw_arr_end(&w);
    send(r, &w, &s);
    return SL_OK;
}

/* /v1/models/NAME, by any name that requests may use. */
sl_status api_model_get(api *a, struct net_req *r, sl_err *err)
{
    struct json_w w;
    struct str s;
    const char *name = r->path + strlen("/v1/models/");
    SL_TRY(api_model_named(a, name, err));
    if (api_msg_speaks(r)) {
        api_msg_models(a, r, api_model_name(a, name));
        return SL_OK;
    }
    begin(&w, &s);
    put_model(a, &w, api_model_name(a, name));
    send(r, &w, &s);
    return SL_OK;
}

/* The engine's thread comes by after every step and at least every half second; a step is given
 * 5 s, or ten times the longest there was. */
static bool alive(const api *a)
{
    if (net_count_get(&a->failed)) return false;
    int64_t quiet = clock_now_ns() - (int64_t)net_count_get(&a->beat_ns);
    return quiet < BASE_MAX(BEAT_MAX_NS, 10 * (int64_t)net_count_get(&a->busy_ns));
}

sl_status api_health(api *a, struct net_req *r, sl_err *err)
{
    struct json_w w;
    struct str s;
    (void)err;
    if (!alive(a)) {
        api_error(a, r, 503, "engine_dead", NULL,
                  net_count_get(&a->failed) ? a->fail_text : "the engine does not answer");
        return SL_OK;
    }
    begin(&w, &s);
    text_jw_key(&w, "status");
    text_jw_strz(&w, "ok");
    send(r, &w, &s);
    return SL_OK;
}

sl_status api_ready(api *a, struct net_req *r, sl_err *err)
{
    struct json_w w;
    struct str s;
    (void)err;
    const char *why = net_count_get(&a->draining)  ? "the server is going down"
                      : !alive(a)                  ? "the engine is dead"
                      : !sl_ready(a->o.engine) ? "no engine is attached now"
                                                   : NULL;
    if (why) {
        api_error(a, r, 503, "not_ready", NULL, why);
        return SL_OK;
    }
    begin(&w, &s);
    text_jw_key(&w, "status");
    text_jw_strz(&w, "ready");
    send(r, &w, &s);
    return SL_OK;
}

sl_status api_version(api *a, struct net_req *r, sl_err *err)
{
    struct json_w w;
    struct str s;
    (void)a;
    (void)err;
    begin(&w, &s);
    text_jw_key(&w, "version");
    text_jw_strz(&w, sl_version());
    send(r, &w, &s);
    return SL_OK;
}

/* POST /admin/place: experts change ranks, from now on and while requests go on. */
sl_status api_place(api *a, struct net_req *r, sl_err *err)
{
    struct json_w w;
    struct str s;
    sl_stats st;
    SL_TRY(sl_rebalance(a->o.engine, err));
    sl_stats_get(a->o.engine, &st);
    begin(&w, &s);
    text_jw_key(&w, "status");
    text_jw_strz(&w, "asked");
    text_jw_key(&w, "passes");
    text_jw_int(&w, (int64_t)st.n_rebalance);
    text_jw_key(&w, "placement");
    text_jw_int(&w, (int64_t)st.n_placement);
    text_jw_key(&w, "experts_moved");
    text_jw_int(&w, (int64_t)st.n_expert_moved);
    text_jw_obj_end(&w);
    net_reply(r, 202, API_JSON, &s);
    return SL_OK;
}

/* ---- text ---- */

static void send_ids(api *a, struct net_req *r, const int32_t *ids, int n)
{
    struct json_w w;
    struct str s;
    begin(&w, &s);
    text_jw_key(&w, "count");
    text_jw_int(&w, n);
    text_jw_key(&w, "max_model_len");
    text_jw_int(&w, a->ei.n_ctx);
    api_put_ids(&w, "tokens", ids, n);
    send(r, &w, &s);
}

static sl_status body_of(const api *a, struct net_req *r, int route, const struct json **body,
                         sl_err *err)
{
    SL_TRY(api_body_parse(a, r, route, body, err));
    return api_model_check(a, *body, err);
}

/* The one text of a request, and the name that it has; beside messages there is none. */
static sl_status one_text(const struct json *body, const struct json **text, const char **name,
                          sl_err *err)
{
    static const char *const names[] = {"prompt", "content", "text"};
    const char *other = api_field(body, "messages") ? "messages" : NULL;
    *text = NULL;
    for (int i = 0; i < BASE_COUNT_OF(names); i++) {
        const struct json *v = api_field(body, names[i]);
        if (v && other)
            return SL_FAIL(err, REQUEST, "%s: and %s: only one of them", names[i], other);
        if (!v) continue;
        *text = v;
        *name = other = names[i];
    }
    if (*text && (*text)->kind != JSON_STR_K)
        return SL_FAIL(err, REQUEST, "%s: must be a string", *name);
    return SL_OK;
}

/* SL_TOK flags of a text. llama.cpp's clients, who say content, mean no BOS and take control tokens
 * in a text for such where they say nothing. */
static sl_status text_flags(const struct json *body, bool theirs, int *flags, sl_err *err)
{
    bool alias = api_field(body, "add_special") != NULL;
    if (alias && api_field(body, "add_special_tokens"))
        return SL_FAIL(err, REQUEST, "add_special: and add_special_tokens: only one of them");
    bool around = api_field_bool(body, alias ? "add_special" : "add_special_tokens", !theirs);
    bool special = api_field_bool(body, "parse_special", theirs);
    *flags = (around ? SL_TOK_AROUND : 0) | (special ? SL_TOK_SPECIAL : 0);
    return SL_OK;
}

static sl_status send_chat_ids(api *a, struct net_req *r, const struct json *body, sl_err *err)
{
    struct api_prompt p;
    if (api_field_bool(body, "add_special", false))
        return SL_FAIL(err, REQUEST, "add_special: not supported: the chat template adds them");
    if (api_field(body, "parse_special"))
        return SL_FAIL(err, REQUEST, "parse_special: only with a text");
    SL_TRY(api_chat_prompt(a, r, body, true, &p, err));
    send_ids(a, r, p.ids, p.n_ids);
    return SL_OK;
}

sl_status api_tokenize(api *a, struct net_req *r, sl_err *err)
{
    const struct json *body = NULL, *text;
    const char *name = "prompt";
    int32_t *ids = NULL;
    int n = 0, flags = 0;
    SL_TRY(body_of(a, r, API_TOKENIZE, &body, err));
    SL_TRY(one_text(body, &text, &name, err));
    if (api_field(body, "messages")) return send_chat_ids(a, r, body, err);
    if (!text) return SL_FAIL(err, REQUEST, "prompt: must be a string");
    SL_TRY(text_flags(body, strcmp(name, "content") == 0, &flags, err));
    SL_TRY(sl_tokenize(a->o.model, text->s, text->n, flags, &ids, &n, err));
    send_ids(a, r, ids, n);
    sl_free(ids);
    return SL_OK;
}

sl_status api_detokenize(api *a, struct net_req *r, sl_err *err)
{
    const struct json *body = NULL, *list;
    struct json_w w;
    struct str s;
    struct api_prompt p;
    char *text = NULL;
    size_t n_text = 0;
    SL_TRY(body_of(a, r, API_DETOKENIZE, &body, err));
    list = api_field(body, "tokens");
    if (!list) return SL_FAIL(err, REQUEST, "tokens: missing");
    SL_TRY(api_ids_parse(a, &r->arena, "tokens", list, &p, err));
    SL_TRY(sl_detokenize(a->o.model, p.ids, p.n_ids, api_field_bool(body, "special", true), &text,
                         &n_text, err));
    begin(&w, &s);
    text_jw_key(&w, "prompt");
    text_jw_str(&w, text, n_text);
    sl_free(text);
    send(r, &w, &s);
    return SL_OK;
}

sl_status api_apply_template(api *a, struct net_req *r, sl_err *err)
{
    const struct json *body = NULL;
    struct json_w w;
    struct str s;
    char *text = NULL;
    SL_TRY(body_of(a, r, API_CHAT, &body, err));
    SL_TRY(api_chat_text(a, r, body, &text, err));
    begin(&w, &s);
    text_jw_key(&w, "prompt");
    text_jw_strz(&w, text);
    sl_free(text);
    send(r, &w, &s);
    return SL_OK;
}
