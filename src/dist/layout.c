/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts as users write them: "tp=2,ep=2,pp=2"; and what each of several ranks gets. */
#include <stdio.h>
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

/* "weight=3:2:1", n bytes of it. */
static sl_status weights(const char *at, size_t n, struct dist_layout *out, sl_err *err)
{
    const char *end = at + n;
    for (const char *p = at + strlen("weight"); p < end;) {
        char *next = NULL;
        long x = *++p >= '0' && *p <= '9' ? strtol(p, &next, 10) : 0;
        if (x < 1 || x > DIST_WEIGHT_MAX || next > end || (next < end && *next != ':'))
            return SL_FAIL(err, REQUEST,
                           "layout: '%.*s': weights are numbers from 1 to %d, with ':' between",
                           (int)BASE_MIN(n, 40), at, DIST_WEIGHT_MAX);
        if (out->n_weight == DIST_RANK_MAX)
            return SL_FAIL(err, REQUEST, "layout: '%.*s': at most %d ranks", (int)BASE_MIN(n, 40),
                           at, DIST_RANK_MAX);
        out->weight[out->n_weight++] = (uint16_t)x;
        p = next;
    }
    return SL_OK;
}

#define SEEN_WEIGHT (1u << BASE_COUNT_OF(keys))

/* seen: bits of the keys that were said before. */
static sl_status word(const char *at, size_t n, unsigned *seen, struct dist_layout *out,
                      sl_err *err)
{
    char w[48];
    size_t n_all = n;
    if (n >= sizeof w) n = sizeof w - 1;
    memcpy(w, at, n);
    w[n] = 0;
    const char *eq = strchr(w, '=');
    size_t n_key = eq ? (size_t)(eq - w) : n;
    if (is_key(w, n_key, "etp"))
        return SL_FAIL(err, REQUEST, "layout: '%s': it follows from the others, tp dp / ep: say ep",
                       w);
    if (eq && is_key(w, n_key, "weight")) {
        if (*seen & SEEN_WEIGHT)
            return SL_FAIL(err, REQUEST, "layout: '%s': weight is said already", w);
        *seen |= SEEN_WEIGHT;
        return weights(at, n_all, out, err);
    }
    for (int i = 0; i < BASE_COUNT_OF(keys); i++) {
        if (!eq || !is_key(w, n_key, keys[i].name)) continue;
        if (*seen >> i & 1)
            return SL_FAIL(err, REQUEST, "layout: '%s': %s is said already", w, keys[i].name);
        *seen |= 1u << i;
        return number(w, eq + 1, n - n_key - 1, (int *)(void *)((char *)out + keys[i].at), err);
    }
    return SL_FAIL(err, REQUEST, "layout: '%s': expected tp=N, dp=N, ep=N, pp=N or weight=N:N", w);
}

/* Experts are on groups of a stage's ranks, of as many each. */
static sl_status check_ep(const char *text, const struct dist_layout *l, sl_err *err)
{
    int n = l->tp * l->dp;
    char list[160] = "";
    if (n % l->ep == 0) return SL_OK;
    for (int i = 2; i <= n; i++) {
        size_t k = strlen(list);
        if (n % i == 0) snprintf(list + k, sizeof list - k, "%sep=%d", k ? ", " : "", i);
    }
    if (!*list)
        return SL_FAIL(err, REQUEST,
                       "layout: '%.40s': experts are spread over the ranks of a stage, and it has "
                       "one: tp=%d,ep=%d, or dp=%d,ep=%d",
                       text, l->ep, l->ep, l->ep, l->ep);
    return SL_FAIL(err, REQUEST,
                   "layout: '%.40s': experts are spread over groups of a stage's %d ranks: %s, or "
                   "no ep",
                   text, n, list);
}

/* Ranks of the same weight are alike. */
static sl_status check_weights(const char *text, struct dist_layout *l, sl_err *err)
{
    int n = l->tp * l->dp;
    bool alike = true;
    if (l->n_weight != n)
        return SL_FAIL(err, REQUEST, "layout: '%.60s': %d weight%s, a stage has %d rank%s", text,
                       l->n_weight, l->n_weight > 1 ? "s" : "", n, n > 1 ? "s" : "");
    for (int i = 1; i < n; i++)
        alike = alike && l->weight[i] == l->weight[0];
    if (alike) l->n_weight = 0;
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
    if (dist_layout_ranks(out) > DIST_RANK_MAX)
        return SL_FAIL(err, REQUEST, "layout: '%.40s': at most %d ranks", text, DIST_RANK_MAX);
    SL_TRY(check_ep(text, out, err));
    return out->n_weight ? check_weights(text, out, err) : SL_OK;
}

int dist_layout_ranks(const struct dist_layout *l)
{
    return l->tp * l->dp * l->pp;
}

bool dist_layout_spread(const struct dist_layout *l)
{
    return l->ep > 1 || l->dp > 1;
}

/* ---- shares ---- */

/* Units of each rank, into n: where all can have one, those whose share is less get it first, and
 * the others share the rest. */
static void by_weight(const struct dist_among *a, int64_t n_unit, int64_t *n)
{
    bool one[DIST_RANK_MAX] = {false}, again = n_unit >= a->n;
    int64_t units = n_unit, sum = 0, left;
    for (int r = 0; r < a->n; r++)
        sum += a->weight[r];
    while (again) {
        again = false;
        for (int r = 0; r < a->n; r++) {
            if (one[r] || units * a->weight[r] >= sum) continue;
            one[r] = again = true;
            units--;
            sum -= a->weight[r];
        }
    }
    left = units;
    for (int r = 0; r < a->n; r++) {
        n[r] = one[r] ? 1 : units * a->weight[r] / sum;
        left -= one[r] ? 0 : n[r];
    }
    for (; left > 0; left--) {
        int64_t most = -1;
        int to = 0;
        for (int r = 0; r < a->n; r++) {
            int64_t over = units * a->weight[r] - n[r] * sum;
            if (!one[r] && over > most) to = r, most = over;
        }
        n[to]++;
    }
}

int64_t dist_share(int64_t total, int64_t unit, const struct dist_among *a, int64_t *begin)
{
    int64_t n_unit = (total + unit - 1) / unit, n[DIST_RANK_MAX], at = 0, end;
    if (!a->weight) {
        at = n_unit * a->rank / a->n;
        end = n_unit * (a->rank + 1) / a->n;
    } else {
        by_weight(a, n_unit, n);
        for (int r = 0; r < a->rank; r++)
            at += n[r];
        end = at + n[a->rank];
    }
    *begin = BASE_MIN(total, at * unit);
    return BASE_MIN(total, end * unit) - *begin;
}
