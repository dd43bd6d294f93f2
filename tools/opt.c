/* SPDX-License-Identifier: Apache-2.0 */
/* Parses options by a command's table, and prints help and man page from it. */
#include "opt.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/str.h"
#include "dist/dist.h"
#include "os/os.h"
#include "text/json.h"

/* Where a value comes from, as an error names it: "--threads", "SLUICE_THREADS", "config.json:
 * threads". */
#define WHERE_MAX 160

static const struct opt *find(const struct opt *opts, const char *name, size_t n)
{
    for (const struct opt *o = opts; o->name; o++)
        if (strlen(o->name) == n && strncmp(o->name, name, n) == 0) return o;
    return NULL;
}

static sl_status unknown(const struct opt *opts, const char *name, size_t n, const char *where,
                         sl_err *err)
{
    char given[64];
    const char *best = NULL;
    int best_d = 1000;
    snprintf(given, sizeof given, "%.*s", (int)BASE_MIN(n, sizeof given - 1), name);
    for (const struct opt *o = opts; o->name; o++) {
        int d = str_distance(given, o->name);
        if (strncmp(given, o->name, strlen(given)) == 0 && strlen(given) >= 2) d = BASE_MIN(d, 1);
        if (d < best_d) best_d = d, best = o->name;
    }
    if (best && best_d <= 1 + (int)strlen(given) / 2)
        return SL_FAIL(err, REQUEST, "unknown option: %s%s: did you mean --%s?", where, given,
                       best);
    return SL_FAIL(err, REQUEST, "unknown option: %s%s: --help lists them", where, given);
}

const char *opt_choice(const struct opt *o, int i, char *buf, size_t n)
{
    const char *p = o->arg;
    while (i-- > 0 && p) {
        p = strchr(p, '|');
        if (p) p++;
    }
    snprintf(buf, n, "%.*s", p ? (int)strcspn(p, "|") : 0, p ? p : "");
    return buf;
}

static bool parse_i64(const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end || errno || isspace((unsigned char)*text)) return false;
    *out = v;
    return true;
}

/* Of a text option: the words that arg lists, where it lists some: "off|auto|N|replay:RATE". What
 * begins with a capital stands for a number: N is a whole one from 0 on, RATE one from 0 to 1. */
static bool has_words(const struct opt *o)
{
    return o->kind == OPT_STR && o->arg && strchr(o->arg, '|');
}

static bool is_word(const char *word, const char *text)
{
    size_t n = strcspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    char *end;
    int64_t i;
    if (!word[n]) return strcmp(word, text) == 0;
    if (strncmp(word, text, n) != 0) return false;
    text += n;
    if (strcmp(word + n, "N") == 0)
        return isdigit((unsigned char)*text) && parse_i64(text, &i) && i <= INT32_MAX;
    double v = strtod(text, &end);
    return end > text && !*end && v >= 0 && v <= 1;
}

static bool is_among_words(const struct opt *o, const char *text)
{
    char buf[64];
    for (int k = 0; *opt_choice(o, k, buf, sizeof buf); k++)
        if (is_word(buf, text)) return true;
    return false;
}

static sl_status bad_value(const struct opt *o, const char *where, const char *text, sl_err *err)
{
    bool of_llama = o->kind == OPT_STR && strcmp(o->name, "draft") == 0 && isdigit((uint8_t)*text);
    switch (o->kind) {
    case OPT_ENUM:
    case OPT_STR:
        return SL_FAIL(err, REQUEST, "bad value: %s %s: one of %s%s", where, text, o->arg,
                       of_llama ? "; how many at most is --draft-max" : "");
    case OPT_FLAG:
        return SL_FAIL(err, REQUEST, "bad value: %s %s: true or false", where, text);
    case OPT_REAL:
        if (o->min != o->max)
            return SL_FAIL(err, REQUEST, "bad value: %s %s: a number from %g to %g", where, text,
                           o->min, o->max);
        return SL_FAIL(err, REQUEST, "bad value: %s %s: a number", where, text);
    default:
        if (o->min != o->max)
            return SL_FAIL(err, REQUEST, "bad value: %s %s: an integer from %.0f to %.0f", where,
                           text, o->min, o->max);
        return SL_FAIL(err, REQUEST, "bad value: %s %s: an integer%s", where, text,
                       o->kind == OPT_U64 ? " from 0 to 18446744073709551615" : "");
    }
}

