/* SPDX-License-Identifier: Apache-2.0 */
/* Hot experts: which of those on the CPU lie on the device beside it too, by how often they were
 * chosen. */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/ranks.h"

#define ROOM_SHARE 0.9 /* of what nothing else takes: activations of them, and of the driver */

static int n_layers(const struct engine_hot *h)
{
    return h->o.c->n_layer + h->o.n_mtp;
}

static bool may(const struct engine_hot *h, int il)
{
    return model_has_layer(h->o.c, &h->o.dims, il) && model_may_be_hot(h->o.p, h->o.c, il);
}

/* The device on which those of layer il lie. */
static int device_of(const struct engine_hot *h, int il)
{
    return model_place_at(h->o.p, il, MODEL_ATTN);
}

sl_status engine_hot_open(struct engine_hot *h, const struct engine_hot_opts *o, struct arena *a,
                          sl_err *err)
{
    const struct arch_cfg *c = o->c;
    size_t L = (size_t)(c->n_layer + c->n_mtp), E = (size_t)c->n_expert;
    void *p = NULL;
    *h = (struct engine_hot){.o = *o};
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
    model_expert_bytes(c, o->io, h->bytes);
    for (int il = 0; il < n_layers(h); il++) {
        if (!may(h, il)) continue;
        h->on = true;
        h->n[il] = BASE_MAX(o->n, 0);
    }
    return SL_OK;
}

/* ---- of an engine ---- */

struct engine_hot_opts engine_hot_asked(const sl_engine *e)
{
    return (struct engine_hot_opts){.c = &e->m->cfg,
                                    .io = e->m->io,
                                    .p = &e->place.p,
                                    .dims = engine_rank_dims(e, engine_rank_here(e)),
                                    .n_mtp = e->mtp.on ? e->m->cfg.n_mtp : 0,
                                    .n = e->opts.n_hot,
                                    .updates = e->opts.hot_update > 0,
                                    .tells = true,
                                    .load = e->opts.hot_load,
                                    .n_load = e->opts.n_hot_load};
}

/* Those of rank r, where our device has them. */
static void weigh(sl_engine *e, int r, const bool *of)
{
    struct engine_hot *h = &e->hot;
    int n = BASE_MAX(e->opts.n_hot, 0);
    for (int il = 0; il < n_layers(h); il++) {
        h->any |= of[il];
        if (of[il] && engine_rank_has_ours(e, r))
            e->place.bytes[device_of(h, il)] += n * h->bytes[il];
    }
}

sl_status engine_hot_bytes(sl_engine *e, sl_err *err)
{
    const struct arch_cfg *c = &e->m->cfg;
    int n = e->opts.n_hot;
    if (!n || e->place.fell_back) return SL_OK; /* the CPU computes everything */
    if (engine_n_rank(e) != engine_n_stage(e))
        return SL_FAIL(err, UNSUPPORTED, "hot-experts: not where ranks share layers (tp, dp, ep "
                                         "of the layout)");
    if (n > c->n_expert)
        return SL_FAIL(err, REQUEST, "hot-experts: %d: this model has %d experts in a layer", n,
                       c->n_expert);
    struct engine_hot_opts o = engine_hot_asked(e);
    SL_TRY(engine_hot_open(&e->hot, &o, &e->place.arena, err));
    for (int r = 0; r < engine_n_rank(e); r++) {
        bool *of = NULL;
        SL_TRY(engine_rank_beside(e, r, &of, err));
        weigh(e, r, of);
    }
    if (e->hot.any) return SL_OK;
    return SL_FAIL(err, REQUEST,
                   "hot-experts: the experts of no layer lie on the CPU beside a device (device "
                   "and place say where)");
}

/* ---- choosing ---- */

