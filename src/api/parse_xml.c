/* SPDX-License-Identifier: Apache-2.0 */
/* Calls with a tag for each argument. GLM: <tool_call>NAME, then <arg_key>K</arg_key> and
 * <arg_value>V</arg_value> for each argument, </tool_call>; white space between them means nothing.
 * MiniMax: <minimax:tool_call>, then for each call <invoke name="NAME">, <parameter
 * name="K">V</parameter> for each argument, </invoke>; at last </minimax:tool_call>. DSML: the same
 * in other words, with string="true" or "false" after an argument's name. Qwen3-Coder:
 * <tool_call>, <function=NAME>, <parameter=K>, V and </parameter> for each argument, </function>,
 * </tool_call>, all on lines of their own; a call may come without the outer tags, and an argument
 * without the last one where a line begins with a tag that can only follow it.
 *
 * They become JSON. A value that can only be a string, by its schema, goes out as it comes; any
 * other is held until it is complete, and is a string when it is no JSON of a kind that may be. */
#include <string.h>

#include "api/parse_internal.h"

static bool pairs(const struct api_parse *p)
{
    return p->f->xml == API_XML_PAIRS;
}

static bool typed(const struct api_parse *p)
{
    return p->f->xml == API_XML_TYPED;
}

static bool lines(const struct api_parse *p)
{
    return p->f->xml == API_XML_LINES;
}

void api_parse_xml_begin(struct api_parse *p, int tag)
{
    p->state = tag == T_CALL ? S_X_NAME : S_X_BLOCK;
    p->any_call = false;
    p->named = false;
    api_parse_clear(p, &p->head);
}

/* ---- what goes out ---- */

void api_parse_put_escaped(struct api_parse *p, const char *s, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    size_t from = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        char esc[6] = {'\\', (char)c, '0', '0', hex[c >> 4], hex[c & 15]};
        size_t k = 2;
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        if (c == '\n' || c == '\t' || c == '\r')
            esc[1] = c == '\n' ? 'n' : c == '\t' ? 't' : 'r';
        else if (c < 0x20) {
            esc[1] = 'u';
            k = 6;
        }
        api_parse_put_args(p, s + from, i - from);
        api_parse_put_args(p, esc, k);
        from = i + 1;
    }
    api_parse_put_args(p, s + from, n - from);
}

/* The name that was read, without white space around it. */
static void trim(struct str *s)
{
    size_t k = api_parse_white_run(str_c(s), s->n);
    while (s->n > k && api_parse_white(s->p[s->n - 1]))
        s->n--;
    if (k) memmove(s->p, s->p + k, s->n - k);
    s->n -= k;
    if (s->p) s->p[s->n] = 0;
}

static void begin_call(struct api_parse *p)
{
    api_parse_clear(p, &p->func);
    str_put(&p->func, str_c(&p->head), p->head.n);
    api_parse_begin_call(p, str_c(&p->func), p->func.n);
    p->any_call = true;
    p->state = S_X_NEXT;
}

/* Kinds of the value of that name: what its tag says of it, or else the schema. */
static unsigned kinds_of(const struct api_parse *p)
{
    unsigned kinds = api_parse_types_of(&p->types, &p->func, &p->head);
    if (!typed(p) || !p->held.n) return kinds;
    if (strstr(str_c(&p->held), "string=\"true\"")) return API_PARSE_STR;
    return strstr(str_c(&p->held), "string=\"false\"") ? 0 : kinds;
}

static void begin_value(struct api_parse *p)
{
    bool first = !p->any_args;
    trim(&p->head);
    api_parse_put_args(p, first ? "{\"" : ", \"", first ? 2 : 3);
    api_parse_put_escaped(p, str_c(&p->head), p->head.n);
    api_parse_put_args(p, "\": ", 3);
    p->kinds = kinds_of(p);
    p->open_str = p->kinds == API_PARSE_STR;
    if (p->open_str) api_parse_put_args(p, "\"", 1);
    api_parse_clear(p, &p->held);
    p->line = LINE_NONE;
    p->state = S_X_VALUE;
}

