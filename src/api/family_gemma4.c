/* SPDX-License-Identifier: Apache-2.0 */
/* Gemma 4: <|channel>thought, a line end and reasoning up to <channel|>; then words, and calls:
 *   <|tool_call>call:NAME{key:<|"|>text<|"|>,n:1,list:[true,null],o:{...}}<tool_call|>
 * Keys and what is no text stand bare, and texts between <|"|>, in which nothing is escaped. They
 * become JSON as they come. A bare value that is no number, true, false or null is a text, as is
 * one in JSON's own quotes. */
#include <string.h>

#include "api/api_internal.h"
#include "api/family.h"
#include "api/form.h"
#include "api/parse_internal.h"

enum { T_G_CHANNEL = T_OWN, T_G_END };
#define ENDS (BIT(T_THINK_END) | BIT(T_G_END)) /* the same text, unless another family's is read */

extern const struct api_family api_family_gemma4;

#define HEAD_MAX ((size_t)64) /* bytes of a channel's name */

static void begin(struct api_parse *p, size_t n)
{
    if (p->state == S_REASON) return; /* the prompt has begun it */
    p->state = n ? S_TEXT : S_START;
    p->strip = false;
}

/* ---- arguments ---- */

static bool in_list(const struct api_parse_bare *b)
{
    return b->list & (uint64_t)1 << (b->depth - 1);
}

/* Before a member, or a value of a list. */
static void put_comma(struct api_parse *p)
{
    uint64_t bit = (uint64_t)1 << (p->bare.depth - 1);
    if (p->bare.some & bit) api_parse_put_args(p, ", ", 2);
    p->bare.some |= bit;
}

static void open_level(struct api_parse *p, bool list)
{
    uint64_t bit = (uint64_t)1 << p->bare.depth++;
    p->bare.list = list ? p->bare.list | bit : p->bare.list & ~bit;
    p->bare.some &= ~bit;
    p->bare.at = list ? BARE_VALUE : BARE_KEY;
    api_parse_put_args(p, list ? "[" : "{", 1);
}

static void close_level(struct api_parse *p)
{
    api_parse_put_args(p, in_list(&p->bare) ? "]" : "}", 1);
    p->bare.at = BARE_NEXT;
    if (--p->bare.depth == 0) p->state = S_TAIL;
}

/* A value that stands bare is whole. */
static void end_word(struct api_parse *p)
{
    struct arena a;
    const struct json *v = NULL;
    struct str *s = &p->held;
    while (s->n && api_parse_white(s->p[s->n - 1]))
        s->n--;
    mem_arena_init(&a, MEM_REQUEST, 0);
    sl_status st = text_json_probe(&a, str_c(s), s->n, &v, NULL);
    if (st) p->out.failed = st;
    if (v && v->kind != JSON_OBJECT_K && v->kind != JSON_ARRAY_K)
        api_parse_put_args(p, str_c(s), s->n);
    else {
        api_parse_put_args(p, "\"", 1);
        api_parse_put_escaped(p, str_c(s), s->n);
        api_parse_put_args(p, "\"", 1);
    }
    mem_arena_fini(&a);
    api_parse_clear(p, s);
    p->bare.at = BARE_NEXT;
}

/* The call is over, whatever of its arguments is open: what came is closed. */
static void end_args(struct api_parse *p)
{
    struct api_parse_bare *b = &p->bare;
    if (b->at == BARE_TEXT || b->at == BARE_KEY_TEXT)
        api_parse_put_args(p, "\"", 1);
    if (b->at == BARE_WORD || b->at == BARE_QUOTED) end_word(p);
    if (b->at == BARE_KEY_TEXT || b->at == BARE_COLON) api_parse_put_args(p, ": null", 6);
    if (b->at == BARE_VALUE && b->depth && !in_list(b)) api_parse_put_args(p, "null", 4);
    while (b->depth)
        close_level(p);
    api_parse_clear(p, &p->held);
    p->state = S_TAIL;
}

