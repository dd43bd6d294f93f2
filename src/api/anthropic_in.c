/* SPDX-License-Identifier: Apache-2.0 */
/* A request of the Messages API as a chat request. Turns of one role that follow each other are one
 * message, results of tools are messages of their own. System texts at the beginning are one system
 * message; later ones stand in the user's turn, in <system-reminder> tags, because many templates
 * take a system message in front only and others would move it there, before all that was cached.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "api/anthropic.h"

#define PATH_MAX_ 120
/* What Claude Code says of itself in front of the system prompt: it differs from one request to the
 * next and is no prompt. */
#define BILLING "x-anthropic-billing-header:"

struct reader {
    struct net_req *r;
    struct api_msg *p;
    struct str out;    /* messages that are done, commas between them */
    struct str system; /* texts of the first system message */
    /* the turn that is open */
    const char *role; /* "user" or "assistant"; NULL = none */
    struct str text, think, calls;
    bool any;   /* the user's turn has a block */
    int n_call; /* calls of the last turn that was closed or is open */
};

static void clear(struct reader *rd)
{
    rd->role = NULL;
    rd->any = false;
    str_clear(&rd->text);
    str_clear(&rd->think);
    str_clear(&rd->calls);
}

static void begin_message(struct reader *rd, struct json_w *w, const char *role)
{
    if (rd->out.n) str_putc(&rd->out, ',');
    text_jw_init(w, &rd->out);
    text_jw_obj(w);
    text_jw_key(w, "role");
    text_jw_strz(w, role);
}

static void put_turn(struct reader *rd)
{
    struct json_w w;
    if (!rd->role) return;
    begin_message(rd, &w, rd->role);
    text_jw_key(&w, "content");
    if (rd->calls.n && !rd->text.n)
        text_jw_null(&w);
    else
        api_put_text(&w, &rd->text);
    if (rd->think.n) {
        text_jw_key(&w, "reasoning_content");
        api_put_text(&w, &rd->think);
    }
    if (rd->calls.n) {
        text_jw_key(&w, "tool_calls");
        text_jw_arr(&w);
        api_put_json(&w, &rd->calls);
        text_jw_arr_end(&w);
    }
    text_jw_obj_end(&w);
    clear(rd);
}

static void turn_to(struct reader *rd, const char *role)
{
    if (rd->role && strcmp(rd->role, role) == 0) return;
    put_turn(rd);
    rd->role = role;
    rd->n_call = 0;
}

/* ---- blocks ---- */

static sl_status put_result(struct reader *rd, const struct json *b, const char *path, sl_err *err)
{
    struct json_w w;
    struct str s;
    char at[PATH_MAX_];
    const struct json *id = api_field(b, "tool_use_id");
    if (!id) return SL_FAIL(err, REQUEST, "%s.tool_use_id: missing", path);
    SL_TRY(api_field_kind(b, path, "tool_use_id", JSON_STR_K, err));
    SL_TRY(api_field_kind(b, path, "is_error", JSON_BOOL_K, err));
    put_turn(rd);
    snprintf(at, sizeof at, "%.100s.content", path);
    str_init(&s, MEM_REQUEST, 0);
    if (api_field_bool(b, "is_error", false)) str_puts(&s, "Error: ");
    sl_status st = api_msg_texts(&s, api_field(b, "content"), at, &rd->p->marked, err);
    begin_message(rd, &w, "tool");
    text_jw_key(&w, "tool_call_id");
    text_jw_node(&w, id);
    text_jw_key(&w, "content");
    api_put_text(&w, &s);
    text_jw_obj_end(&w);
    str_fini(&s);
    return st;
}

static sl_status put_call(struct reader *rd, const struct json *b, const char *path, sl_err *err)
{
    static const char *const field[] = {"id", "name"};
    const struct json *input = api_field(b, "input");
    struct json_w w;
    for (int i = 0; i < BASE_COUNT_OF(field); i++) {
        if (!api_field(b, field[i])) return SL_FAIL(err, REQUEST, "%s.%s: missing", path, field[i]);
        SL_TRY(api_field_kind(b, path, field[i], JSON_STR_K, err));
    }
    SL_TRY(api_field_kind(b, path, "input", JSON_OBJECT_K, err));
    rd->n_call++;
    if (rd->calls.n) str_putc(&rd->calls, ',');
    text_jw_init(&w, &rd->calls);
    text_jw_obj(&w);
    text_jw_key(&w, "id");
    text_jw_node(&w, api_field(b, "id"));
    api_function_begin(&w);
    text_jw_node(&w, api_field(b, "name"));
    text_jw_key(&w, "arguments");
    if (input)
        text_jw_node(&w, input);
    else
        text_jw_raw(&w, "{}", 2);
    text_jw_obj_end(&w);
    text_jw_obj_end(&w);
    return SL_OK;
}

