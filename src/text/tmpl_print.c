/* SPDX-License-Identifier: Apache-2.0 */
/* Values as text: Python's str() and repr(), and json.dumps. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/tmpl_internal.h"
#include "text/uni.h"
#include "text/utf8.h"

static sl_status puts_plain(struct tx *x, struct tb *b, const char *z)
{
    return text_tb_put(x, b, z, strlen(z), false);
}

static sl_status put_number(struct tx *x, struct tb *b, struct tv v)
{
    char buf[32];
    if (v.kind == TV_INT) {
        snprintf(buf, sizeof buf, "%lld", (long long)v.i);
    } else if (isfinite(v.f)) {
        text_real_repr(v.f, buf);
    } else {
        snprintf(buf, sizeof buf, "%s", isnan(v.f) ? "nan" : v.f > 0 ? "inf" : "-inf");
    }
    return puts_plain(x, b, buf);
}

static sl_status put_repr(struct tx *x, struct tb *b, const struct ts *s)
{
    char quote = memchr(s->p, '\'', s->n) && !memchr(s->p, '"', s->n) ? '"' : '\'';
    bool user = text_ts_user(s);
    SL_TRY(text_tb_put(x, b, &quote, 1, false));
    for (size_t i = 0; i < s->n;) {
        char buf[16];
        uint32_t cp;
        int k = text_utf8_decode(s->p + i, s->n - i, &cp);
        if (k == 0) return text_tx_fail(x, SL_REQUEST, "text is not UTF-8");
        if (cp == (uint32_t)quote || cp == '\\')
            snprintf(buf, sizeof buf, "\\%c", (int)cp);
        else if (cp == '\n' || cp == '\r' || cp == '\t')
            snprintf(buf, sizeof buf, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
        else if (text_uni_print(cp))
            buf[0] = 0;
        else
            snprintf(buf, sizeof buf,
                     cp < 0x100     ? "\\x%02x"
                     : cp < 0x10000 ? "\\u%04x"
                                    : "\\U%08x",
                     cp);
        if (buf[0])
            SL_TRY(text_tb_put(x, b, buf, strlen(buf), user));
        else
            SL_TRY(text_tb_ts(x, b, s, i, (size_t)k));
        SL_TRY(text_tx_cost(x, 1));
        i += (size_t)k;
    }
    return text_tb_put(x, b, &quote, 1, false);
}

static sl_status put(struct tx *x, struct tb *b, struct tv v, bool repr, int depth);

static sl_status put_items(struct tx *x, struct tb *b, struct tv v, int depth)
{
    bool dict = v.kind == TV_DICT;
    size_t n = dict ? v.d->n : v.l->n;
    SL_TRY(puts_plain(x, b, dict ? "{" : v.l->tuple ? "(" : "["));
    for (size_t i = 0; i < n; i++) {
        if (i > 0) SL_TRY(puts_plain(x, b, ", "));
        if (dict) {
            SL_TRY(put(x, b, v.d->v[i].key, true, depth + 1));
            SL_TRY(puts_plain(x, b, ": "));
        }
        SL_TRY(put(x, b, dict ? v.d->v[i].val : v.l->v[i], true, depth + 1));
    }
    return puts_plain(x, b, dict ? "}" : !v.l->tuple ? "]" : n == 1 ? ",)" : ")");
}

static sl_status put(struct tx *x, struct tb *b, struct tv v, bool repr, int depth)
{
    SL_TRY(text_tx_cost(x, 1));
    if (depth > TMPL_MAX_DATA) return text_tx_fail(x, SL_LIMIT, "values nested too deep");
    switch (v.kind) {
    case TV_UNDEF:
        return repr ? puts_plain(x, b, "Undefined") : SL_OK;
    case TV_NONE:
        return puts_plain(x, b, "None");
    case TV_BOOL:
        return puts_plain(x, b, v.b ? "True" : "False");
    case TV_INT:
    case TV_REAL:
        return put_number(x, b, v);
    case TV_STR:
        return repr ? put_repr(x, b, v.s) : text_tb_ts(x, b, v.s, 0, v.s->n);
    case TV_LIST:
        if (v.l->gen)
            return text_tx_fail(x, SL_REQUEST,
                                "a generator can not be printed: put `| list` after it");
        if (v.l->form != TL_PLAIN)
            return text_tx_fail(x, SL_REQUEST, "%s can not be printed: put `| list` after it",
                                text_tv_kind(v));
        return put_items(x, b, v, depth);
    case TV_DICT:
        return put_items(x, b, v, depth);
    default:
        return text_tx_fail(x, SL_REQUEST, "%s can not be printed", text_tv_kind(v));
    }
}

sl_status text_tv_put(struct tx *x, struct tb *b, struct tv v, bool repr)
{
    return put(x, b, v, repr, 0);
}

sl_status text_tv_str(struct tx *x, struct tv v, struct tv *out)
{
    struct tb b = {0};
    if (v.kind == TV_STR) {
        *out = v;
        return SL_OK;
    }
    SL_TRY(put(x, &b, v, false, 0));
    return text_tb_done(x, &b, out);
}

/* ---- json.dumps. What comes out counts as the user's. ---- */

