/* SPDX-License-Identifier: Apache-2.0 */
/* The KV cache on the device: a block's pages of all layers of a group lie together (their words:
 * vk/shader/page.glsl). */
#include "dev/gpu/gpu.h"

/* Words of a key or value of d numbers. */
static int64_t n_word(enum dev_kv_type t, int64_t d)
{
    switch (t) {
    case DEV_KV_F32:
        return d;
    case DEV_KV_Q8:
        return (d + 3) / 4 + (d + 31) / 32;
    default:
        return (d + 1) / 2;
    }
}

static int64_t page_words(const struct dev_kv_shape *s, const struct dev_kv_group *g)
{
    if (g->kind == DEV_KV_STATE) return g->d_k;
    return (n_word(s->type, g->d_k) + n_word(s->type, g->d_v)) * g->n_head * s->blk_tok;
}

static int64_t blk_bytes(const struct dev_kv_shape *s, const struct dev_kv_group *g)
{
    return 4 * page_words(s, g) * BASE_MAX(g->n_layer, 1);
}

int64_t dev_gpu_kv_bytes(const dev *d, const struct dev_kv_shape *s)
{
    int64_t n = 0;
    (void)d;
    for (int i = 0; i < s->n_group; i++)
        n += blk_bytes(s, &s->group[i]) * s->group[i].n_blk;
    return n;
}

enum dev_kv_type dev_gpu_kv_auto(const dev *d)
{
    return dev_kv_auto(dev_gpu_of(d)->cpu);
}

static sl_status open_group(struct gpu *c, const struct dev_kv_shape *s, int i,
                            struct gpu_cache_group *out, sl_err *err)
{
    const struct dev_kv_group *g = &s->group[i];
    out->page = page_words(s, g);
    out->n_layer = g->n_layer;
    return dev_gpu_carve_items(c, g->n_blk, blk_bytes(s, g), &out->p, err);
}

sl_status dev_gpu_kv_open(dev *d, const struct dev_kv_shape *s, dev_kv **out, sl_err *err)
{
    struct gpu *c = dev_gpu_of(d);
    void *p = NULL;
    SL_TRY(mem_arena_alloc(&c->arena, sizeof(struct gpu_kv), &p, err));
    struct gpu_kv *kv = p;
    kv->head = (struct dev_kv){.d = d};
    kv->s = *s;
    for (int i = 0; i < s->n_group; i++)
        SL_TRY(open_group(c, s, i, &kv->group[i], err));
    c->kv_forms |= 1u << dev_gpu_attn_on(c, s->type);
    SL_TRY(dev_gpu_attn_kernels(c, err));
    *out = &kv->head;
    return SL_OK;
}

static void fill(struct gpu *c, const struct gpu_kv *kv, int group, int blk, uint32_t word)
{
    uint8_t *host;
    const struct gpu_pieces *p = &kv->group[group].p;
    dev_gpu_fill(c, dev_gpu_item(p, blk, &host), word, p->item);
}

void dev_gpu_kv_touch(dev *d, dev_kv *kv, int group, const int32_t *blk, int n)
{
    for (int i = 0; i < n; i++)
        fill(dev_gpu_of(d), (const struct gpu_kv *)kv, group, blk[i], 0);
}

void dev_gpu_kv_poison(dev *d, dev_kv *kv, int group, int blk)
{
    fill(dev_gpu_of(d), (const struct gpu_kv *)kv, group, blk, 0xffffffffu);
}

void dev_gpu_kv_copy(struct gpu *c, const struct gpu_kv *kv, const int32_t copy[3])
{
    uint8_t *host;
    const struct gpu_pieces *p = &kv->group[copy[0]].p;
    dev_gpu_copy(c, dev_gpu_item(p, copy[2], &host), dev_gpu_item(p, copy[1], &host), p->item);
}
