/* SPDX-License-Identifier: Apache-2.0 */
/* The KV cache: pages of blocks and layers, in every group of layers. Those of a few blocks of all
 * layers of the group lie together, so that memory that is touched for the first time comes evenly:
 * were all of a layer's together, every layer would reach a new huge page at about the same token,
 * and that step take ten times as long. */
#include <limits.h>

#include "dev/cpu/cpu.h"
#include "dev/cpu/kv_page.h"
#include "dev/cpu/mem.h"
#include "dev/cpu/rows.h"

/* Pages of layers that are not alike. */
static void layout_parts(const struct dev_kv_group *g, struct cpu_kv *kv)
{
    size_t blk = (size_t)kv->blk_tok;
    int layer0 = 0;
    kv->blk_bytes = 0;
    while (kv->n_part < DEV_KV_PARTS && g->part[kv->n_part].every > 0) {
        const struct dev_kv_part *of = &g->part[kv->n_part];
        struct cpu_kv_part *p = &kv->part[kv->n_part++];
        size_t n_row = BASE_MAX(blk / (size_t)of->every, 1), n_group = (n_row + 15) / 16;
        *p = (struct cpu_kv_part){.layer0 = layer0, .every = of->every, .n_row = (int)n_row};
        p->d_i = of->d_i;
        p->d_raw = of->d_raw;
        p->at = kv->blk_bytes;
        p->index_at = of->bare ? 0 : size_round(kv->row_bytes * n_row, 64);
        p->raw_at = p->index_at;
        if (p->d_i) p->raw_at += vec_k_group_bytes(kv->t, p->d_i) * n_group;
        p->page_bytes = size_round(p->raw_at + sizeof(float) * (size_t)p->d_raw * blk, 64);
        kv->blk_bytes += p->page_bytes * (size_t)of->n_layer;
        layer0 += of->n_layer;
    }
}

static void layout(const struct dev_kv_shape *s, int group, struct cpu_kv *kv)
{
    const struct dev_kv_group *g = &s->group[group];
    *kv = (struct cpu_kv){.s = *g, .id = group, .t = (int)s->type, .blk_tok = s->blk_tok};
    size_t blk = (size_t)s->blk_tok, heads = (size_t)g->n_head;
    if (g->kind == DEV_KV_STATE) {
        kv->head_bytes = (size_t)g->d_k * sizeof(float);
    } else if (g->d_v == 0) {
        kv->row_bytes = vec_v_row_bytes(kv->t, g->d_k);
        kv->head_bytes = kv->row_bytes * blk;
    } else {
        kv->group_bytes = vec_k_group_bytes(kv->t, g->d_k);
        kv->k_head_bytes = kv->group_bytes * (blk / 16);
        kv->row_bytes = vec_v_row_bytes(kv->t, g->d_v);
        kv->head_bytes = kv->row_bytes * blk;
    }
    kv->page_bytes = size_round((kv->k_head_bytes + kv->head_bytes) * heads, 64);
    if (g->d_i) {
        kv->index_at = kv->page_bytes;
        kv->index_bytes = vec_k_group_bytes(kv->t, g->d_i);
        kv->page_bytes += size_round(kv->index_bytes * (blk / 16), 64);
    }
    bool alike = kv->k_head_bytes == kv->head_bytes || !kv->k_head_bytes;
    bool many = g->n_blk >= CPU_KV_NEAR && g->n_blk < INT_MAX / 2;
    bool near = g->kind != DEV_KV_STATE && !g->d_i && alike && many && kv->head_bytes % 64 == 0;
    near = near && !g->part[0].every;
    kv->n_near = near ? CPU_KV_NEAR : 1;
    kv->blk_bytes = kv->page_bytes * (size_t)g->n_layer;
    if (g->part[0].every) layout_parts(g, kv);
    kv->s.n_blk = (g->n_blk + kv->n_near - 1) / kv->n_near * kv->n_near;
}

/* What a page consists of: n runs of bytes, step apart. */
struct runs {
    size_t n, bytes, step;
};

