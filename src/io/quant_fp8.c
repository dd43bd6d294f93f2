/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSeek's fp8 (quant_method "fp8"): F8_E4M3 times a scale per block, or per tensor, and beside
 * it MXFP4 (I8, the code of an even column in the low nibble) with a power of two for each 32
 * columns: DeepSeek-V4's experts; MXFP8 ("mxfp8", or "fp8" of such blocks): a power of two for each
 * 32 columns of a row; and ModelOpt's NVFP4 and FP8. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "io/io_internal.h"

/* ---- fp8 ---- */
#define INV_SUFFIX "_scale_inv"
#define FP4_GROUP 32 /* columns of a scale */

static sl_status fp8_block(const io_model *m, const struct json *b, int i, int *out, sl_err *err)
{
    const struct json *v = b->item[i];
    if (v->kind != JSON_INT_K || v->i < 1 || v->i > 65536)
        return SL_FAIL(
            err, FORMAT,
            "%s: %s: quantization_config.weight_block_size[%d] is not a number in 1 .. 65536",
            io_short(m->path), m->quant_file, i);
    *out = (int)v->i;
    return SL_OK;
}

/* What scales of one value, or of each row, are called: transformers writes weight_scale_inv. */
static const char *plain_suffix(const io_model *m)
{
    for (int i = 0; i < m->n_tensor; i++)
        if (io_ends_with(m->tensor[i].name, ".weight" INV_SUFFIX)) return INV_SUFFIX;
    return "_scale";
}

/* DeepSeek-V4 calls X.scale what others call X.weight_scale_inv: so it is called here. */
static sl_status rename_scales(io_model *m, sl_err *err)
{
    static const char tail[] = ".scale";
    char name[512], *copy = NULL;
    int n_renamed = 0;
    for (int i = 0; i < m->n_tensor; i++) {
        struct tensor *t = &m->tensor[i];
        int n = (int)strlen(t->name) - (int)strlen(tail);
        if (n < 1 || !io_ends_with(t->name, tail)) continue;
        const struct tensor *w = io_findf(m, "%.*s.weight", n, t->name);
        if (!w || (w->type != TENSOR_F8_E4M3 && w->type != TENSOR_I8)) continue;
        int k = snprintf(name, sizeof name, "%.*s.weight" INV_SUFFIX, n, t->name);
        if (k >= (int)sizeof name)
            return SL_FAIL(err, FORMAT, "%s: tensor %.90s: its name is too long",
                           io_short(m->path), t->name);
        SL_TRY(mem_arena_str(&m->arena, name, (size_t)k, &copy, err));
        t->name = copy;
        n_renamed++;
    }
    return n_renamed ? io_index_tensors(m, err) : SL_OK;
}

/* Experts are of four bits where their tensors are. */
static sl_status check_experts(const io_model *m, sl_err *err)
{
    const char *type = NULL;
    bool some = false;
    SL_TRY(text_json_str(m->quant, "expert_dtype", "", &type, err));
    for (int i = 0; i < m->n_tensor; i++) {
        const struct tensor *t = &m->tensor[i];
        some = some || (t->type == TENSOR_I8 && io_ends_with(t->name, ".weight"));
    }
    if (strcmp(type, "fp4") != 0 || some) return SL_OK;
    return SL_FAIL(err, UNSUPPORTED,
                   "%s: %s: quantization_config.expert_dtype is fp4, but no weights are of 4 bits",
                   io_short(m->path), m->quant_file);
}

sl_status io_fp8_prepare(io_model *m, sl_err *err)
{
    const char *fmt = NULL;
    SL_TRY(rename_scales(m, err));
    SL_TRY(check_experts(m, err));
    SL_TRY(text_json_str(m->quant, "fmt", "e4m3", &fmt, err));
    if (strcmp(fmt, "e4m3") != 0 && strcmp(fmt, "e4m3fn") != 0 && strcmp(fmt, "float8_e4m3fn") != 0)
        return SL_FAIL(err, UNSUPPORTED,
                       "%s: %s: quantization_config.fmt is \"%.40s\"; e4m3 is read",
                       io_short(m->path), m->quant_file, fmt);
    const struct json *b = text_json_get(m->quant, "weight_block_size");
    m->scale_tail = b && b->kind != JSON_NULL_K ? INV_SUFFIX : plain_suffix(m);
    if (!b || b->kind == JSON_NULL_K) return io_f8_scales(m, m->scale_tail, err);
    if (b->kind != JSON_ARRAY_K || b->n != 2)
        return SL_FAIL(err, FORMAT,
                       "%s: %s: quantization_config.weight_block_size is not [rows, columns]",
                       io_short(m->path), m->quant_file);
    SL_TRY(fp8_block(m, b, 0, &m->block_rows, err));
    SL_TRY(fp8_block(m, b, 1, &m->block_cols, err));
    return io_f8_scales(m, INV_SUFFIX, err);
}

sl_status io_mxfp8_prepare(io_model *m, sl_err *err)
{
    m->block_rows = 1; /* where the configuration says no more */
    m->block_cols = 32;
    return io_fp8_prepare(m, err);
}

/* A row's scales are those of groups of its columns. */
static sl_status read_rows(const struct io_want *q, const struct tensor *s, struct weight *w,
                           sl_err *err)
{
    const int64_t shape[3] = {w->rows, w->cols, q->m->block_cols};
    SL_TRY(io_group_init(q, q->t, WEIGHT_E4M3, shape, w, err));
    SL_TRY(io_want_shape(q, s, w->rows, w->group.n_group, err));
    w->group.scale = (struct weight_scale){s->data, s->type, w->group.n_group, 1};
    return SL_OK;
}

