/* SPDX-License-Identifier: Apache-2.0 */
/* Materialised keys and values of prompts that are computed in pieces (MLA). Without them every
 * piece makes those of its whole context again: far into a prompt that is all that a small piece
 * does. Kept in pages of VEC_SPAN positions, all layers and heads together, from one reservation;
 * positions for which there is no page are made again as ever. What is kept are the very bits that
 * would be made, so results are the same. So are the weights that make them, widened once. */
#include "dev/cpu/keep.h"

#include "dev/cpu/mem.h"
#include "dev/cpu/mla.h"
#include "dev/cpu/span.h"

#define DEAD_STEPS                                                                                 \
    64 /* a prompt that no step continued for so long was cancelled or lost its blocks */

/* Bytes of a number in what is kept: bf16 where attention computes with it. */
static size_t elem_bytes(const struct cpu *c)
{
    bool f32 = c->acts == DEV_ACTS_F32 || c->exact;
    return !f32 && kern_get()->attn_bf16 ? sizeof(uint16_t) : sizeof(float);
}

static size_t head_bytes(const struct dev_shapes *p, size_t elem)
{
    int kd = dev_cpu_key_width(p->mla_nope, p->mla_rope), v = dev_cpu_round16(p->mla_v);
    if (elem == sizeof(float)) {
        kd = dev_cpu_row_ld(p->mla_nope + p->mla_rope, sizeof(float));
        v = dev_cpu_row_ld(p->mla_v, sizeof(float));
    }
    return elem * VEC_SPAN * ((size_t)kd + (size_t)v);
}

static size_t page_bytes(const struct dev_shapes *p, size_t elem)
{
    return head_bytes(p, elem) * (size_t)p->n_head * (size_t)p->n_layer;
}

/* W_kb and W_vb of one head as bf16. */
static size_t wide_bytes(const struct dev_shapes *p)
{
    size_t cols = (size_t)dev_cpu_round16(p->mla_nope) + (size_t)dev_cpu_round16(p->mla_v);
    return sizeof(uint16_t) * (size_t)((p->mla_r + 1) / 2 * 2) * cols;
}

/* Of all heads and layers; in f32 they are not kept. */
static size_t all_wide_bytes(const struct dev_shapes *p, size_t elem)
{
    if (elem == sizeof(float)) return 0;
    return wide_bytes(p) * (size_t)p->n_head * (size_t)p->n_layer;
}

int64_t dev_cpu_keep_bytes(const dev *d, const struct dev_shapes *p)
{
    size_t elem = elem_bytes((const struct cpu *)d);
    if (!p->mla_r || !p->n_layer || ((const struct cpu *)d)->exact) return 0;
    return (int64_t)all_wide_bytes(p, elem) +
           (int64_t)page_bytes(p, elem) * ((p->max.n_ctx + VEC_SPAN - 1) / VEC_SPAN);
}

sl_status dev_cpu_keep_init(struct cpu *c, sl_err *err)
{
    const struct dev_shapes *p = &c->most;
    struct cpu_keep *k = &c->keep;
    int64_t most = dev_cpu_keep_bytes(&c->head, p), room = BASE_MIN(p->max.keep_bytes, most);
    size_t n_head = (size_t)p->n_head * (size_t)p->n_layer;
    k->elem = elem_bytes(c);
    k->wide_bytes = wide_bytes(p);
    k->head_bytes = head_bytes(p, k->elem);
    k->page_bytes = page_bytes(p, k->elem);
    int64_t wide = (int64_t)all_wide_bytes(p, k->elem);
    if (wide && room / 2 >= wide) {
        SL_TRY(dev_cpu_scratch(c, n_head, k->wide_bytes, &k->wide, err));
        SL_TRY(dev_cpu_scratch(c, (size_t)p->n_layer, sizeof *k->wide_of, &k->wide_of, err));
        room -= wide;
    }
    if (room <= 0 || room < (int64_t)k->page_bytes) return SL_OK;
    size_t n = (size_t)room / k->page_bytes;
    SL_TRY(dev_cpu_scratch(c, n, k->page_bytes, &k->base, err));
    SL_TRY(dev_cpu_scratch(c, n, sizeof *k->free_page, &k->free_page, err));
    for (int i = 0; i < CPU_KEEP_MAX; i++) {
        SL_TRY(dev_cpu_scratch(c, n, sizeof(int32_t), &k->of[i].page, err));
        SL_TRY(dev_cpu_scratch(c, (size_t)p->n_layer, sizeof(int32_t), &k->of[i].valid, err));
    }
    k->n_page = (int)n; /* from here on it is in use */
    for (; k->n_free < k->n_page; k->n_free++)
        k->free_page[k->n_free] = k->n_page - 1 - k->n_free;
    return SL_OK;
}

