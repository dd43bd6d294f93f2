/* SPDX-License-Identifier: Apache-2.0 */
/* Experts that are stored as transformers keeps them in memory: one tensor of a layer,
 * experts.gate_up_proj [E, 2F, D] and experts.down_proj [E, D, F], with ..._scale_inv where they
 * are FP8. They become the matrices of the published checkpoints, experts.7.up_proj.weight, in
 * place. */
#include <stdio.h>
#include <string.h>

#include "io/io_internal.h"

#define MAX_EXPERTS 65536

static const struct fused {
    const char *tail, *suffix;
    int n_part;
    const char *part[2];
} fused[] = {
    {".mlp.experts.gate_up_proj", "weight", 2, {"gate_proj", "up_proj"}},
    {".mlp.experts.down_proj", "weight", 1, {"down_proj"}},
    {".mlp.experts.gate_up_proj_scale_inv", "weight_scale_inv", 2, {"gate_proj", "up_proj"}},
    {".mlp.experts.down_proj_scale_inv", "weight_scale_inv", 1, {"down_proj"}},
};

/* How t is to be taken apart; NULL: not at all. */
static const struct fused *form_of(const struct tensor *t)
{
    if (t->n_dim != 3 || t->shape[0] > MAX_EXPERTS || !t->n_bytes) return NULL;
    for (int i = 0; i < BASE_COUNT_OF(fused); i++)
        if (io_ends_with(t->name, fused[i].tail) && t->shape[1] % fused[i].n_part == 0)
            return &fused[i];
    return NULL;
}

/* Other architectures have such names for matrices that lie the other way round. */
static bool is_ours(const io_model *m)
{
    static const char *const type[] = {"qwen3_moe", "deepseek_v2", "deepseek_v3", "kimi_k2"};
    const struct json *v = text_json_get(m->config, "model_type");
    for (int i = 0; i < BASE_COUNT_OF(type); i++)
        if (text_json_is(v, type[i])) return true;
    return false;
}

static sl_status take_apart(io_model *m, const struct tensor *t, const struct fused *f,
                            struct tensor *out, sl_err *err)
{
    char name[512];
    int n = (int)(strlen(t->name) - strlen(f->tail));
    int64_t n_part = t->shape[0] * f->n_part;
    uint64_t bytes = t->n_bytes / (uint64_t)n_part;
    for (int64_t i = 0; i < n_part; i++) {
        char *copy = NULL;
        int k = snprintf(name, sizeof name, "%.*s.mlp.experts.%d.%s.%s", n, t->name,
                         (int)(i / f->n_part), f->part[i % f->n_part], f->suffix);
        if (k < 0 || (size_t)k >= sizeof name)
            return SL_FAIL(err, FORMAT, "%s: tensor %.90s: its name is too long",
                           io_short(m->file[t->file].path), t->name);
        SL_TRY(mem_arena_str(&m->arena, name, (size_t)k, &copy, err));
        out[i] = (struct tensor){.name = copy,
                                 .type = t->type,
                                 .n_dim = 2,
                                 .shape = {t->shape[1] / f->n_part, t->shape[2], 1, 1, 1, 1},
                                 .data = (const uint8_t *)t->data + (uint64_t)i * bytes,
                                 .n_bytes = bytes,
                                 .offset = t->offset + (uint64_t)i * bytes,
                                 .file = t->file};
    }
    return SL_OK;
}

sl_status io_split_fused(io_model *m, sl_err *err)
{
    int64_t n = 0;
    bool any = false;
    void *p = NULL;
    if (!is_ours(m)) return SL_OK;
    for (int i = 0; i < m->n_tensor; i++) {
        const struct fused *f = form_of(&m->tensor[i]);
        any = any || f;
        n += f ? m->tensor[i].shape[0] * f->n_part : 1;
    }
    if (!any) return SL_OK;
    if (n > INT32_MAX / 2)
        return SL_FAIL(err, LIMIT, "%s: %lld matrices", io_short(m->path), (long long)n);
    SL_TRY(mem_arena_array(&m->arena, (size_t)n, sizeof *m->tensor, &p, err));
    struct tensor *t = p;
    n = 0;
    for (int i = 0; i < m->n_tensor; i++) {
        const struct fused *f = form_of(&m->tensor[i]);
        if (f)
            SL_TRY(take_apart(m, &m->tensor[i], f, t + n, err));
        else
            t[n] = m->tensor[i];
        n += f ? m->tensor[i].shape[0] * f->n_part : 1;
    }
    m->tensor = t;
    m->n_tensor = (int)n;
    return io_index_tensors(m, err);
}
