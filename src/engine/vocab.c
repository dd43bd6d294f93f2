/* SPDX-License-Identifier: Apache-2.0 */
/* The ids among which the MTP layer guesses, where they are not the first ones of the vocabulary.
 * The rows of its head for them lie in order of ids in a matrix of their own, so that of equal
 * logits the lowest id is the guess as ever. */
#include "engine/engine_internal.h"
#include "io/pack.h"

/* Mark ids; how many were not marked before. */
static int mark(bool *in, const int32_t *id, int n)
{
    int n_new = 0;
    for (int i = 0; i < n; i++) {
        n_new += !in[id[i]];
        in[id[i]] = true;
    }
    return n_new;
}

/* The marked ones and the first of the others, whole tiles of 16; all of the vocabulary: none. */
static sl_status list(sl_engine *e, bool *in, int n_in, sl_err *err)
{
    int V = e->m->cfg.n_vocab, n = (n_in + 15) / 16 * 16, at = 0;
    if (n >= V) return SL_OK;
    SL_TRY(engine_array((size_t)n, sizeof *e->mtp.ids, &e->mtp.ids, err));
    for (int32_t id = 0; n_in < n; id++)
        n_in += mark(in, &id, 1);
    for (int32_t id = 0; id < V; id++)
        if (in[id]) e->mtp.ids[at++] = id;
    ASSERT(at == n);
    e->opts.draft_vocab = n;
    return SL_OK;
}

sl_status engine_vocab_open(sl_engine *e, sl_err *err)
{
    const sl_engine_opts *o = &e->opts;
    int V = e->m->cfg.n_vocab, n = o->draft_vocab;
    bool *in = NULL;
    if (!o->draft_vocab_ids) return SL_OK;
    if (!n) return SL_FAIL(err, REQUEST, "draft_vocab_ids: how many? draft_vocab is 0");
    if (io_model_pack(e->m->io))
        return SL_FAIL(err, UNSUPPORTED,
                       "draft_vocab_ids: %.100s is a packed file: take its source", e->m->name);
    if (o->on_record) return SL_FAIL(err, UNSUPPORTED, "draft_vocab_ids: not with on_record");
    for (int i = 0; i < n; i++)
        if (o->draft_vocab_ids[i] < 0 || o->draft_vocab_ids[i] >= V)
            return SL_FAIL(err, REQUEST, "draft_vocab_ids[%d]: %d: the vocabulary has %d tokens", i,
                           (int)o->draft_vocab_ids[i], V);
    SL_TRY(engine_array((size_t)V, sizeof *in, &in, err));
    int n_in = mark(in, o->draft_vocab_ids, n);
    n_in += mark(in, e->m->eog, e->m->n_eog); /* answers end, too */
    e->opts.draft_vocab = V; /* where the list is all of it */
    sl_status st = list(e, in, n_in, err);
    mem_free(in);
    e->opts.draft_vocab_ids = e->mtp.ids;
    return st;
}
