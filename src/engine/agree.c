/* SPDX-License-Identifier: Apache-2.0 */
/* What processes that share a model must have in common, and the sizes that they agree upon. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "engine/ranks.h"

/* What must be the same on all ranks, each with what it is called. */
struct fact {
    const char *what;
    uint64_t v;
};
#define N_FACT 23

static uint64_t text_hash(const char *s)
{
    return s ? hash_bytes(s, strlen(s), 0) : 0;
}

static uint64_t slots_hash(const struct engine_ranks *k)
{
    size_t n = (size_t)k->n_slot * (size_t)k->n_layer;
    return n ? hash_bytes(k->slot_expert, n * sizeof *k->slot_expert, 0) : 0;
}

static void facts_of(const sl_engine *e, struct fact f[N_FACT])
{
    struct dev_info di;
    const sl_engine_opts *o = &e->opts;
    dev_info_get(e->d, &di);
    const struct model_stages *s = &e->ranks->stages;
    size_t n_ids = (size_t)o->draft_vocab * sizeof *e->mtp.ids;
    const struct fact own[] = {
        {"sluice is another version", text_hash(sl_version())},
        {"the model is another one", e->record_model},
        {"its model's files hold other bytes: copy them again", e->files_hash},
        {"--layout differs", text_hash(o->layout)},
        {"--device differs", hash_bytes(di.name, strcspn(di.name, ":"), 0)},
        {"--place differs", text_hash(e->ranks->place)},
        {"the CPU's instruction set differs, and with it attention's form (SL_CPU limits it)",
         dev_is_card(di.name) ? 2u * di.attn_i16 + di.attn_bf16 : text_hash(di.isa)},
        {"--acts differs", (uint64_t)di.acts},
        {"--kv differs", (uint64_t)o->kv},
        {"--exact differs", (uint64_t)o->exact},
        {"--no-matrix-units differs", (uint64_t)o->no_matrix_units},
        {"--draft differs", (uint64_t)e->mtp.on},
        {"its layers are cut elsewhere", hash_bytes(s->first, sizeof s->first, 0)},
        {"--expert-stats holds other counts, or --redundant differs", slots_hash(e->ranks)},
        {"--draft-vocab differs", (uint64_t)o->draft_vocab},
        {"--draft-vocab-from differs", e->mtp.ids ? hash_bytes(e->mtp.ids, n_ids, 0) : 0},
        {"--spare differs", (uint64_t)o->n_spare},
        {"--place-from differs", e->ranks->from_peer},
        {"--combine differs", (uint64_t)e->combine},
        {"--dispatch differs", (uint64_t)engine_ranks_swap(e)},
        {"--stream-from differs", (uint64_t)o->stream_from},
        {"--hot-experts differs", (uint64_t)o->n_hot},
        {"--micro differs", (uint64_t)BASE_MAX(o->micro, 1)},
    };
    _Static_assert(BASE_COUNT_OF(own) == N_FACT, "a fact without its place");
    memcpy(f, own, sizeof own);
}

static sl_status compare_facts(sl_engine *e, sl_err *err)
{
    struct engine_ranks *k = e->ranks;
    struct fact f[N_FACT];
    uint64_t mine[N_FACT], all[DIST_RANK_MAX][N_FACT];
    facts_of(e, f);
    for (int i = 0; i < N_FACT; i++)
        mine[i] = f[i].v;
    SL_TRY(dist_all(k->end, mine, all, sizeof mine, err));
    for (int r = 1; r < k->n; r++)
        for (int i = 0; i < N_FACT; i++)
            if (all[r][i] != all[0][i])
                return SL_FAIL(err, REQUEST, "layout: rank %d is not as rank 0: %s", r, f[i].what);
    return SL_OK;
}

sl_status engine_ranks_agree(sl_engine *e, int64_t *kv_tokens, sl_err *err)
{
    struct engine_ranks *k = e->ranks;
    if (!k || !k->apart) return SL_OK;
    SL_TRY(compare_facts(e, err));
    int64_t mine[4] = {e->n_ctx, *kv_tokens, e->keep_bytes, e->n_chunk}, all[DIST_RANK_MAX][4];
    SL_TRY(dist_all(k->end, mine, all, sizeof mine, err));
    for (int r = 0; r < k->n; r++)
        for (int i = 0; i < BASE_COUNT_OF(mine); i++)
            mine[i] = BASE_MIN(mine[i], all[r][i]);
    e->n_ctx = (int)mine[0];
    *kv_tokens = mine[1];
    e->keep_bytes = mine[2];
    e->n_chunk = (int)mine[3]; /* as streamed prompts have halved it */
    return SL_OK;
}
