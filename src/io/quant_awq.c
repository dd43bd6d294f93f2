/* SPDX-License-Identifier: Apache-2.0 */
/* AWQ (GEMM version) and GPTQ: 4-bit (GPTQ also 8-bit) codes in words of 32 bits, scales and zero
 * points by group and row. */
#include <string.h>
#include <strings.h>

#include "io/io_internal.h"

struct awq {
    int bits, zero_add;
    int64_t size;
    bool zeros, sym, ordered; /* ordered: columns belong to groups as g_idx says */
    bool is_awq;              /* AutoRound: whose layout it is */
};

static sl_status alloc_own(io_model *m, struct awq **out, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_arena_array(&m->arena, 1, sizeof **out, &p, err));
    m->quant_own = p;
    *out = p;
    return SL_OK;
}

static sl_status get_size(io_model *m, struct awq *a, sl_err *err)
{
    SL_TRY(io_quant_int(m, m->quant, "group_size",
                        text_json_get(m->quant, "q_group_size") ? 0 : 128, &a->size, err));
    if (a->size == 0) SL_TRY(io_quant_int(m, m->quant, "q_group_size", 128, &a->size, err));
    if (a->size != -1 && (a->size < 1 || a->size > INT32_MAX))
        return SL_FAIL(err, FORMAT, "%s: %s: group_size is %lld", io_short(m->path), m->quant_file,
                       (long long)a->size);
    return SL_OK;
}

sl_status io_awq_prepare(io_model *m, sl_err *err)
{
    const char *version = NULL;
    struct awq *a = NULL;
    int64_t bits = 0, w_bit = 0;
    SL_TRY(alloc_own(m, &a, err));
    SL_TRY(text_json_str(m->quant, "version", "gemm", &version, err));
    SL_TRY(io_quant_int(m, m->quant, "w_bit", 4, &w_bit, err));
    SL_TRY(io_quant_int(m, m->quant, "bits", w_bit, &bits, err));
    SL_TRY(text_json_bool(m->quant, "zero_point", true, &a->zeros, err));
    SL_TRY(get_size(m, a, err));
    if (strcasecmp(version, "gemm") != 0 || bits != 4)
        return SL_FAIL(
            err, UNSUPPORTED,
            "%s: %s: AWQ version \"%.20s\" of %lld bits is not read (gemm with 4 bits is)",
            io_short(m->path), m->quant_file, version, (long long)bits);
    a->bits = 4;
    return SL_OK;
}

/* MODULE.qweight, when that is how the matrix is stored; else NULL. Both forms at once: FORMAT. */
static sl_status qweight_of(const struct io_want *q, const struct tensor **out, sl_err *err)
{
    *out = NULL;
    if (!io_ends_with(q->name, ".weight")) return SL_OK;
    const struct tensor *t = io_part_of(q, "qweight");
    if (!t) return SL_OK;
    if (q->t)
        return SL_FAIL(err, FORMAT, "%s: %.70s is there twice, plain and as %.70s",
                       io_short(q->m->path), q->name, t->name);
    SL_TRY(io_want_type(q, t, TENSOR_I32, err));
    if (t->n_dim != 2)
        return SL_FAIL(err, FORMAT, "%s: tensor %.90s has %d dimensions, not 2",
                       io_short(q->m->path), t->name, t->n_dim);
    *out = t;
    return SL_OK;
}

/* scales [groups, rows] and qzeros [groups, rows * bits / 32]. */
static sl_status read_groups(const struct io_want *q, const struct awq *a, struct weight *w,
                             sl_err *err)
{
    const struct tensor *s = NULL, *z = NULL;
    struct weight_group *g = &w->group;
    SL_TRY(io_need(q, "scales", &s, err));
    if (s->type != TENSOR_F32 && s->type != TENSOR_BF16)
        SL_TRY(io_want_type(q, s, TENSOR_F16, err));
    SL_TRY(io_want_shape(q, s, g->n_group, w->rows, err));
    g->scale = (struct weight_scale){s->data, s->type, 1, w->rows};
    if (!g->zeros) return SL_OK;
    SL_TRY(io_need(q, "qzeros", &z, err));
    SL_TRY(io_want_type(q, z, TENSOR_I32, err));
    if (w->rows * a->bits % 32)
        return SL_FAIL(err, FORMAT, "%s: tensor %.90s: %lld rows are no whole words",
                       io_short(q->m->path), z->name, (long long)w->rows);
    SL_TRY(io_want_shape(q, z, g->n_group, w->rows * a->bits / 32, err));
    g->zero = z->data;
    return SL_OK;
}

sl_status io_awq_read(const struct io_want *q, struct weight *w, bool *done, sl_err *err)
{
    const struct awq *a = q->m->quant_own;
    const struct tensor *t = NULL;
    SL_TRY(qweight_of(q, &t, err));
    if (!t) return SL_OK;
    *done = true;
    int64_t shape[3] = {t->shape[1] * 8, t->shape[0], a->size};
    SL_TRY(io_group_init(q, t, WEIGHT_AWQ, shape, w, err));
    if (a->zeros || io_part_of(q, "qzeros")) w->group.zeros = WEIGHT_ZERO_AWQ;
    return read_groups(q, a, w, err);
}

