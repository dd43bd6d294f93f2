/* SPDX-License-Identifier: Apache-2.0 */
/* Hot experts: which of those on the CPU lie on the device beside it too, by how often they were
 * chosen. */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/engine_internal.h"

#define ROOM_SHARE 0.9 /* of what nothing else takes: activations of them, and of the driver */

static int n_layers(const sl_engine *e)
{
    return e->m->cfg.n_layer + (e->mtp.on ? e->m->cfg.n_mtp : 0);
}

static bool may(const sl_engine *e, int il)
{
    return model_may_be_hot(&e->place.p, &e->m->cfg, il);
}

/* The device on which those of layer il lie. */
static int device_of(const sl_engine *e, int il)
{
    return model_place_at(&e->place.p, il, MODEL_ATTN);
}

static sl_status tables(sl_engine *e, sl_err *err)
{
    struct arena *a = &e->place.arena;
    size_t L = (size_t)(e->m->cfg.n_layer + e->m->cfg.n_mtp), E = (size_t)e->m->cfg.n_expert;
    struct engine_hot *h = &e->hot;
    void *p = NULL;
    SL_TRY(mem_arena_array(a, L, sizeof *h->bytes, &p, err));
    h->bytes = p;
    SL_TRY(mem_arena_array(a, L * (E + 1) + E, sizeof(int32_t), &p, err));
    h->n = p;
    h->expert = h->n + L;
    h->order = h->expert + L * E;
    SL_TRY(mem_arena_array(a, (L + 1) * E, sizeof(uint64_t), &p, err));
    h->count = p;
    h->seen = h->count + E;
    h->of = (struct model_hot){.n = h->n, .n_max = (int)E, .expert = h->expert};
    model_expert_bytes(&e->m->cfg, e->m->io, h->bytes);
    return SL_OK;
}

sl_status engine_hot_bytes(sl_engine *e, sl_err *err)
{
    const struct arch_cfg *c = &e->m->cfg;
    int n = e->opts.n_hot;
    if (!n || e->place.fell_back) return SL_OK; /* the CPU computes everything */
    if (engine_n_rank(e) > 1)
        return SL_FAIL(err, UNSUPPORTED, "hot-experts: not where ranks share the model (layout)");
    if (n > c->n_expert)
        return SL_FAIL(err, REQUEST, "hot-experts: %d: this model has %d experts in a layer", n,
                       c->n_expert);
    SL_TRY(tables(e, err));
    for (int il = 0; il < n_layers(e); il++) {
        if (!may(e, il)) continue;
        e->hot.on = true;
        e->hot.n[il] = BASE_MAX(n, 0);
        e->place.bytes[device_of(e, il)] += e->hot.n[il] * e->hot.bytes[il];
    }
    if (e->hot.on) return SL_OK;
    return SL_FAIL(err, REQUEST,
                   "hot-experts: the experts of no layer lie on the CPU beside a device (device "
                   "and place say where)");
}

/* ---- choosing ---- */

static const uint64_t *load_of(const sl_engine *e, int il)
{
    const uint64_t *v = e->opts.hot_load;
    const uint64_t *l = v && il < e->opts.n_hot_load ? v + (int64_t)il * e->m->cfg.n_expert : NULL;
    for (int i = 0; l && i < e->m->cfg.n_expert; i++)
        if (l[i]) return l;
    return NULL;
}

/* The n of E experts with the largest counts, the lower of equals first; without counts evenly
 * spread. */
static void best_of(const uint64_t *count, int E, int n, int32_t *out)
{
    for (int i = 0; i < n && !count; i++)
        out[i] = (int32_t)((int64_t)i * E / n);
    for (int x = 0; x < E && count; x++) {
        int n_before = 0;
        for (int y = 0; y < E; y++)
            n_before += count[y] > count[x] || (count[y] == count[x] && y < x);
        if (n_before < n) out[n_before] = x;
    }
}

/* auto: one more where it is of most use for its bytes, while there is room. */
static void share_room(sl_engine *e)
{
    struct engine_hot *h = &e->hot;
    const int64_t *bytes = h->bytes;
    int E = e->m->cfg.n_expert;
    double left[MODEL_DEV_MAX];
    for (int i = 0; i < MODEL_DEV_MAX; i++)
        left[i] = ROOM_SHARE * (double)h->room[i];
    for (;;) {
        double most = -1;
        int at = -1;
        for (int il = 0; il < n_layers(e); il++) {
            bool fits = (double)bytes[il] <= left[device_of(e, il)];
            if (!may(e, il) || h->n[il] == E || !fits) continue;
            const uint64_t *load = load_of(e, il);
            double sum = 0, next = 1.0 / E;
            for (int i = 0; load && i < E; i++)
                sum += (double)load[i];
            if (load) next = (double)load[h->expert[il * E + h->n[il]]] / sum;
            double use = next / (double)BASE_MAX(bytes[il], 1);
            bool fewer = at >= 0 && use >= most && h->n[il] < h->n[at];
            if (use > most || fewer) most = use, at = il;
        }
        if (at < 0) return;
        h->n[at]++;
        left[device_of(e, at)] -= (double)bytes[at];
    }
}

