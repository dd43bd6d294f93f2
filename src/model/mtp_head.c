/* SPDX-License-Identifier: Apache-2.0 */
/* Heads of MTP layers. Their logits choose among drafts and nothing else, so a copy may have fewer
 * rows than the model's head, and 4 bits a weight where that has 8 and more: it is most of what a
 * pass of such a layer reads, and a draft that is wrong more often costs less than it saves. */
#include <string.h>

#include "model/load.h"

/* Rows of a matrix, copied. */
struct copy {
    const struct weight *all;
    const int32_t *id; /* NULL = the first */
    int64_t n;
    enum tensor_dtype type; /* of the copy */
    uint64_t row_bytes;
    uint8_t *to;
    float *line; /* [n_worker, cols] */
};

/* The bytes of a row lie together, and are all that there is of it. */
static bool lies_by_row(const struct weight *w)
{
    return w->scheme == TENSOR_SCHEME_PLAIN && weight_by_row(w) && !w->n_part;
}

static bool is_as_is(const struct copy *c)
{
    return c->type == c->all->type && lies_by_row(c->all);
}

static void copy_run(void *arg, int worker, int n_worker)
{
    const struct copy *c = arg;
    float *line = c->line + worker * c->all->cols;
    bool as_is = is_as_is(c);
    for (int64_t i = c->n * worker / n_worker; i < c->n * (worker + 1) / n_worker; i++) {
        int64_t from = c->id ? c->id[i] : i;
        uint8_t *to = c->to + (uint64_t)i * c->row_bytes;
        if (as_is) {
            memcpy(to, c->all->data + (uint64_t)from * c->all->row_bytes, (size_t)c->row_bytes);
            continue;
        }
        weight_dequant(c->all, from, 0, c->all->cols, line);
        tensor_quant(c->type, line, c->all->cols, to);
    }
}

/* In which type n of its rows are kept where they are not used as they lie. */
static enum tensor_dtype type_of(const struct weight *w, bool small)
{
    return small ? TENSOR_Q4_0 : lies_by_row(w) ? w->type : TENSOR_BF16;
}

/* Into *out, whose data are *owned. */
static sl_status copy_rows(struct model *m, struct copy *c, void **owned, struct weight *out,
                           sl_err *err)
{
    const struct weight *all = c->all;
    struct dev_info info;
    void *line = NULL;
    dev_info_get(m->d, &info);
    if (!tensor_bytes(c->type, (uint64_t)all->cols, &c->row_bytes))
        return SL_FAIL(err, FORMAT, "%s: rows of %lld", all->name, (long long)all->cols);
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)(all->cols * BASE_MAX(info.n_thread, 1)),
                           sizeof(float), &line, err));
    sl_status st = mem_alloc_array(MEM_SCRATCH, (size_t)c->n, (size_t)c->row_bytes, owned, err);
    c->to = *owned;
    c->line = line;
    if (!st) dev_host_run(m->d, copy_run, c);
    mem_free(line);
    *out = (struct weight){.name = all->name,
                           .type = c->type,
                           .rows = c->n,
                           .cols = all->cols,
                           .data = *owned,
                           .row_bytes = c->row_bytes,
                           .tensor_scale = is_as_is(c) ? all->tensor_scale : 1.0f};
    return st;
}

/* w: all of it. */
static sl_status load_copy(struct model *m, struct want *w, const struct weight *all, bool small,
                           dev_mat **out, sl_err *err)
{
    struct weight rows;
    void *owned = NULL;
    struct copy c = {.all = all,
                     .id = m->n_draft_vocab ? m->opts.draft_ids : NULL,
                     .n = m->n_draft_vocab ? m->n_draft_vocab : all->rows,
                     .type = type_of(all, small)};
    sl_status st = copy_rows(m, &c, &owned, &rows, err);
    w->rows = c.n;
    w->first = m->n_draft_vocab;
    if (small) w->use = DEV_USE_PLAIN; /* which is as coarse */
    if (!st) st = model_load_part(m, w, &rows, NULL, out, err);
    mem_free(owned);
    return st;
}

/* An earlier layer's, where that is the model's too. */
static dev_mat *shared(const struct model *m, int i)
{
    for (int j = 0; j < i; j++)
        if (!m->mtp[j].has_head) return m->mtp[j].head;
    return NULL;
}

static bool is_wide(uint64_t n_bytes, int64_t rows, int64_t cols)
{
    return cols % 32 == 0 && n_bytes >= (uint64_t)rows * (uint64_t)cols;
}

sl_status model_load_mtp_head(struct model *m, int i, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    struct mtp *t = &m->mtp[i];
    enum arch_global same = c->tied_head ? GLOBAL_EMBED : GLOBAL_HEAD;
    struct want w =
        model_want(m, c->n_layer + i, ROLE_MTP_HEAD, c->n_vocab, c->d_model, DEV_USE_MATMUL);
    t->has_head = model_load_differs(m, w.name, arch_global_name(&m->cfg.naming, same));
    if (!t->has_head && shared(m, i)) {
        t->head = shared(m, i);
        return SL_OK;
    }
    if (!t->has_head) w = model_want_global(m, same, ROLE_MTP_HEAD, w.use);
    t->head = m->head;
    bool small = false;
    struct weight all;
    if (!m->opts.pack) {
        SL_TRY(model_load_weight(m, w.name, &w, &all, err));
        small = m->opts.small_heads && is_wide(weight_bytes(&all), all.rows, all.cols);
    }
    if (!t->has_head && !m->n_draft_vocab && !small) return SL_OK;
    if (small || (m->opts.draft_ids && m->n_draft_vocab))
        return load_copy(m, &w, &all, small, &t->head, err);
    w.first = m->n_draft_vocab;
    return model_load_matrix(m, &w, &t->head, err);
}

int64_t model_small_head_bytes(const struct arch_cfg *c, const io_model *io)
{
    const struct tensor *t =
        io_find(io, arch_global_name(&c->naming, c->tied_head ? GLOBAL_EMBED : GLOBAL_HEAD));
    if (!t || !is_wide(t->n_bytes, c->n_vocab, c->d_model)) return 0;
    return (int64_t)c->n_vocab * c->d_model / 32 * 18;
}
