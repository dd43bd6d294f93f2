/* SPDX-License-Identifier: Apache-2.0 */
/* Drives the grammar room from JSON lines on stdin, one answer line each.
 *
 *   grammar_walk match                     {"kind": "regex", "text": "a+", "inputs": ["a", "b"]} ->
 * {"match": [true, false]} grammar_walk walk TOKENIZER.json [N]   {"kind": "schema", "text":
 * "{...}", "seed": 7} -> {"text": "...", "finish": "stop|length"}: tokens drawn by random logits
 * under the mask, at most N; every mask is checked against pushes grammar_walk bench TOKENIZER.json
 * [N]  the same input -> time of masks and pushes, in microseconds kind: schema, object, regex,
 * gbnf, loose (a schema held as far as it can be; "relaxed" names what is not). What does not
 * compile gives {"error": "...", "status": "..."}. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "grammar/grammar.h"
#include "text/json.h"
#include "tok/tok.h"

struct vocab {
    tok *t;
    grammar_vocab *v;
    int n;
    uint32_t *bits;
    int32_t *allowed;
};

static char *slurp(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *p = NULL;
    size_t cap = 0;
    *n = 0;
    if (!f) return NULL;
    do {
        cap = cap ? 2 * cap : 1 << 16;
        char *q = realloc(p, cap + 1);
        if (!q) break;
        p = q;
        *n += fread(p + *n, 1, cap - *n, f);
    } while (*n == cap);
    fclose(f);
    if (p) p[*n] = 0;
    return p;
}

static int vocab_open(struct vocab *v, const char *path)
{
    sl_err err;
    struct tok_files f = {0};
    char *text = slurp(path, &f.n_tokenizer_json);
    f.tokenizer_json = text;
    if (!text || tok_open_files(&f, &v->t, &err)) {
        fprintf(stderr, "%s: %s\n", path, text ? err.text : "can not read");
        return 1;
    }
    v->n = tok_n_vocab(v->t);
    struct grammar_token_bytes *b = calloc((size_t)v->n, sizeof *b);
    for (int i = 0; b && i < v->n; i++) {
        b[i].p = tok_bytes(v->t, i, &b[i].n);
        b[i].kind = tok_is_eog(v->t, i)       ? GRAMMAR_TOKEN_END
                    : tok_is_special(v->t, i) ? GRAMMAR_TOKEN_CONTROL
                                              : GRAMMAR_TOKEN_TEXT;
    }
    int bad = !b || grammar_vocab_open(b, v->n, &v->v, &err);
    v->bits = calloc((size_t)v->n / 32 + 1, 4);
    v->allowed = calloc((size_t)v->n, 4);
    free(b);
    free(text);
    return bad || !v->bits || !v->allowed;
}

static int kind_of(const struct json *v)
{
    static const char *const name[] = {"schema", "object", "regex", "gbnf", "loose"};
    for (int i = 0; i < BASE_COUNT_OF(name); i++)
        if (text_json_is(text_json_get(v, "kind"), name[i])) return i;
    return -1;
}

static const char *status_name(sl_status st)
{
    static const char *const name[] = {
#define X(n, http, text) #n,
        SL_STATUS_LIST(X)
#undef X
    };
    return name[st];
}

static void put_error(struct json_w *w, sl_status st, const sl_err *err)
{
    text_jw_key(w, "status");
    text_jw_strz(w, status_name(st));
    text_jw_key(w, "error");
    text_jw_strz(w, err->text);
}

static sl_status match(const grammar *g, const struct json *v, struct json_w *w, sl_err *err)
{
    const struct json *in = text_json_get(v, "inputs");
    grammar_run *r = NULL;
    sl_status st = grammar_run_open(g, NULL, &r, err);
    if (st) return st;
    text_jw_key(w, "match");
    text_jw_arr(w);
    for (size_t i = 0; in && i < in->n && !st; i++) {
        enum grammar_where where = GRAMMAR_DEAD;
        int s = -1;
        st = grammar_state_open(r, &s, err);
        if (!st) st = grammar_push_bytes(r, s, in->item[i]->s, in->item[i]->n, &where, err);
        text_jw_bool(w, !st && (where == GRAMMAR_CAN_STOP || where == GRAMMAR_DONE));
        grammar_state_close(r, s);
    }
    text_jw_arr_end(w);
    grammar_run_close(r);
    return st;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

struct walker {
    struct vocab *v;
    grammar_run *r;
    int state, n_max, n;
    uint64_t seed;
    bool check;
    struct str text;
    double *us; /* [n_max] of masks */
    double push_us;
};

