/* SPDX-License-Identifier: Apache-2.0 */
/* Which operators of a program are run together: layers
 *
 *     norm | matmul q, k, v | (norm q, norm k) | rope q, rope k | kv_put | attn | prep | matmul o |
 *     norm | ffn
 *
 * with keys and values per head, of MLA
 *
 *     norm | matmul q_a, kv_a | norm | matmul q_b | norm kv | rope k, rope q | kv_put | attn_mla
 * ... norm | matmul q, kv_a | norm kv | rope k, rope q | kv_put | attn_mla ...
 *
 * and with experts
 *
 *     ... norm | matmul router | route | (ffn) | moe
 *
 * without the last ones where the feed-forward block is of another kind or of another device. */
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
    if (!p || p->n_row || p->n_head > 1 || p->gather || p->y || !p->act || p->ranks) return NULL;
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
    if (!p || p->act != act || p->n_row || p->n_head || p->rows || p->n_mat != n_mat) return NULL;
    for (int i = 0; i < n_mat; i++)
        if (cols(p->w[i]) != n_col || (p->ldy[i] && p->ldy[i] != rows(p->w[i]))) return NULL;
    return p;
}

/* ld[0]: from a token to the next; ld[1]: from a head to the next. */
static const struct dev_rope *take_rope(struct reader *r, const float *x, int n_head,
                                        const int64_t ld[2])
{
    const struct dev_op *op = take(r, DEV_OP_rope);
    const struct dev_rope *p = op ? &op->u.rope : NULL;
    if (!p || p->x != x || p->n_head != n_head || p->ldx != ld[0] || p->ldx_h != ld[1] || p->back)
        return NULL;
    return p;
}

static bool same_rope(const struct dev_rope *a, const struct dev_rope *b)
{
    return a->n_rot == b->n_rot && a->style == b->style && a->freq == b->freq &&
           a->mscale == b->mscale;
}

/* From the products of queries, keys and values to attention. */
static bool heads(struct reader *r, struct cpu_layer_ops *l)
{
    const struct dev_norm *an = l->attn_norm;
    if (!(l->in = take_matmul(r, an->act, 3, an->n))) return false;
    const float *q = l->in->y[0], *k = l->in->y[1], *v = l->in->y[2];
    int nq = rows(l->in->w[0]), nk = rows(l->in->w[1]), at = r->at;
    while (at < r->n_op && r->op[at].kind == DEV_OP_norm)
        at++;
    if (at >= r->n_op || r->op[at].kind != DEV_OP_rope) return false;
    int d = l->d_head = (int)r->op[at].u.rope.ldx_h;
    if (d < 1 || nq % d || nk % d || rows(l->in->w[2]) != nk) return false;
    int H = nq / d, C = l->n_head_kv = nk / d;
    if (H % C) return false;
    if (at > r->at &&
        (!(l->q_norm = take_head_norm(r, q, H, d)) || !(l->k_norm = take_head_norm(r, k, C, d))))
        return false;
    const struct dev_rope *rk;
    if (!(l->rope = take_rope(r, q, H, (const int64_t[]){nq, d})) ||
        !(rk = take_rope(r, k, C, (const int64_t[]){nk, d})) || !same_rope(l->rope, rk))
        return false;
    const struct dev_op *put = take(r, DEV_OP_kv_put), *at_ = take(r, DEV_OP_attn);
    if (!put || put->u.kv_put.k != k || put->u.kv_put.v != v || put->u.kv_put.ldk != nk ||
        put->u.kv_put.ldv != nk || put->u.kv_put.i || !at_ || at_->u.attn.some.blk)
        return false;
    l->attn = &at_->u.attn;
    return l->attn->q == q && l->attn->n_head == H && l->attn->group == put->u.kv_put.group &&
           l->attn->layer == put->u.kv_put.layer;
}

/* The queries of MLA, by way of a latent or not; NULL: something else. */
static const float *latent_queries(struct reader *r, struct cpu_layer_ops *l, int *n)
{
    const struct dev_norm *an = l->attn_norm;
    if (!(l->in = take_matmul(r, an->act, 2, an->n))) return NULL;
    int at = r->at;
    const struct dev_norm *p = take_norm(r);
    *n = rows(l->in->w[0]);
    if (!p || p->x != l->in->y[0]) {
        r->at = at;
        return l->in->y[0];
    }
    if (p->r || p->n != *n || !(l->q_b = take_matmul(r, p->act, 1, p->n))) return NULL;
    l->q_a_norm = p;
    *n = rows(l->q_b->w[0]);
    return l->q_b->y[0];
}

/* The norm of the latents in rows of n values, in place. */
static const struct dev_norm *take_latent_norm(struct reader *r, const float *x, int n)
{
    const struct dev_op *op = take(r, DEV_OP_norm);
    const struct dev_norm *p = op ? &op->u.norm : NULL;
    if (!p || p->x != x || p->y != x || p->r || p->act || p->n_row || p->gather) return NULL;
    return p->n_head <= 1 && p->n < n && p->ldx == n && p->ldy == n ? p : NULL;
}

static bool is_stack(const dev_mat *m, int n, int n_row, int n_col)
{
    return dev_cpu_mat_of(m)->n >= n && rows(m) == n_row && cols(m) == n_col;
}

