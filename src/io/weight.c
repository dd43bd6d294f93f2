/* SPDX-License-Identifier: Apache-2.0 */
/* Weights with their scales. The loader table: one row per way in which a Hugging Face folder
 * stores quantised matrices, chosen by quantization_config.quant_method; a row is a test of the
 * configuration, a reader (quant_*.c), and in tensor/ a reference dequantiser. */
#include <string.h>
#include <strings.h>

#include "base/str.h"
#include "io/pack_internal.h"

static const struct io_scheme scheme[] = {
    {"fp8", io_fp8_prepare, io_fp8_read},
    {"mxfp8", io_mxfp8_prepare, io_fp8_read},
    {"awq", io_awq_prepare, io_awq_read},
    {"gptq", io_gptq_prepare, io_gptq_read},
    {"auto-round", io_autoround_prepare, io_autoround_read},
    {"compressed-tensors", io_ct_prepare, io_ct_read},
    {"modelopt", io_modelopt_prepare, io_modelopt_read},
    {"ascend", io_ascend_prepare, io_ascend_read},
    {"mxfp4", io_mxfp4_prepare, io_mxfp4_read},
};
static const char scheme_names[] =
    "fp8, mxfp8, awq, gptq, compressed-tensors, modelopt, ascend, mxfp4 and auto-round are";

/* ---- the table at work ---- */
static const struct io_scheme *find_scheme(const char *method)
{
    if (strcasecmp(method, "modelopt_fp4") == 0 || strcasecmp(method, "modelopt_fp8") == 0)
        method = "modelopt";
    if (strcasecmp(method, "compressed_tensors") == 0) method = "compressed-tensors";
    if (strcasecmp(method, "auto_round") == 0 || strcasecmp(method, "intel/auto-round") == 0)
        method = "auto-round";
    for (int i = 0; i < BASE_COUNT_OF(scheme); i++)
        if (strcasecmp(scheme[i].method, method) == 0) return &scheme[i];
    return NULL;
}

const struct json *io_quant_config(const io_model *m)
{
    static const char *const name[] = {"quantization_config", "compression_config"};
    const struct json *in[] = {m->config, text_json_get(m->config, "text_config")};
    for (int i = 0; i < 2 * BASE_COUNT_OF(name); i++) {
        const struct json *q =
            text_json_get(in[i / BASE_COUNT_OF(name)], name[i % BASE_COUNT_OF(name)]);
        if (q && q->kind != JSON_NULL_K) return q;
    }
    return NULL;
}

sl_status io_scheme_choose(io_model *m, sl_err *err)
{
    const struct json *q = m->quant ? NULL : io_quant_config(m);
    if (q) {
        if (q->kind != JSON_OBJECT_K)
            return SL_FAIL(err, FORMAT, "%s: config.json: %s is not an object", io_short(m->path),
                           q->key);
        sl_status st = text_json_str(q, "quant_method", "", &m->quant_method, err);
        if (st) status_prefix(err, "%s: config.json: %s", io_short(m->path), q->key);
        SL_TRY(st);
        m->quant = q;
        m->quant_file = "config.json";
    }
    if (!m->quant_method) return SL_OK;
    const struct io_scheme *s = find_scheme(m->quant_method);
    if (!s) {
        SL_FAIL(&m->scheme_err, UNSUPPORTED,
                "%s: weights of quant_method \"%.40s\" are not read (%s)", io_short(m->path),
                m->quant_method, scheme_names);
        return SL_OK;
    }
    sl_status st = io_quant_keys(m, s->method, &m->scheme_err);
    if (!st) st = s->prepare(m, &m->scheme_err);
    if (st && strncmp(m->scheme_err.text, io_short(m->path), strlen(io_short(m->path))) != 0)
        status_prefix(&m->scheme_err, "%s: %s", io_short(m->path),
                      m->quant_file); /* the parser names the field alone */
    if (st == SL_OK) m->scheme = s;
    if (st == SL_OK || st == SL_UNSUPPORTED)
        return SL_OK; /* the folder can be looked at; io_weight refuses */
    if (err) *err = m->scheme_err;
    return st;
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
        return SL_FAIL(
            err, FORMAT,
            "%s: tensor %.100s: %lld values of %s, expected one f32, or one of each expert",
            io_short(m->file[s->file].path), s->name, (long long)n_scale,
            tensor_dtype(s->type)->text);
    if (n_scale == 1) {
        memcpy(&w->tensor_scale, s->data, 4);
    } else {
        w->part_scale = s->data;
        w->n_part = (int)n_scale;
    }
    return SL_OK;
}

