/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/responses: the answer as items, whole or as events with rising numbers; stored, so that the
 * next request can go on from it. */
#include "api/responses.h"

#include <string.h>

#include "base/log.h"

/* ---- events ---- */

/* event: TYPE, data: {"type":TYPE,"sequence_number":N, then more members by the caller */
static void begin_event(struct api_resp *p, struct json_w *w, const char *type)
{
    str_printf(p->out, "event: %s\ndata: ", type);
    text_jw_init(w, p->out);
    text_jw_obj(w);
    text_jw_key(w, "type");
    text_jw_strz(w, type);
    text_jw_key(w, "sequence_number");
    text_jw_int(w, p->seq++);
}

static void end_event(struct api_resp *p, struct json_w *w)
{
    text_jw_obj_end(w);
    str_puts(p->out, "\n\n");
}

static void whole_event(struct api_job *j, const char *type, const char *status)
{
    struct api_resp *p = j->user;
    struct json_w w;
    begin_event(p, &w, type);
    text_jw_key(&w, "response");
    api_resp_put(&w, j, status);
    end_event(p, &w);
}

static void put_place(struct json_w *w, const struct api_resp *p, bool content)
{
    text_jw_key(w, "item_id");
    text_jw_strz(w, p->item_id);
    text_jw_key(w, "output_index");
    text_jw_int(w, p->n_item);
    if (!content) return;
    text_jw_key(w, "content_index");
    text_jw_int(w, 0);
}

static void put_logprobs(struct json_w *w, const struct str *s)
{
    text_jw_key(w, "logprobs");
    text_jw_arr(w);
    if (s) api_put_json(w, s);
    text_jw_arr_end(w);
}

static bool is_call(const struct api_resp *p)
{
    return p->open >= API_ITEM_CALL;
}

/* What the open item holds; not done: nothing. */
static void put_body(struct json_w *w, const struct api_resp *p, bool done)
{
    if (done)
        api_put_text(w, &p->item);
    else
        text_jw_strz(w, "");
}

/* The content part of the open item; done: with its text. */
static void put_part(struct json_w *w, const struct api_resp *p, bool done)
{
    bool text = p->open == API_ITEM_TEXT;
    text_jw_obj(w);
    text_jw_key(w, "type");
    text_jw_strz(w, text ? "output_text" : "reasoning_text");
    text_jw_key(w, "text");
    put_body(w, p, done);
    if (text) {
        text_jw_key(w, "annotations");
        text_jw_arr(w);
        text_jw_arr_end(w);
        put_logprobs(w, done ? &p->logprobs : NULL);
    }
    text_jw_obj_end(w);
}

static void put_search(struct json_w *w, const struct api_resp *p, bool done)
{
    text_jw_key(w, "execution");
    text_jw_strz(w, "client");
    text_jw_key(w, "arguments");
    if (done)
        api_put_object(w, &p->item);
    else
        text_jw_raw(w, "{}", 2);
}

static void put_call(struct json_w *w, const struct api_resp *p, bool done)
{
    text_jw_key(w, "call_id");
    text_jw_strz(w, p->call_id);
    if (p->open == API_ITEM_SEARCH) {
        put_search(w, p, done);
        return;
    }
    text_jw_key(w, "name");
    api_put_text(w, &p->name);
    if (p->ns) {
        text_jw_key(w, "namespace");
        text_jw_strz(w, p->ns);
    }
    text_jw_key(w, p->open == API_ITEM_CALL ? "arguments" : "input");
    put_body(w, p, done);
}

static void put_item(struct json_w *w, const struct api_resp *p, bool done, const char *status)
{
    static const char *const type[] = {
        "", "reasoning", "message", "function_call", "custom_tool_call", "tool_search_call"};
    text_jw_obj(w);
    text_jw_key(w, "id");
    text_jw_strz(w, p->item_id);
    text_jw_key(w, "type");
    text_jw_strz(w, type[p->open]);
    text_jw_key(w, "status");
    text_jw_strz(w, status);
    if (is_call(p)) {
        put_call(w, p, done);
    } else {
        if (p->open == API_ITEM_TEXT) {
            text_jw_key(w, "role");
            text_jw_strz(w, "assistant");
        } else {
            text_jw_key(w, "summary");
            text_jw_arr(w);
            text_jw_arr_end(w);
        }
        text_jw_key(w, "content");
        text_jw_arr(w);
        if (done) put_part(w, p, true);
        text_jw_arr_end(w);
    }
    text_jw_obj_end(w);
}

