/* SPDX-License-Identifier: Apache-2.0 */
/* From how many tokens of a step on streamed experts are faster than those of the CPU: found by
 * trying feed-forward blocks of this model, on this machine, both ways. */
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "model/emit.h"

#define LAYERS 3               /* that are tried, one after another */
#define OPS_MAX 64             /* of one, beside those of slabs */
#define QUICK_NS 50000000      /* what takes less is tried again */
#define AGAIN 3                /* so often; the shortest counts */
#define ALL_NS 5000000000      /* no more is tried after that time */
#define STEP 8                  /* from a number of tokens to the next */
#define ROUNDS 8                /* between two of these */

struct trial {
    struct model *m;
    dev_prog *prog[2]; /* on the CPU, streamed */
    int n_layer;
    struct dev_step step;
    int64_t ns[2];  /* of the last number of tokens, each way */
    int64_t end_ns; /* of the clock: when no more is tried */
};

/* Blocks that are streamed, without what is between them. */
static sl_status open_prog(struct trial *t, bool streams, sl_err *err)
{
    struct model *m = t->m;
    const struct side *home = model_side(m, MODEL_ATTN);
    int n_max = LAYERS * (OPS_MAX + model_stream_ops(m)), il[LAYERS], n = 0;
    void *p = NULL;
    for (int i = 0; i < m->cfg.n_layer && n < LAYERS; i++)
        if (model_stream_of(m, i)) il[n++] = i;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)n_max, sizeof(struct dev_op), &p, err));
    struct emit e = {.op = p, .n_max = n_max, .streams = streams};
    model_emit_begin(&e, m);
    for (int i = 0; i < n; i++) {
        e.layer = il[i];
        e.side = home;
        e.is_last = i + 1 == n || il[i + 1] != il[i] + 1;
        EMIT(&e, prep, .x = home->rows, .n = m->cfg.d_model, .act = home->a_ffn);
        e.moved = e.prepared = 0;
        model_moe_emit(&e, model_layer(m, il[i]));
    }
    t->n_layer = n;
    sl_status st = dev_prog_open(m->d, e.op, e.n, &t->prog[streams], err);
    mem_free(p);
    return st;
}

/* As a router may be given them. */
static sl_status fill_rows(struct model *m, sl_err *err)
{
    size_t D = (size_t)m->cfg.d_model, n = (size_t)m->opts.n_tok_max * D;
    uint64_t state = 1;
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, n, sizeof(float), &p, err));
    float *x = p;
    for (size_t i = 0; i < n; i++)
        x[i] = (float)((int64_t)(rng_next(&state) >> 40) - (1 << 23)) * 0x1p-22f;
    sl_status st =
        dev_put(m->d, model_side(m, MODEL_ATTN)->rows, x, (int64_t)(n * sizeof *x), err);
    mem_free(p);
    return st;
}

static sl_status run_once(struct trial *t, int way, int64_t *ns, sl_err *err)
{
    struct model *m = t->m;
    int64_t t0 = dev_now_ns(m->d);
    SL_TRY(dev_prog_run(t->prog[way], NULL, &t->step, err));
    for (int i = 0; i < m->place.n_dev; i++)
        SL_TRY(dev_sync(m->place.d[i], err));
    *ns = dev_now_ns(m->d) - t0;
    return SL_OK;
}

/* Steps of n tokens each way, in turn. *gain: what streaming saves, in ns. */
static sl_status try(struct trial *t, int n, int64_t *gain, sl_err *err)
{
    int32_t tok0[2] = {0, n}, end = t->m->opts.n_ctx;
    t->step = (struct dev_step){
        .n_tok = n, .n_seq = 1, .pos = t->step.pos, .seq_tok0 = tok0, .n_prompt = &end};
    t->ns[0] = t->ns[1] = INT64_MAX;
    for (int k = 0; k < AGAIN; k++) {
        for (int way = 0; way < 2; way++) {
            int64_t ns = 0;
            SL_TRY(run_once(t, way, &ns, err));
            t->ns[way] = BASE_MIN(t->ns[way], ns);
        }
        if (t->ns[0] + t->ns[1] > QUICK_NS || clock_now_ns() > t->end_ns) break;
    }
    t->step.seq_tok0 = t->step.n_prompt = NULL;
    *gain = t->ns[0] - t->ns[1];
    return SL_OK;
}

/* Numbers of tokens, and what streaming saves with them. */
struct ends {
    int lo, hi;
    int64_t g_lo, g_hi;
};