/* The tensors that hold codes, by the end of their names; the matrix is called MODULE.weight. */
static const char *const codes_tail[] = {".qweight", ".weight_packed", ".weight_blocks"};
/* What stands beside codes. */
static const char *const beside_tail[] = {"_scale_inv",
                                          ".weight_scale",
                                          ".weight_scale_2",
                                          ".weight_scales",
                                          ".weight_global_scale",
                                          ".weight_zero_point",
                                          ".weight_shape",
                                          ".weight_g_idx",
                                          ".qzeros",
                                          ".scales",
                                          ".g_idx",
                                          ".input_scale",
                                          ".input_global_scale",
                                          ".input_offset",
                                          ".quant_bias",
                                          ".deq_scale",
                                          ".weight_offset",
                                          ".weight_scale_second",
                                          ".weight_offset_second",
                                          ".scale_bias",
                                          ".input_zero_point",
                                          ".output_zero_point",
                                          ".activation_scale",
                                          ".output_scale",
                                          ".q_scale",
                                          ".k_scale",
                                          ".v_scale",
                                          ".kv_cache_scale",
                                          ".kv_cache_offset"};

static bool has_tail(const char *name, const char *const *tail, int n)
{
    for (int i = 0; i < n; i++)
        if (io_ends_with(name, tail[i])) return true;
    return false;
}

/* The name as the model has it: X.qweight is X.weight. */
static sl_status plain_name(const io_model *m, const char *name, char *buf, size_t cap, sl_err *err)
{
    size_t n = strlen(name);
    for (int i = 0; i < BASE_COUNT_OF(codes_tail) && m->scheme; i++)
        if (io_ends_with(name, codes_tail[i])) n -= strlen(codes_tail[i]) - strlen(".weight");
    if (n >= cap)
        return SL_FAIL(err, NOTFOUND, "%s: tensor %.120s is missing", io_short(m->path), name);
    memcpy(buf, name, n);
    if (n < strlen(name)) memcpy(buf + n - strlen(".weight"), ".weight", strlen(".weight"));
    buf[n] = 0;
    return SL_OK;
}

static sl_status plain_weight(const io_model *m, const struct tensor *t, struct weight *out,
                              sl_err *err)
{
    memset(out, 0, sizeof *out);
    out->name = t->name;
    out->type = t->type;
    out->rows = tensor_rows(t);
    out->cols = tensor_cols(t);
    out->data = t->data;
    out->tensor_scale = 1.0f;
    if (!tensor_bytes(t->type, (uint64_t)out->cols, &out->row_bytes))
        return SL_FAIL(err, FORMAT, "%s: tensor %.100s: its rows are too long", io_short(m->path),
                       t->name);
    if (t->row_bytes) out->row_bytes = t->row_bytes;
    out->col_bytes = t->col_bytes;
    return SL_OK;
}

/* Why the scheme is not read, with the first tensor that needs it: one of codes, else the one that
 * was asked for. */
static sl_status refuse_scheme(const io_model *m, const char *asked, sl_err *err)
{
    const char *path = io_short(m->path), *why = m->scheme_err.text, *name = asked;
    size_t n = strlen(path);
    if (strncmp(why, path, n) == 0 && strncmp(why + n, ": ", 2) == 0) why += n + 2;
    if (n > 32) path += n - 32; /* the line's end says what is read */
    for (int i = m->n_tensor - 1; i >= 0; i--) {
        enum tensor_dtype t = m->tensor[i].type;
        if (t == TENSOR_I32 || t == TENSOR_I8 || t == TENSOR_U8 || t == TENSOR_F8_E4M3)
            name = m->tensor[i].name;
    }
    return SL_FAIL(err, UNSUPPORTED, "%s: tensor %.80s: %s", path, name, why);
}

