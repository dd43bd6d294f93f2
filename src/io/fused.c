/* SPDX-License-Identifier: Apache-2.0 */
/* Experts that are stored as transformers keeps them in memory: one tensor of a layer,
 * experts.gate_up_proj [E, 2F, D] and experts.down_proj [E, D, F], with ..._scale_inv where they
 * are FP8. They become the matrices of the published checkpoints, experts.7.up_proj.weight, in
 * place.
 *
 * Those of gemma4 are the same without ".mlp". Those of gpt_oss lie otherwise: gate_up_proj
 * [E, D, 2F] and down_proj [E, F, D], input by input, with gate and up in turn; as MXFP4 in rows
 * again, ..._blocks [E, 2F, D/32, 16] and ..._scales [E, 2F, D/32], gate and up row by row in turn;
 * and there are biases [E, 2F] and [E, D]. */
#include <stdio.h>
#include <string.h>

#include "io/io_internal.h"

#define MAX_EXPERTS 65536

/* The second dimension of HALVES is one part after the other, of TURNS row by row in turn; ACROSS
 * has rows in the last one, in turn. */
enum lie { HALVES, TURNS, ACROSS };

struct fused {
    const char *tail, *suffix;
    int n_part;
    const char *part[2];
    enum lie lie;
    int n_dim;
};
static const struct fused halves[] = {
    {".mlp.experts.gate_up_proj", "weight", 2, {"gate_proj", "up_proj"}, HALVES, 3},
    {".mlp.experts.down_proj", "weight", 1, {"down_proj"}, HALVES, 3},
    {".mlp.experts.gate_up_proj_scale_inv",
     "weight_scale_inv",
     2,
     {"gate_proj", "up_proj"},
     HALVES,
     3},
    {".mlp.experts.down_proj_scale_inv", "weight_scale_inv", 1, {"down_proj"}, HALVES, 3},
    {NULL}};
static const struct fused bare[] = {
    {".experts.gate_up_proj", "weight", 2, {"gate_proj", "up_proj"}, HALVES, 3},
    {".experts.down_proj", "weight", 1, {"down_proj"}, HALVES, 3},
    {NULL}};
static const struct fused turns[] = {
    {".mlp.experts.gate_up_proj", "weight", 2, {"gate_proj", "up_proj"}, ACROSS, 3},
    {".mlp.experts.down_proj", "weight", 1, {"down_proj"}, ACROSS, 3},
    {".mlp.experts.gate_up_proj_blocks", "weight_blocks", 2, {"gate_proj", "up_proj"}, TURNS, 4},
    {".mlp.experts.down_proj_blocks", "weight_blocks", 1, {"down_proj"}, TURNS, 4},
    {".mlp.experts.gate_up_proj_scales", "weight_scales", 2, {"gate_proj", "up_proj"}, TURNS, 3},
    {".mlp.experts.down_proj_scales", "weight_scales", 1, {"down_proj"}, TURNS, 3},
    {".mlp.experts.gate_up_proj_bias", "bias", 2, {"gate_proj", "up_proj"}, TURNS, 2},
    {".mlp.experts.down_proj_bias", "bias", 1, {"down_proj"}, TURNS, 2},
    {NULL}};

/* Rows as long as the hidden vector are rows of gate and up; other architectures have such names
 * for matrices that lie the other way round. */
static bool has_rows_of(const io_model *m, int64_t d)
{
    for (int i = 0; i < m->n_tensor; i++) {
        const struct tensor *t = &m->tensor[i];
        if (t->n_dim == 3 && io_ends_with(t->name, halves[0].tail)) return t->shape[2] == d;
    }
    return false;
}

static const struct fused *forms_of(const io_model *m)
{
    const struct json *text = io_text_config(m->config);
    int64_t d = 0;
    if (text_json_is(text_json_get(m->config, "model_type"), "gpt_oss")) return turns;
    const struct json *type = text_json_get(text, "model_type");
    if (text_json_is(type, "gemma4_text") || text_json_is(type, "gemma4")) return bare;
    if (text_json_int(text, "hidden_size", 0, &d, NULL) != SL_OK || !has_rows_of(m, d)) return NULL;
    return halves;
}

