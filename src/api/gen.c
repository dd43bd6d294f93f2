/* SPDX-License-Identifier: Apache-2.0 */
/* What chat, completions and responses have in common: sampling, lengths, ends. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/api_internal.h"
#include "base/hash.h"

/* Is word among the ", "-separated ones? */
static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; at && (at = strstr(at, word)); at += n)
        if ((at == list || at[-1] == ' ') && (at[n] == ',' || !at[n])) return true;
    return false;
}

void api_say_ignored(struct net_req *r, const char *what)
{
    const char *said = net_reply_header_of(r, API_IGNORED);
    struct str s;
    if (has_word(said, what)) return;
    str_init(&s, MEM_REQUEST, 0);
    if (said) str_printf(&s, "%s, ", said);
    str_puts(&s, what);
    str_cut(&s, BASE_MIN(s.n, API_IGNORED_MAX));
    if (!s.failed) net_reply_header(r, API_IGNORED, str_c(&s));
    str_fini(&s);
}

void api_say_message(struct net_req *r, const char *member)
{
    struct str name;
    str_init(&name, MEM_REQUEST, 0);
    str_puts(&name, "messages.");
    api_field_name(&name, member);
    if (!name.failed) api_say_ignored(r, str_c(&name));
    str_fini(&name);
}

sl_status api_body_parse(const api *a, struct net_req *r, int route, const struct json **out,
                         sl_err *err)
{
    struct str unknown;
    sl_status st = text_json_parse(&r->arena, "body", str_c(&r->body), r->body.n, out, err);
    if (st == SL_FORMAT || st == SL_LIMIT) { /* not of the model: of the request */
        if (err) err->code = SL_REQUEST;
        return SL_REQUEST;
    }
    if (st) return st;
    if (!a || !a->o.ignore_unknown) return api_fields_check(*out, route, NULL, err);
    str_init(&unknown, MEM_REQUEST, 0);
    st = api_fields_check(*out, route, &unknown, err);
    if (!st && unknown.n) api_say_ignored(r, str_c(&unknown));
    str_fini(&unknown);
    return st;
}

const char *api_model_name(const api *a, const char *asked)
{
    for (int i = 0; asked && i < a->o.n_alias; i++)
        if (strcmp(asked, a->o.alias[i]) == 0) return a->o.alias[i];
    return a->name;
}

/* "a", "b": what clients may call the model, as far as it fits. */
static const char *names_text(const api *a, char *buf, size_t cap)
{
    size_t n = 0;
    for (int i = -1; i < a->o.n_alias && n < cap; i++)
        n += (size_t)snprintf(buf + n, cap - n, "%s\"%.100s\"", i < 0 ? "" : ", ",
                              i < 0 ? a->name : a->o.alias[i]);
    return buf;
}

sl_status api_model_named(const api *a, const char *name, sl_err *err)
{
    char names[400];
    if (api_model_name(a, name) != a->name) return SL_OK;
    if (!name || !*name || strcmp(name, a->name) == 0 || strcmp(name, a->mi.name) == 0 ||
        strcmp(name, "default") == 0 || (a->o.model_arg && strcmp(name, a->o.model_arg) == 0))
        return SL_OK;
    return SL_FAIL(err, NOTFOUND,
                   "model: the model \"%.100s\" does not exist: this server has %s", name,
                   names_text(a, names, sizeof names));
}

sl_status api_model_check(const api *a, const struct json *body, sl_err *err)
{
    return api_model_named(a, api_field_str(body, "model", NULL), err);
}

