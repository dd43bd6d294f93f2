/* SPDX-License-Identifier: Apache-2.0 */
/* Weights with their scales. The loader table: one row per way in which a Hugging Face folder
 * stores quantised matrices, chosen by quantization_config.quant_method; a row is a test of the
 * configuration, a reader, and in tensor/ a reference dequantiser. */
#include <string.h>

#include "base/fp.h"
#include "io/io_internal.h"

struct io_scheme {
    const char *method; /* quantization_config.quant_method */
    /* Check the configuration and prepare scales. NULL: known by name, not read. UNSUPPORTED is
     * told when a weight is asked for. */
    sl_status (*prepare)(io_model *m, const struct json *q, sl_err *err);
    /* The scales of tensor t into *w, which is plain so far. */
    sl_status (*read)(const io_model *m, const struct tensor *t, struct weight *w, sl_err *err);
};

static sl_status fp8_prepare(io_model *m, const struct json *q, sl_err *err);
static sl_status fp8_read(const io_model *m, const struct tensor *t, struct weight *w, sl_err *err);

static const struct io_scheme scheme[] = {
    {"fp8", fp8_prepare, fp8_read},     {"awq", NULL, NULL},          {"gptq", NULL, NULL},
    {"compressed-tensors", NULL, NULL}, {"modelopt", NULL, NULL},     {"mxfp4", NULL, NULL},
    {"fbgemm_fp8", NULL, NULL},         {"bitsandbytes", NULL, NULL}, {"ascend", NULL, NULL},
};

/* ---- DeepSeek's fp8: F8_E4M3 times one f32 (or bf16) of weight_scale_inv per block ---- */
#define FP8_SUFFIX "_scale_inv"

static sl_status fp8_block(const io_model *m, const struct json *q, int i, int *out, sl_err *err)
{
    const struct json *b = text_json_get(q, "weight_block_size");
    if (!b || b->kind != JSON_ARRAY_K || b->n != 2)
        return SL_FAIL(err, UNSUPPORTED,
                       "%s: config.json: quantization_config.weight_block_size is not [rows, "
                       "columns]: only fp8 with "
                       "block scales is read",
                       io_short(m->path));
    const struct json *v = b->item[i];
    if (v->kind != JSON_INT_K || v->i < 1 || v->i > 65536)
        return SL_FAIL(err, FORMAT,
                       "%s: config.json: quantization_config.weight_block_size[%d] is not a number "
                       "in 1 .. 65536",
                       io_short(m->path), i);
    *out = (int)v->i;
    return SL_OK;
}

static sl_status fp8_prepare(io_model *m, const struct json *q, sl_err *err)
{
    const char *fmt = NULL;
    SL_TRY(text_json_str(q, "fmt", "e4m3", &fmt, err));
    if (strcmp(fmt, "e4m3") != 0)
        return SL_FAIL(err, UNSUPPORTED,
                       "%s: config.json: quantization_config.fmt is \"%.40s\"; e4m3 is read",
                       io_short(m->path), fmt);
    SL_TRY(fp8_block(m, q, 0, &m->block_rows, err));
    SL_TRY(fp8_block(m, q, 1, &m->block_cols, err));
    void *p = NULL;
    SL_TRY(mem_arena_array(&m->arena, (size_t)m->n_tensor, sizeof *m->scale, &p, err));
    m->scale = p;
    for (int i = 0; i < m->n_tensor;
         i++) { /* scales that can not be used in place are converted once */
        const struct tensor *t = &m->tensor[i];
        size_t n = strlen(t->name), k = strlen(FP8_SUFFIX);
        if (n <= k || strcmp(t->name + n - k, FP8_SUFFIX) != 0) continue;
        if (t->type != TENSOR_F32 && t->type != TENSOR_BF16)
            return SL_FAIL(err, FORMAT, "%s: tensor %.100s is %s, scales are F32 or BF16",
                           io_short(m->file[t->file].path), t->name, tensor_dtype(t->type)->text);
        if (t->type == TENSOR_F32 && (uintptr_t)t->data % 4 == 0) {
            m->scale[i] = t->data;
            continue;
        }
        SL_TRY(mem_arena_array(&m->arena, (size_t)tensor_count(t), 4, &p, err));
        tensor_dequant(t->type, t->data, tensor_count(t), p);
        m->scale[i] = p;
    }
    return SL_OK;
}

