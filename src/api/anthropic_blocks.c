/* SPDX-License-Identifier: Apache-2.0 */
/* The content blocks of Anthropic's messages: each kind is checked and read into the template's
 * form. */
#include <stdio.h>
#include <string.h>

#include "api/anthropic.h"

#define PATH_MAX_ 120

sl_status api_msg_mark(const struct json *o, const char *path, bool *marked, sl_err *err)
{
    SL_TRY(api_field_kind(o, path, "cache_control", JSON_OBJECT_K, err));
    *marked |= api_field(o, "cache_control") != NULL;
    return SL_OK;
}

/* A member that must be a string. */
static sl_status need(const struct json *o, const char *path, const char *name,
                      const struct json **out, sl_err *err)
{
    *out = api_field(o, name);
    if (!*out) return SL_FAIL(err, REQUEST, "%s.%s: missing", path, name);
    return api_field_kind(o, path, name, JSON_STR_K, err);
}

/* A line of its own for what a document says of itself. */
static sl_status put_line(struct str *out, const struct json *o, const char *path, const char *name,
                          sl_err *err)
{
    const struct json *v = api_field(o, name);
    SL_TRY(api_field_kind(o, path, name, JSON_STR_K, err));
    if (!v || !v->n) return SL_OK;
    str_put(out, v->s, v->n);
    str_putc(out, '\n');
    return SL_OK;
}

/* Text files, and documents made of text blocks; files and PDF are refused. */
static sl_status put_document(struct str *out, const struct json *b, const char *path, sl_err *err)
{
    const struct json *src = api_field(b, "source"), *type = text_json_get(src, "type"), *v;
    char at[PATH_MAX_];
    bool unused = false;
    snprintf(at, sizeof at, "%.90s.source", path);
    if (!src) return SL_FAIL(err, REQUEST, "%s: missing", at);
    SL_TRY(api_field_kind(b, path, "source", JSON_OBJECT_K, err));
    SL_TRY(put_line(out, b, path, "title", err));
    SL_TRY(put_line(out, b, path, "context", err));
    if (text_json_is(type, "text")) {
        SL_TRY(need(src, at, "data", &v, err));
        str_put(out, v->s, v->n);
        return SL_OK;
    }
    if (!text_json_is(type, "content"))
        return SL_FAIL(err, REQUEST, "%s.type: must be text or content: this model reads text only",
                       at);
    snprintf(at, sizeof at, "%.90s.source.content", path);
    return api_msg_texts(out, api_field(src, "content"), at, &unused, err);
}

static sl_status put_search_result(struct str *out, const struct json *b, const char *path,
                                   sl_err *err)
{
    char at[PATH_MAX_];
    bool unused = false;
    SL_TRY(put_line(out, b, path, "title", err));
    SL_TRY(put_line(out, b, path, "source", err));
    snprintf(at, sizeof at, "%.90s.content", path);
    return api_msg_texts(out, api_field(b, "content"), at, &unused, err);
}

sl_status api_msg_text(struct str *out, const struct json *block, const char *path, sl_err *err)
{
    const struct json *v, *type;
    if (block->kind != JSON_OBJECT_K) return SL_FAIL(err, REQUEST, "%s: must be an object", path);
    SL_TRY(need(block, path, "type", &type, err));
    if (text_json_is(type, "text")) {
        SL_TRY(need(block, path, "text", &v, err));
        str_put(out, v->s, v->n);
        return SL_OK;
    }
    if (text_json_is(type, "document")) return put_document(out, block, path, err);
    if (text_json_is(type, "search_result")) return put_search_result(out, block, path, err);
    if (text_json_is(type, "tool_reference")) {
        SL_TRY(need(block, path, "tool_name", &v, err));
        str_put(out, v->s, v->n);
        return SL_OK;
    }
    if (text_json_is(type, "image"))
        return SL_FAIL(err, REQUEST, "%s: an image: this model reads text only", path);
    return SL_FAIL(err, REQUEST, "%s.type: %.40s: not possible here", path, type->s);
}

sl_status api_msg_texts(struct str *out, const struct json *content, const char *path, bool *marked,
                        sl_err *err)
{
    char at[PATH_MAX_];
    int i = 0;
    if (!content) return SL_OK;
    if (content->kind == JSON_STR_K) {
        str_put(out, content->s, content->n);
        return SL_OK;
    }
    if (content->kind != JSON_ARRAY_K)
        return SL_FAIL(err, REQUEST, "%s: must be a string or a list of blocks", path);
    for (const struct json *b = content->child; b; b = b->next, i++) {
        snprintf(at, sizeof at, "%.100s[%d]", path, i);
        if (i) str_putc(out, '\n');
        SL_TRY(api_msg_text(out, b, at, err));
        SL_TRY(api_msg_mark(b, at, marked, err));
    }
    return SL_OK;
}
