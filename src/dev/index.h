/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of a lightning indexer: as those of dev/dev.h. */
#ifndef DEV_INDEX_H
#define DEV_INDEX_H

#include <stdint.h>

typedef struct dev_kv dev_kv;

/* Which positions a token's attention sees. Keys k are those that dev_kv_put stored (its i,
 * dev_kv_group.d_i), also of the step's own tokens. Among equals the lower is chosen; what is
 * chosen rises.
 *
 * blk 0, of attention over latents (DeepSeek-V3.2): of a token at position p the `top` positions
 * s <= p with the largest sum over h of w[t, h] * max(0, q[t, h] k[s]), in pick[t]. A token at a
 * position below top sees all, and its row of pick stays as it is.
 *
 * Else, of attention with keys and values per head (MiniMax-M3): for every KV head h by itself the
 * `top` blocks of blk positions, the first of which is 0, with the largest score, in pick[t, h]. A
 * block's score is the largest q[t, h] k[s] of its positions s <= p; that of the last n_local ones,
 * up to the block of p, is larger than any. A token at a position below top * blk sees all, and its
 * rows stay as they are.
 *
 * every > 0, with blk 0, of entries (dev/ckv.h): as of positions, but s counts the index keys of
 * entries, of which (p + 1) / every are whole; a token with at most `top` of them sees all. */
struct dev_index {
    const dev_kv *kv;
    int group, layer, n_head, d, top;
    int blk, n_local; /* blk: 16, 32, 64 or 128; n_local: at most top */
    int every;
    const float *q;   /* [T, n_head, d] */
    const float *w;   /* [T, n_head]; NULL with blk */
    int32_t *pick;    /* [T, top], with blk [T, n_head, top] */
};
/* Scores of a token at the last of so many positions. */
static inline int dev_index_scores(const struct dev_index *p, int n_ctx)
{
    if (p->every) return n_ctx / p->every;
    return p->blk ? p->n_head * ((n_ctx + p->blk - 1) / p->blk) : n_ctx;
}
/* Of them, those that a token at position pos has. */
static inline int dev_index_seen(const struct dev_index *p, int pos)
{
    return p->every ? (pos + 1) / p->every : p->blk ? pos / p->blk + 1 : pos + 1;
}

/* What of the context attention with keys and values per head sees: a token at a position from
 * n_pick * blk on, in the heads of KV head c, the blocks that row [t, c] names, rising. Without
 * pick all tokens see all; blk says then too how layers of the kind add up. */
struct dev_blocks {
    int blk, n_pick;     /* blk: as of dev_index; 0 = layers of another kind */
    const int32_t *pick; /* [T, C, n_pick], or NULL */
};

#endif