static sl_status fp8_read(const io_model *m, const struct tensor *t, struct weight *w, sl_err *err)
{
    if (t->type != TENSOR_F8_E4M3) return SL_OK; /* not quantised: norms, router, embedding, head */
    const struct tensor *s = io_findf(m, "%s" FP8_SUFFIX, t->name);
    if (!s)
        return SL_FAIL(err, FORMAT, "%s: tensor %.80s: its scales %.80s" FP8_SUFFIX " are missing",
                       io_short(m->file[t->file].path), t->name, t->name);
    int64_t rows = (w->rows + m->block_rows - 1) / m->block_rows,
            cols = (w->cols + m->block_cols - 1) / m->block_cols;
    if (s->n_dim != 2 || s->shape[0] != rows || s->shape[1] != cols)
        return SL_FAIL(
            err, FORMAT,
            "%s: tensor %.70s is not [%lld, %lld] as %lld x %lld in blocks of %d x %d needs",
            io_short(m->file[s->file].path), s->name, (long long)rows, (long long)cols,
            (long long)w->rows, (long long)w->cols, m->block_rows, m->block_cols);
    w->scheme = TENSOR_SCHEME_F8_BLOCK;
    w->scale = m->scale[s - m->tensor];
    w->block_rows = m->block_rows;
    w->block_cols = m->block_cols;
    return SL_OK;
}

/* ---- the table at work ---- */
sl_status io_scheme_choose(io_model *m, sl_err *err)
{
    const struct json *q = text_json_get(m->config, "quantization_config");
    if (!q && m->quant_method) /* a file of its own says so (folder.c) */
        SL_FAIL(&m->scheme_err, UNSUPPORTED, "%s: weights of \"%s\" are not read",
                io_short(m->path), m->quant_method);
    if (!q || q->kind == JSON_NULL_K) return SL_OK;
    if (q->kind != JSON_OBJECT_K)
        return SL_FAIL(err, FORMAT, "%s: config.json: quantization_config is not an object",
                       io_short(m->path));
    SL_TRY(text_json_str(q, "quant_method", "", &m->quant_method, err));
    for (int i = 0; i < BASE_COUNT_OF(scheme); i++) {
        if (strcmp(scheme[i].method, m->quant_method) != 0 || !scheme[i].prepare) continue;
        sl_status st = scheme[i].prepare(m, q, &m->scheme_err);
        if (st == SL_OK) m->scheme = &scheme[i];
        if (st == SL_OK || st == SL_UNSUPPORTED)
            return SL_OK; /* the folder can be looked at; io_weight refuses */
        if (err) *err = m->scheme_err;
        return st;
    }
    SL_FAIL(&m->scheme_err, UNSUPPORTED, "%s: weights of quant_method \"%.40s\" are not read",
            io_short(m->path), m->quant_method);
    return SL_OK;
}

/* NVFP4 in GGUF has its second scale in a tensor of its own: blk.0.ffn_up.weight ->
 * blk.0.ffn_up.scale. */
static sl_status gguf_scale(const io_model *m, const struct tensor *t, struct weight *w,
                            sl_err *err)
{
    size_t n = strlen(t->name), k = strlen(".weight");
    if (t->type != TENSOR_NVFP4 || n <= k || strcmp(t->name + n - k, ".weight") != 0) return SL_OK;
    const struct tensor *s = io_findf(m, "%.*s.scale", (int)(n - k), t->name);
    if (!s) return SL_OK;
    int64_t n_scale = tensor_count(s);
    if (s->type != TENSOR_F32 || (n_scale != 1 && !(t->n_dim == 3 && n_scale == t->shape[0])))
        return SL_FAIL(err, FORMAT, "%s: tensor %.100s: %lld values of %s, expected one f32, or one of each expert",
                       io_short(m->file[s->file].path), s->name, (long long)n_scale, tensor_dtype(s->type)->text);
    if (n_scale == 1) {
        memcpy(&w->tensor_scale, s->data, 4);
    } else {
        w->part_scale = s->data;
        w->n_part = (int)n_scale;
    }
    return SL_OK;
}

sl_status io_weight(const io_model *m, const char *name, struct weight *out, sl_err *err)
{
    const struct tensor *t = io_find(m, name);
    if (!t) return SL_FAIL(err, NOTFOUND, "%s: tensor %.120s is missing", io_short(m->path), name);
    if (m->pack && !t->data)
        return SL_FAIL(err, UNSUPPORTED,
                       "%s: tensor %.80s is there in the run layout only: take the source",
                       io_short(m->path), name);
    if (m->quant_method && !m->scheme) {
        if (err) *err = m->scheme_err;
        return SL_UNSUPPORTED;
    }
    if (!tensor_dtype_is_weight(t->type))
        return SL_FAIL(err, UNSUPPORTED, "%s: tensor %.100s: %s is no type of weights",
                       io_short(m->file[t->file].path), name, tensor_dtype(t->type)->text);
    memset(out, 0, sizeof *out);
    out->name = t->name;
    out->type = t->type;
    out->rows = tensor_rows(t);
    out->cols = tensor_cols(t);
    out->data = t->data;
    out->tensor_scale = 1.0f;
    if (!tensor_bytes(t->type, (uint64_t)out->cols, &out->row_bytes))
        return SL_FAIL(err, FORMAT, "%s: tensor %.100s: its rows are too long", io_short(m->path),
                       name);
    if (m->kind == IO_GGUF) return gguf_scale(m, t, out, err);
    return m->scheme ? m->scheme->read(m, t, out, err) : SL_OK;
}
