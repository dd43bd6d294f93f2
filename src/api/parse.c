/* SPDX-License-Identifier: Apache-2.0 */
/* One loop over what is fed: each state takes some bytes from the front, or waits when a tag may
 * have begun. Only beginnings of tags, white space whose fate is open, and calls whose name is not
 * known yet are held back. */
#include "api/parse.h"

#include <string.h>

#include "api/parse_json.h"

#define GAP_MAX 1024  /* white space that is held back */
#define NAME_MAX_ 512 /* bytes of a function's name */

enum tag {
    T_THINK,
    T_THINK_END,
    T_CALL,
    T_CALL_END,
    T_DS_CALLS,
    T_DS_CALLS_END,
    T_DS_CALL,
    T_DS_CALL_END,
    T_DS_SEP,
    T_PYTHON,
    N_TAG
};
#define BAR "\xef\xbd\x9c"
#define LOW "\xe2\x96\x81"
#define DS(z) "<" BAR "tool" LOW z BAR ">"
static const char *const tag_text[N_TAG] = {"<think>",
                                            "</think>",
                                            "<tool_call>",
                                            "</tool_call>",
                                            DS("calls" LOW "begin"),
                                            DS("calls" LOW "end"),
                                            DS("call" LOW "begin"),
                                            DS("call" LOW "end"),
                                            DS("sep"),
                                            "<|python_tag|>"};
#define BIT(t) (1u << (t))

enum family { F_NONE, F_DEEPSEEK, F_HERMES, F_LLAMA, F_JSON };
static const char *const family_name[] = {"none", "deepseek", "hermes", "llama3", "json"};

enum state {
    S_BEGIN, /* nothing but white space yet; reasoning may begin */
    S_REASON,
    S_START, /* of the content */
    S_TEXT,
    S_JSON,  /* inside a call's object */
    S_CLOSE, /* HERMES: behind the object, before the closing tag */
    S_NEXT,  /* LLAMA, JSON: behind an object, another may follow */
    S_HEAD,  /* DEEPSEEK: before the separator */
    S_NAME,  /* DEEPSEEK, older form: the line with the name */
    S_FENCE, /* before the arguments */
    S_ARGS,
    S_TAIL /* behind the arguments, before the closing tag */
};

enum out_kind { O_NONE, O_TEXT, O_REASON, O_ARGS };

struct api_parse {
    /* fixed after open */
    enum family family;
    bool reasoning, tools;
    int max_calls;
    /* as text comes */
    enum state state;
    bool strip;      /* white space at the front of what comes is dropped */
    bool after_call; /* white space is dropped when nothing but calls follow */
    bool in_list, fenced, any_args, muted;
    bool control; /* what is stepped over is a control token: it is no text */
    int n_call;
    struct str buf; /* fed, not taken yet */
    struct str out; /* on its way to the sink */
    enum out_kind out_kind;
    struct str gap;  /* white space held back */
    struct str held; /* a call that may still turn out to be text */
    size_t n_prompt; /* bytes of held that stand in the prompt */
    struct str head; /* DEEPSEEK: name */
    struct api_parse_json json;
    bool json_open;
    const struct api_parse_sink *sink;
};

/* ---- choice ---- */

static sl_status family_of(const struct api_parse_opts *o, enum family *out, sl_err *err)
{
    static const struct {
        const char *name;
        enum family f;
    } row[] = {{"none", F_NONE},
               {"deepseek_v3", F_DEEPSEEK},
               {"deepseek_r1", F_DEEPSEEK},
               {"deepseek_v31", F_DEEPSEEK},
               {"deepseek", F_DEEPSEEK},
               {"hermes", F_HERMES},
               {"qwen3", F_HERMES},
               {"llama3", F_LLAMA},
               {"llama3_json", F_LLAMA},
               {"json", F_JSON}};
    const char *name = o->tool_parser ? o->tool_parser : "auto", *t = o->template_text;
    for (int i = 0; i < BASE_COUNT_OF(row); i++)
        if (strcmp(row[i].name, name) == 0) {
            *out = row[i].f;
            return SL_OK;
        }
    if (strcmp(name, "auto") != 0)
        return SL_FAIL(err, REQUEST,
                       "--tool-parser %.40s: not known: auto, none, deepseek_v3, deepseek_r1, "
                       "deepseek_v31, hermes, qwen3, llama3 or json",
                       name);
    *out = F_JSON;
    if (!t) return SL_OK;
    if (strstr(t, tag_text[T_DS_CALLS]))
        *out = F_DEEPSEEK;
    else if (strstr(t, tag_text[T_CALL]))
        *out = F_HERMES;
    else if (strstr(t, tag_text[T_PYTHON]) || strstr(t, "ipython"))
        *out = F_LLAMA;
    return SL_OK;
}

