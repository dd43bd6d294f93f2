/* SPDX-License-Identifier: Apache-2.0 */
/* A responses request as a chat request: items become messages (responses_history.c), tools
 * functions (responses_tools.c), a previous response its history, references the items they name.
 */
#include <stdio.h>
#include <string.h>

#include "api/responses.h"

/* ---- references ---- */

static bool is_reference(const struct json *it)
{
    const struct json *type = text_json_get(it, "type");
    return text_json_is(type, "item_reference") ||
           (!type && it->kind == JSON_OBJECT_K && it->n == 1 && text_json_get(it, "id"));
}

/* The item that a stored response has under that id, onto out as JSON. */
static sl_status put_referenced(api *a, struct net_req *r, const struct json *it, int at,
                                struct json_w *w, sl_err *err)
{
    const struct json *id = api_field(it, "id"), *found = NULL;
    char path[32], key[64];
    snprintf(path, sizeof path, "input[%d]", at);
    if (!id) return SL_FAIL(err, REQUEST, "%s.id: missing", path);
    SL_TRY(api_field_kind(it, path, "id", JSON_STR_K, err));
    if (strncmp(id->s, "rs_", 3) == 0) return SL_OK; /* reasoning is not told twice */
    api_key_name(a, r->key, key);
    sl_status st = a->db ? api_store_item(a, id->s, key, &r->arena, &found, err)
                         : SL_FAIL(err, NOTFOUND, "nothing is stored");
    if (st == SL_NOTFOUND)
        return SL_FAIL(err, REQUEST, "%s.id: %.80s: no stored response has this item", path, id->s);
    SL_TRY(st);
    text_jw_node(w, found);
    return SL_OK;
}

/* p->in: the input, with items in the places of references to them. */
static sl_status resolve(api *a, struct net_req *r, struct api_resp *p, sl_err *err)
{
    const struct json *in = api_field(p->body, "input");
    struct str s;
    struct json_w w;
    bool any = false;
    int at = 0;
    p->in = in;
    for (const struct json *it = in && in->kind == JSON_ARRAY_K ? in->child : NULL; it;
         it = it->next)
        any |= is_reference(it);
    if (!any) return SL_OK;
    str_init(&s, MEM_REQUEST, 0);
    text_jw_init(&w, &s);
    text_jw_arr(&w);
    sl_status st = SL_OK;
    for (const struct json *it = in->child; it && !st; it = it->next, at++)
        if (is_reference(it))
            st = put_referenced(a, r, it, at, &w, err);
        else
            text_jw_node(&w, it);
    text_jw_arr_end(&w);
    if (!st) st = str_status(&s, err);
    if (!st) st = text_json_parse(&r->arena, "input", str_c(&s), s.n, &p->in, err);
    str_fini(&s);
    return st;
}

/* ---- the chat request ---- */

static sl_status put_input(struct net_req *r, struct str *out, const struct json *in, sl_err *err)
{
    if (!in) return SL_FAIL(err, REQUEST, "input: missing");
    if (in->kind == JSON_STR_K) {
        api_resp_put_message(out, "user", NULL, in);
        return SL_OK;
    }
    if (in->kind != JSON_ARRAY_K || !in->n)
        return SL_FAIL(err, REQUEST, "input: must be a text or a list of at least one item");
    SL_TRY(api_resp_put_items(r, out, in, err));
    if (!out->n) return SL_FAIL(err, REQUEST, "input: nothing in it that a model can read");
    return SL_OK;
}

static bool is_system(const struct json *m)
{
    const char *role = api_role(m);
    return role && strcmp(role, "system") == 0;
}

/* Text or parts of it, which were checked. */
static void add_text(struct str *out, const struct json *content)
{
    if (content && content->kind == JSON_STR_K) str_put(out, content->s, content->n);
    for (const struct json *p = content && content->kind == JSON_ARRAY_K ? content->child : NULL; p;
         p = p->next) {
        const struct json *text = api_field(p, "text");
        if (text && text->kind == JSON_STR_K) str_put(out, text->s, text->n);
    }
}

/* The system messages in front as one, which is what templates have a place for. Returns the first
 * message after them. */
static const struct json *put_system(struct json_w *w, const struct json *m)
{
    struct str s;
    if (!m || !is_system(m) || !m->next || !is_system(m->next)) return m;
    str_init(&s, MEM_REQUEST, 0);
    for (; m && is_system(m); m = m->next) {
        if (s.n) str_puts(&s, "\n\n");
        add_text(&s, api_field(m, "content"));
    }
    text_jw_obj(w);
    text_jw_key(w, "role");
    text_jw_strz(w, "system");
    text_jw_key(w, "content");
    api_put_text(w, &s);
    text_jw_obj_end(w);
    str_fini(&s);
    return m;
}

/* A later system message of a conversation whose template takes them in front only. */
static void put_reminder(struct json_w *w, const struct json *m)
{
    struct str s;
    str_init(&s, MEM_REQUEST, 0);
    str_puts(&s, "<system-reminder>\n");
    add_text(&s, api_field(m, "content"));
    str_puts(&s, "\n</system-reminder>");
    text_jw_obj(w);
    text_jw_key(w, "role");
    text_jw_strz(w, "user");
    text_jw_key(w, "content");
    api_put_text(w, &s);
    text_jw_obj_end(w);
    str_fini(&s);
}