static bool latents(struct reader *r, struct cpu_layer_ops *l)
{
    int nq;
    const float *q = latent_queries(r, l, &nq);
    if (!q) return false;
    float *k = l->in->y[1];
    int row = rows(l->in->w[1]);
    if (!(l->kv_norm = take_latent_norm(r, k, row))) return false;
    const struct dev_rope *rk = take_rope(r, k + l->kv_norm->n, 1, (const int64_t[]){row, row});
    if (!rk || r->at + 2 >= r->n_op || r->op[r->at + 2].kind != DEV_OP_attn_mla) return false;
    const struct dev_attn_mla *p = l->mla = &r->op[r->at + 2].u.attn_mla;
    if (p->pick) return false;
    int qd = p->nope + p->rope;
    l->rope = take_rope(r, q + p->nope, p->n_head, (const int64_t[]){nq, qd});
    if (!l->rope || !same_rope(l->rope, rk)) return false;
    const struct dev_op *put = take(r, DEV_OP_kv_put);
    if (!put || put->u.kv_put.k != k || put->u.kv_put.i || put->u.kv_put.ldk != row) return false;
    r->at++;
    return p->q == q && p->n_head * qd == nq && p->r == l->kv_norm->n && p->r + p->rope == row &&
           p->group == put->u.kv_put.group && p->layer == put->u.kv_put.layer &&
           is_stack(p->w_kb, p->n_head, p->r, p->nope) && is_stack(p->w_vb, p->n_head, p->v, p->r);
}

/* A mixer of either kind begins with products, of which one has three matrices, the other two. */
static bool mixer(struct reader *r, struct cpu_layer_ops *l)
{
    if (r->at >= r->n_op || r->op[r->at].kind != DEV_OP_matmul) return false;
    return r->op[r->at].u.matmul.n_mat == 2 ? latents(r, l) : heads(r, l);
}

static bool output(struct reader *r, struct cpu_layer_ops *l)
{
    const struct dev_op *op = take(r, DEV_OP_prep);
    const struct dev_prep *p = op ? &op->u.prep : NULL;
    int n = l->mla ? l->mla->n_head * l->mla->v : l->attn->n_head * l->d_head;
    if (!p || p->x != (l->mla ? l->mla->y : l->attn->y) || p->n != n || p->n_row ||
        (p->ldx && p->ldx != n))
        return false;
    if (!(l->out = take_matmul(r, p->act, 1, n))) return false;
    return rows(l->out->w[0]) == l->attn_norm->n;
}

/* A gated block on the prepared output of a norm. */
static const struct dev_ffn *take_ffn(struct reader *r, const struct dev_norm *from)
{
    const struct dev_op *op = take(r, DEV_OP_ffn);
    const struct dev_ffn *p = op ? &op->u.ffn : NULL;
    if (!p || p->act != from->act || p->n_row || p->keep_h) return NULL;
    if (cols(p->gate_up) != from->n || rows(p->gate_up) != cols(p->down) ||
        rows(p->down) != from->n)
        return NULL;
    return p;
}

static bool experts(struct reader *r, struct cpu_layer_ops *l, const struct dev_norm *from)
{
    if (!(l->router = take_matmul(r, from->act, 1, from->n))) return false;
    const struct dev_op *op = take(r, DEV_OP_route);
    const struct dev_route *w = l->route = op ? &op->u.route : NULL;
    if (!w || w->of_id || w->logit != l->router->y[0] || w->n_tok ||
        w->n_expert != rows(l->router->w[0]))
        return false;
    if (r->at < r->n_op && r->op[r->at].kind == DEV_OP_ffn && !(l->ffn = take_ffn(r, from)))
        return false;
    op = take(r, DEV_OP_moe);
    const struct dev_moe *p = l->moe = op ? &op->u.moe : NULL;
    if (!p || p->act != from->act || p->n_tok || p->id != w->id || p->weight != w->weight ||
        p->k != w->k || p->n_expert != w->n_expert || p->tap.fn || p->n_late || p->before)
        return false;
    if (p->y != l->out->y[0] || p->add != (l->ffn ? l->ffn->y : NULL)) return false;
    return cols(p->gate_up) == from->n && rows(p->gate_up) == cols(p->down) &&
           rows(p->down) == from->n;
}

/* False: l is as it was. */
static bool feed_forward(struct reader *r, struct cpu_layer_ops *l)
{
    const struct dev_norm *an = l->attn_norm, *fn = take_norm(r);
    struct cpu_layer_ops t = *l;
    if (!fn || fn->x != an->x || fn->n != an->n || fn->r != l->out->y[0]) return false;
    bool is_dense = r->at < r->n_op && r->op[r->at].kind == DEV_OP_ffn;
    if (is_dense) t.ffn = take_ffn(r, fn);
    if (is_dense ? !t.ffn || t.ffn->y != l->out->y[0] : !experts(r, &t, fn)) return false;
    *l = t;
    l->ffn_norm = fn;
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

static bool same_attn(const struct cpu_layer_ops *a, const struct cpu_layer_ops *b)
{
    const struct dev_attn *p = a->attn, *q = b->attn;
    if (!p || !q) return !p && !q;
    return b->n_head_kv == a->n_head_kv && b->d_head == a->d_head && q->n_head == p->n_head &&
           q->group == p->group && q->n_window == p->n_window && q->y == p->y;
}

static bool same_mla(const struct cpu_layer_ops *a, const struct cpu_layer_ops *b)
{
    const struct dev_attn_mla *p = a->mla, *q = b->mla;
    if (!p || !q) return !p && !q;
    return q->n_head == p->n_head && q->group == p->group && q->r == p->r && q->nope == p->nope &&
           q->rope == p->rope && q->v == p->v;
}

bool dev_cpu_match_next(const struct cpu_layer_ops *l, const struct cpu_layer_ops *next)
{
    const struct dev_norm *a = l->attn_norm, *b = next->attn_norm;
    return l->ffn_norm && next->ffn_norm && b->x == a->x && b->n == a->n && b->r == l->out->y[0] &&
           next->out->y[0] == l->out->y[0] && same_attn(l, next) && same_mla(l, next) &&
           same_rope(l->rope, next->rope);
}