/* ---- items ---- */

static void part_event(struct api_resp *p, const char *type, bool done)
{
    struct json_w w;
    begin_event(p, &w, type);
    put_place(&w, p, true);
    text_jw_key(&w, "part");
    put_part(&w, p, done);
    end_event(p, &w);
}

static void item_event(struct api_resp *p, const char *type, bool done, const char *status)
{
    struct json_w w;
    begin_event(p, &w, type);
    text_jw_key(&w, "output_index");
    text_jw_int(&w, p->n_item);
    text_jw_key(&w, "item");
    put_item(&w, p, done, status);
    end_event(p, &w);
}

static void done_event(struct api_resp *p)
{
    static const char *const type[] = {
        "", "response.reasoning_text.done", "response.output_text.done",
        "response.function_call_arguments.done", "response.custom_tool_call_input.done"};
    struct json_w w;
    bool call = p->open == API_ITEM_CALL;
    begin_event(p, &w, type[p->open]);
    put_place(&w, p, !is_call(p));
    if (call) {
        text_jw_key(&w, "name");
        api_put_text(&w, &p->name);
    }
    text_jw_key(&w, call ? "arguments" : is_call(p) ? "input" : "text");
    api_put_text(&w, &p->item);
    if (p->open == API_ITEM_TEXT) put_logprobs(&w, &p->logprobs);
    end_event(p, &w);
}

static void delta(struct api_resp *p, const char *type, const char *s, size_t n,
                  const struct str *logprobs)
{
    struct json_w w;
    str_put(&p->item, s, n);
    if (!p->out || p->open == API_ITEM_SEARCH) return; /* there is no event for its arguments */
    begin_event(p, &w, type);
    put_place(&w, p, !is_call(p));
    text_jw_key(&w, "delta");
    text_jw_str(&w, s, n);
    api_inherit(p->out, &p->item);
    if (p->open == API_ITEM_TEXT) put_logprobs(&w, logprobs);
    end_event(p, &w);
}

/* More of the arguments of a free-form call; last: nothing follows. */
static void put_custom(struct api_resp *p, const char *s, size_t n, bool last)
{
    struct str text;
    str_init(&text, MEM_REQUEST, 0);
    if (n) api_unwrap_feed(&p->unwrap, s, n, &text);
    if (last) api_unwrap_end(&p->unwrap, &text);
    api_inherit(&p->item, &text);
    if (text.n) delta(p, "response.custom_tool_call_input.delta", text.p, text.n, NULL);
    str_fini(&text);
}

static void close_item(struct api_resp *p, const char *status)
{
    struct json_w w;
    if (p->open == API_ITEM_NONE) return;
    if (p->open == API_ITEM_CUSTOM) put_custom(p, NULL, 0, true);
    if (p->out) {
        if (p->open != API_ITEM_SEARCH) done_event(p);
        if (!is_call(p)) part_event(p, "response.content_part.done", true);
        item_event(p, "response.output_item.done", true, status);
    }
    if (p->items.n) str_putc(&p->items, ',');
    text_jw_init(&w, &p->items);
    put_item(&w, p, true, status);
    p->n_item++;
    p->open = API_ITEM_NONE;
    str_clear(&p->item);
    str_clear(&p->logprobs);
}

static void open_item(struct api_resp *p, enum api_item kind)
{
    static const char *const prefix[] = {"", "rs_", "msg_", "fc_", "ctc_", "tsc_"};
    if (p->open == kind && kind < API_ITEM_CALL) return;
    close_item(p, "completed");
    p->open = kind;
    net_random_id(prefix[kind], p->item_id);
    if (kind >= API_ITEM_CALL || !p->out) return;
    item_event(p, "response.output_item.added", false, "in_progress");
    part_event(p, "response.content_part.added", false);
}

/* Those that were told now are the open text's. */
static void take_logprobs(struct api_resp *p)
{
    struct str *lp = &p->x.logprobs;
    if (!lp->n && !lp->failed) return;
    if (p->logprobs.n) str_putc(&p->logprobs, ',');
    str_put(&p->logprobs, str_c(lp), lp->n);
    api_inherit(&p->logprobs, lp);
    str_clear(lp);
}

