/* SPDX-License-Identifier: Apache-2.0 */
/* Two tokenizers side by side: what they say of a thousand texts, their end tokens, their
 * templates. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "quant/quant_internal.h"
#include "text/json.h"
#include "text/utf8.h"
#include "tok/tok.h"

void quant_note(struct quant_report *rep, const char *fmt, ...)
{
    va_list ap;
    if (rep->n_note == QUANT_MAX_NOTE) {
        rep->n_more = rep->n_more ? rep->n_more + 1 : 2;
        snprintf(rep->note[QUANT_MAX_NOTE - 1], QUANT_NOTE, "and %d more", rep->n_more);
        return;
    }
    va_start(ap, fmt);
    vsnprintf(rep->note[rep->n_note++], QUANT_NOTE, fmt, ap);
    va_end(ap);
}

void quant_note_name(struct quant_names *x, const char *name)
{
    size_t n = strlen(x->list), more = name ? strlen(name) : 0;
    if (n && (!name || n + more + 2 >= sizeof x->list)) {
        quant_note(x->rep, "%s%s%s", x->head, x->list, x->tail);
        x->list[n = 0] = 0;
    }
    if (name) snprintf(x->list + n, sizeof x->list - n, "%s%.80s", n ? ", " : "", name);
}

/* ---- texts ---- */

/* Code points that scripts and marks are drawn from. */
static const struct {
    uint32_t from, to;
} range[] = {{0x20, 0x7e},     {0x30, 0x39},     {0xa0, 0xff},       {0x100, 0x17f},
             {0x300, 0x36f},   {0x391, 0x3c9},   {0x410, 0x44f},     {0x5d0, 0x5ea},
             {0x621, 0x64a},   {0x660, 0x669},   {0x905, 0x939},     {0xe01, 0xe2e},
             {0xac00, 0xad00}, {0x3041, 0x30fa}, {0x4e00, 0x4f00},   {0x2000, 0x2060},
             {0x2190, 0x2200}, {0xff01, 0xff5e}, {0x1f300, 0x1f640}, {0x1d400, 0x1d420},
             {0xfe00, 0xfe0f}};

static const char *const bits[] = {" ",
                                   "  ",
                                   "\t",
                                   "\n",
                                   "\r\n",
                                   "\n\n\n",
                                   " \n ",
                                   "\xc2\xa0",
                                   "\xe3\x80\x80",
                                   "\xe2\x80\x8b",
                                   "'s",
                                   "'LL",
                                   "don't",
                                   "I'm",
                                   "12",
                                   "3456",
                                   "7890123",
                                   "3.14",
                                   "1,000",
                                   "x = y[0];",
                                   "{\n    ",
                                   "</",
                                   "->",
                                   "!!!",
                                   "...",
                                   "\"",
                                   "http://a.b/c?d=e",
                                   "_",
                                   "A",
                                   "the",
                                   " the",
                                   "The",
                                   "CamelCase",
                                   "\xc3\xa9",
                                   "e\xcc\x81",
                                   "\xef\xac\x81",
                                   "\xe2\x84\xab"};

/* A special or other token's text as it is, of either tokenizer; "" for a hole or half a
 * character. */
static void put_token(struct str *s, const tok *t, int32_t id)
{
    int n = 0;
    const char *p = tok_bytes(t, id, &n);
    if (p && n && text_utf8_check(p, (size_t)n) == (size_t)n) str_put(s, p, (size_t)n);
}

static int32_t special_from(const tok *t, uint64_t from)
{
    int n = tok_n_vocab(t);
    for (int i = 0; i < n; i++) {
        int32_t id = (int32_t)((from + (uint64_t)i) % (uint64_t)n);
        if (tok_is_special(t, id)) return id;
    }
    return -1;
}

/* Probe i: pieces of the vocabulary, special tokens between blanks, scripts, white space. */
static void make_text(const tok *t, int i, struct str *s)
{
    uint64_t r = 0x5eed + (uint64_t)i * 0x10001;
    int n = 1 + (int)(rng_next(&r) % 14);
    str_clear(s);
    for (int k = 0; k < n; k++) {
        uint64_t x = rng_next(&r);
        int kind = (int)(x % 10);
        x >>= 8;
        if (kind < 4)
            put_token(s, t, (int32_t)(x % (uint64_t)tok_n_vocab(t)));
        else if (kind < 5)
            put_token(s, t, special_from(t, x));
        else if (kind < 8)
            str_puts(s, bits[x % BASE_COUNT_OF(bits)]);
        else {
            int q = (int)(x % BASE_COUNT_OF(range));
            for (int j = 0; j < 4; j++) {
                char buf[TEXT_UTF8_MAX];
                uint32_t cp =
                    range[q].from + (uint32_t)(rng_next(&r) % (range[q].to - range[q].from + 1));
                str_put(s, buf, (size_t)text_utf8_encode(cp, buf));
            }
        }
    }
    str_put(s, "", 0);
}

/* Do both give the text the same ids, its special tokens taken as such or not? */
static sl_status same_ids(const tok *a, const tok *b, const struct str *s, int flags, bool *same,
                          sl_err *err)
{
    struct tok_ids x = {0}, y = {0};
    sl_status st = tok_encode(a, str_c(s), s->n, flags, &x, err);
    if (!st) st = tok_encode(b, str_c(s), s->n, flags, &y, err);
    *same =
        *same && x.n == y.n && (x.n == 0 || memcmp(x.id, y.id, (size_t)x.n * sizeof *x.id) == 0);
    mem_free(x.id);
    mem_free(y.id);
    return st;
}