static sl_status reasoning_of(const struct api_parse_opts *o, struct api_parse *p, sl_err *err)
{
    static const char *const row[] = {"deepseek_r1", "deepseek_v3", "deepseek_v31", "qwen3",
                                      "think"};
    const char *name = o->reasoning_parser ? o->reasoning_parser : "auto", *t = o->template_text;
    bool think = t && (strstr(t, "<think>") || strstr(t, "</think>"));
    p->reasoning = strcmp(name, "auto") == 0 && (think || o->prompt_thinks);
    for (int i = 0; i < BASE_COUNT_OF(row); i++)
        p->reasoning |= strcmp(row[i], name) == 0;
    if (!p->reasoning && strcmp(name, "auto") != 0 && strcmp(name, "none") != 0)
        return SL_FAIL(err, REQUEST,
                       "--reasoning-parser %.40s: not known: auto, none, deepseek_r1, "
                       "deepseek_v3, deepseek_v31 or qwen3",
                       name);
    p->state = !p->reasoning ? S_START : o->prompt_thinks ? S_REASON : S_BEGIN;
    p->strip = p->state == S_REASON;
    return SL_OK;
}

sl_status api_parse_open(const struct api_parse_opts *o, struct api_parse **out, sl_err *err)
{
    void *v = NULL;
    enum family f = F_NONE;
    *out = NULL;
    SL_TRY(family_of(o, &f, err));
    SL_TRY(mem_alloc_array(MEM_REQUEST, 1, sizeof **out, &v, err));
    struct api_parse *p = v;
    p->family = f;
    p->tools = o->tools && f != F_NONE;
    p->max_calls = o->max_calls;
    struct str *const s[] = {&p->buf, &p->out, &p->gap, &p->held, &p->head};
    for (int i = 0; i < BASE_COUNT_OF(s); i++)
        str_init(s[i], MEM_REQUEST, 0);
    sl_status st = reasoning_of(o, p, err);
    if (st) {
        api_parse_close(p);
        return st;
    }
    *out = p;
    return SL_OK;
}

void api_parse_close(struct api_parse *p)
{
    if (!p) return;
    str_fini(&p->buf);
    str_fini(&p->out);
    str_fini(&p->gap);
    str_fini(&p->held);
    str_fini(&p->head);
    if (p->json_open) api_parse_json_fini(&p->json);
    mem_free(p);
}

bool api_parse_in_reasoning(const struct api_parse *p)
{
    return p->state == S_REASON;
}

bool api_parse_in_content(const struct api_parse *p)
{
    return p->state == S_BEGIN || p->state == S_START || p->state == S_TEXT;
}

bool api_parse_has_reasoning(const struct api_parse *p)
{
    return p->reasoning;
}

const char *api_parse_family(const struct api_parse *p)
{
    return family_name[p->family];
}

bool api_parse_wants_special(const struct api_parse *p)
{
    return p->reasoning || (p->tools && p->family != F_JSON);
}

/* ---- output: pieces of one kind are given out together ---- */

static void flush(struct api_parse *p)
{
    const struct api_parse_sink *k = p->sink;
    if (p->out.n && p->out_kind == O_TEXT) k->text(k->user, p->out.p, p->out.n);
    if (p->out.n && p->out_kind == O_REASON) k->reason(k->user, p->out.p, p->out.n);
    if (p->out.n && p->out_kind == O_ARGS) k->args(k->user, p->n_call - 1, p->out.p, p->out.n);
    p->out.n = 0;
}