/* A name of a file, or a list of numbers, that is nothing. Of other texts "" may say something: no
 * place after all, whatever SL_PLACE says. */
static sl_status check_empty(const struct opt *o, const char *where, const char *text, sl_err *err)
{
    if (text[strspn(text, " \t\r\n")]) return SL_OK;
    bool is_file = (o->kind == OPT_STR || o->kind == OPT_STRS) && o->arg && !*text &&
                   strncmp(o->arg, "FILE", 4) == 0;
    if (!is_file && o->kind != OPT_INTS) return SL_OK;
    return SL_FAIL(err, REQUEST, "bad value: %s: empty: give %s", where, o->arg);
}

static bool in_range(const struct opt *o, double v)
{
    return o->min == o->max || (v >= o->min && v <= o->max);
}

sl_status opt_ints_parse(const char *what, const char *text, struct arena *a, struct opt_ints *out,
                         sl_err *err)
{
    size_t n = 1, i = 0;
    void *p = NULL;
    for (const char *c = text; *c; c++)
        n += *c == ',' || *c == ' ' || *c == '\n';
    SL_TRY(mem_arena_array(a, n, sizeof *out->v, &p, err));
    out->v = p;
    for (const char *c = text; *c;) {
        char *end;
        errno = 0;
        long long v = strtoll(c, &end, 10);
        if (end == c || errno || v < INT32_MIN || v > INT32_MAX || i == n)
            return SL_FAIL(err, REQUEST,
                           "bad value: %s: integers with commas between them, at \"%.20s\"", what,
                           c);
        out->v[i++] = (int32_t)v;
        c = end + strspn(end, " \t\r\n");
        if (*c == ',') {
            c++;
            c += strspn(c, " \t\r\n");
            if (!*c) return SL_FAIL(err, REQUEST, "bad value: %s: ends with a comma", what);
        }
    }
    out->n = (int)i;
    return SL_OK;
}

static sl_status add_str(struct opt_strs *s, const char *text, struct arena *a, sl_err *err)
{
    if (s->n == s->cap) {
        void *p = NULL;
        int cap = s->cap ? 2 * s->cap : 8;
        SL_TRY(mem_arena_array(a, (size_t)cap, sizeof *s->v, &p, err));
        if (s->n) memcpy(p, s->v, (size_t)s->n * sizeof *s->v);
        s->v = p;
        s->cap = cap;
    }
    s->v[s->n++] = text;
    return SL_OK;
}

/* Of several processes: what engines refuse is said once for all of them, when they meet. */
static bool is_rank(void)
{
    return dist_launched().n > 1;
}