/* Text up to the tag that ends it, or a control token that ends more. */
static size_t in_quotes(struct api_parse *p, const char *s, size_t n, bool last)
{
    api_tags tags = BIT(T_VALUE) | (p->control ? BIT(T_CALL_END) | BIT(T_CALL) : 0);
    int t = s[0] == '<' ? api_parse_tag_at(p, s, n, last, tags) : -1;
    size_t k = 1;
    if (t == -2) return 0;
    if (t >= 0 && t != T_VALUE) {
        end_args(p);
        return 0;
    }
    if (t == T_VALUE) {
        api_parse_put_args(p, "\"", 1);
        p->bare.at = p->bare.at == BARE_KEY_TEXT ? BARE_COLON : BARE_NEXT;
        return strlen(api_parse_tag(p, t));
    }
    while (k < n && s[k] != '<')
        k++;
    api_parse_put_escaped(p, s, k);
    return k;
}

/* A bare name of a member, up to the colon; in JSON's quotes it is the same name. */
static size_t in_name(struct api_parse *p, const char *s, size_t n)
{
    size_t k = 0, m;
    while (k < n && !strchr(":<}", s[k]) && p->held.n <= API_PARSE_NAME)
        str_putc(&p->held, s[k++]);
    if (k == n) return k;
    if (s[k] != ':') {
        end_args(p);
        return k;
    }
    const char *name = str_c(&p->held);
    for (m = p->held.n; m && api_parse_white(name[m - 1]);)
        m--;
    bool quoted = m > 1 && name[0] == '"' && name[m - 1] == '"';
    put_comma(p);
    api_parse_put_args(p, "\"", 1);
    api_parse_put_escaped(p, name + quoted, quoted ? m - 2 : m);
    api_parse_put_args(p, "\": ", 3);
    api_parse_clear(p, &p->held);
    p->bare.at = BARE_VALUE;
    return k + 1;
}

/* A bare value, held until it is whole. One that is too long ends the call. */
static size_t in_word(struct api_parse *p, const char *s, size_t n)
{
    struct api_parse_bare *b = &p->bare;
    bool quoted = b->at == BARE_QUOTED;
    for (size_t k = 0; k < n; k++) {
        bool was = b->escaped;
        if (!quoted && s[k] && strchr(",}]<", s[k])) { /* zero is a byte like others */
            end_word(p);
            return k;
        }
        str_putc(&p->held, s[k]);
        b->escaped = quoted && !was && s[k] == '\\';
        if (quoted && !was && s[k] == '"' && p->held.n > 1)
            end_word(p);
        else if (p->held.n == API_PARSE_HELD)
            end_args(p);
        else
            continue;
        return k + 1;
    }
    return n;
}

static size_t begin_value(struct api_parse *p, const char *s, int t)
{
    struct api_parse_bare *b = &p->bare;
    bool none = *s == ']' || *s == '}' || *s == ',', opens = *s == '{' || *s == '[';
    if (none && !in_list(b)) api_parse_put_args(p, "null", 4);
    if (none) {
        b->at = BARE_NEXT;
        return 0;
    }
    if (in_list(b)) put_comma(p);
    if (opens && b->depth == API_PARSE_DEPTH) {
        api_parse_put_args(p, "null", 4);
        b->at = BARE_NEXT;
        end_args(p);
    } else if (opens)
        open_level(p, *s == '[');
    else if (t == T_VALUE) {
        api_parse_put_args(p, "\"", 1);
        b->at = BARE_TEXT;
        return strlen(api_parse_tag(p, t));
    } else {
        b->escaped = false;
        b->at = *s == '"' ? BARE_QUOTED : BARE_WORD;
        return 0;
    }
    return 1;
}

/* At the beginning of a member; t: the tag that is there. */
static size_t begin_key(struct api_parse *p, const char *s, int t)
{
    struct api_parse_bare *b = &p->bare;
    if (*s == ',') return 1;
    if (*s == '}' || *s == ']') {
        close_level(p);
        return 1;
    }
    b->at = t == T_VALUE ? BARE_KEY_TEXT : BARE_NAME;
    if (t != T_VALUE) return 0;
    put_comma(p);
    api_parse_put_args(p, "\"", 1);
    return strlen(api_parse_tag(p, t));
}

