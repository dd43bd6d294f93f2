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
    if (engine_kv_has(&e->m->cfg, DEV_KV_STATE))
        return SL_FAIL(err, UNSUPPORTED,
                       "prefill: %.60s has layers with a state, whose cache stays", e->m->name);
    if (e->m->cfg.o_groups)
        return SL_FAIL(err, UNSUPPORTED,
                       "prefill: %.60s has layers with entries, whose cache stays", e->m->name);
    if (dev_kv_page_bytes(e->d, e->kv, &at)) return SL_OK;
    return SL_FAIL(err, UNSUPPORTED, "prefill: device '%.40s' keeps its cache: --device cpu",
                   di.name);
}

static bool is_window(const sl_engine *e, int layer)
{
    struct model_dims d = engine_rank_dims(e, engine_rank_here(e));
    return model_kv_place(&e->m->cfg, &d, layer).group == DEV_KV_WINDOW;
}

bool engine_page_needed(const sl_engine *e, int layer, int j, int n_tok)
{
    int first = n_tok - e->pool.n_window + 1; /* position n_tok comes next */
    return !e->pool.n_win || (j + 1) * ENGINE_BLK_TOK > first || !is_window(e, layer);
}

int32_t engine_page_blk(const sl_engine *e, int home, int layer, int32_t blk)
{
    if (!e->pool.n_win || !is_window(e, layer)) return blk;
    int32_t win = kv_win_of(e->home[home].pool, blk);
    ASSERT(win >= 0);
    return win;
}

bool engine_page_find(const struct arch_cfg *c, const struct model_dims *d,
                      const struct engine_page_at *at, struct dev_kv_at *out)
{
    struct model_kv_place place = model_kv_place(c, d, at->layer);
    *out = (struct dev_kv_at){
        .group = place.group, .layer = place.layer, .blk = at->blk, .n_all = 1};
    if (!c->kv_lora) {
        out->head0 = d->head_kv0;
        out->n_all = arch_n_head_kv(c, at->layer);
    }
    return model_has_layer(c, d, at->layer) && (d->n_dp <= 1 || d->dp == at->home);
}

static void each_rank(sl_engine *e, const struct engine_page_at *p, void *get, const void *set)
{
    struct dev_kv_at at;
    dev *d;
    dev_kv *kv;
    for (int r = 0; r < engine_n_rank(e); r++) {
        struct model_dims dims = engine_rank_dims(e, r);
        if (!engine_page_find(&e->m->cfg, &dims, p, &at) || !engine_rank_cache(e, r, &d, &kv))
            continue;
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
    struct model_dims dims = engine_rank_dims(e, engine_rank_here(e));
    struct dev_kv_at at;
    (void)engine_page_find(&e->m->cfg, &dims, &(struct engine_page_at){.layer = layer}, &at);
    return (size_t)dev_kv_page_bytes(e->d, e->kv, &at); /* as large where others have the layer */
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