/* Store text as the value of o; to a list of texts it is added. */
static sl_status set(const struct opt *o, const char *where, const char *text, void *dst,
                     struct arena *a, sl_err *err)
{
    char *at = (char *)dst + o->at, buf[64], *end;
    int64_t i = 0;
    SL_TRY(check_empty(o, where, text, err));
    switch (o->kind) {
    case OPT_FLAG:
        if (!strcmp(text, "1") || !strcmp(text, "true") || !strcmp(text, "on") ||
            !strcmp(text, "yes"))
            *(bool *)at = true;
        else if (!strcmp(text, "0") || !strcmp(text, "false") || !strcmp(text, "off") ||
                 !strcmp(text, "no") || !*text)
            *(bool *)at = false;
        else
            return bad_value(o, where, text, err);
        return SL_OK;
    case OPT_INT:
        if (!parse_i64(text, &i) || i < INT32_MIN || i > INT32_MAX || !in_range(o, (double)i))
            return bad_value(o, where, text, err);
        *(int *)at = (int)i;
        return SL_OK;
    case OPT_I64:
        if (!parse_i64(text, &i) || !in_range(o, (double)i)) return bad_value(o, where, text, err);
        *(int64_t *)at = i;
        return SL_OK;
    case OPT_U64: {
        errno = 0;
        unsigned long long u = strtoull(text, &end, 10);
        if (end == text || *end || errno || !isdigit((unsigned char)*text))
            return bad_value(o, where, text, err);
        *(uint64_t *)at = u;
        return SL_OK;
    }
    case OPT_REAL: {
        double v = strtod(text, &end);
        if (end == text || *end || !isfinite(v) || !in_range(o, v))
            return bad_value(o, where, text, err);
        *(double *)at = v;
        return SL_OK;
    }
    case OPT_STR:
        if (has_words(o) && !is_rank() && !is_among_words(o, text))
            return bad_value(o, where, text, err);
        *(const char **)at = text;
        return SL_OK;
    case OPT_LAYOUT: {
        struct dist_layout l;
        if (!is_rank() && strcmp(text, "auto") != 0) SL_TRY(dist_layout_parse(text, &l, err));
        *(const char **)at = text;
        return SL_OK;
    }
    case OPT_STRS:
        return add_str((struct opt_strs *)at, text, a, err);
    case OPT_ENUM:
        for (int k = 0; *opt_choice(o, k, buf, sizeof buf); k++)
            if (strcmp(buf, text) == 0) {
                *(int *)at = k;
                return SL_OK;
            }
        return bad_value(o, where, text, err);
    case OPT_INTS:
        return opt_ints_parse(where, text, a, (struct opt_ints *)at, err);
    }
    return SL_OK;
}

bool opt_is_default(const struct opt *opts, const char *name, const void *dst)
{
    static const size_t bytes[] = {
#define X(kind, type) [OPT_##kind] = sizeof(type),
        OPT_KIND_LIST(X)
#undef X
    };
    union {
        int64_t i;
        double f;
        const char *s;
        char b[sizeof(struct opt_strs)];
    } def = {0};
    const struct opt *o = find(opts, name, strlen(name));
    ASSERT(o);
    const char *at = (const char *)dst + o->at;
    struct opt alone = *o;
    alone.at = 0;
    if (o->kind == OPT_STRS) return ((const struct opt_strs *)at)->n == 0;
    if (o->def && set(&alone, name, o->def, &def, NULL, NULL)) return false;
    if (o->kind != OPT_STR && o->kind != OPT_LAYOUT) return memcmp(at, &def, bytes[o->kind]) == 0;
    const char *is = *(const char *const *)at;
    return is == def.s || (is && def.s && strcmp(is, def.s) == 0);
}

/* Empty o where it is a list of texts: one given by a stronger source replaces the weaker one's. */
static void clear(const struct opt *o, void *dst)
{
    if (o->kind == OPT_STRS) ((struct opt_strs *)((char *)dst + o->at))->n = 0;
}

static sl_status replace(const struct opt *o, const char *where, const char *text, void *dst,
                         struct arena *a, sl_err *err)
{
    clear(o, dst);
    return set(o, where, text, dst, a, err);
}

