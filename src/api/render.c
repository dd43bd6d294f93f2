/* SPDX-License-Identifier: Apache-2.0 */
/* From a chat's body to its prompt: the forms of messages that a template may bear are tried in
 * turn. */
#include <stdio.h>
#include <string.h>

#include "api/api_internal.h"
#include "api/family.h"

static void put_function(struct json_w *w, const struct json *f, bool complete)
{
    text_jw_obj(w);
    for (const struct json *v = f->child; v; v = v->next) {
        if (v->kind == JSON_NULL_K) continue; /* not given */
        text_jw_key(w, v->key);
        text_jw_node(w, v);
    }
    if (complete && !api_field(f, "description")) {
        text_jw_key(w, "description");
        text_jw_strz(w, "");
    }
    if (complete && !api_field(f, "parameters")) {
        text_jw_key(w, "parameters");
        text_jw_raw(w, "{\"type\":\"object\",\"properties\":{}}", 33);
    }
    text_jw_obj_end(w);
}

/* As they came; or with what a template may wish for and clients may leave out. */
static void put_tools(struct str *out, const struct json *tools, bool complete)
{
    struct json_w w;
    text_jw_init(&w, out);
    text_jw_arr(&w);
    for (const struct json *t = tools->child; t; t = t->next) {
        text_jw_obj(&w);
        for (const struct json *v = t->child; v; v = v->next) {
            text_jw_key(&w, v->key);
            if (strcmp(v->key, "function") == 0)
                put_function(&w, v, complete);
            else
                text_jw_node(&w, v);
        }
        text_jw_obj_end(&w);
    }
    text_jw_arr_end(&w);
}

/* What is the same in all tries. */
struct chat_in {
    api *a;
    struct net_req *r;
    const struct json *body, *tools; /* tools: NULL where none may be called */
    struct str kwargs, tell;
    const char *mark; /* NULL, or what the last message is cut at */
    bool calls_null;  /* a message has calls and no content */
    bool several;     /* a message has more than one call */
    int max_ids;      /* 0 = any number */
};

/* What a template made: ids, or the text; free with sl_free. */
struct rendered {
    bool as_ids;
    char *text;
    int32_t *ids;
    int n; /* ids */
};

static sl_status try_form(const struct chat_in *c, const struct api_put *how, struct rendered *out,
                          sl_err *err)
{
    api *a = c->a;
    struct str msg, tl;
    str_init(&msg, MEM_REQUEST, 0);
    str_init(&tl, MEM_REQUEST, 0);
    sl_status st = api_messages_put(&c->r->arena, &msg, api_field(c->body, "messages"), how, err);
    if (!st && c->tools && !how->tell) {
        put_tools(&tl, c->tools, how->args_text);
        st = str_status(&tl, err);
    }
    sl_chat chat = {.messages = str_c(&msg),
                    .tools = tl.n ? str_c(&tl) : NULL,
                    .kwargs = str_c(&c->kwargs),
                    .no_generation_prompt =
                        c->mark || !api_field_bool(c->body, "add_generation_prompt", true),
                    .max_ids = c->max_ids,
                    .cut = c->mark};
    if (!st) {
        st = out->as_ids ? sl_chat_render(a->o.model, &chat, NULL, &out->ids, &out->n, err)
                         : sl_chat_render(a->o.model, &chat, &out->text, NULL, NULL, err);
        if (st == SL_REQUEST && c->mark && err && strstr(err->text, "the last message"))
            status_prefix(err, "continue_final_message");
        else if (st == SL_REQUEST || st == SL_FORMAT || st == SL_UNSUPPORTED)
            api_template_blame(c->body, err);
    }
    str_fini(&msg);
    str_fini(&tl);
    return st;
}

/* Is text other but for "None" in some places: what Jinja prints for content that is null? */
static bool prints_none(const char *text, const char *other)
{
    bool any = false;
    while (*text || *other) {
        if (*text == *other) {
            text++;
            other++;
        } else if (strncmp(text, "None", 4) == 0) {
            text += 4;
            any = true;
        } else
            return false;
    }
    return any;
}

/* The template bears content that is null: but does it write it as a word? Errors: NOMEM. */
static sl_status writes_null(const struct chat_in *c, const struct api_put *how, bool *out,
                             sl_err *err)
{
    struct api_put empty = *how;
    struct rendered with = {0}, without = {0};
    empty.no_null = true;
    sl_status st = try_form(c, how, &with, err);
    if (!st) st = try_form(c, &empty, &without, err);
    *out = !st && prints_none(with.text, without.text);
    sl_free(with.text);
    sl_free(without.text);
    return st == SL_NOMEM ? st : SL_OK;
}

static bool may_differ(sl_status st)
{
    return st == SL_REQUEST || st == SL_FORMAT || st == SL_UNSUPPORTED;
}