static sl_status put_think(struct reader *rd, const struct json *b, const char *path, sl_err *err)
{
    const struct json *v = api_field(b, "thinking");
    if (!v) return SL_FAIL(err, REQUEST, "%s.thinking: missing", path);
    SL_TRY(api_field_kind(b, path, "thinking", JSON_STR_K, err));
    SL_TRY(api_field_kind(b, path, "signature", JSON_STR_K, err));
    str_put(&rd->think, v->s, v->n);
    return SL_OK;
}

/* Blocks of an answer that say nothing to this model: what servers of Anthropic did, encrypted
 * thoughts. */
static bool is_foreign(const struct json *type)
{
    static const char *const row[] = {"redacted_thinking", "server_tool_use",  "mcp_tool_use",
                                      "mcp_tool_listing",  "container_upload", "fallback"};
    for (int i = 0; i < BASE_COUNT_OF(row); i++)
        if (text_json_is(type, row[i])) return true;
    size_t n = type->n, tail = strlen("_tool_result"); /* web_search_tool_result and its kind */
    return n > tail && strcmp(type->s + n - tail, "_tool_result") == 0;
}

static sl_status put_answer_block(struct reader *rd, const struct json *b, const char *path,
                                  sl_err *err)
{
    const struct json *type = api_field(b, "type");
    if (text_json_is(type, "thinking")) return put_think(rd, b, path, err);
    if (text_json_is(type, "tool_use")) return put_call(rd, b, path, err);
    if (text_json_is(type, "redacted_thinking"))
        SL_TRY(api_field_kind(b, path, "data", JSON_STR_K, err));
    if (type && type->kind == JSON_STR_K && is_foreign(type)) return SL_OK;
    if (text_json_is(type, "compaction")) { /* a summary of what was before */
        const struct json *v = api_field(b, "content");
        SL_TRY(api_field_kind(b, path, "content", JSON_STR_K, err));
        if (v) str_put(&rd->text, v->s, v->n);
        return SL_OK;
    }
    return api_msg_text(&rd->text, b, path, err);
}

static sl_status put_user_block(struct reader *rd, const struct json *b, const char *path,
                                sl_err *err)
{
    if (text_json_is(api_field(b, "type"), "tool_result")) return put_result(rd, b, path, err);
    if (text_json_is(api_field(b, "type"), "container_upload")) return SL_OK;
    turn_to(rd, "user");
    if (rd->any) str_putc(&rd->text, '\n');
    rd->any = true;
    return api_msg_text(&rd->text, b, path, err);
}

/* ---- messages ---- */

static bool is_billing(const struct json *block)
{
    return strncmp(api_field_str(block, "text", ""), BILLING, strlen(BILLING)) == 0;
}

/* The texts of a system prompt, without a first block that is none. */
static sl_status system_text(struct reader *rd, struct str *out, const struct json *content,
                             const char *path, sl_err *err)
{
    char at[PATH_MAX_];
    int i = 1;
    if (content->kind != JSON_ARRAY_K || !content->n || !is_billing(content->child))
        return api_msg_texts(out, content, path, &rd->p->marked, err);
    for (const struct json *b = content->child->next; b; b = b->next, i++) {
        snprintf(at, sizeof at, "%.100s[%d]", path, i);
        if (i > 1) str_putc(out, '\n');
        SL_TRY(api_msg_text(out, b, at, err));
        SL_TRY(api_msg_mark(b, at, &rd->p->marked, err));
    }
    return SL_OK;
}

/* Before any message: the system message, or more of it. Later: the user's. */
static sl_status put_system(struct reader *rd, const struct json *content, const char *path,
                            sl_err *err)
{
    struct str s, *to = &rd->system;
    bool begin = !rd->role && !rd->out.n;
    str_init(&s, MEM_REQUEST, 0);
    sl_status st = system_text(rd, &s, content, path, err);
    if (!begin) {
        turn_to(rd, "user");
        to = &rd->text;
    }
    if (to->n && s.n) str_putc(to, '\n');
    if (!begin) str_puts(to, "<system-reminder>\n");
    str_put(to, str_c(&s), s.n);
    if (!begin) str_puts(to, "\n</system-reminder>");
    rd->any |= !begin;
    api_inherit(to, &s);
    str_fini(&s);
    return st;
}