sl_status api_ids_parse(const api *a, struct arena *ar, const char *name, const struct json *list,
                        struct api_prompt *out, sl_err *err)
{
    void *p = NULL;
    if (list->kind != JSON_ARRAY_K)
        return SL_FAIL(err, REQUEST, "%s: must be a list of token ids", name);
    if (list->n > INT32_MAX / 8) return SL_FAIL(err, LIMIT, "%s: too long", name);
    SL_TRY(mem_arena_array(ar, list->n + 1, sizeof(int32_t), &p, err));
    int32_t *ids = p;
    int n = 0;
    for (const struct json *v = list->child; v; v = v->next) {
        if (v->kind != JSON_INT_K || v->i < 0 || v->i >= a->mi.n_vocab)
            return SL_FAIL(err, REQUEST, "%s: place %d: must be a token id below %d", name, n,
                           a->mi.n_vocab);
        ids[n++] = (int32_t)v->i;
    }
    *out = (struct api_prompt){.ids = ids, .n_ids = n};
    return SL_OK;
}

/* A prompt is a text, where those are taken, or a list of ids. */
static sl_status check_prompt(const char *name, const struct json *v, bool ids_only, sl_err *err)
{
    if (v->kind == JSON_STR_K && !ids_only)
        return memchr(v->s, 0, v->n) ? SL_FAIL(err, REQUEST, "%s: holds a NUL", name) : SL_OK;
    if (v->kind != JSON_ARRAY_K)
        return SL_FAIL(err, REQUEST, "%s: must be %stoken ids or lists of token ids", name,
                       ids_only ? "" : "text, texts, ");
    return v->n ? SL_OK : SL_FAIL(err, REQUEST, "%s: empty", name);
}

sl_status api_prompts_parse(const api *a, struct arena *ar, const char *name, const struct json *v,
                            struct api_prompts *out, sl_err *err)
{
    void *p = NULL;
    bool many = v->kind == JSON_ARRAY_K && v->n > 0 && v->child->kind != JSON_INT_K;
    const struct json *e = many ? v->child : v;
    size_t n = many ? v->n : 1;
    if (n > (size_t)out->max)
        return SL_FAIL(err, REQUEST, "%s: %zu of them: at most %d", name, n, out->max);
    SL_TRY(mem_arena_array(ar, n, sizeof *out->v, &p, err));
    out->v = p;
    out->n = (int)n;
    for (int i = 0; i < out->n; i++, e = e->next) {
        SL_TRY(check_prompt(name, e, out->ids_only, err));
        if (e->kind == JSON_STR_K)
            out->v[i] = (struct api_prompt){.text = e->s};
        else
            SL_TRY(api_ids_parse(a, ar, name, e, &out->v[i], err));
    }
    return SL_OK;
}

static sl_status parse_stop(struct arena *a, const struct json *v, sl_request *q, sl_err *err)
{
    void *p = NULL;
    if (!v) return SL_OK;
    size_t n = v->kind == JSON_ARRAY_K ? v->n : 1;
    if (n > API_STOP_MAX)
        return SL_FAIL(err, REQUEST, "stop: %zu texts: at most %d", n, API_STOP_MAX);
    SL_TRY(mem_arena_array(a, n + 1, sizeof(char *), &p, err));
    const char **s = p;
    const struct json *e = v->kind == JSON_ARRAY_K ? v->child : v;
    for (size_t i = 0; i < n; i++, e = e->next) {
        if (e->kind != JSON_STR_K)
            return SL_FAIL(err, REQUEST, "stop: must be a string or a list of strings");
        if (e->n < 1 || e->n > 1024 || memchr(e->s, 0, e->n))
            return SL_FAIL(err, REQUEST, "stop: text %zu: must be 1 to 1024 bytes without NUL", i);
        s[i] = e->s;
    }
    q->stop = s;
    q->n_stop = (int)n;
    return SL_OK;
}