/* The allowed token with the largest of random logits; what closes gains weight with time. */
static int32_t draw(struct walker *k, int n_allowed)
{
    double best = -1;
    int32_t id = -1;
    for (int i = 0; i < n_allowed; i++) {
        int n;
        const char *p = tok_bytes(k->v->t, k->v->allowed[i], &n);
        double u = rng_uniform(k->seed, (uint32_t)k->n, (uint64_t)k->v->allowed[i]);
        if (tok_is_eog(k->v->t, k->v->allowed[i]) || (n && memchr("\"}]", p[0], 3)))
            u += 0.02 * k->n;
        if (u > best) {
            best = u;
            id = k->v->allowed[i];
        }
    }
    return id;
}

/* A few tokens: allowed by the mask exactly when a push takes them. */
static sl_status compare(struct walker *k, sl_err *err)
{
    for (int i = 0; i < 24; i++) {
        int copy;
        enum grammar_where where;
        int32_t id = (int32_t)(rng_uniform(k->seed + 99, (uint32_t)k->n, (uint64_t)i) * k->v->n);
        SL_TRY(grammar_state_copy(k->r, k->state, &copy, err));
        SL_TRY(grammar_push(k->r, copy, id, &where, err));
        grammar_state_close(k->r, copy);
        bool bit = k->v->bits[id / 32] >> id % 32 & 1;
        if (bit != (where != GRAMMAR_DEAD))
            return SL_FAIL(err, INTERNAL, "token %d: mask %d, push %d, after %s", id, bit,
                           (int)where, str_c(&k->text));
    }
    return SL_OK;
}

static sl_status steps(struct walker *k, const char **finish, sl_err *err)
{
    *finish = "length";
    for (k->n = 0; k->n < k->n_max; k->n++) {
        enum grammar_where where;
        double t0 = now();
        SL_TRY(grammar_mask(k->r, k->state, k->v->bits, err));
        double t1 = now();
        int n = 0;
        for (int i = 0; i < (k->v->n + 31) / 32; i++)
            for (uint32_t b = k->v->bits[i]; b; b &= b - 1)
                k->v->allowed[n++] = i * 32 + __builtin_ctz(b);
        if (n == 0) return SL_FAIL(err, INTERNAL, "no token is allowed after %s", str_c(&k->text));
        if (k->check) SL_TRY(compare(k, err));
        int32_t id = draw(k, n);
        double t2 = now();
        SL_TRY(grammar_push(k->r, k->state, id, &where, err));
        k->push_us += now() - t2;
        k->us[k->n] = t1 - t0;
        if (where == GRAMMAR_DEAD)
            return SL_FAIL(err, INTERNAL, "token %d was allowed and is dead after %s", id,
                           str_c(&k->text));
        if (!tok_is_eog(k->v->t, id)) {
            int nb;
            const char *p = tok_bytes(k->v->t, id, &nb);
            str_put(&k->text, p, (size_t)nb);
        }
        if (where == GRAMMAR_DONE) {
            *finish = "stop";
            k->n++;
            return SL_OK;
        }
    }
    return SL_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void put_times(struct walker *k, struct json_w *w)
{
    double sum = 0;
    for (int i = 0; i < k->n; i++)
        sum += k->us[i];
    qsort(k->us, (size_t)k->n, sizeof *k->us, by_value);
    const struct {
        const char *key;
        double v;
    } row[] = {{"mask_us_mean", k->n ? sum / k->n : 0},
               {"mask_us_median", k->n ? k->us[k->n / 2] : 0},
               {"mask_us_p99", k->n ? k->us[k->n * 99 / 100] : 0},
               {"mask_us_max", k->n ? k->us[k->n - 1] : 0},
               {"push_us_mean", k->n ? k->push_us / k->n : 0},
               {"run_bytes", (double)grammar_run_bytes(k->r)}};
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        text_jw_key(w, row[i].key);
        text_jw_real(w, row[i].v, 5);
    }
}

