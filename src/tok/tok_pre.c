/* SPDX-License-Identifier: Apache-2.0 */
/* Pre-tokenizers: a row of splits, each applied to the pieces of the one before. */
#include <string.h>

#include "tok/tok_internal.h"

sl_status tok_pre_regex(tok *t, const char *pattern, size_t n, enum tok_step_kind kind, bool invert,
                        sl_err *err)
{
    if (t->n_step == TOK_MAX_STEP)
        return SL_FAIL(err, LIMIT, "pre-tokenizer with more than %d steps", TOK_MAX_STEP);
    struct tok_step *s = &t->step[t->n_step];
    *s = (struct tok_step){0};
    SL_TRY(text_regex_open(MEM_TOK, pattern, n, &s->re, err));
    s->kind = kind;
    s->invert = invert;
    t->n_step++;
    return SL_OK;
}

/* ---- tokenizer.json ---- */

static sl_status json_split(tok *t, const struct json *j, sl_err *err)
{
    static const char *const kind[] = {"Isolated", "Removed", "MergedWithPrevious",
                                       "MergedWithNext", "Contiguous"};
    const char *behavior;
    bool invert;
    int k = 0;
    SL_TRY(text_json_str(j, "behavior", "Isolated", &behavior, err));
    SL_TRY(text_json_bool(j, "invert", false, &invert, err));
    while (k < BASE_COUNT_OF(kind) && strcmp(behavior, kind[k]) != 0)
        k++;
    if (k == BASE_COUNT_OF(kind))
        return SL_FAIL(err, UNSUPPORTED, "pre_tokenizer Split with behavior \"%.40s\"", behavior);
    const struct json *pat = text_json_get(j, "pattern"), *re = text_json_get(pat, "Regex"),
                      *lit = text_json_get(pat, "String");
    if (re && re->kind == JSON_STR_K)
        return tok_pre_regex(t, re->s, re->n, (enum tok_step_kind)k, invert, err);
    if (!lit || lit->kind != JSON_STR_K)
        return SL_FAIL(err, FORMAT, "pre_tokenizer Split has no pattern");
    struct str s;
    str_init(&s, MEM_TOK, 0);
    for (size_t i = 0; i < lit->n;
         i++) { /* every ASCII sign that is no letter or digit is quoted */
        unsigned char c = (unsigned char)lit->s[i];
        if (c < 0x80 && !((c | 32) >= 'a' && (c | 32) <= 'z') && !(c >= '0' && c <= '9'))
            str_printf(&s, "\\x%02x", c);
        else
            str_putc(&s, (char)c);
    }
    sl_status st = str_status(&s, err);
    if (st == SL_OK) st = tok_pre_regex(t, str_c(&s), s.n, (enum tok_step_kind)k, invert, err);
    str_fini(&s);
    return st;
}

static sl_status add_step(tok *t, struct tok_step step, sl_err *err)
{
    if (t->n_step == TOK_MAX_STEP)
        return SL_FAIL(err, LIMIT, "pre-tokenizer with more than %d steps", TOK_MAX_STEP);
    t->step[t->n_step++] = step;
    return SL_OK;
}

sl_status tok_pre_space(tok *t, sl_err *err)
{
    return add_step(t, (struct tok_step){.kind = TOK_STEP_SPACE}, err);
}

static sl_status json_bytes(tok *t, const struct json *j, sl_err *err)
{
    bool yes;
    SL_TRY(text_json_bool(j, "add_prefix_space", true, &yes, err));
    if (yes) SL_TRY(tok_pre_space(t, err));
    SL_TRY(text_json_bool(j, "use_regex", true, &yes, err));
    return yes ? tok_pre_regex(t, tok_gpt2, strlen(tok_gpt2), TOK_STEP_ISOLATED, false, err)
               : SL_OK;
}

/* Metaspace. Files of before 2024 say add_prefix_space in place of prepend_scheme. */
static sl_status json_mark(tok *t, const struct json *j, sl_err *err)
{
    static const char *const name[] = {"never", "first", "always"};
    struct tok_step s = {.kind = TOK_STEP_MARK};
    const char *mark, *scheme;
    bool yes;
    int k = 0;
    SL_TRY(text_json_str(j, "replacement", "\xe2\x96\x81", &mark, err));
    SL_TRY(text_json_bool(j, "add_prefix_space", true, &yes, err));
    SL_TRY(text_json_str(j, "prepend_scheme", yes ? "always" : "never", &scheme, err));
    SL_TRY(text_json_bool(j, "split", true, &s.split, err));
    while (k < 3 && strcmp(scheme, name[k]) != 0)
        k++;
    if (k == 3) return SL_FAIL(err, UNSUPPORTED, "Metaspace with prepend_scheme \"%.40s\"", scheme);
    s.prepend = (enum tok_prepend)k;
    SL_TRY(tok_build_mark(t, mark, err));
    return add_step(t, s, err);
}

