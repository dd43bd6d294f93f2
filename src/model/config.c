/* SPDX-License-Identifier: Apache-2.0 */
/* Which architecture a file is, and the checks that every configuration must pass before anything is computed from it. */
#include <stdio.h>
#include <string.h>

#include "model/model_internal.h"

#define F32_COLS 512 /* see model_wants_f32 */

static const struct model_arch *const archs[] = {
#define X(name) &model_arch_##name,
#include "model/arch_list.h"
#undef X
};

static bool name_in(const char *list, const char *name, size_t n)
{
    for (const char *p = list; *p;) {
        size_t len = strcspn(p, "|");
        if (len == n && memcmp(p, name, n) == 0) return true;
        p += len + (p[len] == '|');
    }
    return false;
}

static void known_names(char *buf, size_t n)
{
    size_t used = 0;
    buf[0] = 0;
    for (int i = 0; i < BASE_COUNT_OF(archs) && used < n; i++)
        used += (size_t)snprintf(buf + used, n - used, "%s%s", i ? " " : "", archs[i]->name);
}

/* Files that accompany a model are GGUF too. */
static sl_status check_type(const io_model *m, sl_err *err)
{
    static const char *const other[][2] = {
        {"adapter", "a LoRA adapter, not a model: merge it into its base model"},
        {"mmproj",
         "the part of a model that sees or hears (mmproj): give the file of its language model"},
        {"projector",
         "the part of a model that sees or hears: give the file of its language model"},
        {"imatrix", "an importance matrix, not a model"},
        {"vocab", "a vocabulary without weights"},
    };
    const char *type = NULL, *arch = NULL;
    uint64_t n = 0, n_arch = 0;
    if (io_meta_str(m, "general.type", &type, &n, NULL) != SL_OK) n = 0;
    for (int i = 0; i < BASE_COUNT_OF(other); i++)
        if (n == strlen(other[i][0]) && memcmp(type, other[i][0], n) == 0)
            return SL_FAIL(err, UNSUPPORTED, "%s: %s (general.type is %s)", io_path(m), other[i][1],
                           other[i][0]);
    if (n && !(n == 5 && memcmp(type, "model", 5) == 0))
        return SL_FAIL(err, UNSUPPORTED, "%s: general.type is %.*s, not model", io_path(m),
                       (int)BASE_MIN(n, 40), type);
    if (io_meta_str(m, "general.architecture", &arch, &n_arch, NULL) == SL_OK && n_arch == 4 &&
        memcmp(arch, "clip", 4) == 0)
        return SL_FAIL(err, UNSUPPORTED,
                       "%s: the part of a model that sees or hears (clip): give the file of its "
                       "language model",
                       io_path(m));
    return SL_OK;
}

static sl_status find_gguf(const io_model *m, const struct model_arch **out, sl_err *err)
{
    const char *name = NULL;
    uint64_t n = 0;
    SL_TRY(check_type(m, err));
    SL_TRY(io_meta_str(m, "general.architecture", &name, &n, err));
    const struct model_arch *found = NULL;
    for (int i = 0; i < BASE_COUNT_OF(archs); i++)
        if (name_in(archs[i]->gguf, name, n) && (!archs[i]->match_gguf || archs[i]->match_gguf(m)))
            found = archs[i];
    if (!found) {
        char known[128];
        known_names(known, sizeof known);
        return SL_FAIL(err, UNSUPPORTED, "%s: architecture '%.*s' is not supported (known: %s)",
                       io_path(m), (int)BASE_MIN(n, 40), name, known);
    }
    *out = found;
    return SL_OK;
}

