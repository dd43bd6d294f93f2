/* SPDX-License-Identifier: Apache-2.0 */
/* --draft-vocab-from: the tokens that a text has most often. */
#include <stdlib.h>

#include "base/mem.h"
#include "compute.h"

struct counted {
    int32_t id, n;
};

/* The more frequent first, of equals the lower id. */
static int order(const void *a, const void *b)
{
    const struct counted *x = a, *y = b;
    if (x->n != y->n) return x->n > y->n ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static sl_status count(const char *path, const sl_model *m, struct counted *c, sl_err *err)
{
    char *text = NULL;
    uint64_t n = 0;
    int32_t *ids = NULL;
    int n_ids = 0;
    SL_TRY(compute_read_text(path, &text, &n, err));
    sl_status st = sl_tokenize(m, text, (size_t)n, 0, &ids, &n_ids, err);
    mem_free(text);
    if (st) {
        status_prefix(err, "--draft-vocab-from %.150s", path);
        return st;
    }
    for (int i = 0; i < n_ids; i++)
        c[ids[i]].n++;
    sl_free(ids);
    return SL_OK;
}

sl_status compute_draft_vocab(const struct opt_common *o, const sl_model *m, sl_engine_opts *eo,
                              void **mem, sl_err *err)
{
    sl_model_info mi;
    void *p = NULL;
    if (!o->draft_vocab_from) return SL_OK;
    if (!o->draft_vocab)
        return SL_FAIL(err, REQUEST, "--draft-vocab-from: goes with --draft-vocab");
    sl_model_info_get(m, &mi);
    if (o->draft_vocab > mi.n_vocab) return SL_OK; /* which is refused */
    SL_TRY(mem_alloc_array(MEM_MISC, (size_t)mi.n_vocab, sizeof(struct counted), &p, err));
    struct counted *c = p;
    for (int i = 0; i < mi.n_vocab; i++)
        c[i] = (struct counted){.id = i};
    sl_status st = count(o->draft_vocab_from, m, c, err);
    if (!st) st = mem_alloc_array(MEM_MISC, (size_t)o->draft_vocab, sizeof(int32_t), mem, err);
    if (!st) {
        qsort(c, (size_t)mi.n_vocab, sizeof *c, order);
        int32_t *id = *mem;
        for (int i = 0; i < o->draft_vocab; i++)
            id[i] = c[i].id;
        eo->draft_vocab_ids = id;
    }
    mem_free(p);
    return st;
}
