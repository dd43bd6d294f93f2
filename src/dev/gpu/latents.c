/* SPDX-License-Identifier: Apache-2.0 */
/* Products by head and attention over latents: absorbed, or over keys and values that are made of
 * them (model/mla.c says for which tokens; dev/cpu/mla.c has the same two). A head of a token is a
 * row; the list of rows' matrices is 0 .. H - 1 over and over. */
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

/* Where latents lie and how wide they are, as kernels' arguments have it. */
struct rows_k {
    uint32_t per, type, page, layers, blk_tok;
    uint32_t r, nope, rope;
};

static struct rows_k rows_of(const struct dev_attn_mla *p)
{
    const struct gpu_kv *kv = (const struct gpu_kv *)p->kv;
    const struct gpu_cache_group *g = &kv->group[p->group];
    return (struct rows_k){.per = (uint32_t)g->p.per,
                           .type = (uint32_t)kv->s.type,
                           .page = (uint32_t)g->page,
                           .layers = (uint32_t)g->n_layer << 16 | (uint32_t)p->layer,
                           .blk_tok = (uint32_t)kv->s.blk_tok,
                           .r = (uint32_t)p->r,
                           .nope = (uint32_t)p->nope,
                           .rope = (uint32_t)p->rope};
}

/* Tokens of prompts of a sequence from dev_limits.mla_expand_from on: [t[0], t[1]). */
static bool expands(const struct gpu *c, const struct dev_step *b, int seq, int t[2])
{
    int end = b->n_prompt ? b->n_prompt[seq] : 0, from = c->most.max.mla_expand_from;
    t[0] = b->seq_tok0[seq];
    t[1] = b->seq_tok0[seq + 1];
    while (t[0] < t[1] && b->pos[t[0]] < from)
        t[0]++;
    while (t[1] > t[0] && b->pos[t[1] - 1] >= end)
        t[1]--;
    return t[0] < t[1];
}

static void absorbed(struct gpu *c, const struct dev_step *b, const struct dev_attn_mla *p)
{
    const struct gpu_kv *kv = (const struct gpu_kv *)p->kv;
    const struct gpu_cache_group *g = &kv->group[p->group];
    const struct gpu_step *t = step_of(c, b);
    struct gpu_spans spans = dev_gpu_spans(b, p->n_head, 0);
    struct gpu_folded to = {.y = c->mla.olat, .d = p->r};
    int n = b->n_tok * p->n_head, qd = p->nope + p->rope;
    struct gpu_rows x = {.x = at(p->q), .n = p->nope, .n_row = n, .ldx = qd};
    by_head(c, p->w_kb, &x, c->mla.lat, p->r);
    struct {
        uint64_t pieces, pos, seq_of, blk, lat, q, y, part, generated;
        struct rows_k rows;
        uint32_t ld_blk;
        float scale;
        uint32_t n_part, span0, n_head, expand_from;
    } k = {.pieces = g->p.table,
           .pos = t->pos,
           .seq_of = t->seq_of,
           .blk = t->blk[p->group],
           .lat = c->mla.lat,
           .q = at(p->q),
           .y = c->mla.olat,
           .part = dev_gpu_parts(c, &spans),
           .generated = t->generated,
           .rows = rows_of(p),
           .ld_blk = (uint32_t)b->ld_blk,
           .scale = p->scale,
           .n_part = (uint32_t)spans.n_part,
           .n_head = (uint32_t)p->n_head,
           .expand_from = (uint32_t)c->most.max.mla_expand_from};
    static const enum gpu_kernel on[GPU_N_ON] = {GPU_mla, GPU_mla16, GPU_mla_i16};
    enum gpu_kernel id = on[dev_gpu_attn_on(c, kv->s.type)];
    uint32_t x_groups = groups(p->n_head, 4); /* ROWS of gpu/kernel/chain.inc */
    if (!spans.n_part) LAUNCH(c, id, GRID(x_groups, b->n_tok, 1), k);
    for (int i = 0; spans.n_part && i < spans.n; i += spans.n_part) {
        k.span0 = (uint32_t)i;
        LAUNCH(c, id, GRID(x_groups, b->n_tok, spans.n_part), k);
        dev_gpu_fold(c, b, &spans, i, &to);
    }
    x = (struct gpu_rows){.x = c->mla.olat, .n = p->r, .n_row = n, .ldx = p->r};
    by_head(c, p->w_vb, &x, at(p->y), p->v);
}

/* ---- materialised: keys and values of a window of positions at a time ---- */

#define SPAN 128    /* positions, as in gpu/kernel/spans.inc */
#define AT_A_TIME 8 /* N_POS of gpu/kernel/expand.inc */
#define MADE_BYTES ((int64_t)64 << 20)

static int64_t words(int64_t n, bool bf16)
{
    return bf16 ? (n + 1) / 2 : n;
}

/* Bytes of keys and values of SPAN positions, all heads. */
static int64_t span_bytes(int n_head, int d_k, int d_v, bool bf16)
{
    return 4 * SPAN * (int64_t)n_head * (words(d_k, bf16) + words(d_v, bf16));
}

struct window {
    int seq, t[2], pos0, n; /* tokens [t[0], t[1]) of a sequence over n positions from pos0 on */
    bool bf16;
};