static sl_status parse_bias(api *a, struct arena *ar, const struct json *v, sl_sampling *s,
                            sl_err *err)
{
    void *p = NULL;
    if (!v) return SL_OK;
    if (v->kind != JSON_OBJECT_K)
        return SL_FAIL(err, REQUEST, "logit_bias: must be an object of token ids and numbers");
    if (v->n > API_BIAS_MAX)
        return SL_FAIL(err, REQUEST, "logit_bias: %zu entries: at most %d", v->n, API_BIAS_MAX);
    SL_TRY(mem_arena_array(ar, v->n + 1, sizeof(sl_bias), &p, err));
    sl_bias *b = p;
    for (const struct json *e = v->child; e; e = e->next) {
        char *end;
        long id = strtol(e->key, &end, 10);
        if (e->n_key < 1 || e->n_key > 9 || *end || !isdigit((unsigned char)e->key[0]) ||
            id >= a->mi.n_vocab)
            return SL_FAIL(err, REQUEST, "logit_bias: \"%.20s\": must be a token id below %d",
                           e->key, a->mi.n_vocab);
        if ((e->kind != JSON_INT_K && e->kind != JSON_REAL_K) || !(e->f >= -100 && e->f <= 100))
            return SL_FAIL(err, REQUEST, "logit_bias: of token %ld: must be from -100 to 100", id);
        b[s->n_bias++] = (sl_bias){(int32_t)id, (float)e->f};
    }
    s->bias = b;
    return SL_OK;
}

static sl_status parse_sampling(api *a, struct net_req *r, const struct json *b, struct api_gen *g,
                                sl_err *err)
{
    sl_sampling *s = &g->q.sampling;
    const sl_sampling *def = &a->o.sampling;
    s->temperature = (float)api_field_real(b, "temperature", (double)def->temperature);
    s->top_p = (float)api_field_real(b, "top_p", (double)def->top_p);
    if (s->top_p == 0)
        s->top_p = 1e-6f; /* the engine reads 0 as off; here it means the best only */
    s->min_p = (float)api_field_real(b, "min_p", (double)def->min_p);
    s->top_k = (int)BASE_MAX(api_field_int(b, "top_k", def->top_k), 0);
    s->repeat_penalty = (float)api_field_real(
        b, "repetition_penalty", api_field_real(b, "repeat_penalty", (double)def->repeat_penalty));
    s->presence_penalty =
        (float)api_field_real(b, "presence_penalty", (double)def->presence_penalty);
    s->frequency_penalty =
        (float)api_field_real(b, "frequency_penalty", (double)def->frequency_penalty);
    if (s->repeat_penalty != 1 && api_field_int(b, "repeat_last_n", -1) != -1)
        return SL_FAIL(err, REQUEST,
                       "repeat_last_n: only -1: repetition_penalty looks at all tokens");
    if (api_field(b, "seed"))
        s->seed = (uint64_t)api_field_int(b, "seed", 0);
    else if (def->seed)
        s->seed = def->seed;
    else
        net_random(&s->seed, sizeof s->seed);
    return parse_bias(a, &r->arena, api_field(b, "logit_bias"), s, err);
}

static sl_status parse_stream(const struct json *b, struct api_gen *g, sl_err *err)
{
    const struct json *o = api_field(b, "stream_options");
    g->stream = api_field_bool(b, "stream", false);
    if (!o) return SL_OK;
    if (o->kind != JSON_OBJECT_K) return SL_FAIL(err, REQUEST, "stream_options: must be an object");
    if (!g->stream) return SL_FAIL(err, REQUEST, "stream_options: only with stream: true");
    SL_TRY(api_members_check(o, "stream_options",
                             "include_usage|continuous_usage_stats|include_obfuscation", err));
    SL_TRY(api_field_kind(o, "stream_options", "include_usage", JSON_BOOL_K, err));
    SL_TRY(api_field_kind(o, "stream_options", "continuous_usage_stats", JSON_BOOL_K, err));
    g->include_usage = api_field_bool(o, "include_usage", false);
    g->continuous_usage = api_field_bool(o, "continuous_usage_stats", false);
    return SL_OK;
}

/* The first of these fields that is there, and its value; -1 (until the context is full) is 0 of
 * the engine, and 0 its -1. */
