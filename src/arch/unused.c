/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors that nothing reads. One that an architecture has no place for makes another model of it:
 * in a GGUF file that is refused, as everywhere; in a folder, where tools leave things behind, it
 * is named. */
#include <stdio.h>
#include <string.h>

#include "arch/arch_internal.h"
#include "base/str.h"
#include "io/pack.h"

#define N_NAMED 3 /* in full; of the others their number */
#define MAX_NAME 128

static bool is_attention(int role)
{
    return role == ROLE_Q || role == ROLE_K || role == ROLE_V || role == ROLE_O;
}

static bool is_biased(const struct arch_cfg *c, enum arch_role role)
{
    return arch_in(c->biased, role);
}

bool arch_takes_bias(const struct arch_cfg *c, enum arch_role role)
{
    return is_biased(c, role) || (is_attention((int)role) && !c->kv_lora && !c->o_groups);
}

bool arch_must_bias(const struct arch_cfg *c, enum arch_role role)
{
    return is_biased(c, role) || (role != ROLE_O && c->attn_bias);
}

static const struct tensor *of_layer(const io_model *m, const struct arch_cfg *c, int layer,
                                     int role, const char *suffix, char name[MAX_NAME])
{
    arch_tensor_name(&c->naming, (enum arch_role)role, layer, suffix, name, MAX_NAME);
    return io_find(m, name);
}

/* Are there biases of the role that are stored among the scales of its matrices (ModelSlim)? In a
 * packed file they are biases like others; that they come from there the scales' names say. */
static bool is_among_scales(const io_model *m, const struct arch_cfg *c, int role)
{
    const char *method = io_quant_method(m);
    char name[MAX_NAME];
    if (!io_model_pack(m)) return method && strcmp(method, "ascend") == 0;
    for (int i = 0; i < c->n_layer + c->n_mtp; i++)
        if (of_layer(m, c, i, role, "quant_bias", name)) return true;
    return false;
}

bool arch_reads_bias(const io_model *m, const struct arch_cfg *c, enum arch_role role)
{
    if (is_biased(c, role) || !arch_takes_bias(c, role)) return is_biased(c, role);
    if (io_model_kind(m) == IO_GGUF) return true;
    if (io_model_pack(m) && is_among_scales(m, c, (int)role)) return true;
    return role == ROLE_O ? c->o_bias : c->attn_bias;
}

/* Does attention of that kind have the role? */
static bool attention_reads(const struct arch_cfg *c, enum arch_role role)
{
    switch (role) {
    case ROLE_Q:
        return !c->q_lora;
    case ROLE_O:
        return true;
    case ROLE_K:
    case ROLE_V:
        return !c->kv_lora;
    case ROLE_Q_NORM:
    case ROLE_K_NORM:
        return c->qk_norm;
    case ROLE_Q_A:
    case ROLE_Q_A_NORM:
    case ROLE_Q_B:
        return c->q_lora > 0;
    case ROLE_KV_A:
    case ROLE_KV_A_NORM:
    case ROLE_KV_B:
    case ROLE_K_B:
    case ROLE_V_B: /* kv_b beside its parts says the same */
        return c->kv_lora > 0;
    case ROLE_HEAD_GATE:
        return c->head_gate;
    default:
        return arch_in(c->per_head, role);
    }
}

static bool is_delta(int role)
{
    return role >= ROLE_DELTA_QKV && role <= ROLE_KDA_G_B;
}

/* Does a layer with a state have the role? */
static bool delta_reads(const struct arch_cfg *c, int role)
{
    switch (role) {
    case ROLE_DELTA_B:
    case ROLE_DELTA_DT:
    case ROLE_DELTA_DECAY:
    case ROLE_DELTA_NORM:
        return true;
    default:
        if (c->kda_whole && (role == ROLE_KDA_F_B || role == ROLE_KDA_G_B)) return false;
        if (c->kda) return is_attention(role) || role >= ROLE_KDA_CONV_Q;
        return is_delta(role) && role <= ROLE_DELTA_O;
    }
}

static bool is_index(int role)
{
    return (role >= ROLE_INDEX_Q && role <= ROLE_INDEX_W) || role == ROLE_INDEX_ENTRY_GATE ||
           role == ROLE_INDEX_ENTRY_APE;
}