/* Those on device i; how many. */
static int64_t tell_on(const sl_engine *e, int i, bool *known)
{
    int64_t n = 0, sum = 0;
    int n_layer = 0;
    for (int il = 0; il < n_layers(e); il++) {
        if (!may(e, il) || device_of(e, il) != i) continue;
        *known &= load_of(e, il) != NULL;
        n_layer++;
        n += e->hot.n[il];
        sum += e->hot.n[il] * e->hot.bytes[il];
    }
    if (n_layer)
        log_msg(LOG_DEBUG, "hot experts: %" PRId64 " in %d layers of %d, %.2f GiB on %s", n,
                n_layer, e->m->cfg.n_expert, (double)sum / (1 << 30), e->place.p.name[i]);
    return n;
}

static void tell(const sl_engine *e)
{
    int64_t n = 0;
    bool known = true;
    for (int i = 0; i < e->place.p.n_dev; i++)
        n += tell_on(e, i, &known);
    if (n == 0)
        log_msg(LOG_WARN, "hot-experts: auto: there is no memory left for any: a smaller -c leaves "
                          "more");
    else if (!known)
        log_msg(LOG_WARN, "hot-experts: without a recorded load (hot-from) they are spread evenly: "
                          "%s",
                e->opts.hot_update ? "until hot-update has chosen" : "of little use");
}

const struct model_hot *engine_hot_choose(sl_engine *e)
{
    struct engine_hot *h = &e->hot;
    int E = e->m->cfg.n_expert;
    if (!h->on) return NULL;
    if (h->is_chosen) return &h->of; /* the device was opened again */
    if (e->opts.n_hot == SL_HOT_AUTO) {
        for (int il = 0; il < n_layers(e); il++) /* in the order in which they would be taken */
            if (may(e, il)) best_of(load_of(e, il), E, E, h->expert + (int64_t)il * E);
        share_room(e);
    }
    for (int il = 0; il < n_layers(e); il++)
        if (h->n[il]) best_of(load_of(e, il), E, h->n[il], h->expert + (int64_t)il * E);
    tell(e);
    e->opts.hot_load = NULL; /* the caller's */
    h->is_chosen = true;
    return &h->of;
}

void engine_hot_again(sl_engine *e)
{
    struct engine_hot *h = &e->hot;
    size_t n = (size_t)(e->m->cfg.n_layer + e->m->cfg.n_mtp) * (size_t)e->m->cfg.n_expert;
    if (!h->on) return;
    memset(h->seen, 0, n * sizeof *h->seen);
    h->n_tok = e->stats.n_prompt_tok + e->stats.n_decode_tok;
    h->before.n_hit += h->now.n_hit;
    h->before.n_miss += h->now.n_miss;
    h->before.saved_bytes += h->now.saved_bytes;
    h->now = (struct model_hits){0};
}

/* ---- counting, and choosing again ---- */

void engine_hot_stats(sl_engine *e)
{
    if (!e->hot.on || !e->net) return;
    const struct model_hits *b = &e->hot.before;
    struct model_hits h = e->hot.now = model_hot_hits(e->net);
    e->stats.n_hot_hit = b->n_hit + h.n_hit;
    e->stats.n_hot_miss = b->n_miss + h.n_miss;
    e->stats.hot_saved_bytes = b->saved_bytes + h.saved_bytes;
}

/* A layer's, by the tokens since it was chosen. */
static sl_status again(sl_engine *e, int il, bool *changed, sl_err *err)
{
    struct engine_hot *h = &e->hot;
    int E = e->m->cfg.n_expert;
    uint64_t *seen = h->seen + (int64_t)il * E, sum = 0;
    int n;
    (void)model_hot_get(e->net, il, &n);
    if (!n) return SL_OK;
    SL_TRY(engine_ranks_routed(e, il, h->count, E, err));
    for (int i = 0; i < E; i++) {
        uint64_t now = h->count[i];
        h->count[i] -= seen[i];
        seen[i] = now;
        sum += h->count[i];
    }
    if (!sum) return SL_OK; /* an MTP layer that did not run */
    best_of(h->count, E, n, h->order);
    return model_hot_set(e->net, il, h->order, changed, err);
}

void engine_hot_idle(sl_engine *e)
{
    struct engine_hot *h = &e->hot;
    uint64_t n_tok = e->stats.n_prompt_tok + e->stats.n_decode_tok;
    int n_changed = 0;
    sl_err why = {0};
    sl_status st = SL_OK;
    if (!h->on || !e->opts.hot_update || e->stats.n_running || e->stats.n_waiting) return;
    if (n_tok - h->n_tok < (uint64_t)e->opts.hot_update || atomic_load(&e->lost)) return;
    int64_t t0 = clock_now_ns();
    kv_cache_drop(&e->pool);
    for (int il = 0; il < n_layers(e) && !st; il++) {
        bool changed = false;
        st = again(e, il, &changed, &why);
        n_changed += changed;
    }
    h->n_tok = n_tok;
    if (st) { /* what a slot holds is not known any more */
        engine_lose(e, &why);
        return;
    }
    e->stats.n_hot_update += n_changed > 0;
    log_msg(LOG_DEBUG, "hot experts: others in %d layers, in %.0f ms", n_changed,
            (double)(clock_now_ns() - t0) * 1e-6);
    engine_publish(e);
}
