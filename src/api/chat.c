/* SPDX-License-Identifier: Apache-2.0 */
/* POST /v1/chat/completions. */
#include <string.h>

#include "api/answer.h"
#include "api/api_internal.h"

struct chat {
    struct api_gen g;
    struct api_prompt prompt;
    struct api_answer *answer; /* [g.n] */
    struct str head;           /* of every chunk, up to its choice */
};

/* ---- streams ---- */

/* The event whose pieces are written, as a sink's user. */
struct piece {
    struct api_job *j;
    struct api_answer *x;
    const struct api_event *ev; /* NULL once its ids and usage were written */
    struct str *out;
    int index;
};

static void open_chunk(struct piece *p)
{
    struct chat *c = p->j->user;
    if (!c->head.n) {
        struct json_w w;
        str_puts(&c->head, "data: ");
        text_jw_init(&w, &c->head);
        text_jw_obj(&w);
        api_put_head(&w, p->j, "chat.completion.chunk");
        str_puts(&c->head, ",\"choices\":[{\"index\":");
    }
    api_inherit(p->out, &c->head);
    str_put(p->out, c->head.p, c->head.n);
    str_int(p->out, p->index);
    str_puts(p->out, ",\"delta\":{");
}

static void close_chunk(struct piece *p, const char *finish)
{
    const struct api_gen *g = p->j->g;
    const struct api_event *ev = p->ev;
    struct str *out = p->out;
    bool token = ev && ev->token >= 0;
    if (!finish && !p->x->logprobs.n && !g->return_ids && !g->continuous_usage) { /* most of them */
        str_puts(out, g->include_usage
                          ? "},\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n\n"
                          : "},\"logprobs\":null,\"finish_reason\":null}]}\n\n");
        p->ev = NULL;
        return;
    }
    str_puts(out, "},\"logprobs\":");
    if (p->x->logprobs.n) {
        str_puts(out, "{\"content\":[");
        str_put(out, p->x->logprobs.p, p->x->logprobs.n);
        str_puts(out, "],\"refusal\":null}");
        api_inherit(out, &p->x->logprobs);
        str_clear(&p->x->logprobs);
    } else
        str_puts(out, "null");
    if (g->return_ids && token) str_printf(out, ",\"token_ids\":[%d]", ev->token);
    if (finish)
        str_printf(out, ",\"finish_reason\":\"%s\"}]", finish);
    else
        str_puts(out, ",\"finish_reason\":null}]");
    if (g->continuous_usage && ev)
        str_printf(out,
                   ",\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d}",
                   ev->n_prompt, ev->n_token, ev->n_prompt + ev->n_token);
    else if (g->include_usage)
        str_puts(out, ",\"usage\":null");
    str_puts(out, "}\n\n");
    p->ev = NULL;
}

static void delta(struct piece *p, const char *key, const char *s, size_t n)
{
    open_chunk(p);
    str_putc(p->out, '"');
    str_puts(p->out, key);
    str_puts(p->out, "\":\"");
    text_json_escape(p->out, s, n);
    str_putc(p->out, '"');
    close_chunk(p, NULL);
}

static void delta_text(void *user, const char *s, size_t n)
{
    delta(user, "content", s, n);
}

static void delta_reason(void *user, const char *s, size_t n)
{
    struct piece *p = user;
    open_chunk(p);
    str_puts(p->out, "\"reasoning_content\":\"");
    text_json_escape(p->out, s, n);
    str_puts(p->out, "\",\"reasoning\":\"");
    text_json_escape(p->out, s, n);
    str_putc(p->out, '"');
    close_chunk(p, NULL);
}

static void put_call(struct piece *p, int i, const char *name, size_t n)
{
    open_chunk(p);
    str_printf(p->out,
               "\"tool_calls\":[{\"index\":%d,\"id\":\"%s\",\"type\":\"function\","
               "\"function\":{\"name\":\"",
               i, p->x->call[i].id);
    text_json_escape(p->out, name, n);
    str_puts(p->out, "\",\"arguments\":\"\"}}]");
    close_chunk(p, NULL);
}

static void delta_call(void *user, int i, const char *name, size_t n)
{
    struct piece *p = user;
    api_answer_sink.call(p->x, i, name, n);
    api_inherit(p->out, &p->x->text);
    if (i < p->x->n_call) put_call(p, i, name, n);
}

