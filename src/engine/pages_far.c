/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of a cache whose parts are in several processes. Home tells all ranks which blocks of a
 * layer it is about. What comes from elsewhere goes with the message, to those ranks that have the
 * layer. What is asked for is gathered by the first rank of the layer's stage and goes from stage
 * to stage to home, which puts the heads of all side by side. Several blocks go at once: those that
 * came one after another are kept until there are others or room is short, and those that will be
 * asked for next are asked for with the first. */
#include <string.h>

#include "base/size.h"
#include "engine/apart.h"
#include "engine/ranks.h"

#define ROOM ((size_t)1 << 20) /* of pages in a message */

struct engine_far {
    const struct arch_cfg *c;
    struct follower *f;
    int n_rank, n_layer, n_page; /* n_rank: that share a layer's heads; n_page: in a message */
    size_t page_most;
    float *part, *all; /* parts of pages: this rank's; of all that share heads */
    void *mem;
    /* home: pages that are on their way here and there */
    struct far_pages {
        int home, layer, n;
        int32_t blk[ENGINE_FAR_PAGES];
    } to, from;
    const struct request *from_r; /* whose blocks from number from_j on came; NULL = nobody's */
    int from_j;
    uint8_t *page; /* of a message; before them is room for the numbers of their blocks */
};

static size_t blk_bytes(int n)
{
    return size_round((size_t)n * sizeof(int32_t), 64);
}

size_t engine_far_room(const sl_engine *e)
{
    return blk_bytes(ENGINE_FAR_PAGES) + BASE_MAX(ROOM, engine_page_most(e));
}

/* A message's body: the blocks' numbers, right before the pages. */
static uint8_t *body_of(struct engine_far *w, const struct far_pages *p)
{
    uint8_t *body = w->page - blk_bytes(p->n);
    memcpy(body, p->blk, (size_t)p->n * sizeof *p->blk);
    return body;
}

/* ---- what ranks have ---- */

static bool has(const struct arch_cfg *c, const struct model_dims *d, int home, int layer)
{
    return model_has_layer(c, d, layer) && (d->n_dp <= 1 || d->dp == home);
}

/* Of a page's heads a rank's own alone, or those of head0 on where all are. */
static struct dev_kv_at place_of(const struct engine_far *w, int layer, int blk, bool alone)
{
    const struct model_dims *d = &w->f->dims;
    struct model_kv_place p = model_kv_place(w->c, d, layer);
    struct dev_kv_at at = {.group = p.group, .layer = p.layer, .blk = blk, .n_all = 1};
    if (w->c->kv_lora) return at;
    at.head0 = alone ? 0 : d->head_kv0;
    int all = arch_n_head_kv(w->c, layer); /* of layers that are not alike none is shared */
    at.n_all = alone && !arch_is_win(w->c, layer) ? d->n_head_kv : all;
    return at;
}

/* Bytes of a page of so many heads. */
static size_t bytes_of(const struct engine_far *w, int layer, int n_head)
{
    struct dev_kv_at at = place_of(w, layer, 0, false);
    at.n_all = n_head;
    at.head0 = 0;
    return (size_t)dev_kv_page_bytes(w->f->d, w->f->kv, &at);
}

static int n_head_of(const struct arch_cfg *c, int layer)
{
    return c->kv_lora ? 1 : arch_n_head_kv(c, layer);
}

/* Those that a rank has of a layer. */
static int n_head_at(const struct arch_cfg *c, const struct model_dims *d, int layer)
{
    return arch_is_win(c, layer) ? c->n_head_kv_win : d->n_head_kv;
}

/* Of rank r of a home. */
static struct model_dims dims_at(const struct engine_far *w, int home, int r)
{
    struct model_dims d = w->f->dims;
    d.dp = d.n_dp > 1 ? home : 0;
    return model_dims_beside(w->c, &d, r);
}

/* Of the rank with most heads: what ranks bring is as long on all. Floats. */
static int part_floats(const struct engine_far *w, int layer)
{
    int n = 1;
    for (int r = 0; r < model_stage_n(&w->f->dims) && !w->c->kv_lora; r++) {
        struct model_dims d = dims_at(w, r / w->n_rank, r % w->n_rank);
        n = BASE_MAX(n, n_head_at(w->c, &d, layer));
    }
    /* one's own count for the others, whose heads are of the same size */
    size_t one = bytes_of(w, layer, n_head_of(w->c, layer)) / (size_t)n_head_of(w->c, layer);
    return (int)(size_round((size_t)n * one, sizeof(float)) / sizeof(float));
}

/* Which ranks are told of all of a message. */
static uint64_t ranks_with(const sl_engine *e, int home, int layer)
{
    uint64_t to = 0;
    for (int r = 0; r < engine_n_rank(e); r++) {
        struct model_dims d = engine_rank_dims(e, r);
        if (has(&e->m->cfg, &d, home, layer)) to |= (uint64_t)1 << r;
    }
    return to;
}

