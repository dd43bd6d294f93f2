/* SPDX-License-Identifier: Apache-2.0 */
/* Harmony (gpt-oss): an answer is a row of messages, each a header and a body:
 *   <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...
 * The prompt ends inside the first header. What a body is, its header says: one with a recipient
 * (to=functions.NAME, before or after the channel) is a call, whatever its channel; else the
 * channel analysis is reasoning and every other one content. Headers come out only where they turn
 * out to be none: text that no <|message|> follows. */
#include <string.h>

#include "api/api_internal.h"
#include "api/family_harmony.h"
#include "api/parse_internal.h"

#define HEAD_MAX ((size_t)512) /* bytes of a header */

/* In a header: <|channel|> becomes this byte, <|constrain|> the other. Text has neither. */
#define CHANNEL '\x01'
#define CONSTRAIN '\x02'

static void begin(struct api_parse *p, size_t n)
{
    p->state = n ? S_TEXT : S_HEAD; /* a message that goes on is an answer's last one */
    p->any_text = n > 0;
    p->strip = false;
}

/* ---- headers ---- */

/* The first word of s, n bytes, that begins with key, without it; NULL = none. */
static const char *word_after(const char *s, size_t n, const char *key, size_t *n_word)
{
    size_t k = strlen(key);
    for (size_t i = 0; i + k <= n; i++) {
        bool begins = i == 0 || api_parse_white(s[i - 1]) || s[i - 1] == CHANNEL;
        if (!begins || memcmp(s + i, key, k) != 0) continue;
        size_t end = i + k;
        while (end < n && !api_parse_white(s[end]) && s[end] != CHANNEL && s[end] != CONSTRAIN)
            end++;
        *n_word = end - i - k;
        return s + i + k;
    }
    return NULL;
}

static bool is_word(const char *s, size_t n, const char *word)
{
    return n == strlen(word) && memcmp(s, word, n) == 0;
}

/* The function that the message calls; NULL: it is no call. */
static const char *recipient(const struct api_parse *p, size_t *n)
{
    static const char own[] = "functions.";
    size_t k = sizeof own - 1;
    const char *to = word_after(p->head.p, p->head.n, "to=", n);
    if (!to || !p->tools || !*n || is_word(to, *n, "assistant") || is_word(to, *n, "user") ||
        is_word(to, *n, "all"))
        return NULL;
    if (*n > k && memcmp(to, own, k) == 0) {
        to += k;
        *n -= k;
    }
    return to;
}

static bool is_analysis(const struct api_parse *p)
{
    const char *c = p->head.n ? memchr(p->head.p, CHANNEL, p->head.n) : NULL;
    size_t n = 0;
    if (!c) return false;
    c++;
    const char *word = word_after(c, (size_t)(p->head.p + p->head.n - c), "", &n);
    return word && is_word(word, n, "analysis");
}

/* A header is whole: what follows is its body. */
static void begin_body(struct api_parse *p)
{
    size_t n = 0;
    const char *to = recipient(p, &n);
    if (to) {
        api_parse_begin_call(p, to, n);
        p->state = S_ARGS;
    } else {
        p->state = p->reasoning && is_analysis(p) ? S_REASON : S_TEXT;
        p->strip = p->state == S_REASON ? p->any_reason : p->any_text;
    }
    api_parse_clear(p, &p->head);
}

static void end_body(struct api_parse *p)
{
    if (p->state == S_ARGS) {
        api_parse_end_call(p);
        api_parse_clear(p, &p->gap);
    }
    api_parse_clear(p, &p->head);
    p->started = false;
    p->state = S_HEAD;
}

static void put_body(struct api_parse *p, const char *s, size_t n)
{
    bool reason = p->state == S_REASON, *any = reason ? &p->any_reason : &p->any_text;
    if (p->state == S_ARGS) {
        size_t white = api_parse_white_run(s, n);
        if (white == n) {
            if (p->any_args) api_parse_hold_white(p, s, n, p->muted ? O_NONE : O_ARGS);
            return;
        }
        if (p->any_args) api_parse_put_args(p, str_c(&p->gap), p->gap.n);
        api_parse_clear(p, &p->gap);
        api_parse_put_args(p, s, n);
        return;
    }
    if (p->strip) api_parse_put(p, reason ? O_REASON : O_TEXT, "\n", 1); /* of a later message */
    p->strip = false;
    *any = true;
    api_parse_put(p, reason ? O_REASON : O_TEXT, s, n);
}

