/* SPDX-License-Identifier: Apache-2.0 */
/* Normalisers: what happens to the text between added tokens before it is cut. Parts of a text are
 * normalised one after the other, so that it stays known who wrote which bytes. */
#include <string.h>

#include "base/size.h"
#include "text/nfc.h"
#include "text/utf8.h"
#include "tok/tok_internal.h"

/* zero: bytes of p that stand where all begins. What takes the place of something stands where its
 * last byte stood. */
static void replace(const struct tok_norm *x, struct tok_norm_state *s, struct tok_text in,
                    size_t zero, struct str *out)
{
    const char *p = in.p;
    size_t n = in.n;
    for (;;) {
        const char *hit = n >= x->n_a ? memmem(p, n, x->a, x->n_a) : NULL;
        size_t k = hit ? (size_t)(hit - p) : n;
        str_put(out, p, k);
        if (zero && k) s->out_zero = out->n - k + BASE_MIN(k, zero);
        if (!hit) return;
        k += x->n_a;
        str_put(out, x->b, x->n_b);
        if (zero >= k && x->n_b) s->out_zero = out->n;
        zero = zero > k ? zero - k : 0;
        p += k;
        n -= k;
    }
}

static bool begins_code_point(char c)
{
    return ((unsigned char)c & 0xc0) != 0x80;
}

/* A composed code point stands where its first one stood. */
static sl_status compose(struct tok_norm_state *s, struct tok_text in, size_t zero, struct str *out,
                         sl_err *err)
{
    size_t before = out->n, k = 0;
    if (zero) {
        SL_TRY(text_nfc(in.p, zero, out, err));
        SL_TRY(str_status(out, err));
        for (size_t i = before; i < out->n; i++)
            k += begins_code_point(out->p[i]);
        str_cut(out, before);
    }
    SL_TRY(text_nfc(in.p, in.n, out, err));
    SL_TRY(str_status(out, err));
    if (!zero) return SL_OK;
    s->out_zero = before;
    while (s->out_zero < out->n && (k > 0 || !begins_code_point(out->p[s->out_zero])))
        k -= begins_code_point(out->p[s->out_zero++]);
    return SL_OK;
}

/* ---- SentencePiece ---- */

/* The longest text at p[0..n) that the map of characters has: its bytes, 0 = none; *to: what it
 * becomes. A node's children are reached by its offset and their byte; a leaf holds where the
 * new text begins. */
static size_t mapped(const struct tok_spm *s, const char *p, size_t n, const char **to)
{
    size_t best = 0;
    if (!s->n_unit) return 0;
    uint32_t at = 0, u = s->unit[0];
    at ^= (u >> 10) << ((u & 0x200) >> 6);
    for (size_t i = 0; i < n; i++) {
        at ^= (unsigned char)p[i];
        if (at >= s->n_unit) break;
        u = s->unit[at];
        if ((u & 0x800000ffu) != (unsigned char)p[i]) break;
        at ^= (u >> 10) << ((u & 0x200) >> 6);
        if (!(u & 0x100) || at >= s->n_unit) continue;
        uint32_t leaf = s->unit[at] & 0x7fffffff;
        if (leaf >= s->n_text) continue;
        best = i + 1;
        *to = s->text + leaf;
    }
    return best;
}

static void put_spaced(const tok *t, const char *p, size_t n, struct str *out)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] == ' ')
            str_puts(out, t->mark);
        else
            str_putc(out, p[i]);
}

static void spm_part(const tok *t, struct tok_norm_state *s, const char *p, size_t n,
                     struct str *out)
{
    const struct tok_spm *x = &t->spm;
    while (n > 0) {
        const char *to = p;
        uint32_t id = 0, cp = 0;
        size_t k = t->norm.n ? tok_trie_match(t, &t->norm, p, n, n, &id) : 0, len = k;
        if (!k && (k = mapped(x, p, n, &to)) > 0) len = strlen(to);
        if (!k) k = len = (size_t)text_utf8_decode(p, n, &cp);
        p += k;
        n -= k;
        if (!s->begun) {
            if (x->squeeze && len == 1 && *to == ' ') continue;
            if (x->prefix == TOK_PREPEND_ALWAYS || (x->prefix == TOK_PREPEND_FIRST && s->head))
                str_puts(out, t->mark);
            s->begun = true;
            s->space = x->squeeze;
        }
        while (x->squeeze && s->space && len > 0 && *to == ' ')
            to++, len--;
        if (len == 0) continue; /* of nothing, or of spaces that do not count */
        put_spaced(t, to, len, out);
        s->space = to[len - 1] == ' ';
    }
}

/* ---- steps ---- */
sl_status tok_norm_part(const tok *t, int k, struct tok_norm_state *s, struct tok_text in,
                        struct str *out, sl_err *err)
{
    const struct tok_norm *x = &t->norm_step[k];
    size_t n = in.n, zero = BASE_MIN(s->zero, n);
    if (n == 0) return SL_OK;
    s->zero -= zero;
    switch (x->kind) {
    case TOK_NORM_NFC:
        SL_TRY(compose(s, in, zero, out, err));
        break;
    case TOK_NORM_PREPEND:
        if (!s->begun) str_put(out, x->a, x->n_a);
        str_put(out, in.p, n);
        if (zero) s->out_zero = out->n - n + zero;
        break;
    case TOK_NORM_REPLACE:
        replace(x, s, in, zero, out);
        break;
    case TOK_NORM_SPM:
        spm_part(t, s, in.p, n, out);
        return str_status(out, err);
    }
    s->begun = true;
    return str_status(out, err);
}