static sl_status set_json(const struct opt *o, const char *where, const struct json *v, void *dst,
                          struct arena *a, sl_err *err)
{
    char buf[40];
    const char *text = buf;
    if (v->kind == JSON_ARRAY_K && (o->kind == OPT_STRS || o->kind == OPT_INTS)) {
        struct str s;
        str_init(&s, MEM_MISC, 0);
        bool first = true;
        sl_status st = SL_OK;
        for (const struct json *c = v->child; c && !st; c = c->next, first = false) {
            if (first) clear(o, dst);
            if (o->kind == OPT_STRS && c->kind == JSON_STR_K)
                st = set(o, where, c->s, dst, a, err);
            else if (o->kind == OPT_INTS && c->kind == JSON_INT_K)
                str_printf(&s, "%s%lld", first ? "" : ",", (long long)c->i);
            else
                st = SL_FAIL(err, REQUEST, "bad value: %s: a list of another type", where);
        }
        if (!st && o->kind == OPT_INTS) st = str_status(&s, err);
        if (!st && o->kind == OPT_INTS) st = replace(o, where, str_c(&s), dst, a, err);
        str_fini(&s);
        return st;
    }
    switch (v->kind) {
    case JSON_BOOL_K:
        text = v->b ? "true" : "false";
        if (o->kind == OPT_ENUM && strcmp(o->arg, "on|off") == 0) text = v->b ? "on" : "off";
        break;
    case JSON_INT_K:
        snprintf(buf, sizeof buf, "%lld", (long long)v->i);
        break;
    case JSON_REAL_K:
        snprintf(buf, sizeof buf, "%.17g", v->f);
        break;
    case JSON_STR_K:
        text = v->s;
        break;
    case JSON_NULL_K:
        return SL_OK;
    default:
        return SL_FAIL(err, REQUEST, "bad value: %s: a list or an object", where);
    }
    char *kept = NULL; /* a text option keeps what it is given */
    if (text == buf) SL_TRY(mem_arena_str(a, buf, strlen(buf), &kept, err));
    return replace(o, where, kept ? kept : text, dst, a, err);
}

/* given: [rows of opts] those that the file says are set. */
static sl_status from_file(const struct opt *opts, const char *path, void *dst, bool *given,
                           struct arena *a, sl_err *err)
{
    char *text = NULL, where[WHERE_MAX];
    uint64_t n = 0;
    const struct json *root = NULL;
    SL_TRY(os_read_once(path, 1 << 20, &text, &n, err));
    sl_status st = text_json_parse(a, path, text, n, &root, err);
    mem_free(text);
    if (st) return st;
    if (root->kind != JSON_OBJECT_K)
        return SL_FAIL(err, FORMAT, "%s: not a JSON object: {\"threads\": 2, ...}", path);
    for (const struct json *v = root->child; v; v = v->next) {
        char key[64];
        snprintf(key, sizeof key, "%s", v->key);
        for (char *p = key; *p; p++)
            if (*p == '_') *p = '-';
        const struct opt *o = find(opts, key, strlen(key));
        snprintf(where, sizeof where, "%s: ", path);
        if (!o) return unknown(opts, key, strlen(key), where, err);
        snprintf(where, sizeof where, "%s: %s", path, key);
        SL_TRY(set_json(o, where, v, dst, a, err));
        given[o - opts] = true;
    }
    return SL_OK;
}

static sl_status from_env(const struct opt *opts, void *dst, struct arena *a, sl_err *err)
{
    for (const struct opt *o = opts; o->name; o++) {
        char name[64];
        int n = snprintf(name, sizeof name, "SLUICE_%s", o->name);
        for (int i = 7; i < n; i++)
            name[i] = o->name[i - 7] == '-' ? '_' : (char)toupper(o->name[i - 7]);
        const char *v = getenv(name);
        if (v) SL_TRY(replace(o, name, v, dst, a, err));
    }
    return SL_OK;
}

#define OPT_ROWS_MAX 256 /* of a command */

/* One pass over argv: with only != NULL nothing but that option is stored (to find --config before
 * the rest). */
struct walk {
    const struct opt *opts, *only;
    int argc;
    char **argv;
    void *dst;
    struct arena *a;
    struct opt_rest *rest;
    bool seen[OPT_ROWS_MAX]; /* lists that the command line has begun */
    bool *given;             /* [rows] as of opt_rest */
};

static sl_status take(struct walk *w, const struct opt *o, const char *where, const char *text,
                      sl_err *err)
{
    if (w->only && w->only != o) return SL_OK;
    ASSERT(o - w->opts < OPT_ROWS_MAX);
    if (!w->seen[o - w->opts]) clear(o, w->dst);
    w->seen[o - w->opts] = w->given[o - w->opts] = true;
    return set(o, where, text, w->dst, w->a, err);
}

