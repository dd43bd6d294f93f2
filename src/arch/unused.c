/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors that nothing reads. One that an architecture has no place for makes another model of it:
 * in a GGUF file that is refused, as everywhere; in a folder, where tools leave things behind, it
 * is named. */
#include <stdio.h>
#include <string.h>

#include "arch/arch.h"
#include "base/str.h"
#include "io/pack.h"

#define N_NAMED 3 /* in full; of the others their number */

bool arch_reads_bias(const io_model *m, const struct arch_cfg *c, enum arch_role role)
{
    const char *method = io_quant_method(m);
    if (io_model_kind(m) == IO_GGUF) return true;
    if (io_model_pack(m) && method && strcmp(method, "ascend") == 0)
        return true; /* what were its scales' */
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
    case ROLE_SINKS:
        return c->sinks;
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
    default:
        return false;
    }
}

static bool ffn_reads(const struct arch_cfg *c, const struct arch_name *id)
{
    bool moe = c->layer[id->layer].ffn == ARCH_MOE;
    switch (id->role) {
    case ROLE_GATE:
    case ROLE_UP:
    case ROLE_DOWN:
        return !moe;
    case ROLE_ROUTER:
        return moe;
    case ROLE_ROUTER_BIAS:
        return moe && c->route_bias;
    case ROLE_GATE_EXPS:
    case ROLE_UP_EXPS:
    case ROLE_GATE_UP_EXPS:
    case ROLE_DOWN_EXPS:
        return moe && id->expert < c->n_expert;
    case ROLE_GATE_SHEXP:
    case ROLE_UP_SHEXP:
    case ROLE_DOWN_SHEXP:
        return moe && c->n_shared > 0;
    default:
        return false;
    }
}

static bool is_norm(int role)
{
    return role == ROLE_ATTN_NORM || role == ROLE_FFN_NORM || role == ROLE_Q_NORM ||
           role == ROLE_K_NORM || role == ROLE_Q_A_NORM || role == ROLE_KV_A_NORM;
}

static bool reads(const io_model *m, const struct arch_cfg *c, const struct arch_name *id)
{
    bool hf = io_model_kind(m) == IO_HF;
    if (id->global >= 0) return id->global != GLOBAL_HEAD || !c->tied_head;
    if (id->layer >= c->n_layer + c->n_mtp) return false;
    if (id->layer >= c->n_layer) return true; /* MTP: read or left out as a whole */
    bool weight = strcmp(id->suffix, "weight") == 0 || (hf && io_quant_method(m) &&
                                                        (strcmp(id->suffix, "qweight") == 0 ||
                                                         strcmp(id->suffix, "weight_packed") == 0 ||
                                                         strcmp(id->suffix, "weight_blocks") == 0));
    bool bias =
        strcmp(id->suffix, "bias") == 0 && (id->role == ROLE_ROUTER_BIAS || !is_norm(id->role));
    if (id->role < 0 || !(weight || bias)) return false;
    if (bias && !c->kv_lora &&
        (id->role == ROLE_Q || id->role == ROLE_K || id->role == ROLE_V || id->role == ROLE_O))
        return arch_reads_bias(m, c, (enum arch_role)id->role);
    return id->role == ROLE_ATTN_NORM || id->role == ROLE_FFN_NORM ||
           attention_reads(c, (enum arch_role)id->role) || ffn_reads(c, id);
}

/* The head of a tied model, stored a second time. */
static bool is_same_head(const io_model *m, const struct tensor *t)
{
    const struct tensor *e = io_find(m, arch_global_name(io_model_kind(m), GLOBAL_EMBED));
    if (!e || !e->data || !t->data || e->type != t->type || e->n_bytes != t->n_bytes)
        return !t->data;
    return memcmp(e->data, t->data, t->n_bytes) == 0;
}

bool arch_is_beside_text(const io_model *m, const struct arch_name *id)
{
    const struct json *o = io_model_kind(m) == IO_HF ? io_config(m) : NULL;
    return io_text_config(o) != o && id->layer < 0 && id->global < 0;
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
           strncmp(t->name, "mtp.", 4) == 0 || strncmp(t->name, "model.mtp.", 10) == 0 ||
           (id->global == GLOBAL_HEAD && is_same_head(m, t));
}

sl_status arch_unused(const io_model *m, const struct arch_cfg *c, struct arena *a,
                      const char **text, sl_err *err)
{
    char names[200] = "", *copy = NULL;
    int n = 0, used = 0, n_unread = 0;
    *text = NULL;
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
    if (!n) return SL_OK;
    if (n > N_NAMED && used < (int)sizeof names)
        snprintf(names + used, sizeof names - (size_t)used, " and %d more", n - N_NAMED);
    const char *path = io_path(m);
    size_t len = strlen(path);
    if (len > 50) path += len - 50;
    if (io_model_kind(m) == IO_GGUF)
        return SL_FAIL(err, UNSUPPORTED, "%s: %s has no place for %d tensor%s: %s", path, c->arch,
                       n, n > 1 ? "s" : "", names);
    char line[400];
    snprintf(line, sizeof line, "%s: %d tensor%s not used by %s: %s", path, n,
             n > 1 ? "s are" : " is", c->arch, names);
    SL_TRY(mem_arena_str(a, line, strlen(line), &copy, err));
    *text = copy;
    return SL_OK;
}