static sl_status parse_max(const api *a, const struct json *b, int route, struct api_gen *g,
                           int64_t *max, sl_err *err)
{
    static const char *const name[] = {"max_output_tokens", "max_completion_tokens", "max_tokens",
                                       "n_predict"};
    int from = route == API_RESPONSES ? 0 : route == API_CHAT ? 1 : 2;
    *max = route == API_TEXT ? 16 : a->o.max_tokens;
    for (int i = from; i < BASE_COUNT_OF(name); i++) {
        if (!api_field(b, name[i])) continue;
        *max = api_field_int(b, name[i], 0);
        if (*max == 0 && route == API_TEXT && g->echo)
            *max = -1;
        else if (*max == 0)
            return SL_FAIL(err, REQUEST,
                           "%s: 0: must be at least 1%s, or -1: until the context is full", name[i],
                           route == API_TEXT ? " (0 only with echo: true)" : "");
        else if (*max < 0)
            *max = 0;
        break;
    }
    return SL_OK;
}

static sl_status parse_lengths(const api *a, const struct json *b, int route, struct api_gen *g,
                               sl_err *err)
{
    int64_t max = 0;
    SL_TRY(parse_max(a, b, route, g, &max, err));
    g->q.max_tokens = (int)max;
    g->q.min_tokens = (int)api_field_int(b, "min_tokens", 0);
    if (max > 0 && g->q.min_tokens > max)
        return SL_FAIL(err, REQUEST, "min_tokens: %d: more than the %lld tokens allowed",
                       g->q.min_tokens, (long long)max);
    return SL_OK;
}

static sl_status parse_logprobs(const struct json *b, int route, struct api_gen *g, sl_err *err)
{
    if (route == API_TEXT) {
        g->logprobs = api_field(b, "logprobs") != NULL;
        g->n_top = (int)api_field_int(b, "logprobs", 0);
    } else {
        g->n_top = (int)api_field_int(b, "top_logprobs", 0);
        g->logprobs = route == API_CHAT ? api_field_bool(b, "logprobs", false) : g->n_top > 0;
        if (g->n_top && !g->logprobs)
            return SL_FAIL(err, REQUEST, "top_logprobs: only with logprobs: true");
    }
    g->q.want_logprob = g->logprobs;
    g->q.n_logprob = g->logprobs ? g->n_top : -1;
    return SL_OK;
}

/* The ids of a text, in the arena; what is over the context is left out. */
static sl_status text_ids(const api *a, struct arena *ar, const struct str *text, sl_request *q,
                          sl_err *err)
{
    int32_t *ids = NULL;
    void *p = NULL;
    int n = 0;
    SL_TRY(str_status(text, err));
    SL_TRY(sl_tokenize(a->o.model, str_c(text), text->n, 0, &ids, &n, err));
    n = BASE_MIN(n, a->ei.n_ctx);
    sl_status st = mem_arena_array(ar, (size_t)n + 1, sizeof *ids, &p, err);
    if (!st && n) memcpy(p, ids, (size_t)n * sizeof *ids);
    q->draft_ids = p;
    q->n_draft_ids = st ? 0 : n;
    sl_free(ids);
    return st;
}

/* A text that the answer is expected to hold. */
static sl_status parse_prediction(const api *a, struct arena *ar, const struct json *v,
                                  struct api_gen *g, sl_err *err)
{
    struct str text;
    if (!v) return SL_OK;
    if (v->kind != JSON_OBJECT_K) return SL_FAIL(err, REQUEST, "prediction: must be an object");
    const struct json *type = text_json_get(v, "type"), *content = text_json_get(v, "content");
    SL_TRY(api_members_check(v, "prediction", "type|content", err));
    if (!type || type->kind != JSON_STR_K || strcmp(type->s, "content") != 0)
        return SL_FAIL(err, REQUEST, "prediction: type: must be \"content\"");
    if (!content) return SL_FAIL(err, REQUEST, "prediction: content: missing");
    SL_TRY(api_content_check(content, "prediction", err));
    if (g->n > 1) return SL_FAIL(err, REQUEST, "prediction: not together with n: %d", g->n);
    str_init(&text, MEM_REQUEST, 0);
    api_content_text(&text, content);
    sl_status st = text_ids(a, ar, &text, &g->q, err);
    str_fini(&text);
    return st;
}