/* k: v, n_max and check are given. */
static sl_status walk(const grammar *g, struct walker k, const struct json *q, struct json_w *w,
                      sl_err *err)
{
    const char *finish = "";
    bool bench = !k.check;
    int64_t seed = 0;
    SL_TRY(text_json_int(q, "seed", 1, &seed, err));
    k.seed = (uint64_t)seed;
    str_init(&k.text, MEM_MISC, 0);
    k.state = -1;
    k.us = calloc((size_t)k.n_max, sizeof *k.us);
    sl_status st = grammar_run_open(g, k.v->v, &k.r, err);
    for (int round = 0; round <= bench && !st;
         round++) { /* bench: the second round has the caches */
        str_clear(&k.text);
        k.push_us = 0;
        st = grammar_state_open(k.r, &k.state, err);
        if (!st) st = steps(&k, &finish, err);
        if (bench && !st) {
            text_jw_key(w, round ? "again" : "first");
            text_jw_obj(w);
            put_times(&k, w);
            text_jw_obj_end(w);
        }
        grammar_state_close(k.r, k.state);
    }
    if (!st) {
        text_jw_key(w, "tokens");
        text_jw_int(w, k.n);
        text_jw_key(w, "text");
        text_jw_str(w, str_c(&k.text), k.text.n);
        text_jw_key(w, "finish");
        text_jw_strz(w, finish);
    }
    grammar_run_close(k.r);
    free(k.us);
    str_fini(&k.text);
    return st;
}

static void one(const char *mode, struct vocab *v, int n_max, const char *line, size_t n)
{
    struct arena a;
    struct str s;
    struct json_w w;
    sl_err err = {0};
    const struct json *q = NULL, *text;
    grammar *g = NULL;
    mem_arena_init(&a, MEM_MISC, 0);
    str_init(&s, MEM_MISC, 0);
    text_jw_init(&w, &s);
    text_jw_obj(&w);
    sl_status st = text_json_parse(&a, "line", line, n, &q, &err);
    if (!st) {
        text = text_json_get(q, "text");
        int kind = kind_of(q);
        if (kind < 0 || !text || text->kind != JSON_STR_K)
            st = SL_FAIL(&err, FORMAT, "kind or text is missing");
        double t0 = now();
        if (!st) st = grammar_open((enum grammar_kind)kind, text->s, text->n, &g, &err);
        text_jw_key(&w, "open_us");
        text_jw_real(&w, now() - t0, 6);
    }
    if (!st && grammar_relaxed(g)[0]) {
        text_jw_key(&w, "relaxed");
        text_jw_strz(&w, grammar_relaxed(g));
    }
    if (!st && strcmp(mode, "match") == 0)
        st = match(g, q, &w, &err);
    else if (!st) {
        const struct walker k = {.v = v, .n_max = n_max, .check = strcmp(mode, "bench") != 0};
        st = walk(g, k, q, &w, &err);
    }
    if (st) put_error(&w, st, &err);
    text_jw_obj_end(&w);
    puts(str_c(&s));
    fflush(stdout);
    grammar_close(g);
    str_fini(&s);
    mem_arena_fini(&a);
}

int main(int argc, char **argv)
{
    struct vocab v = {0};
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    const char *mode = argc > 1 ? argv[1] : "";
    bool tokens = strcmp(mode, "walk") == 0 || strcmp(mode, "bench") == 0;
    if (!(tokens && argc > 2) && strcmp(mode, "match") != 0) {
        fprintf(stderr,
                "usage: grammar_walk match | walk TOKENIZER.json [N] | bench TOKENIZER.json [N]\n");
        return 2;
    }
    if (tokens && vocab_open(&v, argv[2])) return 1;
    while ((n = getline(&line, &cap, stdin)) > 0)
        one(mode, &v, argc > 3 ? atoi(argv[3]) : 400, line, (size_t)n);
    free(line);
    free(v.bits);
    free(v.allowed);
    grammar_vocab_close(v.v);
    tok_close(v.t);
    return 0;
}