/* Two codes of 4 bits in a byte: MXFP4. */
static sl_status read_fp4(const struct io_want *q, const struct tensor *s, struct weight *w,
                          sl_err *err)
{
    if (q->t->n_dim != 2)
        return SL_FAIL(err, FORMAT, "%s: tensor %.90s is no matrix",
                       io_short(q->m->file[q->t->file].path), q->name);
    const int64_t shape[3] = {q->t->shape[0], q->t->shape[1] * 2, FP4_GROUP};
    SL_TRY(io_group_init(q, q->t, WEIGHT_E2M1, shape, w, err));
    SL_TRY(io_want_shape(q, s, w->rows, w->group.n_group, err));
    if (s->type != TENSOR_U8) SL_TRY(io_want_type(q, s, TENSOR_F8_E8M0, err));
    w->group.scale = (struct weight_scale){s->data, TENSOR_F8_E8M0, w->group.n_group, 1};
    return SL_OK;
}

sl_status io_fp8_read(const struct io_want *q, struct weight *w, bool *done, sl_err *err)
{
    const io_model *m = q->m;
    if (q->t && q->t->type == TENSOR_I8) {
        const struct tensor *s4 = io_findf(m, "%s" INV_SUFFIX, q->name);
        *done = s4 != NULL;
        return s4 ? read_fp4(q, s4, w, err) : SL_OK;
    }
    if (!q->t || q->t->type != TENSOR_F8_E4M3) return SL_OK; /* norms, router, embedding, head */
    const char *tail = m->scale_tail;
    const struct tensor *s = io_findf(m, "%s%s", q->name, tail);
    *done = true;
    if (!s)
        return SL_FAIL(err, FORMAT, "%s: tensor %.80s: its scales %.80s%s are missing",
                       io_short(m->file[q->t->file].path), q->name, q->name, tail);
    if (io_f8_has_groups(m)) return read_rows(q, s, w, err);
    return io_f8_weight(q, s, m->block_rows, m->block_cols, w, err);
}

/* ---- ModelOpt ---- */
static const struct {
    const char *name;
    bool is_nvfp4;
} read_algo[] = {
    {"NVFP4", true}, {"W4A16_NVFP4", true}, {"FP8", false}, {"MIXED_PRECISION", false}};

sl_status io_modelopt_prepare(io_model *m, sl_err *err)
{
    const struct json *o = text_json_get(m->quant, "quantization");
    const char *algo = NULL;
    int64_t size = 0;
    if (!o || o->kind != JSON_OBJECT_K) o = m->quant;
    SL_TRY(text_json_str(o, "quant_algo", "", &algo, err));
    int i = 0;
    while (i < BASE_COUNT_OF(read_algo) && strcasecmp(algo, read_algo[i].name) != 0)
        i++;
    if (i == BASE_COUNT_OF(read_algo))
        return SL_FAIL(err, UNSUPPORTED,
                       "%s: %s: quant_algo is \"%.40s\"; NVFP4, FP8 and MIXED_PRECISION are read",
                       io_short(m->path), m->quant_file, algo);
    SL_TRY(io_quant_int(m, o, "group_size", 16, &size, err));
    if (read_algo[i].is_nvfp4 && size != 16)
        return SL_FAIL(err, UNSUPPORTED, "%s: %s: group_size is %lld; NVFP4 has groups of 16",
                       io_short(m->path), m->quant_file, (long long)size);
    return io_f8_scales(m, "_scale", err);
}

/* The one f32 of t, a scale. */
static sl_status one_f32(const struct io_want *q, const struct tensor *t, float *out, sl_err *err)
{
    SL_TRY(io_want_type(q, t, TENSOR_F32, err));
    if (tensor_count(t) != 1) SL_TRY(io_want_shape(q, t, 1, -1, err));
    memcpy(out, t->data, 4);
    if (!(*out < 0)) return SL_OK;
    return SL_FAIL(err, FORMAT, "%s: tensor %.90s is negative (%g)", io_short(q->m->path), t->name,
                   (double)*out);
}

sl_status io_modelopt_read(const struct io_want *q, struct weight *w, bool *done, sl_err *err)
{
    const struct tensor *t = q->t, *s = NULL, *s2 = NULL;
    if (!t || (t->type != TENSOR_U8 && t->type != TENSOR_F8_E4M3) ||
        !io_ends_with(q->name, ".weight"))
        return SL_OK;
    *done = true;
    if (io_part_of(q, "pre_quant_scale"))
        return SL_FAIL(
            err, UNSUPPORTED,
            "%s: %.80s has a pre_quant_scale: AWQ inside ModelOpt is not read (NVFP4 and FP8 are)",
            io_short(q->m->path), q->name);
    SL_TRY(io_need(q, "weight_scale", &s, err));
    if (t->type == TENSOR_F8_E4M3) return io_f8_weight(q, s, 0, 0, w, err);
    SL_TRY(io_need(q, "weight_scale_2", &s2, err));
    if (t->n_dim != 2)
        return SL_FAIL(err, FORMAT, "%s: tensor %.90s has %d dimensions, not 2",
                       io_short(q->m->path), t->name, t->n_dim);
    int64_t shape[3] = {t->shape[0], t->shape[1] * 2, 16};
    SL_TRY(io_group_init(q, t, WEIGHT_E2M1, shape, w, err));
    SL_TRY(io_want_type(q, s, TENSOR_F8_E4M3, err));
    SL_TRY(io_want_shape(q, s, w->rows, w->group.n_group, err));
    w->group.scale = (struct weight_scale){s->data, s->type, w->group.n_group, 1};
    return one_f32(q, s2, &w->tensor_scale, err);
}
