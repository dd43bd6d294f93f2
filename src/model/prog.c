/* SPDX-License-Identifier: Apache-2.0 */
/* A model's programs: the operators of every pass of a step, listed once. */
#include "model/emit.h"

#define OPS_LAYER 42 /* of a layer, at most; and of what is outside of the layers */

/* Rows of the stage before come to a device, or those of this one leave it (pieces.c). */
static void pass_on(struct emit *e, bool out)
{
    if (dev_is_host(e->side->d)) return;
    EMIT(e, move, .at = e->side->x, .host = e->m->stage, .out = out,
         .n = (int)model_x_cols(&e->m->cfg));
}

/* Between a side and the stage before or after: what comes late. */
static void pass_late(struct emit *e, const struct side *s, bool out)
{
    const struct side *before = e->side;
    if (!s) return;
    if (out) model_late_emit(e);
    if (out && e->late.side && e->late.side != s) (void)model_late_take(e, s); /* streamed ones */
    e->side = s;
    if (!dev_is_host(s->d))
        EMIT(e, move, .at = s->late, .host = e->m->stage_late, .out = out, .n = e->m->cfg.d_model);
    e->side = before;
    e->late = (struct late){.side = out ? NULL : s};
}

void model_begin_emit(struct emit *e, int n)
{
    const struct model *m = e->m;
    const struct model_dims *d = &m->dims;
    e->side = model_side_in(m, d->layer0, MODEL_ATTN);
    if (d->stage == 0)
        model_embed_emit(e, m->embed);
    else
        pass_on(e, false);
    pass_late(e, model_late_in(m), false);
    for (int i = d->layer0; i < d->layer0 + n; i++)
        model_layer_emit(e, &m->layer[i], i, i == d->layer0);
}

static void main_emit(struct emit *e)
{
    const struct model *m = e->m;
    const struct model_dims *d = &m->dims;
    model_begin_emit(e, d->n_layer);
    e->n_body = e->n;
    if (model_is_last(d)) {
        model_head_emit(e, &(struct heads){&m->stream_head, m->norm, m->head, MODEL_CUT_VOCAB});
        return;
    }
    struct left left = model_left(e);
    if (m->cfg.n_stream)
        model_streams_end(e, &left);
    else if (!m->cfg.sandwich)
        EMIT(e, add, .x = e->side->x, .y = left.r, .n = m->cfg.d_model, .ranks = model_shares_of(e),
         .part = left.part); /* one sum goes on */
    pass_on(e, true);
    pass_late(e, model_late_out(m), true);
}

void model_pass_emit(struct emit *e, int pass)
{
    int n_mtp = e->m->n_mtp;
    e->entries = pass > n_mtp;
    e->one = pass > 0 && !arch_mtp_streams(&e->m->cfg);
    if (pass)
        model_mtp_emit(e, (pass - 1) % n_mtp);
    else
        main_emit(e);
}

int model_op_max(const struct model *m)
{
    return (m->cfg.n_layer + 1) * (OPS_LAYER + model_stream_ops(m));
}

static int passes(const struct model *m)
{
    return m ? model_n_pass(m) : 0;
}

/* The operators of all of a model's passes; how many. */
static int all_emit(struct model *m, bool streams, struct dev_op *op)
{
    struct emit e = {.op = op, .n_max = (passes(m) + 1) * model_op_max(m), .streams = streams};
    model_emit_begin(&e, m);
    for (int i = 0; i < passes(m); i++)
        model_pass_emit(&e, i);
    if (m && m->few.tok) model_few_emit(&e);
    return e.n;
}

sl_status model_reserve(struct model *m, sl_err *err)
{
    struct model *other = m->opts.beside;
    struct dev_limits max = {.n_tok = m->opts.n_tok_max,
                             .n_seq = m->opts.n_seq_max,
                             .n_ctx = m->opts.n_ctx,
                             .n_tok_all = m->opts.n_tok_max * BASE_MAX(m->dims.n_dp, 1),
                             .n_pass = passes(m) + passes(other),
                             .mla_expand_from = m->expand_from,
                             .keep_bytes = m->opts.keep_bytes};
    void *p = NULL;
    int n_max = (m->stream.slab ? 2 : 1) * (passes(m) + 1) * model_op_max(m);
    if (other) n_max += (passes(other) + 1) * model_op_max(other);
    sl_status st = SL_OK;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)n_max, sizeof(struct dev_op), &p, err));
    struct dev_op *op = p;
    int n_op = all_emit(m, false, op);
    if (m->stream.slab) n_op += all_emit(m, true, op + n_op);
    if (other) n_op += all_emit(other, false, op + n_op);
    for (int i = 0; i < m->place.n_dev && !st; i++)
        st = dev_reserve(m->place.d[i], op, n_op, &max, err);
    mem_free(p);
    return st;
}

sl_status model_progs_open(struct model *m, struct model_progs how, dev_prog **out, sl_err *err)
{
    void *p = NULL;
    int n_max = model_op_max(m);
    sl_status st = SL_OK;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)n_max, sizeof(struct dev_op), &p, err));
    for (int i = 0; i < passes(m) && !st; i++) {
        struct emit e = {.op = p, .n_max = n_max, .tap = how.tap, .streams = how.streams};
        model_emit_begin(&e, m);
        model_pass_emit(&e, i);
        st = dev_prog_open(m->d, e.op, e.n, &out[i], err);
    }
    for (int i = 0; i < passes(m) && st; i++) {
        dev_prog_close(out[i]);
        out[i] = NULL;
    }
    mem_free(p);
    return st;
}
