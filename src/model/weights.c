/* SPDX-License-Identifier: Apache-2.0 */
/* From named tensors to matrices and vectors of the device: shapes are checked by name before
 * anything is packed, and this rank's rows are taken. */
#include <math.h>
#include <string.h>

#include "model/load.h"

struct want model_want(const struct model *m, int il, enum arch_role role, int64_t rows,
                       int64_t cols, enum dev_use use)
{
    struct want w = {.role = role, .layer = il, .n = 1, .rows = rows, .cols = cols, .use = use};
    arch_tensor_name(&m->cfg.naming, role, il, "weight", w.name, sizeof w.name);
    return w;
}

/* ---- weights of the source ---- */

static sl_status want_shape(const struct weight *w, int64_t rows, int64_t cols, sl_err *err)
{
    if (w->rows == rows && w->cols == cols) return SL_OK;
    return SL_FAIL(err, FORMAT, "%s: shape [%lld, %lld], expected [%lld, %lld]", w->name,
                   (long long)w->rows, (long long)w->cols, (long long)rows, (long long)cols);
}

sl_status model_load_weight(const struct model *m, const char *name, const struct want *s,
                            struct weight *w, sl_err *err)
{
    SL_TRY(io_weight(m->io, name, w, err));
    sl_status st = weight_check(w, err); /* scales are numbers */
    if (st) {
        status_prefix(err, "%s", io_path(m->io));
        return st;
    }
    SL_TRY(model_load_unbiased(m, name, s->role, w, err));
    return want_shape(w, s->rows, s->cols, err);
}

/* ---- this rank's part ---- */

/* Of the matrices of a stack those from i0 on, and of each the rows from row0 on. */
struct part {
    int i0, n;
    int64_t row0, n_row;
    const int32_t *pick; /* NULL, or [n]: those of the stack, experts, i0 is 0 */
};

static struct part part_of(const struct model *m, const struct want *w)
{
    bool by_head = w->role == ROLE_K_B || w->role == ROLE_V_B; /* a matrix a head */
    struct model_slice s =
        w->first ? model_slice_of_first(&m->dims, w->first)
                 : model_slice_of(&m->cfg, &m->dims, w->role, by_head ? w->n * w->rows : w->rows);
    if (by_head)
        return (struct part){(int)(s.row0 / w->rows), (int)(s.n_row / w->rows), 0, w->rows, NULL};
    if (model_part_of(w->role) == MODEL_EXPERTS && m->slots) {
        struct part p = {0, 0, s.row0, s.n_row, NULL};
        p.pick = model_slots_here(m, w->layer, &p.n);
        return p;
    }
    return (struct part){0, w->n, s.row0, s.n_row, NULL};
}

static bool is_none(const struct part *p)
{
    return p->n == 0 || p->n_row == 0;
}

/* ---- the device ---- */

static struct side *side_of(const struct model *m, enum arch_role role)
{
    return model_side_in(m, m->load_layer, model_part_of(role));
}

void model_load_count(struct model *m, enum arch_role role, int64_t n)
{
    side_of(m, role)->weight_bytes += n;
    m->weight_bytes += n;
}

/* ---- into the device, into a packed file, or out of one ---- */

static bool tell(const struct model *m, int64_t done)
{
    return m->opts.progress && m->opts.progress(m->opts.user, m->doing, done, m->total_bytes);
}

bool model_load_tell(struct model *m, int64_t n)
{
    m->done_bytes += n;
    return tell(m, BASE_MIN(m->done_bytes, m->total_bytes)); /* some are there twice */
}

bool model_load_told(struct model *m)
{
    return tell(m, m->total_bytes);
}

/* A source weight was packed: its pages go, progress is told. */
static void dropped(void *user, const struct weight *w)
{
    struct model *m = user;
    io_reading_done(&m->reading, w);
    if (model_load_tell(m, (int64_t)weight_bytes(w))) m->cancelled = true;
}