static sl_status put_messages(struct net_req *r, const struct api_resp *p, struct json_w *w,
                              sl_err *err)
{
    const struct json *ins = api_field(p->body, "instructions"), *list = NULL;
    struct str all;
    SL_TRY(api_content_check(ins, "instructions", err));
    str_init(&all, MEM_REQUEST, 0);
    str_putc(&all, '[');
    if (ins) {
        struct str one;
        str_init(&one, MEM_REQUEST, 0);
        api_resp_put_message(&one, "system", NULL, ins);
        str_put(&all, str_c(&one), one.n);
        api_inherit(&all, &one);
        str_fini(&one);
    }
    if (ins && p->history.n) str_putc(&all, ',');
    if (p->history.n) str_put(&all, p->history.p, p->history.n);
    str_putc(&all, ']');
    sl_status st = str_status(&all, err);
    if (!st) st = text_json_parse(&r->arena, "input", str_c(&all), all.n, &list, err);
    str_fini(&all);
    if (st) return st;
    text_jw_key(w, "messages");
    text_jw_arr(w);
    for (const struct json *m = put_system(w, list->n ? list->child : NULL); m; m = m->next)
        if (p->fold && is_system(m) && m != list->child)
            put_reminder(w, m);
        else
            text_jw_node(w, m);
    text_jw_arr_end(w);
    return SL_OK;
}

/* The chat request, as text. */
static sl_status put_chat(struct net_req *r, struct api_resp *p, struct str *out, sl_err *err)
{
    static const char *const pass[] = {"parallel_tool_calls", "reasoning", "enable_thinking",
                                       "thinking", "chat_template_kwargs"};
    const struct json *reason = api_field(p->body, "reasoning");
    struct json_w w;
    SL_TRY(api_field_kind(reason, "reasoning", "effort", JSON_STR_K, err));
    text_jw_init(&w, out);
    text_jw_obj(&w);
    SL_TRY(put_messages(r, p, &w, err));
    SL_TRY(api_resp_put_tools(r, p, &w, err));
    SL_TRY(api_resp_put_choice(r, p, &w, err));
    api_fields_put(&w, p->body, pass, BASE_COUNT_OF(pass));
    text_jw_obj_end(&w);
    return str_status(out, err);
}

/* What previous_response_id names: its history, and its items where they are kept again. */
static sl_status put_previous(api *a, struct net_req *r, struct api_resp *p, sl_err *err)
{
    const char *prev = api_field_str(p->body, "previous_response_id", NULL);
    struct api_stored s;
    char key[64];
    if (!prev) return SL_OK;
    api_key_name(a, r->key, key);
    sl_status st = api_store_get(a, prev, key, &r->arena, &s, err);
    if (st == SL_NOTFOUND) {
        status_prefix(err, "previous_response_id");
        if (err) err->code = SL_REQUEST;
        return SL_REQUEST;
    }
    SL_TRY(st);
    str_put(&p->history, s.history, s.n_history);
    if (p->store) str_put(&p->input, s.items, s.n_items);
    return SL_OK;
}

static sl_status make_chat(struct net_req *r, struct api_resp *p, sl_err *err)
{
    struct str chat;
    str_init(&chat, MEM_REQUEST, 0);
    sl_status st = put_chat(r, p, &chat, err);
    if (!st) st = text_json_parse(&r->arena, "input", str_c(&chat), chat.n, &p->chat, err);
    str_fini(&chat);
    if (st == SL_LIMIT || st == SL_FORMAT)
        return SL_FAIL(err, REQUEST, "input: values nested too deep");
    return st;
}

static bool has_later_system(const struct json *chat)
{
    const struct json *list = api_field(chat, "messages");
    for (const struct json *m = list && list->n ? list->child->next : NULL; m; m = m->next)
        if (is_system(m)) return true;
    return false;
}

sl_status api_resp_read(api *a, struct net_req *r, struct api_resp *p, sl_err *err)
{
    SL_TRY(api_messages_fit(a, api_field(p->body, "input"), err));
    SL_TRY(put_previous(a, r, p, err));
    SL_TRY(resolve(a, r, p, err));
    SL_TRY(put_input(r, &p->history, p->in, err));
    if (p->store) api_resp_put_input(&p->input, p->in);
    SL_TRY(str_status(&p->history, err));
    SL_TRY(str_status(&p->input, err));
    SL_TRY(make_chat(r, p, err));
    sl_err first = {0};
    sl_status st = api_chat_prompt(a, r, p->chat, false, &p->prompt, &first);
    if ((st == SL_REQUEST || st == SL_FORMAT || st == SL_UNSUPPORTED) &&
        has_later_system(p->chat)) {
        p->fold = true;
        SL_TRY(make_chat(r, p, err));
        if (api_chat_prompt(a, r, p->chat, false, &p->prompt, err) == SL_OK) return SL_OK;
    }
    if (st && err) *err = first;
    return st;
}
