/* SPDX-License-Identifier: Apache-2.0 */
/* The device's memory: slabs that are carved and never given back before it closes, and copies to
 * and from it. */
#include <string.h>

#include "base/size.h"
#include "dev/gpu/gpu.h"

#define SLAB_FIRST ((int64_t)64 << 20) /* as much again as there is, up to the largest */
#define ALIGN 256

static sl_status count_alloc(struct gpu *c, sl_err *err)
{
    if (++c->n_alloc != c->fault.alloc) return SL_OK;
    return SL_FAIL(err, NOMEM, "%s: allocation %llu fails, as its option says", c->name,
                   (unsigned long long)c->n_alloc);
}

static sl_status new_mem(struct gpu *c, int64_t n, bool pinned, struct gpu_mem *out, sl_err *err)
{
    SL_TRY(count_alloc(c, err));
    sl_status st = c->drv->mem(c->g, n, pinned, out, err);
    if (st) status_prefix(err, "%s", c->name);
    return st;
}

static int64_t held(const struct gpu *c)
{
    int64_t n = 0;
    for (const struct gpu_slab *s = c->slab; s; s = s->next)
        n += s->mem.n;
    return n;
}

/* A slab of at least n bytes; halved while the driver refuses. */
static sl_status grow(struct gpu *c, int64_t n, sl_err *err)
{
    int64_t want = BASE_MIN(BASE_MAX(held(c), SLAB_FIRST), c->slab_bytes);
    void *p = NULL;
    SL_TRY(mem_arena_alloc(&c->arena, sizeof(struct gpu_slab), &p, err));
    struct gpu_slab *s = p;
    sl_status st = new_mem(c, BASE_MAX(want, n), false, &s->mem, err);
    while (st == SL_NOMEM && want / 2 >= BASE_MAX(n, SLAB_FIRST)) {
        want /= 2;
        st = new_mem(c, want, false, &s->mem, err);
    }
    if (st) return st;
    s->next = c->slab;
    c->slab = s;
    return SL_OK;
}

sl_status dev_gpu_carve(struct gpu *c, int64_t n, uint64_t *out, uint8_t **host, sl_err *err)
{
    n = (int64_t)size_round((size_t)BASE_MAX(n, 1), ALIGN);
    struct gpu_slab *s = c->slab;
    while (s && s->mem.n - s->used < n)
        s = s->next;
    if (!s) SL_TRY(grow(c, n, err));
    if (!s) s = c->slab;
    *out = s->mem.at + (uint64_t)s->used;
    if (host) *host = s->mem.host && !c->is_staged ? s->mem.host + s->used : NULL;
    s->used += n;
    return SL_OK;
}

sl_status dev_gpu_carve_items(struct gpu *c, int64_t n, int64_t bytes, struct gpu_pieces *out,
                              sl_err *err)
{
    void *p = NULL;
    int64_t per = BASE_MAX(c->slab_bytes / bytes, 1);
    per = BASE_MIN(per, n);
    *out = (struct gpu_pieces){.per = (int)per, .item = bytes, .n = (int)((n + per - 1) / per)};
    SL_TRY(mem_arena_array(&c->arena, (size_t)out->n, sizeof *out->at, &p, err));
    out->at = p;
    SL_TRY(mem_arena_array(&c->arena, (size_t)out->n, sizeof *out->host, &p, err));
    out->host = p;
    for (int i = 0; i < out->n; i++)
        SL_TRY(dev_gpu_carve(c, BASE_MIN(per, n - i * per) * bytes, &out->at[i], &out->host[i],
                             err));
    SL_TRY(dev_gpu_carve(c, out->n * (int64_t)sizeof *out->at, &out->table, NULL, err));
    return dev_gpu_put(c, out->table, out->at, out->n * (int64_t)sizeof *out->at, err);
}

uint64_t dev_gpu_item(const struct gpu_pieces *p, int64_t i, uint8_t **host)
{
    int64_t at = i % p->per * p->item;
    *host = p->host[i / p->per];
    if (*host) *host += at;
    return p->at[i / p->per] + (uint64_t)at;
}

sl_status dev_gpu_pinned(struct gpu *c, int64_t n, struct gpu_mem *out, sl_err *err)
{
    if (out->n >= n) return SL_OK;
    if (out->n) c->drv->mem_free(c->g, out);
    *out = (struct gpu_mem){0};
    return new_mem(c, n, true, out, err);
}

uint8_t *dev_gpu_seen(const struct gpu *c, uint64_t at, int64_t n)
{
    if (c->is_staged) return NULL;
    for (const struct gpu_slab *s = c->slab; s; s = s->next)
        if (at >= s->mem.at && at + (uint64_t)n <= s->mem.at + (uint64_t)s->mem.n)
            return s->mem.host ? s->mem.host + (at - s->mem.at) : NULL;
    ASSERT(!"an address of this device");
    return NULL;
}

sl_status dev_gpu_put(struct gpu *c, uint64_t to, const void *from, int64_t n, sl_err *err)
{
    SL_TRY(dev_gpu_finish(c, err));
    uint8_t *host = dev_gpu_seen(c, to, n);
    if (host) {
        memcpy(host, from, (size_t)n);
        return SL_OK;
    }
    for (int64_t at = 0; at < n; at += c->stage.n) {
        int64_t part = BASE_MIN(n - at, c->stage.n);
        memcpy(c->stage.host, (const uint8_t *)from + at, (size_t)part);
        dev_gpu_copy(c, to + (uint64_t)at, c->stage.at, part);
        SL_TRY(dev_gpu_finish(c, err));
    }
    return SL_OK;
}

sl_status dev_gpu_get(struct gpu *c, void *to, uint64_t from, int64_t n, sl_err *err)
{
    uint8_t *host = n ? dev_gpu_seen(c, from, n) : NULL;
    if (n == 0 || host) {
        SL_TRY(dev_gpu_finish(c, err));
        if (host) memcpy(to, host, (size_t)n);
        return SL_OK;
    }
    for (int64_t at = 0; at < n; at += c->stage.n) {
        int64_t part = BASE_MIN(n - at, c->stage.n);
        dev_gpu_copy(c, c->stage.at, from + (uint64_t)at, part);
        SL_TRY(dev_gpu_finish(c, err));
        memcpy((uint8_t *)to + at, c->stage.host, (size_t)part);
    }
    return SL_OK;
}

void dev_gpu_mem_free(struct gpu *c)
{
    for (struct gpu_slab *s = c->slab; s; s = s->next)
        c->drv->mem_free(c->g, &s->mem);
    c->drv->mem_free(c->g, &c->stage);
    c->drv->mem_free(c->g, &c->bounce);
    for (int i = 0; i < GPU_FLOWS; i++)
        c->drv->mem_free(c->g, &c->flow[i].mem);
    for (int i = 0; i < c->n_pass; i++)
        c->drv->mem_free(c->g, &c->step[i].pinned);
}