static sl_status probe(const tok *a, const tok *b, struct quant_report *rep, sl_err *err)
{
    struct str s;
    sl_status st = SL_OK;
    str_init(&s, MEM_MISC, 0);
    for (int i = 0; i < QUANT_PROBES && !st; i++) {
        bool same = true;
        int around = (tok_add_bos(a) ? TOK_BOS : 0) | (tok_add_eos(a) ? TOK_EOS : 0);
        int other = (tok_add_bos(b) ? TOK_BOS : 0) | (tok_add_eos(b) ? TOK_EOS : 0);
        make_text(a, i, &s);
        st = str_status(&s, err);
        if (!st) st = same_ids(a, b, &s, 0, &same, err);
        if (!st) st = same_ids(a, b, &s, TOK_SPECIAL | around, &same, err);
        rep->n_probe++;
        if (st || (same && around == other)) continue;
        if (rep->n_probe_diff++) continue;
        struct str q;
        str_init(&q, MEM_MISC, 0);
        text_json_escape(&q, str_c(&s), s.n);
        snprintf(rep->probe, sizeof rep->probe, "%.*s",
                 (int)text_utf8_check(str_c(&q), BASE_MIN(q.n, sizeof rep->probe - 1)), str_c(&q));
        str_fini(&q);
    }
    str_fini(&s);
    return st;
}

/* ---- what else they say ---- */

struct both {
    const tok *t[2];
    const char *const *name;
    struct quant_report *rep;
};

static void compare_id(const struct both *x, const char *what, int32_t a, int32_t b)
{
    if (a != b) quant_note(x->rep, "%s: %d in %s, %d in %s", what, a, x->name[0], b, x->name[1]);
}

static void compare_templates(const struct both *x)
{
    for (int side = 0; side < 2; side++) {
        const struct tok_named *k, *o;
        for (int i = 0; (k = tok_template_at(x->t[side], i)); i++) {
            const char *name = *k->name ? k->name : "default";
            int j = 0;
            while ((o = tok_template_at(x->t[!side], j++)))
                if (strcmp(*o->name ? o->name : "default", name) == 0) break;
            if (!o)
                quant_note(x->rep, "chat template %.60s: only in %s", name, x->name[side]);
            else if (!side && (o->n != k->n || memcmp(o->text, k->text, k->n) != 0))
                quant_note(x->rep, "chat template %.60s: %zu bytes in %s, others (%zu bytes) in %s",
                           name, k->n, x->name[0], o->n, x->name[1]);
        }
    }
}

/* Tokens that one of them alone has: padding, which has no bytes, is none. */
static int count_bans(const tok *t)
{
    int n = 0;
    for (int i = 0; i < tok_n_vocab(t); i++)
        n += tok_is_banned(t, i);
    return n;
}

static void compare_size(const struct both *x)
{
    int n[2] = {0, 0}, len;
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < tok_n_vocab(x->t[side]); i++)
            n[side] += tok_bytes(x->t[side], i, &len) && len;
    compare_id(x, "tokens", n[0], n[1]);
}

static void compare_ends(const struct both *x)
{
    for (int i = 0; i < BASE_MAX(tok_n_vocab(x->t[0]), tok_n_vocab(x->t[1])); i++) {
        bool a = tok_is_eog(x->t[0], i), b = tok_is_eog(x->t[1], i);
        if (a != b) quant_note(x->rep, "end token %d: only in %s", i, x->name[!a]);
    }
}

sl_status quant_compare_text(const io_model *ma, const io_model *mb, const char *const name[2],
                             struct quant_report *rep, sl_err *err)
{
    tok *t[2] = {NULL, NULL};
    const io_model *m[2] = {ma, mb};
    sl_err why[2] = {{0}, {0}};
    sl_status st = SL_OK;
    for (int i = 0; i < 2; i++) {
        st = tok_open(m[i], &t[i], &why[i]);
        if (st != SL_NOMEM) continue;
        if (err) *err = why[i];
        goto out;
    }
    st = SL_OK;
    if (!t[0] != !t[1])
        quant_note(rep, "tokenizer: only in %s: %.150s", name[!t[0]], why[!t[1]].text);
    if (!t[0] || !t[1]) goto out;
    struct both x = {{t[0], t[1]}, name, rep};
    compare_size(&x);
    compare_id(&x, "BOS", tok_bos(t[0]), tok_bos(t[1]));
    compare_id(&x, "EOS", tok_eos(t[0]), tok_eos(t[1]));
    compare_id(&x, "BOS before raw text", tok_add_bos(t[0]), tok_add_bos(t[1]));
    compare_id(&x, "EOS after raw text", tok_add_eos(t[0]), tok_add_eos(t[1]));
    compare_ends(&x);
    compare_id(&x, "tokens that are never drawn", count_bans(t[0]), count_bans(t[1]));
    compare_templates(&x);
    st = probe(t[0], t[1], rep, err);
out:
    tok_close(t[0]);
    tok_close(t[1]);
    return st;
}