static void put(struct api_parse *p, enum out_kind kind, const char *s, size_t n)
{
    if (kind != p->out_kind) flush(p);
    p->out_kind = kind;
    str_put(&p->out, s, n);
}

static void put_gap(struct api_parse *p, enum out_kind kind)
{
    put(p, kind, str_c(&p->gap), p->gap.n);
    if (p->gap.failed) p->out.failed = p->gap.failed;
    str_clear(&p->gap);
}

static void begin_call(struct api_parse *p, const char *name, size_t n)
{
    flush(p);
    p->muted = p->max_calls > 0 && p->n_call >= p->max_calls;
    p->any_args = false;
    str_clear(&p->gap); /* white space before a call is no content */
    str_clear(&p->held);
    p->n_prompt = 0;
    if (!p->muted) p->sink->call(p->sink->user, p->n_call, name, n);
    p->n_call++;
}

static void put_args(struct api_parse *p, const char *s, size_t n)
{
    if (!n) return;
    p->any_args = true;
    if (!p->muted) put(p, O_ARGS, s, n);
}

static void end_call(struct api_parse *p)
{
    if (!p->any_args) put_args(p, "{}", 2);
    p->after_call = true;
}

static void hold(struct api_parse *p, const char *s, size_t n)
{
    if (!p->control) str_put(&p->held, s, n);
}

/* What looked like a call is text. */
static void give_up(struct api_parse *p)
{
    put_gap(p, O_TEXT);
    put(p, O_TEXT, str_c(&p->held) + p->n_prompt, p->held.n - p->n_prompt);
    p->n_prompt = 0;
    if (p->held.failed) p->out.failed = p->held.failed;
    str_clear(&p->held);
    p->after_call = false;
    p->state = S_TEXT;
}

/* ---- input ---- */