static bool index_reads(const struct arch_cfg *c, const struct arch_name *id)
{
    bool blocks = c->index_blk > 0, bias = strcmp(id->suffix, "bias") == 0;
    if ((id->role == ROLE_INDEX_ENTRY_GATE || id->role == ROLE_INDEX_ENTRY_APE) && !c->index_pool)
        return false;
    if (id->role == (blocks ? ROLE_INDEX_W : ROLE_INDEX_Q_NORM) || (blocks && bias)) return false;
    return c->layer[id->layer].index == ARCH_INDEX_OWN;
}

/* Does a layer whose keys are values too have the role? */
static bool ckv_reads(const struct arch_cfg *c, const struct arch_name *id)
{
    const struct arch_layer *l = &c->layer[id->layer];
    switch (id->role) {
    case ROLE_Q_A:
    case ROLE_Q_A_NORM:
    case ROLE_Q_B:
    case ROLE_KV_A:
    case ROLE_KV_A_NORM:
    case ROLE_O_A:
    case ROLE_O:
        return true;
    case ROLE_ENTRY_KV:
    case ROLE_ENTRY_GATE:
    case ROLE_ENTRY_APE:
    case ROLE_ENTRY_NORM:
        return l->ratio > 0;
    case ROLE_INDEX_Q:
    case ROLE_INDEX_W:
    case ROLE_INDEX_ENTRY_KV:
    case ROLE_INDEX_ENTRY_GATE:
    case ROLE_INDEX_ENTRY_APE:
    case ROLE_INDEX_ENTRY_NORM:
        return l->index == ARCH_INDEX_OWN;
    default:
        return arch_in(c->per_head, id->role);
    }
}

/* Has a layer that norms what its sub-layers give the role? */
static bool sandwich_reads(const struct arch_cfg *c, const struct arch_name *id)
{
    bool moe = c->layer[id->layer].ffn == ARCH_MOE;
    if (!c->sandwich) return false;
    return id->role == ROLE_ATTN_POST_NORM || id->role == ROLE_FFN_POST_NORM ||
           id->role == ROLE_LAYER_SCALE || moe;
}

/* Does the layer have the role in place of its feed-forward network? */
static bool mixer_reads(const struct arch_cfg *c, const struct arch_name *id)
{
    if (id->role >= ROLE_ATTN_POST_NORM && id->role <= ROLE_LAYER_SCALE)
        return sandwich_reads(c, id);
    if (id->role == ROLE_V && arch_k_is_v(c, id->layer)) return false;
    if (id->role >= ROLE_HC_ATTN_FN && id->role <= ROLE_HC_FFN_SCALE)
        return c->n_stream > 0 && (id->layer < c->n_layer || arch_mtp_streams(c));
    if (c->layer[id->layer].mixer == ARCH_CKV) return ckv_reads(c, id);
    if (is_index(id->role)) return index_reads(c, id);
    bool delta = c->layer[id->layer].mixer == ARCH_DELTA;
    if (delta && (is_delta(id->role) || is_attention(id->role)))
        return delta_reads(c, id->role);
    if (delta || is_delta(id->role)) return false;
    return attention_reads(c, (enum arch_role)id->role);
}

static bool ffn_reads(const struct arch_cfg *c, const struct arch_name *id)
{
    bool moe = c->layer[id->layer].ffn == ARCH_MOE;
    switch (id->role) {
    case ROLE_GATE:
    case ROLE_UP:
    case ROLE_DOWN:
        return !moe || c->sandwich; /* beside experts */
    case ROLE_ROUTER:
        return moe;
    case ROLE_ROUTER_BIAS:
        return moe && c->route_bias && !c->layer[id->layer].hash;
    case ROLE_EXPERT_OF:
        return moe && c->layer[id->layer].hash;
    case ROLE_GATE_EXPS:
    case ROLE_UP_EXPS:
    case ROLE_GATE_UP_EXPS:
    case ROLE_DOWN_EXPS:
        return moe && id->expert < c->n_expert;
    case ROLE_GATE_SHEXP:
    case ROLE_UP_SHEXP:
    case ROLE_DOWN_SHEXP:
        return moe && c->n_shared > 0;
    case ROLE_SHEXP_GATE:
        return moe && c->shared_gate;
    default:
        return false;
    }
}