/* ---- the sink: user = struct api_job ---- */

static void on_text(void *user, const char *s, size_t n)
{
    struct api_job *j = user;
    struct api_resp *p = j->user;
    open_item(p, API_ITEM_TEXT);
    str_put(&p->x.text, s, n);
    delta(p, "response.output_text.delta", s, n, &p->x.logprobs);
    take_logprobs(p);
}

static void on_reason(void *user, const char *s, size_t n)
{
    struct api_job *j = user;
    struct api_resp *p = j->user;
    open_item(p, API_ITEM_REASON);
    delta(p, "response.reasoning_text.delta", s, n, NULL);
}

static void on_call(void *user, int i, const char *name, size_t n)
{
    struct api_job *j = user;
    struct api_resp *p = j->user;
    const struct api_resp_tool *t = api_resp_tool_of(p, name, n);
    open_item(p, t ? t->item : API_ITEM_CALL);
    api_answer_sink.call(&p->x, i, t ? t->flat : name, t ? strlen(t->flat) : n);
    net_random_id("call_", p->call_id);
    if (i < p->x.n_call) memcpy(p->call_id, p->x.call[i].id, sizeof p->x.call[i].id);
    str_clear(&p->name);
    str_put(&p->name, t ? t->name : name, t ? strlen(t->name) : n);
    p->ns = t ? t->ns : NULL;
    if (p->out) item_event(p, "response.output_item.added", false, "in_progress");
}

static void on_args(void *user, int i, const char *s, size_t n)
{
    struct api_job *j = user;
    struct api_resp *p = j->user;
    if (!is_call(p)) return;
    api_answer_sink.args(&p->x, i, s, n);
    if (p->open == API_ITEM_CUSTOM)
        put_custom(p, s, n, false);
    else
        delta(p, "response.function_call_arguments.delta", s, n, NULL);
}

/* ---- the job ---- */

static void begin(struct api_job *j)
{
    struct api_resp *p = j->user;
    if (p->begun) return;
    p->begun = true;
    whole_event(j, "response.created", "in_progress");
    whole_event(j, "response.in_progress", "in_progress");
}

static void event(struct api_job *j, const struct api_event *ev, struct str *out)
{
    struct api_resp *p = j->user;
    const struct api_parse_sink sink = {j, on_text, on_reason, on_call, on_args};
    bool last = ev->finish != SL_FINISH_NONE;
    p->out = out;
    if (out) begin(j);
    if (ev->token < 0 && !last && !ev->n_text) {
        if (out) api_put_progress(out, ev);
        return;
    }
    api_answer_count(j, &p->x, ev);
    bool content = api_parse_in_content(p->x.parse);
    api_answer_token(j, &p->x, ev);
    if (api_parse_feed(p->x.parse, ev->text, (size_t)ev->n_text, last, &sink, NULL))
        p->items.failed = SL_NOMEM;
    if (!content ||
        !api_parse_in_content(p->x.parse)) /* of reasoning, calls and tags: told nowhere */
        str_clear(&p->x.logprobs);
    else if (last && p->open == API_ITEM_TEXT)
        take_logprobs(p);
    if (out) api_inherit(out, &p->items);
    if (last) p->x.finish = ev->finish;
}

/* The assistant's message of this answer, for the next request. */
static void put_history(struct api_resp *p)
{
    struct json_w w;
    str_putc(&p->history, ',');
    text_jw_init(&w, &p->history);
    text_jw_obj(&w);
    text_jw_key(&w, "role");
    text_jw_strz(&w, "assistant");
    text_jw_key(&w, "content");
    api_put_text(&w, &p->x.text);
    if (p->x.n_call) api_put_calls(&w, &p->x);
    text_jw_obj_end(&w);
}

