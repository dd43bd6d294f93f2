/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors by name: role, layer and expert of a name, the name in the other kind of file, and what a
 * tensor is for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/quant_internal.h"

static const struct {
    const char *text;
    int gguf, where;
} types[] = {
#define X(name, text, gguf, where) {text, gguf, where},
    QUANT_TYPE_LIST(X)
#undef X
};

const char *quant_type_text(enum quant_type t)
{
    return t < QUANT_N_TYPE ? types[t].text : "";
}

bool quant_type_from_text(const char *text, enum quant_type *out)
{
    for (int i = 0; i < QUANT_N_TYPE; i++)
        if (strcmp(types[i].text, text) == 0) {
            *out = (enum quant_type)i;
            return true;
        }
    return false;
}

void quant_types_of(enum io_kind kind, char *buf, size_t n)
{
    size_t used = 0;
    buf[0] = 0;
    for (int i = 0; i < QUANT_N_TYPE && used < n; i++)
        if (types[i].where & (kind == IO_GGUF ? 1 : 2))
            used += (size_t)snprintf(buf + used, n - used, "%s%s", used ? " " : "", types[i].text);
}

const char *quant_class_text(enum quant_class c)
{
    static const char *const text[] = {
#define X(name, text) text,
        QUANT_CLASS_LIST(X)
#undef X
    };
    return text[c];
}

void quant_name_in(const struct arch_naming *by, const struct arch_name *id, char *buf, int n)
{
    buf[0] = 0;
    if (id->global >= 0)
        snprintf(buf, (size_t)n, "%s", arch_global_name(by, (enum arch_global)id->global));
    else if (id->role >= 0 && arch_role_name_at(by, (enum arch_role)id->role, id->layer)[0])
        arch_name_put(by, id, buf, n);
}

static enum quant_class class_by_name(const char *name, int n_dim)
{
    size_t n = strlen(name);
    if (n_dim < 2 || n < 8 || strcmp(name + n - 7, ".weight") != 0 || strstr(name, "norm") ||
        strstr(name, "nextn") || strstr(name, "gate_inp") || strstr(name, "mlp.gate.") ||
        strstr(name, "conv") || strstr(name, "indexer.proj") ||
        strstr(name, "indexer.weights_proj"))
        return QUANT_CLASS_OTHER;
    if (strstr(name, "_exps") || strstr(name, ".experts.")) return QUANT_CLASS_EXPERTS;
    if (strstr(name, "attn")) return QUANT_CLASS_ATTN;
    return strstr(name, "ffn") || strstr(name, "mlp") ? QUANT_CLASS_FFN : QUANT_CLASS_OTHER;
}

enum quant_class quant_class_of(const struct arch_name *id, const char *name, int n_dim)
{
    if (id->global == GLOBAL_EMBED) return QUANT_CLASS_EMBED;
    if (id->global == GLOBAL_HEAD) return QUANT_CLASS_HEAD;
    if (id->global >= 0 || strcmp(id->suffix, "weight") != 0) {
        return id->global >= 0 || id->role >= 0 ? QUANT_CLASS_OTHER : class_by_name(name, n_dim);
    }
    switch (id->role) {
    case ROLE_Q:
    case ROLE_K:
    case ROLE_V:
    case ROLE_O:
    case ROLE_Q_A:
    case ROLE_Q_B:
    case ROLE_KV_A:
    case ROLE_KV_B:
    case ROLE_K_B:
    case ROLE_V_B:
    case ROLE_O_A:
    case ROLE_INDEX_Q:
    case ROLE_INDEX_K:
    case ROLE_DELTA_QKV:
    case ROLE_DELTA_Z:
    case ROLE_DELTA_QKVZ:
    case ROLE_DELTA_O:
    case ROLE_KDA_G_A:
    case ROLE_KDA_G_B:
        return QUANT_CLASS_ATTN;
    case ROLE_GATE:
    case ROLE_UP:
    case ROLE_DOWN:
    case ROLE_GATE_SHEXP:
    case ROLE_UP_SHEXP:
    case ROLE_DOWN_SHEXP:
        return QUANT_CLASS_FFN;
    case ROLE_GATE_EXPS:
    case ROLE_UP_EXPS:
    case ROLE_GATE_UP_EXPS:
    case ROLE_DOWN_EXPS:
        return QUANT_CLASS_EXPERTS;
    case ROLE_MTP_EMBED:
        return QUANT_CLASS_EMBED;
    case ROLE_MTP_HEAD:
        return QUANT_CLASS_HEAD;
    default:
        return QUANT_CLASS_OTHER;
    }
}