static bool bias_reads(const io_model *m, const struct arch_cfg *c, const struct arch_name *id)
{
    bool reads = arch_reads_bias(m, c, (enum arch_role)id->role);
    if (id->role == ROLE_INDEX_K_NORM) return index_reads(c, id);
    if (is_attention(id->role)) return reads;
    return (id->role == ROLE_ROUTER_BIAS || reads) && ffn_reads(c, id);
}

/* Is it a role that MTP layers alone have? Of several streams these have others. */
static bool is_of_mtp(const struct arch_cfg *c, int role, bool *reads)
{
    bool streams = role >= ROLE_MTP_E && role <= ROLE_MTP_HC_SCALE;
    *reads = role == ROLE_MTP_EH ? !arch_mtp_streams(c) : !streams || arch_mtp_streams(c);
    return streams || (role >= ROLE_MTP_EH && role <= ROLE_MTP_HEAD_NORM);
}

static bool reads(const io_model *m, const struct arch_cfg *c, const struct arch_name *id)
{
    bool hf = io_model_kind(m) == IO_HF;
    if (id->global >= GLOBAL_HC_FN) return c->n_stream && !c->stream_mean;
    if (id->global >= 0) return id->global != GLOBAL_HEAD || !c->tied_head;
    bool mtp = id->layer >= c->n_layer, mtp_reads; /* read or left out as a whole */
    if (id->layer >= c->n_layer + c->n_mtp) return false;
    bool coded = hf && (io_quant_method(m) || io_model_pack(m)); /* packed files do not say it */
    bool weight =
        strcmp(id->suffix, "weight") == 0 ||
        (coded && (strcmp(id->suffix, "qweight") == 0 || strcmp(id->suffix, "weight_packed") == 0 ||
                   strcmp(id->suffix, "weight_blocks") == 0));
    if (id->role < 0) return false;
    if (strcmp(id->suffix, "bias") == 0) return bias_reads(m, c, id);
    if (is_of_mtp(c, id->role, &mtp_reads)) return weight && mtp && mtp_reads;
    return weight && (id->role == ROLE_ATTN_NORM || id->role == ROLE_FFN_NORM ||
                      mixer_reads(c, id) || ffn_reads(c, id));
}

/* Two matrices of the same values, whatever their types. */
static bool same_values(const struct tensor *a, const struct tensor *b)
{
    float x[256], y[256];
    int64_t n = tensor_count(a);
    if (a->type == b->type && a->n_bytes == b->n_bytes)
        return memcmp(a->data, b->data, a->n_bytes) == 0;
    if (tensor_count(b) != n || tensor_dtype(a->type)->block != 1 ||
        tensor_dtype(b->type)->block != 1 || !n)
        return false;
    for (int64_t at = 0, step; at < n; at += step) {
        uint64_t i = (uint64_t)at, all = (uint64_t)n;
        step = BASE_MIN(n - at, (int64_t)BASE_COUNT_OF(x));
        tensor_dequant(a->type, (const uint8_t *)a->data + i * (a->n_bytes / all), step, x);
        tensor_dequant(b->type, (const uint8_t *)b->data + i * (b->n_bytes / all), step, y);
        if (memcmp(x, y, (size_t)step * sizeof *x) != 0) return false;
    }
    return true;
}

bool arch_head_differs(const io_model *m, const struct arch_cfg *c)
{
    const char *head = arch_global_name(&c->naming, GLOBAL_HEAD);
    const struct tensor *t = io_find(m, head),
                        *e = io_find(m, arch_global_name(&c->naming, GLOBAL_EMBED));
    if (io_model_pack(m)) return io_pack_find(io_model_pack(m), head) != NULL;
    if (!t) return io_has_weight(m, head);
    return e && e->data && t->data && tensor_dtype_is_weight(t->type) &&
           tensor_dtype_is_weight(e->type) && !same_values(e, t);
}

bool arch_is_beside_text(const io_model *m, const struct arch_name *id)
{
    const struct json *o = io_model_kind(m) == IO_HF ? io_config(m) : NULL;
    return io_text_config(o) != o && id->layer < 0 && id->global < 0;
}

