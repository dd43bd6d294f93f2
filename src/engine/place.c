/* SPDX-License-Identifier: Apache-2.0 */
/* The devices of an engine, as its options place the model's parts on them, and whether these fit
 * there. */
#include <string.h>

#include "base/log.h"
#include "engine/fit.h"

/* All on one device, without a table. */
static sl_status place_one(sl_engine *e, const char *home, sl_err *err)
{
    struct model_place *p = &e->place.p;
    *p = (struct model_place){.n_dev = 1};
    return mem_arena_str(&e->place.arena, home, strlen(home), &p->name[0], err);
}

static void close_devices(struct model_place *p)
{
    for (int i = 0; i < MODEL_DEV_MAX; i++) {
        dev_close(p->d[i]);
        p->d[i] = NULL;
    }
}

static sl_status open_each(struct model_place *p, const struct dev_opts *o, sl_err *err)
{
    for (int i = 0; i < p->n_dev; i++) {
        sl_status st = dev_open(p->name[i], o, &p->d[i], err);
        if (st && p->on[MODEL_ATTN] != i) status_prefix(err, "place");
        if (st) return st;
    }
    return SL_OK;
}

static sl_status open_devices(sl_engine *e, sl_err *err)
{
    struct model_place *p = &e->place.p;
    SL_TRY(open_each(p, &e->place.opts, err));
    e->d = p->d[p->on[MODEL_ATTN]];
    return SL_OK;
}

/* Is it a kind of device that this program knows? */
static bool is_known(const char *name)
{
    size_t n = strcspn(name, ":");
    for (int i = 0; dev_name(i); i++)
        if (strlen(dev_name(i)) == n && strncmp(dev_name(i), name, n) == 0) return true;
    return false;
}

/* May the CPU stand in for a device that could not be opened? Not for one that is not known. */
static bool may_fall_back(const sl_engine *e, sl_status st)
{
    bool known = true;
    for (int i = 0; i < e->place.p.n_dev; i++)
        known &= is_known(e->place.p.name[i]);
    return e->opts.fallback && known && st != SL_REQUEST;
}

static sl_status fall_back(sl_engine *e, const sl_err *why, sl_err *err)
{
    log_msg(LOG_WARN, "%s: the CPU computes everything (fallback)", why->text);
    close_devices(&e->place.p);
    SL_TRY(place_one(e, dev_name(0), err));
    e->place.fell_back = true;
    return open_devices(e, err);
}

/* The devices of the place, or the CPU alone. */
static sl_status open_some(sl_engine *e, sl_err *err)
{
    sl_err why = {0};
    sl_status st = open_devices(e, &why);
    if (st && may_fall_back(e, st)) return fall_back(e, &why, err);
    if (st && err) *err = why;
    return st;
}

static sl_status tell(sl_engine *e, sl_err *err)
{
    const struct model_place *p = &e->place.p;
    for (int i = 0; i < p->n_dev; i++) {
        SL_TRY(model_place_text(p, &e->m->cfg, i, &e->place.arena, &e->place.parts[i], err));
        if (p->n_dev > 1)
            log_msg(LOG_DEBUG, "place: %.2f GiB on %s: %s", (double)e->place.bytes[i] / (1 << 30),
                    p->name[i], e->place.parts[i]);
    }
    return SL_OK;
}

/* What auto is; the CPU is nothing to be silent about. */
static void tell_auto(const char *name)
{
    if (strcmp(name, dev_name(0)) != 0)
        log_msg(LOG_INFO, "--device auto: %s", name);
    else
        log_msg(LOG_WARN, "--device auto: %s: there is no card that can be opened (`sluice doctor` "
                          "lists them)",
                name);
}

/* Does a rank have what it places there in the memory of our device i? */
static bool takes_from(const sl_engine *e, int rank, int i)
{
    if (i == e->place.p.on[MODEL_ATTN]) return engine_rank_has_ours(e, rank);
    return engine_rank_is_here(e, rank);
}

/* Stages have each its own layers. What ranks have that share layers is not told apart here. */
static bool are_stages(const sl_engine *e)
{
    return engine_n_rank(e) > 1 && engine_n_rank(e) == engine_n_stage(e);
}

static void weigh_stages(sl_engine *e)
{
    int64_t of[MODEL_DEV_MAX], *bytes = e->place.bytes;
    for (int i = 0; i < MODEL_DEV_MAX; i++)
        bytes[i] = 0;
    for (int r = 0; r < engine_n_rank(e); r++) {
        struct model_dims d = engine_rank_dims(e, r);
        model_place_bytes(&(struct model_placed){&e->place.p, &e->m->cfg, &d}, e->m->io, of);
        for (int i = 0; i < e->place.p.n_dev; i++)
            if (takes_from(e, r, i)) bytes[i] += of[i];
    }
}

/* What lies where, and how much it is. */
static sl_status weigh(sl_engine *e, sl_err *err)
{
    const struct model_place *p = &e->place.p;
    if (are_stages(e))
        weigh_stages(e);
    else
        model_place_bytes(&(struct model_placed){p, &e->m->cfg, NULL}, e->m->io, e->place.bytes);
    SL_TRY(engine_hot_bytes(e, err));
    SL_TRY(engine_stream_bytes(e, err));
    if (e->opts.draft_model) e->place.bytes[p->on[MODEL_ATTN]] += e->opts.draft_model->bytes;
    if (e->mtp.on && e->m->cfg.n_mtp && !e->m->pack)
        e->place.bytes[p->on[MODEL_HEAD]] += model_small_head_bytes(&e->m->cfg, e->m->io);
    return tell(e, err);
}