struct dump {
    struct tx *x;
    struct tb *b;
    const struct tjson_opts *o;
};

static sl_status raw(struct dump *d, const char *z)
{
    return text_tb_put(d->x, d->b, z, strlen(z), true);
}

static sl_status dump_text(struct dump *d, const struct ts *s)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    SL_TRY(raw(d, "\""));
    SL_TRY(text_tx_cost(d->x, s->n / 8));
    for (size_t i = 0; i < s->n;) {
        size_t j = i;
        while (j < s->n && (unsigned char)s->p[j] >= 0x20 && s->p[j] != '"' && s->p[j] != '\\' &&
               !(d->o->ascii && (unsigned char)s->p[j] >= 0x7f))
            j++;
        SL_TRY(text_tb_put(d->x, d->b, s->p + i, j - i, true));
        i = j;
        if (i == s->n) break;
        char buf[16];
        uint32_t cp;
        int k = text_utf8_decode(s->p + i, s->n - i, &cp);
        if (k == 0) return text_tx_fail(d->x, SL_REQUEST, "text is not UTF-8");
        const char *hit = cp && cp < 0x80 ? strchr(from, (int)cp) : NULL;
        if (hit)
            snprintf(buf, sizeof buf, "\\%c", to[hit - from]);
        else if (cp == 0x7f)
            snprintf(buf, sizeof buf, "\x7f");
        else if (cp < 0x10000)
            snprintf(buf, sizeof buf, "\\u%04x", cp);
        else
            snprintf(buf, sizeof buf, "\\u%04x\\u%04x", 0xd800 + ((cp - 0x10000) >> 10),
                     0xdc00 + ((cp - 0x10000) & 0x3ff));
        SL_TRY(raw(d, buf));
        i += (size_t)k;
    }
    return raw(d, "\"");
}

static sl_status dump_key(struct dump *d, struct tv k)
{
    struct tb b = {0};
    struct tv s;
    switch (k.kind) {
    case TV_STR:
        return dump_text(d, k.s);
    case TV_NONE:
        return raw(d, "\"null\"");
    case TV_BOOL:
        return raw(d, k.b ? "\"true\"" : "\"false\"");
    case TV_INT:
    case TV_REAL:
        SL_TRY(put_number(d->x, &b, k));
        SL_TRY(text_tb_done(d->x, &b, &s));
        return dump_text(d, s.s);
    default:
        return text_tx_fail(d->x, SL_REQUEST, "tojson: %s can not be a key", text_tv_kind(k));
    }
}

static sl_status new_line(struct dump *d, int depth)
{
    if (d->o->indent < 0) return SL_OK;
    SL_TRY(raw(d, "\n"));
    for (int i = 0; i < depth * d->o->indent; i++)
        SL_TRY(raw(d, " "));
    return SL_OK;
}

