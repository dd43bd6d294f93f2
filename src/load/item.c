/* SPDX-License-Identifier: Apache-2.0 */
/* The requests that a load run sends: made of common words, or read from files. */
#include <string.h>

#include "base/rng.h"
#include "load/load.h"
#include "text/json.h"

/* Short common words: most vocabularies have each of them, with its space, as one token. */
static const char *const words[64] = {
    "time",   "year",    "people", "way",   "day",    "man",  "thing", "life",  "child",  "world",
    "school", "state",   "family", "group", "hand",   "part", "place", "case",  "week",   "point",
    "number", "night",   "water",  "room",  "mother", "area", "money", "story", "fact",   "month",
    "lot",    "right",   "study",  "book",  "eye",    "job",  "word",  "side",  "kind",   "head",
    "house",  "service", "friend", "power", "hour",   "game", "line",  "end",   "member", "law",
    "car",    "city",    "name",   "team",  "minute", "idea", "body",  "back",  "face",   "level",
    "office", "door",    "health", "person"};

static void put_words(struct str *s, uint64_t key, int n)
{
    for (int i = 0; i < n; i++) {
        uint32_t r[4];
        if (s->n) str_putc(s, ' ');
        rng_philox(key, 7, (uint64_t)i, r);
        str_puts(s, words[r[0] % 64]);
    }
}

static void put_list(struct str *s, int n)
{
    for (int i = 0; i < n; i++) {
        if (s->n) str_putc(s, ' ');
        str_puts(s, words[i * 37 % 64]);
    }
}

void load_words_init(struct load_words *w, uint64_t seed, int n_prefix, int n, int max_tokens)
{
    *w = (struct load_words){.seed = seed, .n_prefix = n_prefix, .n = n, .max_tokens = max_tokens};
    str_init(&w->text, MEM_REQUEST, 0);
}

void load_words_fini(struct load_words *w)
{
    str_fini(&w->text);
}

bool load_words_next(void *user, int64_t i, struct load_item *out)
{
    struct load_words *w = user;
    str_clear(&w->text);
    put_words(&w->text, w->seed, w->n_prefix);
    if (w->in_turn)
        put_list(&w->text, w->n);
    else
        put_words(&w->text, w->seed * 1000003 + 1 + (uint64_t)i, w->n);
    *out = (struct load_item){
        .prompt = str_c(&w->text), .n_prompt = w->text.n, .max_tokens = w->max_tokens};
    return true;
}

#define TRACE_BLK 512 /* tokens that one hash id of a Mooncake trace stands for */

/* The text of a trace line: one block of words per hash id, cut to the input's length. */
static sl_status trace_text(struct load_file *f, const struct json *o, int64_t n_tok, double wpt,
                            struct load_item *it, sl_err *err)
{
    struct str s;
    str_init(&s, MEM_REQUEST, 64u << 20);
    const struct json *ids = text_json_get(o, "hash_ids");
    int64_t left = n_tok;
    if (ids && ids->kind == JSON_ARRAY_K)
        for (const struct json *c = ids->child; c && left > 0; c = c->next, left -= TRACE_BLK)
            put_words(&s, (uint64_t)c->i * 2654435761u + 17,
                      (int)((double)BASE_MIN(left, TRACE_BLK) * wpt));
    if (left > 0) put_words(&s, (uint64_t)f->n * 40503u + 5, (int)((double)left * wpt));
    sl_status st = str_status(&s, err);
    char *copy = NULL;
    if (!st) st = mem_arena_str(&f->arena, str_c(&s), s.n, &copy, err);
    it->prompt = copy;
    it->n_prompt = s.n;
    str_fini(&s);
    return st;
}

/* The array as JSON text, for the request's body. */
static sl_status keep_array(struct arena *a, const struct json *v, const char **out, sl_err *err)
{
    struct str s;
    struct json_w w;
    char *copy = NULL;
    str_init(&s, MEM_REQUEST, 0);
    text_jw_init(&w, &s);
    text_jw_node(&w, v);
    sl_status st = str_status(&s, err);
    if (!st) st = mem_arena_str(a, str_c(&s), s.n, &copy, err);
    *out = copy;
    str_fini(&s);
    return st;
}

