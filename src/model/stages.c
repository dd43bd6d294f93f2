/* SPDX-License-Identifier: Apache-2.0 */
/* Which layers each of several stages has. */
#include <string.h>

#include "model/model_internal.h"

/* Bytes of each layer's weights, and of what the last stage has beside its layers. */
static int64_t weigh(const struct arch_cfg *c, const io_model *io, bool mtp, int64_t *layer)
{
    int64_t last = 0;
    for (int i = 0; i < io_n_tensor(io); i++) {
        const struct tensor *t = io_tensor(io, i);
        int il = -1;
        enum model_part part = model_part_of_name(c, t->name, &il);
        if (il >= 0 && il < c->n_layer)
            layer[il] += (int64_t)t->n_bytes;
        else if (il >= c->n_layer ? mtp : part == (c->tied_head ? MODEL_EMBED : MODEL_HEAD))
            last += (int64_t)t->n_bytes;
    }
    return last;
}

static bool begins(const struct arch_cfg *c, int il)
{
    return c->layer[il].index != ARCH_INDEX_SHARED;
}

/* A stage that would begin with a layer that sees what the indexer of one before it chooses begins
 * with the nearest layer before it that does not, else after it. */
static void move_begins(const struct arch_cfg *c, int n, int32_t *first)
{
    for (int k = 1; k < n; k++) {
        int least = first[k - 1] + 1, most = c->n_layer - (n - k), il = BASE_MAX(first[k], least);
        while (il > least && !begins(c, il))
            il--;
        if (!begins(c, il)) il = BASE_MAX(first[k], least);
        while (il < most && !begins(c, il))
            il++;
        first[k] = il;
    }
}

sl_status model_stages_of(const struct arch_cfg *c, const io_model *io, bool mtp,
                          struct model_stages *s, sl_err *err)
{
    void *p = NULL;
    if (s->n > c->n_layer)
        return SL_FAIL(err, REQUEST,
                       "layout: pp=%d: the model has %d layers: as many stages at most", s->n,
                       c->n_layer);
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)c->n_layer, sizeof(int64_t), &p, err));
    int64_t *layer = p, last = weigh(c, io, mtp, layer);
    arch_cut_layers(layer, c->n_layer, last, s->n, s->first);
    move_begins(c, s->n, s->first);
    mem_free(p);
    return SL_OK;
}

struct model_dims model_stage_dims(const struct arch_cfg *c, const struct model_stages *s, int rank,
                                   int n_rank)
{
    if (!s) return model_dims_of(c, &(struct dist_among){.rank = rank, .n = n_rank});
    int n_dp = BASE_MAX(s->n_dp, 1), n = n_rank / s->n / n_dp; /* that share a stage's matrices */
    int dp = rank / n % n_dp;
    struct dist_among a = {rank % n, n, s->weight[0] ? s->weight + dp * n : NULL};
    struct model_dims d = model_dims_of(c, &a);
    memcpy(d.weight, s->weight, sizeof d.weight);
    d.n_etp = BASE_MAX(s->n_etp, 1);
    for (int i = 0; s->weight[0] && i < n * n_dp; i++) {
        d.group_weight[i / d.n_etp] = (uint16_t)(d.group_weight[i / d.n_etp] + s->weight[i]);
        d.place_weight[i % d.n_etp] = (uint16_t)(d.place_weight[i % d.n_etp] + s->weight[i]);
    }
    d.n_dp = n_dp;
    d.dp = dp;
    d.stage = s->n - 1 - rank / n / n_dp;
    d.n_stage = s->n;
    d.layer0 = s->first[d.stage];
    d.n_layer = s->first[d.stage + 1] - d.layer0;
    return d;
}