sl_status engine_place_fall_back(sl_engine *e, const sl_err *why, sl_err *err)
{
    if (dev_is_host(e->d) || !may_fall_back(e, SL_NOMEM)) {
        if (err) *err = *why;
        return SL_NOMEM;
    }
    e->hot.on = e->hot.any = false;
    SL_TRY(fall_back(e, why, err));
    return weigh(e, err);
}

sl_status engine_place_open(sl_engine *e, const struct dev_opts *o, sl_err *err)
{
    struct model_place *p = &e->place.p;
    const char *text = model_place_or_default(e->opts.place);
    char home[ENGINE_DEVICE_NAME];
    mem_arena_init(&e->place.arena, MEM_MISC, 0);
    e->place.opts = *o;
    SL_TRY(engine_rank_device(e, home, sizeof home, err));
    if (text)
        SL_TRY(model_place_parse(text, &e->m->cfg, home, &e->place.arena, p, err));
    else
        SL_TRY(place_one(e, home, err));
    if (dev_name_is_auto(e->opts.device)) tell_auto(home);
    if (o->no_units && !engine_has_card(e))
        return SL_FAIL(err, REQUEST,
                       "no-matrix-units: no card is among the devices (device: vulkan or cuda)");
    SL_TRY(open_some(e, err));
    return weigh(e, err);
}

sl_status engine_place_rank(const struct engine_stage *s, struct arena *a, struct model_place *out,
                            sl_err *err)
{
    if (s->place)
        SL_TRY(model_place_parse(s->place, s->cfg, s->home, a, out, err));
    else {
        *out = (struct model_place){.n_dev = 1};
        SL_TRY(mem_arena_str(a, s->home, strlen(s->home), &out->name[0], err));
    }
    return open_each(out, s->opts, err);
}

void engine_place_rank_close(struct model_place *p)
{
    close_devices(p);
}

sl_status engine_place_again(sl_engine *e, sl_err *err)
{
    close_devices(&e->place.p);
    return open_devices(e, err);
}

void engine_place_close(sl_engine *e)
{
    close_devices(&e->place.p);
    mem_arena_fini(&e->place.arena);
}

/* Bytes for weights, and beside them, that ranks of this machine take where device i takes its
 * memory. */
static int64_t need_at(const sl_engine *e, int i)
{
    const struct model_place *p = &e->place.p;
    int64_t n = e->n_home > 1 ? engine_ranks_source_bytes(e) : 0;
    int64_t here = 0, all = 0;
    if (e->n_home > 1) return n + arch_beside_bytes(n);
    for (int r = 0; r < engine_n_rank(e); r++) {
        struct model_dims d = engine_rank_dims(e, r);
        int weight = d.weight[0] ? d.weight[model_stage_rank(&d)] : 1;
        all += weight;
        here += takes_from(e, r, i) ? weight : 0;
    }
    if (are_stages(e)) here = all;
    for (int k = 0; k < p->n_dev; k++)
        if (k == i || (dev_takes_host(p->d[k]) && dev_takes_host(p->d[i])))
            n += e->place.bytes[k] + arch_beside_bytes(e->place.bytes[k]);
    return n / all * here; /* what ranks repeat is small */
}

sl_status engine_free_on(dev *d, double fraction, int64_t *out, sl_err *err)
{
    int64_t total, n = 0;
    SL_TRY(dev_memory(d, &n, &total, err));
    *out = fraction > 0 && fraction < 1 ? (int64_t)((double)n * fraction) : n;
    return SL_OK;
}

/* Whose memory device i has: its own, or with others the machine's, which goes by e->d, if that is
 * one of them, or by the first. */
static int pool_of(const struct model_place *p, int i)
{
    int home = p->on[MODEL_ATTN];
    if (!dev_takes_host(p->d[i])) return i;
    if (dev_takes_host(p->d[home])) return home;
    for (int k = 0; k < i; k++)
        if (dev_takes_host(p->d[k])) return k;
    return i;
}

sl_status engine_place_rooms(const sl_engine *e, struct engine_rooms *out, sl_err *err)
{
    const struct model_place *p = &e->place.p;
    for (int i = 0; i < p->n_dev; i++) {
        out->pool[i] = pool_of(p, i);
        if (out->pool[i] != i) continue;
        SL_TRY(engine_free_on(p->d[i], e->opts.mem_fraction, &out->available[i], err));
        out->room[i] = out->available[i] - need_at(e, i);
        if (out->room[i] < 0 && i != p->on[MODEL_ATTN])
            return engine_fit_part(e, i, need_at(e, i), out->available[i], err);
    }
    return SL_OK;
}

void engine_place_tell(sl_engine *e)
{
    const struct model_place *p = &e->place.p;
    for (int i = 0; i < p->n_dev; i++)
        e->place.told[i] =
            (sl_device_info){.name = p->name[i],
                             .parts = e->place.parts[i],
                             .weight_bytes = model_weight_bytes_on(e->net, p->d[i]),
                             .kv_bytes = e->place.told[i].kv_bytes};
}

int sl_engine_devices(const sl_engine *e, sl_device_info *out, int n)
{
    int n_dev = e->place.p.n_dev;
    if (e->remote) return e->remote->devices(e->remote->user, out, n);
    for (int i = 0; i < n_dev && i < n; i++)
        out[i] = e->place.told[i];
    return n_dev;
}
