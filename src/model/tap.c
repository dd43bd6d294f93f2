/* SPDX-License-Identifier: Apache-2.0 */
/* The tap: inputs of matrices shown to a caller that calibrates. With one the model runs other
 * programs, whose operators also show their rows. */
#include "model/emit.h"

static void tell(void *user, const struct dev_tapped *t)
{
    const struct model *m = user;
    struct model_tap_rows r = {.in = (enum model_tap_in)t->what,
                               .layer = t->layer,
                               .expert = t->expert,
                               .x = t->x,
                               .n_row = t->n_row,
                               .n_col = t->n_col,
                               .ldx = t->ldx};
    m->tap_fn(m->tap_user, &r);
}

sl_status model_tap(model *m, model_tap_fn *fn, void *user, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    void *p = NULL;
    if (fn && (m->dims.n_rank > 1 || model_is_own(m)))
        return SL_FAIL(err, UNSUPPORTED, "layout: inputs of matrices are shown with one rank only");
    if (fn && m->opts.n_late)
        return SL_FAIL(err, UNSUPPORTED, "defer: inputs of matrices are shown without it only");
    if (fn && !m->tap_y) {
        SL_TRY(dev_alloc(m->d, MEM_ACTS,
                         (int64_t)m->opts.n_tok_max * BASE_MAX(c->d_model, c->q_lora) * 4, &p,
                         err));
        m->tap_y = p;
    }
    if (fn && !m->tap_prog[0])
        SL_TRY(model_progs_open(m, (struct model_progs){.tap = {.fn = tell, .user = m}},
                                m->tap_prog, err));
    m->tap_fn = fn;
    m->tap_user = user;
    return SL_OK;
}

void model_tap_emit(struct emit *e, enum model_tap_in in, const float *x, int n, int64_t ldx)
{
    if (!e->tap.fn) return;
    EMIT(e, tap, .fn = e->tap.fn, .user = e->tap.user, .what = (int)in, .layer = e->layer, .x = x,
         .n = n, .ldx = ldx);
}

float *model_tap_row(const struct emit *e)
{
    return e->tap.fn ? e->m->tap_y : NULL;
}