static sl_status out_begin(void *user, const struct dev_image *im, sl_err *err)
{
    struct model *m = user;
    if (im->is_rounded) m->rounded = true;
    struct io_pack_mat p = {.name = m->out_name,
                            .fmt = {im->fmt[0], im->fmt[1]},
                            .n = im->n,
                            .is_pair = im->is_pair,
                            .rows = im->rows,
                            .cols = im->cols,
                            .unit_bytes = {im->unit_bytes[0], im->unit_bytes[1]},
                            .n_unit = (uint64_t)im->n * (((uint64_t)im->rows + 15) / 16),
                            .scale = im->scale};
    return io_pack_out_mat(m->out, &p, err);
}

static void out_bytes(void *user, int worker, uint64_t at, const void *p, uint64_t n)
{
    struct model *m = user;
    io_pack_out_bytes(m->out, worker, at, p, n);
}

sl_status model_load_pack(struct model *m, const struct want *w, const struct weight *a,
                          const struct weight *b, dev_mat **out, sl_err *err)
{
    struct dev_image_sink sink = {out_begin, out_bytes, m};
    const struct dev_weights of = {a, b, w->n, w->use, dropped, m};
    m->out_name = w->name;
    if (m->out) {
        SL_TRY(dev_mat_pack(m->d, &of, &sink, err));
        SL_TRY(io_pack_out_failed(m->out, err));
    } else {
        dev *d = side_of(m, w->role)->d;
        io_reading_next(&m->reading, a, b, w->n);
        SL_TRY(dev_mat_load(d, &of, out, err));
        model_load_count(m, w->role, dev_mat_bytes(*out));
    }
    return m->cancelled ? SL_FAIL(err, CANCELLED, "cancelled while packing %s", a->name) : SL_OK;
}

/* Of the stacks of[0], and with pairs of[1], the matrices and rows that p says. */
static sl_status load_picked(struct model *m, const struct want *w, const struct part *p,
                             const struct weight *const of[2], dev_mat **out, sl_err *err)
{
    void *mem = NULL;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, 2 * (size_t)p->n, sizeof(struct weight), &mem, err));
    struct weight *to[2] = {mem, (struct weight *)mem + p->n};
    for (int half = 0; half < 2 && of[half]; half++)
        for (int i = 0; i < p->n; i++)
            to[half][i] = weight_slice(&of[half][p->pick[i]], p->row0, p->n_row);
    struct dev_some s = {.of = {to[0], of[1] ? to[1] : NULL, p->n, w->use, dropped, m},
                         .all_first = of[0],
                         .all_second = of[1],
                         .n_all = w->n};
    io_reading_next(&m->reading, s.of.first, s.of.second, p->n);
    sl_status st = dev_mat_load_some(side_of(m, w->role)->d, &s, out, err);
    io_reading_next(&m->reading, NULL, NULL, 0);
    mem_free(mem);
    SL_TRY(st);
    model_load_count(m, w->role, dev_mat_bytes(*out));
    return m->cancelled ? SL_FAIL(err, CANCELLED, "cancelled while packing %s", w->name) : SL_OK;
}

sl_status model_load_part(struct model *m, const struct want *w, struct weight *a, struct weight *b,
                          dev_mat **out, sl_err *err)
{
    struct part p = part_of(m, w);
    if (is_none(&p)) return SL_OK;
    if (p.pick) {
        SL_TRY(load_picked(m, w, &p, (const struct weight *const[]){a, b}, out, err));
        return model_load_end(m, w, *out, err);
    }
    for (int i = 0; i < p.n; i++) {
        a[i] = weight_slice(&a[p.i0 + i], p.row0, p.n_row);
        if (b) b[i] = weight_slice(&b[p.i0 + i], p.row0, p.n_row);
    }
    struct want ours = *w;
    ours.n = p.n;
    SL_TRY(model_load_pack(m, &ours, a, b, out, err));
    return model_load_end(m, w, *out, err);
}

