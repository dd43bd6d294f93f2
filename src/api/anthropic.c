/* SPDX-License-Identifier: Apache-2.0 */
/* POST /v1/messages and /v1/messages/count_tokens: the answer as content blocks, whole or as named
 * events. */
#include "api/anthropic.h"

#include <stdio.h>
#include <string.h>

/* ---- events ---- */

static void begin_event(struct str *out, struct json_w *w, const char *type)
{
    str_printf(out, "event: %s\ndata: ", type);
    text_jw_init(w, out);
    text_jw_obj(w);
    text_jw_key(w, "type");
    text_jw_strz(w, type);
}

static void end_event(struct str *out, struct json_w *w)
{
    text_jw_obj_end(w);
    str_puts(out, "\n\n");
}

static void ping(struct str *out)
{
    str_puts(out, "event: ping\ndata: {\"type\":\"ping\"}\n\n");
}

static void begin_message(struct api_job *j)
{
    struct api_msg *p = j->user;
    struct json_w w;
    if (p->begun) return;
    p->begun = true;
    begin_event(p->out, &w, "message_start");
    text_jw_key(&w, "message");
    api_msg_put(&w, j, true);
    end_event(p->out, &w);
    ping(p->out);
}

/* ---- blocks ---- */

/* What has the client send a block of thinking back as it is. It proves nothing and is not read
 * again. */
