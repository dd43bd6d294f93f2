/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks hold, and what they did. */
#include "engine/ranks.h"

static int64_t sum(const int64_t *v, int n)
{
    int64_t s = 0;
    for (int i = 0; i < n; i++)
        s += v[i];
    return s;
}

int64_t engine_ranks_weight_bytes(const sl_engine *e)
{
    return e->ranks ? sum(e->ranks->weight_bytes, e->ranks->n) : model_weight_bytes(e->net);
}

int64_t engine_ranks_bytes_per_token(const sl_engine *e)
{
    return e->ranks ? sum(e->ranks->bytes_per_token, e->ranks->n) : model_bytes_per_token(e->net);
}

int sl_ranks(const sl_engine *e, sl_rank_stat *out, int n)
{
    const struct engine_ranks *k = e->ranks;
    if (!k) return 1;
    for (int i = 0; i < n && i < k->n; i++) {
        struct dist_count c = dist_counts(k->end, i);
        struct model_dims d = engine_rank_dims(e, i);
        out[i] = (sl_rank_stat){
            .weight_bytes = k->weight_bytes[i],
            .n_join = c.n_join,
            .join_bytes = c.bytes,
            .stage = d.stage,
            .n_slot = model_slots_of(&d, k->n_slot),
            .wait_ms = (double)BASE_MAX(k->step_ns - c.busy_ns, 0) * 1e-6,
            .step_ms = (double)k->step_ns * 1e-6,
        };
        out[i].net_bytes = c.net;
        out[i].near_pages = c.note ? (double)(c.note - 1) * 1e-6 : -1;
        engine_home_stat(e, i, &out[i]);
    }
    if (n > 0) {
        out[0].link_us = k->link.us;
        out[0].link_gbps = k->link.gbps;
    }
    return k->n;
}