static void delta_args(void *user, int i, const char *s, size_t n)
{
    struct piece *p = user;
    open_chunk(p);
    str_printf(p->out, "\"tool_calls\":[{\"index\":%d,\"function\":{\"arguments\":\"", i);
    text_json_escape(p->out, s, n);
    str_puts(p->out, "\"}}]");
    close_chunk(p, NULL);
}

/* Calls that begin in the message that is continued. */
static void put_begun_calls(struct piece *p)
{
    for (int i = 0; i < p->x->n_call; i++) {
        const struct api_call *c = &p->x->call[i];
        put_call(p, i, str_c(&c->name), c->name.n);
        if (c->args.n) delta_args(p, i, c->args.p, c->args.n);
    }
}

static void stream(struct api_job *j, struct api_answer *x, const struct api_event *ev,
                   struct str *out)
{
    struct piece p = {.j = j, .x = x, .ev = NULL, .out = out, .index = ev->index};
    const struct api_parse_sink sink = {&p, delta_text, delta_reason, delta_call, delta_args};
    bool last = ev->finish != SL_FINISH_NONE;
    if (!x->begun) {
        open_chunk(&p);
        str_puts(out, "\"role\":\"assistant\",\"content\":\"\",\"refusal\":null");
        close_chunk(&p, NULL);
        x->begun = true;
        put_begun_calls(&p);
    }
    p.ev = ev;
    api_answer_token(j, x, ev);
    if (api_parse_feed(x->parse, ev->text, (size_t)ev->n_text, last, &sink, NULL))
        out->failed = SL_NOMEM;
    if (x->logprobs.n || (p.ev && ev->token >= 0 && j->g->return_ids)) {
        open_chunk(&p); /* no text came of this token yet */
        close_chunk(&p, NULL);
    }
    api_inherit(out, &x->logprobs);
    if (!last) return;
    x->finish = ev->finish;
    open_chunk(&p);
    close_chunk(&p, api_answer_finish(x));
}

static void event(struct api_job *j, const struct api_event *ev, struct str *out)
{
    struct chat *c = j->user;
    struct api_answer *x = &c->answer[ev->index];
    bool last = ev->finish != SL_FINISH_NONE;
    if (ev->token < 0 && !last && !ev->n_text) {
        if (out) api_put_progress(out, ev);
        return;
    }
    api_answer_count(j, x, ev);
    if (out) {
        stream(j, x, ev, out);
        return;
    }
    struct api_parse_sink sink = api_answer_sink;
    sink.user = x;
    if (api_parse_feed(x->parse, ev->text, (size_t)ev->n_text, last, &sink, NULL))
        x->text.failed = SL_NOMEM;
    api_answer_token(j, x, ev);
    if (last) x->finish = ev->finish;
}

/* ---- the end ---- */

static void end_stream(struct api_job *j, struct str *out)
{
    struct json_w w;
    struct str s;
    if (j->g->include_usage) {
        str_init(&s, MEM_REQUEST, 0);
        text_jw_init(&w, &s);
        text_jw_obj(&w);
        api_put_head(&w, j, "chat.completion.chunk");
        text_jw_key(&w, "choices");
        text_jw_arr(&w);
        text_jw_arr_end(&w);
        api_put_usage(&w, j);
        api_put_timings(&w, j);
        text_jw_obj_end(&w);
        api_sse(out, &s);
        str_fini(&s);
    }
    str_puts(out, "data: [DONE]\n\n");
}

static void put_message(struct json_w *w, const struct api_answer *x)
{
    text_jw_key(w, "message");
    text_jw_obj(w);
    text_jw_key(w, "role");
    text_jw_strz(w, "assistant");
    text_jw_key(w, "content");
    if (!x->text.n && !x->text.failed && x->n_call)
        text_jw_null(w);
    else
        api_put_text(w, &x->text);
    text_jw_key(w, "refusal");
    text_jw_null(w);
    if (x->reason.n || x->reason.failed) {
        text_jw_key(w, "reasoning_content");
        api_put_text(w, &x->reason);
        text_jw_key(w, "reasoning"); /* its newer name */
        api_put_text(w, &x->reason);
    }
    if (x->n_call) api_put_calls(w, x);
    text_jw_obj_end(w);
}