static bool white(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static size_t white_run(const char *s, size_t n)
{
    size_t k = 0;
    while (k < n && white(s[k]))
        k++;
    return k;
}

/* Which of the tags begins s: its number; -1 = none; -2 = more text is needed to know. */
static int tag_at(const char *s, size_t n, bool last, unsigned tags)
{
    int r = -1;
    for (int t = 0; t < N_TAG; t++) {
        size_t m = strlen(tag_text[t]);
        if (!(tags & BIT(t))) continue;
        if (memcmp(s, tag_text[t], BASE_MIN(n, m)) != 0) continue;
        if (n >= m) return t;
        if (!last) r = -2;
    }
    return r;
}

/* Text up to a tag or white space at its end. Takes at least one byte, or 0 to wait; *tag: the tag
 * that was taken, -1 = none. */
static size_t run_of(const char *s, size_t n, bool last, unsigned tags, int *tag)
{
    size_t k = 0;
    *tag = -1;
    while (k < n && s[k] != '<' && !white(s[k]))
        k++;
    if (k) return k;
    if (s[0] != '<') return 0;
    int t = tag_at(s, n, last, tags);
    if (t == -2) return 0;
    if (t < 0) return 1;
    *tag = t;
    return strlen(tag_text[t]);
}

/* White space whose fate is open; too much of it is what text of this kind is. Byte counts alone
 * decide, not pieces. */
static void hold_white(struct api_parse *p, const char *s, size_t n, enum out_kind kind)
{
    while (n) {
        size_t k = BASE_MIN(n, GAP_MAX - p->gap.n);
        str_put(&p->gap, s, k);
        if (p->gap.n == GAP_MAX || p->gap.failed) put_gap(p, kind);
        s += k;
        n -= k;
    }
}

/* ---- states ---- */

static size_t in_begin(struct api_parse *p, const char *s, size_t n, bool last)
{
    size_t k = white_run(s, n);
    if (k) {
        hold_white(p, s, k, O_TEXT);
        return k;
    }
    int t = s[0] == '<' ? tag_at(s, n, last, BIT(T_THINK)) : -1;
    if (t == -2) return 0;
    if (t < 0) {
        p->state = S_START;
        return 0;
    }
    str_clear(&p->gap);
    p->state = S_REASON;
    p->strip = true;
    return strlen(tag_text[t]);
}

static size_t in_reason(struct api_parse *p, const char *s, size_t n, bool last)
{
    int t;
    size_t k = white_run(s, n);
    if (k) {
        if (!p->strip) hold_white(p, s, k, O_REASON);
        return k;
    }
    k = run_of(s, n, last, BIT(T_THINK_END) | (p->strip ? BIT(T_THINK) : 0), &t);
    if (!k || t == T_THINK) return k; /* a second opening tag: the prompt had one */
    if (t == T_THINK_END) {
        str_clear(&p->gap);
        p->state = S_START;
        p->strip = true;
        return k;
    }
    put_gap(p, O_REASON);
    p->strip = false;
    put(p, O_REASON, s, k);
    return k;
}

static void begin_json(struct api_parse *p, bool strict)
{
    if (p->json_open) api_parse_json_fini(&p->json);
    api_parse_json_init(&p->json, strict);
    p->json_open = true;
    p->state = S_JSON;
}

static size_t in_start(struct api_parse *p, const char *s, size_t n, bool last)
{
    size_t k = white_run(s, n);
    bool object = p->tools && (p->family == F_LLAMA || p->family == F_JSON);
    if (k && p->strip) return k;
    if (k && object) {
        hold_white(p, s, k, O_TEXT);
        return k;
    }
    p->strip = false;
    p->state = S_TEXT;
    if (!object) return 0;
    if (s[0] == '<' && p->family == F_LLAMA) {
        int t = tag_at(s, n, last, BIT(T_PYTHON));
        if (t == -2) p->state = S_START;
        if (t < 0) return 0;
        hold(p, tag_text[T_PYTHON], strlen(tag_text[T_PYTHON]));
        begin_json(p, true);
        return strlen(tag_text[T_PYTHON]);
    }
    if (s[0] == '[' && p->family == F_JSON) {
        str_putc(&p->held, '[');
        p->in_list = true;
        begin_json(p, true);
        return 1;
    }
    if (s[0] == '{') begin_json(p, true);
    return 0;
}

/* Tags that mean something in content. */
static unsigned text_tags(const struct api_parse *p)
{
    if (p->tools && p->family == F_HERMES) return BIT(T_CALL);
    if (p->tools && p->family == F_DEEPSEEK)
        return BIT(T_DS_CALLS) | BIT(T_DS_CALLS_END) | BIT(T_DS_CALL) | BIT(T_DS_CALL_END);
    return 0;
}

static size_t in_text(struct api_parse *p, const char *s, size_t n, bool last)
{
    unsigned tags = text_tags(p);
    int t;
    size_t k = white_run(s, n);
    if (k && !p->after_call && !tags) {
        put_gap(p, O_TEXT);
        put(p, O_TEXT, s, k);
        return k;
    }
    if (k) { /* before a call it is no content */
        hold_white(p, s, k, O_TEXT);
        return k;
    }
    k = run_of(s, n, last, tags, &t);
    if (!k) return 0;
    if (t < 0) {
        put_gap(p, O_TEXT);
        put(p, O_TEXT, s, k);
        p->after_call = false;
        return k;
    }
    if (t == T_CALL || t == T_DS_CALL) hold(p, s, k);
    if (t == T_CALL) begin_json(p, false);
    if (t == T_DS_CALL) {
        str_clear(&p->head);
        p->state = S_HEAD;
    }
    return k;
}

static size_t in_json(struct api_parse *p, const char *s, size_t n)
{
    size_t from = 0; /* of a run of arguments */
    for (size_t i = 0; i < n; i++) {
        enum api_parse_json_result r = api_parse_json_byte(&p->json, s[i]);
        if (r == API_PARSE_JSON_ARG) continue;
        if (p->json.open) put_args(p, s + from, i - from);
        from = i + 1;
        if (!p->json.open && p->held.n < API_PARSE_HELD) str_putc(&p->held, s[i]);
        if (r == API_PARSE_JSON_NAME) {
            p->json.open = true;
            begin_call(p, str_c(&p->json.name), p->json.name.n);
            from = i;
        }
        bool over = !p->json.open && p->held.n >= API_PARSE_HELD;
        if (r == API_PARSE_JSON_MORE && p->json.open) from = i + 1;
        if (r == API_PARSE_JSON_BAD || over) {
            if (p->json.open) { /* the call stands as far as it came */
                end_call(p);
                p->state = p->family == F_HERMES ? S_CLOSE : S_NEXT;
                return i; /* the byte is looked at again there */
            }
            give_up(p);
            return i + 1;
        }
        if (r == API_PARSE_JSON_DONE) {
            if (!p->json.open) {
                begin_call(p, str_c(&p->json.name), p->json.name.n);
                put_args(p, str_c(&p->json.args), p->json.args.n);
            }
            end_call(p);
            p->state = p->family == F_HERMES ? S_CLOSE : S_NEXT;
            return i + 1;
        }
    }
    if (p->json.open) put_args(p, s + from, n - from);
    return n;
}

static size_t in_close(struct api_parse *p, const char *s, size_t n, bool last)
{
    size_t k = white_run(s, n);
    if (k) return k;
    int t = s[0] == '<' ? tag_at(s, n, last, BIT(T_CALL_END)) : -1;
    if (t == -2) return 0;
    p->state = S_TEXT;
    return t < 0 ? 0 : strlen(tag_text[t]);
}

static size_t in_next(struct api_parse *p, const char *s, size_t n, bool last)
{
    if (white(s[0]) || s[0] == ';' || (p->in_list && s[0] == ',')) return 1;
    if (p->in_list && s[0] == ']') {
        p->in_list = false;
        p->state = S_TEXT;
        return 1;
    }
    if (s[0] == '<' && p->family == F_LLAMA) {
        int t = tag_at(s, n, last, BIT(T_PYTHON));
        if (t == -2) return 0;
        if (t >= 0) return strlen(tag_text[t]);
    }
    p->state = S_TEXT;
    if (s[0] == '{') begin_json(p, true);
    return 0;
}

/* How many of n bytes may go into a name: one more than it may have ends it, at the same byte
 * however the text was cut. */
static size_t name_part(const struct api_parse *p, size_t n)
{
    return BASE_MIN(n, NAME_MAX_ + 1 - p->head.n);
}

/* DEEPSEEK: what stands before the separator: "function", or the name itself. */
static size_t in_head(struct api_parse *p, const char *s, size_t n, bool last)
{
    int t = -1;
    size_t k = white(s[0]) ? 1
                           : run_of(s, n, last,
                                    BIT(T_DS_SEP) | BIT(T_DS_CALL_END) | BIT(T_DS_CALLS_END), &t);
    if (!k) return 0;
    if (t < 0) {
        k = name_part(p, k);
        hold(p, s, k);
        str_put(&p->head, s, k);
        if (p->head.n > NAME_MAX_) give_up(p);
        return k;
    }
    hold(p, s, k);
    if (t != T_DS_SEP || p->head.n == 0) {
        give_up(p);
        return k;
    }
    p->fenced = p->head.n == 8 && memcmp(p->head.p, "function", 8) == 0;
    if (p->fenced) {
        str_clear(&p->head);
        p->state = S_NAME;
    } else {
        begin_call(p, p->head.p, p->head.n);
        p->state = S_FENCE;
    }
    return k;
}

static size_t in_name(struct api_parse *p, const char *s, size_t n)
{
    n = name_part(p, n);
    const char *nl = memchr(s, '\n', n);
    size_t k = nl ? (size_t)(nl - s) + 1 : n;
    str_put(&p->held, s, k);
    str_put(&p->head, s, nl ? k - 1 : k);
    if (p->head.n > NAME_MAX_ || (nl && p->head.n == 0)) {
        give_up(p);
        return k;
    }
    if (nl) {
        begin_call(p, p->head.p, p->head.n);
        p->state = S_FENCE;
    }
    return k;
}

/* An opening ```json line, where the form has one. */
static size_t in_fence(struct api_parse *p, const char *s, size_t n, bool last)
{
    static const char fence[] = "```json";
    size_t m = sizeof fence - 1, k = white_run(s, n);
    if (k) return k;
    p->state = S_ARGS;
    if (!p->fenced || memcmp(s, fence, BASE_MIN(n, m)) != 0) {
        p->fenced = false;
        return 0;
    }
    if (n >= m) return m;
    if (!last) p->state = S_FENCE;
    return 0;
}

static size_t in_args(struct api_parse *p, const char *s, size_t n, bool last)
{
    static const unsigned ends = BIT(T_DS_CALL_END) | BIT(T_DS_CALLS_END) | BIT(T_DS_CALL);
    int t;
    size_t k = white_run(s, n);
    if (k) {
        if (p->any_args) hold_white(p, s, k, p->muted ? O_NONE : O_ARGS);
        return k;
    }
    if (p->fenced && s[0] == '`' && p->gap.n && memchr(p->gap.p, '\n', p->gap.n)) {
        size_t m = BASE_MIN(n, (size_t)3);
        if (memcmp(s, "```", m) == 0) {
            if (m < 3 && !last) return 0;
            if (m == 3) {
                p->state = S_TAIL;
                return 3;
            }
        }
    }
    k = run_of(s, n, last, ends, &t);
    if (!k) return 0;
    if (t >= 0) {
        p->state = S_TAIL;
        return t == T_DS_CALL_END ? k : 0;
    }
    put_args(p, str_c(&p->gap), p->gap.n);
    str_clear(&p->gap);
    put_args(p, s, k);
    return k;
}

static size_t in_tail(struct api_parse *p, const char *s, size_t n, bool last)
{
    size_t k = white_run(s, n);
    str_clear(&p->gap);
    if (k) return k;
    int t = s[0] == '<' ? tag_at(s, n, last, BIT(T_DS_CALL_END)) : -1;
    if (t == -2) return 0;
    end_call(p);
    p->state = S_TEXT;
    return t < 0 ? 0 : strlen(tag_text[t]);
}

static size_t step(struct api_parse *p, const char *s, size_t n, bool last)
{
    switch (p->state) {
    case S_BEGIN:
        return in_begin(p, s, n, last);
    case S_REASON:
        return in_reason(p, s, n, last);
    case S_START:
        return in_start(p, s, n, last);
    case S_TEXT:
        return in_text(p, s, n, last);
    case S_JSON:
        return in_json(p, s, n);
    case S_CLOSE:
        return in_close(p, s, n, last);
    case S_NEXT:
        return in_next(p, s, n, last);
    case S_HEAD:
        return in_head(p, s, n, last);
    case S_NAME:
        return in_name(p, s, n);
    case S_FENCE:
        return in_fence(p, s, n, last);
    case S_ARGS:
        return in_args(p, s, n, last);
    default:
        return in_tail(p, s, n, last);
    }
}

/* ---- control tokens ---- */

/* Tags that mean something where p stands. */
static unsigned tags_now(const struct api_parse *p)
{
    static const unsigned ends = BIT(T_DS_CALL_END) | BIT(T_DS_CALLS_END) | BIT(T_DS_CALL);
    unsigned python = p->tools && p->family == F_LLAMA ? BIT(T_PYTHON) : 0;
    switch (p->state) {
    case S_BEGIN:
        return BIT(T_THINK) | python | text_tags(p);
    case S_REASON:
        return BIT(T_THINK_END) | (p->strip ? BIT(T_THINK) : 0);
    case S_START:
        return python | text_tags(p);
    case S_TEXT:
        return text_tags(p);
    case S_JSON:
        return p->family == F_HERMES ? BIT(T_CALL) | BIT(T_CALL_END) : python;
    case S_CLOSE:
        return BIT(T_CALL) | BIT(T_CALL_END);
    case S_NEXT:
        return python;
    case S_HEAD:
        return BIT(T_DS_SEP) | BIT(T_DS_CALL_END) | BIT(T_DS_CALLS_END);
    default:
        return ends;
    }
}

/* A control token: a tag where one is looked for, else nothing. It never becomes text, and inside
 * of a call's object or name it ends that. */
static void take_control(struct api_parse *p, const char *s, size_t n)
{
    int t = 0;
    while (t < N_TAG && (strlen(tag_text[t]) != n || memcmp(tag_text[t], s, n) != 0))
        t++;
    if (t == N_TAG || !(tags_now(p) & BIT(t))) return;
    if (p->state == S_JSON && p->json.open) {
        end_call(p);
        p->state = p->family == F_HERMES ? S_CLOSE : S_NEXT;
    } else if (p->state == S_JSON || p->state == S_NAME)
        give_up(p);
    p->control = true;
    while (n && (tags_now(p) & BIT(t))) {
        size_t k = step(p, s, n, true);
        s += k;
        n -= k;
    }
    p->control = false;
}

/* The text is over. */
static void finish(struct api_parse *p)
{
    bool call = p->state == S_FENCE || p->state == S_ARGS || p->state == S_TAIL;
    if (p->state == S_TAIL) end_call(p);
    if (call || (p->state == S_JSON && p->json.open)) {
        if (!p->any_args) put_args(p, "{}", 2); /* a call that was cut off keeps what came */
        str_clear(&p->gap);
        return;
    }
    if (p->state == S_JSON || p->state == S_HEAD || p->state == S_NAME) {
        give_up(p);
        return;
    }
    if (p->state == S_REASON) return; /* white space at its end is not part of it */
    if (!p->after_call) put_gap(p, O_TEXT);
    str_clear(&p->gap);
}

static size_t next_mark(const struct str *s, size_t at)
{
    const char *m = at < s->n ? memchr(s->p + at, API_PARSE_MARK, s->n - at) : NULL;
    return m ? (size_t)(m - s->p) : s->n;
}

/* Step over what is in buf, as far as it is known what it is. */
static void run(struct api_parse *p, bool last)
{
    size_t at = 0, mark = 0; /* mark: where the next control token begins */
    while (at < p->buf.n) {
        enum state before = p->state;
        if (at >= mark) mark = next_mark(&p->buf, at);
        if (at == mark) { /* whole, or it waits */
            size_t end = next_mark(&p->buf, at + 1);
            if (end == p->buf.n && !last) break;
            if (end < p->buf.n) take_control(p, p->buf.p + at + 1, end - at - 1);
            at = BASE_MIN(end + 1, p->buf.n);
            continue;
        }
        size_t k = step(p, p->buf.p + at, mark - at, last || mark < p->buf.n);
        if (k == 0 && p->state == before) break; /* waits */
        at += k;
    }
    if (at) {
        p->buf.n -= at;
        memmove(p->buf.p, p->buf.p + at, p->buf.n + 1);
    }
}

static sl_status status_of(const struct api_parse *p, sl_err *err)
{
    SL_TRY(str_status(&p->out, err));
    SL_TRY(str_status(&p->gap, err));
    SL_TRY(str_status(&p->held, err));
    return str_status(&p->head, err);
}

sl_status api_parse_feed(struct api_parse *p, const char *s, size_t n, bool last,
                         const struct api_parse_sink *sink, sl_err *err)
{
    p->sink = sink;
    str_put(&p->buf, s, n);
    SL_TRY(str_status(&p->buf, err));
    run(p, last);
    if (last) finish(p);
    flush(p);
    return status_of(p, err);
}

sl_status api_parse_prompt(struct api_parse *p, const char *s, size_t n,
                           const struct api_parse_sink *sink, sl_err *err)
{
    p->sink = sink;
    str_put(&p->buf, s, n);
    SL_TRY(str_status(&p->buf, err));
    run(p, true); /* a tag that the prompt cuts is none */
    flush(p);
    str_clear(&p->gap);
    p->n_prompt = p->held.n;
    return status_of(p, err);
}