/* A template may join arguments to a text, want members that were left out, add text to content
 * that is null, have no system message, or refuse several calls of a message: what it says of the
 * plainest form counts. */
static sl_status try_forms(const struct chat_in *c, struct rendered *out, sl_err *err)
{
    const struct api_template *t = &c->a->tmpl;
    struct api_put how = {.calls_plain = !t->calls,
                          .results_plain = !t->results,
                          .family = t->family,
                          .tell = c->tell.n ? str_c(&c->tell) : NULL,
                          .mark = c->mark};
    sl_err first = {0}, later;
    sl_status st = SL_OK;
    bool one_call = t->family && t->family->one_call;
    for (int i = 0; i < 16; i++) {
        how.args_text = i & 1;
        how.no_null = i & 2;
        how.tell_user = i & 4;
        how.each_call = i & 8 || one_call;
        if ((how.no_null && !c->calls_null) || (how.tell_user && !how.tell)) continue;
        if (i & 8 && (one_call || !c->several)) continue;
        if (c->calls_null && !how.no_null) SL_TRY(writes_null(c, &how, &how.no_null, err));
        sl_status now = try_form(c, &how, out, i ? &later : &first);
        if (now == SL_OK) return SL_OK;
        if (!i) st = now;
        if (may_differ(now)) continue;
        if (i) first = later, st = now; /* that form was rendered, and is too long, or no memory */
        break;
    }
    if (err) *err = first;
    return st;
}

/* continue_final_message: the mark that the last message ends in, or NULL. */
static sl_status read_mark(struct chat_in *c, char mark[48], sl_err *err)
{
    const struct json *list = api_field(c->body, "messages"), *last = NULL;
    const char *role = NULL;
    if (!api_field_bool(c->body, "continue_final_message", false)) return SL_OK;
    if (api_field_bool(c->body, "add_generation_prompt", false))
        return SL_FAIL(err, REQUEST,
                       "continue_final_message: not with add_generation_prompt: true");
    if (list && list->kind == JSON_ARRAY_K && list->n) last = list->item[list->n - 1];
    if (last && last->kind == JSON_OBJECT_K) role = api_role(last);
    if (!role || strcmp(role, "assistant") != 0)
        return SL_FAIL(err, REQUEST,
                       "continue_final_message: the last message must be the assistant's");
    const struct json *calls = api_field(last, "tool_calls");
    if ((calls && calls->n) || api_field(last, "function_call"))
        return SL_FAIL(err, REQUEST,
                       "continue_final_message: a message with calls can not be continued");
    net_random_id("~cut", mark);
    strcat(mark, "~ ");
    c->mark = mark;
    return SL_OK;
}

/* Members of messages that no other place reads: those that say something to the model are refused,
 * the names of others are said. */
static sl_status check_members(struct net_req *r, const struct json *list, sl_err *err)
{
    static const char known[] = "role|content|name|tool_call_id|tool_calls|function_call|"
                                "reasoning_content|reasoning|refusal|audio";
    static const struct {
        const char *names, *instead;
    } deny[] = {{"prefix|partial", "use continue_final_message"},
                {"images|image|videos|audios|files", "text only"},
                {"tools|functions", "use tools of the request"},
                {"documents", "put them into the content"},
                {"thinking|thought", "use reasoning_content"},
                {"input_ids|token_ids", "use prompt_token_ids"}};
    int at = 0;
    for (const struct json *m = list && list->kind == JSON_ARRAY_K ? list->child : NULL; m;
         m = m->next, at++)
        for (const struct json *v = m->kind == JSON_OBJECT_K ? m->child : NULL; v; v = v->next) {
            if (api_field_empty(v) || api_name_in(known, v->key)) continue;
            for (int i = 0; i < BASE_COUNT_OF(deny); i++)
                if (api_name_in(deny[i].names, v->key))
                    return SL_FAIL(err, REQUEST, "messages[%d].%s: not supported: %s", at, v->key,
                                   deny[i].instead);
            api_say_message(r, v->key);
        }
    return SL_OK;
}

static bool has_null_calls(const struct json *list)
{
    for (const struct json *m = list && list->kind == JSON_ARRAY_K ? list->child : NULL; m;
         m = m->next) {
        const struct json *calls = api_field(m, "tool_calls");
        if (((calls && calls->n) || api_field(m, "function_call")) && !api_field(m, "content"))
            return true;
    }
    return false;
}

