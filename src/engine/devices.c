/* SPDX-License-Identifier: Apache-2.0 */
/* Which device each of the ranks has. */
#include <stdio.h>
#include <string.h>

#include "engine/ranks.h"

static int count_names(const char *list)
{
    int n = 0;
    for (const char *s = list; *s; n++) {
        s += dev_name_bytes(s);
        s += *s == ',';
    }
    return n;
}

/* Of the first `end` ranks, how many are on this machine. */
static int count_here(const struct engine_ranks *k, int end)
{
    int n = 0;
    for (int i = 0; i < end; i++)
        n += dist_here(k->end, i);
    return n;
}

/* Which name of the list rank r of this machine has, and its bytes: ranks of this machine have one
 * after the other, and then those from the first on again. */
static const char *device_of(const struct engine_ranks *k, int r, size_t *n)
{
    const char *s = dev_name_or_default(k->device);
    for (int at = count_here(k, r) % BASE_MAX(count_names(s), 1); at > 0; at--)
        s += dev_name_bytes(s) + 1;
    *n = dev_name_bytes(s);
    return s;
}

static sl_status copy_name(const char *name, size_t n, char *out, size_t cap, sl_err *err)
{
    if (n >= cap) return SL_FAIL(err, REQUEST, "device '%.40s...': the name is too long", name);
    snprintf(out, cap, "%.*s", (int)n, name);
    return SL_OK;
}

static bool is_cpu(const char *name)
{
    size_t n = strlen(dev_name(0));
    name += strspn(name, " ");
    return strncmp(name, dev_name(0), n) == 0 && (!name[n] || strchr(",:; ", name[n]));
}

void engine_ranks_find(const struct engine_ranks *k, struct model_opts *o)
{
    bool card = false, other = false;
    for (const char *s = dev_name_or_default(k->device); *s;) {
        *(dev_is_card(s) ? &card : &other) = true;
        o->plain |= !is_cpu(s);
        s += dev_name_bytes(s);
        s += *s == ',';
    }
    for (const char *s = k->place; s && (s = strchr(s, '=')); s++)
        o->plain |= !is_cpu(s + 1);
    o->is_mixed = card && other;
    o->is_placed = o->plain && k->place;
}

sl_status engine_rank_name(const struct engine_ranks *k, int r, char *out, size_t cap, sl_err *err)
{
    size_t n;
    const char *name = device_of(k, r, &n);
    return copy_name(name, n, out, cap, err);
}

sl_status engine_rank_device(const sl_engine *e, char *out, size_t cap, sl_err *err)
{
    struct engine_ranks *k = e->ranks;
    const char *name = dev_name_or_default(e->opts.device);
    size_t n = strlen(name);
    if (k && count_names(name) > count_here(k, k->n))
        return SL_FAIL(err, REQUEST,
                       "layout: --device %.60s: %d devices, and %d ranks of this "
                       "machine",
                       name, count_names(name), count_here(k, k->n));
    if (k) name = device_of(k, k->here, &n);
    return copy_name(name, n, out, cap, err);
}

bool engine_has_card(const sl_engine *e)
{
    bool any = false;
    for (int i = 0; i < e->place.p.n_dev; i++)
        any |= dev_is_card(e->place.p.name[i]);
    for (const char *s = e->ranks ? dev_name_or_default(e->opts.device) : ""; *s && !any;) {
        any = dev_is_card(s);
        s += dev_name_bytes(s);
        s += *s == ',';
    }
    return any;
}

/* Where another rank's parts lie, by names alone. */
static sl_status place_of(sl_engine *e, int r, struct model_place *out, sl_err *err)
{
    const struct engine_ranks *k = e->ranks;
    char home[ENGINE_DEVICE_NAME];
    SL_TRY(engine_rank_name(k, r, home, sizeof home, err));
    if (k->place)
        return model_place_parse(k->place, &e->m->cfg, home, &e->place.arena, out, err);
    *out = (struct model_place){.n_dev = 1};
    return mem_arena_str(&e->place.arena, home, strlen(home), &out->name[0], err);
}

/* Is the layer's attention on a device, and its experts on the CPU? */
static bool is_beside(const struct model_place *p, int il)
{
    return is_cpu(p->name[model_place_at(p, il, MODEL_EXPERTS)]) &&
           !is_cpu(p->name[model_place_at(p, il, MODEL_ATTN)]);
}

sl_status engine_rank_beside(sl_engine *e, int r, bool **out, sl_err *err)
{
    const struct arch_cfg *c = &e->m->cfg;
    struct model_dims d = engine_rank_dims(e, r);
    struct model_place other;
    bool own = r == engine_rank_here(e);
    void *p = NULL;
    if (!own) SL_TRY(place_of(e, r, &other, err));
    SL_TRY(mem_arena_array(&e->place.arena, (size_t)(c->n_layer + c->n_mtp), 1, &p, err));
    *out = p;
    for (int il = 0; il < c->n_layer + c->n_mtp; il++)
        (*out)[il] = c->layer[il].ffn == ARCH_MOE && model_has_layer(c, &d, il) &&
                     (own ? model_may_be_hot(&e->place.p, c, il) : is_beside(&other, il));
    return SL_OK;
}

bool engine_rank_has_ours(const sl_engine *e, int rank)
{
    const struct engine_ranks *k = e->ranks;
    size_t n, n_own;
    if (!k || (dist_here(k->end, rank) && dev_takes_host(e->d))) return true;
    if (!dist_here(k->end, rank)) return false;
    const char *name = device_of(k, rank, &n), *own = device_of(k, k->here, &n_own);
    return n == n_own && memcmp(name, own, n) == 0;
}
