/* SPDX-License-Identifier: Apache-2.0 */
/* Frequencies of the rotary embedding: plain, linear, llama3 and YaRN (transformers'
 * modeling_rope_utils is the reference for their formulas), and GGUF's rope_freqs.weight. Angles
 * are position * freq in f32, as there. */
#include <math.h>

#include "model/model_internal.h"

/* llama3: long waves are slowed by factor, short ones kept, those between blended. */
static double llama3(const struct arch_cfg *c, double f)
{
    const double two_pi = 6.283185307179586;
    double wave = two_pi / f;
    if (wave < c->rope_orig_ctx / c->rope_high_freq) return f;
    if (wave > c->rope_orig_ctx / c->rope_low_freq) return f / c->rope_factor;
    double s =
        (c->rope_orig_ctx / wave - c->rope_low_freq) / (c->rope_high_freq - c->rope_low_freq);
    return (1 - s) * f / c->rope_factor + s * f;
}

/* The dimension whose wave turns n_turn times over the original context. */
static double yarn_dim(const struct arch_cfg *c, double theta, double n_turn)
{
    const double two_pi = 6.283185307179586;
    return c->n_rot * log(c->rope_orig_ctx / (n_turn * two_pi)) / (2 * log(theta));
}

static double yarn(const struct arch_cfg *c, double theta, int i, double f)
{
    double lo = yarn_dim(c, theta, c->yarn_beta_fast), hi = yarn_dim(c, theta, c->yarn_beta_slow);
    lo = fmax(c->yarn_real ? lo : floor(lo), 0);
    hi = fmin(c->yarn_real ? hi : ceil(hi), c->n_rot - 1);
    if (lo == hi) hi += 0.001;
    double ramp = fmin(fmax((i - lo) / (hi - lo), 0), 1);
    return f / c->rope_factor * ramp + f * (1 - ramp);
}

static void fill(const struct arch_cfg *c, double theta, bool scaled, float *freq)
{
    for (int i = 0; i < c->n_rot / 2; i++) {
        freq[i] = 0; /* a pair that is not rotated */
        if (c->n_turn && i >= c->n_turn) continue;
        double f = 1.0 / pow(theta, 2.0 * i / c->n_rot);
        if (scaled && c->rope_kind == ARCH_ROPE_LINEAR) f /= c->rope_factor;
        else if (scaled && c->rope_kind == ARCH_ROPE_LLAMA3) f = llama3(c, f);
        else if (scaled && c->rope_kind == ARCH_ROPE_YARN) f = yarn(c, theta, i, f);
        freq[i] = (float)f;
    }
}

sl_status model_rope_freqs(struct model *m, const io_model *io, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    bool apart = c->entry_theta > 0; /* layers with entries have their own, which are scaled */
    int n = c->n_rot / 2, win = c->d_head_win / 2;
    void *p = NULL;
    SL_TRY(mem_arena_array(&m->arena, 2 * (size_t)n + (size_t)win + 1, sizeof(float), &p, err));
    m->rope_freq = p;
    if (win) m->win_freq = m->rope_freq + 2 * n;
    for (int i = 0; i < win; i++)
        m->win_freq[i] = (float)(1.0 / pow(c->theta_win, 2.0 * i / c->d_head_win));
    fill(c, c->rope_theta, !apart, m->rope_freq);
    if (apart) fill(c, c->entry_theta, true, m->entry_freq = m->rope_freq + n);
    const struct tensor *t = m->kind == IO_GGUF ? io_find(io, "rope_freqs.weight") : NULL;
    if (!t || win) return SL_OK; /* n_turn is what it says */
    if (t->type != TENSOR_F32 || tensor_count(t) != n || !t->data)
        return SL_FAIL(err, FORMAT, "rope_freqs.weight: %d f32 values are expected", n);
    for (int i = 0; i < n; i++) {
        float f;
        tensor_dequant(TENSOR_F32, (const char *)t->data + 4 * i, 1, &f);
        if (!(f > 0) || isinf(f))
            return SL_FAIL(err, FORMAT, "rope_freqs.weight[%d] is %g", i, (double)f);
        m->rope_freq[i] /= f;
    }
    return SL_OK;
}