/* What was taken for a header is content: the model does without. */
static void no_header(struct api_parse *p)
{
    p->state = S_TEXT;
    p->strip = p->any_text;
    for (size_t i = 0; i < p->head.n; i++)
        if (p->head.p[i] != CHANNEL && p->head.p[i] != CONSTRAIN) put_body(p, p->head.p + i, 1);
    api_parse_clear(p, &p->head);
}

/* Text that stands where a header should begin. */
static bool is_bare(const struct api_parse *p)
{
    size_t n = 0;
    if (word_after(str_c(&p->head), p->head.n, "to=", &n)) return false;
    return !p->started && api_parse_white_run(str_c(&p->head), p->head.n) < p->head.n &&
           !memchr(p->head.p, CHANNEL, p->head.n);
}

/* ---- tags ---- */

static void take_tag(struct api_parse *p, int t)
{
    bool head = p->state == S_HEAD;
    switch (t) {
    case T_H_MESSAGE:
        if (head) begin_body(p);
        break;
    case T_H_CHANNEL:
        if (!head) end_body(p);
        if (p->head.n < HEAD_MAX) str_putc(&p->head, CHANNEL);
        break;
    case T_H_CONSTRAIN:
        if (head && p->head.n < HEAD_MAX) str_putc(&p->head, CONSTRAIN);
        break;
    default: /* an end, or the start of the next one */
        if (head && is_bare(p)) no_header(p);
        end_body(p);
        p->started = t == T_H_START;
        break;
    }
}

#define TAGS                                                                                       \
    (BIT(T_H_START) | BIT(T_H_END) | BIT(T_H_MESSAGE) | BIT(T_H_CHANNEL) | BIT(T_H_CONSTRAIN) |    \
     BIT(T_H_RETURN) | BIT(T_H_CALL))

static api_tags tags(const struct api_parse *p)
{
    (void)p;
    return TAGS;
}

static size_t step(struct api_parse *p, const char *s, size_t n, bool last)
{
    int t = -1;
    size_t k = api_parse_white_run(s, n);
    if (!k) k = api_parse_run_of(p, s, n, last, TAGS, &t);
    if (!k) return 0;
    if (t >= 0) {
        take_tag(p, t);
        return k;
    }
    if (p->state != S_HEAD) {
        put_body(p, s, k);
        return k;
    }
    k = BASE_MIN(k, HEAD_MAX + 1 - p->head.n);
    str_put(&p->head, s, k);
    if (p->head.n > HEAD_MAX) no_header(p);
    return k;
}

/* The end: what has begun as a header is one that was cut off. */
static void finish(struct api_parse *p)
{
    if (p->state == S_HEAD && is_bare(p)) no_header(p);
    end_body(p);
}

/* ---- prompts ---- */

/* These models know low, medium and high. */
static const char *effort(const char *word)
{
    if (strcmp(word, "none") == 0 || strcmp(word, "minimal") == 0) return "low";
    return strcmp(word, "xhigh") == 0 || strcmp(word, "max") == 0 ? "high" : word;
}

/* Templates have reasoning under this name, and beside calls only one text: words before a call are
 * part of it. */
static void put_reason(struct json_w *w, const struct json *m, const struct json *reason)
{
    const struct json *content = text_json_get(m, "content");
    struct str s;
    str_init(&s, MEM_REQUEST, 0);
    if (reason) str_put(&s, reason->s, reason->n);
    if (api_has_calls(m)) {
        if (s.n && content && content->kind != JSON_NULL_K) str_putc(&s, '\n');
        api_content_text(&s, content);
    }
    if (s.n) {
        text_jw_key(w, "thinking");
        api_put_text(w, &s);
    }
    str_fini(&s);
}

static const struct api_message_form messages = {
    .begin = begin, .step = step, .tags = tags, .finish = finish, .root = api_form_harmony_root};

static const struct api_call_form form = {.word = true,
                                          .before = "\" \" sl-constrain \"json\" sl-message "};

const struct api_family api_family_harmony = {
    .name = "harmony",
    .parsers = "harmony",
    .alias = "openai",
    .reasoning = "harmony",
    .place = 1,
    .tag = {[T_H_START] = "<|start|>",
            [T_H_END] = "<|end|>",
            [T_H_MESSAGE] = "<|message|>",
            [T_H_CHANNEL] = "<|channel|>",
            [T_H_CONSTRAIN] = "<|constrain|>",
            [T_H_RETURN] = "<|return|>",
            [T_H_CALL] = "<|call|>"},
    .marks = BIT(T_H_CHANNEL) | BIT(T_H_MESSAGE),
    .messages = &messages,
    .form = &form,
    .effort = effort,
    .one_call = true,
    .put_reason = put_reason,
};
