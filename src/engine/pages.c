/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of the cache, put together from the parts that ranks have: so they do not depend on the
 * layout, and go from any to any other. */
#include <string.h>

#include "base/hash.h"
#include "engine/apart.h"

sl_status engine_pages_check(const sl_engine *e, sl_err *err)
{
    struct dev_info di;
    struct dev_kv_at at = {.n_all = e->kv_shape.group[DEV_KV_PAGED].n_head};
    dev_info_get(e->d, &di);
    if (engine_kv_has(&e->m->cfg, DEV_KV_WINDOW) || engine_kv_has(&e->m->cfg, DEV_KV_STATE))
        return SL_FAIL(err, UNSUPPORTED, "prefill: %.60s has layers with %s, whose cache stays",
                       e->m->name,
                       engine_kv_has(&e->m->cfg, DEV_KV_WINDOW) ? "a window" : "a state");
    for (int r = 0; r < engine_n_rank(e); r++) {
        dev *d;
        dev_kv *kv;
        if (!engine_rank_cache(e, r, &d, &kv))
            return SL_FAIL(err, UNSUPPORTED, "prefill: layout %.40s: ranks that are processes keep "
                           "their cache: without mpirun", e->opts.layout);
    }
    if (dev_kv_page_bytes(e->d, e->kv, &at)) return SL_OK;
    return SL_FAIL(err, UNSUPPORTED, "prefill: device '%.40s' keeps its cache: --device cpu",
                   di.name);
}

/* Where a rank has a layer of a block; false: it has it not. */
static bool find(const sl_engine *e, int rank, const struct engine_page_at *p, struct dev_kv_at *at)
{
    const struct arch_cfg *c = &e->m->cfg;
    struct model_dims d = engine_rank_dims(e, rank);
    if (!model_has_layer(c, &d, p->layer) || (d.n_dp > 1 && d.dp != p->home)) return false;
    struct model_kv_place place = model_kv_place(c, &d, p->layer);
    *at = (struct dev_kv_at){.group = place.group, .layer = place.layer, .blk = p->blk, .n_all = 1};
    if (c->kv_lora) return true;
    at->head0 = d.head_kv0;
    at->n_all = c->n_head_kv;
    return true;
}

static void each_rank(sl_engine *e, const struct engine_page_at *p, void *get, const void *set)
{
    struct dev_kv_at at;
    dev *d;
    dev_kv *kv;
    for (int r = 0; r < engine_n_rank(e); r++) {
        if (!find(e, r, p, &at) || !engine_rank_cache(e, r, &d, &kv)) continue;
        if (set)
            dev_kv_set(d, kv, &at, set);
        else
            dev_kv_get(d, kv, &at, get);
        if (e->m->cfg.kv_lora && get) return; /* all have all of it */
    }
}

void engine_page_get(sl_engine *e, const struct engine_page_at *at, void *page)
{
    each_rank(e, at, page, NULL);
}

void engine_page_set(sl_engine *e, const struct engine_page_at *at, const void *page)
{
    each_rank(e, at, NULL, page);
}

int engine_pages_layers(const sl_engine *e)
{
    return e->m->cfg.n_layer + (e->mtp.on ? 1 : 0); /* passes are of the first MTP layer */
}

size_t engine_page_bytes(const sl_engine *e, int layer)
{
    struct dev_kv_at at;
    dev *d;
    dev_kv *kv;
    for (int r = 0; r < engine_n_rank(e); r++)
        if (find(e, r, &(struct engine_page_at){.layer = layer}, &at) &&
            engine_rank_cache(e, r, &d, &kv))
            return (size_t)dev_kv_page_bytes(d, kv, &at);
    return 0;
}

size_t engine_page_most(const sl_engine *e)
{
    size_t most = 0;
    for (int l = 0; l < engine_pages_layers(e); l++)
        most = BASE_MAX(most, engine_page_bytes(e, l));
    return most;
}

uint64_t engine_page_sum(const sl_kv_page *page)
{
    uint64_t seed = (uint64_t)(uint32_t)page->block << 32 | (uint32_t)page->layer;
    return hash_bytes(page->bytes, page->n_bytes, seed);
}

static uint64_t add_text(uint64_t h, const char *s)
{
    return hash_bytes(s, strlen(s), h);
}

uint64_t engine_pages_hash(const sl_engine *e)
{
    const sl_engine_info *i = &e->info;
    uint64_t n[] = {i->model_hash, (uint64_t)e->form_from, (uint64_t)e->opts.n_defer,
                    ENGINE_BLK_TOK};
    if (engine_pages_check(e, NULL)) return 0;
    uint64_t h = hash_bytes(n, sizeof n, 0);
    h = add_text(add_text(add_text(add_text(h, sl_version()), i->isa), i->acts), i->kv);
    for (int l = 0; l < e->m->cfg.n_layer; l++) {
        size_t bytes = engine_page_bytes(e, l);
        h = hash_bytes(&bytes, sizeof bytes, h);
    }
    return h ? h : 1;
}
