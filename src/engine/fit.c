/* SPDX-License-Identifier: Apache-2.0 */
/* A model that does not fit on a device: what it needs there, and what would fit. */
#include <inttypes.h>
#include <stdio.h>

#include "engine/fit.h"

/* What is said: parts, the last one after "or". */
struct advice {
    char part[3][48];
    int n;
};

/* In which a need is told. */
struct unit {
    double bytes;
    const char *name;
};

static struct unit unit_of(int64_t n)
{
    bool small = n < (int64_t)1 << 30;
    return (struct unit){small ? 1 << 20 : 1 << 30, small ? "MiB" : "GiB"};
}

/* "vulkan:0" where somebody said "vulkan"; sim's options stay. */
static const char *name_of(const sl_engine *e, int i)
{
    struct dev_info info;
    dev_info_get(e->place.p.d[i], &info);
    return dev_is_card(e->place.p.name[i]) ? info.name : e->place.p.name[i];
}

static char *more(struct advice *a)
{
    return a->part[a->n++];
}

static void join(const struct advice *a, char *out, size_t cap)
{
    size_t k = 0;
    out[0] = '\0';
    for (int i = 0; i < a->n && k < cap; i++)
        k += (size_t)snprintf(out + k, cap - k, "%s%s",
                              i == 0 ? "" : i + 1 < a->n ? ", " : " or ", a->part[i]);
}

/* Bytes beside the cache when n of the weights on that device are elsewhere. */
static int64_t without(const sl_engine *e, int at, int64_t n)
{
    int64_t w = e->place.bytes[at] - n;
    return w + arch_beside_bytes(w);
}

sl_status engine_fit_fail(const sl_engine *e, const struct engine_short *s, sl_err *err)
{
    const struct model_place *p = &e->place.p;
    int at = s->dev;
    int64_t weights = e->place.bytes[at], all = without(e, at, 0), need = all + s->kv;
    int64_t acts = arch_acts_bytes(weights);
    int64_t experts = model_place_experts(p, &e->m->cfg, e->m->io, at);
    int64_t n = s->n_most / ENGINE_BLK_TOK * ENGINE_BLK_TOK;
    struct advice a = {.n = 0};
    char text[160];
    if (experts && without(e, at, experts) + s->kv <= s->available)
        snprintf(more(&a), sizeof a.part[0], "--place experts=cpu");
    if (n >= ENGINE_BLK_TOK && !e->opts.kv_tokens)
        snprintf(more(&a), sizeof a.part[0], "-c %" PRId64, n);
    if (s->kv_q8 < s->kv && all + s->kv_q8 <= s->available)
        snprintf(more(&a), sizeof a.part[0], "--kv q8");
    if (!a.n && experts && without(e, at, experts) + s->kv_q8 <= s->available)
        snprintf(more(&a), sizeof a.part[0], "--place experts=cpu and --kv q8");
    join(&a, text, sizeof text);
    struct unit u = unit_of(need);
    return SL_FAIL(err, NOMEM,
                   "%.60s: %.1f %s needed (weights %.1f, KV %.1f, activations %.1f, rest %.1f), "
                   "%.1f free: %s%s",
                   name_of(e, at), (double)need / u.bytes, u.name, (double)weights / u.bytes,
                   (double)s->kv / u.bytes, (double)acts / u.bytes,
                   (double)(all - weights - acts) / u.bytes,
                   (double)s->available / u.bytes, a.n ? text : "too little for this model",
                   a.n ? " fits" : "");
}

sl_status engine_fit_part(const sl_engine *e, int i, int64_t need, int64_t available, sl_err *err)
{
    struct unit u = unit_of(need);
    return SL_FAIL(err, NOMEM,
                   "%.60s: %.1f %s needed for what is placed there (%.80s), %.1f free: --place "
                   "puts parts elsewhere",
                   name_of(e, i), (double)need / u.bytes, u.name, e->place.parts[i],
                   (double)available / u.bytes);
}
