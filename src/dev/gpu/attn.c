/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over a cache. A workgroup goes through the spans of a few rows, heads of tokens, that
 * read the same keys; where there are few of these and many spans, a workgroup takes one span, and
 * what they give is folded in rising order: the same bits. Grids follow from the number of tokens
 * and from the next power of two of the most spans that one sees, so logs of steps are equal until
 * a sequence is twice as long. */
#include "dev/gpu/ops.h"

#define SPAN 128      /* positions, as in gpu/kernel/spans.inc */
#define PARTS 2048    /* partial results at a time, at most: workgroups enough for any card */
#define ROWS 4        /* of a workgroup (kernel/attn.inc, mla.inc) */
#define MANY_ROWS 512 /* of a step: tokens may share workgroups too */
#define LEAST_SPANS 4 /* fewer are not worth a launch more */

static int next_power(int n)
{
    int p = 1;
    while (p < n)
        p *= 2;
    return p;
}

/* Spans that a token of the step sees, at most. */
static int most_spans(const struct dev_step *b, int n_window)
{
    int most = 0;
    for (int t = 0; t < b->n_tok; t++) {
        int from = n_window > 0 && b->pos[t] + 1 > n_window ? b->pos[t] + 1 - n_window : 0;
        most = BASE_MAX(most, b->pos[t] / SPAN - from / SPAN + 1);
    }
    return most;
}

struct gpu_spans dev_gpu_spans(const struct dev_step *b, int n_head, int n_window)
{
    int n = next_power(most_spans(b, n_window)), rows = n_head * b->n_tok;
    struct gpu_spans s = {.n_row = rows, .n_head = n_head, .n_window = n_window, .n = n};
    if (n >= LEAST_SPANS && 2 * rows <= PARTS)
        s.n_part = BASE_MIN(n, next_power(PARTS / rows + 1) / 2);
    return s;
}

uint64_t dev_gpu_parts(const struct gpu *c, const struct gpu_spans *s)
{
    return s->n_part ? c->parts : 0;
}

/* ROW_END of gpu/kernel/spans.inc: what the end of a row obeys. */
struct row_end {
    uint64_t per_head[N_PER_HEAD];
};

static struct row_end end_of(const struct dev_attn *p)
{
    struct row_end e = {{0}};
    for (int i = 0; p && i < N_PER_HEAD; i++)
        e.per_head[i] = at(p->per_head.of[i]);
    return e;
}

void dev_gpu_fold(struct gpu *c, const struct dev_step *b, const struct gpu_spans *s, int span0,
                  const struct gpu_folded *to)
{
    struct {
        uint64_t part, run, pos, y;
        struct row_end end;
        uint32_t n_part, span0, d, n_window, is_last, pad;
    } k = {.part = c->parts,
           .run = c->parts + 4 * (uint64_t)PARTS * (uint64_t)(c->part_d + 2),
           .pos = step_of(c, b)->pos,
           .y = to->y,
           .end = end_of(to->p),
           .n_part = (uint32_t)s->n_part,
           .span0 = (uint32_t)span0,
           .d = (uint32_t)to->d,
           .n_window = (uint32_t)s->n_window,
           .is_last = span0 + s->n_part >= s->n};
    LAUNCH(c, GPU_fold, GRID(s->n_head, b->n_tok, 1), k);
}

sl_status dev_gpu_attn_kernels(struct gpu *c, sl_err *err)
{
    static const enum gpu_kernel of[GPU_N_ON][4] = {
        {GPU_attn, GPU_mla, GPU_expand, GPU_expanded},
        {GPU_attn16, GPU_mla16, GPU_expand16, GPU_expanded16},
        {GPU_attn, GPU_mla_i16, GPU_expand, GPU_expanded},
    };
    const struct dev_shapes *p = &c->most;
    const bool needs[4] = {p->d_v > 0, p->mla_r > 0, c->mla.n_made > 0, c->mla.n_made > 0};
    for (int i = 0; i < 4 * GPU_N_ON; i++)
        if (c->kv_forms >> i / 4 & 1u && needs[i % 4])
            SL_TRY(dev_gpu_kernel(c, of[i / 4][i % 4], err));
    return SL_OK;
}