/* Between the parts: white space means nothing, and a comma may be missing. */
static size_t in_gap(struct api_parse *p, const char *s, size_t n, bool last)
{
    struct api_parse_bare *b = &p->bare;
    size_t k = api_parse_white_run(s, n);
    if (k) return k;
    int t = *s == '<' ? api_parse_tag_at(p, s, n, last, BIT(T_VALUE) | BIT(T_CALL_END)) : -1;
    if (t == -2) return 0;
    if (*s == '<' && t != T_VALUE) {
        end_args(p);
        return 0;
    }
    if (b->at == BARE_VALUE) return begin_value(p, s, t);
    if (b->at == BARE_KEY) return begin_key(p, s, t);
    if (b->at == BARE_COLON) {
        api_parse_put_args(p, ": ", 2);
        b->at = BARE_VALUE;
        return *s == ':';
    }
    if (*s == '}' || *s == ']') {
        close_level(p);
        return 1;
    }
    b->at = in_list(b) ? BARE_VALUE : BARE_KEY;
    return *s == ',';
}

static size_t in_args(struct api_parse *p, const char *s, size_t n, bool last)
{
    for (;;) {
        enum api_parse_bare_at at = p->bare.at;
        size_t k;
        if (at == BARE_TEXT || at == BARE_KEY_TEXT)
            k = in_quotes(p, s, n, last);
        else if (at == BARE_NAME)
            k = in_name(p, s, n);
        else if (at == BARE_WORD || at == BARE_QUOTED)
            k = in_word(p, s, n);
        else
            k = in_gap(p, s, n, last);
        if (k || p->state != S_ARGS || p->bare.at == at) return k;
    }
}

/* ---- around them ---- */

/* "call:", a name and the brace, which are held until all are there. */
static size_t in_head_of_call(struct api_parse *p, const char *s, size_t n)
{
    static const char lead[] = "call:";
    const size_t n_lead = sizeof lead - 1;
    for (size_t k = 0; k < n; k++) {
        bool in_lead = p->head.n < n_lead;
        if (in_lead && !p->head.n && api_parse_white(s[k])) {
            api_parse_hold(p, s + k, 1);
            if (p->held.n <= API_PARSE_GAP) continue;
        } else if (in_lead ? s[k] == lead[p->head.n]
                           : !strchr("<\n{", s[k]) && p->head.n < API_PARSE_NAME) {
            api_parse_hold(p, s + k, 1);
            str_putc(&p->head, s[k]);
            continue;
        } else if (!in_lead && s[k] == '{' && p->head.n > n_lead) {
            api_parse_begin_call(p, p->head.p + n_lead, p->head.n - n_lead);
            p->bare = (struct api_parse_bare){0};
            open_level(p, false);
            p->state = S_ARGS;
            return k + 1;
        }
        api_parse_give_up(p);
        return k;
    }
    return n;
}

/* The channel's name, which comes out nowhere, up to the end of its line. */
static size_t in_channel(struct api_parse *p, const char *s, size_t n)
{
    size_t k = 0;
    while (k < n && !strchr("<\n", s[k]) && p->head.n < HEAD_MAX)
        str_putc(&p->head, s[k++]);
    if (k == n) return k;
    k += s[k] == '\n';
    api_parse_clear(p, &p->head);
    p->state = p->reasoning ? S_REASON : S_TEXT;
    return k;
}

static void take_tag(struct api_parse *p, const char *s, size_t k, int t)
{
    if (t == T_CALL) {
        p->from_reason = p->state == S_REASON;
        api_parse_hold(p, s, k);
        api_parse_clear(p, &p->head);
        p->state = S_NAME;
        return;
    }
    api_parse_clear(p, &p->gap);
    api_parse_clear(p, &p->head);
    p->strip = true;
    p->state = t == T_G_CHANNEL ? S_HEAD : S_START;
    p->started = t == T_G_CHANNEL;
}

static api_tags tags(const struct api_parse *p)
{
    api_tags call = p->tools ? BIT(T_CALL) : 0;
    switch (p->state) {
    case S_HEAD:
        return ENDS;
    case S_REASON:
        return ENDS | call | (p->strip ? BIT(T_G_CHANNEL) : 0);
    case S_ARGS:
        return BIT(T_VALUE) | BIT(T_CALL_END) | BIT(T_CALL);
    case S_TAIL:
        return BIT(T_CALL_END) | BIT(T_CALL);
    default:
        return BIT(T_G_CHANNEL) | call | (p->started ? ENDS : 0);
    }
}