void api_say_asked(const struct api_gen *g, sl_err *err)
{
    const char *colon = err ? strstr(err->text, " tokens: ") : NULL;
    char rest[sizeof err->text];
    if (!colon || err->code != SL_LIMIT || g->q.max_tokens < 1) return;
    snprintf(rest, sizeof rest, "%s", colon + strlen(" tokens"));
    size_t at = (size_t)(colon - err->text) + strlen(" tokens");
    snprintf(err->text + at, sizeof err->text - at, " and %d asked for%s", g->q.max_tokens, rest);
}

static sl_status check_reasoning_format(const struct json *b, sl_err *err)
{
    const char *f = api_field_str(b, "reasoning_format", "auto");
    if (strcmp(f, "auto") == 0 || strncmp(f, "deepseek", 8) == 0) return SL_OK;
    return SL_FAIL(err, REQUEST,
                   "reasoning_format: must be auto or deepseek: --reasoning-parser none leaves "
                   "reasoning in the text");
}

sl_status api_gen_parse(api *a, struct net_req *r, const struct json *b, int route,
                        struct api_gen *g, sl_err *err)
{
    struct arena *ar = &r->arena;
    const struct json *ids = api_field(b, "stop_token_ids");
    const char *salt = api_field_str(b, "cache_salt", NULL);
    g->body = b;
    g->model = api_model_name(a, api_field_str(b, "model", NULL));
    g->created = (int64_t)time(NULL);
    g->n = (int)api_field_int(b, "n", 1);
    g->echo = api_field_bool(b, "echo", false);
    g->return_ids = api_field_bool(b, "return_token_ids", false);
    SL_TRY(api_model_check(a, b, err));
    SL_TRY(check_reasoning_format(b, err));
    SL_TRY(parse_stream(b, g, err));
    SL_TRY(parse_lengths(a, b, route, g, err));
    SL_TRY(parse_logprobs(b, route, g, err));
    SL_TRY(parse_sampling(a, r, b, g, err));
    SL_TRY(parse_stop(ar, api_field(b, "stop"), &g->q, err));
    if (ids) {
        struct api_prompt list;
        SL_TRY(api_ids_parse(a, ar, "stop_token_ids", ids, &list, err));
        if (list.n_ids > API_STOP_IDS)
            return SL_FAIL(err, REQUEST, "stop_token_ids: %d ids: at most %d", list.n_ids,
                           API_STOP_IDS);
        g->q.stop_ids = list.ids;
        g->q.n_stop_ids = list.n_ids;
    }
    SL_TRY(parse_prediction(a, ar, api_field(b, "prediction"), g, err));
    g->q.n = g->n;
    g->q.bos = route == API_TEXT && !api_field_bool(b, "add_special_tokens", true) ? -1 : 0;
    g->q.ignore_eos = api_field_bool(b, "ignore_eos", false);
    g->q.keep_special = !api_field_bool(b, "skip_special_tokens", true);
    g->q.priority = (int)api_field_int(b, "priority", 0);
    g->q.timeout_ms = api_field_int(b, "timeout_ms", a->o.timeout_ms);
    g->q.owner = (uint64_t)(r->key + 1);
    if (salt) g->q.cache_salt = hash_bytes(salt, strlen(salt), (uint64_t)(r->key + 1)) | 1;
    g->q.want_progress = g->stream;
    return SL_OK;
}