/* PARTS partial results, and half as many rows of what was so far. */
sl_status dev_gpu_attn_reserve(struct gpu *c, sl_err *err)
{
    const struct dev_shapes *p = &c->most;
    c->part_d = BASE_MAX(p->d_v, p->mla_r);
    if (c->part_d == 0) return SL_OK;
    SL_TRY(dev_gpu_kernel(c, GPU_fold, err));
    return dev_gpu_carve(c, 4 * (int64_t)(PARTS + PARTS / 2) * (c->part_d + 2), &c->parts, NULL,
                         err);
}

/* Heads of a KV head, and tokens in a row, that a workgroup has. */
static void share_rows(const struct dev_step *b, int n_row, int n_group, int *n_head, int *n_tok)
{
    *n_head = BASE_MIN(n_group, ROWS);
    *n_tok = n_row >= MANY_ROWS && b->n_tok >= ROWS * b->n_seq ? ROWS / *n_head : 1;
}

void dev_gpu_attn(dev *d, const struct dev_step *b, const struct dev_attn *p)
{
    struct gpu *c = dev_gpu_of(d);
    const struct gpu_kv *kv = (const struct gpu_kv *)p->kv;
    const struct gpu_cache_group *g = &kv->group[p->group];
    int n_kv = kv->s.group[p->group].n_head, n_group = p->n_head / n_kv, n_h, n_t;
    const struct gpu_step *t = step_of(c, b);
    struct gpu_spans spans = dev_gpu_spans(b, p->n_head, BASE_MAX(p->n_window, 0));
    struct gpu_folded to = {.y = at(p->y), .d = p->d_v, .p = p};
    share_rows(b, spans.n_part ? 0 : p->n_head * b->n_tok, n_group, &n_h, &n_t);
    struct {
        uint64_t pieces, pos, seq_of, blk, q, y, part;
        struct row_end end;
        uint32_t per, type, page, layers, blk_tok;
        uint32_t d_k, d_v, n_kv, n_group, ld_blk, n_window;
        float scale;
        uint32_t n_part, span0, n_tok, pad;
    } k = {.pieces = g->p.table,
           .pos = t->pos,
           .seq_of = t->seq_of,
           .blk = t->blk[p->group],
           .q = at(p->q),
           .y = at(p->y),
           .part = dev_gpu_parts(c, &spans),
           .end = end_of(p),
           .per = (uint32_t)g->p.per,
           .type = (uint32_t)(n_t << 16 | n_h << 8) | (uint32_t)kv->s.type,
           .page = (uint32_t)g->page,
           .layers = (uint32_t)g->n_layer << 16 | (uint32_t)p->layer,
           .blk_tok = (uint32_t)kv->s.blk_tok,
           .d_k = (uint32_t)p->d_k,
           .d_v = (uint32_t)p->d_v,
           .n_kv = (uint32_t)n_kv,
           .n_group = (uint32_t)n_group,
           .ld_blk = (uint32_t)b->ld_blk,
           .n_window = (uint32_t)spans.n_window,
           .scale = p->scale,
           .n_part = (uint32_t)spans.n_part,
           .n_tok = (uint32_t)b->n_tok};
    enum gpu_kernel id = dev_gpu_bf16(c, kv->s.type) ? GPU_attn16 : GPU_attn;
    uint32_t x = (uint32_t)n_kv * groups(n_group, n_h), y = groups(b->n_tok, n_t);
    if (!spans.n_part) LAUNCH(c, id, GRID(x, y, 1), k);
    for (int i = 0; spans.n_part && i < spans.n; i += spans.n_part) {
        k.span0 = (uint32_t)i;
        LAUNCH(c, id, GRID(x, y, spans.n_part), k);
        dev_gpu_fold(c, b, &spans, i, &to);
    }
}