bool quant_input_of(const struct arch_cfg *c, const struct arch_name *id, enum quant_input *in)
{
    if (id->global == GLOBAL_HEAD) {
        *in = QUANT_IN_HEAD;
        return true;
    }
    if (id->global >= 0 || strcmp(id->suffix, "weight") != 0) return false;
    bool routed = id->role == ROLE_ROUTER || id->role == ROLE_GATE_EXPS ||
                  id->role == ROLE_UP_EXPS || id->role == ROLE_GATE_UP_EXPS;
    if (c->sandwich && routed) return false; /* they have inputs of their own, which none is told */
    switch (id->role) {
    case ROLE_Q:
    case ROLE_K:
    case ROLE_V:
    case ROLE_Q_A:
    case ROLE_KV_A:
    case ROLE_INDEX_K:
    case ROLE_INDEX_W:
    case ROLE_DELTA_QKV:
    case ROLE_DELTA_Z:
    case ROLE_DELTA_QKVZ:
    case ROLE_DELTA_B:
    case ROLE_DELTA_A:
    case ROLE_DELTA_BA:
    case ROLE_HEAD_GATE:
    case ROLE_KDA_F_A:
    case ROLE_KDA_G_A:
    case ROLE_ENTRY_KV:
    case ROLE_ENTRY_GATE:
    case ROLE_INDEX_ENTRY_KV:
    case ROLE_INDEX_ENTRY_GATE:
        *in = QUANT_IN_ATTN;
        return true;
    case ROLE_Q_B:
        *in = QUANT_IN_Q_B;
        return true;
    case ROLE_INDEX_Q:
        *in = c->q_lora ? QUANT_IN_Q_B : QUANT_IN_ATTN;
        return true;
    case ROLE_KV_B:
    case ROLE_V_B: /* the latent; attn_k_b has other columns */
        *in = QUANT_IN_KV_B;
        return true;
    case ROLE_O:
        *in = QUANT_IN_O;
        return true;
    case ROLE_GATE:
    case ROLE_UP:
    case ROLE_GATE_EXPS:
    case ROLE_UP_EXPS:
    case ROLE_GATE_UP_EXPS:
    case ROLE_GATE_SHEXP:
    case ROLE_UP_SHEXP:
    case ROLE_ROUTER:
    case ROLE_SHEXP_GATE:
        *in = QUANT_IN_FFN;
        return true;
    case ROLE_DOWN:
        *in = QUANT_IN_DOWN;
        return true;
    case ROLE_DOWN_SHEXP:
        *in = QUANT_IN_DOWN_SHEXP;
        return true;
    case ROLE_DOWN_EXPS:
        *in = QUANT_IN_DOWN_EXPS;
        return true;
    default:
        return false;
    }
}

/* ---- weights of quantised sources ---- */

static bool cut_tail(const char *name, const char *tail, char *buf, int n)
{
    size_t len = strlen(name), k = strlen(tail);
    if (len <= k || strcmp(name + len - k, tail) != 0) return false;
    snprintf(buf, (size_t)n, "%.*s", (int)(len - k), name);
    return true;
}

/* Old GPTQ folders hold biases of zeros for every matrix; nothing has a place for those of an
 * MLP. */
static bool is_no_bias(const struct tensor *t)
{
    char base[QUANT_MAX_NAME];
    return strstr(t->name, ".mlp.") && cut_tail(t->name, "_proj.bias", base, sizeof base) &&
           tensor_is_zero(t);
}

bool quant_weight_name(const io_model *m, int i, char *buf, int n)
{
    static const char *const packed[] = {".qweight", ".weight_packed", ".weight_blocks"};
    const struct tensor *t = io_tensor(m, i);
    char base[QUANT_MAX_NAME];
    snprintf(buf, (size_t)n, "%s", t->name);
    if (io_model_kind(m) == IO_GGUF) {
        if (!cut_tail(t->name, ".scale", base, sizeof base)) return true;
        const struct tensor *w = io_findf(m, "%s.weight", base);
        return !w || w->type != TENSOR_NVFP4;
    }
    for (int k = 0; k < BASE_COUNT_OF(packed); k++)
        if (cut_tail(t->name, packed[k], base, sizeof base)) {
            snprintf(buf, (size_t)n, "%s.weight", base);
            return true;
        }
    return !io_is_beside(m, t->name) && !is_no_bias(t);
}
