/* SPDX-License-Identifier: Apache-2.0 */
/* What products of a matrix end with: the bias that the source has for it, and the unit of a pair.
 * One way for all roles, plain matrices and stacks of experts. */
#include <math.h>
#include <string.h>

#include "model/load.h"

/* ---- matrices that have no place for a bias ---- */

/* Is there a bias of that matrix with anything in it? Old GPTQ files have some full of zeros. What
 * chooses experts may be called like the router's. */
static bool has_bias(const struct model *m, const char *name)
{
    size_t n = strlen(name), k = strlen(".weight");
    struct arch_name id;
    if (n <= k || strcmp(name + n - k, ".weight") != 0) return false;
    const struct tensor *t = io_findf(m->io, "%.*s.bias", (int)(n - k), name);
    if (!t || tensor_is_zero(t)) return false;
    arch_name_parse(&m->cfg.naming, t->name, &id);
    return id.role != ROLE_ROUTER_BIAS;
}

sl_status model_load_unbiased(const struct model *m, const char *name, enum arch_role role,
                              const struct weight *w, sl_err *err)
{
    void *p = NULL;
    bool any = false;
    if (arch_takes_bias(&m->cfg, role)) return SL_OK;
    if (has_bias(m, name))
        return SL_FAIL(err, UNSUPPORTED, "%s: %.100s has a bias, which this layer has no place for",
                       io_path(m->io), name);
    if (w->scheme != TENSOR_SCHEME_GROUP) return SL_OK;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)w->rows, sizeof(float), &p, err));
    sl_status st = io_weight_bias(m->io, name, w, p, &any, err);
    mem_free(p);
    if (st || !any) return st;
    return SL_FAIL(err, UNSUPPORTED,
                   "%s: %.100s: its quant_bias holds a bias, which this layer has no place for",
                   io_path(m->io), name);
}

/* ---- reading ---- */

static bool is_experts(const struct want *w)
{
    return model_part_of(w->role) == MODEL_EXPERTS;
}

/* Of matrix i of a role: its values to p. */
static sl_status read_one(const struct model *m, const char *name, int i, const struct want *w,
                          float *p, sl_err *err)
{
    int64_t n = w->rows;
    if (m->kind == IO_HF || !is_experts(w)) return model_load_read(m->io, name, n, p, err);
    const struct tensor *t = io_find(m->io, name); /* of all experts */
    if (!t) return io_missing(m->io, name, err);
    if (t->n_dim != 2 || t->shape[0] != w->n || t->shape[1] != n ||
        !tensor_dtype_is_weight(t->type) || tensor_dtype(t->type)->block != 1 || !t->data)
        return SL_FAIL(err, FORMAT,
                       "%s: tensor %.100s: %d x %lld values of a plain type are expected",
                       io_path(m->io), name, w->n, (long long)n);
    uint64_t row = t->n_bytes / (uint64_t)w->n;
    tensor_dequant(t->type, (const uint8_t *)t->data + (uint64_t)i * row, n, p);
    for (int64_t k = 0; k < n; k++)
        if (!isfinite(p[k]))
            return SL_FAIL(err, FORMAT, "%s[%d][%lld] is not finite", name, i, (long long)k);
    return SL_OK;
}

/* Where biases go: of matrix i to to + i * ld. room: for all rows of one. */
struct bias_rows {
    float *to, *room;
    int64_t ld;
};

/* Of a role's matrices our rows. */
static sl_status read_all(const struct model *m, const struct want *w, enum arch_role role,
                          const struct bias_rows *out, sl_err *err)
{
    struct model_slice s = model_slice_of(&m->cfg, &m->dims, role, w->rows);
    char name[LOAD_NAME];
    for (int i = 0; i < w->n; i++) {
        const struct arch_name id = {-1, (int)role, w->layer, i, "bias"};
        arch_name_put(&m->cfg.naming, &id, name, sizeof name);
        SL_TRY(read_one(m, name, i, w, out->room, err));
        memcpy(out->to + i * out->ld, out->room + s.row0, sizeof(float) * (size_t)s.n_row);
    }
    return SL_OK;
}

