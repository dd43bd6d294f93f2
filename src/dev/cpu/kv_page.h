/* SPDX-License-Identifier: Apache-2.0 */
/* The cache: where the keys and values of a position lie (kv.c). Room-internal. */
#ifndef DEV_CPU_KV_PAGE_H
#define DEV_CPU_KV_PAGE_H

#include "dev/dev_internal.h"
#include "kern/vec.h"

struct cpu;

#define CPU_KV_NEAR 4 /* blocks: those of a span of attention, 128 positions */

/* The pages of a group of layers. That of one block in one layer: GQA: C heads of keys (groups of
 * 16 positions, transposed), then C heads of values (rows). MLA: rows. Then index keys as those of
 * a head where there are any. n_near blocks in a row have theirs interleaved: the keys of a head of
 * all of them lie together, and so do its values, because memory is read faster in runs of some 32
 * KiB than of 8. */
struct cpu_kv_part {
    int layer0, every, n_row; /* n_row: of a page */
    int d_i, d_raw;
    size_t at, page_bytes;   /* where a block has the first of its pages; of one page */
    size_t index_at, raw_at; /* of a page: index keys; rows in f32 of all its positions */
};
struct cpu_kv {
    struct dev_kv_group s;
    int id; /* which group */
    int t;  /* enum vec_kv */
    int blk_tok;
    size_t group_bytes, row_bytes;   /* a group of 16 keys; a row of values, or of latents */
    size_t k_head_bytes, head_bytes; /* keys of one head in a page; rows of one head */
    size_t index_at, index_bytes;    /* of a page: its index keys; a group of 16 of them */
    size_t page_bytes, blk_bytes;    /* of all layers */
    int n_part;                      /* 0: all layers are alike */
    struct cpu_kv_part part[DEV_KV_PARTS];
    int n_near;    /* CPU_KV_NEAR, or 1 */
    uint8_t *base; /* [n_blk / n_near][L][n_near] pages */
};
struct cpu_cache {
    struct dev_kv head;
    int n_group;
    struct cpu_kv group[DEV_KV_GROUPS];
};
static inline const struct cpu_kv *dev_cpu_kv_of(const dev_kv *kv, int group)
{
    return &((const struct cpu_cache *)kv)->group[group];
}

/* The part that a layer is of; there are some. */
static inline const struct cpu_kv_part *dev_cpu_part(const struct cpu_kv *kv, int layer)
{
    const struct cpu_kv_part *p = kv->part + kv->n_part - 1;
    while (p->layer0 > layer)
        p--;
    return p;
}
/* Bytes of a layer's page, and of those before it in a block. */
static inline size_t dev_cpu_page_bytes(const struct cpu_kv *kv, int layer)
{
    return kv->n_part ? dev_cpu_part(kv, layer)->page_bytes : kv->page_bytes;
}
static inline size_t dev_cpu_layer_at(const struct cpu_kv *kv, int layer)
{
    if (!kv->n_part) return (size_t)layer * kv->page_bytes;
    const struct cpu_kv_part *p = dev_cpu_part(kv, layer);
    return p->at + (size_t)(layer - p->layer0) * p->page_bytes;
}
static inline uint8_t *dev_cpu_page(const struct cpu_kv *kv, int layer, int blk)
{
    size_t near = (size_t)kv->n_near, first = (size_t)blk / near, in = (size_t)blk % near;
    return kv->base + (first * kv->blk_bytes + dev_cpu_layer_at(kv, layer)) * near +
           in * kv->head_bytes;
}
/* The block of position pos of sequence seq. */
static inline uint8_t *dev_cpu_page_of(const struct cpu_kv *kv, int layer, const struct dev_step *b,
                                       int seq, int pos)
{
    return dev_cpu_page(kv, layer, b->blk[kv->id][(int64_t)seq * b->ld_blk + pos / kv->blk_tok]);
}
/* Where an entry of a sequence has its row: in the block of its last token. */
struct cpu_entry {
    uint8_t *page;
    int row;            /* of the page */
    size_t index_bytes; /* a group of 16 index keys */
};
static inline struct cpu_entry dev_cpu_entry_at(const struct cpu_kv *kv, int layer,
                                                const struct dev_step *b, int seq, int w)
{
    const struct cpu_kv_part *p = dev_cpu_part(kv, layer);
    int last = (w + 1) * p->every - 1;
    return (struct cpu_entry){dev_cpu_page_of(kv, layer, b, seq, last),
                              last % kv->blk_tok / p->every,
                              p->d_i ? vec_k_group_bytes(kv->t, p->d_i) : 0};
}
/* From a page on, to head h's position `in`: keys (of the group of 16 that it is in) and values. */
static inline size_t dev_cpu_key_at(const struct cpu_kv *kv, int h, int in)
{
    return (size_t)h * (size_t)kv->n_near * kv->k_head_bytes + (size_t)(in / 16) * kv->group_bytes;
}
static inline size_t dev_cpu_value_at(const struct cpu_kv *kv, int h, int in)
{
    size_t heads = (size_t)kv->s.n_head * kv->k_head_bytes + (size_t)h * kv->head_bytes;
    return (size_t)kv->n_near * heads + (size_t)in * kv->row_bytes;
}
/* The same to the index key's group. */
static inline size_t dev_cpu_index_at(const struct cpu_kv *kv, int in)
{
    return kv->index_at + (size_t)(in / 16) * kv->index_bytes;
}
/* For dev_op_times, when operators are timed: keys and values that the step's tokens see in one
 * layer, each once, and attention's products. */
void dev_cpu_attn_count(struct cpu *c, const struct cpu_kv *kv, const struct dev_step *b,
                        int n_window, const struct dev_cost *products);
/* Positions of one block that lie side by side, a power of two. */
static inline int dev_cpu_run_length(const struct cpu_kv *kv)
{
    int n = VEC_SPAN;
    while (kv->blk_tok % n)
        n /= 2;
    return n;
}
/* Where token t of the step has its place. */
struct cpu_place {
    uint8_t *page;
    int in; /* position in the page */
};
struct cpu_place dev_cpu_place(const struct cpu *c, const struct cpu_kv *kv, int layer,
                               const struct dev_step *b, int t);
/* Key and value of head h (rows.c). */
void dev_cpu_put_head(struct cpu *c, const struct cpu_kv *kv, struct cpu_place at, int h,
                      const float *k, const float *v);
/* Copy block src to dst in every layer. */
void dev_cpu_kv_copy(const struct cpu_kv *kv, int src, int dst);
/* Of a sequence with a state: drafts before the step that were right are its tokens -n_back to -1;
 * from token n_sure on they are drafts. */
struct cpu_drafts {
    int n_back, n_sure;
};
/* Those of the step's sequence q, which has tokens and whose state is at position at. Recordings
 * may say anything. */
static inline struct cpu_drafts dev_cpu_drafts(const struct dev_step *b, int q, int32_t at)
{
    int t0 = b->seq_tok0[q], n_tok = b->seq_tok0[q + 1] - t0, pos = b->pos[t0];
    int64_t n = (int64_t)pos - at;
    int n_back = pos > 0 && n > 0 && n <= DEV_STATE_BACK ? (int)n : 0;
    return (struct cpu_drafts){n_back, BASE_MAX(n_tok - (b->n_draft ? b->n_draft[q] : 0), -n_back)};
}

#endif
