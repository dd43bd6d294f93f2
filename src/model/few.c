/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts leave early. Of most of a prompt's tokens nobody wants logits: all that the last layer
 * has to do for them is to store their keys and values. So a step with many such tokens runs a
 * program that ends there, and then the last layer and the head with the few rows that are left:
 * those that are wanted, and the last of every sequence, which says whether all is finite. Their
 * keys and values are stored twice, the same bits.
 *
 * On the CPU, where a layer is one process's. Models whose file has MTP layers keep all rows, which
 * drafts need of prompts, and without drafts too: then both take the same time for a prompt. */
#include <string.h>

#include "dev/halves.h"
#include "model/emit.h"

#define LEAST 32 /* tokens of a step: with fewer, reading the last layer twice takes longer */

static bool can(const struct model *m)
{
    const struct model_dims *d = &m->dims;
    bool alone = d->n_rank == 1 && !model_is_own(m) && m->place.n_dev == 1;
    if (!alone || !model_is_last(d) || m->has_mtp || m->opts.n_late || m->opts.first_pass)
        return false;
    if (m->cfg.layer[m->cfg.n_layer - 1].index == ARCH_INDEX_SHARED) return false; /* of all rows */
    return dev_has_halves(m->d) && !model_has_state(&m->cfg, m->cfg.n_layer - 1);
}

sl_status model_few_open(struct model *m, sl_err *err)
{
    struct model_few *f = &m->few;
    size_t T = (size_t)m->opts.n_tok_max, S = (size_t)m->opts.n_seq_max;
    void *p = NULL;
    if (!can(m)) return SL_OK;
    SL_TRY(mem_arena_array(&m->arena, 4 * T + S + 1, sizeof(int32_t), &p, err));
    f->tok = p;
    f->pos = f->tok + T;
    f->row_tok = f->pos + T;
    f->ids = f->row_tok + T;
    f->seq_tok0 = f->ids + T;
    return SL_OK;
}

void model_few_emit(struct emit *e)
{
    const struct model *m = e->m;
    const struct model_dims *d = &m->dims;
    int last = d->layer0 + d->n_layer - 1;
    model_begin_emit(e, d->n_layer - 1);
    e->entries = true;
    model_layer_emit(e, &m->layer[last], last, d->n_layer == 1);
    e->entries = false;
    e->n_body = e->n;
    model_layer_emit(e, &m->layer[last], last, true);
    model_head_emit(e, &(struct heads){&m->stream_head, m->norm, m->head, MODEL_CUT_VOCAB});
}

sl_status model_few_progs(struct model *m, sl_err *err)
{
    struct model_few *f = &m->few;
    void *p = NULL;
    if (!f->tok) return SL_OK;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)model_op_max(m), sizeof(struct dev_op), &p, err));
    struct emit e = {.op = p, .n_max = model_op_max(m)};
    model_emit_begin(&e, m);
    model_few_emit(&e);
    sl_status st = dev_prog_open(m->d, e.op, e.n_body, &f->body, err);
    if (!st) st = dev_prog_open(m->d, e.op + e.n_body, e.n - e.n_body, &f->tail, err);
    mem_free(p);
    return st;
}

void model_few_close(struct model *m)
{
    dev_prog_close(m->few.body);
    dev_prog_close(m->few.tail);
}

bool model_few_choose(const struct dev_step *s, struct model_few *f)
{
    struct dev_step *to = &f->step;
    bool none = !s->n_row && !s->want;
    int n = 0, row = 0;
    if (s->n_tok < LEAST || s->want & DEV_WANT_HIDDEN) return false;
    *to = *s;
    to->pos = f->pos;
    to->row_tok = f->row_tok;
    to->seq_tok0 = f->seq_tok0;
    for (int i = 0; i < s->n_seq && !none; i++) {
        int end = s->seq_tok0[i + 1];
        f->seq_tok0[i] = n;
        if (2 * (n + s->n_row - row) > s->n_tok) return false;
        for (; row < s->n_row && s->row_tok[row] < end; f->row_tok[row++] = n++)
            f->tok[n] = s->row_tok[row];
        if (n == f->seq_tok0[i] || f->tok[n - 1] != end - 1) f->tok[n++] = end - 1;
    }
    f->seq_tok0[s->n_seq] = n;
    for (int i = 0; i < n; i++) {
        f->pos[i] = s->pos[f->tok[i]];
        if (s->ids) f->ids[i] = s->ids[f->tok[i]];
    }
    to->n_tok = n;
    to->ids = s->ids ? f->ids : NULL; /* it begins after the embedding, but routers may look */
    to->n_copy = 0;
    return 2 * n <= s->n_tok;
}

sl_status model_few_run(struct model *m, dev_kv *kv, const struct dev_step *s, bool *done,
                        sl_err *err)
{
    struct model_few *f = &m->few;
    float *x = model_side(m, MODEL_ATTN)->x;
    size_t D = (size_t)model_x_cols(&m->cfg);
    *done = f->tail && !s->pass && !m->tap_fn && model_few_choose(s, f);
    if (!*done) return SL_OK;
    SL_TRY(dev_prog_run(f->body, kv, s, err));
    if (!f->step.n_tok) return SL_OK; /* a piece of a step: nothing of it is read */
    m->step = &f->step;
    for (size_t i = 0; i < (size_t)f->step.n_tok; i++)
        memmove(x + i * D, x + (size_t)f->tok[i] * D, D * sizeof *x);
    dev_prog_more(f->tail, kv, &f->step);
    return SL_OK;
}
