/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that follow home: what they do when they are told. */
#include <string.h>

#include "engine/ranks.h"

static sl_status follow_step(struct follower *f, struct rd *r, const struct say_head *h,
                             sl_err *err)
{
    struct model_rows rows;
    struct rd body;
    uint32_t kind;
    uint64_t at;
    if (h->at) dist_uncounted(f->end);
    SL_TRY(engine_record_next(r, &kind, &body, &at, err));
    if (kind != RECORD_STEP) return SL_FAIL(err, INTERNAL, "a message that is no step");
    SL_TRY(engine_record_read_step(&body, at, &f->max, &f->step, err));
    SL_TRY(model_launch(f->net, f->kv, &f->step.s, err));
    return model_wait(f->net, &rows, err);
}

static sl_status follow_touch(struct follower *f, struct rd *r, const struct say_head *h,
                              sl_err *err)
{
    dist_uncounted(f->end);
    const uint8_t *p = rd_bytes(r, (uint64_t)h->n_blk * sizeof(int32_t));
    if (!rd_ok(r) || h->at >= DEV_KV_GROUPS)
        return SL_FAIL(err, INTERNAL, "a message that names no blocks");
    const int32_t *blk = (const int32_t *)(const void *)p; /* after a head of 16 bytes */
    if (f->dims.n_dp > 1 && (int)h->home != f->dims.dp) return SL_OK;
    for (uint32_t i = 0; i < h->n_blk; i++)
        if (blk[i] < 0 || blk[i] >= f->max.n_blk[h->at] / BASE_MAX(f->dims.n_dp, 1))
            return SL_FAIL(err, INTERNAL, "a message that names block %d", blk[i]);
    dev_kv_touch(f->d, f->kv, (int)h->at, blk, (int)h->n_blk);
    return SL_OK;
}

/* Groups that have tokens of their own have counted each its own: their first ranks tell that of
 * the stage. */
static sl_status add_routed(struct follower *f, int layer, sl_err *err)
{
    const struct arch_cfg *c = model_config(f->net);
    int32_t n_of[DIST_RANK_MAX] = {0};
    SL_TRY(model_routed(f->net, layer, f->routed, c->n_expert, err));
    for (int g = 0; g < f->dims.n_dp; g++)
        n_of[g * f->dims.n_rank] = 1;
    dist_gather(f->end, &(struct dist_gather){.of = DIST_STAGE,
                                              .x = (const float *)(const void *)f->routed,
                                              .y = (float *)(void *)f->routed_all,
                                              .n = 2 * c->n_expert,
                                              .n_of = n_of,
                                              .home = true});
    if (model_stage_rank(&f->dims)) return SL_OK;
    memset(f->routed, 0, (size_t)c->n_expert * sizeof *f->routed);
    for (int i = 0; i < f->dims.n_dp * c->n_expert; i++)
        f->routed[i % c->n_expert] += f->routed_all[i];
    return SL_OK;
}

sl_status engine_follower_routed(struct follower *f, int layer, sl_err *err)
{
    const struct arch_cfg *c = model_config(f->net);
    const struct model_dims *d = &f->dims;
    int n = 2 * c->n_expert; /* floats that take as many bytes */
    if (layer < 0 || layer >= c->n_layer + c->n_mtp || c->layer[layer].ffn != ARCH_MOE)
        return SL_FAIL(err, INTERNAL, "a message that names layer %d", layer);
    bool has = model_has_layer(c, d, layer);
    if (has && d->n_dp > 1) SL_TRY(add_routed(f, layer, err));
    if (model_stage_rank(d)) return SL_OK;
    if (has && d->n_dp <= 1)
        SL_TRY(model_routed(f->net, layer, f->routed, c->n_expert, err));
    else if (!has && layer < d->layer0)
        dist_take(f->end, (float *)(void *)f->routed, 1, n);
    if (layer < d->layer0 + d->n_layer && !model_is_last(d))
        dist_give(f->end, (const float *)(const void *)f->routed, 1, n);
    return SL_OK;
}

