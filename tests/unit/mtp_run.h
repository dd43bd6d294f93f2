/* SPDX-License-Identifier: Apache-2.0 */
/* One sequence through the main model and its MTP layer, with f32 everywhere: for the unit test and
 * for mtp_dump. */
#ifndef TESTS_MTP_RUN_H
#define TESTS_MTP_RUN_H

#include <string.h>

#include "model/model.h"

#define MTP_BLK 16
#define MTP_MAX_TOK 64

struct mtp_text {
    const int32_t *ids; /* [n + 1] */
    int n;              /* 1 .. MTP_MAX_TOK */
    int chunk;          /* tokens a step */
    bool entries;       /* of a step's tokens all but the last one have a pass for entries alone */
    bool small;         /* model_opts.small_heads */
};

/* The layer's entries of the k tokens of pass b; then b is the last token alone. */
static sl_status mtp_entries(struct model *m, dev_kv *kv, struct dev_step *b, sl_err *fail)
{
    static const int32_t one[2] = {0, 1};
    struct dev_step s = *b;
    struct model_rows none;
    int last = b->n_tok - 1;
    s.pass = model_entries_pass(m, 0);
    s.n_row = 0;
    s.want = 0;
    SL_TRY(model_launch(m, kv, &s, fail));
    SL_TRY(model_wait(m, &none, fail));
    b->ids += last;
    b->pos += last;
    b->hidden_row = b->row_tok + last; /* which say their own number */
    b->seq_tok0 = one;
    b->n_tok = b->n_row = 1;
    return SL_OK;
}

/* out [n, V]: row i is what the layer makes of token i + 1 and hidden i; with entries the last one
 * of each step is, others are left. */
static sl_status mtp_steps(struct model *m, dev_kv *kv, const struct mtp_text *t, float *out,
                           sl_err *fail)
{
    const int32_t *ids = t->ids;
    int n = t->n, chunk = t->chunk;
    int32_t pos[MTP_MAX_TOK], all[MTP_MAX_TOK], blk[MTP_MAX_TOK / MTP_BLK];
    int n_vocab = model_config(m)->n_vocab;
    for (int i = 0; i < MTP_MAX_TOK / MTP_BLK; i++)
        blk[i] = MTP_MAX_TOK / MTP_BLK - 1 - i;
    for (int i = 0; i < MTP_MAX_TOK; i++)
        all[i] = i;
    for (int t0 = 0; t0 < n; t0 += chunk) {
        int k = t0 + chunk < n ? chunk : n - t0;
        int32_t seq_tok0[2] = {0, k}, n_prompt = n, seat = 0;
        for (int i = 0; i < k; i++)
            pos[i] = t0 + i;
        struct dev_step b = {.n_tok = k,
                             .n_seq = 1,
                             .ids = ids + t0,
                             .pos = pos,
                             .seq_tok0 = seq_tok0,
                             .blk = {blk, blk},
                             .ld_blk = MTP_MAX_TOK / MTP_BLK,
                             .n_prompt = &n_prompt,
                             .seat = &seat,
                             .row_tok = all};
        struct model_rows rows;
        SL_TRY(model_launch(m, kv, &b, fail));
        SL_TRY(model_wait(m, &rows, fail));
        b.ids = ids + t0 + 1;
        b.pass = 1;
        b.n_row = k;
        b.want = DEV_WANT_LOGITS;
        if (t0 % 2) b.hidden_row = all; /* the same rows */
        if (t->entries) SL_TRY(mtp_entries(m, kv, &b, fail));
        SL_TRY(model_launch(m, kv, &b, fail));
        SL_TRY(model_wait(m, &rows, fail));
        memcpy(out + (int64_t)(t0 + k - b.n_row) * n_vocab, rows.logits,
               sizeof(float) * (size_t)b.n_row * (size_t)n_vocab);
    }
    return SL_OK;
}

/* *out is from mem_alloc. */
static sl_status mtp_logits(const char *path, const struct mtp_text *t, float **out, int *n_vocab,
                            sl_err *fail)
{
    io_model *io = NULL;
    dev *d = NULL;
    model *m = NULL;
    dev_kv *kv = NULL;
    void *p = NULL;
    sl_status st = SL_OK;
    struct model_opts o = {.n_tok_max = MTP_MAX_TOK,
                           .n_seq_max = 1,
                           .n_ctx = MTP_MAX_TOK,
                           .blk_tok = MTP_BLK,
                           .n_logit_max = MTP_MAX_TOK,
                           .small_heads = t->small,
                           .kv = DEV_KV_F32};
    SL_TRY_OUT(io_open(path, false, &io, fail));
    SL_TRY_OUT(dev_open(NULL, &(struct dev_opts){.n_thread = 2, .acts = DEV_ACTS_F32}, &d, fail));
    SL_TRY_OUT(model_open(io, d, &o, &m, fail));
    if (model_n_mtp(m) != 1) {
        st = SL_FAIL(fail, UNSUPPORTED, "%s: no MTP layer", path);
        goto out;
    }
    *n_vocab = model_config(m)->n_vocab;
    for (int i = 0; i <= t->n && !st; i++)
        if (t->ids[i] < 0 || t->ids[i] >= *n_vocab)
            st = SL_FAIL(fail, REQUEST, "token %d is not in the vocabulary", (int)t->ids[i]);
    if (st) goto out;
    struct dev_kv_shape shape =
        model_kv_shape(model_config(m), NULL, DEV_KV_F32, MTP_MAX_TOK / MTP_BLK, MTP_BLK);
    SL_TRY_OUT(dev_kv_open(d, &shape, &kv, fail));
    SL_TRY_OUT(mem_alloc_array(MEM_MISC, (size_t)t->n * (size_t)*n_vocab, sizeof(float), &p, fail));
    *out = p;
    st = mtp_steps(m, kv, t, *out, fail);
out:
    model_close(m);
    dev_close(d);
    io_close(io);
    return st;
}

#endif