static sl_status check_packed(const struct want *w, const char *path, const struct io_pack_mat *p,
                              sl_err *err)
{
    if (!p) return SL_FAIL(err, FORMAT, "%.100s: matrix %.80s is missing", path, w->name);
    if (p->n == w->n && p->is_pair == w->pair && p->rows == w->rows && p->cols == w->cols)
        return SL_OK;
    return SL_FAIL(
        err, FORMAT, "%.60s: matrix %.60s: %d x [%lld, %lld]%s, expected %d x [%lld, %lld]%s", path,
        w->name, p->n, (long long)p->rows, (long long)p->cols, p->is_pair ? " in pairs" : "", w->n,
        (long long)w->rows, (long long)w->cols, w->pair ? " in pairs" : "");
}

sl_status model_load_map(struct model *m, const struct want *w, dev_mat **out, sl_err *err)
{
    const char *path = io_pack_path(m->opts.pack);
    const struct io_pack_mat *p = io_pack_find(m->opts.pack, w->name);
    struct io_pack_rows rows;
    SL_TRY(check_packed(w, path, p, err));
    struct part part = part_of(m, w);
    if (is_none(&part)) return SL_OK;
    SL_TRY(io_pack_rows(p, part.i0, part.row0, part.n_row, &rows, err));
    uint64_t n_tile = p->n_unit / (uint64_t)p->n;
    struct dev_image im = {.fmt = {p->fmt[0], p->fmt[1]},
                           .n = part.n,
                           .is_pair = w->pair,
                           .rows = part.n_row,
                           .cols = w->cols,
                           .unit_bytes = {p->unit_bytes[0], p->unit_bytes[1]},
                           .scale = rows.scale,
                           .data = {rows.data[0], rows.data[1]},
                           .pick = part.pick,
                           .step = {n_tile * p->unit_bytes[0], n_tile * p->unit_bytes[1]}};
    sl_status st = dev_mat_map(side_of(m, w->role)->d, w->name, &im, w->use, out, err);
    if (st) {
        status_prefix(err, "%.100s", path);
        return st;
    }
    model_load_count(m, w->role, dev_mat_bytes(*out));
    if (model_load_tell(m, dev_mat_bytes(*out)))
        return SL_FAIL(err, CANCELLED, "cancelled while mapping %s", path);
    return model_load_end(m, w, *out, err);
}

sl_status model_load_matrix(struct model *m, const struct want *w, dev_mat **out, sl_err *err)
{
    struct weight a;
    if (m->opts.pack) return model_load_map(m, w, out, err);
    SL_TRY(model_load_weight(m, w->name, w, &a, err));
    return model_load_part(m, w, &a, NULL, out, err);
}

/* ---- vectors ---- */

static sl_status read_vector(const struct tensor *t, const char *name, int64_t n, float *p,
                             sl_err *err)
{
    if (!tensor_dtype_is_weight(t->type) || t->n_dim != 1 || t->shape[0] != n ||
        n % tensor_dtype(t->type)->block)
        return SL_FAIL(
            err, FORMAT, "%s: %lld values in %d dimensions of type %s, expected a vector of %lld",
            name, (long long)tensor_count(t), t->n_dim, tensor_dtype(t->type)->text, (long long)n);
    for (int64_t i = 0, step = (int64_t)t->col_bytes; step && i < n; i++)
        tensor_dequant(t->type, (const uint8_t *)t->data + i * step, 1, p + i);
    if (!t->col_bytes) tensor_dequant(t->type, t->data, n, p);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(p[i]))
            return SL_FAIL(err, FORMAT, "%s[%lld] is not finite", name, (long long)i);
    return SL_OK;
}

sl_status model_load_read(const io_model *io, const char *name, int64_t n, float *p, sl_err *err)
{
    const struct tensor *t = io_find(io, name);
    return t ? read_vector(t, name, n, p, err) : io_missing(io, name, err);
}

sl_status model_load_read_line(const io_model *io, const char *name, int64_t n, float *p,
                               sl_err *err)
{
    const struct tensor *t = io_find(io, name);
    bool line = false;
    if (!t) return io_missing(io, name, err);
    struct tensor flat = *t;
    for (int i = 0; i < t->n_dim; i++)
        line = line || t->shape[i] == n;
    if (line && tensor_count(t) == n && !t->col_bytes) flat.n_dim = 1, flat.shape[0] = n;
    return read_vector(&flat, name, n, p, err);
}

