/* SPDX-License-Identifier: Apache-2.0 */
/* What of an operator's parameters these devices can not do, when a program is opened, and what to
 * use instead. */
#include "dev/gpu/gpu.h"

static const char *route_lacks(const struct dev_route *p)
{
    if (p->root) return "scores of sqrt(softplus): --place router=cpu makes them";
    if (p->gain) return "a factor for each expert: --device cpu";
    if (p->of_id) return "experts by the token's id: --place router=cpu chooses them";
    return p->n_expert > GPU_EXPERT_MAX ? "more than 1024 experts: --place router=cpu chooses them"
                                        : NULL;
}

static const char *glu_lacks(const dev_mat *gate_up)
{
    return gate_up && dev_mat_epilogue(gate_up)->glu.cubic > 0 ? "gated units of gelu: --device cpu"
                                                               : NULL;
}

static const char *moe_lacks(const struct gpu *c, const struct dev_moe *p)
{
    if (!p->slots != !p->terms && !p->ranks && !p->spread)
        return "experts in chosen slots: --place experts=cpu runs them";
    if (p->n_expert > GPU_EXPERT_MAX) return "more than 1024 experts in chosen slots";
    if (glu_lacks(p->gate_up)) return glu_lacks(p->gate_up);
    if (p->tap.fn) return "showing experts' inputs: --device cpu does that";
    if (dev_mat_cols(p->down) > c->most.d_ff_expert || dev_mat_rows(p->down) > c->most.d_model)
        return "wider experts than were reserved";
    return p->k > c->most.k ? "more experts than were reserved" : NULL;
}

static const char *mla_lacks(const struct gpu *c, const struct dev_attn_mla *p)
{
    if (p->r > GPU_LATENT_MAX || p->r + p->rope > GPU_LATENT_MAX + 128)
        return "latents wider than 512: --place attn=cpu runs them";
    if (p->nope + p->rope > GPU_LATENT_MAX + 128 || p->v > GPU_LATENT_MAX)
        return "heads over latents wider than 512: --place attn=cpu runs them";
    if (p->pick) return "positions that an indexer chooses: --place attn=cpu sees them";
    if (p->n_head != c->most.n_head) return "layers of different numbers of heads";
    return p->r > c->most.mla_r || p->v > c->most.mla_v ? "wider latents than were reserved" : NULL;
}

static const char *attn_lacks(const struct dev_attn *p)
{
    if (p->some.pick || p->some.blk) return "attention to blocks: --place attn=cpu runs it";
    bool wide = BASE_MAX(p->d_k, p->d_v) > GPU_HEAD_MAX;
    return wide ? "heads wider than 512: --place attn=cpu runs them" : NULL;
}

static const char *move_lacks(const struct gpu *c, const struct dev_move *p)
{
    return 4 * (int64_t)p->n * c->most.max.n_tok > c->bounce.n ? "rows wider than were reserved"
                                                               : NULL;
}

const char *dev_gpu_lacks(const dev *d, const struct dev_op *op)
{
    const struct gpu *c = dev_gpu_of(d);
    switch (op->kind) {
    case DEV_OP_norm:
        if (op->u.norm.b) return "layer norms: --place attn=cpu does that";
        return op->u.norm.ranks ? "rows shared among ranks: --device cpu does that" : NULL;
    case DEV_OP_prep:
        return op->u.prep.ranks ? "rows shared among ranks: --device cpu does that" : NULL;
    case DEV_OP_rope:
        return op->u.rope.back ? "rotation back: --place attn=cpu does that" : NULL;
    case DEV_OP_add:
        if (op->u.add.scale != 0) return "sums that are scaled: --device cpu does that";
        return op->u.add.ranks ? "rows shared among ranks: --device cpu does that" : NULL;
    case DEV_OP_matmul:
        if (op->u.matmul.n_head > 1) return "a product of streams: --place attn=cpu makes it";
        return op->u.matmul.rows ? "a product of listed rows" : NULL;
    case DEV_OP_ffn:
        if (glu_lacks(op->u.ffn.gate_up)) return glu_lacks(op->u.ffn.gate_up);
        return dev_mat_cols(op->u.ffn.down) > c->glu_cols ? "more hidden values than were reserved"
                                                          : NULL;
    case DEV_OP_kv_put:
        return op->u.kv_put.i ? "keys of an indexer: --place attn=cpu keeps them" : NULL;
    case DEV_OP_attn:
        return attn_lacks(&op->u.attn);
    case DEV_OP_delta:
        return dev_gpu_delta_lacks(&op->u.delta);
    case DEV_OP_route:
        return route_lacks(&op->u.route);
    case DEV_OP_moe:
        return moe_lacks(c, &op->u.moe);
    case DEV_OP_sum:
        return op->u.sum.there ? "terms of another device: it sums its own" : NULL;
    case DEV_OP_attn_mla:
        return mla_lacks(c, &op->u.attn_mla);
    case DEV_OP_move:
        return move_lacks(c, &op->u.move);
    default:
        return NULL;
    }
}