/* FP8 that is read as it is has no scales; those of a shard from elsewhere, or of a folder whose
 * configuration was lost, must not be left out in silence. */
static sl_status want_no_scales(const struct io_want *q, sl_err *err)
{
    static const char *const part[] = {"weight_scale_inv", "weight_scale", "scale"};
    for (int i = 0; i < BASE_COUNT_OF(part); i++) {
        const struct tensor *s = io_part_of(q, part[i]);
        if (!s) continue;
        return SL_FAIL(err, FORMAT, "%s: tensor %.80s is F8_E4M3 with scales %.80s, but %s%.20s",
                       io_short(q->m->path), q->name, s->name,
                       q->m->quant_method ? "is not as stored by "
                                          : "config.json has no quantization_config",
                       q->m->quant_method ? q->m->quant_method : "");
    }
    return SL_OK;
}

static sl_status refuse_type(const io_model *m, const struct tensor *t, sl_err *err)
{
    const char *path = io_short(m->file[t->file].path), *type = tensor_dtype(t->type)->text;
    char can[160];
    if (tensor_dtype(t->type)->block == 1)
        return SL_FAIL(err, UNSUPPORTED, "%s: tensor %.100s: %s is no type of weights", path,
                       t->name, type);
    io_types_read(can, sizeof can);
    size_t n = strlen(path);
    if (n > 32) path += n - 32; /* the line's end says what is read */
    return SL_FAIL(err, UNSUPPORTED, "%s: tensor %.50s: %s is not supported; read are %s", path,
                   t->name, type, can);
}

/* A tensor whose name ends as that one does, after other words. */
static const char *like(const io_model *m, const char *name)
{
    const char *tail = strncmp(name, "model.", 6) == 0 ? name + 6 : name;
    size_t k = strlen(tail);
    for (int i = 0; i < m->n_tensor && m->kind == IO_HF; i++) {
        size_t n = strlen(m->tensor[i].name);
        if (n == k && strcmp(m->tensor[i].name, tail) == 0) return m->tensor[i].name;
        if (n > k && m->tensor[i].name[n - k - 1] == '.' &&
            strcmp(m->tensor[i].name + n - k, tail) == 0)
            return m->tensor[i].name;
    }
    return NULL;
}

sl_status io_missing(const io_model *m, const char *name, sl_err *err)
{
    const char *path = io_short(m->path), *other = like(m, name);
    size_t n = strlen(path), k = strlen(".weight");
    if (n > 60) path += n - 60;
    for (const struct io_unread *u = m->unread; u; u = u->next)
        if (strcmp(u->name, name) == 0)
            return SL_FAIL(err, UNSUPPORTED, "%s: tensor %.100s: %s is not read", path, name,
                           u->why);
    int file = io_index_find(&m->promised, name, strlen(name));
    if (file >= 0)
        return SL_FAIL(err, NOTFOUND,
                       "%s: tensor %.80s is missing: the index names %.60s, which does not have it",
                       path, name, str_base(m->file[file].path));
    for (int i = 0;
         i < BASE_COUNT_OF(codes_tail) && !m->quant_method && io_ends_with(name, ".weight"); i++) {
        const struct tensor *t =
            io_findf(m, "%.*s%s", (int)(strlen(name) - k), name, codes_tail[i]);
        if (t)
            return SL_FAIL(err, FORMAT,
                           "%s: %.90s is quantised, but no quantization_config (config.json) or "
                           "quantize_config.json says how",
                           path, t->name);
    }
    if (other)
        return SL_FAIL(err, NOTFOUND, "%s: tensor %.70s is missing; there is %.70s", path, name,
                       other);
    return SL_FAIL(err, NOTFOUND, "%s: tensor %.120s is missing", path, name);
}