static const uint64_t *load_of(const struct engine_hot *h, int il)
{
    const uint64_t *v = h->o.load;
    const uint64_t *l = v && il < h->o.n_load ? v + (int64_t)il * h->o.c->n_expert : NULL;
    for (int i = 0; l && i < h->o.c->n_expert; i++)
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
static void share_room(struct engine_hot *h)
{
    const int64_t *bytes = h->bytes;
    int E = h->o.c->n_expert;
    double left[MODEL_DEV_MAX];
    for (int i = 0; i < MODEL_DEV_MAX; i++)
        left[i] = ROOM_SHARE * (double)h->room[i];
    for (;;) {
        double most = -1;
        int at = -1;
        for (int il = 0; il < n_layers(h); il++) {
            bool fits = (double)bytes[il] <= left[device_of(h, il)];
            if (!may(h, il) || h->n[il] == E || !fits) continue;
            const uint64_t *load = load_of(h, il);
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
        left[device_of(h, at)] -= (double)bytes[at];
    }
}

/* Those on device i; how many. */
static int64_t tell_on(const struct engine_hot *h, int i, bool *known)
{
    int64_t n = 0, sum = 0;
    int n_layer = 0;
    for (int il = 0; il < n_layers(h); il++) {
        if (!may(h, il) || device_of(h, il) != i) continue;
        *known &= load_of(h, il) != NULL;
        n_layer++;
        n += h->n[il];
        sum += h->n[il] * h->bytes[il];
    }
    if (n_layer)
        log_msg(LOG_DEBUG, "hot experts: %" PRId64 " in %d layers of %d, %.2f GiB on %s", n,
                n_layer, h->o.c->n_expert, (double)sum / (1 << 30), h->o.p->name[i]);
    return n;
}

static void tell(const struct engine_hot *h)
{
    int64_t n = 0;
    bool known = true;
    for (int i = 0; i < h->o.p->n_dev; i++)
        n += tell_on(h, i, &known);
    if (n == 0)
        log_msg(LOG_WARN, "hot-experts: auto: there is no memory left for any: a smaller -c leaves "
                          "more");
    else if (!known && h->o.tells)
        log_msg(LOG_WARN, "hot-experts: without a recorded load (hot-from) they are spread evenly: "
                          "%s",
                h->o.updates ? "until hot-update has chosen" : "of little use");
}

const struct model_hot *engine_hot_choose(struct engine_hot *h)
{
    if (!h->on) return NULL;
    if (h->is_chosen) return &h->of; /* the device was opened again */
    int E = h->o.c->n_expert;
    if (h->o.n == SL_HOT_AUTO) {
        for (int il = 0; il < n_layers(h); il++) /* in the order in which they would be taken */
            if (may(h, il)) best_of(load_of(h, il), E, E, h->expert + (int64_t)il * E);
        share_room(h);
    }
    for (int il = 0; il < n_layers(h); il++)
        if (h->n[il]) best_of(load_of(h, il), E, h->n[il], h->expert + (int64_t)il * E);
    tell(h);
    h->o.load = NULL; /* the caller's */
    h->is_chosen = true;
    return &h->of;
}

/* Ranks whose device is ours have as much of what is left each. */
const struct model_hot *engine_hot_own(sl_engine *e)
{
    struct engine_hot *h = &e->hot;
    int n = 0;
    for (int r = 0; r < engine_n_rank(e); r++)
        n += engine_rank_has_ours(e, r);
    for (int i = 0; i < MODEL_DEV_MAX && !h->is_chosen; i++)
        h->room[i] /= BASE_MAX(n, 1);
    return engine_hot_choose(h);
}

void engine_hot_again(sl_engine *e)
{
    struct engine_hot *h = &e->hot; /* of one rank */
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
    if (!e->hot.any || !e->net) return;
    const struct model_hits *b = &e->hot.before;
    const uint64_t *v = e->counts.v;
    struct model_hits h = e->hot.now =
        (struct model_hits){v[ENGINE_HOT_HIT], v[ENGINE_HOT_MISS], v[ENGINE_HOT_SAVED]};
    e->stats.n_hot_hit = b->n_hit + h.n_hit;
    e->stats.n_hot_miss = b->n_miss + h.n_miss;
    e->stats.hot_saved_bytes = b->saved_bytes + h.saved_bytes;
}

/* A layer's, by the tokens since it was chosen. */
static sl_status again(struct engine_hot *h, model *net, int il, bool *changed, sl_err *err)
{
    int E = h->o.c->n_expert;
    uint64_t *seen = h->seen + (int64_t)il * E, sum = 0;
    int n;
    (void)model_hot_get(net, il, &n);
    if (!n) return SL_OK;
    SL_TRY(model_routed(net, il, h->count, E, err));
    for (int i = 0; i < E; i++) {
        uint64_t now = h->count[i];
        h->count[i] -= seen[i];
        seen[i] = now;
        sum += h->count[i];
    }
    if (!sum) return SL_OK; /* an MTP layer that did not run */
    best_of(h->count, E, n, h->order);
    return model_hot_set(net, il, h->order, changed, err);
}

sl_status engine_hot_renew(struct engine_hot *h, model *net, int *n, sl_err *err)
{
    *n = 0;
    for (int il = 0; h->on && il < n_layers(h); il++) {
        bool changed = false;
        SL_TRY(again(h, net, il, &changed, err));
        *n += changed;
    }
    return SL_OK;
}

/* Of all ranks. */
static sl_status renew_all(sl_engine *e, int *n, sl_err *err)
{
    uint64_t of[DIST_RANK_MAX];
    if (engine_n_rank(e) == 1) return engine_hot_renew(&e->hot, e->net, n, err);
    SL_TRY(engine_ranks_ask(e, SAY_HOT, 0, of, err));
    for (int r = 0; r < engine_n_rank(e); r++)
        *n += (int)of[r];
    return SL_OK;
}

void engine_hot_idle(sl_engine *e)
{
    struct engine_hot *h = &e->hot;
    uint64_t n_tok = e->stats.n_prompt_tok + e->stats.n_decode_tok;
    int n_changed = 0;
    sl_err why = {0};
    if (!h->any || !e->opts.hot_update || e->stats.n_running || e->stats.n_waiting) return;
    if (n_tok - h->n_tok < (uint64_t)e->opts.hot_update || atomic_load(&e->lost)) return;
    if (engine_ranks_busy(e)) return;
    int64_t t0 = clock_now_ns();
    kv_cache_drop(&e->pool);
    sl_status st = renew_all(e, &n_changed, &why);
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