static unsigned kind_of(const struct json *v)
{
    static const unsigned of[] = {[JSON_STR_K] = API_PARSE_STR,    [JSON_BOOL_K] = API_PARSE_BOOL,
                                  [JSON_NULL_K] = API_PARSE_NULL,  [JSON_ARRAY_K] = API_PARSE_ARR,
                                  [JSON_OBJECT_K] = API_PARSE_OBJ, [JSON_INT_K] = API_PARSE_NUM,
                                  [JSON_REAL_K] = API_PARSE_NUM};
    return of[v->kind];
}

/* Is the held value JSON of a kind that it may be? What may be a string is one without quotes. */
static bool is_json(struct api_parse *p)
{
    struct arena a;
    const struct json *v = NULL;
    unsigned kinds = p->kinds ? p->kinds & ~(unsigned)API_PARSE_STR : ~0u;
    mem_arena_init(&a, MEM_REQUEST, 0);
    sl_status st = text_json_probe(&a, str_c(&p->held), p->held.n, &v, NULL);
    if (st) p->out.failed = st;
    bool is = v && (kind_of(v) & kinds);
    mem_arena_fini(&a);
    return is;
}

/* What a model trained on Python writes. */
static const char *word_of(const struct api_parse *p)
{
    static const struct {
        const char *from, *to;
        unsigned kind;
    } row[] = {{"True", "true", API_PARSE_BOOL},
               {"False", "false", API_PARSE_BOOL},
               {"None", "null", API_PARSE_NULL}};
    for (int i = 0; i < BASE_COUNT_OF(row); i++)
        if ((p->kinds & row[i].kind) && strcmp(str_c(&p->held), row[i].from) == 0) return row[i].to;
    return NULL;
}

static void end_value(struct api_parse *p)
{
    p->state = S_X_NEXT;
    if (p->open_str) {
        api_parse_put_args(p, "\"", 1);
        p->open_str = false;
        return;
    }
    struct str whole = p->held; /* white space around JSON is none of it, that of a text is */
    const char *word = word_of(p);
    if (word)
        api_parse_put_args(p, word, strlen(word));
    else if (is_json(p)) {
        size_t k = api_parse_white_run(str_c(&whole), whole.n), n = whole.n;
        while (n > k && api_parse_white(whole.p[n - 1]))
            n--;
        api_parse_put_args(p, whole.p + k, n - k);
    } else {
        api_parse_put_args(p, "\"", 1);
        api_parse_put_escaped(p, str_c(&whole), whole.n);
        api_parse_put_args(p, "\"", 1);
    }
    api_parse_clear(p, &p->held);
}

static void end_call(struct api_parse *p, enum state next)
{
    if (p->state == S_X_VALUE) end_value(p);
    if (p->any_args) api_parse_put_args(p, "}", 1);
    api_parse_end_call(p);
    api_parse_clear(p, &p->held);
    p->state = next;
}

/* Part of a value. Too long to be held: it is a string. */
static void put_value(struct api_parse *p, const char *s, size_t n)
{
    if (!p->open_str) {
        size_t k = BASE_MIN(n, API_PARSE_HELD - p->held.n);
        str_put(&p->held, s, k);
        s += k;
        n -= k;
        if (p->held.n < API_PARSE_HELD) return;
        api_parse_put_args(p, "\"", 1);
        api_parse_put_escaped(p, str_c(&p->held), p->held.n);
        api_parse_clear(p, &p->held);
        p->open_str = true;
    }
    api_parse_put_escaped(p, s, n);
}

/* Part of a value on lines of its own: up to a tag or a line's end, or that end. */
static size_t put_line(struct api_parse *p, const char *s, size_t n)
{
    size_t k = 1;
    if (p->line == LINE_HELD) put_value(p, "\n", 1);
    p->line = s[0] == '\n' ? LINE_HELD : LINE_IN;
    if (p->line == LINE_HELD) return k;
    while (k < n && s[k] != '<' && s[k] != '\n')
        k++;
    put_value(p, s, k);
    return k;
}

/* ---- states ---- */