/* ---- all ranks ---- */

static sl_status hear_set(struct engine_far *w, const struct say_head *h, const int32_t *blk,
                          struct rd *r, sl_err *err)
{
    int layer = (int)h->at;
    uint64_t bytes = bytes_of(w, layer, n_head_of(w->c, layer));
    const uint8_t *page = rd_bytes(r, h->n_blk * bytes);
    if (!rd_ok(r)) return SL_FAIL(err, INTERNAL, "a message that holds no pages");
    for (uint32_t i = 0; i < h->n_blk; i++) {
        struct dev_kv_at at = place_of(w, layer, blk[i], false);
        dev_kv_set(w->f->d, w->f->kv, &at, page + i * bytes);
    }
    return SL_OK;
}

/* The stage that has the layer: parts of its ranks that have the home's, at the first one. n_of:
 * pages of each. */
static void gather(struct engine_far *w, const struct say_head *h, const int32_t *blk,
                   const int32_t *n_of)
{
    const struct model_dims *d = &w->f->dims;
    int layer = (int)h->at, n = part_floats(w, layer), alone = model_stage_n(d) == 1;
    float *part = alone ? w->all : w->part;
    for (int i = 0; i < n_of[model_stage_rank(d)]; i++) {
        struct dev_kv_at at = place_of(w, layer, blk[i], true);
        dev_kv_get(w->f->d, w->f->kv, &at, part + (size_t)i * (size_t)n);
    }
    if (alone) return;
    dist_gather(w->f->end, &(struct dist_gather){.of = DIST_STAGE,
                                                 .x = w->part,
                                                 .y = w->all,
                                                 .n = n,
                                                 .n_of = n_of,
                                                 .home = true});
}

static void hear_get(struct engine_far *w, const struct say_head *h, const int32_t *blk)
{
    const struct model_dims *d = &w->f->dims;
    int layer = (int)h->at, n = part_floats(w, layer), n_row = 0;
    int32_t n_of[DIST_RANK_MAX] = {0};
    for (int r = 0; r < d->n_rank; r++) { /* of latents the first has what all have */
        int32_t of = r && w->c->kv_lora ? 0 : (int32_t)h->n_blk;
        n_of[(d->n_dp > 1 ? (int)h->home * d->n_rank : 0) + r] = of;
        n_row += of;
    }
    bool here = model_has_layer(w->c, d, layer);
    if (here) gather(w, h, blk, n_of);
    if (model_stage_rank(d)) return;
    if (!here && layer < d->layer0) dist_take(w->f->end, w->all, n_row, n);
    if (layer < d->layer0 + d->n_layer && !model_is_last(d))
        dist_give(w->f->end, w->all, n_row, n);
}

sl_status engine_far_hear(struct engine_far *w, const struct say_head *h, struct rd *r, sl_err *err)
{
    const struct model_dims *d = &w->f->dims;
    int n_dp = BASE_MAX(d->n_dp, 1);
    if (h->at >= (uint32_t)w->n_layer || h->n_blk < 1 || h->n_blk > (uint32_t)w->n_page ||
        h->home >= (uint32_t)n_dp)
        return SL_FAIL(err, INTERNAL, "a message of %u pages of layer %u", h->n_blk, h->at);
    if (h->what == SAY_PAGES_SET && !has(w->c, d, (int)h->home, (int)h->at)) return SL_OK;
    const uint8_t *p = rd_bytes(r, blk_bytes((int)h->n_blk));
    if (!p) return SL_FAIL(err, INTERNAL, "a message that names no blocks");
    const int32_t *blk = (const int32_t *)(const void *)p; /* after a head of 16 bytes */
    int group = model_kv_place(w->c, d, (int)h->at).group;
    for (uint32_t i = 0; i < h->n_blk; i++)
        if (blk[i] < 0 || blk[i] >= w->f->max.n_blk[group] / n_dp)
            return SL_FAIL(err, INTERNAL, "a message that names block %d", blk[i]);
    if (h->what == SAY_PAGES_SET) return hear_set(w, h, blk, r, err);
    hear_get(w, h, blk);
    return SL_OK;
}

/* ---- home ---- */

bool engine_is_far(const sl_engine *e)
{
    return e->ranks && e->ranks->own.far;
}

static void lost(sl_engine *e, const sl_err *why)
{
    if (!atomic_load(&e->lost)) engine_lose(e, why);
}