static struct runs runs_of(const struct cpu_kv *kv, int layer)
{
    size_t heads = (size_t)kv->s.n_head * (kv->k_head_bytes ? 2 : 1);
    if (kv->n_near == 1) return (struct runs){1, dev_cpu_page_bytes(kv, layer), 0};
    return (struct runs){heads, kv->head_bytes, (size_t)kv->n_near * kv->head_bytes};
}

static void fill_page(const struct cpu_kv *kv, int layer, int blk, int value)
{
    struct runs r = runs_of(kv, layer);
    for (size_t i = 0; i < r.n; i++)
        memset(dev_cpu_page(kv, layer, blk) + i * r.step, value, r.bytes);
}

int64_t dev_cpu_kv_bytes(const dev *d, const struct dev_kv_shape *s)
{
    (void)d;
    int64_t n = 0;
    for (int i = 0; i < s->n_group; i++) {
        struct cpu_kv kv;
        layout(s, i, &kv);
        n += (int64_t)kv.blk_bytes * kv.s.n_blk;
    }
    return n;
}

/* Where the CPU multiplies bf16 twice as fast as f32, a bf16 cache makes attention 2 to 3 times as
 * fast as an f32 one, and its roundings cost little: mean KL against f32 on SmolLM2 0.00005 (q8
 * 0.0006). Elsewhere an f16 one takes the same time and is the finer one (0.000001). */
enum dev_kv_type dev_cpu_kv_auto(const dev *d)
{
    const struct cpu *c = (const struct cpu *)d;
    if (c->acts == DEV_ACTS_F32) return DEV_KV_F32;
    return kern_get()->attn_bf16 && !c->exact ? DEV_KV_BF16 : DEV_KV_F16;
}

static sl_status open_group(struct cpu *c, const struct dev_kv_shape *s, int group,
                            struct cpu_kv *kv, sl_err *err)
{
    const struct dev_kv_group *g = &s->group[group];
    uint64_t n;
    layout(s, group, kv);
    if (!size_mul(kv->blk_bytes, (uint64_t)kv->s.n_blk, &n) || n > SIZE_MAX / 4)
        return SL_FAIL(err, NOMEM, "kv cache: %d blocks of %zu bytes in %d layers do not fit",
                       g->n_blk, kv->blk_bytes, g->n_layer);
    return dev_cpu_mem(c, MEM_KV, n + 64, (void **)&kv->base, err);
}

sl_status dev_cpu_kv_open(dev *d, const struct dev_kv_shape *s, dev_kv **out, sl_err *err)
{
    struct cpu *c = dev_cpu_of(d);
    struct cpu_cache *kv = NULL;
    SL_TRY(dev_cpu_mem(c, MEM_MISC, sizeof *kv, (void **)&kv, err));
    kv->head = (struct dev_kv){.d = d};
    kv->n_group = s->n_group;
    for (int i = 0; i < s->n_group; i++)
        SL_TRY(open_group(c, s, i, &kv->group[i], err));
    *out = (dev_kv *)kv;
    return SL_OK;
}

void dev_cpu_attn_count(struct cpu *c, const struct cpu_kv *kv, const struct dev_step *b,
                        int n_window, const struct dev_cost *products)
{
    struct dev_cost *cost = &c->head.cost;
    if (!c->head.timing) return;
    cost->ops += products->ops;
    cost->flops += products->flops;
    size_t per = (kv->group_bytes / 16 + kv->row_bytes) * (size_t)kv->s.n_head;
    for (int s = 0; s < b->n_seq; s++) {
        int t0 = b->seq_tok0[s], t1 = b->seq_tok0[s + 1];
        if (t0 == t1) continue;
        int from = n_window > 0 ? b->pos[t0] - n_window + 1 : 0;
        cost->bytes += (double)per * (b->pos[t1 - 1] + 1 - BASE_MAX(from, 0));
    }
}

struct cpu_place dev_cpu_place(const struct cpu *c, const struct cpu_kv *kv, int layer,
                               const struct dev_step *b, int t)
{
    int pos = b->pos[t];
    return (struct cpu_place){dev_cpu_page_of(kv, layer, b, c->seq_of[t], pos), pos % kv->blk_tok};
}