sl_status model_load_put(struct model *m, enum arch_role role, const float *host, int64_t n,
                         float **out, sl_err *err)
{
    dev *d = side_of(m, role)->d;
    void *p = NULL;
    if (n == 0) return SL_OK;
    SL_TRY(dev_alloc(d, MEM_WEIGHTS, n * 4, &p, err));
    SL_TRY(dev_put(d, p, host, n * 4, err));
    model_load_count(m, role, n * 4);
    *out = p;
    return SL_OK;
}

sl_status model_load_ones(struct model *m, int n, float **out, sl_err *err)
{
    void *host = NULL;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)n, sizeof(float), &host, err));
    for (int i = 0; i < n; i++)
        ((float *)host)[i] = 1.0f;
    sl_status st = model_load_put(m, ROLE_Q_NORM, host, n, out, err);
    mem_free(host);
    return st;
}

/* Of n values, one for each row of the role's matrix, ours. */
static sl_status put_part(struct model *m, enum arch_role role, const float *host, int64_t n,
                          float **out, sl_err *err)
{
    struct model_slice s = model_slice_of(&m->cfg, &m->dims, role, n);
    return model_load_put(m, role, host + s.row0, s.n_row, out, err);
}

/* Weights of norms that the file has less 1; the last norm's are known as those of MTP layers. */
static bool lacks_one(const struct arch_cfg *c, enum arch_role role)
{
    return c->norm_one && arch_is_less(c, &(struct arch_name){.global = -1, .role = (int)role});
}

sl_status model_load_vector(struct model *m, const char *name, enum arch_role role, int64_t n,
                            float **out, sl_err *err)
{
    void *host = NULL;
    SL_TRY(mem_alloc_array(MEM_WEIGHTS, (size_t)n, sizeof(float), &host, err));
    sl_status st = SL_OK;
    SL_TRY_OUT(model_load_read(m->io, name, n, host, err));
    for (int64_t i = 0; i < n && lacks_one(&m->cfg, role); i++)
        ((float *)host)[i] += 1.0f;
    SL_TRY_OUT(put_part(m, role, host, n, out, err));
out:
    mem_free(host);
    return st;
}

sl_status model_load_read_rows(const io_model *io, const char *name, int64_t rows, int64_t cols,
                               float *p, sl_err *err)
{
    const struct tensor *t = io_find(io, name);
    if (!t) return io_missing(io, name, err);
    if (!t->data || t->n_dim != 2 || t->shape[0] != rows || t->shape[1] != cols || t->row_bytes ||
        t->col_bytes)
        return SL_FAIL(err, FORMAT, "%s: expected [%lld, %lld]", name, (long long)rows,
                       (long long)cols);
    struct tensor flat = *t;
    flat.n_dim = 1;
    flat.shape[0] = rows * cols;
    return read_vector(&flat, name, rows * cols, p, err);
}

sl_status model_load_role_rows(struct model *m, int il, const struct load_rows *of, float **out,
                               sl_err *err)
{
    char name[LOAD_NAME];
    int64_t n = of->rows * of->cols;
    void *host = NULL;
    arch_tensor_name(&m->cfg.naming, of->role, il, "weight", name, sizeof name);
    SL_TRY(mem_alloc_array(MEM_WEIGHTS, (size_t)n, sizeof(float), &host, err));
    sl_status st = model_load_read_rows(m->io, name, of->rows, of->cols, host, err);
    if (!st) st = model_load_put(m, of->role, host, n, out, err);
    mem_free(host);
    return st;
}

sl_status model_load_role_vector(struct model *m, int il, enum arch_role role, int64_t n,
                                 float **out, sl_err *err)
{
    char name[LOAD_NAME];
    arch_tensor_name(&m->cfg.naming, role, il, "weight", name, sizeof name);
    return model_load_vector(m, name, role, n, out, err);
}
