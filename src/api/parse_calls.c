/* SPDX-License-Identifier: Apache-2.0 */
/* Calls whose arguments are written as JSON: objects, plain or between tags, and calls of a block
 * of tags. */
#include <string.h>

#include "api/parse_internal.h"

void api_parse_begin_json(struct api_parse *p, bool strict)
{
    if (p->json_open) api_parse_json_fini(&p->json);
    api_parse_json_init(&p->json, strict);
    p->json_open = true;
    p->state = S_JSON;
}

static size_t in_json(struct api_parse *p, const char *s, size_t n)
{
    size_t from = 0; /* of a run of arguments */
    for (size_t i = 0; i < n; i++) {
        enum api_parse_json_result r = api_parse_json_byte(&p->json, s[i]);
        if (r == API_PARSE_JSON_ARG) continue;
        if (r == API_PARSE_JSON_NOMEM) {
            p->out.failed = SL_NOMEM;
            return n;
        }
        if (p->json.open) api_parse_put_args(p, s + from, i - from);
        from = i + 1;
        if (!p->json.open && p->held.n < API_PARSE_HELD) str_putc(&p->held, s[i]);
        if (r == API_PARSE_JSON_NAME) {
            p->json.open = true;
            api_parse_begin_call(p, str_c(&p->json.name), p->json.name.n);
            from = i;
        }
        bool over = !p->json.open && p->held.n >= API_PARSE_HELD;
        if (r == API_PARSE_JSON_MORE && p->json.open) from = i + 1;
        if (r == API_PARSE_JSON_BAD || over) {
            if (p->json.open) { /* the call stands as far as it came */
                api_parse_end_call(p);
                p->state = p->f->closed ? S_CLOSE : S_NEXT;
                return i; /* the byte is looked at again there */
            }
            api_parse_give_up(p);
            return i + 1;
        }
        if (r == API_PARSE_JSON_DONE) {
            if (!p->json.open) {
                api_parse_begin_call(p, str_c(&p->json.name), p->json.name.n);
                api_parse_put_args(p, str_c(&p->json.args), p->json.args.n);
            }
            api_parse_end_call(p);
            p->state = p->f->closed ? S_CLOSE : S_NEXT;
            return i + 1;
        }
    }
    if (p->json.open) api_parse_put_args(p, s + from, n - from);
    return n;
}

static size_t in_close(struct api_parse *p, const char *s, size_t n, bool last)
{
    size_t k = api_parse_white_run(s, n);
    if (k) return k;
    int t = s[0] == '<' ? api_parse_tag_at(p, s, n, last, BIT(T_CALL_END)) : -1;
    if (t == -2) return 0;
    p->state = S_TEXT;
    return t < 0 ? 0 : strlen(api_parse_tag(p, t));
}

static size_t in_next(struct api_parse *p, const char *s, size_t n, bool last)
{
    if (api_parse_white(s[0]) || s[0] == ';' || (p->in_list && s[0] == ',')) return 1;
    if (p->in_list && s[0] == ']') {
        p->in_list = false;
        p->state = S_TEXT;
        return 1;
    }
    if (s[0] == '<' && p->f->lead_tags) {
        int t = api_parse_tag_at(p, s, n, last, p->f->lead_tags);
        if (t == -2) return 0;
        if (t >= 0) return strlen(api_parse_tag(p, t));
    }
    p->state = S_TEXT;
    if (s[0] == '{') api_parse_begin_json(p, true);
    return 0;
}

#define HEAD_TAGS (BIT(T_SEP) | BIT(T_CALL_END) | BIT(T_CALLS_END))
#define ARGS_TAGS (BIT(T_CALL_END) | BIT(T_CALLS_END) | BIT(T_CALL))

/* What stands before the separator: "function", the name itself, or what the family reads. */
static size_t in_head(struct api_parse *p, const char *s, size_t n, bool last)
{
    int t = -1;
    size_t k = api_parse_white(s[0]) ? 1 : api_parse_run_of(p, s, n, last, HEAD_TAGS, &t);
    if (!k) return 0;
    if (t < 0) {
        k = api_parse_name_part(p, k);
        api_parse_hold(p, s, k);
        str_put(&p->head, s, k);
        if (p->head.n > API_PARSE_NAME) api_parse_give_up(p);
        return k;
    }
    api_parse_hold(p, s, k);
    if (t != T_SEP || p->head.n == 0) {
        api_parse_give_up(p);
        return k;
    }
    if (p->f->head) {
        p->f->head(p);
        return k;
    }
    p->fenced = p->head.n == 8 && memcmp(p->head.p, "function", 8) == 0;
    if (p->fenced) {
        api_parse_clear(p, &p->head);
        p->state = S_NAME;
    } else {
        api_parse_begin_call(p, p->head.p, p->head.n);
        p->state = S_FENCE;
    }
    return k;
}

static size_t in_name(struct api_parse *p, const char *s, size_t n)
{
    n = api_parse_name_part(p, n);
    const char *nl = memchr(s, '\n', n);
    size_t k = nl ? (size_t)(nl - s) + 1 : n;
    str_put(&p->held, s, k);
    str_put(&p->head, s, nl ? k - 1 : k);
    if (p->head.n > API_PARSE_NAME || (nl && p->head.n == 0)) {
        api_parse_give_up(p);
        return k;
    }
    if (nl) {
        api_parse_begin_call(p, p->head.p, p->head.n);
        p->state = S_FENCE;
    }
    return k;
}

/* An opening ```json line, where the form has one. */
static size_t in_fence(struct api_parse *p, const char *s, size_t n, bool last)
{
    static const char fence[] = "```json";
    size_t m = sizeof fence - 1, k = api_parse_white_run(s, n);
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
    int t;
    size_t k = api_parse_white_run(s, n);
    if (k) {
        if (p->any_args) api_parse_hold_white(p, s, k, p->muted ? O_NONE : O_ARGS);
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
    k = api_parse_run_of(p, s, n, last, ARGS_TAGS, &t);
    if (!k) return 0;
    if (t >= 0) {
        p->state = S_TAIL;
        return t == T_CALL_END ? k : 0;
    }
    api_parse_put_args(p, str_c(&p->gap), p->gap.n);
    api_parse_clear(p, &p->gap);
    api_parse_put_args(p, s, k);
    return k;
}

static size_t in_tail(struct api_parse *p, const char *s, size_t n, bool last)
{
    size_t k = api_parse_white_run(s, n);
    api_parse_clear(p, &p->gap);
    if (k) return k;
    int t = s[0] == '<' ? api_parse_tag_at(p, s, n, last, BIT(T_CALL_END)) : -1;
    if (t == -2) return 0;
    api_parse_end_call(p);
    p->state = S_TEXT;
    return t < 0 ? 0 : strlen(api_parse_tag(p, t));
}

size_t api_parse_calls_step(struct api_parse *p, const char *s, size_t n, bool last)
{
    switch (p->state) {
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