static void keep(struct api_job *j, const struct str *body)
{
    struct api_resp *p = j->user;
    char key[64];
    if (!p->store) return;
    put_history(p);
    size_t n_input = p->input.n;
    str_putc(&p->input, ',');
    str_put(&p->input, str_c(&p->items), p->items.n);
    if (body->failed) return; /* so is the request */
    api_key_name(j->a, j->r->key, key);
    struct api_stored s = {.id = p->g.id,
                           .key = key,
                           .body = str_c(body),
                           .n_body = body->n,
                           .history = str_c(&p->history),
                           .n_history = p->history.n,
                           .items = str_c(&p->input),
                           .n_items = p->input.n,
                           .n_input = n_input};
    sl_err err;
    sl_status st = str_status(&p->history, &err);
    if (!st) st = str_status(&p->input, &err);
    if (!st) st = api_store_put(j->a, &s, &err);
    if (st) /* a full disk must not cost the client its answer */
        log_msg(LOG_WARN, "%s: the response was not stored", err.text);
}

static void end(struct api_job *j, struct str *out)
{
    struct api_resp *p = j->user;
    bool cut = p->x.finish == SL_FINISH_LENGTH;
    const char *status = cut ? "incomplete" : "completed";
    struct json_w w;
    struct str s;
    p->out = out;
    if (p->open == API_ITEM_NONE && !p->n_item) open_item(p, API_ITEM_TEXT);
    close_item(p, status);
    str_init(&s, MEM_REQUEST, 0);
    text_jw_init(&w, &s);
    api_resp_put(&w, j, status);
    keep(j, &s);
    if (!out) {
        net_reply(j->r, 200, API_JSON, &s);
        return;
    }
    begin_event(p, &w, cut ? "response.incomplete" : "response.completed");
    text_jw_key(&w, "response");
    api_put_json(&w, &s);
    end_event(p, &w);
    str_fini(&s);
}

static void failed(struct api_job *j, struct str *out)
{
    struct api_resp *p = j->user;
    p->out = out;
    begin(j);
    close_item(p, "incomplete");
    whole_event(j, "response.failed", "failed");
}

static void fini(struct api_job *j)
{
    struct api_resp *p = j->user;
    api_answer_fini(&p->x);
    str_fini(&p->history);
    str_fini(&p->input);
    str_fini(&p->item);
    str_fini(&p->name);
    str_fini(&p->items);
    str_fini(&p->logprobs);
    api_unwrap_fini(&p->unwrap);
}

static const struct api_fmt fmt = {event, end, failed, fini};

/* Members that have no row of a type of their own: they are read, or given back as they came. */
static sl_status check_kinds(const struct json *body, sl_err *err)
{
    static const struct {
        const char *name;
        enum json_kind kind;
    } row[] = {{"text", JSON_OBJECT_K},
               {"reasoning", JSON_OBJECT_K},
               {"metadata", JSON_OBJECT_K},
               {"client_metadata", JSON_OBJECT_K},
               {"tools", JSON_ARRAY_K},
               {"include", JSON_ARRAY_K},
               {"user", JSON_STR_K},
               {"prompt_cache_key", JSON_STR_K},
               {"safety_identifier", JSON_STR_K},
               {"service_tier", JSON_STR_K}};
    for (int i = 0; i < BASE_COUNT_OF(row); i++)
        SL_TRY(api_field_kind(body, "", row[i].name, row[i].kind, err));
    SL_TRY(api_field_kind(api_field(body, "text"), "text", "verbosity", JSON_STR_K, err));
    SL_TRY(api_members_check(api_field(body, "text"), "text", "format|verbosity", err));
    return api_field_kind(api_field(body, "reasoning"), "reasoning", "summary", JSON_STR_K, err);
}

/* One of include: parts of the answer's items. Those of items that no answer here has are taken. */
static sl_status read_include(struct api_resp *p, const struct json *v, sl_err *err)
{
    const char *dot = v->kind == JSON_STR_K ? strchr(v->s, '.') : NULL;
    size_t n = dot ? (size_t)(dot - v->s) : 0;
    if (text_json_is(v, "message.output_text.logprobs"))
        p->g.logprobs = true;
    else if (!n || !api_resp_is_item(v->s, n) ||
             (strncmp(v->s, "message.", 8) == 0 && strncmp(v->s + 8, "input_", 6) != 0))
        return SL_FAIL(err, REQUEST, "include: %.60s: there is no such part of an answer",
                       v->kind == JSON_STR_K ? v->s : "not a text");
    return SL_OK;
}

