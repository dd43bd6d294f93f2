/* SPDX-License-Identifier: Apache-2.0 */
/* Which experts were chosen, as the engine counted (the file of --expert-stats): how many different
 * ones a batch reads. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plan/plan.h"
#include "text/json.h"

#define MAX_LAYERS 4096

/* Shares of one layer: how likely a token chooses each expert. */
static sl_status read_layer(const struct json *layer, struct plan_counts *c, float *share,
                            sl_err *err)
{
    const struct json *counts = text_json_get(layer, "counts");
    double sum = 0;
    if (!counts || counts->kind != JSON_ARRAY_K || counts->n != (size_t)c->n_expert)
        return SL_FAIL(err, FORMAT, "counts of %d experts are expected", c->n_expert);
    int i = 0;
    for (const struct json *v = counts->child; v; v = v->next, i++) {
        if (v->kind != JSON_INT_K || v->i < 0)
            return SL_FAIL(err, FORMAT, "counts[%d] is no number of tokens", i);
        sum += (double)v->i;
    }
    i = 0;
    for (const struct json *v = counts->child; v; v = v->next, i++)
        share[i] = sum > 0 ? (float)fmin(1, (double)v->i * c->n_used / sum)
                           : (float)c->n_used / (float)c->n_expert;
    return SL_OK;
}

/* Distinct experts of tokens in a row, which only some files have. */
static sl_status read_row(const struct json *list, struct plan_counts *c, sl_err *err)
{
    double before = 0;
    if (!list) return SL_OK;
    if (list->kind != JSON_ARRAY_K || list->n > PLAN_ROW_MAX)
        return SL_FAIL(err, FORMAT, "in_row: is no list of at most %d numbers", PLAN_ROW_MAX);
    for (const struct json *v = list->child; v; v = v->next) {
        double x = v->kind == JSON_INT_K || v->kind == JSON_REAL_K ? v->f : 0;
        if (!(x >= before && x > 0 && x <= c->n_expert))
            return SL_FAIL(err, FORMAT, "in_row[%d]: is no rising number of experts", c->n_row);
        c->in_row[c->n_row++] = before = x;
    }
    return SL_OK;
}

static sl_status read_all(const struct json *o, struct arena *a, struct plan_counts *c, sl_err *err)
{
    const struct json *layers = text_json_get(o, "layers");
    int64_t n = 0, used = 0;
    void *p = NULL;
    SL_TRY(text_json_int(o, "experts", 0, &n, err));
    SL_TRY(text_json_int(o, "used", 0, &used, err));
    if (n < 1 || n > 65536 || used < 1 || used > n || !layers || layers->kind != JSON_ARRAY_K ||
        layers->n < 1 || layers->n > MAX_LAYERS)
        return SL_FAIL(err, FORMAT, "no file of --expert-stats");
    *c = (struct plan_counts){.n_layer = (int)layers->n, .n_expert = (int)n, .n_used = (int)used};
    SL_TRY(read_row(text_json_get(o, "in_row"), c, err));
    SL_TRY(mem_arena_array(a, layers->n * (size_t)n, sizeof(float), &p, err));
    float *share = p;
    c->share = share;
    for (const struct json *l = layers->child; l; l = l->next, share += n) {
        sl_status st = read_layer(l, c, share, err);
        if (st) status_prefix(err, "layers[%d]", (int)((share - c->share) / n));
        SL_TRY(st);
    }
    return SL_OK;
}

sl_status plan_read_counts(struct plan_counts *out, struct arena *a, struct plan_bytes b,
                           sl_err *err)
{
    const struct json *o = NULL;
    SL_TRY(text_json_parse(a, b.name, b.p, b.n, &o, err));
    sl_status st = read_all(o, a, out, err);
    if (st) status_prefix(err, "%.150s", b.name);
    return st;
}

double plan_counts_read(const struct plan_counts *c, double n_tok)
{
    double sum = 0;
    for (int64_t i = 0; i < (int64_t)c->n_layer * c->n_expert; i++)
        sum += 1 - pow(1 - (double)c->share[i], n_tok);
    return sum / c->n_layer;
}

double plan_counts_apart(const struct plan_counts *c, int n_tok)
{
    double lo = 0, hi = n_tok;
    if (n_tok < 2 || n_tok > c->n_row || plan_counts_read(c, n_tok) <= c->in_row[n_tok - 1])
        return n_tok;
    for (int i = 0; i < 50; i++) {
        double mid = 0.5 * (lo + hi);
        if (plan_counts_read(c, mid) < c->in_row[n_tok - 1])
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

double plan_counts_top(const struct plan_counts *c, int n)
{
    double sum = 0, all = 0;
    for (int l = 0; l < c->n_layer; l++) {
        const float *share = c->share + (int64_t)l * c->n_expert;
        for (int i = 0; i < c->n_expert; i++) {
            int before = 0; /* those that come first in the order by load */
            for (int k = 0; k < c->n_expert; k++)
                before += share[k] > share[i] || (share[k] == share[i] && k < i);
            all += share[i];
            if (before < n) sum += share[i];
        }
    }
    return all > 0 ? sum / all : 0;
}
