/* SPDX-License-Identifier: Apache-2.0 */
/* Attention by a state, and gates. Four launches: what the delta rule takes, the rule, what the
 * state keeps, and beside that the norm. States lie as the CPU's do (dev/cpu/delta.c). */
#include <string.h>

#include "dev/gpu/ops.h"

#define COLUMNS 32 /* of a workgroup (gpu/kernel/delta.inc) */
#define WIDTH_MAX 128 /* of keys (gpu/kernel/delta.inc) */

/* The arguments of gpu/kernel/state.inc. */
struct state_k {
    uint64_t pieces, step, x;
    uint32_t per, page, layers, n_seq;
    uint32_t heads, width, form;
    uint32_t ld, key, v_key, v_val, ab_key, ab_val;
    uint32_t q_at, k_at, v_at, a_at, b_at;
};

/* Queries, keys, values, a and b. */
enum { N_ROWS = 5 };
static void rows_of(const struct dev_delta *p, const struct dev_heads *out[N_ROWS])
{
    out[0] = &p->q;
    out[1] = &p->k;
    out[2] = &p->v;
    out[3] = &p->a;
    out[4] = &p->b;
}

/* Where the first of them is. */
static uint64_t first_of(const struct dev_delta *p)
{
    const struct dev_heads *all[N_ROWS];
    uint64_t first = UINT64_MAX;
    rows_of(p, all);
    for (int i = 0; i < N_ROWS; i++)
        first = BASE_MIN(first, at(all[i]->p));
    return first;
}

static uint32_t words(const struct dev_heads *h, uint64_t from)
{
    return (uint32_t)((at(h->p) - from) / 4);
}

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

const char *dev_gpu_delta_lacks(const struct dev_delta *p)
{
    const struct dev_heads *all[N_ROWS];
    uint64_t first = first_of(p);
    int64_t n_a = p->each ? p->d_k : 1;
    rows_of(p, all);
    for (int i = 0; i < N_ROWS; i++)
        if (all[i]->ld != p->z.ld || at(all[i]->p) - first >= (uint64_t)4 << 30)
            return "queries, keys and values that lie apart";
    if (p->q.key != p->k.key || p->v.key != p->z.key || p->v.val != p->z.val ||
        p->a.key != n_a * p->b.key || p->a.val != n_a * p->b.val)
        return "heads in several orders";
    if (BASE_MAX(p->n_k, p->n_v) > UINT16_MAX) return "more than 65535 heads";
    if (p->bound != 0 && (bits_of(p->bound) & UINT16_MAX))
        return "a bound of decays that is no bf16";
    return p->d_k > WIDTH_MAX ? "keys wider than 128: --place attn=cpu runs them" : NULL;
}

sl_status dev_gpu_delta_kernels(struct gpu *c, sl_err *err)
{
    SL_TRY(dev_gpu_kernel(c, GPU_delta_in, err));
    SL_TRY(dev_gpu_kernel(c, GPU_delta, err));
    SL_TRY(dev_gpu_kernel(c, GPU_delta_keep, err));
    return dev_gpu_kernel(c, GPU_delta_out, err);
}

sl_status dev_gpu_delta_reserve(struct gpu *c, sl_err *err)
{
    int64_t n = c->most.max.n_tok + (int64_t)DEV_STATE_BACK * c->most.max.n_seq;
    if (!c->most.delta_row) return SL_OK;
    return dev_gpu_carve(c, 4 * n * c->most.delta_row, &c->delta_rows, NULL, err);
}

static struct state_k state_of(struct gpu *c, const struct dev_step *b, const struct dev_delta *p)
{
    const struct gpu_kv *kv = (const struct gpu_kv *)p->kv;
    const struct gpu_cache_group *g = &kv->group[p->group];
    uint64_t x = first_of(p);
    ASSERT(b->seat && kv->s.group[p->group].d_k >=
                          dev_delta_state(p->n_k, p->n_v, p->d_k, p->d_v, p->n_conv, p->each));
    return (struct state_k){
        .pieces = g->p.table,
        .step = step_of(c, b)->seqs,
        .x = x,
        .per = (uint32_t)g->p.per,
        .page = (uint32_t)g->page,
        .layers = (uint32_t)g->n_layer << 16 | (uint32_t)p->layer,
        .n_seq = (uint32_t)b->n_seq,
        .heads = (uint32_t)p->n_v << 16 | (uint32_t)p->n_k,
        .width = (uint32_t)p->d_v << 16 | (uint32_t)p->d_k,
        .form = bits_of(p->bound) | (uint32_t)c->has_drafts << 11 | (uint32_t)p->sigmoid << 10 |
                (uint32_t)p->each << 9 | (uint32_t)p->tiled << 8 | (uint32_t)p->n_conv,
        .ld = (uint32_t)p->q.ld,
        .key = (uint32_t)p->q.key,
        .v_key = (uint32_t)p->v.key,
        .v_val = (uint32_t)p->v.val,
        .ab_key = (uint32_t)p->b.key,
        .ab_val = (uint32_t)p->b.val,
        .q_at = words(&p->q, x),
        .k_at = words(&p->k, x),
        .v_at = words(&p->v, x),
        .a_at = words(&p->a, x),
        .b_at = words(&p->b, x),
    };
}

void dev_gpu_delta(dev *d, const struct dev_step *b, const struct dev_delta *p)
{
    struct gpu *c = dev_gpu_of(d);
    if (b->n_seq == 0) return;
    struct state_k s = state_of(c, b, p);
    int back = c->has_drafts ? DEV_STATE_BACK : 0;
    int n_slot = b->n_tok + back * b->n_seq, n_head = p->n_k + p->n_v;
    struct {
        struct state_k s;
        uint64_t conv, decay, dt, work;
    } in = {s, at(p->conv), at(p->decay), at(p->dt), c->delta_rows};
    struct {
        struct state_k s;
        uint64_t work, y;
    } rule = {s, c->delta_rows, at(p->y)};
    struct {
        struct state_k s;
        uint32_t pad[2];
    } keep = {s, {0}};
    struct {
        struct state_k s;
        uint64_t y, z, norm;
        float eps, pad;
    } out = {s, at(p->y), at(p->z.p), at(p->norm), p->eps, 0};
    LAUNCH(c, GPU_delta_in, GRID(BASE_MIN(n_slot, c->grid_max), n_head, 1), in);
    LAUNCH(c, GPU_delta, GRID(p->n_v, groups(p->d_v, COLUMNS), b->n_seq), rule);
    LAUNCH(c, GPU_delta_keep, GRID(n_head, b->n_seq, 1), keep);
    LAUNCH(c, GPU_delta_out, GRID(BASE_MIN(b->n_tok, c->grid_max), p->n_v, 1), out);
    dev_gpu_beside(c);
}

void dev_gpu_gate(dev *d, const struct dev_step *b, const struct dev_gate *p)
{
    struct gpu *c = dev_gpu_of(d);
    struct {
        uint64_t x, g;
        uint32_t n, n_head, ldg, ldg_h, n_tok, one;
    } k = {at(p->x),         at(p->g),           (uint32_t)p->n,     (uint32_t)p->n_head,
           (uint32_t)p->ldg, (uint32_t)p->ldg_h, (uint32_t)b->n_tok, p->one};
    LAUNCH(c, GPU_gate,
           GRID(BASE_MIN(b->n_tok, c->grid_max), groups((int64_t)p->n * p->n_head, 64), 1), k);
}
