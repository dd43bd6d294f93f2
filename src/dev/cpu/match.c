/* SPDX-License-Identifier: Apache-2.0 */
/* Which operators of a program are run together: layers with keys and values per head,
 *
 *     norm | matmul q, k, v | (norm q, norm k) | rope q, rope k | kv_put | attn | prep | matmul o |
 *     norm | ffn
 *
 * without the last two where the feed-forward block is of another kind. */
#include "dev/cpu/region.h"

struct reader {
    const struct dev_op *op;
    int n_op, at;
};

static const struct dev_op *take(struct reader *r, enum dev_op_kind kind)
{
    return r->at < r->n_op && r->op[r->at].kind == kind ? &r->op[r->at++] : NULL;
}

static int cols(const dev_mat *m)
{
    return dev_cpu_mat_of(m)->m.n_col;
}

static int rows(const dev_mat *m)
{
    return dev_cpu_mat_of(m)->m.n_row;
}

/* A norm of whole rows into prepared activations only. */
static const struct dev_norm *take_norm(struct reader *r)
{
    const struct dev_op *op = take(r, DEV_OP_norm);
    const struct dev_norm *p = op ? &op->u.norm : NULL;
    if (!p || p->n_row || p->n_head > 1 || p->gather || p->y || !p->act) return NULL;
    return p->ldx == 0 || p->ldx == p->n ? p : NULL;
}

/* A norm of the heads of x, in place. */
static const struct dev_norm *take_head_norm(struct reader *r, const float *x, int n_head, int d)
{
    const struct dev_op *op = take(r, DEV_OP_norm);
    const struct dev_norm *p = op ? &op->u.norm : NULL;
    if (!p || p->x != x || p->y != x || p->r || p->act || p->n_row || p->gather) return NULL;
    return p->n == d && p->n_head == n_head && !p->ldx && !p->ldy ? p : NULL;
}

static const struct dev_matmul *take_matmul(struct reader *r, const dev_act *act, int n_mat,
                                            int n_col)
{
    const struct dev_op *op = take(r, DEV_OP_matmul);
    const struct dev_matmul *p = op ? &op->u.matmul : NULL;
    if (!p || p->act != act || p->n_row || p->rows || p->n_mat != n_mat) return NULL;
    for (int i = 0; i < n_mat; i++)
        if (cols(p->w[i]) != n_col || (p->ldy[i] && p->ldy[i] != rows(p->w[i]))) return NULL;
    return p;
}

static const struct dev_rope *take_rope(struct reader *r, const float *x, int n, int d)
{
    const struct dev_op *op = take(r, DEV_OP_rope);
    const struct dev_rope *p = op ? &op->u.rope : NULL;
    if (!p || p->x != x || p->ldx != n || p->ldx_h != d || p->n_head * d != n) return NULL;
    return p;
}

static bool same_rope(const struct dev_rope *a, const struct dev_rope *b)
{
    return a->n_rot == b->n_rot && a->style == b->style && a->freq == b->freq &&
           a->mscale == b->mscale;
}

/* From the products of queries, keys and values to attention. */
static bool mixer(struct reader *r, struct cpu_layer_ops *l)
{
    const struct dev_norm *an = l->attn_norm;
    if (!(l->qkv = take_matmul(r, an->act, 3, an->n))) return false;
    const float *q = l->qkv->y[0], *k = l->qkv->y[1], *v = l->qkv->y[2];
    int nq = rows(l->qkv->w[0]), nk = rows(l->qkv->w[1]), at = r->at;
    while (at < r->n_op && r->op[at].kind == DEV_OP_norm)
        at++;
    if (at >= r->n_op || r->op[at].kind != DEV_OP_rope) return false;
    int d = l->d_head = (int)r->op[at].u.rope.ldx_h;
    if (d < 1 || nq % d || nk % d || rows(l->qkv->w[2]) != nk) return false;
    int H = nq / d, C = l->n_head_kv = nk / d;
    if (H % C) return false;
    if (at > r->at &&
        (!(l->q_norm = take_head_norm(r, q, H, d)) || !(l->k_norm = take_head_norm(r, k, C, d))))
        return false;
    const struct dev_rope *rk;
    if (!(l->rope = take_rope(r, q, nq, d)) || !(rk = take_rope(r, k, nk, d)) ||
        !same_rope(l->rope, rk))
        return false;
    const struct dev_op *put = take(r, DEV_OP_kv_put), *at_ = take(r, DEV_OP_attn);
    if (!put || put->u.kv_put.k != k || put->u.kv_put.v != v || put->u.kv_put.ldk != nk ||
        put->u.kv_put.ldv != nk || !at_)
        return false;
    l->attn = &at_->u.attn;
    return l->attn->q == q && l->attn->n_head == H && l->attn->group == put->u.kv_put.group &&
           l->attn->layer == put->u.kv_put.layer;
}

static bool output(struct reader *r, struct cpu_layer_ops *l)
{
    const struct dev_op *op = take(r, DEV_OP_prep);
    const struct dev_prep *p = op ? &op->u.prep : NULL;
    int n = l->attn->n_head * l->d_head;
    if (!p || p->x != l->attn->y || p->n != n || p->n_row || (p->ldx && p->ldx != n)) return false;
    if (!(l->out = take_matmul(r, p->act, 1, n))) return false;
    return rows(l->out->w[0]) == l->attn_norm->n;
}

static bool feed_forward(struct reader *r, struct cpu_layer_ops *l)
{
    const struct dev_norm *an = l->attn_norm, *fn = take_norm(r);
    const struct dev_op *op = take(r, DEV_OP_ffn);
    const struct dev_ffn *p = op ? &op->u.ffn : NULL;
    if (!fn || !p || fn->x != an->x || fn->n != an->n || fn->r != l->out->y[0]) return false;
    if (p->act != fn->act || p->n_row || p->keep_h || p->y != l->out->y[0]) return false;
    if (cols(p->gate_up) != fn->n || rows(p->gate_up) != cols(p->down) || rows(p->down) != fn->n)
        return false;
    l->ffn_norm = fn;
    l->ffn = p;
    return true;
}

bool dev_cpu_match_layer(const struct dev_op *op, int n_op, int at, struct cpu_layer_ops *l)
{
    struct reader r = {op, n_op, at};
    *l = (struct cpu_layer_ops){0};
    if (!(l->attn_norm = take_norm(&r)) || !mixer(&r, l) || !output(&r, l)) return false;
    if (l->attn_norm->r && l->attn_norm->r != l->out->y[0]) return false;
    l->n_op = r.at - at;
    if (feed_forward(&r, l)) l->n_op = r.at - at;
    return true;
}

bool dev_cpu_match_next(const struct cpu_layer_ops *l, const struct cpu_layer_ops *next)
{
    const struct dev_norm *a = l->attn_norm, *b = next->attn_norm;
    return l->ffn && next->ffn && b->x == a->x && b->n == a->n && b->r == l->out->y[0] &&
           next->out->y[0] == l->out->y[0] && next->n_head_kv == l->n_head_kv &&
           next->d_head == l->d_head && next->attn->n_head == l->attn->n_head &&
           next->attn->group == l->attn->group && next->attn->n_window == l->attn->n_window &&
           next->attn->y == l->attn->y && same_rope(l->rope, next->rope) &&
           cols(next->ffn->down) == cols(l->ffn->down);
}