static sl_status find_hf(const io_model *m, const struct model_arch **out, sl_err *err)
{
    const struct json *cfg = NULL;
    const char *type = NULL;
    SL_TRY(io_need_config(m, &cfg, err));
    SL_TRY(text_json_str(cfg, "model_type", NULL, &type, err));
    if (!type) return SL_FAIL(err, FORMAT, "config.json: model_type is missing");
    for (int i = 0; i < BASE_COUNT_OF(archs); i++)
        if (name_in(archs[i]->hf_type, type, strlen(type))) {
            *out = archs[i];
            return SL_OK;
        }
    char known[128];
    known_names(known, sizeof known);
    return SL_FAIL(err, UNSUPPORTED, "config.json: model_type '%.40s' is not supported (known: %s)",
                   type, known);
}

static sl_status check_mla(const struct model_cfg *c, sl_err *err)
{
    if (c->d_nope < 8 || c->d_nope % 8 || c->d_rope < 2 || c->d_rope % 2 || c->d_v < 8 || c->d_v % 8)
        return SL_FAIL(err, UNSUPPORTED, "head sizes nope %d, rope %d, v %d: multiples of 8, 2, 8 are supported",
                       c->d_nope, c->d_rope, c->d_v);
    if (c->kv_lora % 8)
        return SL_FAIL(err, UNSUPPORTED, "kv_lora_rank %d: multiples of 8 are supported", c->kv_lora);
    return SL_OK;
}

static sl_status check_moe(const struct model_cfg *c, sl_err *err)
{
    if (c->n_expert_used < 1 || c->n_expert_used > c->n_expert || c->n_expert_used > 64)
        return SL_FAIL(err, FORMAT, "experts used per token %d of %d", c->n_expert_used, c->n_expert);
    if (c->n_group < 1 || c->n_expert % c->n_group || c->n_group_used < 1 ||
        c->n_group_used > c->n_group)
        return SL_FAIL(err, FORMAT, "expert groups: %d of %d groups over %d experts", c->n_group_used,
                       c->n_group, c->n_expert);
    if (c->n_expert_used > c->n_expert / c->n_group * c->n_group_used)
        return SL_FAIL(err, FORMAT, "experts used per token %d, but the chosen groups hold %d",
                       c->n_expert_used, c->n_expert / c->n_group * c->n_group_used);
    if (!c->group_max && c->n_group > 1 && c->n_expert / c->n_group < 2)
        return SL_FAIL(err, FORMAT, "expert groups of %d: at least 2 are needed", c->n_expert / c->n_group);
    if (c->d_ff_expert < 1) return SL_FAIL(err, FORMAT, "expert feed-forward width %d", c->d_ff_expert);
    return SL_OK;
}

sl_status model_cfg_check(const struct model_cfg *c, sl_err *err)
{
    if (c->n_head % c->n_head_kv)
        return SL_FAIL(err, FORMAT, "%d query heads are not a multiple of %d key heads", c->n_head,
                       c->n_head_kv);
    if (c->kv_lora) SL_TRY(check_mla(c, err));
    else if (c->d_head % 8)
        return SL_FAIL(err, UNSUPPORTED, "head size %d: multiples of 8 are supported", c->d_head);
    if (c->n_rot < 2 || c->n_rot % 2 || (!c->kv_lora && c->n_rot > c->d_head))
        return SL_FAIL(err, FORMAT, "rotated dimensions %d of a head of %d", c->n_rot, c->d_head);
    if (c->n_expert) SL_TRY(check_moe(c, err));
    if (c->rope_kind != MODEL_ROPE_PLAIN && !(c->rope_factor >= 1e-3 && c->rope_factor <= 1e6))
        return SL_FAIL(err, FORMAT, "rope scaling factor %g", c->rope_factor);
    if (c->rope_kind == MODEL_ROPE_LLAMA3 && !(c->rope_high_freq > c->rope_low_freq && c->rope_low_freq > 0))
        return SL_FAIL(err, FORMAT, "rope scaling llama3: low_freq_factor %g, high_freq_factor %g",
                       c->rope_low_freq, c->rope_high_freq);
    return SL_OK;
}