static void put_choice(struct json_w *w, const struct chat *c, int i)
{
    const struct api_answer *x = &c->answer[i];
    text_jw_obj(w);
    text_jw_key(w, "index");
    text_jw_int(w, i);
    put_message(w, x);
    text_jw_key(w, "logprobs");
    if (c->g.logprobs) {
        text_jw_obj(w);
        text_jw_key(w, "content");
        text_jw_arr(w);
        api_put_json(w, &x->logprobs);
        text_jw_arr_end(w);
        text_jw_key(w, "refusal");
        text_jw_null(w);
        text_jw_obj_end(w);
    } else
        text_jw_null(w);
    if (c->g.return_ids) {
        text_jw_key(w, "token_ids");
        text_jw_arr(w);
        api_put_json(w, &x->ids);
        text_jw_arr_end(w);
    }
    text_jw_key(w, "finish_reason");
    text_jw_strz(w, api_answer_finish(x));
    text_jw_obj_end(w);
}

static void end(struct api_job *j, struct str *out)
{
    struct chat *c = j->user;
    struct json_w w;
    struct str s;
    if (out) {
        end_stream(j, out);
        return;
    }
    str_init(&s, MEM_REQUEST, 0);
    text_jw_init(&w, &s);
    text_jw_obj(&w);
    api_put_head(&w, j, "chat.completion");
    text_jw_key(&w, "choices");
    text_jw_arr(&w);
    for (int i = 0; i < c->g.n; i++)
        put_choice(&w, c, i);
    text_jw_arr_end(&w);
    api_put_usage(&w, j);
    if (c->g.return_ids) api_put_ids(&w, "prompt_token_ids", c->prompt.ids, c->prompt.n_ids);
    api_put_timings(&w, j);
    text_jw_obj_end(&w);
    net_reply(j->r, 200, API_JSON, &s);
}

static void fini(struct api_job *j)
{
    struct chat *c = j->user;
    for (int i = 0; i < c->g.n; i++)
        api_answer_fini(&c->answer[i]);
    str_fini(&c->head);
}

static const struct api_fmt fmt = {event, end, NULL, fini};

static sl_status check_modalities(const struct json *body, sl_err *err)
{
    const struct json *m = api_field(body, "modalities");
    if (!m) return SL_OK;
    if (m->kind == JSON_ARRAY_K && m->n == 1 && text_json_is(m->child, "text")) return SL_OK;
    return SL_FAIL(err, REQUEST, "modalities: must be [\"text\"]");
}

/* thinks: they begin inside reasoning. */
static sl_status answers(api *a, struct net_req *r, struct chat *c, bool thinks, sl_err *err)
{
    void *p = NULL;
    sl_status st = SL_OK;
    SL_TRY(mem_arena_array(&r->arena, (size_t)c->g.n, sizeof *c->answer, &p, err));
    c->answer = p;
    for (int i = 0; i < c->g.n && !st; i++)
        st = api_answer_init(a, c->g.body, thinks, &c->answer[i], err);
    for (int i = 0; i < c->g.n && st; i++)
        api_answer_fini(&c->answer[i]); /* also those that are all zero */
    return st;
}

sl_status api_chat(api *a, struct net_req *r, sl_err *err)
{
    const struct json *body = NULL;
    void *p = NULL;
    SL_TRY(api_body_parse(a, r, API_CHAT, &body, err));
    SL_TRY(check_modalities(body, err));
    SL_TRY(mem_arena_alloc(&r->arena, sizeof(struct chat), &p, err));
    struct chat *c = p;
    SL_TRY(api_gen_parse(a, r, body, API_CHAT, &c->g, err));
    str_init(&c->head, MEM_REQUEST, 0);
    net_random_id("chatcmpl-", c->g.id);
    sl_status st = api_chat_prompt(a, r, body, false, &c->prompt, err);
    if (st) api_say_asked(&c->g, err);
    SL_TRY(st);
    struct api_prompt_end at;
    SL_TRY(api_prompt_end(a, &c->prompt, &at, err));
    SL_TRY(answers(a, r, c, at.thinks, err));
    const struct api_form_in in = {.body = body,
                                   .route = API_CHAT,
                                   .parse = c->answer[0].parse,
                                   .chat = body,
                                   .thought = c->answer[0].continues || at.thought};
    st = api_form_parse(a, r, &in, &c->g.grammar, err);
    if (st) {
        struct api_job j = {.user = c};
        fini(&j);
        return st;
    }
    c->g.q.grammar = c->g.grammar;
    api_answer_special(&c->answer[0], &c->g.q);
    const struct api_ask ask = {&c->g, &c->prompt, 1, &fmt, c};
    return api_job_start(a, r, &ask, err);
}