static sl_status put_blocks(struct reader *rd, const struct json *content, bool answer,
                            const char *path, sl_err *err)
{
    char at[PATH_MAX_];
    int i = 0;
    for (const struct json *b = content->child; b; b = b->next, i++) {
        snprintf(at, sizeof at, "%.100s[%d]", path, i);
        if (b->kind != JSON_OBJECT_K) return SL_FAIL(err, REQUEST, "%s: must be an object", at);
        SL_TRY(answer ? put_answer_block(rd, b, at, err) : put_user_block(rd, b, at, err));
        SL_TRY(api_msg_mark(b, at, &rd->p->marked, err));
    }
    return SL_OK;
}

static sl_status put_message(struct reader *rd, const struct json *m, int i, sl_err *err)
{
    const struct json *role = text_json_get(m, "role"), *content = api_field(m, "content");
    bool answer = text_json_is(role, "assistant"), user = text_json_is(role, "user");
    char path[PATH_MAX_];
    snprintf(path, sizeof path, "messages[%d]", i);
    if (m->kind != JSON_OBJECT_K) return SL_FAIL(err, REQUEST, "%s: must be an object", path);
    if (!answer && !user && !text_json_is(role, "system") && !text_json_is(role, "developer"))
        return SL_FAIL(err, REQUEST, "%s.role: must be user, assistant or system", path);
    SL_TRY(api_msg_mark(m, path, &rd->p->marked, err));
    for (const struct json *v = m->child; v; v = v->next)
        if (!api_field_empty(v) && !api_name_in("role|content|cache_control", v->key))
            api_say_message(rd->r, v->key);
    snprintf(path, sizeof path, "messages[%d].content", i);
    if (!content) return SL_FAIL(err, REQUEST, "%s: missing", path);
    if (content->kind != JSON_STR_K && content->kind != JSON_ARRAY_K)
        return SL_FAIL(err, REQUEST, "%s: must be a string or a list of blocks", path);
    if (!answer && !user) return put_system(rd, content, path, err);
    if (answer || content->kind == JSON_STR_K || !content->n)
        turn_to(rd, answer ? "assistant" : "user");
    if (content->kind == JSON_ARRAY_K) return put_blocks(rd, content, answer, path, err);
    if (user && rd->any) str_putc(&rd->text, '\n');
    rd->any = true;
    str_put(&rd->text, content->s, content->n);
    return SL_OK;
}

static sl_status put_all(struct reader *rd, const struct json *body, sl_err *err)
{
    const struct json *list = api_field(body, "messages"), *system = api_field(body, "system");
    int i = 0;
    if (!list) return SL_FAIL(err, REQUEST, "messages: missing");
    if (list->kind != JSON_ARRAY_K || !list->n)
        return SL_FAIL(err, REQUEST, "messages: must be a list of at least one message");
    if (system && system->kind != JSON_STR_K && system->kind != JSON_ARRAY_K)
        return SL_FAIL(err, REQUEST, "system: must be a string or a list of blocks");
    if (system) SL_TRY(put_system(rd, system, "system", err));
    for (const struct json *m = list->child; m; m = m->next)
        SL_TRY(put_message(rd, m, i++, err));
    return SL_OK;
}

/* "messages", and with the last turn the assistant's what has it go on. */
static void put_messages(struct reader *rd, struct json_w *w)
{
    bool open = rd->role && strcmp(rd->role, "assistant") == 0 && !rd->n_call,
         more = open && rd->text.n > 0;
    if (open && !more)
        clear(rd); /* an empty beginning is none */
    else
        put_turn(rd);
    text_jw_key(w, "messages");
    text_jw_arr(w);
    if (rd->system.n) {
        text_jw_obj(w);
        text_jw_key(w, "role");
        text_jw_strz(w, "system");
        text_jw_key(w, "content");
        api_put_text(w, &rd->system);
        text_jw_obj_end(w);
    }
    api_put_json(w, &rd->out);
    text_jw_arr_end(w);
    if (!more) return;
    text_jw_key(w, "continue_final_message");
    text_jw_bool(w, true);
    text_jw_key(w, "add_generation_prompt");
    text_jw_bool(w, false);
}

static sl_status read_messages(struct net_req *r, struct api_msg *p, struct json_w *w, sl_err *err)
{
    struct reader rd = {.r = r, .p = p};
    struct str *const all[] = {&rd.out, &rd.system, &rd.text, &rd.think, &rd.calls};
    for (int i = 0; i < BASE_COUNT_OF(all); i++)
        str_init(all[i], MEM_REQUEST, 0);
    sl_status st = put_all(&rd, p->body, err);
    if (!st) put_messages(&rd, w);
    for (int i = 0; i < BASE_COUNT_OF(all); i++) {
        api_inherit(w->out, all[i]);
        str_fini(all[i]);
    }
    return st;
}

