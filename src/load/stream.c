/* SPDX-License-Identifier: Apache-2.0 */
/* Reads an answer as it arrives: events or one JSON body, tokens and their times. */
#include <stdio.h>
#include <string.h>

#include "load/load_internal.h"
#include "text/json.h"

void load_stream_init(struct load_stream *s, bool events)
{
    *s = (struct load_stream){.events = events, .n_in = -1, .n_out = -1};
    str_init(&s->buf, MEM_REQUEST, LOAD_LINE_MAX);
    mem_arena_init(&s->arena, MEM_REQUEST, 64u << 20);
}

void load_stream_fini(struct load_stream *s)
{
    str_fini(&s->buf);
    mem_arena_fini(&s->arena);
}

static bool has_text(const struct json *o, const char *key)
{
    const struct json *v = text_json_get(o, key);
    return v && ((v->kind == JSON_STR_K && v->n > 0) || (v->kind == JSON_ARRAY_K && v->n > 0));
}

static int count_of(const struct json *o, const char *key, int was)
{
    const struct json *v = text_json_get(o, key);
    return v && v->kind == JSON_INT_K && v->i >= 0 && v->i < INT32_MAX ? (int)v->i : was;
}

static void note_error(const struct json *e, char *why, size_t n_why)
{
    const struct json *m = text_json_get(e, "message");
    snprintf(why, n_why, "%s", m && m->kind == JSON_STR_K ? m->s : "an error without a message");
}

/* One JSON object of the answer: usage, pieces, errors. */
static int take(struct load_stream *s, const struct json *o)
{
    int pieces = 0;
    const struct json *usage = text_json_get(o, "usage"), *choices = text_json_get(o, "choices");
    const struct json *e = text_json_get(o, "error");
    if (e && e->kind == JSON_OBJECT_K && !s->error[0]) note_error(e, s->error, sizeof s->error);
    s->n_in = count_of(usage, "prompt_tokens", s->n_in);
    s->n_out = count_of(usage, "completion_tokens", s->n_out);
    s->n_cached =
        count_of(text_json_get(usage, "prompt_tokens_details"), "cached_tokens", s->n_cached);
    if (!choices || choices->kind != JSON_ARRAY_K) return 0;
    for (const struct json *c = choices->child; c; c = c->next) {
        const struct json *d = text_json_get(c, s->events ? "delta" : "message");
        pieces += has_text(c, "text") || has_text(d, "content") ||
                  has_text(d, "reasoning_content") || has_text(d, "reasoning") ||
                  has_text(d, "tool_calls");
    }
    return pieces;
}

static sl_status event(struct load_stream *s, const char *p, size_t n, int *pieces, sl_err *err)
{
    while (n && (p[n - 1] == '\r' || p[n - 1] == ' '))
        n--;
    if (n < 5 || memcmp(p, "data:", 5)) return SL_OK; /* comments, event names, ids */
    p += 5;
    n -= 5;
    if (n && *p == ' ') p++, n--;
    if (n == 6 && !memcmp(p, "[DONE]", 6)) {
        s->done = true;
        return SL_OK;
    }
    const struct json *o;
    mem_arena_reset(&s->arena);
    SL_TRY(text_json_parse(&s->arena, "an event", p, n, &o, err));
    *pieces += take(s, o);
    s->n_event++;
    return SL_OK;
}

sl_status load_stream_push(struct load_stream *s, const char *p, size_t n, int *pieces, sl_err *err)
{
    *pieces = 0;
    if (!s->events) {
        str_put(&s->buf, p, n);
        return str_status(&s->buf, err);
    }
    while (n) {
        const char *nl = memchr(p, '\n', n);
        size_t part = nl ? (size_t)(nl - p) : n;
        if (!nl || s->buf.n) {
            str_put(&s->buf, p, part);
            SL_TRY(str_status(&s->buf, err));
            if (!nl) break;
            SL_TRY(event(s, s->buf.p, s->buf.n, pieces, err));
            str_clear(&s->buf);
        } else
            SL_TRY(event(s, p, part, pieces, err));
        p += part + 1;
        n -= part + 1;
    }
    s->n_piece += *pieces;
    return SL_OK;
}

sl_status load_stream_end(struct load_stream *s, sl_err *err)
{
    if (s->events) {
        if (!s->done && !s->error[0])
            return SL_FAIL(err, FORMAT, "the stream ended without [DONE]");
        return SL_OK;
    }
    const struct json *o;
    SL_TRY(text_json_parse(&s->arena, "the answer", str_c(&s->buf), s->buf.n, &o, err));
    s->n_piece = take(s, o);
    return SL_OK;
}

bool load_error_text(const char *p, size_t n, char *why, size_t n_why)
{
    struct arena a;
    const struct json *o, *e;
    mem_arena_init(&a, MEM_REQUEST, 1u << 20);
    bool ok = !text_json_parse(&a, "error", p, n, &o, NULL) && (e = text_json_get(o, "error")) &&
              e->kind == JSON_OBJECT_K;
    if (ok) note_error(e, why, n_why);
    mem_arena_fini(&a);
    return ok;
}