sl_status engine_follower_measure(struct follower *f, struct dist_link *link, sl_err *err)
{
    struct dev_pages p = dev_pages_near(f->d);
    dist_uncounted(f->end);
    SL_TRY(dist_measure(f->end, link, err));
    dist_note(f->end, p.n ? 1 + (uint64_t)(1e6 * (double)p.near / (double)p.n) : 0);
    return SL_OK;
}

sl_status engine_follower_beside(struct follower *f, const struct say_head *h, sl_err *err)
{
    int n = 0;
    dist_uncounted(f->end);
    if (h->what == SAY_HOT) SL_TRY(engine_hot_renew(f->hot, f->net, &n, err));
    if (h->what == SAY_STREAM) model_stream_set(f->net, (int)h->at);
    dist_note(f->end, h->what == SAY_COUNT ? engine_count_of(f->net, (enum engine_count)h->at)
                                           : (uint64_t)n);
    return SL_OK;
}

static bool is_beside(const struct say_head *h)
{
    return h->what == SAY_COUNT || h->what == SAY_HOT || h->what == SAY_STREAM;
}

static sl_status obey(struct follower *f, const void *msg, size_t n, sl_err *err)
{
    struct rd r = rd_init(msg, n);
    struct say_head h = {0};
    struct dist_link link; /* home's counts */
    const uint8_t *p = rd_bytes(&r, sizeof h);
    if (p) memcpy(&h, p, sizeof h);
    return h.what == SAY_STEP     ? follow_step(f, &r, &h, err)
           : h.what == SAY_TOUCH  ? follow_touch(f, &r, &h, err)
           : h.what == SAY_ROUTED ? engine_follower_routed(f, (int)h.at, err)
           : h.what == SAY_MEASURE ? engine_follower_measure(f, &link, err)
           : is_beside(&h)         ? engine_follower_beside(f, &h, err)
           : (h.what == SAY_PAGES_SET || h.what == SAY_PAGES_GET) && f->far
               ? engine_far_hear(f->far, &h, &r, err)
           : f->mover ? engine_mover_hear(f->mover, h.what, (int)h.at, (int)h.n_blk, &r, err)
                      : SL_FAIL(err, INTERNAL, "a message of kind %u", h.what);
}

void engine_follow(struct follower *f)
{
    sl_err err = {0};
    size_t n;
    for (const void *msg; (msg = dist_hear(f->end, &n));) {
        if (obey(f, msg, n, &err)) dist_fail(f->end, &err);
        dist_done(f->end);
    }
}

sl_status engine_follower_init(struct follower *f, const struct engine_ranks *k, int rank,
                               sl_err *err)
{
    const struct arch_cfg *c = model_config(f->net);
    f->dims = model_stage_dims(c, &k->stages, rank, k->n);
    f->max = k->max;
    size_t n = (size_t)c->n_expert * (size_t)(1 + k->n) + 1;
    SL_TRY(engine_array(n, sizeof *f->routed, &f->routed, err));
    f->routed_all = f->routed + c->n_expert;
    SL_TRY(engine_record_step_init(&f->step, &f->max, err));
    struct engine_mover_opts mo = {.net = f->net,
                                   .end = f->end,
                                   .dims = f->dims,
                                   .n_layer = k->n_layer,
                                   .n_slot = k->n_slot,
                                   .n_spare = k->n_spare,
                                   .mbps = k->place_mbps,
                                   .peer = k->from_peer};
    return k->n_spare ? engine_mover_open(&mo, &f->mover, err) : SL_OK;
}

void engine_follower_fini(struct follower *f)
{
    engine_mover_close(f->mover);
    f->mover = NULL;
    mem_free(f->routed);
    engine_record_step_fini(&f->step);
}
