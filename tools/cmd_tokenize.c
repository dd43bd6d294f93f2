/* SPDX-License-Identifier: Apache-2.0 */
/* sluice tokenize: text to token ids and back. Needs the tokenizer's files only. */
#include <string.h>

#include "compute.h"
#include "text/json.h"

struct tokenize_opts {
    struct opt_common common;
    bool special, bos, decode, lines, pieces;
};

#define AT(m) offsetof(struct tokenize_opts, m)
static const struct opt opts[] = {
    OPT_ROWS_MODEL(struct tokenize_opts),
    {"special", 0, OPT_FLAG, AT(special), NULL, NULL, 0, 0,
     "recognise special tokens in the text; with --decode: print them"},
    {"bos", 0, OPT_FLAG, AT(bos), NULL, NULL, 0, 0, "put the model's BOS in front"},
    {"decode", 0, OPT_FLAG, AT(decode), NULL, NULL, 0, 0,
     "a JSON array of ids on stdin, text on stdout"},
    {"lines", 0, OPT_FLAG, AT(lines), NULL, NULL, 0, 0,
     "each line of stdin is a JSON string (--decode: array), each line of stdout its answer"},
    {"pieces", 0, OPT_FLAG, AT(pieces), NULL, NULL, 0, 0,
     "a line for each token: id, bytes in hexadecimal, text as JSON"},
    OPT_ROWS_BASIC(struct tokenize_opts),
    {0},
};

struct ids {
    int32_t *v; /* sl_free */
    int n;
};

static sl_status encode(const sl_model *m, const struct tokenize_opts *o, const char *text,
                        size_t n, struct ids *out, sl_err *err)
{
    int flags = (o->special ? SL_TOK_SPECIAL : 0) | (o->bos ? SL_TOK_BOS : 0);
    return sl_tokenize(m, text, n, flags, &out->v, &out->n, err);
}

static void put_ids(struct json_w *w, const struct ids *ids)
{
    text_jw_arr(w);
    for (int i = 0; i < ids->n; i++)
        text_jw_int(w, ids->v[i]);
    text_jw_arr_end(w);
}

static void put_piece(struct str *s, struct json_w *w, int32_t id, const char *p, size_t n)
{
    str_printf(s, "%d\t", (int)id);
    for (size_t i = 0; i < n; i++)
        str_printf(s, "%02x", (unsigned char)p[i]);
    str_putc(s, '\t');
    text_jw_init(w, s);
    text_jw_str(w, p, n);
    str_putc(s, '\n');
}

/* id, bytes, text of each token: lines, or with --json one array of objects. */
static sl_status pieces(const sl_model *m, bool json, const struct ids *ids, struct str *s,
                        sl_err *err)
{
    struct json_w w, one;
    text_jw_init(&w, s);
    if (json) text_jw_arr(&w);
    for (int i = 0; i < ids->n; i++) {
        char *p = NULL;
        size_t n = 0;
        SL_TRY(sl_detokenize(m, &ids->v[i], 1, SL_DETOK_SPECIAL | SL_DETOK_PART, &p, &n, err));
        if (!json) {
            put_piece(s, &one, ids->v[i], p, n);
        } else {
            text_jw_obj(&w);
            text_jw_key(&w, "id");
            text_jw_int(&w, ids->v[i]);
            text_jw_key(&w, "bytes");
            text_jw_arr(&w);
            for (size_t k = 0; k < n; k++)
                text_jw_int(&w, (unsigned char)p[k]);
            text_jw_arr_end(&w);
            text_jw_key(&w, "text");
            text_jw_str(&w, p, n);
            text_jw_obj_end(&w);
        }
        sl_free(p);
    }
    if (json) text_jw_arr_end(&w);
    return str_status(s, err);
}

/* A JSON array of ids. where: for messages. */
static sl_status parse_ids(struct arena *a, const struct json *j, const char *where,
                           struct ids *out, sl_err *err)
{
    void *p = NULL;
    if (j->kind != JSON_ARRAY_K)
        return SL_FAIL(err, REQUEST, "%s: %s, not an array of ids", where,
                       text_json_kind_text(j->kind));
    SL_TRY(mem_arena_array(a, j->n, sizeof *out->v, &p, err));
    out->v = p;
    for (size_t i = 0; i < j->n; i++) {
        const struct json *v = j->item[i];
        if (v->kind != JSON_INT_K || v->i < 0 || v->i > INT32_MAX)
            return SL_FAIL(err, REQUEST, "%s: item %zu is no token id", where, i);
        out->v[i] = (int32_t)v->i;
    }
    out->n = (int)j->n;
    return SL_OK;
}

/* What one input gives, appended to s. json: the text of an answer is a JSON string. */
static sl_status one_text(const sl_model *m, const struct tokenize_opts *o, const char *p, size_t n,
                          struct str *s, sl_err *err)
{
    struct ids ids = {0};
    struct json_w w;
    SL_TRY(encode(m, o, p, n, &ids, err));
    sl_status st = SL_OK;
    if (o->pieces) {
        st = pieces(m, o->common.json, &ids, s, err);
    } else {
        text_jw_init(&w, s);
        if (o->common.json) {
            text_jw_obj(&w);
            text_jw_key(&w, "n");
            text_jw_int(&w, ids.n);
            text_jw_key(&w, "ids");
        }
        put_ids(&w, &ids);
        if (o->common.json) text_jw_obj_end(&w);
    }
    sl_free(ids.v);
    return st;
}