static sl_status read_all(api *a, struct net_req *r, struct api_resp *p, sl_err *err)
{
    const struct json *inc = api_field(p->body, "include");
    const char *trunc = api_field_str(p->body, "truncation", "disabled");
    SL_TRY(check_kinds(p->body, err));
    SL_TRY(api_gen_parse(a, r, p->body, API_RESPONSES, &p->g, err));
    if (strcmp(trunc, "disabled") != 0)
        return SL_FAIL(err, REQUEST, "truncation: must be disabled");
    for (const struct json *v = inc ? inc->child : NULL; v; v = v->next)
        SL_TRY(read_include(p, v, err));
    p->g.q.want_logprob = p->g.logprobs;
    p->g.q.n_logprob = p->g.logprobs ? p->g.n_top : -1;
    p->store = api_field_bool(p->body, "store", a->db != NULL);
    sl_status st = api_resp_read(a, r, p, err);
    if (st) api_say_asked(&p->g, err);
    SL_TRY(st);
    struct api_prompt_end at;
    SL_TRY(api_prompt_end(a, &p->prompt, &at, err));
    SL_TRY(api_answer_init(a, p->chat, at.thinks, &p->x, err));
    const struct api_form_in in = {.body = p->body,
                                   .route = API_RESPONSES,
                                   .parse = p->x.parse,
                                   .chat = p->chat,
                                   .thought = at.thought};
    st = api_form_parse(a, r, &in, &p->g.grammar, err);
    if (st) {
        api_resp_blame(p, err);
        return st;
    }
    p->g.q.grammar = p->g.grammar;
    api_answer_special(&p->x, &p->g.q);
    return SL_OK;
}

sl_status api_responses(api *a, struct net_req *r, sl_err *err)
{
    void *mem = NULL;
    SL_TRY(mem_arena_alloc(&r->arena, sizeof(struct api_resp), &mem, err));
    struct api_resp *p = mem;
    struct str *all[] = {&p->history, &p->input, &p->item, &p->name, &p->items, &p->logprobs};
    for (int i = 0; i < BASE_COUNT_OF(all); i++)
        str_init(all[i], MEM_REQUEST, 0);
    api_unwrap_init(&p->unwrap);
    SL_TRY(api_body_parse(a, r, API_RESPONSES, &p->body, err));
    net_random_id("resp_", p->g.id);
    sl_status st = read_all(a, r, p, err);
    if (st) {
        struct api_job j = {.user = p};
        fini(&j);
        return st;
    }
    const struct api_ask ask = {&p->g, &p->prompt, 1, &fmt, p};
    return api_job_start(a, r, &ask, err);
}

/* ---- stored ones: /v1/responses/ID ---- */

sl_status api_resp_not_found(api *a, struct net_req *r, sl_status st, sl_err *err)
{
    if (st != SL_NOTFOUND) return st;
    api_error(a, r, 404, "not_found", "response_id", err->text);
    return SL_OK;
}

sl_status api_response_get(api *a, struct net_req *r, sl_err *err)
{
    struct api_stored s;
    struct str out;
    char key[64];
    api_key_name(a, r->key, key);
    sl_status st = api_store_get(a, r->path + strlen("/v1/responses/"), key, &r->arena, &s, err);
    if (st) return api_resp_not_found(a, r, st, err);
    str_init(&out, MEM_REQUEST, 0);
    str_put(&out, s.body, s.n_body);
    net_reply(r, 200, API_JSON, &out);
    return SL_OK;
}

sl_status api_response_delete(api *a, struct net_req *r, sl_err *err)
{
    const char *id = r->path + strlen("/v1/responses/");
    struct json_w w;
    struct str out;
    char key[64];
    api_key_name(a, r->key, key);
    sl_status st = api_store_delete(a, id, key, err);
    if (st) return api_resp_not_found(a, r, st, err);
    str_init(&out, MEM_REQUEST, 0);
    text_jw_init(&w, &out);
    text_jw_obj(&w);
    text_jw_key(&w, "id");
    text_jw_strz(&w, id);
    text_jw_key(&w, "object");
    text_jw_strz(&w, "response");
    text_jw_key(&w, "deleted");
    text_jw_bool(&w, true);
    text_jw_obj_end(&w);
    net_reply(r, 200, API_JSON, &out);
    return SL_OK;
}