/* Where a line through both ends is 0; every other time in the middle, for it is none. */
static int between(const struct ends *e, int round)
{
    double part = (double)-e->g_lo / ((double)e->g_hi - (double)e->g_lo);
    int n = e->lo + (int)((double)(e->hi - e->lo) * (round % 2 ? 0.5 : part) + 0.5);
    return BASE_MIN(BASE_MAX(n, e->lo + 1), e->hi - 1);
}

static void note_rate(struct trial *t, int n)
{
    const struct arch_cfg *c = &t->m->cfg;
    double per_token = 6.0 * c->n_expert_used * c->d_model * c->d_ff_expert;
    t->m->stream.cpu_gops = per_token * n * t->n_layer / (double)t->ns[0];
}

static bool has_time(const struct trial *t, int factor)
{
    return clock_now_ns() + factor * (t->ns[0] + t->ns[1]) < t->end_ns;
}

/* More and more tokens, until it is faster, or time is over. */
static sl_status find_end(struct trial *t, struct ends *e, sl_err *err)
{
    int most = t->m->opts.n_tok_max;
    while (e->g_hi <= 0 && e->hi < most && has_time(t, STEP)) {
        e->lo = e->hi;
        e->g_lo = e->g_hi;
        e->hi = BASE_MIN(STEP * e->hi, most);
        SL_TRY(try(t, e->hi, &e->g_hi, err));
        note_rate(t, e->hi);
    }
    return SL_OK;
}

/* There was no time for more: where a line through the last two meets 0. */
static int beyond(const struct ends *e, int most)
{
    double slope = (double)(e->g_hi - e->g_lo) / BASE_MAX(e->hi - e->lo, 1);
    double n = slope > 0 ? e->hi + (double)-e->g_hi / slope : most + 1.0;
    return n <= most ? (int)(n + 0.5) : 0;
}

/* *from: 0 = in no step. */
static sl_status search(struct trial *t, int *from, sl_err *err)
{
    struct stream *s = &t->m->stream;
    struct ends e = {.lo = 1, .hi = 1};
    int64_t bytes = 0, g = 0;
    for (int i = 0, n = 0; i < t->m->cfg.n_layer && n < t->n_layer; i++)
        if (model_stream_of(t->m, i)) bytes += s->bytes[i], n++;
    SL_TRY(try(t, 1, &e.g_hi, err)); /* pages are touched, logs recorded */
    SL_TRY(try(t, 1, &e.g_hi, err));
    s->bus_gbps = (double)bytes / (double)t->ns[1];
    SL_TRY(find_end(t, &e, err));
    if (e.g_hi <= 0) *from = beyond(&e, t->m->opts.n_tok_max);
    if (e.g_hi > 0) *from = e.hi;
    for (int i = 0; i < ROUNDS && e.g_hi > 0 && e.hi - e.lo > 1 && has_time(t, 1); i++) {
        int n = between(&e, i);
        SL_TRY(try(t, n, &g, err));
        if (g > 0)
            e.hi = n, e.g_hi = g;
        else
            e.lo = n, e.g_lo = g;
        *from = e.hi - e.lo > 1 ? between(&e, 0) : e.hi;
    }
    return SL_OK;
}

/* Trials count for nothing. */
static sl_status forget(struct model *m, sl_err *err)
{
    size_t n = (size_t)(m->cfg.n_layer + m->n_mtp) * (size_t)m->cfg.n_expert;
    void *zero = NULL;
    sl_status st = SL_OK;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, n, sizeof(uint64_t), &zero, err));
    for (int i = 0; i < m->place.n_dev && !st; i++)
        if (m->side[i].n_routed)
            st = dev_put(m->side[i].d, m->side[i].n_routed, zero, (int64_t)(n * 8), err);
    mem_free(zero);
    for (int il = 0; m->hot && il < m->cfg.n_layer + m->n_mtp; il++)
        m->hot[il].hits = (struct dev_hits){0};
    return st;
}

sl_status model_stream_try(struct model *m, sl_err *err)
{
    struct trial t = {.m = m, .end_ns = clock_now_ns() + ALL_NS};
    void *pos = NULL;
    int from = 0;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)m->opts.n_tok_max, sizeof(int32_t), &pos, err));
    t.step.pos = pos;
    sl_status st = fill_rows(m, err);
    if (!st) st = open_prog(&t, false, err);
    if (!st) st = open_prog(&t, true, err);
    if (!st) st = search(&t, &from, err);
    if (!st) st = forget(m, err);
    m->stream.from = from;
    dev_prog_close(t.prog[0]);
    dev_prog_close(t.prog[1]);
    mem_free(pos);
    return st;
}
