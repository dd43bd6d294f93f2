/* SPDX-License-Identifier: Apache-2.0 */
/* What Python does with text: case, strip, replace, lines, join; every byte keeps its origin. */
#include <string.h>

#include "text/tmpl_internal.h"
#include "text/uni.h"
#include "text/utf8.h"

/* One code point's mapping: several where Python has several. */
static int map_case(uint32_t cp, enum tcase how, bool after_cased, bool before_cased,
                    uint32_t out[3])
{
    static const struct {
        uint32_t from, to[3];
    } upper[] = {{0xdf, {'S', 'S'}},        {0x149, {0x2bc, 'N'}},     {0x1f0, {'J', 0x30c}},
                 {0xfb00, {'F', 'F'}},      {0xfb01, {'F', 'I'}},      {0xfb02, {'F', 'L'}},
                 {0xfb03, {'F', 'F', 'I'}}, {0xfb04, {'F', 'F', 'L'}}, {0xfb05, {'S', 'T'}},
                 {0xfb06, {'S', 'T'}},      {0x587, {0x535, 0x552}}};
    if (how != CASE_LOWER && cp >= upper[0].from) /* the least */
        for (int i = 0; i < BASE_COUNT_OF(upper); i++)
            if (upper[i].from == cp) {
                int n = upper[i].to[2] ? 3 : 2;
                memcpy(out, upper[i].to, sizeof upper[i].to);
                for (int k = 1; k < n && how == CASE_TITLE; k++)
                    out[k] = text_uni_lower(out[k]);
                return n;
            }
    if (how == CASE_LOWER && cp == 0x130) {
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    if (how == CASE_LOWER && cp == 0x3a3 && after_cased && !before_cased) {
        out[0] = 0x3c2; /* final sigma */
        return 1;
    }
    out[0] = how == CASE_UPPER   ? text_uni_upper(cp)
             : how == CASE_LOWER ? text_uni_lower(cp)
                                 : text_uni_title(cp);
    return 1;
}

static bool jinja_word_break(uint32_t cp)
{
    return text_uni_space(cp) || cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<';
}

sl_status text_ts_case(struct tx *x, const struct ts *s, enum tcase how, struct tv *out)
{
    struct tb b = {0};
    bool after_cased = false, first = true;
    SL_TRY(text_tx_cost(x, s->n / 4));
    for (size_t i = 0; i < s->n;) {
        uint32_t cp, next = 0, to[3];
        int k = text_utf8_decode(s->p + i, s->n - i, &cp);
        if (k == 0) return text_tx_fail(x, SL_REQUEST, "text is not UTF-8");
        if (i + (size_t)k < s->n &&
            text_utf8_decode(s->p + i + k, s->n - i - (size_t)k, &next) == 0)
            next = 0;
        enum tcase one = how;
        if (how == CASE_TITLE) one = after_cased ? CASE_LOWER : CASE_TITLE;
        if (how == CASE_CAPITAL) one = first ? CASE_TITLE : CASE_LOWER;
        if (how == CASE_JINJA_TITLE) one = first ? CASE_UPPER : CASE_LOWER;
        int n = map_case(cp, one, after_cased, text_uni_cased(next), to);
        bool user = s->mask ? s->mask[i] : s->user;
        for (int j = 0; j < n; j++) {
            char buf[TEXT_UTF8_MAX];
            SL_TRY(text_tb_put(x, &b, buf, (size_t)text_utf8_encode(to[j], buf), user));
        }
        after_cased = text_uni_cased(cp);
        first = how == CASE_JINJA_TITLE && jinja_word_break(cp);
        i += (size_t)k;
    }
    SL_TRY(text_tb_done(x, &b, out));
    return s->markup && how != CASE_JINJA_TITLE ? text_ts_mark(x, out) : SL_OK;
}

static bool in_set(const struct ts *chars, uint32_t cp)
{
    if (!chars) return text_uni_space(cp);
    for (size_t i = 0; i < chars->n;) {
        uint32_t c;
        int k = text_utf8_decode(chars->p + i, chars->n - i, &c);
        if (k == 0) return false;
        if (c == cp) return true;
        i += (size_t)k;
    }
    return false;
}

sl_status text_ts_strip(struct tx *x, const struct ts *s, const struct ts *chars, int sides,
                        struct tv *out)
{
    size_t a = 0, b = s->n, per = chars ? chars->n / 8 + 1 : 1;
    uint32_t cp;
    while ((sides & 1) && a < b) {
        int k = text_utf8_decode(s->p + a, b - a, &cp);
        SL_TRY(text_tx_cost(x, per));
        if (k == 0 || !in_set(chars, cp)) break;
        a += (size_t)k;
    }
    while ((sides & 2) && b > a) {
        size_t i = b - 1;
        while (i > a && ((unsigned char)s->p[i] & 0xc0) == 0x80)
            i--;
        SL_TRY(text_tx_cost(x, per));
        if (text_utf8_decode(s->p + i, b - i, &cp) == 0 || !in_set(chars, cp)) break;
        b = i;
    }
    return text_ts_sub(x, s, a, b - a, out);
}

sl_status text_ts_replace(struct tx *x, const struct ts *s, const struct ts *old,
                          const struct ts *by, int64_t count, struct tv *out)
{
    struct tb b = {0};
    size_t at = 0;
    SL_TRY(text_tx_cost(x, s->n / 16));
    while (count != 0) {
        const char *hit;
        if (old->n == 0) { /* before every code point, and at the end */
            hit = s->p + at;
        } else {
            hit = memmem(s->p + at, s->n - at, old->p, old->n);
            if (!hit) break;
        }
        size_t i = (size_t)(hit - s->p);
        SL_TRY(text_tx_cost(x, 1));
        SL_TRY(text_tb_ts(x, &b, s, at, i - at));
        SL_TRY(text_tb_ts(x, &b, by, 0, by->n));
        at = i + old->n;
        if (count > 0) count--;
        if (old->n > 0) continue;
        if (at == s->n) break;
        size_t k = at + 1;
        while (k < s->n && ((unsigned char)s->p[k] & 0xc0) == 0x80)
            k++;
        SL_TRY(text_tb_ts(x, &b, s, at, k - at));
        at = k;
    }
    SL_TRY(text_tb_ts(x, &b, s, at, s->n - at));
    return text_tb_done(x, &b, out);
}

sl_status text_ts_lines(struct tx *x, const struct ts *s, bool keep, struct tv *out)
{
    size_t from = 0;
    struct tv line;
    SL_TRY(text_tl_new(x, 0, out));
    SL_TRY(text_tx_cost(x, s->n / 8));
    for (size_t i = 0; i < s->n;) {
        uint32_t cp;
        int k = text_utf8_decode(s->p + i, s->n - i, &cp);
        if (k == 0) k = 1, cp = 0;
        size_t end = i;
        i += (size_t)k;
        if (!((cp >= 10 && cp <= 13) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 ||
              cp == 0x2029))
            continue;
        if (cp == '\r' && i < s->n && s->p[i] == '\n') i++;
        SL_TRY(text_ts_sub(x, s, from, (keep ? i : end) - from, &line));
        SL_TRY(text_tl_put(x, out->l, line));
        from = i;
    }
    if (from == s->n) return SL_OK;
    SL_TRY(text_ts_sub(x, s, from, s->n - from, &line));
    return text_tl_put(x, out->l, line);
}

sl_status text_ts_join(struct tx *x, const struct ts *sep, const struct tl *l, bool only_str,
                       struct tv *out)
{
    struct tb b = {0};
    for (size_t i = 0; i < l->n; i++) {
        if (i > 0) SL_TRY(text_tb_ts(x, &b, sep, 0, sep->n));
        if (only_str && l->v[i].kind != TV_STR)
            return text_tx_fail(x, SL_REQUEST, "join of %s", text_tv_kind(l->v[i]));
        SL_TRY(text_tv_put(x, &b, l->v[i], false));
    }
    return text_tb_done(x, &b, out);
}