/* Its value stands after the '=', or is the next argument. */
static sl_status long_value(struct walk *w, const struct opt *o, const char *eq, int *i,
                            sl_err *err)
{
    const char *text = "true";
    char where[WHERE_MAX];
    snprintf(where, sizeof where, "--%s", o->name);
    if (eq)
        text = eq + 1;
    else if (o->kind != OPT_FLAG) {
        if (*i + 1 >= w->argc)
            return SL_FAIL(err, REQUEST, "missing value: %s: give %s", where, o->arg);
        text = w->argv[++*i];
    }
    return take(w, o, where, text, err);
}

static sl_status long_opt(struct walk *w, int *i, sl_err *err)
{
    const char *s = w->argv[*i] + 2, *eq = strchr(s, '=');
    size_t n = eq ? (size_t)(eq - s) : strlen(s);
    if (n == 4 && strncmp(s, "help", 4) == 0) {
        w->rest->help = true;
        return SL_OK;
    }
    const struct opt *o = find(w->opts, s, n);
    if (!o) return unknown(w->opts, s, n, "--", err);
    return long_value(w, o, eq, i, err);
}

static sl_status short_opts(struct walk *w, int *i, sl_err *err)
{
    for (const char *s = w->argv[*i] + 1; *s; s++) {
        char where[3] = {'-', *s, 0};
        const struct opt *o = w->opts;
        if (*s == 'h') {
            w->rest->help = true;
            return SL_OK;
        }
        while (o->name && o->letter != *s)
            o++;
        if (!o->name) return SL_FAIL(err, REQUEST, "unknown option: %s: --help lists them", where);
        if (o->kind == OPT_FLAG) {
            SL_TRY(take(w, o, where, "true", err));
            continue;
        }
        const char *text = s + 1;
        if (!*text) {
            if (*i + 1 >= w->argc)
                return SL_FAIL(err, REQUEST, "missing value: %s: give %s", where, o->arg);
            text = w->argv[++*i];
        }
        return take(w, o, where, text, err);
    }
    return SL_OK;
}

/* Words that people know from llama.cpp: the same options. */
static const char *const words[][2] = {{"-ngl", "gpu-layers"},
                                       {"--n-gpu-layers", "gpu-layers"},
                                       {"-ot", "override-tensor"},
                                       {"-ts", "split"},
                                       {"--tensor-split", "split"},
                                       {"-cmoe", "cpu-moe"},
                                       {"-ncmoe", "n-cpu-moe"},
                                       {"-md", "draft-model"},
                                       {"--model-draft", "draft-model"},
                                       {"--draft-n", "draft-max"}};

/* Is argv[*i] such a word, of an option that the command has? Then it is taken. */
static sl_status by_word(struct walk *w, int *i, bool *is_one, sl_err *err)
{
    const char *s = w->argv[*i], *eq = strchr(s, '=');
    size_t n = eq ? (size_t)(eq - s) : strlen(s);
    *is_one = false;
    for (int k = 0; k < BASE_COUNT_OF(words); k++) {
        const struct opt *o = find(w->opts, words[k][1], strlen(words[k][1]));
        if (!o || strlen(words[k][0]) != n || strncmp(s, words[k][0], n) != 0) continue;
        *is_one = true;
        return long_value(w, o, eq, i, err);
    }
    return SL_OK;
}

static sl_status walk(struct walk *w, sl_err *err)
{
    bool plain = false;
    w->rest->n = 0;
    for (int i = 0; i < w->argc && !w->rest->help; i++) {
        char *s = w->argv[i];
        bool is_word = false;
        if (!plain && s[0] == '-') SL_TRY(by_word(w, &i, &is_word, err));
        if (is_word) continue;
        if (plain || s[0] != '-' || !s[1])
            w->rest->v[w->rest->n++] = s;
        else if (strcmp(s, "--") == 0)
            plain = true;
        else if (s[1] == '-')
            SL_TRY(long_opt(w, &i, err));
        else
            SL_TRY(short_opts(w, &i, err));
    }
    return SL_OK;
}