static sl_status one_decode(const sl_model *m, const struct tokenize_opts *o, const struct ids *ids,
                            bool quoted, struct str *s, sl_err *err)
{
    struct json_w w;
    char *p = NULL;
    size_t n = 0;
    if (o->pieces) return pieces(m, o->common.json, ids, s, err);
    SL_TRY(sl_detokenize(m, ids->v, ids->n, o->special, &p, &n, err));
    if (quoted) {
        text_jw_init(&w, s);
        text_jw_str(&w, p, n);
    } else {
        str_put(s, p, n);
    }
    sl_free(p);
    return str_status(s, err);
}

static sl_status put_out(struct str *s, sl_err *err)
{
    SL_TRY(str_status(s, err));
    if (s->n && fwrite(s->p, 1, s->n, stdout) != s->n)
        return SL_FAIL(err, IO, "standard output: write failed");
    str_clear(s);
    return SL_OK;
}

static sl_status all_lines(const sl_model *m, const struct tokenize_opts *o, const char *text,
                           size_t n, struct str *s, sl_err *err)
{
    int64_t line = 0;
    for (size_t at = 0; at < n && !cmd_stop;) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t len = end ? (size_t)(end - text) - at : n - at;
        char where[40];
        struct arena a;
        const struct json *j = NULL;
        struct ids ids = {0};
        snprintf(where, sizeof where, "line %lld of stdin", (long long)++line);
        mem_arena_init(&a, MEM_REQUEST, 0);
        sl_status st = len ? text_json_parse(&a, where, text + at, len, &j, err) : SL_OK;
        if (st == SL_OK && j && !o->decode && j->kind != JSON_STR_K)
            st = SL_FAIL(err, REQUEST, "%s: %s, not a string", where, text_json_kind_text(j->kind));
        if (st == SL_OK && j && o->decode) st = parse_ids(&a, j, where, &ids, err);
        if (st == SL_OK && j)
            st = o->decode ? one_decode(m, o, &ids, true, s, err)
                           : one_text(m, o, j->s, j->n, s, err);
        mem_arena_fini(&a);
        if (j) str_putc(s, '\n');
        if (st == SL_OK && s->n > 65536) st = put_out(s, err);
        if (st != SL_OK) return st;
        at += len + 1;
    }
    return cmd_stop ? SL_FAIL(err, CANCELLED, "cancelled") : SL_OK;
}

static sl_status tokenize(const sl_model *m, const struct tokenize_opts *o, struct arena *a,
                          const char *text, size_t n, sl_err *err)
{
    struct str s;
    const struct json *j = NULL;
    struct ids ids = {0};
    sl_status st;
    str_init(&s, MEM_REQUEST, 0);
    if (o->lines) {
        st = all_lines(m, o, text, n, &s, err);
    } else if (o->decode) {
        st = text_json_parse(a, "stdin", text, n, &j, err);
        if (st == SL_OK) st = parse_ids(a, j, "stdin", &ids, err);
        if (st == SL_OK) st = one_decode(m, o, &ids, o->common.json, &s, err);
        if (st == SL_OK && o->common.json) str_putc(&s, '\n');
    } else {
        st = one_text(m, o, text, n, &s, err);
        if (st == SL_OK && !(o->pieces && !o->common.json)) str_putc(&s, '\n');
    }
    if (st == SL_OK) st = put_out(&s, err);
    str_fini(&s);
    return st;
}

static int run(struct cmd_ctx *c)
{
    const struct tokenize_opts *o = c->opts;
    sl_model_opts mo = {.vocab_only = 1};
    sl_model *m = NULL;
    char *text = NULL;
    uint64_t n = 0;
    sl_err err;
    if (o->decode && o->bos) return cmd_usage("--bos has no meaning with --decode");
    sl_status st = sl_model_open(o->common.model, &mo, &m, &err);
    if (st == SL_OK) st = compute_read("-", &text, &n, &err);
    if (st == SL_OK) st = tokenize(m, o, &c->arena, text, n, &err);
    mem_free(text);
    sl_model_close(m);
    return cmd_flush(st == SL_OK ? CMD_OK : cmd_fail(&err));
}

const struct cmd cmd_tokenize = {
    .name = "tokenize",
    .summary = "text to token ids, and back",
    .usage = "[-m MODEL] [--special] [--bos] [--decode] [--lines] [--pieces]",
    .about =
        "Reads stdin, writes one JSON array of ids. Without --special a special token that is\n"
        "spelled in the text is plain text.",
    .example = "echo -n \"Hello world\" | sluice tokenize",
    .opts = opts,
    .opts_bytes = sizeof(struct tokenize_opts),
    .run = run,
};
