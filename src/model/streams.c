/* SPDX-License-Identifier: Apache-2.0 */
/* A residual stream that is several (hyper-connections; DeepSeek-V4, GLM-5.3): x has n_stream rows
 * of a token, in MTP layers one. What a sub-layer has left in r goes into them before the next one
 * takes its input, and by numbers that were made then; so these are part of what is under way. */
#include "model/emit.h"
#include "model/load.h"

int64_t model_x_cols(const struct arch_cfg *c)
{
    return (int64_t)c->d_model * BASE_MAX(c->n_stream, 1);
}

int64_t model_stream_mix_cols(const struct arch_cfg *c)
{
    return (int64_t)c->n_stream * (1 + c->n_stream);
}

bool model_has_streams(const struct emit *e)
{
    return e->m->cfg.n_stream && !e->one;
}

float *model_begin_row(const struct emit *e, const struct side *s)
{
    return model_has_streams(e) ? s->r : s->x;
}

static struct dev_streams op_of(struct emit *e, bool has_r)
{
    const struct side *s = e->side;
    const struct arch_cfg *c = &e->m->cfg;
    bool begin = e->begins != NOT_BEGIN, more = e->begins == BEGIN_MORE;
    e->begins = NOT_BEGIN;
    return (struct dev_streams){.x = e->x ? e->x : s->x,
                                .n_stream = c->n_stream,
                                .n = c->d_model,
                                .r = has_r || begin ? s->r : NULL,
                                .begin = begin,
                                .more = more,
                                .mix = s->stream_mix,
                                .eps = c->stream_eps,
                                .norm_eps = c->norm_eps,
                                .rounds = c->stream_rounds,
                                .part = s->stream_part};
}

float *model_streams_emit(struct emit *e, const struct stream_in *in, struct left *left)
{
    struct dev_streams p;
    if (!model_has_streams(e)) return e->side->x;
    p = op_of(e, left->r != NULL);
    p.fn = in->fn;
    p.base = in->base;
    p.scale = in->scale;
    p.head = in->head;
    p.y = e->side->stream_y;
    model_op(e, DEV_OP_streams)->u.streams = p;
    left->r = NULL;
    return p.y;
}

void model_streams_end(struct emit *e, const struct left *left)
{
    model_op(e, DEV_OP_streams)->u.streams = op_of(e, left->r != NULL);
}

/* n_row rows as wide as all streams, packed. */
static sl_status load_fn(struct model *m, const char *name, int n_row, float **out, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    int64_t n = n_row * model_x_cols(c);
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_WEIGHTS, 2 * (size_t)n, sizeof(float), &p, err));
    float *fn = p;
    sl_status st = model_load_read_rows(m->io, name, n_row, model_x_cols(c), fn, err);
    if (!st) dev_streams_pack(fn, n_row, c->n_stream, c->d_model, fn + n);
    if (!st) st = model_load_put(m, ROLE_HC_FFN_FN, fn + n, n, out, err);
    mem_free(p);
    return st;
}

sl_status model_load_streams(struct model *m, int il, struct layer *l, sl_err *err)
{
    static const enum arch_role role[2][3] = {
        {ROLE_HC_ATTN_FN, ROLE_HC_ATTN_BASE, ROLE_HC_ATTN_SCALE},
        {ROLE_HC_FFN_FN, ROLE_HC_FFN_BASE, ROLE_HC_FFN_SCALE}};
    const struct arch_cfg *c = &m->cfg;
    int n = dev_streams_rows(c->n_stream, false);
    bool has = c->n_stream && (il < c->n_layer || arch_mtp_streams(c));
    for (int i = 0; i < 2 && has; i++) {
        struct stream_in *s = &l->streams[i];
        char fn[LOAD_NAME];
        arch_tensor_name(&c->naming, role[i][0], il, "weight", fn, sizeof fn);
        SL_TRY(load_fn(m, fn, n, &s->fn, err));
        SL_TRY(model_load_role_vector(m, il, role[i][1], n, &s->base, err));
        SL_TRY(model_load_role_vector(m, il, role[i][2], 3, &s->scale, err));
    }
    return SL_OK;
}

/* Of a layer, which MTP layers have, or the model's. */
sl_status model_load_stream_head(struct model *m, int il, struct stream_in *s, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    const struct arch_naming *by = &c->naming;
    int N = c->n_stream;
    char fn[LOAD_NAME];
    s->head = true;
    if (!N || c->stream_mean) return SL_OK;
    if (il < 0) {
        SL_TRY(load_fn(m, arch_global_name(by, GLOBAL_HC_FN), N, &s->fn, err));
        SL_TRY(model_load_vector(m, arch_global_name(by, GLOBAL_HC_BASE), ROLE_HC_FFN_BASE, N,
                                 &s->base, err));
        return model_load_vector(m, arch_global_name(by, GLOBAL_HC_SCALE), ROLE_HC_FFN_SCALE, 1,
                                 &s->scale, err);
    }
    arch_tensor_name(by, ROLE_MTP_HC_FN, il, "weight", fn, sizeof fn);
    SL_TRY(load_fn(m, fn, N, &s->fn, err));
    SL_TRY(model_load_role_vector(m, il, ROLE_MTP_HC_BASE, N, &s->base, err));
    return model_load_role_vector(m, il, ROLE_MTP_HC_SCALE, 1, &s->scale, err);
}