/* ---- what else there is ---- */

static bool of_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '.' || c == '\'' || c == '"';
}

/* Does a template's code have this variable? */
static bool reads(const char *t, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = t; at && (at = strstr(at, name)); at += n) {
        const char *code = NULL;
        if (of_name(at[n]) || (at > t && of_name(at[-1]))) continue;
        for (const char *c = at; c > t && !code; c--) /* back to where code begins, or ends */
            if (c[-1] == '{' ? *c == '%' || *c == '{' : *c == '}' && (c[-1] == '%' || c[-1] == '}'))
                code = c;
        if (code && *code != '}') return true;
    }
    return false;
}

/* A template without a switch is given none: it thinks, or not, whatever is asked. */
static sl_status put_thinking(struct api_msg *p, struct json_w *w, sl_err *err)
{
    static const char *const key[] = {"enable_thinking", "thinking"};
    const struct json *t = api_field(p->body, "thinking"),
                      *kw = api_field(p->body, "chat_template_kwargs"),
                      *type = api_field(t, "type"), *show = api_field(t, "display");
    bool on = t && !text_json_is(type, "disabled");
    SL_TRY(api_field_kind(p->body, "", "thinking", JSON_OBJECT_K, err));
    SL_TRY(api_field_kind(p->body, "", "chat_template_kwargs", JSON_OBJECT_K, err));
    SL_TRY(api_members_check(t, "thinking", "type|budget_tokens|display|block_binding", err));
    if (t && on && !text_json_is(type, "enabled") && !text_json_is(type, "adaptive") &&
        !text_json_is(type, "between_tools"))
        return SL_FAIL(err, REQUEST, "thinking.type: must be enabled, disabled or adaptive");
    SL_TRY(api_field_kind(t, "thinking", "budget_tokens", JSON_INT_K, err));
    if (show && !text_json_is(show, "summarized") && !text_json_is(show, "omitted") &&
        !text_json_is(show, "updates"))
        return SL_FAIL(err, REQUEST, "thinking.display: must be summarized, omitted or updates");
    p->hidden = text_json_is(show, "omitted");
    if (!p->can_switch && !kw) return SL_OK;
    text_jw_key(w, "chat_template_kwargs");
    text_jw_obj(w);
    for (int i = 0; p->can_switch && i < BASE_COUNT_OF(key); i++) {
        if (text_json_get(kw, key[i])) continue;
        text_jw_key(w, key[i]);
        text_jw_bool(w, on);
    }
    for (const struct json *v = kw ? kw->child : NULL; v; v = v->next) {
        text_jw_key(w, v->key);
        text_jw_node(w, v);
    }
    text_jw_obj_end(w);
    return SL_OK;
}

/* output_config.format, or output_format as it was called first, and the effort. */
static sl_status put_output(struct net_req *r, struct api_msg *p, struct json_w *w, sl_err *err)
{
    const struct json *c = api_field(p->body, "output_config"),
                      *f = api_field(p->body, "output_format"), *effort = api_field(c, "effort");
    p->format = f ? "output_format" : "output_config.format";
    SL_TRY(api_field_kind(p->body, "", "output_config", JSON_OBJECT_K, err));
    SL_TRY(api_field_kind(p->body, "", "output_format", JSON_OBJECT_K, err));
    SL_TRY(api_field_kind(c, "output_config", "format", JSON_OBJECT_K, err));
    SL_TRY(api_field_kind(c, "output_config", "effort", JSON_STR_K, err));
    SL_TRY(api_members_check(c, "output_config", "effort|format|task_budget", err));
    if (api_field(c, "task_budget")) api_say_ignored(r, "output_config.task_budget");
    if (effort) {
        text_jw_key(w, "reasoning_effort");
        text_jw_node(w, effort);
    }
    if (!f) f = api_field(c, "format");
    if (!f) return SL_OK;
    if (!text_json_is(api_field(f, "type"), "json_schema"))
        return SL_FAIL(err, REQUEST, "%s.type: must be json_schema", p->format);
    if (!api_field(f, "schema")) return SL_FAIL(err, REQUEST, "%s.schema: missing", p->format);
    SL_TRY(api_field_kind(f, p->format, "schema", JSON_OBJECT_K, err));
    text_jw_key(w, "response_format");
    text_jw_obj(w);
    text_jw_key(w, "type");
    text_jw_strz(w, "json_schema");
    text_jw_key(w, "json_schema");
    text_jw_obj(w);
    text_jw_key(w, "name");
    text_jw_strz(w, "output");
    text_jw_key(w, "strict");
    text_jw_bool(w, true);
    text_jw_key(w, "schema");
    text_jw_node(w, api_field(f, "schema"));
    text_jw_obj_end(w);
    text_jw_obj_end(w);
    return SL_OK;
}

