/* SPDX-License-Identifier: Apache-2.0 */
/* Products by head and attention over latents, which is absorbed for all tokens. A head of a token
 * is a row; the list of rows' matrices is 0 .. H - 1 over and over. */
#include "dev/gpu/ops.h"

#include "base/size.h"

/* y[t, h, :] = W_h x[t, h, :], all rows ld apart. */
static void by_head(struct gpu *c, const dev_mat *mat, const struct gpu_rows *x, uint64_t y,
                    int64_t ldy)
{
    const struct gpu_mat *w = (const struct gpu_mat *)mat;
    struct gpu_product q = {.act = &c->mla.act,
                            .n_row = x->n_row,
                            .y = y,
                            .ldy = ldy,
                            .ids = c->mla.heads,
                            .per = 1};
    dev_gpu_prep_form(c, q.act, w->half[0].form, x, false);
    dev_gpu_product(c, mat, &q);
}

void dev_gpu_attn_mla(dev *d, const struct dev_step *b, const struct dev_attn_mla *p)
{
    struct gpu *c = dev_gpu_of(d);
    const struct gpu_kv *kv = (const struct gpu_kv *)p->kv;
    const struct gpu_cache_group *g = &kv->group[p->group];
    const struct gpu_step *t = step_of(c, b);
    struct gpu_spans spans = dev_gpu_spans(b, p->n_head, 0);
    struct gpu_folded to = {.y = c->mla.olat, .d = p->r};
    int n = b->n_tok * p->n_head, qd = p->nope + p->rope;
    struct gpu_rows x = {.x = at(p->q), .n = p->nope, .n_row = n, .ldx = qd};
    by_head(c, p->w_kb, &x, c->mla.lat, p->r);
    struct {
        uint64_t pieces, pos, seq_of, blk, lat, q, y, part;
        uint32_t per, type, page, n_layer, layer, blk_tok;
        uint32_t r, nope, rope, ld_blk;
        float scale;
        uint32_t n_part, span0, n_head;
    } k = {.pieces = g->p.table,
           .pos = t->pos,
           .seq_of = t->seq_of,
           .blk = t->blk[p->group],
           .lat = c->mla.lat,
           .q = at(p->q),
           .y = c->mla.olat,
           .part = dev_gpu_parts(c, &spans),
           .per = (uint32_t)g->p.per,
           .type = (uint32_t)kv->s.type,
           .page = (uint32_t)g->page,
           .n_layer = (uint32_t)g->n_layer,
           .layer = (uint32_t)p->layer,
           .blk_tok = (uint32_t)kv->s.blk_tok,
           .r = (uint32_t)p->r,
           .nope = (uint32_t)p->nope,
           .rope = (uint32_t)p->rope,
           .ld_blk = (uint32_t)b->ld_blk,
           .scale = p->scale,
           .n_part = (uint32_t)spans.n_part,
           .n_head = (uint32_t)p->n_head};
    uint32_t x_groups = groups(p->n_head, 4); /* ROWS of gpu/kernel/mla.inc */
    if (!spans.n_part) LAUNCH(c, GPU_mla, GRID(x_groups, b->n_tok, 1), k);
    for (int i = 0; spans.n_part && i < spans.n; i += spans.n_part) {
        k.span0 = (uint32_t)i;
        LAUNCH(c, GPU_mla, GRID(x_groups, b->n_tok, spans.n_part), k);
        dev_gpu_fold(c, b, &spans, i, &to);
    }
    x = (struct gpu_rows){.x = c->mla.olat, .n = p->r, .n_row = n, .ldx = p->r};
    by_head(c, p->w_vb, &x, at(p->y), p->v);
}

static sl_status make_heads(struct gpu *c, int n_row, int n_head, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)n_row, sizeof(int32_t), &p, err));
    int32_t *head = p;
    for (int i = 0; i < n_row; i++)
        head[i] = i % n_head;
    sl_status st = dev_gpu_carve(c, 4 * (int64_t)n_row, &c->mla.heads, NULL, err);
    if (!st) st = dev_gpu_put(c, c->mla.heads, head, 4 * (int64_t)n_row, err);
    mem_free(p);
    return st;
}

sl_status dev_gpu_mla_reserve(struct gpu *c, sl_err *err)
{
    const struct dev_shapes *p = &c->most;
    int64_t n = (int64_t)p->max.n_tok * p->n_head;
    if (p->mla_r == 0) return SL_OK;
    SL_TRY(dev_gpu_kernel(c, GPU_mla, err));
    SL_TRY(make_heads(c, (int)n, p->n_head, err));
    SL_TRY(dev_gpu_carve(c, 4 * n * p->mla_r, &c->mla.lat, NULL, err));
    SL_TRY(dev_gpu_carve(c, 4 * n * p->mla_r, &c->mla.olat, NULL, err));
    return dev_gpu_act_room(c, c->head_forms, p->head_cols, (int)n, &c->mla.act, err);
}
