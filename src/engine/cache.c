/* SPDX-License-Identifier: Apache-2.0 */
/* The cache's blocks: how many of each group, their pools, and the tables of a step. */
#include "engine/cache.h"

#include <string.h>

#include "engine/engine_internal.h"

int engine_kv_window(const struct arch_cfg *c)
{
    int w = 0;
    for (int i = 0; i < c->n_layer + c->n_mtp; i++)
        w = BASE_MAX(w, model_kv_window(c, i));
    return w;
}

bool engine_kv_has(const struct arch_cfg *c, enum dev_kv_kind kind)
{
    struct dev_kv_shape s = model_kv_shape(c, NULL, DEV_KV_F32, 1, ENGINE_BLK_TOK);
    return s.group[kind].n_layer > 0;
}

/* About what a token takes in a group of layers that are not alike, in 16 bits. */
static double token_bytes(const struct dev_kv_group *g)
{
    double n = 0;
    for (int i = 0; i < DEV_KV_PARTS && g->part[i].every; i++)
        n += g->part[i].n_layer *
             (2.0 * ((g->part[i].bare ? 0 : g->d_k) + g->part[i].d_i) / g->part[i].every +
              4.0 * g->part[i].d_raw);
    return n;
}

/* Places beside those that sequences see, for prefixes: a quarter of the blocks, or where a place
 * is much dearer than a block as many as cost a quarter of what these do. */
static int places_kept(const struct dev_kv_shape *s, int n_blk)
{
    double blk = token_bytes(&s->group[DEV_KV_PAGED]), win = token_bytes(&s->group[DEV_KV_WINDOW]);
    return (int)(n_blk / 4 * (win > blk ? blk / win : 1));
}

struct dev_kv_shape engine_kv_shape(const struct arch_cfg *c, const struct model_dims *d,
                                    enum dev_kv_type type, int n_blk, int n_seq, int n_tok)
{
    struct dev_kv_shape s = model_kv_shape(c, d, type, n_blk, ENGINE_BLK_TOK);
    int most = kv_win_most(engine_kv_window(c), ENGINE_BLK_TOK, n_seq, n_tok);
    bool windows = engine_kv_has(c, DEV_KV_WINDOW);
    if (engine_kv_window(c) > 1) most += places_kept(&s, n_blk); /* else a hit sees none */
    s.group[DEV_KV_WINDOW].n_blk = windows ? BASE_MIN(n_blk, most) : 1;
    s.group[DEV_KV_STATE].n_blk = n_seq + 1 + engine_n_snap(n_seq); /* as struct sched_copy */
    return s;
}

int engine_n_table(const sl_engine *e)
{
    return engine_kv_has(&e->m->cfg, DEV_KV_WINDOW) ? DEV_KV_WINDOW + 1 : DEV_KV_PAGED + 1;
}

static void freed(void *user, int32_t blk)
{
    sl_engine *e = user;
    dev_kv_free(e->d, e->kv, DEV_KV_PAGED, blk);
    if (e->small.on) dev_kv_free(e->d, e->small.kv, DEV_KV_PAGED, blk);
}

static void win_freed(void *user, int32_t win)
{
    sl_engine *e = user;
    dev_kv_free(e->d, e->kv, DEV_KV_WINDOW, win);
}

static sl_status open_pool(const sl_engine *e, struct kv_pool *p, sl_err *err)
{
    const struct dev_kv_shape *s = &e->kv_shape;
    SL_TRY(kv_pool_init(p, s->group[DEV_KV_PAGED].n_blk, ENGINE_BLK_TOK, err));
    if (!e->opts.no_reuse) SL_TRY(kv_cache_init(p, err));
    if (engine_kv_has(&e->m->cfg, DEV_KV_STATE))
        SL_TRY(kv_snap_init(p, engine_n_snap(e->n_seat), err));
    if (!engine_kv_has(&e->m->cfg, DEV_KV_WINDOW)) return SL_OK;
    return kv_win_init(p, engine_kv_window(&e->m->cfg), s->group[DEV_KV_WINDOW].n_blk, err);
}

sl_status engine_cache_open(sl_engine *e, sl_err *err)
{
    for (int h = 0; h < e->n_home; h++)
        SL_TRY(open_pool(e, e->home[h].pool, err));
    e->pool.on_free = freed; /* this process has no other home's cache */
    e->pool.on_win_free = win_freed;
    e->pool.user = e;
    return SL_OK;
}

void engine_cache_table(sl_engine *e, int row, int home, const struct kv_seq *seq)
{
    int32_t *to = engine_table(e, DEV_KV_PAGED, row);
    int32_t blk0 = engine_blk0(e, home, DEV_KV_PAGED), win0 = engine_blk0(e, home, DEV_KV_WINDOW);
    for (int i = 0; i < seq->n_blk; i++)
        to[i] = blk0 + seq->blk[i];
    if (!e->pool.n_win) return;
    to = engine_table(e, DEV_KV_WINDOW, row);
    for (int i = 0; i < seq->win0; i++)
        to[i] = win0; /* nobody reads these */
    for (int i = seq->win0; i < seq->n_blk; i++)
        to[i] = win0 + kv_win_of(e->home[home].pool, seq->blk[i]);
}

void engine_cache_move(sl_engine *e, int from, int j0, int to)
{
    for (int g = 0; g < engine_n_table(e); g++) {
        int32_t *p = engine_table(e, g, to);
        memmove(p, engine_table(e, g, from) + j0, (size_t)(e->ld_blk - j0) * sizeof *p);
    }
}

static int add_copy(sl_engine *e, int n, int group, int32_t src, int32_t dst)
{
    int32_t *c = e->room->copy + 3 * n;
    c[0] = group;
    c[1] = src;
    c[2] = dst;
    return n + 1;
}

int engine_cache_copies(sl_engine *e, const struct sched_plan *p)
{
    int n = 0;
    for (int i = 0; i < p->n_item; i++) {
        const struct sched_item *it = &p->item[i];
        int home = it->seat / e->n_seat;
        int32_t blk0 = engine_blk0(e, home, DEV_KV_PAGED),
                win0 = engine_blk0(e, home, DEV_KV_WINDOW);
        if (it->copy_src < 0) continue;
        n = add_copy(e, n, DEV_KV_PAGED, blk0 + it->copy_src, blk0 + it->copy_dst);
        if (it->win_src >= 0)
            n = add_copy(e, n, DEV_KV_WINDOW, win0 + it->win_src, win0 + it->win_dst);
    }
    for (int i = 0; i < p->n_copy; i++)
        n = add_copy(e, n, DEV_KV_STATE, p->copy[i].src, p->copy[i].dst);
    return n;
}