void dev_cpu_kv_copy(const struct cpu_kv *kv, int src, int dst)
{
    for (int l = 0; l < kv->s.n_layer; l++) {
        struct runs r = runs_of(kv, l);
        for (size_t i = 0; i < r.n; i++)
            memcpy(dev_cpu_page(kv, l, dst) + i * r.step, dev_cpu_page(kv, l, src) + i * r.step,
                   r.bytes);
    }
}

struct touch {
    const struct cpu_kv *kv;
    const int32_t *blk;
};

static void touch_block(struct cpu *c, void *arg, int i, int worker)
{
    const struct touch *t = arg;
    (void)c;
    (void)worker;
    for (int l = 0; l < t->kv->s.n_layer; l++)
        fill_page(t->kv, l, t->blk[i], 0);
}

void dev_cpu_kv_touch(dev *d, dev_kv *kv, int group, const int32_t *blk, int n)
{
    struct touch t = {dev_cpu_kv_of(kv, group), blk};
    dev_cpu_for_rows(dev_cpu_of(d), n, 1e6, touch_block, &t);
}

void dev_cpu_kv_poison(dev *d, dev_kv *kv_, int group, int blk)
{
    (void)d;
    const struct cpu_kv *kv = dev_cpu_kv_of(kv_, group);
    for (int l = 0; l < kv->s.n_layer; l++)
        fill_page(kv, l, blk, 0xff); /* NaN as f32, f16, bf16; q8: NaN scales */
}

static void copy_part(uint8_t *own, uint8_t *page, size_t n, bool set)
{
    memcpy(set ? own : page, set ? page : own, n);
}

/* What of a page is a head's values, or its latents and index keys. */
static size_t value_bytes(const struct cpu_kv *kv)
{
    return kv->s.d_i && !kv->s.d_v ? kv->page_bytes : kv->head_bytes;
}

/* And what are index keys after all heads, which whoever has some of the heads has too. */
static size_t index_bytes(const struct cpu_kv *kv)
{
    return kv->s.d_i && kv->s.d_v ? kv->page_bytes - kv->index_at : 0;
}

int64_t dev_cpu_kv_page(dev_kv *kv_, const struct dev_kv_at *at, void *page, bool set)
{
    const struct cpu_kv *kv = dev_cpu_kv_of(kv_, at->group);
    size_t n = (size_t)kv->s.n_head, all = (size_t)at->n_all, h0 = (size_t)at->head0;
    size_t key = kv->k_head_bytes, value = value_bytes(kv), index = index_bytes(kv);
    ASSERT(h0 + n <= all && at->blk >= 0 && at->blk < kv->s.n_blk);
    if (kv->n_part) return 0; /* pages of layers that are not alike stay */
    if (page) {
        uint8_t *own = dev_cpu_page(kv, at->layer, at->blk), *p = page;
        for (size_t h = 0; h < n; h++) {
            copy_part(own + dev_cpu_key_at(kv, (int)h, 0), p + (h0 + h) * key, key, set);
            copy_part(own + dev_cpu_value_at(kv, (int)h, 0), p + all * key + (h0 + h) * value,
                      value, set);
        }
        if (index) copy_part(own + kv->index_at, p + all * (key + value), index, set);
    }
    return (int64_t)(all * (key + value) + index);
}

void dev_cpu_kv_join(dev_kv *kv_, const struct dev_kv_at *at, int n_head, const void *part,
                     void *page)
{
    const struct cpu_kv *kv = dev_cpu_kv_of(kv_, at->group);
    size_t n = (size_t)n_head, all = (size_t)at->n_all, h0 = (size_t)at->head0;
    size_t key = kv->k_head_bytes, value = value_bytes(kv), index = index_bytes(kv);
    const uint8_t *from = part;
    uint8_t *p = page;
    ASSERT(h0 + n <= all);
    memcpy(p + h0 * key, from, n * key);
    memcpy(p + all * key + h0 * value, from + n * key, n * value);
    if (index) memcpy(p + all * (key + value), from + n * (key + value), index);
}
