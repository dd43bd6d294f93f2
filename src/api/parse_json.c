/* SPDX-License-Identifier: Apache-2.0 */
/* A scanner that knows strings and depth, and looks at the first level only. */
#include "api/parse_json.h"

#include <string.h>

#include "text/json.h"

enum { S_OPEN, S_KEY, S_IN_KEY, S_COLON, S_VALUE, S_NAME, S_SKIP, S_ARGS, S_COMMA };
enum { K_OTHER, K_NAME, K_ARGS, K_KNOWN };

void api_parse_json_init(struct api_parse_json *j, bool strict)
{
    memset(j, 0, sizeof *j);
    j->strict = strict;
    str_init(&j->tmp, MEM_REQUEST, API_PARSE_HELD);
    str_init(&j->name, MEM_REQUEST, API_PARSE_HELD);
    str_init(&j->args, MEM_REQUEST, (size_t)1 << 20);
}

void api_parse_json_fini(struct api_parse_json *j)
{
    str_fini(&j->tmp);
    str_fini(&j->name);
    str_fini(&j->args);
}

/* in as a JSON string into out; false when it is none. */
static bool decode(struct api_parse_json *j, const struct str *in, struct str *out)
{
    struct arena a;
    const struct json *v = NULL;
    mem_arena_init(&a, MEM_REQUEST, 0);
    j->nomem |= text_json_probe(&a, str_c(in), in->n, &v, NULL) != SL_OK;
    bool is = v && v->kind == JSON_STR_K;
    if (is) {
        str_clear(out);
        str_put(out, v->s, v->n);
        j->nomem |= out->failed == SL_NOMEM;
    }
    mem_arena_fini(&a);
    return is && !out->failed;
}

/* One byte of a string in tmp, quotes included: 1 = complete, 0 = more, -1 = too long. */
static int take_string(struct api_parse_json *j, char c)
{
    str_putc(&j->tmp, c);
    if (j->tmp.failed) return -1;
    if (j->escaped)
        j->escaped = false;
    else if (c == '\\')
        j->escaped = true;
    else if (c == '"')
        return 1;
    return 0;
}

static void begin_string(struct api_parse_json *j)
{
    str_clear(&j->tmp);
    str_putc(&j->tmp, '"');
    j->escaped = false;
}

static int key_of(struct api_parse_json *j)
{
    static const char *const known[] = {"type", "id", "function"};
    struct str key;
    int k = K_OTHER;
    str_init(&key, MEM_REQUEST, 0);
    if (decode(j, &j->tmp, &key)) {
        const char *z = str_c(&key);
        if (strcmp(z, "name") == 0 && !j->has_name) k = K_NAME;
        if (!j->has_args && (strcmp(z, "arguments") == 0 || strcmp(z, "parameters") == 0))
            k = K_ARGS;
        for (int i = 0; i < 3; i++)
            if (strcmp(z, known[i]) == 0) k = K_KNOWN;
    }
    str_fini(&key);
    return k;
}

/* The first byte of a value. */
static enum api_parse_json_result value(struct api_parse_json *j, char c)
{
    bool nested = c == '{' || c == '[';
    if (c == '}' || c == ']' || c == ',' || c == ':') return API_PARSE_JSON_BAD;
    j->depth = nested;
    j->in_str = c == '"';
    j->escaped = false;
    if (j->key == K_NAME) {
        if (c != '"') return API_PARSE_JSON_BAD;
        begin_string(j);
        j->state = S_NAME;
        return API_PARSE_JSON_MORE;
    }
    if (j->key != K_ARGS) {
        j->state = S_SKIP;
        return API_PARSE_JSON_MORE;
    }
    j->has_args = true;
    j->state = S_ARGS;
    j->args_str = c == '"';
    j->live = j->has_name && !j->args_str;
    if (!j->live) {
        str_putc(&j->args, c);
        return API_PARSE_JSON_MORE;
    }
    return API_PARSE_JSON_NAME; /* and the byte is theirs: the caller looks at live */
}