/* What was put goes to the ranks that have it. */
void engine_far_flush(sl_engine *e)
{
    struct engine_far *w = engine_is_far(e) ? e->ranks->own.far : NULL;
    sl_err why = {0};
    if (!w || !w->to.n) return;
    size_t bytes = (size_t)w->to.n * engine_page_bytes(e, w->to.layer);
    struct engine_say s = {.what = SAY_PAGES_SET,
                           .layer = w->to.layer,
                           .home = w->to.home,
                           .n = w->to.n,
                           .body = body_of(w, &w->to),
                           .bytes = blk_bytes(w->to.n) + bytes,
                           .is_for = ranks_with(e, w->to.home, w->to.layer)};
    w->to.n = 0;
    if (engine_ranks_say(e, &s, &why)) lost(e, &why);
}

void engine_far_put(sl_engine *e, const struct engine_page_at *at, const void *page)
{
    struct engine_far *w = e->ranks->own.far;
    struct far_pages *to = &w->to;
    if (to->n == w->n_page || (to->n && (to->home != at->home || to->layer != at->layer)))
        engine_far_flush(e);
    size_t bytes = engine_page_bytes(e, at->layer);
    to->home = at->home;
    to->layer = at->layer;
    memcpy(w->page + (size_t)to->n * bytes, page, bytes);
    to->blk[to->n++] = at->blk;
}

static bool fetch(sl_engine *e, const struct engine_page_at *at, const struct engine_far_of *of)
{
    struct engine_far *w = e->ranks->own.far;
    struct far_pages *p = &w->from;
    sl_err why = {0};
    w->from_r = of->r;
    w->from_j = of->j;
    p->home = at->home;
    p->layer = at->layer;
    p->n = BASE_MIN(of->n, w->n_page);
    memcpy(p->blk, of->blk, (size_t)p->n * sizeof *p->blk);
    struct engine_say s = {.what = SAY_PAGES_GET,
                           .layer = p->layer,
                           .home = p->home,
                           .n = p->n,
                           .body = body_of(w, p),
                           .bytes = blk_bytes(p->n),
                           .is_for = ~(uint64_t)0};
    if (!engine_ranks_say(e, &s, &why)) return true;
    w->from_r = NULL;
    lost(e, &why);
    return false;
}

bool engine_far_get(sl_engine *e, const struct engine_page_at *at, const struct engine_far_of *of,
                    void *page)
{
    struct engine_far *w = e->ranks->own.far;
    int i = of->j - w->from_j;
    /* what a request stores at a place of its text is the same wherever it lies */
    if (of->r != w->from_r || at->layer != w->from.layer || i < 0 || i >= w->from.n) {
        if (!fetch(e, at, of)) return false;
        i = 0;
    }
    size_t row = (size_t)part_floats(w, at->layer);
    if (w->c->kv_lora) {
        memcpy(page, w->all + (size_t)i * row, engine_page_bytes(e, at->layer));
        return true;
    }
    for (int r = 0; r < w->n_rank; r++) {
        struct model_dims d = dims_at(w, at->home, r);
        struct dev_kv_at to = place_of(w, at->layer, 0, false);
        to.head0 = d.head_kv0;
        const float *part = w->all + ((size_t)r * (size_t)w->from.n + (size_t)i) * row;
        dev_kv_join(e->kv, &to, n_head_at(w->c, &d, at->layer), part, page);
    }
    return true;
}

void engine_far_forget(sl_engine *e)
{
    if (engine_is_far(e)) e->ranks->own.far->from_r = NULL;
}

/* ---- opening and closing ---- */

sl_status engine_far_open(sl_engine *e, sl_err *err)
{
    struct engine_ranks *k = e->ranks;
    void *p = NULL;
    if (engine_pages_check(e, NULL)) return SL_OK; /* none will be asked for */
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof(struct engine_far), &p, err));
    struct engine_far *w = k->own.far = p;
    w->c = &e->m->cfg;
    w->f = &k->own;
    w->n_rank = k->own.dims.n_rank;
    w->n_layer = engine_pages_layers(e);
    w->page_most = engine_page_most(e);
    w->n_page = (int)BASE_MIN(BASE_MAX(ROOM / w->page_most, 1), ENGINE_FAR_PAGES);
    size_t row = 0;
    for (int l = 0; l < w->n_layer; l++)
        row = BASE_MAX(row, (size_t)part_floats(w, l) * sizeof(float));
    size_t part = size_round((size_t)w->n_page * row, 64), n_blk = blk_bytes(ENGINE_FAR_PAGES);
    size_t all = part * (size_t)w->n_rank;
    SL_TRY(mem_alloc(MEM_SCRATCH, part + all + n_blk + (size_t)w->n_page * w->page_most, &p, err));
    w->mem = p;
    w->part = p;
    w->all = (float *)(void *)((uint8_t *)p + part);
    w->page = (uint8_t *)w->all + all + n_blk;
    return SL_OK;
}

void engine_far_close(struct engine_far *w)
{
    if (w) mem_free(w->mem);
    mem_free(w);
}