static sl_status put_stop(struct api_msg *p, struct json_w *w, sl_err *err)
{
    const struct json *s = api_field(p->body, "stop_sequences");
    int i = 0;
    if (!s) return SL_OK;
    if (s->kind != JSON_ARRAY_K || s->n > API_STOP_MAX)
        return SL_FAIL(err, REQUEST, "stop_sequences: must be a list of up to %d texts",
                       API_STOP_MAX);
    for (const struct json *e = s->child; e; e = e->next, i++)
        if (e->kind != JSON_STR_K || e->n < 1 || e->n > 1024 || memchr(e->s, 0, e->n))
            return SL_FAIL(err, REQUEST,
                           "stop_sequences[%d]: must be a text of 1 to 1024 bytes without NUL", i);
    if (!s->n) return SL_OK;
    text_jw_key(w, "stop");
    text_jw_node(w, s);
    return SL_OK;
}

/* Members that are read elsewhere or have no effect, and would be nonsense in another form. */
static sl_status check_rest(struct api_msg *p, sl_err *err)
{
    static const struct {
        const char *name;
        enum json_kind kind;
    } row[] = {{"metadata", JSON_OBJECT_K},    {"context_management", JSON_OBJECT_K},
               {"diagnostics", JSON_OBJECT_K}, {"mcp_servers", JSON_ARRAY_K},
               {"betas", JSON_ARRAY_K},        {"cache_control", JSON_OBJECT_K}};
    const struct json *c = api_field(p->body, "container"), *m = api_field(p->body, "metadata");
    for (int i = 0; i < BASE_COUNT_OF(row); i++)
        SL_TRY(api_field_kind(p->body, "", row[i].name, row[i].kind, err));
    if (c && c->kind != JSON_STR_K && c->kind != JSON_OBJECT_K)
        return SL_FAIL(err, REQUEST, "container: must be a string or an object");
    SL_TRY(api_field_kind(m, "metadata", "user_id", JSON_STR_K, err));
    return api_msg_mark(p->body, "", &p->marked, err);
}

static sl_status put_chat(struct net_req *r, struct api_msg *p, bool count, struct str *out,
                          sl_err *err)
{
    static const char *const pass[] = {"model",      "stream",     "temperature", "top_p",
                                       "top_k",      "seed",       "min_p",       "priority",
                                       "timeout_ms", "cache_salt", "min_tokens",  "ignore_eos"};
    const struct json *max = api_field(p->body, "max_tokens");
    struct json_w w;
    if (!max && !count) return SL_FAIL(err, REQUEST, "max_tokens: missing");
    p->warm = !count && api_field_int(p->body, "max_tokens", 0) == 0;
    SL_TRY(check_rest(p, err));
    text_jw_init(&w, out);
    text_jw_obj(&w);
    SL_TRY(read_messages(r, p, &w, err));
    SL_TRY(api_msg_put_tools(r, p, &w, err));
    SL_TRY(put_thinking(p, &w, err));
    SL_TRY(put_output(r, p, &w, err));
    SL_TRY(put_stop(p, &w, err));
    if (max) {
        text_jw_key(&w, "max_completion_tokens");
        text_jw_int(&w, BASE_MAX(api_field_int(p->body, "max_tokens", 1), 1));
    }
    api_fields_put(&w, p->body, pass, BASE_COUNT_OF(pass));
    text_jw_obj_end(&w);
    return str_status(out, err);
}

sl_status api_msg_read(api *a, struct net_req *r, struct api_msg *p, bool count, sl_err *err)
{
    struct str chat;
    if (!count) SL_TRY(api_messages_fit(a, api_field(p->body, "messages"), err));
    p->can_switch =
        reads(a->mi.chat_template, "enable_thinking") || reads(a->mi.chat_template, "thinking");
    str_init(&chat, MEM_REQUEST, 0);
    sl_status st = put_chat(r, p, count, &chat, err);
    if (!st) st = text_json_parse(&r->arena, "messages", str_c(&chat), chat.n, &p->chat, err);
    str_fini(&chat);
    if (st == SL_LIMIT || st == SL_FORMAT)
        return SL_FAIL(err, REQUEST, "messages: values nested too deep");
    return st;
}