/* Inside a value: does it go on with c? Sets *ends when c is its last byte. */
static bool inside(struct api_parse_json *j, char c, bool *ends)
{
    *ends = false;
    if (j->in_str) {
        if (j->escaped)
            j->escaped = false;
        else if (c == '\\')
            j->escaped = true;
        else if (c == '"') {
            j->in_str = false;
            *ends = j->depth == 0;
        }
        return true;
    }
    if (c == '"') {
        j->in_str = true;
    } else if (c == '{' || c == '[') {
        j->depth++;
    } else if (j->depth && (c == '}' || c == ']')) {
        *ends = --j->depth == 0;
    } else if (!j->depth &&
               (c == ',' || c == '}' || c == ' ' || c == '\n' || c == '\t' || c == '\r')) {
        return false; /* after a number or word */
    } else if (c == '<') {
        return false; /* no JSON: a tag */
    }
    return true;
}

static enum api_parse_json_result comma(struct api_parse_json *j, char c)
{
    if (c == ' ' || c == '\n' || c == '\t' || c == '\r') return API_PARSE_JSON_MORE;
    if (c == ',') {
        j->state = S_KEY;
        return API_PARSE_JSON_MORE;
    }
    if (c != '}') return API_PARSE_JSON_BAD;
    if (!j->has_name || (j->strict && !j->has_args)) return API_PARSE_JSON_BAD;
    return API_PARSE_JSON_DONE;
}

static enum api_parse_json_result in_args(struct api_parse_json *j, char c)
{
    bool ends;
    if (!inside(j, c, &ends)) {
        j->state = S_COMMA;
        j->live = false;
        return comma(j, c);
    }
    if (ends) j->state = S_COMMA;
    if (j->live) {
        j->live = !ends;
        return API_PARSE_JSON_ARG;
    }
    str_putc(&j->args, c);
    if (j->args.failed) return API_PARSE_JSON_BAD;
    if (ends && j->args_str) { /* arguments as a string: its content */
        struct str text;
        str_init(&text, MEM_REQUEST, 0);
        bool ok = decode(j, &j->args, &text);
        if (ok) {
            str_clear(&j->args);
            str_put(&j->args, str_c(&text), text.n);
        }
        str_fini(&text);
        if (!ok) return API_PARSE_JSON_BAD;
    }
    return API_PARSE_JSON_MORE;
}

static enum api_parse_json_result in_key(struct api_parse_json *j, char c)
{
    int done = take_string(j, c);
    if (done < 0) return API_PARSE_JSON_BAD;
    if (!done) return API_PARSE_JSON_MORE;
    j->key = key_of(j);
    if (j->key == K_OTHER && j->strict) return API_PARSE_JSON_BAD;
    j->state = S_COLON;
    return API_PARSE_JSON_MORE;
}

static enum api_parse_json_result take(struct api_parse_json *j, char c)
{
    bool white = c == ' ' || c == '\n' || c == '\t' || c == '\r', ends;
    int done;
    switch (j->state) {
    case S_OPEN:
        if (white) return API_PARSE_JSON_MORE;
        j->state = S_KEY;
        return c == '{' ? API_PARSE_JSON_MORE : API_PARSE_JSON_BAD;
    case S_KEY:
        if (white) return API_PARSE_JSON_MORE;
        if (c != '"') return API_PARSE_JSON_BAD;
        begin_string(j);
        j->state = S_IN_KEY;
        return API_PARSE_JSON_MORE;
    case S_IN_KEY:
        return in_key(j, c);
    case S_COLON:
        if (white) return API_PARSE_JSON_MORE;
        j->state = S_VALUE;
        return c == ':' ? API_PARSE_JSON_MORE : API_PARSE_JSON_BAD;
    case S_VALUE:
        return white ? API_PARSE_JSON_MORE : value(j, c);
    case S_NAME:
        done = take_string(j, c);
        if (done < 0) return API_PARSE_JSON_BAD;
        if (!done) return API_PARSE_JSON_MORE;
        j->state = S_COMMA;
        j->has_name = decode(j, &j->tmp, &j->name) && j->name.n > 0;
        return j->has_name ? API_PARSE_JSON_MORE : API_PARSE_JSON_BAD;
    case S_SKIP:
        if (!inside(j, c, &ends)) {
            j->state = S_COMMA;
            return comma(j, c);
        }
        if (ends) j->state = S_COMMA;
        return API_PARSE_JSON_MORE;
    case S_ARGS:
        return in_args(j, c);
    default:
        return comma(j, c);
    }
}

enum api_parse_json_result api_parse_json_byte(struct api_parse_json *j, char c)
{
    enum api_parse_json_result r = take(j, c);
    bool nomem = j->nomem || j->tmp.failed == SL_NOMEM || j->args.failed == SL_NOMEM;
    return nomem ? API_PARSE_JSON_NOMEM : r;
}