sl_status opt_parse(const struct opt *opts, char **argv, void *dst, struct arena *a,
                    struct opt_rest *rest, sl_err *err)
{
    void *p = NULL;
    int argc = 0, n_row = 0;
    while (argv[argc])
        argc++;
    rest->help = false;
    SL_TRY(mem_arena_array(a, (size_t)argc + 1, sizeof *rest->v, &p, err));
    rest->v = p;
    while (opts[n_row].name)
        n_row++;
    SL_TRY(mem_arena_array(a, (size_t)n_row + 1, sizeof(bool), &p, err));
    rest->given = p;
    for (const struct opt *o = opts; o->name; o++)
        if (o->def) SL_TRY(replace(o, o->name, o->def, dst, a, err));
    struct walk w = {.opts = opts, .argc = argc, .argv = argv, .dst = dst, .a = a, .rest = rest};
    w.given = p;
    w.only = find(opts, "config", 6);
    if (w.only) {
        const char *env = getenv("SLUICE_CONFIG");
        if (env) SL_TRY(replace(w.only, "SLUICE_CONFIG", env, dst, a, err));
        SL_TRY(walk(&w, err));
        if (rest->help) return SL_OK;
        const char *path = *(const char **)((char *)dst + w.only->at);
        if (path) SL_TRY(from_file(opts, path, dst, p, a, err));
    }
    SL_TRY(from_env(opts, dst, a, err));
    w.only = NULL;
    memset(w.seen, 0, sizeof w.seen);
    return walk(&w, err);
}

/* ---- options beside others ---- */

/* Is one of the options that `with` names given? *has: the command has one at least. */
static bool has_company(const struct opt *opts, const char *with, const void *dst, bool *has)
{
    char name[64];
    *has = false;
    for (size_t n; *with; with += n + (with[n] == '|')) {
        n = strcspn(with, "|");
        if (!find(opts, with, n)) continue;
        *has = true;
        snprintf(name, sizeof name, "%.*s", (int)n, with);
        if (!opt_is_default(opts, name, dst)) return true;
    }
    return false;
}

/* "a|b" as "--a or --b". */
static const char *company_text(const char *with, char *buf, size_t cap)
{
    size_t k = 0;
    for (size_t n; *with && k < cap; with += n + (with[n] == '|')) {
        n = strcspn(with, "|");
        k += (size_t)snprintf(buf + k, cap - k, "%s--%.*s", k ? " or " : "", (int)n, with);
    }
    return buf;
}

static sl_status pairs_check(const struct opt *opts, const struct opt_pair *pairs, const void *dst,
                             const struct opt_rest *rest, sl_err *err)
{
    char text[160];
    bool has;
    for (; pairs && pairs->name; pairs++) {
        const struct opt *o = find(opts, pairs->name, strlen(pairs->name));
        if (!o || !rest->given[o - opts] || opt_is_default(opts, o->name, dst) ||
            has_company(opts, pairs->with, dst, &has) || !has)
            continue;
        return SL_FAIL(err, REQUEST, "--%s: goes with %s", o->name,
                       company_text(pairs->with, text, sizeof text));
    }
    return SL_OK;
}

sl_status opt_pairs_check(const struct opt *opts, const struct opt_pair *pairs, const void *dst,
                          const struct opt_rest *rest, sl_err *err)
{
    static const struct opt_pair shared[] = {{"prefill-from", "prefill"},
                                             {"expert-half-life", "expert-stats"},
                                             {"place-mbps", "spare|rebalance"},
                                             {"place-from", "spare|rebalance"},
                                             {"hot-from", "hot-experts"},
                                             {"dist-deadline-ms", "layout|prefill"},
                                             {0}};
    /* beside --attach such options are the engine's: the command says so */
    bool elsewhere = find(opts, "attach", 6) && !opt_is_default(opts, "attach", dst);
    if (!elsewhere) SL_TRY(pairs_check(opts, shared, dst, rest, err));
    return pairs_check(opts, pairs, dst, rest, err);
}