static sl_status json_step(tok *t, const struct json *j, bool *bytes, sl_err *err)
{
    const char *type;
    bool yes;
    SL_TRY(text_json_str(j, "type", "?", &type, err));
    if (*bytes) return SL_FAIL(err, UNSUPPORTED, "pre_tokenizer %.40s after ByteLevel", type);
    if (strcmp(type, "Split") == 0) return json_split(t, j, err);
    if (strcmp(type, "Digits") == 0) {
        SL_TRY(text_json_bool(j, "individual_digits", false, &yes, err));
        return tok_pre_regex(t, "\\p{N}", 5, yes ? TOK_STEP_ISOLATED : TOK_STEP_CONTIGUOUS, false,
                             err);
    }
    if (strcmp(type, "Metaspace") == 0) return json_mark(t, j, err);
    if (strcmp(type, "ByteLevel") != 0)
        return SL_FAIL(err, UNSUPPORTED, "pre_tokenizer \"%.40s\"", type);
    *bytes = true;
    return json_bytes(t, j, err);
}

sl_status tok_pre_json(tok *t, const struct json *j, bool *bytes, sl_err *err)
{
    *bytes = false;
    if (!j || j->kind == JSON_NULL_K) return SL_OK;
    if (j->kind != JSON_OBJECT_K) return SL_FAIL(err, FORMAT, "pre_tokenizer is no object");
    const struct json *type = text_json_get(j, "type"), *list = text_json_get(j, "pretokenizers");
    if (!text_json_is(type, "Sequence")) return json_step(t, j, bytes, err);
    if (!list || list->kind != JSON_ARRAY_K)
        return SL_FAIL(err, FORMAT, "pre_tokenizer Sequence has no pretokenizers");
    for (size_t i = 0; i < list->n; i++) {
        if (list->item[i]->kind != JSON_OBJECT_K)
            return SL_FAIL(err, FORMAT, "pretokenizers[%zu] is no object", i);
        SL_TRY(json_step(t, list->item[i], bytes, err));
    }
    return SL_OK;
}

/* ---- splitting ---- */

static sl_status put(struct tok_pieces *v, size_t begin, size_t end, sl_err *err)
{
    if (v->n == v->cap) {
        void *p = NULL;
        size_t cap = v->cap ? v->cap * 2 : 256;
        SL_TRY(mem_realloc(MEM_REQUEST, v->v, cap * sizeof *v->v, &p, err));
        v->v = p;
        v->cap = cap;
    }
    v->v[v->n++] = (struct tok_piece){(uint32_t)begin, (uint32_t)end};
    return SL_OK;
}

struct split {
    const struct tok_step *s;
    struct tok_pieces *out;
    size_t first;  /* where this piece's parts begin in out */
    bool last_hit; /* what the last part was */
};

/* One part of a piece, matched or not, in order. */
static sl_status part(struct split *d, size_t begin, size_t end, bool hit, sl_err *err)
{
    struct tok_pieces *o = d->out;
    bool have = o->n > d->first, join = false, was = d->last_hit;
    if (begin == end) return SL_OK;
    hit ^= d->s->invert;
    d->last_hit = hit;
    switch (d->s->kind) {
    case TOK_STEP_ISOLATED:
    case TOK_STEP_SPACE: /* these two rewrite text */
    case TOK_STEP_MARK:
        break;
    case TOK_STEP_REMOVED:
        if (hit) return SL_OK;
        break;
    case TOK_STEP_CONTIGUOUS:
        join = have && was == hit;
        break;
    case TOK_STEP_MERGE_PREV:
        join = have && hit && !was;
        break;
    case TOK_STEP_MERGE_NEXT:
        join = have && was && !hit;
        break;
    }
    if (join) {
        o->v[o->n - 1].end = (uint32_t)end;
        return SL_OK;
    }
    return put(o, begin, end, err);
}

