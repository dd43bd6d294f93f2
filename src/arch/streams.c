/* SPDX-License-Identifier: Apache-2.0 */
/* What the families with several streams share (hyper-connections; DeepSeek-V4, GLM-5.3): how many
 * there are and how they are mixed, and the limit that units of all layers have. */
#include "arch/row.h"

#define STREAM_MAX 8

/* ---- config.json ---- */

sl_status arch_hf_streams(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    double eps = 0;
    SL_TRY(arch_hf_int(o, "hc_mult", ARCH_RANGE(4, 2, STREAM_MAX), &c->n_stream, err));
    SL_TRY(arch_hf_int(o, "hc_sinkhorn_iters", ARCH_RANGE(20, 1, 1000), &c->stream_rounds, err));
    SL_TRY(arch_hf_real(o, "hc_eps", ARCH_RANGE(1e-6, 0, 1), &eps, err));
    c->stream_eps = (float)eps;
    return SL_OK;
}

/* ---- GGUF ---- */

sl_status arch_gguf_streams(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    double eps = 0;
    SL_TRY(arch_gguf_int(m, "hyper_connection.count", ARCH_RANGE(-1, 2, STREAM_MAX), &c->n_stream,
                         err));
    SL_TRY(arch_gguf_int(m, "hyper_connection.sinkhorn_iterations", ARCH_RANGE(20, 1, 1000),
                         &c->stream_rounds, err));
    SL_TRY(arch_gguf_real(m, "hyper_connection.epsilon", ARCH_RANGE(1e-6, 0, 1), &eps, err));
    c->stream_eps = (float)eps;
    return SL_OK;
}

/* The limit of all layers: a number, or an equal one for each. */
static sl_status limit_of(const io_model *m, const char *key, double def, double *out, sl_err *err)
{
    struct io_array arr;
    double v = 0;
    if (!arch_gguf_array(m, key, &arr))
        return arch_gguf_real(m, key, ARCH_RANGE(def, 0, 1e6), out, err);
    for (uint64_t i = 0; i < arr.n; i++) {
        if (!io_array_f64(&arr, i, &v) || !(v >= 0 && v <= 1e6))
            return SL_FAIL(err, FORMAT, "%s: %s[%d] is no limit", io_path(m), key, (int)i);
        if (i && v != *out)
            return SL_FAIL(err, UNSUPPORTED, "%s: %s differs between layers", io_path(m), key);
        *out = v;
    }
    return SL_OK;
}

sl_status arch_gguf_limit(const io_model *m, double def, struct arch_cfg *c, sl_err *err)
{
    double limit = def, shared = 0;
    SL_TRY(limit_of(m, "swiglu_clamp_exp", def, &limit, err));
    SL_TRY(limit_of(m, "swiglu_clamp_shexp", limit, &shared, err));
    if (shared != limit)
        return SL_FAIL(err, UNSUPPORTED, "%s: swiglu_clamp_exp %g and swiglu_clamp_shexp %g differ",
                       io_path(m), limit, shared);
    c->glu.limit = (float)limit;
    return SL_OK;
}

/* ---- writing ---- */

void arch_put_streams(const struct arch_cfg *c, const struct arch_keys *k)
{
    arch_put_int(k, "hyper_connection.count", c->n_stream);
    arch_put_int(k, "hyper_connection.sinkhorn_iterations", c->stream_rounds);
    arch_put_real(k, "hyper_connection.epsilon", (double)c->stream_eps);
}

void arch_put_limit(const struct arch_cfg *c, const struct arch_keys *k)
{
    float limit[1024 + 16];
    int n = c->n_layer + k->n_mtp;
    for (int i = 0; i < n; i++)
        limit[i] = c->glu.limit;
    arch_put_reals(k, "swiglu_clamp_exp", limit, n);
    arch_put_reals(k, "swiglu_clamp_shexp", limit, n);
}

void arch_jw_streams(const struct arch_cfg *c, struct json_w *w)
{
    text_jw_key_int(w, "hc_mult", c->n_stream);
    text_jw_key_int(w, "hc_sinkhorn_iters", c->stream_rounds);
    arch_jw_real(w, "hc_eps", (double)c->stream_eps);
}