static size_t in_block(struct api_parse *p, const char *s, size_t n, bool last)
{
    size_t k = api_parse_white_run(s, n);
    if (k) {
        if (!p->any_call && p->held.n + k < API_PARSE_GAP)
            api_parse_hold(p, s, k);
        else if (!p->any_call) {
            api_parse_give_up(p);
            return 0;
        }
        return k;
    }
    int t = s[0] == '<' ? api_parse_tag_at(p, s, n, last, BIT(T_CALL) | BIT(T_CALLS_END)) : -1;
    if (t == -2) return 0;
    if (t == T_CALL) {
        k = strlen(api_parse_tag(p, t));
        api_parse_hold(p, s, k);
        api_parse_clear(p, &p->head);
        p->named = false;
        p->state = S_X_NAME;
        return k;
    }
    if (!p->any_call) {
        api_parse_give_up(p);
        return 0;
    }
    p->state = S_TEXT;
    return t < 0 ? 0 : strlen(api_parse_tag(p, t));
}

/* The name before pairs of tags: one word, then the tag of an argument or the end. */
static size_t paired_name(struct api_parse *p, const char *s, size_t n, bool last)
{
    size_t k = 0;
    if (api_parse_white(s[0])) {
        p->named = p->head.n > 0;
        api_parse_hold(p, s, 1);
        if (p->held.n > API_PARSE_GAP) api_parse_give_up(p);
        return 1;
    }
    int t = s[0] == '<' ? api_parse_tag_at(p, s, n, last, BIT(T_KEY) | BIT(T_CALL_END)) : -1;
    if (t == -2) return 0;
    if (t >= 0 && p->head.n) {
        begin_call(p);
        return 0; /* the tag is looked at again there */
    }
    if (s[0] == '<' || s[0] == '{' || p->named) {
        api_parse_give_up(p);
        return 0;
    }
    while (k < n && s[k] != '<' && s[k] != '{' && !api_parse_white(s[k]))
        k++;
    k = api_parse_name_part(p, k);
    api_parse_hold(p, s, k);
    str_put(&p->head, s, k);
    if (p->head.n > API_PARSE_NAME) api_parse_give_up(p);
    return k;
}

/* Up to a quote, where the form has one, and the bracket after it: 1 = complete, 0 = more is
 * needed, -1 = no name. *k: the bytes that were taken. */
static int name_in_tag(struct api_parse *p, const char *s, size_t n, size_t *k)
{
    for (*k = 0; *k < n; ++*k) {
        char c = s[*k];
        if ((p->named || lines(p)) && c == '>') {
            ++*k;
            return 1;
        }
        if (c == '<' || c == '\n' || p->named || p->head.n > API_PARSE_NAME) return -1;
        if (c == '"' && !lines(p))
            p->named = true;
        else
            str_putc(&p->head, c);
    }
    return 0;
}

static size_t in_name(struct api_parse *p, const char *s, size_t n, bool last)
{
    size_t k = 0;
    if (pairs(p)) return paired_name(p, s, n, last);
    int r = name_in_tag(p, s, n, &k);
    if (r == 1) trim(&p->head);
    api_parse_hold(p, s, k);
    if (r == 1 && p->head.n)
        begin_call(p);
    else if (r && !p->any_call)
        api_parse_give_up(p);
    else if (r) { /* after a call of the block */
        api_parse_clear(p, &p->held);
        p->state = S_TEXT;
    }
    return k;
}

static size_t in_next(struct api_parse *p, const char *s, size_t n, bool last)
{
    size_t k = api_parse_white_run(s, n);
    if (k) return k;
    int t = s[0] == '<' ? api_parse_tag_at(p, s, n, last, BIT(T_KEY) | BIT(T_CALL_END)) : -1;
    if (t == -2) return 0;
    if (t == T_KEY) {
        api_parse_clear(p, &p->head);
        if (typed(p)) api_parse_clear(p, &p->held);
        p->named = false;
        p->state = S_X_KEY;
        return strlen(api_parse_tag(p, t));
    }
    end_call(p, pairs(p) ? S_TEXT : S_X_BLOCK);
    return t < 0 ? 0 : strlen(api_parse_tag(p, t));
}

/* Up to the bracket: the name, a quote, and what the tag says of the value, which is held. */
static size_t typed_key(struct api_parse *p, const char *s, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        char c = s[k];
        if (p->named && c == '>') {
            begin_value(p);
            return k + 1;
        }
        if (c == '<' || c == '\n' || BASE_MAX(p->head.n, p->held.n) > API_PARSE_NAME) {
            end_call(p, S_X_BLOCK);
            return k;
        }
        if (c == '"' && !p->named)
            p->named = true;
        else
            str_putc(p->named ? &p->held : &p->head, c);
    }
    return n;
}