static sl_status check_ids(const struct json *v, sl_err *err)
{
    bool ok = v->kind == JSON_ARRAY_K && v->child;
    for (const struct json *c = ok ? v->child : NULL; c; c = c->next)
        ok = ok && c->kind == JSON_INT_K && c->i >= 0 && c->i <= INT32_MAX;
    return ok ? SL_OK : SL_FAIL(err, FORMAT, "ids: not a list of token ids");
}

static sl_status read_line(struct load_file *f, const char *p, size_t n,
                           const struct load_file_opts *o, struct load_item *it, sl_err *err)
{
    const struct json *v = NULL;
    *it = (struct load_item){.max_tokens = o->max_tokens};
    if (*p == '{') {
        SL_TRY(text_json_parse(&f->arena, "line", p, n, &v, err));
        int64_t in, out, at;
        SL_TRY(text_json_int(v, "input_length", -1, &in, err));
        SL_TRY(text_json_int(v, "output_length", it->max_tokens, &out, err));
        SL_TRY(text_json_int(v, "max_tokens", out, &out, err));
        SL_TRY(text_json_int(v, "timestamp", -1, &at, err));
        if (out < 0 || out > 1 << 24 || in > 1 << 24 || at > INT64_MAX / 2000000)
            return SL_FAIL(err, FORMAT, "a length or a timestamp is out of range");
        it->max_tokens = (int)out;
        if (at >= 0) {
            it->at_ns = (int64_t)((double)at * 1e6 / o->speed);
            f->timed = true;
        }
        const struct json *m = text_json_get(v, "messages"), *t = text_json_get(v, "prompt");
        const struct json *ids = text_json_get(v, "ids");
        if (m && m->kind == JSON_ARRAY_K) return keep_array(&f->arena, m, &it->messages, err);
        if (!ids && t && t->kind == JSON_ARRAY_K) ids = t;
        if (ids) {
            SL_TRY(check_ids(ids, err));
            return keep_array(&f->arena, ids, &it->ids, err);
        }
        if (t && t->kind == JSON_STR_K) {
            it->prompt = t->s;
            it->n_prompt = t->n;
            return SL_OK;
        }
        if (in < 0) return SL_FAIL(err, FORMAT, "no prompt, ids, messages or input_length");
        return trace_text(f, v, in, o->words_per_token, it, err);
    }
    char *copy;
    SL_TRY(mem_arena_str(&f->arena, p, n, &copy, err));
    it->prompt = copy;
    it->n_prompt = n;
    return SL_OK;
}

sl_status load_file_parse(struct load_file *f, const char *name, const char *p, size_t n,
                          const struct load_file_opts *o, sl_err *err)
{
    *f = (struct load_file){0};
    mem_arena_init(&f->arena, MEM_REQUEST, 0);
    int64_t n_line = 1;
    for (size_t i = 0; i < n; i++)
        n_line += p[i] == '\n';
    SL_TRY(mem_arena_array(&f->arena, (size_t)n_line, sizeof *f->item, (void **)&f->item, err));
    const char *end = p + n;
    for (int64_t line = 1; p < end && (!o->limit || f->n < o->limit); line++) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((nl ? nl : end) - p);
        const char *next = p + len + 1;
        while (len && (p[len - 1] == '\r' || p[len - 1] == ' '))
            len--;
        if (len) {
            sl_status st = read_line(f, p, len, o, &f->item[f->n], err);
            if (st) {
                status_prefix(err, "%s: line %lld", name, (long long)line);
                return st;
            }
            f->n++;
        }
        p = next;
    }
    if (!f->n) return SL_FAIL(err, FORMAT, "%s: no lines", name);
    f->repeat = !f->timed;
    return SL_OK;
}

void load_file_fini(struct load_file *f)
{
    mem_arena_fini(&f->arena);
    *f = (struct load_file){0};
}

bool load_file_next(void *user, int64_t i, struct load_item *out)
{
    struct load_file *f = user;
    if (i >= f->n && !f->repeat) return false;
    *out = f->item[i % f->n];
    return true;
}