static sl_status split_piece(struct split *d, text_match *m, const char *p, size_t n, size_t base,
                             sl_err *err)
{
    size_t prev = 0, from = 0;
    d->first = d->out->n;
    d->last_hit = false;
    while (from <= n) {
        struct text_hit hit = {0};
        SL_TRY(text_regex_find(d->s->re, m, (struct text_subject){p, n, from}, &hit, err));
        if (!hit.found) break;
        size_t b = hit.begin, e = hit.end;
        if (e == b) { /* an empty match splits what is left of it from what is right */
            SL_TRY(part(d, base + prev, base + b, false, err));
            prev = b;
            from = b + 1;
            while (from < n && ((unsigned char)p[from] & 0xc0) == 0x80)
                from++;
            continue;
        }
        SL_TRY(part(d, base + prev, base + b, false, err));
        SL_TRY(part(d, base + b, base + e, true, err));
        prev = from = e;
    }
    return part(d, base + prev, base + n, false, err);
}

void tok_cut_init(struct tok_cut *c, text_match *m)
{
    *c = (struct tok_cut){.m = m};
    str_init(&c->text[0], MEM_REQUEST, 0);
    str_init(&c->text[1], MEM_REQUEST, 0);
}

void tok_cut_fini(struct tok_cut *c)
{
    for (int i = 0; i < 2; i++) {
        mem_free(c->v[i].v);
        str_fini(&c->text[i]);
    }
}

/* A step that changes the text: the new text, and its pieces. */
struct rewriting {
    const struct tok_step *s;
    struct str *out;
    struct tok_pieces *to;
    size_t zero; /* as tok_cut's, of out */
};

/* One piece with its spaces as marks, and a mark in front where the step says so. */
static sl_status put_marked(const tok *t, struct rewriting *r, const struct tok_cut *c,
                            struct tok_piece w, sl_err *err)
{
    const struct tok_step *s = r->s;
    struct str *out = r->out;
    const char *p = c->p + w.begin;
    size_t n = w.end - w.begin, m = strlen(t->mark), begin = out->n;
    size_t zero = c->zero > w.begin ? c->zero - w.begin : 0;
    bool first = zero > 0;
    bool has = p[0] == ' ' || (n >= m && memcmp(p, t->mark, m) == 0);
    if (!has && (s->prepend == TOK_PREPEND_ALWAYS || (s->prepend == TOK_PREPEND_FIRST && first)))
        str_puts(out, t->mark);
    for (size_t i = 0; i < n; i++) {
        bool mark = p[i] == ' ' || (s->split && n - i >= m && memcmp(p + i, t->mark, m) == 0);
        if (s->split && mark && out->n > begin) {
            SL_TRY(put(r->to, begin, out->n, err));
            begin = out->n;
        }
        if (p[i] == ' ')
            str_puts(out, t->mark);
        else
            str_putc(out, p[i]);
        if (i < zero) r->zero = out->n;
    }
    SL_TRY(str_status(out, err));
    return put(r->to, begin, out->n, err);
}

/* The pieces of a are written anew into r->out, theirs into r->to. */
static sl_status rewrite(const tok *t, struct rewriting *r, const struct tok_cut *c,
                         const struct tok_pieces *a, sl_err *err)
{
    struct str *out = r->out;
    str_clear(out);
    for (size_t i = 0; i < a->n; i++) {
        struct tok_piece w = a->v[i];
        if (r->s->kind == TOK_STEP_MARK) {
            SL_TRY(put_marked(t, r, c, w, err));
            continue;
        }
        size_t begin = out->n;
        if (c->p[w.begin] != ' ') str_putc(out, ' ');
        str_put(out, c->p + w.begin, w.end - w.begin);
        SL_TRY(put(r->to, begin, out->n, err));
    }
    return str_status(out, err);
}

sl_status tok_pre_split(const tok *t, struct tok_cut *c, const char *p, size_t n, sl_err *err)
{
    struct tok_pieces *a = &c->v[0], *b = &c->v[1];
    int text = 0;
    a->n = 0;
    c->p = p;
    if (n > 0) SL_TRY(put(a, 0, n, err));
    for (int k = 0; k < t->n_step; k++) {
        const struct tok_step *s = &t->step[k];
        struct split d = {.s = s, .out = b};
        b->n = 0;
        if (!s->re) {
            struct rewriting r = {.s = s, .out = &c->text[text], .to = b};
            SL_TRY(rewrite(t, &r, c, a, err));
            c->p = str_c(&c->text[text]);
            c->zero = r.zero;
            text = !text;
        }
        for (size_t i = 0; s->re && i < a->n; i++)
            SL_TRY(split_piece(&d, c->m, c->p + a->v[i].begin, a->v[i].end - a->v[i].begin,
                               a->v[i].begin, err));
        struct tok_pieces *swap = a;
        a = b;
        b = swap;
    }
    c->out = a;
    return SL_OK;
}
