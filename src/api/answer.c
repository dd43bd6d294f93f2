/* SPDX-License-Identifier: Apache-2.0 */
/* Builds a whole answer from its events, and writes it as chat or responses JSON. */
#include "api/answer.h"

#include <stdio.h>
#include <string.h>

static void drop(void *user, const char *p, size_t n)
{
    (void)user;
    (void)p;
    (void)n;
}

/* The text of the message that the answer continues: what it says of reasoning and calls holds on.
 * A call that begins in it is a call of the answer. */
static sl_status continued(struct api_answer *x, const struct json *body, sl_err *err)
{
    const struct json *list = api_field(body, "messages");
    struct api_parse_sink sink = api_answer_sink;
    struct str s;
    if (!list || !api_field_bool(body, "continue_final_message", false)) return SL_OK;
    sink.user = x;
    sink.text = sink.reason = drop;
    str_init(&s, MEM_REQUEST, 0);
    api_content_text(&s, api_field(list->item[list->n - 1], "content"));
    sl_status st = str_status(&s, err);
    if (!st) st = api_parse_prompt(x->parse, str_c(&s), s.n, &sink, err);
    x->continues = s.n > 0;
    str_fini(&s);
    return st;
}

sl_status api_answer_init(api *a, const struct json *body, bool prompt_thinks, struct api_answer *x,
                          sl_err *err)
{
    const struct json *tools = api_field(body, "tools");
    bool one = !api_field_bool(body, "parallel_tool_calls", true);
    struct api_parse_opts o = {
        .tool_parser = a->o.tool_parser,
        .reasoning_parser = a->o.reasoning_parser,
        .template_text = tools ? a->mi.chat_template_tools : a->mi.chat_template,
        .trained = a->tmpl.tools ? a->mi.tool_family : NULL,
        .tool_list = tools,
        .tools = tools && tools->n && !text_json_is(api_field(body, "tool_choice"), "none"),
        .prompt_thinks = prompt_thinks,
        .max_calls = one ? 1 : API_CALL_MAX};
    str_init(&x->text, MEM_REQUEST, 0);
    str_init(&x->reason, MEM_REQUEST, 0);
    str_init(&x->logprobs, MEM_REQUEST, 0);
    str_init(&x->ids, MEM_REQUEST, 0);
    SL_TRY(api_parse_open(&o, &x->parse, err));
    return continued(x, body, err);
}

void api_answer_fini(struct api_answer *x)
{
    api_parse_close(x->parse);
    str_fini(&x->text);
    str_fini(&x->reason);
    str_fini(&x->logprobs);
    str_fini(&x->ids);
    api_lp_fini(&x->lp);
    for (int i = 0; i < x->n_call; i++) {
        str_fini(&x->call[i].name);
        str_fini(&x->call[i].args);
    }
    mem_free(x->call);
}

static void add_text(void *user, const char *p, size_t n)
{
    struct api_answer *x = user;
    str_put(&x->text, p, n);
}

static void add_reason(void *user, const char *p, size_t n)
{
    struct api_answer *x = user;
    str_put(&x->reason, p, n);
}

static struct api_call *new_call(struct api_answer *x)
{
    void *mem = NULL;
    if (x->n_call == x->cap_call) {
        int cap = x->cap_call ? 2 * x->cap_call : 4;
        if (mem_realloc(MEM_REQUEST, x->call, (size_t)cap * sizeof *x->call, &mem, NULL))
            return NULL;
        x->call = mem;
        x->cap_call = cap;
    }
    return &x->call[x->n_call++];
}

static void add_call(void *user, int i, const char *name, size_t n)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:";
    struct api_answer *x = user;
    struct api_call *c = i == x->n_call && i < API_CALL_MAX ? new_call(x) : NULL;
    if (!c && i < API_CALL_MAX) x->text.failed = SL_NOMEM;
    if (!c) return;
    const char *own = api_parse_call_id(x->parse);
    net_random_id("call_", c->id);
    if (own[0] && strlen(own) < sizeof c->id && strspn(own, plain) == strlen(own))
        snprintf(c->id, sizeof c->id, "%s", own);
    str_init(&c->name, MEM_REQUEST, 0);
    str_init(&c->args, MEM_REQUEST, 0);
    str_put(&c->name, name, n);
}

static void add_args(void *user, int i, const char *p, size_t n)
{
    struct api_answer *x = user;
    if (i >= 0 && i < x->n_call) str_put(&x->call[i].args, p, n);
}

const struct api_parse_sink api_answer_sink = {NULL, add_text, add_reason, add_call, add_args};

void api_answer_count(struct api_job *j, const struct api_answer *x, const struct api_event *ev)
{
    if (!api_parse_has_reasoning(x->parse)) return;
    j->n_reason_tok = BASE_MAX(j->n_reason_tok, 0);
    if (ev->token >= 0 && api_parse_in_reasoning(x->parse)) j->n_reason_tok++;
}

struct entry {
    const api *a;
    struct str *out;
};

static void put_entry(void *user, const struct api_event *tok, size_t at)
{
    const struct entry *e = user;
    struct json_w w;
    (void)at;
    if (e->out->n) str_putc(e->out, ',');
    text_jw_init(&w, e->out);
    api_put_logprob(e->a, &w, tok);
}

void api_answer_token(const struct api_job *j, struct api_answer *x, const struct api_event *ev)
{
    struct entry e = {j->a, &x->logprobs};
    if (ev->token >= 0 && j->g->return_ids)
        str_printf(&x->ids, "%s%d", x->ids.n ? "," : "", ev->token);
    if (j->g->logprobs && !api_lp_event(&x->lp, ev, put_entry, &e)) x->logprobs.failed = SL_NOMEM;
}

_Static_assert(SL_MARK == API_PARSE_MARK, "one mark");

void api_answer_special(const struct api_answer *x, sl_request *q)
{
    if (!q->keep_special && api_parse_wants_special(x->parse)) q->keep_special = 2;
}

const char *api_answer_finish(const struct api_answer *x)
{
    if (x->finish == SL_FINISH_LENGTH) return "length";
    return x->n_call ? "tool_calls" : "stop";
}

void api_function_begin(struct json_w *w)
{
    text_jw_key(w, "type");
    text_jw_strz(w, "function");
    text_jw_key(w, "function");
    text_jw_obj(w);
    text_jw_key(w, "name");
}

void api_put_calls(struct json_w *w, const struct api_answer *x)
{
    text_jw_key(w, "tool_calls");
    text_jw_arr(w);
    for (int i = 0; i < x->n_call; i++) {
        const struct api_call *c = &x->call[i];
        text_jw_obj(w);
        text_jw_key(w, "id");
        text_jw_strz(w, c->id);
        api_function_begin(w);
        api_put_text(w, &c->name);
        text_jw_key(w, "arguments");
        api_put_text(w, &c->args);
        text_jw_obj_end(w);
        text_jw_obj_end(w);
    }
    text_jw_arr_end(w);
}