static void put_signature(struct json_w *w, const struct api_msg *p)
{
    uint8_t h[NET_SHA256_BYTES];
    char hex[2 * NET_SHA256_BYTES + 1];
    net_sha256(str_c(&p->block), p->block.n, h);
    for (int i = 0; i < NET_SHA256_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", h[i]);
    text_jw_key(w, "signature");
    text_jw_strz(w, hex);
}

/* The open block; done: with what it holds. */
static void put_block(struct json_w *w, struct api_job *j, bool done)
{
    static const char *const type[] = {"", "thinking", "text", "tool_use"};
    struct api_msg *p = j->user;
    text_jw_obj(w);
    text_jw_key(w, "type");
    text_jw_strz(w, type[p->open]);
    if (p->open == API_BLOCK_CALL) {
        const struct api_call *c = &p->x.call[p->x.n_call - 1];
        text_jw_key(w, "id");
        text_jw_strz(w, c->id);
        text_jw_key(w, "name");
        api_put_text(w, &c->name);
        text_jw_key(w, "input");
        if (done)
            api_put_object(w, &p->block);
        else
            text_jw_raw(w, "{}", 2);
    } else {
        text_jw_key(w, type[p->open]);
        if (done && !(p->open == API_BLOCK_THINK && p->hidden))
            api_put_text(w, &p->block);
        else
            text_jw_strz(w, "");
    }
    if (p->open == API_BLOCK_THINK && done) put_signature(w, p);
    if (p->open == API_BLOCK_THINK && !done) {
        text_jw_key(w, "signature");
        text_jw_strz(w, "");
    }
    text_jw_obj_end(w);
}

static void begin_delta(struct api_msg *p, struct json_w *w, const char *type)
{
    begin_event(p->out, w, "content_block_delta");
    text_jw_key(w, "index");
    text_jw_int(w, p->n_block);
    text_jw_key(w, "delta");
    text_jw_obj(w);
    text_jw_key(w, "type");
    text_jw_strz(w, type);
}

static void end_delta(struct api_msg *p, struct json_w *w)
{
    text_jw_obj_end(w);
    end_event(p->out, w);
}

static void delta(struct api_job *j, const char *s, size_t n)
{
    static const struct {
        const char *type, *key;
    } row[] = {{"", ""},
               {"thinking_delta", "thinking"},
               {"text_delta", "text"},
               {"input_json_delta", "partial_json"}};
    struct api_msg *p = j->user;
    struct json_w w;
    str_put(&p->block, s, n);
    if (!p->out || (p->open == API_BLOCK_THINK && p->hidden)) return;
    begin_delta(p, &w, row[p->open].type);
    text_jw_key(&w, row[p->open].key);
    text_jw_str(&w, s, n);
    api_inherit(p->out, &p->block);
    end_delta(p, &w);
}

static void close_block(struct api_job *j)
{
    struct api_msg *p = j->user;
    struct json_w w;
    if (p->open == API_BLOCK_NONE) return;
    if (p->out && p->open == API_BLOCK_THINK) {
        begin_delta(p, &w, "signature_delta");
        put_signature(&w, p);
        end_delta(p, &w);
    }
    if (p->out) {
        begin_event(p->out, &w, "content_block_stop");
        text_jw_key(&w, "index");
        text_jw_int(&w, p->n_block);
        end_event(p->out, &w);
    } else {
        if (p->content.n) str_putc(&p->content, ',');
        text_jw_init(&w, &p->content);
        put_block(&w, j, true);
    }
    p->n_block++;
    p->open = API_BLOCK_NONE;
    str_clear(&p->block);
}

static void open_block(struct api_job *j, enum api_block kind)
{
    struct api_msg *p = j->user;
    struct json_w w;
    if (p->open == kind && kind != API_BLOCK_CALL) return;
    close_block(j);
    p->open = kind;
    if (!p->out) return;
    begin_event(p->out, &w, "content_block_start");
    text_jw_key(&w, "index");
    text_jw_int(&w, p->n_block);
    text_jw_key(&w, "content_block");
    put_block(&w, j, false);
    end_event(p->out, &w);
}

/* ---- the sink: user = struct api_job ---- */

static void on_text(void *user, const char *s, size_t n)
{
    open_block(user, API_BLOCK_TEXT);
    delta(user, s, n);
}

static void on_reason(void *user, const char *s, size_t n)
{
    open_block(user, API_BLOCK_THINK);
    delta(user, s, n);
}

static void on_call(void *user, int i, const char *name, size_t n)
{
    struct api_job *j = user;
    struct api_msg *p = j->user;
    close_block(j);
    api_answer_sink.call(&p->x, i, name, n);
    if (i >= p->x.n_call) return;
    net_random_id("toolu_", p->x.call[i].id);
    open_block(j, API_BLOCK_CALL);
}

static void on_args(void *user, int i, const char *s, size_t n)
{
    struct api_job *j = user;
    struct api_msg *p = j->user;
    (void)i;
    if (p->open == API_BLOCK_CALL) delta(j, s, n);
}

/* ---- the job ---- */

static void event(struct api_job *j, const struct api_event *ev, struct str *out)
{
    struct api_msg *p = j->user;
    const struct api_parse_sink sink = {j, on_text, on_reason, on_call, on_args};
    bool last = ev->finish != SL_FINISH_NONE, first = ev->n_token <= 1;
    p->out = out;
    p->n_prompt = ev->n_prompt;
    p->n_token = ev->n_token;
    if (last || first) p->n_cached = ev->n_cached;
    if (out && p->begun && ev->token < 0 && !last && !ev->n_text) ping(out); /* reads the prompt */
    if (out) begin_message(j);
    if (ev->token < 0 && !last && !ev->n_text) return;
    api_answer_count(j, &p->x, ev);
    if (!p->warm && api_parse_feed(p->x.parse, ev->text, (size_t)ev->n_text, last, &sink, NULL))
        p->content.failed = SL_NOMEM;
    if (last) {
        p->x.finish = ev->finish;
        p->stop = ev->stop;
    }
    if (out) api_inherit(out, &p->content);
}

static void end(struct api_job *j, struct str *out)
{
    struct api_msg *p = j->user;
    struct json_w w;
    struct str s;
    p->out = out;
    if (p->open == API_BLOCK_NONE && !p->n_block && !p->warm) open_block(j, API_BLOCK_TEXT);
    close_block(j);
    if (!out) {
        str_init(&s, MEM_REQUEST, 0);
        text_jw_init(&w, &s);
        api_msg_put(&w, j, false);
        net_reply(j->r, 200, API_JSON, &s);
        return;
    }
    begin_event(out, &w, "message_delta");
    text_jw_key(&w, "delta");
    text_jw_obj(&w);
    api_msg_put_stop(&w, j);
    text_jw_obj_end(&w);
    api_msg_put_usage(&w, j, true);
    end_event(out, &w);
    str_puts(out, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
}

static void failed(struct api_job *j, struct str *out)
{
    struct str s;
    str_init(&s, MEM_REQUEST, 0);
    api_msg_put_error(&s, j->r, api_error_http(&j->err), api_error_code(&j->err),
                      api_error_text(&j->err));
    str_puts(out, "event: error\n");
    api_sse(out, &s);
    str_fini(&s);
}

static void fini(struct api_job *j)
{
    struct api_msg *p = j->user;
    api_answer_fini(&p->x);
    str_fini(&p->block);
    str_fini(&p->content);
}

static const struct api_fmt fmt = {event, end, failed, fini};

/* ---- the routes ---- */

/* What was refused, by the names of this API instead of those of chat. */
static void rename_field(const struct api_msg *p, sl_err *err)
{
    static const char params[] = ".function.parameters";
    const struct {
        const char *of_chat, *here;
    } row[] = {{"response_format", p->format},
               {"reasoning_effort", "output_config.effort"},
               {"max_completion_tokens", "max_tokens"},
               {"continue_final_message", "messages"}};
    const char *text = err->text, *rest = NULL;
    char at[sizeof err->text];
    int i = 0, n = 0, k = 0;
    while (k < BASE_COUNT_OF(row) && strncmp(text, row[k].of_chat, strlen(row[k].of_chat)) != 0)
        k++;
    if (k < BASE_COUNT_OF(row)) {
        snprintf(at, sizeof at, "%s%s", row[k].here, text + strlen(row[k].of_chat));
    } else if (sscanf(text, "tools[%d]%n", &i, &n) == 1 && n > 0 && i >= 0 && i < p->n_tool) {
        rest = text + n;
        bool schema = strncmp(rest, params, sizeof params - 1) == 0;
        snprintf(at, sizeof at, "tools[%d]%s%s", p->tool_at[i], schema ? ".input_schema" : "",
                 schema ? rest + sizeof params - 1 : rest);
    } else
        return;
    snprintf(err->text, sizeof err->text, "%s", at);
}

/* The prompt, and the answer that follows it. */
static sl_status prepare(api *a, struct net_req *r, struct api_msg *p, sl_err *err)
{
    SL_TRY(api_gen_parse(a, r, p->chat, API_CHAT, &p->g, err));
    SL_TRY(api_chat_prompt(a, r, p->chat, false, &p->prompt, err));
    struct api_prompt_end at;
    SL_TRY(api_prompt_end(a, &p->prompt, &at, err));
    SL_TRY(api_answer_init(a, p->chat, at.thinks, &p->x, err));
    const struct api_form_in in = {.body = p->chat,
                                   .route = API_CHAT,
                                   .parse = p->x.parse,
                                   .chat = p->chat,
                                   .thought = p->x.continues || at.thought};
    SL_TRY(api_form_parse(a, r, &in, &p->g.grammar, err));
    p->g.q.grammar = p->g.grammar;
    api_answer_special(&p->x, &p->g.q);
    return SL_OK;
}

static sl_status open_msg(struct net_req *r, struct api_msg **out, sl_err *err)
{
    void *mem = NULL;
    SL_TRY(mem_arena_alloc(&r->arena, sizeof(struct api_msg), &mem, err));
    *out = mem;
    (*out)->stop = -1;
    str_init(&(*out)->block, MEM_REQUEST, 0);
    str_init(&(*out)->content, MEM_REQUEST, 0);
    net_reply_header(r, "request-id", r->id);
    return SL_OK;
}

sl_status api_messages(api *a, struct net_req *r, sl_err *err)
{
    struct api_msg *p = NULL;
    SL_TRY(open_msg(r, &p, err));
    SL_TRY(api_body_parse(a, r, API_MESSAGES, &p->body, err));
    SL_TRY(api_model_check(a, p->body, err));
    SL_TRY(api_msg_read(a, r, p, false, err));
    net_random_id("msg_", p->g.id);
    sl_status st = prepare(a, r, p, err);
    if (st) {
        struct api_job j = {.user = p};
        fini(&j);
        rename_field(p, err);
        return st;
    }
    const struct api_ask ask = {&p->g, &p->prompt, 1, &fmt, p};
    return api_job_start(a, r, &ask, err);
}

sl_status api_count_tokens(api *a, struct net_req *r, sl_err *err)
{
    struct api_msg *p = NULL;
    struct json_w w;
    struct str s;
    SL_TRY(open_msg(r, &p, err));
    SL_TRY(api_body_parse(a, r, API_MESSAGES, &p->body, err));
    SL_TRY(api_model_check(a, p->body, err));
    SL_TRY(api_msg_read(a, r, p, true, err));
    sl_status st = api_chat_prompt(a, r, p->chat, true, &p->prompt, err);
    if (st) {
        rename_field(p, err);
        return st;
    }
    str_init(&s, MEM_REQUEST, 0);
    text_jw_init(&w, &s);
    text_jw_obj(&w);
    text_jw_key(&w, "input_tokens");
    text_jw_int(&w, p->prompt.n_ids);
    text_jw_obj_end(&w);
    net_reply(r, 200, API_JSON, &s);
    return SL_OK;
}
