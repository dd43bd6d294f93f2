/* SPDX-License-Identifier: Apache-2.0 */
/* Cross-validation: a whole model or device is left out, everything is fitted on the rest, and its
 * rows are predicted. */
#include <math.h>
#include <string.h>

#include "plan/calib.h"

static const char *name_of(const struct plan_item *it, enum plan_leave what)
{
    return what == PLAN_LEAVE_MODEL ? it->s.c.model->name : it->s.dev.name;
}

static bool counts(const struct plan_item *it)
{
    return !it->skip && it->role != PLAN_ROLE_SKIP && it->s.metric != PLAN_M_MEMORY;
}

/* Fit without the rows called name, then predict them. */
static void leave(struct plan_book *b, struct plan_data *d, enum plan_leave what, const char *name)
{
    for (int i = 0; i < d->n; i++) {
        struct plan_item *it = &d->item[i];
        it->left = counts(it) && !strcmp(name_of(it, what), name);
        it->kept_role = it->role;
        if (it->left) it->role = PLAN_ROLE_HELD;
    }
    plan_book_init(b);
    plan_fit_book(b, d);
    for (int i = 0; i < d->n; i++) {
        struct plan_item *it = &d->item[i];
        it->role = it->kept_role;
        if (!it->left) continue;
        plan_consts_for(b, &it->s, &it->s.c.k);
        it->got = plan_row_predict(&it->s);
        it->err = it->got > 0 ? log(it->got / it->row->value) : 2;
        it->trust = it->s.c.k.trust;
    }
}

static bool is_left(const struct plan_item *it, const void *user)
{
    (void)user;
    return it->left;
}

int plan_cross(struct plan_book *b, struct plan_data *d, enum plan_leave what,
               struct plan_left_out *out, int most)
{
    int n = 0;
    for (int i = 0; i < d->n; i++) {
        if (!counts(&d->item[i])) continue;
        const char *name = name_of(&d->item[i], what);
        int j = 0;
        while (j < n && strcmp(out[j].name, name) != 0)
            j++;
        if (j < n || n == most) continue;
        out[n].name = name;
        leave(b, d, what, name);
        plan_score(d, is_left, NULL, &out[n].score);
        n++;
    }
    for (int i = 0; i < d->n; i++)
        d->item[i].left = counts(&d->item[i]);
    plan_score(d, is_left, NULL, &out[n].score);
    out[n].name = "all";
    return n;
}