/* How t is to be taken apart; NULL: not at all. */
static const struct fused *form_of(const struct fused *f, const struct tensor *t)
{
    if (t->n_dim < 2 || t->shape[0] > MAX_EXPERTS || !t->n_bytes) return NULL;
    for (; f->tail; f++) {
        int64_t rows = t->shape[f->lie == ACROSS ? 2 : 1];
        bool fits = t->n_dim == f->n_dim && rows % f->n_part == 0;
        if (f->lie != HALVES && tensor_dtype(t->type)->block != 1) fits = false;
        if (fits && io_ends_with(t->name, f->tail)) return f;
    }
    return NULL;
}

/* Part p of expert e of t, without its name. */
static struct tensor part_of(const struct tensor *t, const struct fused *f, int64_t e, int p)
{
    uint64_t n = (uint64_t)f->n_part, all = t->n_bytes / (uint64_t)t->shape[0], at = 0;
    uint64_t value = (uint64_t)tensor_dtype(t->type)->bytes, row = all / (uint64_t)t->shape[1];
    struct tensor out = {.type = t->type,
                         .n_dim = 2,
                         .shape = {t->shape[1] / f->n_part, t->shape[2], 1, 1, 1, 1},
                         .n_bytes = all / n,
                         .file = t->file};
    switch (f->lie) {
    case HALVES:
        at = (uint64_t)p * out.n_bytes;
        break;
    case TURNS:
        at = (uint64_t)p * row;
        out.shape[1] = (int64_t)(row / value);
        if (t->n_dim == 2) {
            out.n_dim = 1;
            out.col_bytes = n > 1 ? n * row : 0;
        } else if (n > 1)
            out.row_bytes = n * row;
        break;
    case ACROSS:
        at = (uint64_t)p * value;
        out.shape[0] = t->shape[2] / f->n_part;
        out.shape[1] = t->shape[1];
        out.row_bytes = n * value;
        out.col_bytes = row;
        break;
    }
    at += (uint64_t)e * all;
    out.data = (const uint8_t *)t->data + at;
    out.offset = t->offset + at;
    return out;
}

static sl_status take_apart(io_model *m, const struct tensor *t, const struct fused *f,
                            struct tensor *out, sl_err *err)
{
    char name[512];
    int n = (int)(strlen(t->name) - strlen(f->tail));
    const char *in = strncmp(f->tail, ".mlp", 4) == 0 ? ".mlp" : "";
    int64_t n_part = t->shape[0] * f->n_part;
    for (int64_t i = 0; i < n_part; i++) {
        char *copy = NULL;
        int k = snprintf(name, sizeof name, "%.*s%s.experts.%d.%s.%s", n, t->name, in,
                         (int)(i / f->n_part), f->part[i % f->n_part], f->suffix);
        if (k < 0 || (size_t)k >= sizeof name)
            return SL_FAIL(err, FORMAT, "%s: tensor %.90s: its name is too long",
                           io_short(m->file[t->file].path), t->name);
        SL_TRY(mem_arena_str(&m->arena, name, (size_t)k, &copy, err));
        out[i] = part_of(t, f, i / f->n_part, (int)(i % f->n_part));
        out[i].name = copy;
    }
    return SL_OK;
}

sl_status io_split_fused(io_model *m, sl_err *err)
{
    int64_t n = 0;
    bool any = false;
    void *p = NULL;
    const struct fused *forms = forms_of(m);
    if (!forms) return SL_OK;
    for (int i = 0; i < m->n_tensor; i++) {
        const struct fused *f = form_of(forms, &m->tensor[i]);
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
        const struct fused *f = form_of(forms, &m->tensor[i]);
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