/* One that is stored among the scales of a matrix: it stands for the layer's own. */
static sl_status read_stored(struct model *m, const struct want *w, float *room, bool *any,
                             sl_err *err)
{
    char own[LOAD_NAME];
    struct weight a;
    *any = false;
    if (is_experts(w) || io_model_pack(m->io)) return SL_OK; /* there it is the layer's own */
    arch_tensor_name(&m->cfg.naming, w->role, w->layer, "bias", own, sizeof own);
    SL_TRY(io_weight(m->io, w->name, &a, err));
    if (a.scheme != TENSOR_SCHEME_GROUP || a.rows != w->rows) return SL_OK;
    SL_TRY(io_weight_bias(m->io, w->name, &a, room, any, err));
    return *any && m->out ? io_pack_out_vector(m->out, own, room, w->rows, err) : SL_OK;
}

/* Must there be one, and if not, is there one? */
static bool is_there(const struct model *m, const struct want *w)
{
    char name[LOAD_NAME];
    if (!arch_reads_bias(m->io, &m->cfg, w->role)) return false;
    arch_tensor_name(&m->cfg.naming, w->role, w->layer, "bias", name, sizeof name);
    return arch_must_bias(&m->cfg, w->role) || io_find(m->io, name);
}

/* Into host, [w->n, e->n_row] and room for all rows of a matrix; e->bias: host, where there is one.
 */
static sl_status read_bias(struct model *m, const struct want *w, float *host,
                           struct dev_epilogue *e, sl_err *err)
{
    struct model_slice s = model_slice_of(&m->cfg, &m->dims, w->role, w->rows);
    struct bias_rows out = {host, host + (int64_t)w->n * e->n_row, e->n_row};
    bool any;
    SL_TRY(read_stored(m, w, out.room, &any, err));
    if (!any && !is_there(m, w)) return SL_OK;
    e->bias = host;
    if (any) {
        memcpy(host, out.room + s.row0, sizeof(float) * (size_t)s.n_row);
        return SL_OK;
    }
    SL_TRY(read_all(m, w, w->role, &out, err));
    out.to += s.n_row;
    return w->pair ? read_all(m, w, w->second, &out, err) : SL_OK;
}

/* Biases become those of slots, by their experts: for devices on which these do not move. */
static void sort_bias(struct dev_epilogue *e, float *host, int n_slot)
{
    float *to = host + (int64_t)e->n_bias * e->n_row;
    for (int i = 0; i < n_slot; i++)
        memcpy(to + (int64_t)i * e->n_row, host + (int64_t)BASE_MAX(e->of[i], 0) * e->n_row,
               sizeof *to * (size_t)e->n_row);
    e->bias = to;
    e->n_bias = n_slot;
    e->of = NULL;
}

sl_status model_load_end(struct model *m, const struct want *w, dev_mat *mat, sl_err *err)
{
    struct model_slice s = model_slice_of(&m->cfg, &m->dims, w->role, w->rows);
    struct dev_epilogue e = {0};
    if (w->pair) e.glu = arch_glu(&m->cfg, w->layer, w->role);
    int64_t n = (int64_t)w->n * s.n_row * (w->pair ? 2 : 1);
    int n_here = 0;
    void *p = NULL;
    if (!arch_takes_bias(&m->cfg, w->role)) return mat ? dev_mat_end(mat, &e, err) : SL_OK;
    e.n_bias = w->n;
    e.n_row = (int)(n / w->n);
    if (is_experts(w)) e.of = model_slots_here(m, w->layer, &n_here);
    size_t n_sorted = (size_t)n_here * (size_t)e.n_row;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)(n + w->rows) + n_sorted, sizeof(float), &p, err));
    sl_status st = read_bias(m, w, p, &e, err);
    const dev *d = model_side_in(m, m->load_layer, model_part_of(w->role))->d;
    if (!st && mat && e.bias && e.of && !dev_is_host(d)) sort_bias(&e, p, n_here);
    if (!st && mat) st = dev_mat_end(mat, &e, err);
    if (!st && mat && e.bias) model_load_count(m, w->role, 4 * n);
    mem_free(p);
    return st;
}
