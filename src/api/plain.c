/* SPDX-License-Identifier: Apache-2.0 */
/* What a chat template knows, and the plain form of tools, calls and results for one that knows
 * none: docs/api.md states it. */
#include <stdio.h>
#include <string.h>

#include "api/api_internal.h"
#include "api/family.h"
#include "api/parse.h"
#include "base/log.h"

/* ---- what the template knows ---- */

static bool has_word(const char *text, const char *word)
{
    char a[24], b[24];
    snprintf(a, sizeof a, "'%s'", word);
    snprintf(b, sizeof b, "\"%s\"", word);
    return text && (strstr(text, a) || strstr(text, b));
}

/* Does the prompt of a plain question end within reasoning? Errors: NOMEM. */
static sl_status thinks_always(const api *a, bool *out, sl_err *err)
{
    const sl_chat chat = {.messages = "[{\"role\":\"user\",\"content\":\"a\"}]"};
    char *text = NULL;
    sl_status st = sl_chat_render(a->o.model, &chat, &text, NULL, NULL, err);
    *out = !st && api_family_ends(text, strlen(text), T_THINK);
    sl_free(text);
    return st == SL_NOMEM ? st : SL_OK;
}

sl_status api_template_open(api *a, sl_err *err)
{
    struct api_template *t = &a->tmpl;
    const sl_model *m = a->o.model;
    const char *src = a->mi.chat_template_tools;
    struct api_parse *p = NULL;
    t->tools = sl_template_reads(m, 1, "tools");
    const struct api_parse_opts o = {.tool_parser = a->o.tool_parser,
                                     .template_text = src,
                                     .trained = t->tools ? a->mi.tool_family : NULL};
    SL_TRY(api_parse_open(&o, &p, err));
    t->family = api_parse_family(p); /* static */
    api_parse_close(p);
    t->calls = t->tools || (src && strstr(src, "tool_calls"));
    t->results = t->tools || has_word(src, "tool") || has_word(src, "ipython");
    t->thinking = sl_template_reads(m, 0, "thinking") || sl_template_reads(m, 0, "enable_thinking");
    t->effort = sl_template_reads(m, 0, "reasoning_effort");
    SL_TRY(thinks_always(a, &t->always, err));
    if (a->mi.has_template && !t->tools)
        log_msg(LOG_WARN, "the chat template knows no tools: requests that have some get them told "
                          "in the system message (docs/api.md)");
    return SL_OK;
}

void api_template_blame(const struct json *body, sl_err *err)
{
    const struct json *list = api_field(body, "messages");
    int at = 0;
    if (!err || strncmp(err->text, "chat template", 13) != 0) return;
    /* addition of a text and nothing: whose content is that? */
    if (strstr(err->text, "none"))
        for (const struct json *m = list && list->kind == JSON_ARRAY_K ? list->child : NULL; m;
             m = m->next, at++)
            if (!api_field(m, "content")) {
                status_prefix(err, "messages[%d].content", at);
                return;
            }
    status_prefix(err, "messages");
}

/* ---- the plain form ---- */

static bool is(const struct api_family *family, const char *name)
{
    return strcmp(family->name, name) == 0;
}

void api_plain_tools(struct str *out, const struct api_family *family, const struct json *tools,
                     bool many)
{
    struct json_w w;
    bool hermes = is(family, "hermes"), llama = is(family, "llama3");
    const char *open = hermes ? "<tool_call>\n" : "", *close = hermes ? "\n</tool_call>" : "";
    str_puts(out, "You can call these functions:\n");
    for (const struct json *t = tools->child; t; t = t->next) {
        static const char *const key[] = {"name", "description", "parameters"};
        const struct json *f = text_json_get(t, "function");
        str_putc(out, '\n');
        text_jw_init(&w, out);
        text_jw_obj(&w);
        for (int i = 0; i < BASE_COUNT_OF(key); i++) {
            const struct json *v = api_field(f, key[i]);
            if (!v) continue;
            text_jw_key(&w, key[i]);
            text_jw_node(&w, v);
        }
        text_jw_obj_end(&w);
    }
    if (is(family, "deepseek") || is(family, "none")) {
        str_puts(out, "\n\nCall one where it helps to answer.");
        return;
    }
    str_printf(out,
               "\n\nTo call one, answer with nothing but an object of this form:\n%s{\"name\": "
               "\"FUNCTION\", \"%s\": {\"PARAMETER\": VALUE}}%s\n",
               open, llama ? "parameters" : "arguments", close);
    if (many && is(family, "json")) str_puts(out, "To call several, answer with a list of them.\n");
    if (many && hermes) str_puts(out, "To call several, write one after the other.\n");
    if (many && llama) str_puts(out, "To call several, write a semicolon between them.\n");
    str_puts(out, "Otherwise answer in words.");
}

static void put_plain_call(struct str *out, const struct api_family *family, const struct json *f)
{
    const struct json *name = text_json_get(f, "name"), *args = text_json_get(f, "arguments");
    struct json_w w;
    if (is(family, "hermes")) str_puts(out, "<tool_call>\n");
    str_puts(out, "{\"name\": ");
    text_jw_init(&w, out);
    if (name && name->kind == JSON_STR_K)
        text_jw_str(&w, name->s, name->n);
    else
        text_jw_strz(&w, "");
    str_printf(out, ", \"%s\": ", is(family, "llama3") ? "parameters" : "arguments");
    text_jw_init(&w, out);
    if (args && args->kind == JSON_STR_K && args->n)
        str_put(out, args->s, args->n);
    else if (args && args->kind != JSON_STR_K)
        text_jw_node(&w, args);
    else
        str_puts(out, "{}");
    str_puts(out, is(family, "hermes") ? "}\n</tool_call>" : "}");
}

void api_plain_calls(struct str *out, const struct api_family *family, const struct json *m)
{
    const struct json *calls = api_field(m, "tool_calls"), *fc = api_field(m, "function_call");
    const char *between = is(family, "hermes") ? "\n" : is(family, "llama3") ? "; " : ", ";
    bool list = calls && calls->n > 1 && !is(family, "hermes") && !is(family, "llama3");
    if (!(calls && calls->n) && !fc) return;
    if (out->n) str_puts(out, "\n\n");
    if (list) str_putc(out, '[');
    if (calls && calls->n)
        for (const struct json *c = calls->child; c; c = c->next) {
            if (c != calls->child) str_puts(out, between);
            put_plain_call(out, family, text_json_get(c, "function"));
        }
    else
        put_plain_call(out, family, fc);
    if (list) str_putc(out, ']');
}

/* The name of the function whose call has this id; NULL: there is none before message m. */
static const struct json *name_of(const struct json *list, const struct json *m,
                                  const struct json *id)
{
    const struct json *name = NULL;
    for (const struct json *x = list->child; x != m && id && id->kind == JSON_STR_K; x = x->next) {
        const struct json *calls = api_field(x, "tool_calls");
        for (const struct json *c = calls && calls->kind == JSON_ARRAY_K ? calls->child : NULL; c;
             c = c->next)
            if (text_json_is(text_json_get(c, "id"), id->s))
                name = text_json_get(text_json_get(c, "function"), "name");
    }
    return name;
}

void api_plain_result(struct str *out, const struct json *list, const struct json *m)
{
    const struct json *name = name_of(list, m, api_field(m, "tool_call_id"));
    if (!name) name = api_field(m, "name");
    if (name && name->kind == JSON_STR_K)
        str_printf(out, "Result of %s:\n", name->s);
    else
        str_puts(out, "Result of the call:\n");
}