bool arch_is_mtp_left(const struct arch_cfg *c, const char *name, const struct arch_name *id)
{
    int end = c->n_layer + c->n_mtp;
    if (id->layer >= end && id->layer < end + c->n_mtp_left) return true;
    if (id->role >= 0 && id->layer >= 0 && id->layer < end) return false;
    return strncmp(name, "mtp.", 4) == 0 || strncmp(name, "model.mtp.", 10) == 0;
}

/* Things that change nothing: tables that the configuration says anyway, scales of caches and of
 * inputs, biases of zeros, layers after the last. */
static bool is_harmless(const io_model *m, const struct arch_cfg *c, const struct tensor *t,
                        const struct arch_name *id)
{
    static const char *const both[] = {".attn_rot_embd",         ".attn_rot_embd.weight",
                                       ".rotary_emb.inv_freq",   ".rotary_emb.cos_cached",
                                       ".rotary_emb.sin_cached", ".input_scale"};
    static const char *const hf[] = {".k_scale",  ".v_scale",     ".q_scale",
                                     ".kv_scale", ".masked_bias", ".prob_output_scale"};
    for (int i = 0; i < BASE_COUNT_OF(both); i++)
        if (str_ends(t->name, both[i])) return true;
    if (arch_is_mtp_left(c, t->name, id)) return true;
    if (str_ends(t->name, ".bias") && (!t->data || (t->n_bytes && tensor_is_zero(t)))) return true;
    if (io_model_kind(m) == IO_GGUF) {
        if (strcmp(t->name, "rope_freqs.weight") == 0) return true; /* read */
        const struct tensor *w =
            str_ends(t->name, ".scale")
                ? io_findf(m, "%.*s.weight", (int)(strlen(t->name) - 6), t->name)
                : NULL;
        return w && w->type == TENSOR_NVFP4;
    }
    for (int i = 0; i < BASE_COUNT_OF(hf); i++)
        if (str_ends(t->name, hf[i])) return true;
    return io_is_beside(m, t->name) || id->layer >= c->n_layer ||
           (id->global == GLOBAL_HEAD && (!t->data || tensor_dtype_is_weight(t->type)));
}

/* ---- what a layer lacks that others have ---- */

/* A bias of attention, or the scale of an NVFP4 matrix: where one of the role is there and changes
 * something, every layer that has the role's matrix must have its own. */
static sl_status check_even(const io_model *m, const struct arch_cfg *c, int role,
                            const char *suffix, sl_err *err)
{
    char name[MAX_NAME], other[MAX_NAME] = "";
    bool scale = strcmp(suffix, "scale") == 0;
    int n_layer = c->n_layer + c->n_mtp;
    for (int i = 0; i < n_layer && !other[0]; i++) {
        const struct tensor *t = of_layer(m, c, i, role, suffix, name);
        if (t && (scale || !t->data || !tensor_is_zero(t)))
            snprintf(other, sizeof other, "%s", name);
    }
    for (int i = 0; i < n_layer && other[0]; i++) {
        const struct tensor *w = of_layer(m, c, i, role, "weight", name);
        if (scale && (!w || w->type != TENSOR_NVFP4)) continue;
        if (!w && !io_has_weight(m, name)) continue;
        if (!of_layer(m, c, i, role, suffix, name))
            return SL_FAIL(err, FORMAT, "%s: %s is missing, though %s is there", io_path(m), name,
                           other);
    }
    return SL_OK;
}

/* One of two forms of the experts' matrices, and of the delta layers'. */
static sl_status check_fused(const io_model *m, const struct arch_cfg *c, sl_err *err)
{
    static const int form[][2] = {
        {ROLE_GATE_UP_EXPS, ROLE_GATE_EXPS}, {ROLE_GATE_UP_EXPS, ROLE_UP_EXPS},
        {ROLE_DELTA_QKVZ, ROLE_DELTA_QKV},   {ROLE_DELTA_QKVZ, ROLE_DELTA_Z},
        {ROLE_DELTA_BA, ROLE_DELTA_B},       {ROLE_DELTA_BA, ROLE_DELTA_A}};
    char one[MAX_NAME], all[MAX_NAME];
    for (int i = 0; i < c->n_layer + c->n_mtp; i++)
        for (int k = 0; k < BASE_COUNT_OF(form); k++)
            if (of_layer(m, c, i, form[k][0], "weight", all) &&
                of_layer(m, c, i, form[k][1], "weight", one))
                return SL_FAIL(err, FORMAT, "%s: %s and %s are two forms of the same matrices",
                               io_path(m), all, one);
    return SL_OK;
}