void tok_norm_end(const tok *t, int k, const struct tok_norm_state *s, struct str *out)
{
    size_t m = strlen(t->mark);
    if (t->norm_step[k].kind != TOK_NORM_SPM || !t->spm.squeeze || !s->begun) return;
    while (out->n >= m && memcmp(out->p + out->n - m, t->mark, m) == 0)
        str_cut(out, out->n - m);
}

sl_status tok_norm_text(const tok *t, const char *p, size_t n, struct str *out, sl_err *err)
{
    struct str a, b;
    sl_status st = SL_OK;
    str_init(&a, MEM_TOK, 0);
    str_init(&b, MEM_TOK, 0);
    str_put(&a, p, n);
    for (int k = 0; k < t->n_norm && !st; k++) {
        struct tok_norm_state s = {0};
        if (t->norm_step[k].kind == TOK_NORM_SPM) continue;
        str_clear(&b);
        st = tok_norm_part(t, k, &s, (struct tok_text){str_c(&a), (uint32_t)a.n}, &b, err);
        struct str swap = a;
        a = b;
        b = swap;
    }
    if (!st) st = str_status(&a, err);
    if (!st) str_put(out, str_c(&a), a.n);
    str_fini(&a);
    str_fini(&b);
    return st ? st : str_status(out, err);
}

/* ---- reading ---- */
static sl_status keep(tok *t, const struct json *v, const char **p, size_t *n, sl_err *err)
{
    char *text = NULL;
    if (!v) return SL_OK;
    SL_TRY(mem_arena_str(&t->a, v->s, v->n, &text, err));
    *p = text;
    *n = v->n;
    return SL_OK;
}

sl_status tok_norm_add(tok *t, enum tok_norm_kind kind, const struct json *a, const struct json *b,
                       sl_err *err)
{
    if (t->n_norm == TOK_MAX_NORM)
        return SL_FAIL(err, LIMIT, "normalizer with more than %d steps", TOK_MAX_NORM);
    struct tok_norm *x = &t->norm_step[t->n_norm];
    *x = (struct tok_norm){.kind = kind, .a = "", .b = ""};
    SL_TRY(keep(t, a, &x->a, &x->n_a, err));
    SL_TRY(keep(t, b, &x->b, &x->n_b, err));
    t->n_norm++;
    return SL_OK;
}

static sl_status json_step(tok *t, const struct json *j, sl_err *err)
{
    const struct json *type = text_json_get(j, "type"), *a = text_json_get(j, "prepend"),
                      *b = text_json_get(j, "content");
    if (text_json_is(type, "NFC")) return tok_norm_add(t, TOK_NORM_NFC, NULL, NULL, err);
    if (text_json_is(type, "Prepend")) {
        if (!a || a->kind != JSON_STR_K)
            return SL_FAIL(err, FORMAT, "normalizer Prepend without prepend");
        return tok_norm_add(t, TOK_NORM_PREPEND, a, NULL, err);
    }
    if (text_json_is(type, "Replace")) {
        a = text_json_get(text_json_get(j, "pattern"), "String");
        if (!a || a->kind != JSON_STR_K || a->n == 0)
            return SL_FAIL(err, UNSUPPORTED, "normalizer Replace of anything but a String");
        if (!b || b->kind != JSON_STR_K)
            return SL_FAIL(err, FORMAT, "normalizer Replace without content");
        return tok_norm_add(t, TOK_NORM_REPLACE, a, b, err);
    }
    return SL_FAIL(err, UNSUPPORTED, "normalizer \"%.40s\"",
                   type && type->kind == JSON_STR_K ? type->s : "?");
}

sl_status tok_norm_json(tok *t, const struct json *j, sl_err *err)
{
    if (!j || j->kind == JSON_NULL_K) return SL_OK;
    const struct json *list = text_json_get(j, "normalizers");
    if (!text_json_is(text_json_get(j, "type"), "Sequence")) return json_step(t, j, err);
    if (!list || list->kind != JSON_ARRAY_K)
        return SL_FAIL(err, FORMAT, "normalizer Sequence without normalizers");
    for (size_t i = 0; i < list->n; i++)
        SL_TRY(json_step(t, list->item[i], err));
    return SL_OK;
}

sl_status tok_norm_charsmap(tok *t, const char *p, size_t n, sl_err *err)
{
    uint32_t size = 0;
    if (n == 0) return SL_OK;
    if (n >= 4) memcpy(&size, p, 4);
    if (n < 8 || size % 4 || size < 4 || size > n - 5 || p[n - 1])
        return SL_FAIL(err, FORMAT, "precompiled_charsmap of %zu bytes is malformed", n);
    t->spm.unit = (const uint32_t *)(const void *)(p + 4);
    t->spm.n_unit = size / 4;
    t->spm.text = p + 4 + size;
    t->spm.n_text = (uint32_t)(n - 4 - size);
    return SL_OK;
}