/* ---- GPTQ ---- */
sl_status io_gptq_prepare(io_model *m, sl_err *err)
{
    const char *form = NULL;
    struct awq *a = NULL;
    int64_t bits = 0;
    bool marlin = false;
    SL_TRY(alloc_own(m, &a, err));
    SL_TRY(io_quant_int(m, m->quant, "bits", 4, &bits, err));
    SL_TRY(text_json_bool(m->quant, "sym", true, &a->sym, err));
    SL_TRY(text_json_bool(m->quant, "desc_act", false, &a->ordered, err));
    SL_TRY(text_json_str(m->quant, "format", "gptq", &form, err)); /* GPTQModel's own name */
    SL_TRY(text_json_str(m->quant, "checkpoint_format", form, &form, err));
    SL_TRY(get_size(m, a, err));
    if (bits != 4 && bits != 8)
        return SL_FAIL(err, UNSUPPORTED, "%s: %s: GPTQ of %lld bits is not read (4 and 8 are)",
                       io_short(m->path), m->quant_file, (long long)bits);
    SL_TRY(text_json_bool(m->quant, "is_marlin_format", false, &marlin, err));
    if (marlin) form = "marlin";
    bool v2 = strcasecmp(form, "gptq_v2") == 0;
    if (!v2 && *form && strcasecmp(form, "gptq") != 0)
        return SL_FAIL(err, UNSUPPORTED,
                       "%s: %s: checkpoint_format \"%.40s\" is not read (gptq and gptq_v2 are)",
                       io_short(m->path), m->quant_file, form);
    SL_TRY(io_quant_dynamic(m, err));
    a->bits = (int)bits;
    a->zero_add = !v2;
    return SL_OK;
}

/* Are all zero points of a symmetric file the middle of the range? Then none need be kept. Either
 * form's middle will do: files of both forms say "gptq", or nothing. */
static bool all_mid(const struct awq *a, const struct weight *w)
{
    const struct weight_group *g = &w->group;
    int64_t n = g->n_group * w->rows * a->bits / 8;
    uint8_t mid = a->bits == 8 ? 0x80 : 0x88, less = a->bits == 8 ? 0x7f : 0x77;
    uint8_t differ = 0;
    for (int64_t i = 0; i < n; i++)
        differ |= g->zero[i] ^ g->zero[0];
    return !differ && (g->zero[0] == mid || g->zero[0] == less);
}

sl_status io_gptq_read(const struct io_want *q, struct weight *w, bool *done, sl_err *err)
{
    const struct awq *a = q->m->quant_own;
    const struct tensor *t = NULL, *order;
    SL_TRY(qweight_of(q, &t, err));
    if (!t) return SL_OK;
    *done = true;
    int64_t shape[3] = {t->shape[1], t->shape[0] * (32 / a->bits), a->size};
    SL_TRY(io_group_init(q, t, a->bits == 8 ? WEIGHT_GPTQ8 : WEIGHT_GPTQ4, shape, w, err));
    w->group.zeros = a->bits == 8 ? WEIGHT_ZERO_GPTQ8 : WEIGHT_ZERO_GPTQ4;
    w->group.zero_add = a->zero_add;
    SL_TRY(read_groups(q, a, w, err));
    order = io_part_of(q, "g_idx");
    if (a->ordered && w->group.n_group > 1) SL_TRY(io_need(q, "g_idx", &order, err));
    if (order) SL_TRY(io_group_order(q, order, w, err));
    if (a->sym && all_mid(a, w)) w->group.zeros = WEIGHT_ZERO_MID;
    return SL_OK;
}

/* ---- AutoRound: rounding of its own in the layouts of the others ---- */
sl_status io_autoround_prepare(io_model *m, sl_err *err)
{
    const char *form = NULL, *type = NULL;
    SL_TRY(text_json_str(m->quant, "packing_format", "auto_round:auto_gptq", &form, err));
    SL_TRY(text_json_str(m->quant, "data_type", "int", &type, err));
    if (strcasecmp(type, "int") != 0)
        return SL_FAIL(err, UNSUPPORTED,
                       "%s: %s: AutoRound's data_type \"%.20s\" is not read (int is)",
                       io_short(m->path), m->quant_file, type);
    SL_TRY(io_quant_extra(m, err));
    const char *layout = strncasecmp(form, "auto_round:", 11) == 0 ? form + 11 : form;
    bool awq = strcasecmp(layout, "auto_awq") == 0 || strcasecmp(layout, "awq") == 0;
    if (!awq && strcasecmp(layout, "auto_gptq") != 0 && strcasecmp(layout, "gptq") != 0)
        return SL_FAIL(
            err, UNSUPPORTED,
            "%s: %s: AutoRound's packing_format \"%.40s\" is not read (auto_gptq and auto_awq are)",
            io_short(m->path), m->quant_file, form);
    SL_TRY(awq ? io_awq_prepare(m, err) : io_gptq_prepare(m, err));
    ((struct awq *)m->quant_own)->is_awq = awq;
    return SL_OK;
}

sl_status io_autoround_read(const struct io_want *q, struct weight *w, bool *done, sl_err *err)
{
    const struct awq *a = q->m->quant_own;
    return a->is_awq ? io_awq_read(q, w, done, err) : io_gptq_read(q, w, done, err);
}