static sl_status check_layers(const io_model *m, const struct arch_cfg *c, sl_err *err)
{
    static const int attention[] = {ROLE_Q, ROLE_K, ROLE_V, ROLE_O};
    for (int i = 0; i < BASE_COUNT_OF(attention) && !c->kv_lora; i++)
        if (arch_reads_bias(m, c, (enum arch_role)attention[i]) &&
            !is_among_scales(m, c, attention[i]))
            SL_TRY(check_even(m, c, attention[i], "bias", err));
    for (int r = 0; r < N_ROLE && io_model_kind(m) == IO_GGUF; r++)
        SL_TRY(check_even(m, c, r, "scale", err));
    return check_fused(m, c, err);
}

/* GGUF counts MTP layers among the others, so a wrong number would take the last ones away. */
static sl_status check_mtp(const io_model *m, const struct arch_cfg *c, sl_err *err)
{
    char name[MAX_NAME], eh[MAX_NAME];
    int n = c->n_mtp + c->n_mtp_left;
    for (int i = c->n_layer; i < c->n_layer + n && io_model_kind(m) == IO_GGUF; i++)
        if (of_layer(m, c, i, ROLE_ATTN_NORM, "weight", name) &&
            !of_layer(m, c, i, arch_mtp_mark(c), "weight", eh) &&
            !of_layer(m, c, i, ROLE_MTP_EH, "weight", eh))
            return SL_FAIL(err, FORMAT,
                           "%s: nextn_predict_layers is %d, but layer %d is none of these: %s is "
                           "missing",
                           io_path(m), n, i, eh);
    return SL_OK;
}

sl_status arch_unused(const io_model *m, const struct arch_cfg *c, struct arena *a,
                      const char **text, sl_err *err)
{
    char names[200] = "", *copy = NULL;
    int n = 0, used = 0, n_unread = 0;
    *text = NULL;
    SL_TRY(check_mtp(m, c, err));
    for (int i = 0; i < io_n_tensor(m); i++) {
        const struct tensor *t = io_tensor(m, i);
        struct arch_name id;
        arch_name_parse(&c->naming, t->name, &id);
        if (arch_is_beside_text(m, &id) || reads(m, c, &id) || is_harmless(m, c, t, &id)) continue;
        if (n++ < N_NAMED && used < (int)sizeof names)
            used += snprintf(names + used, sizeof names - (size_t)used, "%s%.56s",
                             n > 1 ? ", " : "", t->name);
    }
    for (const char *name; (name = io_unread_name(m, n_unread)); n_unread++)
        if (n++ < N_NAMED && used < (int)sizeof names)
            used += snprintf(names + used, sizeof names - (size_t)used, "%s%.56s",
                             n > 1 ? ", " : "", name);
    if (!n && !c->head_apart) return check_layers(m, c, err);
    if (n > N_NAMED && used < (int)sizeof names)
        snprintf(names + used, sizeof names - (size_t)used, " and %d more", n - N_NAMED);
    const char *path = io_path(m);
    size_t len = strlen(path);
    if (len > 50) path += len - 50;
    if (io_model_kind(m) == IO_GGUF)
        return SL_FAIL(err, UNSUPPORTED, "%s: %s has no place for %d tensor%s: %s", path, c->arch,
                       n, n > 1 ? "s" : "", names);
    char line[600];
    int len_line = snprintf(line, sizeof line, "%s: ", path);
    if (n)
        len_line += snprintf(line + len_line, sizeof line - (size_t)len_line,
                             "%d tensor%s not used by %s: %s%s", n, n > 1 ? "s are" : " is",
                             c->arch, names, c->head_apart ? "; " : "");
    if (c->head_apart)
        snprintf(line + len_line, sizeof line - (size_t)len_line,
                 "lm_head.weight is used, though tie_word_embeddings is true: it differs from the "
                 "embedding");
    SL_TRY(mem_arena_str(a, line, strlen(line), &copy, err));
    *text = copy;
    return check_layers(m, c, err);
}