const char *io_unread_name(const io_model *m, int i)
{
    const struct io_unread *u = m->unread;
    for (; u && i > 0; i--)
        u = u->next;
    return u ? u->name : NULL;
}

sl_status io_weight(const io_model *m, const char *asked, struct weight *out, sl_err *err)
{
    char name[512];
    bool done = false;
    SL_TRY(plain_name(m, asked, name, sizeof name, err));
    struct io_want q = {m, name, 0, io_find(m, name)};
    const char *dot = strrchr(name, '.');
    q.n_module = dot ? (int)(dot - name) : 0;
    if (m->pack && (!q.t || !q.t->data) && io_has_weight(m, name))
        return SL_FAIL(err, UNSUPPORTED,
                       "%s: tensor %.80s is there in the run layout only: take the source",
                       io_short(m->path), name);
    if (m->quant_method && !m->scheme) {
        if (!q.t && !io_has_weight(m, name)) return io_missing(m, name, err);
        return refuse_scheme(m, name, err);
    }
    if (q.t) SL_TRY(plain_weight(m, q.t, out, err));
    if (m->scheme) SL_TRY(m->scheme->read(&q, out, &done, err));
    if (done) return SL_OK;
    if (!q.t) return io_missing(m, name, err);
    if (!tensor_dtype_is_weight(q.t->type)) return refuse_type(m, q.t, err);
    if (q.t->type == TENSOR_F8_E4M3) SL_TRY(want_no_scales(&q, err));
    return m->kind == IO_GGUF ? gguf_scale(m, q.t, out, err) : SL_OK;
}

sl_status io_weight_bias(const io_model *m, const char *name, const struct weight *w, float *out,
                         bool *any, sl_err *err)
{
    struct io_want q = {m, name, 0, io_find(m, name)};
    *any = false;
    if (!m->scheme || m->scheme->read != io_ascend_read || !io_ends_with(name, ".weight"))
        return SL_OK;
    q.n_module = (int)(strlen(name) - strlen(".weight"));
    return io_ascend_bias(&q, w, out, any, err);
}

bool io_has_weight(const io_model *m, const char *name)
{
    size_t n = strlen(name), k = strlen(".weight");
    if (io_find(m, name) || (m->pack && io_pack_find(m->pack, name))) return true;
    if (m->kind != IO_HF || !io_ends_with(name, ".weight")) return false;
    for (int i = 0; i < BASE_COUNT_OF(codes_tail); i++)
        if (io_findf(m, "%.*s%s", (int)(n - k), name, codes_tail[i])) return true;
    return false;
}

bool io_is_beside(const io_model *m, const char *name)
{
    return (m->quant_method || m->pack) && has_tail(name, beside_tail, BASE_COUNT_OF(beside_tail));
}

bool io_tensor_is_matrix(const io_model *m, int i)
{
    const struct tensor *t = &m->tensor[i];
    if (t->n_dim < 2) return false;
    if (tensor_dtype(t->type)->block > 1) return true; /* read or not */
    if (!m->quant_method) return tensor_dtype_is_weight(t->type);
    if (io_is_beside(m, t->name)) return false;
    if (has_tail(t->name, codes_tail, BASE_COUNT_OF(codes_tail))) return true;
    return tensor_dtype_is_weight(t->type) ||
           ((t->type == TENSOR_I8 || t->type == TENSOR_U8) && io_ends_with(t->name, ".weight"));
}

int64_t io_tensor_params(const io_model *m, int i)
{
    const struct tensor *t = &m->tensor[i];
    struct weight w;
    if (m->kind == IO_GGUF || !m->quant_method) return tensor_count(t);
    if (io_is_beside(m, t->name)) return 0;
    if (!io_tensor_is_matrix(m, i) || !m->scheme) return tensor_count(t);
    return io_weight(m, t->name, &w, NULL) == SL_OK ? w.rows * w.cols : tensor_count(t);
}

const char *io_quant_method(const io_model *m)
{
    return m->quant_method;
}