static sl_status render(api *a, struct net_req *r, const struct json *body, int max_ids,
                        struct rendered *out, sl_err *err)
{
    struct chat_in c = {
        .a = a, .r = r, .body = body, .tools = api_field(body, "tools"), .max_ids = max_ids};
    char mark[48] = "";
    SL_TRY(api_tools_check(body, err));
    SL_TRY(check_members(r, api_field(body, "messages"), err));
    SL_TRY(read_mark(&c, mark, err));
    if (text_json_is(api_field(body, "tool_choice"), "none") || (c.tools && !c.tools->n))
        c.tools = NULL;
    c.several = a->tmpl.calls && api_has_several_calls(api_field(body, "messages"));
    c.calls_null = a->tmpl.calls && has_null_calls(api_field(body, "messages"));
    str_init(&c.kwargs, MEM_REQUEST, 0);
    str_init(&c.tell, MEM_REQUEST, 0);
    sl_status st = api_kwargs_put(a, r, &c.kwargs, body, err);
    if (!st && c.tools && !a->tmpl.tools) {
        api_plain_tools(&c.tell, a->tmpl.family, c.tools,
                        api_field_bool(body, "parallel_tool_calls", true));
        st = str_status(&c.tell, err);
    }
    if (!st) st = try_forms(&c, out, err);
    str_fini(&c.kwargs);
    str_fini(&c.tell);
    return st;
}

sl_status api_chat_text(api *a, struct net_req *r, const struct json *body, char **out, sl_err *err)
{
    struct rendered x = {0};
    sl_status st = render(a, r, body, 0, &x, err);
    *out = x.text;
    return st;
}

static size_t text_bytes(const struct json *content)
{
    size_t n = 0;
    if (!content || content->kind == JSON_STR_K) return content ? content->n : 0;
    for (const struct json *p = content->kind == JSON_ARRAY_K ? content->child : NULL; p;
         p = p->next) {
        const struct json *text = text_json_get(p, "text");
        if (text && text->kind == JSON_STR_K) n += text->n;
    }
    return n;
}

sl_status api_messages_fit(const api *a, const struct json *list, sl_err *err)
{
    size_t n = 0, max = (size_t)a->ei.text_bytes_max;
    if (!list || !max) return SL_OK;
    if (list->kind == JSON_STR_K) n = list->n;
    for (const struct json *m = list->kind == JSON_ARRAY_K ? list->child : NULL; m; m = m->next)
        n += text_bytes(text_json_get(m, "content"));
    if (n <= max) return SL_OK;
    size_t piece = BASE_MAX(max / (size_t)BASE_MAX(a->ei.n_ctx, 1), 1);
    return SL_FAIL(
        err, LIMIT,
        "prompt of more than %zu tokens: this model's maximum context length is %d tokens",
        (n - 1) / piece, a->ei.n_ctx);
}

sl_status api_chat_prompt(api *a, struct net_req *r, const struct json *body, bool any_length,
                          struct api_prompt *out, sl_err *err)
{
    const struct json *given = api_field(body, "prompt_token_ids");
    struct rendered x = {.as_ids = true};
    void *copy = NULL;
    if (given && api_field_bool(body, "continue_final_message", false))
        return SL_FAIL(err, REQUEST, "continue_final_message: not with prompt_token_ids");
    if (given) {
        SL_TRY(api_ids_parse(a, &r->arena, "prompt_token_ids", given, out, err));
        if (!out->n_ids) return SL_FAIL(err, REQUEST, "prompt_token_ids: empty");
        return SL_OK;
    }
    if (!any_length) SL_TRY(api_messages_fit(a, api_field(body, "messages"), err));
    SL_TRY(render(a, r, body, any_length ? 0 : a->ei.n_ctx, &x, err));
    sl_status st = mem_arena_array(&r->arena, (size_t)x.n + 1, sizeof *x.ids, &copy, err);
    if (!st && x.n) memcpy(copy, x.ids, (size_t)x.n * sizeof *x.ids);
    sl_free(x.ids);
    *out = (struct api_prompt){.ids = copy, .n_ids = x.n};
    return st;
}

bool api_ends_with(const char *text, size_t n, const char *tag)
{
    size_t n_tag = strlen(tag);
    while (n && strchr(" \t\r\n", text[n - 1]))
        n--;
    return n >= n_tag && memcmp(text + n - n_tag, tag, n_tag) == 0;
}

sl_status api_prompt_end(const api *a, const struct api_prompt *p, struct api_prompt_end *out,
                         sl_err *err)
{
    char *text = NULL;
    size_t n = 0;
    int k = BASE_MIN(p->n_ids, 16);
    *out = (struct api_prompt_end){0};
    if (k < 1) return SL_OK;
    SL_TRY(sl_detokenize(a->o.model, p->ids + p->n_ids - k, k, SL_DETOK_SPECIAL | SL_DETOK_PART,
                         &text, &n, err));
    out->thinks = api_family_ends(text, n, T_THINK);
    out->thought = api_family_ends(text, n, T_THINK_END);
    sl_free(text);
    return SL_OK;
}
