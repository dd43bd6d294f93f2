/* SPDX-License-Identifier: Apache-2.0 */
/* The tap: inputs of matrices shown to a caller that calibrates. */
#include "model/model_internal.h"

sl_status model_tap(model *m, model_tap_fn *fn, void *user, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    void *p = NULL;
    if (fn && !m->tap_y) {
        SL_TRY(dev_alloc(m->d, MEM_ACTS, (int64_t)m->opts.n_tok_max * BASE_MAX(c->d_model, c->q_lora) * 4, &p, err));
        m->tap_y = p;
    }
    m->tap_fn = fn;
    m->tap_user = user;
    return SL_OK;
}

void model_tap_put(struct model *m, enum model_tap_in in, const float *x, int n_row, int n_col, int64_t ldx)
{
    if (!m->tap_fn) return;
    if (dev_sync(m->d, NULL)) return; /* model_wait says why */
    struct model_tap_rows r = {.in = in, .layer = m->tap_layer, .expert = -1, .x = x, .n_row = n_row, .n_col = n_col, .ldx = ldx};
    m->tap_fn(m->tap_user, &r);
}

void model_tap_expert(void *user, int expert, const float *h, int n_row, int n_col)
{
    struct model *m = user;
    struct model_tap_rows r = {.in = MODEL_TAP_DOWN_EXPS, .layer = m->tap_layer, .expert = expert, .x = h, .n_row = n_row,
                               .n_col = n_col, .ldx = n_col};
    m->tap_fn(m->tap_user, &r);
}