static size_t in_key(struct api_parse *p, const char *s, size_t n, bool last)
{
    size_t k = 0;
    if (typed(p)) return typed_key(p, s, n);
    if (!pairs(p)) {
        int r = name_in_tag(p, s, n, &k);
        if (r == 1) begin_value(p);
        if (r < 0) end_call(p, S_X_BLOCK);
        return k;
    }
    int t = s[0] == '<' ? api_parse_tag_at(p, s, n, last, BIT(T_KEY_END)) : -1;
    if (t == -2) return 0;
    if (t >= 0) {
        p->state = S_X_GAP;
        return strlen(api_parse_tag(p, t));
    }
    for (k = 1; k < n && s[k] != '<';)
        k++;
    k = api_parse_name_part(p, k);
    str_put(&p->head, s, k);
    if (p->head.n > API_PARSE_NAME) end_call(p, S_TEXT);
    return k;
}

static size_t in_gap(struct api_parse *p, const char *s, size_t n, bool last)
{
    size_t k = api_parse_white_run(s, n);
    if (k) return k;
    int t = s[0] == '<' ? api_parse_tag_at(p, s, n, last, BIT(T_VALUE)) : -1;
    if (t == -2) return 0;
    if (t < 0) {
        end_call(p, S_TEXT);
        return 0;
    }
    begin_value(p);
    return strlen(api_parse_tag(p, t));
}

static size_t in_value(struct api_parse *p, const char *s, size_t n, bool last)
{
    if (lines(p) && p->line == LINE_NONE) {
        p->line = LINE_FRONT;
        if (s[0] == '\n') return 1;
    }
    api_tags tags = BIT(T_VALUE_END) | (p->control ? api_parse_xml_tags(p) : 0);
    if (lines(p) && p->line != LINE_IN) tags |= BIT(T_KEY) | BIT(T_CALL_END);
    int t = s[0] == '<' ? api_parse_tag_at(p, s, n, last, tags) : -1;
    size_t k = 1;
    if (t == -2) return 0;
    if (t == T_VALUE_END) {
        end_value(p);
        return strlen(api_parse_tag(p, t));
    }
    if (t >= 0) { /* a tag that closes more than the value */
        end_value(p);
        return 0;
    }
    if (lines(p)) return put_line(p, s, n);
    while (k < n && s[k] != '<')
        k++;
    put_value(p, s, k);
    return k;
}

size_t api_parse_xml_step(struct api_parse *p, const char *s, size_t n, bool last)
{
    switch (p->state) {
    case S_X_BLOCK:
        return in_block(p, s, n, last);
    case S_X_NAME:
        return in_name(p, s, n, last);
    case S_X_NEXT:
        return in_next(p, s, n, last);
    case S_X_KEY:
        return in_key(p, s, n, last);
    case S_X_GAP:
        return in_gap(p, s, n, last);
    default:
        return in_value(p, s, n, last);
    }
}

api_tags api_parse_xml_tags(const struct api_parse *p)
{
    api_tags block = pairs(p) ? 0 : BIT(T_CALLS_END);
    switch (p->state) {
    case S_X_BLOCK:
        return BIT(T_CALL) | block;
    case S_X_NAME:
        return pairs(p) ? BIT(T_KEY) | BIT(T_CALL_END) : 0;
    case S_X_NEXT:
        return BIT(T_KEY) | BIT(T_CALL_END) | block;
    case S_X_KEY:
        return pairs(p) ? BIT(T_KEY_END) : 0;
    case S_X_GAP:
        return BIT(T_VALUE);
    default:
        return BIT(T_VALUE_END) | BIT(T_CALL_END) | block;
    }
}

/* The text is over: what is no call yet is text; a call that was cut keeps what came. */
void api_parse_xml_finish(struct api_parse *p)
{
    bool begun = p->state != S_X_NAME && p->state != S_X_BLOCK;
    if (p->state == S_X_VALUE && !p->open_str) api_parse_put_args(p, str_c(&p->held), p->held.n);
    if (begun && p->state != S_X_VALUE && p->any_args) api_parse_put_args(p, "}", 1);
    if (begun && !p->any_args) api_parse_put_args(p, "{}", 2);
    if (!begun && !p->any_call) api_parse_give_up(p);
    api_parse_clear(p, &p->gap);
}
