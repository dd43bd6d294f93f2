/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts as users write them: "tp=2,ep=2,pp=2". */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "dist/dist.h"

static sl_status number(const char *word, const char *v, size_t n, int *out, sl_err *err)
{
    char *end;
    long x = strtol(v, &end, 10);
    if (end == v || *v == '-' || *v == '+' || end != v + n || x < 1)
        return SL_FAIL(err, REQUEST, "layout: '%.40s': a number from 1 on comes after '='", word);
    if (x > DIST_RANK_MAX)
        return SL_FAIL(err, REQUEST, "layout: '%.40s': at most %d ranks", word, DIST_RANK_MAX);
    *out = (int)x;
    return SL_OK;
}

/* Keys of a layout, and where their numbers go. */
static const struct {
    const char *name;
    size_t at;
} keys[] = {{"tp", offsetof(struct dist_layout, tp)},
            {"dp", offsetof(struct dist_layout, dp)},
            {"ep", offsetof(struct dist_layout, ep)},
            {"pp", offsetof(struct dist_layout, pp)}};

static bool is_key(const char *word, size_t n, const char *name)
{
    return n == strlen(name) && strncmp(word, name, n) == 0;
}

/* seen: bits of the keys that were said before. */
static sl_status word(const char *at, size_t n, unsigned *seen, struct dist_layout *out,
                      sl_err *err)
{
    static const char *const later[] = {"etp", "weight"};
    char w[48];
    if (n >= sizeof w) n = sizeof w - 1;
    memcpy(w, at, n);
    w[n] = 0;
    const char *eq = strchr(w, '=');
    size_t n_key = eq ? (size_t)(eq - w) : n;
    for (int i = 0; i < BASE_COUNT_OF(later); i++)
        if (is_key(w, n_key, later[i]))
            return SL_FAIL(err, UNSUPPORTED, "layout: '%s': there are only tp, dp, ep and pp yet",
                           w);
    for (int i = 0; i < BASE_COUNT_OF(keys); i++) {
        if (!eq || !is_key(w, n_key, keys[i].name)) continue;
        if (*seen >> i & 1)
            return SL_FAIL(err, REQUEST, "layout: '%s': %s is said already", w, keys[i].name);
        *seen |= 1u << i;
        return number(w, eq + 1, n - n_key - 1, (int *)(void *)((char *)out + keys[i].at), err);
    }
    return SL_FAIL(err, REQUEST, "layout: '%s': expected tp=N, dp=N, ep=N or pp=N", w);
}

/* Ranks with sequences of their own. */
static sl_status check_dp(const char *text, const struct dist_layout *l, sl_err *err)
{
    int n = l->tp * l->dp;
    if (l->ep == 1)
        return SL_FAIL(err, REQUEST,
                       "layout: '%.40s': every rank would hold the whole model: ep=%d spreads its "
                       "experts; whole ones are several engines (serve --attach)",
                       text, n);
    if (l->ep != n)
        return SL_FAIL(err, REQUEST,
                       "layout: '%.40s': experts are spread over all ranks of a stage: ep=%d", text,
                       n);
    return SL_OK;
}

sl_status dist_layout_parse(const char *text, struct dist_layout *out, sl_err *err)
{
    *out = (struct dist_layout){.tp = 1, .dp = 1, .ep = 1, .pp = 1};
    unsigned seen = 0;
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, ",");
        SL_TRY(word(p, n, &seen, out, err));
        p += n;
        if (*p == ',' && !*++p) return SL_FAIL(err, REQUEST, "layout: nothing comes after ','");
    }
    if (out->dp > 1) SL_TRY(check_dp(text, out, err));
    if (out->dp == 1 && out->ep > 1 && out->ep != out->tp)
        return SL_FAIL(err, REQUEST,
                       "layout: '%.40s': experts are spread over as many ranks as share the rest: "
                       "tp=%d,ep=%d, or no ep",
                       text, BASE_MAX(out->tp, out->ep), BASE_MAX(out->tp, out->ep));
    if (dist_layout_ranks(out) > DIST_RANK_MAX)
        return SL_FAIL(err, REQUEST, "layout: '%.40s': at most %d ranks", text, DIST_RANK_MAX);
    return SL_OK;
}

int dist_layout_ranks(const struct dist_layout *l)
{
    return l->tp * l->dp * l->pp;
}