static void let_go(struct cpu_keep *k, struct cpu_kept *e)
{
    while (e->n_page > 0)
        k->free_page[k->n_free++] = e->page[--e->n_page];
    e->id = 0;
}

static struct cpu_kept *find(struct cpu *c, uint64_t id)
{
    for (int i = 0; id && i < CPU_KEEP_MAX; i++)
        if (c->keep.of[i].id == id) return &c->keep.of[i];
    return NULL;
}

static struct cpu_kept *begin(struct cpu *c, uint64_t id)
{
    for (int i = 0; i < CPU_KEEP_MAX; i++) {
        struct cpu_kept *e = &c->keep.of[i];
        if (e->id) continue;
        e->id = id;
        memset(e->valid, 0, sizeof *e->valid * (size_t)c->most.n_layer);
        return e;
    }
    return NULL;
}

void dev_cpu_keep_step(struct cpu *c, const struct dev_step *b)
{
    struct cpu_keep *k = &c->keep;
    if (!k->n_page) return;
    k->tick++;
    for (int i = 0; i < CPU_KEEP_MAX; i++) {
        struct cpu_kept *e = &k->of[i];
        if (e->id && (e->last || k->tick - e->tick > DEAD_STEPS)) let_go(k, e);
    }
    for (int s = 0; b->keep && s < b->n_seq; s++) {
        const struct dev_keep *of = &b->keep[s];
        int end = b->pos[b->seq_tok0[s + 1] - 1] + 1;
        if (!of->id || !c->expand[b->seq_tok0[s + 1] - 1]) continue;
        struct cpu_kept *e = find(c, of->id);
        if (!e && !of->last && k->n_free) e = begin(c, of->id);
        if (!e) continue;
        e->tick = k->tick;
        e->last = of->last;
        while (e->n_page * VEC_SPAN < end && k->n_free && !of->last)
            e->page[e->n_page++] = k->free_page[--k->n_free];
    }
}

struct cpu_kept *dev_cpu_keep_of(const struct mla_job *j, int seq)
{
    bool bf16 = dev_cpu_bf16_attn(j->c, j->a.kv->t);
    if (!j->b->keep || bf16 != (j->c->keep.elem == sizeof(uint16_t))) return NULL;
    return find(j->c, j->b->keep[seq].id);
}

bool dev_cpu_keep_claim(struct cpu *c, int layer, const dev_mat *w_kb)
{
    struct cpu_keep *k = &c->keep;
    if (!k->wide || layer >= c->most.n_layer || k->wide_of[layer]) return false;
    k->wide_of[layer] = w_kb;
    return true;
}

uint16_t *dev_cpu_keep_wide(const struct cpu *c, int layer, int head, const dev_mat *w_kb)
{
    const struct cpu_keep *k = &c->keep;
    size_t at = (size_t)layer * (size_t)c->most.n_head + (size_t)head;
    if (!k->wide || layer >= c->most.n_layer || k->wide_of[layer] != w_kb) return NULL;
    return (uint16_t *)(void *)(k->wide + at * k->wide_bytes);
}

void *dev_cpu_keep_span(const struct cpu *c, const struct cpu_kept *e, int layer, int head,
                        int span)
{
    const struct cpu_keep *k = &c->keep;
    if (!e || span >= e->n_page) return NULL;
    size_t at = ((size_t)layer * (size_t)c->most.n_head + (size_t)head) * k->head_bytes;
    return k->base + (size_t)e->page[span] * k->page_bytes + at;
}
