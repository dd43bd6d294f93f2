/* SPDX-License-Identifier: Apache-2.0 */
/* Running a step: its passes and their results. */
#include <math.h>

#include "model/model_internal.h"

static void check_step(const struct model *m, const struct dev_step *s)
{
    (void)m;
    (void)s;
    DEBUG_ASSERT(s->n_tok >= 0 && s->n_tok <= m->opts.n_tok_max && s->n_seq <= m->opts.n_seq_max);
    DEBUG_ASSERT(s->n_row <= m->opts.n_logit_max && s->pass >= m->opts.first_pass);
    DEBUG_ASSERT(s->pass < m->opts.first_pass + model_n_pass(m) || !model_is_last(&m->dims));
    for (int t = 0; t < s->n_tok; t++) {
        DEBUG_ASSERT(s->ids[t] >= 0 && s->ids[t] < m->cfg.n_vocab);
        DEBUG_ASSERT(s->pos[t] >= 0 && s->pos[t] < m->opts.n_ctx);
    }
}

sl_status model_launch(model *m, dev_kv *kv, const struct dev_step *s, sl_err *err)
{
    const struct dev_step *all = m->step = s;
    if (model_is_own(m)) {
        SL_TRY(model_own_take(m, s, err));
        model_own_share(m, m->own.n_tok);
    }
    s = m->step;
    check_step(m, s);
    if (model_is_own(m) && model_micro_run(m, kv, all)) return SL_OK;
    if (m->dims.n_stage > 1) return model_stages_run(m, kv, all, err);
    dev_prog *p = NULL;
    bool done;
    SL_TRY(model_few_run(m, kv, s, &done, err));
    if (done) return SL_OK;
    if (!m->tap_fn) SL_TRY(model_stream_prog(m, s, &p, err));
    if (!p) p = (m->tap_fn ? m->tap_prog : m->prog)[s->pass - m->opts.first_pass];
    return dev_prog_run(p, kv, s, err);
}

void model_watch(model *m, void (*fn)(void *user, int layer), void *user)
{
    if (m->dims.n_stage > 1 || model_is_own(m) || m->opts.n_late || !m->prog[0]) return;
    dev_prog_watch(m->prog[0], fn, user);
    if (m->few.body) dev_prog_watch(m->few.body, fn, user);
}

/* The rows of logits that are wanted, where they are to be read. */
static sl_status read_logits(struct model *m, const struct dev_step *s, const float **out,
                             sl_err *err)
{
    const struct side *h = model_side(m, MODEL_HEAD);
    int64_t V = model_n_logit(m, s->pass);
    *out = dev_is_host(h->d) ? h->logits : m->host_logits;
    for (int i = 0, end; i < s->n_row && !dev_is_host(h->d); i = end) {
        for (end = i; end < s->n_row && dev_row_wants(s, end, DEV_WANT_LOGITS); end++)
            continue;
        if (end > i)
            SL_TRY(
                dev_get(h->d, m->host_logits + i * V, h->logits + i * V, (end - i) * V * 4, err));
        else
            end++;
    }
    return SL_OK;
}

static sl_status read_best(struct model *m, const struct dev_step *s, const int32_t **out,
                           sl_err *err)
{
    const struct side *h = model_side(m, MODEL_HEAD);
    const void *p = NULL;
    SL_TRY(dev_read(h->d, h->best, s->n_row * (int64_t)sizeof *h->best, m->host_best, &p, err));
    *out = p;
    return SL_OK;
}

/* Values of a buffer of a device, for the host; room: for n of them. */
static sl_status read_values(dev *d, const float *x, int64_t n, float *room, const float **out,
                             sl_err *err)
{
    const void *p = NULL;
    SL_TRY(dev_read(d, x, n * 4, room, &p, err));
    *out = p;
    return SL_OK;
}

static sl_status finite_row(struct model *m, int row, bool *finite, sl_err *err)
{
    int D = m->cfg.d_model, bad = 0;
    const float *x;
    const float *hidden = model_side(m, MODEL_ATTN)->hidden;
    SL_TRY(read_values(m->d, hidden + (int64_t)row * D, D, m->host_row, &x, err));
    for (int k = 0; k < D; k++)
        bad |= !isfinite(x[k]);
    *finite = !bad;
    return SL_OK;
}

static sl_status finite_seqs(struct model *m, const struct dev_step *s, sl_err *err)
{
    for (int i = 0; i < s->n_seq; i++) {
        int n = BASE_MIN(s->seq_tok0[i + 1] - s->seq_tok0[i], UINT8_MAX), n_bad = 0;
        for (bool finite = false; n_bad < n; n_bad++) {
            SL_TRY(finite_row(m, s->seq_tok0[i + 1] - 1 - n_bad, &finite, err));
            if (finite) break;
        }
        m->finite[i] = n_bad == 0;
        m->n_bad[i] = (uint8_t)n_bad;
    }
    return SL_OK;
}

static sl_status read_rows(struct model *m, struct model_rows *out, sl_err *err)
{
    const struct dev_step *s = m->step;
    int64_t n_hidden = (int64_t)s->n_tok * m->cfg.d_model;
    const struct side *home = model_side(m, MODEL_ATTN);
    if (s->want & DEV_WANT_LOGITS) SL_TRY(read_logits(m, s, &out->logits, err));
    if (s->want & DEV_WANT_BEST) SL_TRY(read_best(m, s, &out->best, err));
    if (s->want & DEV_WANT_HIDDEN)
        SL_TRY(read_values(home->d, home->hidden, n_hidden, m->host_hidden, &out->hidden, err));
    if (s->want & DEV_WANT_FINITE) {
        SL_TRY(finite_seqs(m, s, err));
        out->finite = m->finite;
        out->n_bad = m->n_bad;
    }
    return SL_OK;
}

sl_status model_wait(model *m, struct model_rows *out, sl_err *err)
{
    struct model_rows own = {0};
    *out = (struct model_rows){0};
    for (int i = 0; i < m->place.n_dev; i++)
        SL_TRY(dev_sync(m->place.d[i], err));
    SL_TRY(model_stream_count(m, err));
    if (!model_is_own(m)) return m->opts.rank ? SL_OK : read_rows(m, out, err); /* rank 0's */
    if (!model_is_last(&m->dims)) return SL_OK;
    if (m->dims.rank == 0) SL_TRY(read_rows(m, &own, err));
    model_own_give(m, &own, out);
    return SL_OK;
}
