/* SPDX-License-Identifier: Apache-2.0 */
/* How often drafts were right, as `sluice bench --draft --json` measured. */
#include <string.h>

#include "plan/plan.h"
#include "text/json.h"

static const struct json *member(const struct json *o, const char *key, enum json_kind kind)
{
    const struct json *v = o->kind == JSON_OBJECT_K ? text_json_get(o, key) : NULL;
    return v && v->kind == kind ? v : NULL;
}

/* One row's, where it has more places than those before it, or as many and more drafts. */
static sl_status read_one(const struct json *row, struct plan_drafts *d, sl_err *err)
{
    const struct json *draft = member(row, "draft", JSON_OBJECT_K), *list;
    struct plan_drafts got = {0};
    int64_t drafted = 0;
    if (!draft || !(list = member(draft, "accepted_by_position", JSON_ARRAY_K))) return SL_OK;
    SL_TRY(text_json_int(draft, "drafted", 0, &drafted, err));
    if (list->n > PLAN_DRAFT_MAX)
        return SL_FAIL(err, FORMAT, "accepted_by_position: over %d places", PLAN_DRAFT_MAX);
    for (const struct json *v = list->child; v; v = v->next) {
        double x = v->kind == JSON_INT_K || v->kind == JSON_REAL_K ? v->f : -1;
        if (!(x >= 0 && x <= 1))
            return SL_FAIL(err, FORMAT, "accepted_by_position[%d]: from 0 to 1", got.n);
        got.right[got.n++] = x;
    }
    got.n_draft = drafted;
    if (got.n > d->n || (got.n == d->n && got.n_draft > d->n_draft)) *d = got;
    return SL_OK;
}

sl_status plan_read_drafts(struct plan_drafts *out, struct arena *a, struct plan_bytes b,
                           sl_err *err)
{
    const struct json *o = NULL;
    *out = (struct plan_drafts){0};
    SL_TRY(text_json_parse(a, b.name, b.p, b.n, &o, err));
    sl_status st = SL_OK;
    for (const struct json *v = o->kind == JSON_ARRAY_K ? o->child : NULL; v && !st; v = v->next)
        st = read_one(v, out, err);
    if (!st && !out->n) st = SL_FAIL(err, FORMAT, "no rows of sluice bench --draft --json");
    if (st) status_prefix(err, "%.150s", b.name);
    return st;
}

double plan_drafts_right(const struct plan_drafts *d, int k)
{
    double sum = 0, all = 1;
    for (int j = 0; j < k; j++) {
        all *= d->right[j < d->n ? j : d->n - 1];
        sum += all;
    }
    return sum;
}
