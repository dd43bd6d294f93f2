/* SPDX-License-Identifier: Apache-2.0 */
/* The switches for thinking, and the other variables that a request gives its template. A switch is
 * obeyed where the template reads one; where it does not, what would change the answer is 400. */
#include <stdio.h>
#include <string.h>

#include "api/api_internal.h"
#include "api/family.h"

#define KWARG_MAX 16

enum want { UNSAID, OFF, ON };

struct think {
    enum want want;
    const char *field; /* that says so */
};

static sl_status say(struct think *t, bool on, const char *field, sl_err *err)
{
    if (t->want != UNSAID && t->want != (on ? ON : OFF))
        return SL_FAIL(err, REQUEST, "%s: %s says the opposite", field, t->field);
    *t = (struct think){on ? ON : OFF, field};
    return SL_OK;
}

/* thinking: {"type": "enabled" or "disabled"}, or a boolean. */
static sl_status read_object(const struct json *v, struct think *t, sl_err *err)
{
    const struct json *type = v;
    if (v->kind == JSON_OBJECT_K) {
        type = api_field(v, "type");
        SL_TRY(api_members_check(v, "thinking", "type", err));
    }
    if (v->kind == JSON_BOOL_K) return say(t, v->b, "thinking", err);
    if (text_json_is(type, "enabled")) return say(t, true, "thinking", err);
    if (text_json_is(type, "disabled")) return say(t, false, "thinking", err);
    if (text_json_is(type, "auto") || text_json_is(type, "adaptive")) return SL_OK;
    return SL_FAIL(err, REQUEST, "thinking.type: must be enabled, disabled or auto");
}

/* chat_template_kwargs are stronger than the fields, and those than the effort. */
static sl_status read_think(const struct json *body, const struct json *kw, const char *effort,
                            const char *effort_field, struct think *t, sl_err *err)
{
    static const char *const key[] = {"enable_thinking", "thinking"};
    static const char *const name[] = {"chat_template_kwargs.enable_thinking",
                                       "chat_template_kwargs.thinking"};
    const struct json *v, *reason = api_field(body, "reasoning");
    for (int i = 0; i < 2; i++)
        if ((v = kw ? api_field(kw, key[i]) : NULL) && v->kind == JSON_BOOL_K)
            SL_TRY(say(t, v->b, name[i], err));
    if (t->want != UNSAID) return SL_OK;
    if ((v = api_field(body, "thinking"))) SL_TRY(read_object(v, t, err));
    if (api_field(body, "enable_thinking"))
        SL_TRY(say(t, api_field_bool(body, "enable_thinking", false), "enable_thinking", err));
    if (reason && (v = api_field(reason, "enabled")) && v->kind == JSON_BOOL_K)
        SL_TRY(say(t, v->b, "reasoning.enabled", err));
    if (t->want == UNSAID && effort)
        *t = (struct think){strcmp(effort, "none") == 0 ? OFF : ON, effort_field};
    return SL_OK;
}

static sl_status check_effort(const api *a, const char *effort, const char *field, sl_err *err)
{
    static const char *const known[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
    for (int i = 0; i < BASE_COUNT_OF(known); i++)
        if (strcmp(effort, known[i]) == 0) return SL_OK;
    if (a->tmpl.effort) return SL_OK; /* the template knows which there are */
    return SL_FAIL(err, REQUEST,
                   "%s: \"%.20s\": must be none, minimal, low, medium, high, xhigh or max", field,
                   effort);
}

/* The template has no switch: is what is wanted so all the same? */
static sl_status check_fixed(const api *a, struct net_req *r, const struct think *t,
                             const char *effort_field, sl_err *err)
{
    bool by_effort = strcmp(t->field, effort_field) == 0;
    if (t->want == ON && by_effort) { /* how much, which nothing here can heed: said, not refused */
        api_say_ignored(r, effort_field);
        return SL_OK;
    }
    if (t->want == (a->tmpl.always ? ON : OFF)) return SL_OK;
    return SL_FAIL(err, REQUEST, "%s: this model's chat template has no switch for thinking",
                   t->field);
}

static sl_status put_kwarg(const api *a, struct json_w *w, const struct json *v, bool effort,
                           sl_err *err)
{
    static const char *const own[] = {"messages", "tools", "add_generation_prompt", "bos_token",
                                      "eos_token"};
    bool bad = v->kind == JSON_ARRAY_K || v->kind == JSON_OBJECT_K ||
               (v->kind == JSON_STR_K && v->n > 4096) ||
               (effort && strcmp(v->key, "reasoning_effort") == 0);
    for (int i = 0; i < BASE_COUNT_OF(own); i++)
        bad |= strcmp(v->key, own[i]) == 0;
    if (bad)
        return SL_FAIL(err, REQUEST,
                       "chat_template_kwargs: %.40s: texts, numbers and booleans of other names",
                       v->key);
    bool think = strcmp(v->key, "enable_thinking") == 0 || strcmp(v->key, "thinking") == 0;
    if (!(think && v->kind == JSON_BOOL_K) && !sl_template_reads(a->o.model, 0, v->key) &&
        !sl_template_reads(a->o.model, 1, v->key))
        return SL_FAIL(err, REQUEST,
                       "chat_template_kwargs: %.40s: this model's chat template reads no such "
                       "variable",
                       v->key);
    text_jw_key(w, v->key);
    text_jw_node(w, v);
    return SL_OK;
}

sl_status api_kwargs_put(const api *a, struct net_req *r, struct str *out, const struct json *body,
                         sl_err *err)
{
    static const char *const key[] = {"enable_thinking", "thinking"};
    const struct json *kw = api_field(body, "chat_template_kwargs"),
                      *reason = api_field(body, "reasoning");
    const char *effort = api_field_str(body, "reasoning_effort", NULL);
    const char *field = effort ? "reasoning_effort" : "reasoning.effort";
    struct think t = {UNSAID, ""};
    struct json_w w;
    SL_TRY(api_field_kind(reason, "reasoning", "effort", JSON_STR_K, err));
    SL_TRY(api_field_kind(reason, "reasoning", "enabled", JSON_BOOL_K, err));
    if (!effort && reason) effort = api_field_str(reason, "effort", NULL);
    if (kw && (kw->kind != JSON_OBJECT_K || kw->n > KWARG_MAX))
        return SL_FAIL(err, REQUEST,
                       "chat_template_kwargs: must be an object of at most %d members", KWARG_MAX);
    SL_TRY(api_members_check(reason, "reasoning",
                             "effort|enabled|summary|generate_summary|context", err));
    if (effort) SL_TRY(check_effort(a, effort, field, err));
    if (effort && a->tmpl.family->effort) effort = a->tmpl.family->effort(effort);
    SL_TRY(read_think(body, kw, effort, field, &t, err));
    if (t.want != UNSAID && !a->tmpl.thinking && !(a->tmpl.effort && effort))
        SL_TRY(check_fixed(a, r, &t, field, err));
    text_jw_init(&w, out);
    text_jw_obj(&w);
    if (effort) {
        text_jw_key(&w, "reasoning_effort");
        text_jw_strz(&w, effort);
    }
    for (int i = 0; i < 2 && t.want != UNSAID; i++) {
        if (kw && text_json_get(kw, key[i])) continue;
        text_jw_key(&w, key[i]);
        text_jw_bool(&w, t.want == ON);
    }
    for (const struct json *v = kw ? kw->child : NULL; v; v = v->next)
        SL_TRY(put_kwarg(a, &w, v, effort != NULL, err));
    text_jw_obj_end(&w);
    return str_status(out, err);
}