static void make(struct gpu *c, const struct dev_step *b, const struct dev_attn_mla *p,
                 const struct window *w)
{
    const struct gpu_kv *kv = (const struct gpu_kv *)p->kv;
    const struct gpu_cache_group *g = &kv->group[p->group];
    const struct gpu_step *t = step_of(c, b);
    struct {
        uint64_t pieces, pos, blk, keys, values, made;
        struct rows_k rows;
        uint32_t v;
        uint32_t pos0, last, pad;
    } k = {.pieces = g->p.table,
           .pos = t->pos,
           .blk = t->blk[p->group] + 4 * (uint64_t)w->seq * (uint64_t)b->ld_blk,
           .keys = c->mla.keys,
           .values = c->mla.values,
           .made = c->mla.made,
           .rows = rows_of(p),
           .v = (uint32_t)p->v,
           .pos0 = (uint32_t)w->pos0,
           .last = (uint32_t)w->t[1] - 1};
    LAUNCH(c, w->bf16 ? GPU_expand16 : GPU_expand, GRID(p->n_head, groups(w->n, AT_A_TIME), 1), k);
}

static void attend(struct gpu *c, const struct dev_step *b, const struct dev_attn_mla *p,
                   const struct window *w)
{
    int n_tok = w->t[1] - w->t[0];
    struct {
        uint64_t pos, kv, q, run, y;
        uint32_t d_k, d_v, n_head, tok0, n_tok, pos0, n_pos;
        float scale;
    } k = {.pos = step_of(c, b)->pos,
           .kv = c->mla.made,
           .q = at(p->q),
           .run = c->mla.run,
           .y = at(p->y),
           .d_k = (uint32_t)(p->nope + p->rope),
           .d_v = (uint32_t)p->v,
           .n_head = (uint32_t)p->n_head,
           .tok0 = (uint32_t)w->t[0],
           .n_tok = (uint32_t)n_tok,
           .pos0 = (uint32_t)w->pos0,
           .n_pos = (uint32_t)w->n,
           .scale = p->scale};
    LAUNCH(c, w->bf16 ? GPU_expanded16 : GPU_expanded, GRID(p->n_head, groups(n_tok, 4), 1), k);
}

static void materialised(struct gpu *c, const struct dev_step *b, const struct dev_attn_mla *p,
                         struct window w)
{
    int end = b->pos[w.t[1] - 1] + 1;
    int64_t one = span_bytes(p->n_head, p->nope + p->rope, p->v, w.bf16);
    w.n = SPAN * (int)BASE_MIN(c->mla.n_made / one, (end + SPAN - 1) / SPAN);
    for (; w.pos0 < end; w.pos0 += w.n) {
        make(c, b, p, &w);
        attend(c, b, p, &w);
    }
}

void dev_gpu_attn_mla(dev *d, const struct dev_step *b, const struct dev_attn_mla *p)
{
    struct gpu *c = dev_gpu_of(d);
    const struct gpu_kv *kv = (const struct gpu_kv *)p->kv;
    int n = 0, t[2];
    for (int q = 0; q < b->n_seq && c->mla.n_made; q++)
        if (expands(c, b, q, t)) n += t[1] - t[0];
    if (n < b->n_tok) absorbed(c, b, p); /* of the others, too, whose results are then replaced */
    if (n) dev_gpu_unpack(c, p->w_kb, c->mla.keys);
    if (n) dev_gpu_unpack(c, p->w_vb, c->mla.values);
    for (int q = 0; q < b->n_seq && n; q++) {
        struct window w = {.seq = q, .bf16 = dev_gpu_bf16(c, kv->s.type)};
        if (expands(c, b, q, w.t)) materialised(c, b, p, w);
    }
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

/* Of as many spans as MADE_BYTES hold, or a slab, at least one. */
static sl_status reserve_made(struct gpu *c, sl_err *err)
{
    const struct dev_shapes *p = &c->most;
    int64_t one = span_bytes(p->n_head, p->mla_nope + p->mla_rope, p->mla_v, false);
    int64_t n = (p->max.n_ctx + SPAN - 1) / SPAN, most = BASE_MIN(MADE_BYTES, c->slab_bytes);
    if (p->max.mla_expand_from >= p->max.n_ctx) return SL_OK;
    c->mla.n_made = one * BASE_MAX(BASE_MIN(n, most / one), 1);
    int64_t key = (int64_t)p->mla_r * p->mla_nope, value = (int64_t)p->mla_r * p->mla_v;
    SL_TRY(dev_gpu_carve(c, 4 * p->n_head * key, &c->mla.keys, NULL, err));
    SL_TRY(dev_gpu_carve(c, 4 * p->n_head * value, &c->mla.values, NULL, err));
    SL_TRY(dev_gpu_carve(c, c->mla.n_made, &c->mla.made, NULL, err));
    return dev_gpu_carve(c, 4 * (int64_t)p->max.n_tok * p->n_head * (p->mla_v + 2), &c->mla.run,
                         NULL, err);
}

sl_status dev_gpu_mla_reserve(struct gpu *c, sl_err *err)
{
    const struct dev_shapes *p = &c->most;
    int64_t n = (int64_t)p->max.n_tok * p->n_head;
    if (p->mla_r == 0) return SL_OK;
    SL_TRY(make_heads(c, (int)n, p->n_head, err));
    SL_TRY(dev_gpu_carve(c, 4 * n * p->mla_r, &c->mla.lat, NULL, err));
    SL_TRY(dev_gpu_carve(c, 4 * n * p->mla_r, &c->mla.olat, NULL, err));
    SL_TRY(reserve_made(c, err));
    return dev_gpu_act_room(c, c->head_forms, p->head_cols, (int)n, &c->mla.act, err);
}
