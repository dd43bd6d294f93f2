/* SPDX-License-Identifier: Apache-2.0 */
/* What of an operator's parameters this device can not do, when a program is opened. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/mat.h"
#include "dev/cpu/moe.h"

static const char *route_lacks(const struct dev_route *p)
{
    int n_group = BASE_MAX(p->n_group, 1), k_group = n_group > 1 ? p->k_group : 1;
    if (p->n_expert > CPU_EXPERT_MAX) return "more than 4096 experts";
    if (p->n_expert % n_group) return "groups of different sizes";
    if (p->k < 1 || p->k > p->n_expert / n_group * k_group)
        return "more experts of a token than it may choose from";
    return NULL;
}

static const char *moe_lacks(const struct cpu *c, const struct dev_moe *p)
{
    const struct dev_shapes *w = &c->most;
    int n = p->slots ? p->slots->n : p->n_expert;
    if (n > w->n_expert || p->k > w->k) return "more experts than were reserved";
    if (p->slots && p->slots->n_here) n = p->slots->n_here;
    if (n > dev_cpu_mat_of(p->gate_up)->n || n > dev_cpu_mat_of(p->down)->n)
        return "more experts than weights";
    if (dev_cpu_mat_of(p->gate_up)->m.n_row > w->d_ff_expert ||
        dev_cpu_mat_of(p->down)->m.n_row > w->d_model)
        return "wider experts than were reserved";
    return NULL;
}

static const char *mla_lacks(const struct cpu *c, const struct dev_attn_mla *p)
{
    const struct dev_shapes *w = &c->most;
    if (p->r > w->mla_r || p->nope > w->mla_nope || p->rope > w->mla_rope || p->v > w->mla_v)
        return "wider heads or latents than were reserved";
    if (p->every < 0 || (p->pick && p->n_pick < 1)) return "a choice of no positions";
    return p->n_head > w->n_head ? "more heads than were reserved" : NULL;
}

static const char *index_lacks(const struct cpu *c, const struct dev_index *p)
{
    const struct dev_shapes *w = &c->most;
    bool some = dev_index_scores(p, w->max.n_ctx) > w->index_score ||
                (p->blk && p->n_head * p->top > w->index_list);
    if (p->n_head < 1 || p->d < 1 || p->top < 1) return "no heads, width or positions";
    if (p->blk && (p->blk < 16 || p->blk > VEC_SPAN || VEC_SPAN % p->blk))
        return "blocks of other than 16, 32, 64 or 128 positions";
    if (p->every < 0 || (p->every && p->blk)) return "blocks of entries";
    if (p->n_local < 0 || p->n_local > p->top || !p->blk != !!p->w)
        return "blocks that are always seen, or weights, beside such a choice";
    bool wide = p->n_head > w->index_heads || p->d > w->index_d || some;
    return wide ? "a wider index than was reserved" : NULL;
}

static const char *attn_lacks(const struct cpu *c, const struct dev_attn *p)
{
    const struct dev_blocks *s = &p->some;
    if (s->blk && (s->blk < 16 || s->blk > VEC_SPAN || VEC_SPAN % s->blk))
        return "blocks of other than 16, 32, 64 or 128 positions";
    if (s->pick && (!s->blk || s->n_pick < 1 || p->n_window))
        return "no blocks, or chosen ones in a window";
    if (s->pick && s->n_pick > c->most.index_list) return "more chosen blocks than were reserved";
    return p->n_head > c->most.n_head ? "more heads than were reserved" : NULL;
}

static const char *compress_lacks(const struct cpu *c, const struct dev_compress *p)
{
    if (p->every < 1 || p->every * (p->overlap ? 2 : 1) > DEV_ENTRY_EVERY)
        return "entries of more than 128 tokens, or of none";
    if (p->d < 1 || p->d > DEV_ENTRY_WIDTH || p->n_rot > p->d || p->n_rot % 2)
        return "entries of such a width";
    return p->d > c->most.entry_d || p->n_rot > c->n_rot_max ? "wider entries than were reserved"
                                                             : NULL;
}

static const char *ckv_lacks(const struct cpu *c, const struct dev_attn_ckv *p)
{
    if (p->n_window < 1 || p->every < 0 || (p->pick && (p->n_pick < 1 || !p->every)))
        return "no window, or a choice of no entries";
    return p->n_head > c->most.n_head || p->d > c->most.ckv_d
               ? "more or wider heads than were reserved"
               : NULL;
}

static const char *norm_lacks(const struct dev_norm *p)
{
    return p->b && (!p->y || p->r || p->act || p->ranks) ? "layer norms of such operands" : NULL;
}

static const char *delta_lacks(const struct cpu *c, const struct dev_delta *p)
{
    if (p->n_v % p->n_k || p->d_k % 2) return "heads of such shapes";
    if (p->d_k > c->most.delta_k || p->d_v * (p->n_v / p->n_k) > c->most.delta_v ||
        (p->each ? p->d_k : 1) > c->most.delta_a)
        return "wider heads than were reserved";
    return p->d_k > DEV_DELTA_WIDTH || p->d_v > DEV_DELTA_WIDTH || p->n_conv > DEV_DELTA_CONV
               ? "wider heads or convolutions than it has room for"
               : NULL;
}

static const char *matmul_lacks(const struct cpu *c, const struct dev_matmul *p)
{
    if (p->n_head > 1 && (p->n_row || p->rows || p->ranks)) return "listed rows of streams";
    return p->n_head > c->most.mat_heads ? "more rows of a token than were reserved" : NULL;
}

static const char *streams_lacks(const struct dev_streams *p)
{
    bool leaves = p->y && p->fn && !p->head;
    if (p->n_stream < 1 || p->n_stream > DEV_STREAMS_MAX) return "more than 8 streams";
    if ((p->begin && !p->r) || (p->more && !p->begin) || (p->y && !p->fn && !p->head))
        return "streams of such operands";
    return !p->mix && (leaves || (p->r && !p->begin)) ? "streams without room for numbers" : NULL;
}

static const char *ffn_lacks(const struct dev_ffn *p)
{
    const struct cpu_act *h = (const struct cpu_act *)p->h_act;
    return dev_cpu_mat_of(p->down)->m.n_col > h->b.n_col ? "more hidden values than h_act has"
                                                         : NULL;
}

const char *dev_cpu_lacks(const dev *d, const struct dev_op *op)
{
    const struct cpu *c = (const struct cpu *)d;
    switch (op->kind) {
    case DEV_OP_rope:
        return op->u.rope.n_rot > c->n_rot_max ? "more rotated dimensions than were reserved"
                                               : NULL;
    case DEV_OP_attn:
        return attn_lacks(c, &op->u.attn);
    case DEV_OP_attn_mla:
        return mla_lacks(c, &op->u.attn_mla);
    case DEV_OP_compress:
        return compress_lacks(c, &op->u.compress);
    case DEV_OP_attn_ckv:
        return ckv_lacks(c, &op->u.attn_ckv);
    case DEV_OP_norm:
        return norm_lacks(&op->u.norm);
    case DEV_OP_matmul:
        return matmul_lacks(c, &op->u.matmul);
    case DEV_OP_streams:
        return streams_lacks(&op->u.streams);
    case DEV_OP_index:
        return index_lacks(c, &op->u.index);
    case DEV_OP_delta:
        return delta_lacks(c, &op->u.delta);
    case DEV_OP_ffn:
        return ffn_lacks(&op->u.ffn);
    case DEV_OP_route:
        return route_lacks(&op->u.route);
    case DEV_OP_moe:
        return moe_lacks(c, &op->u.moe);
    default:
        return NULL;
    }
}