sl_status model_cfg_read(const io_model *m, struct arena *a, struct model_cfg *c, sl_err *err)
{
    const struct model_arch *arch = NULL;
    memset(c, 0, sizeof *c);
    c->yarn_mscale = 1.0;
    c->route_scale = 1.0f;
    c->n_group = c->n_group_used = 1;
    if (io_model_kind(m) == IO_GGUF) {
        SL_TRY(find_gguf(m, &arch, err));
        SL_TRY(model_gguf_common(m, c, err));
    } else {
        SL_TRY(find_hf(m, &arch, err));
        SL_TRY(model_hf_common(io_config(m), c, err));
    }
    snprintf(c->arch, sizeof c->arch, "%s", arch->name);
    void *p = NULL;
    SL_TRY(mem_arena_array(a, (size_t)(c->n_layer + c->n_mtp), 1, &p, err));
    c->moe_layer = p;
    SL_TRY(mem_arena_array(a, (size_t)(c->n_layer + c->n_mtp), 1, &p, err));
    c->window_layer = p;
    if (io_model_kind(m) == IO_GGUF) {
        SL_TRY(arch->read_gguf(m, c, err));
        SL_TRY(model_gguf_layers(m, c, err));
        SL_TRY(model_keys_gguf(m, c, err));
    } else {
        sl_status st = arch->read_hf(io_config(m), c, err);
        if (!st) st = model_keys_hf(io_config(m), c, err);
        if (st) status_prefix(err, "config.json");
        SL_TRY(st);
    }
    for (int i = c->n_layer; i < c->n_layer + c->n_mtp; i++) c->moe_layer[i] = c->n_expert > 0;
    sl_status st = model_cfg_check(c, err);
    if (st) status_prefix(err, "%s", io_model_kind(m) == IO_GGUF ? io_path(m) : "config.json");
    return st;
}

struct dev_kv_shape model_kv_shape(const struct model_cfg *c, enum dev_kv_type type, int n_blk,
                                   int blk_tok)
{
    struct dev_kv_shape s = {.type = type, .n_layer = c->n_layer + c->n_mtp, .n_blk = n_blk, .blk_tok = blk_tok};
    if (c->kv_lora) {
        s.n_head = 1;
        s.d_k = c->kv_lora + c->d_rope;
    } else {
        s.n_head = c->n_head_kv;
        s.d_k = s.d_v = c->d_head;
    }
    return s;
}

bool model_wants_f32(const io_model *m, const struct model_cfg *cfg)
{
    if (cfg->d_model > F32_COLS) return false;
    for (int i = 0; i < io_n_tensor(m); i++) {
        const struct tensor *t = io_tensor(m, i);
        bool is_float = t->type == TENSOR_F32 || t->type == TENSOR_F16 || t->type == TENSOR_BF16;
        if (t->n_dim >= 2 && !is_float) return true;
    }
    return false;
}

/* A routed expert's tensor counts for K of E; the embedding for one row unless it is the head too. */
void model_count_params(const io_model *m, const struct model_cfg *cfg, int64_t *total, int64_t *active)
{
    double act = 0;
    *total = 0;
    for (int i = 0; i < io_n_tensor(m); i++) {
        const struct tensor *t = io_tensor(m, i);
        int64_t n = io_tensor_params(m, i);
        const char *s = t->name;
        *total += n;
        bool mtp = strstr(s, "nextn.") != NULL;
        int il = -1;
        if (sscanf(s, "model.layers.%d.", &il) == 1 || sscanf(s, "blk.%d.", &il) == 1)
            mtp = mtp || il >= cfg->n_layer;
        if (mtp) continue;
        if (strstr(s, "embed_tokens") || strncmp(s, "token_embd", 10) == 0) {
            if (cfg->tied_head) act += (double)n;
        } else if (strstr(s, "_exps.") || strstr(s, ".experts.")) {
            act += (double)n * cfg->n_expert_used / BASE_MAX(cfg->n_expert, 1);
        } else {
            act += (double)n;
        }
    }
    *active = (int64_t)act;
}