static int by_key(const void *a, const void *b)
{
    const struct ts *x = ((const struct td_item *)a)->key.s,
                    *y = ((const struct td_item *)b)->key.s;
    int c = memcmp(x->p, y->p, BASE_MIN(x->n, y->n));
    return c ? c : (x->n > y->n) - (x->n < y->n);
}

static sl_status sorted(struct dump *d, const struct td *in, const struct td_item **out)
{
    void *mem = NULL;
    SL_TRY(text_tx_cost(d->x, in->n));
    SL_TRY(text_tx_mem(d->x, in->n + 1, sizeof *in->v, &mem));
    if (in->n) memcpy(mem, in->v, in->n * sizeof *in->v);
    for (size_t i = 0; i < in->n; i++)
        if (in->v[i].key.kind != TV_STR)
            return text_tx_fail(d->x, SL_REQUEST,
                                "tojson: keys that are no strings can not be sorted");
    qsort(mem, in->n, sizeof *in->v, by_key);
    *out = mem;
    return SL_OK;
}

static sl_status dump(struct dump *d, struct tv v, int depth);

static sl_status dump_items(struct dump *d, struct tv v, int depth)
{
    bool dict = v.kind == TV_DICT;
    size_t n = dict ? v.d->n : v.l->n;
    const struct td_item *item = dict ? v.d->v : NULL;
    if (n == 0) return raw(d, dict ? "{}" : "[]");
    if (dict && d->o->sort) SL_TRY(sorted(d, v.d, &item));
    SL_TRY(raw(d, dict ? "{" : "["));
    SL_TRY(new_line(d, depth + 1));
    for (size_t i = 0; i < n; i++) {
        if (i > 0) {
            const struct ts *sep = d->o->item_sep;
            if (sep)
                SL_TRY(text_tb_ts(d->x, d->b, sep, 0, sep->n));
            else
                SL_TRY(raw(d, d->o->indent < 0 ? ", " : ","));
            SL_TRY(new_line(d, depth + 1));
        }
        if (dict) {
            SL_TRY(dump_key(d, item[i].key));
            const struct ts *sep = d->o->key_sep;
            if (sep)
                SL_TRY(text_tb_ts(d->x, d->b, sep, 0, sep->n));
            else
                SL_TRY(raw(d, ": "));
        }
        SL_TRY(dump(d, dict ? item[i].val : v.l->v[i], depth + 1));
    }
    SL_TRY(new_line(d, depth));
    return raw(d, dict ? "}" : "]");
}

static sl_status dump(struct dump *d, struct tv v, int depth)
{
    struct tx *x = d->x;
    SL_TRY(text_tx_cost(x, 1));
    if (depth > TMPL_MAX_DATA) return text_tx_fail(x, SL_LIMIT, "tojson: values nested too deep");
    switch (v.kind) {
    case TV_NONE:
        return raw(d, "null");
    case TV_BOOL:
        return raw(d, v.b ? "true" : "false");
    case TV_REAL:
        if (!isfinite(v.f)) return raw(d, isnan(v.f) ? "NaN" : v.f > 0 ? "Infinity" : "-Infinity");
        return put_number(x, d->b, v);
    case TV_INT:
        return put_number(x, d->b, v);
    case TV_STR:
        return dump_text(d, v.s);
    case TV_LIST:
        if (v.l->gen || v.l->form != TL_PLAIN) break;
        return dump_items(d, v, depth);
    case TV_DICT:
        return dump_items(d, v, depth);
    default:
        break;
    }
    return text_tx_fail(x, SL_REQUEST, "tojson: %s is not data",
                        v.kind == TV_LIST && v.l->gen ? "a generator" : text_tv_kind(v));
}

sl_status text_tv_tojson(struct tx *x, struct tv v, const struct tjson_opts *o, struct tv *out)
{
    struct tb b = {0};
    struct dump d = {x, &b, o};
    SL_TRY(dump(&d, v, 0));
    return text_tb_done(x, &b, out);
}