/* Reasoning or content. */
static size_t in_text(struct api_parse *p, const char *s, size_t n, bool last)
{
    enum out_kind kind = p->state == S_REASON ? O_REASON : O_TEXT;
    int t;
    size_t k = api_parse_white_run(s, n);
    if (k) {
        if (!p->strip) api_parse_hold_white(p, s, k, kind);
        return k;
    }
    k = api_parse_run_of(p, s, n, last, tags(p), &t);
    if (!k) return 0;
    if (t >= 0) {
        take_tag(p, s, k, t);
        return k;
    }
    if (kind == O_TEXT) p->state = S_TEXT;
    api_parse_put_gap(p, kind);
    api_parse_put(p, kind, s, k);
    p->strip = false;
    p->after_call = false;
    return k;
}

static size_t in_tail(struct api_parse *p, const char *s, size_t n, bool last)
{
    size_t k = api_parse_white_run(s, n);
    if (k) return k;
    int t = s[0] == '<' ? api_parse_tag_at(p, s, n, last, BIT(T_CALL_END)) : -1;
    if (t == -2) return 0;
    api_parse_end_call(p);
    p->strip = true;
    p->state = S_TEXT;
    return t < 0 ? 0 : strlen(api_parse_tag(p, t));
}

static size_t step(struct api_parse *p, const char *s, size_t n, bool last)
{
    switch (p->state) {
    case S_HEAD:
        return in_channel(p, s, n);
    case S_NAME:
        return in_head_of_call(p, s, n);
    case S_ARGS:
        return in_args(p, s, n, last);
    case S_TAIL:
        return in_tail(p, s, n, last);
    default:
        return in_text(p, s, n, last);
    }
}

/* A call that was cut keeps what came. */
static void finish(struct api_parse *p)
{
    if (p->state == S_NAME) api_parse_give_up(p);
    if (p->state == S_ARGS && (p->bare.at == BARE_WORD || p->bare.at == BARE_QUOTED))
        api_parse_put_args(p, str_c(&p->held), p->held.n);
    if (p->state == S_TAIL) api_parse_end_call(p);
    if (p->state == S_TEXT && !p->after_call) api_parse_put_gap(p, O_TEXT);
    if (p->state == S_START && !p->strip) api_parse_put_gap(p, O_TEXT);
    api_parse_clear(p, &p->gap);
}

/* ---- grammars ---- */

/* Any arguments of that form: no schema is seen. */
static void put_rules(struct api *a, struct str *out)
{
    struct str quote;
    const char *tag = api_family_tag(&api_family_gemma4, T_VALUE);
    str_init(&quote, MEM_REQUEST, 0);
    api_form_tag(a, &quote, tag);
    api_inherit(out, &quote);
    str_printf(out, "sl-text-open ::= %s\n", str_c(&quote));
    api_form_without(out, "sl-string", tag, true, str_c(&quote));
    str_fini(&quote);
    str_puts(out, "sl-args ::= \"{\" (sl-member (\",\" sl-member)*)? \"}\"\n"
                  "sl-member ::= [A-Za-z0-9_.$-]+ \":\" sl-value\n"
                  "sl-list ::= \"[\" (sl-value (\",\" sl-value)*)? \"]\"\n"
                  "sl-value ::= sl-text-open sl-string | sl-args | sl-list | sl-bare\n"
                  "sl-bare ::= \"true\" | \"false\" | \"null\" | %json {\"type\":\"number\"}\n");
}

static const struct api_message_form messages = {
    .begin = begin, .step = step, .tags = tags, .finish = finish};

static const struct api_call_form form = {.word = true,
                                          .head = "call:",
                                          .rules = put_rules,
                                          .tag = T_CALL,
                                          .n_tag = 2,
                                          .whole = "sl-begin sl-one sl-end",
                                          .not_text = "<|tool_call>"};

const struct api_family api_family_gemma4 = {
    .name = "gemma4",
    .parsers = "gemma4",
    .reasoning = "gemma4",
    .place = 2,
    .tag = {[T_THINK] = "<|channel>thought",
            [T_THINK_END] = "<channel|>",
            [T_CALL] = "<|tool_call>",
            [T_CALL_END] = "<tool_call|>",
            [T_VALUE] = "<|\"|>",
            [T_G_CHANNEL] = "<|channel>",
            [T_G_END] = "<channel|>"},
    .marks = BIT(T_CALL) | BIT(T_VALUE),
    .word = "<|channel>",
    .messages = &messages,
    .form = &form,
};
