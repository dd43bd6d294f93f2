/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor names in both kinds of files, by role: for loading, and for converting one kind into the
 * other. The table holds the usual names; an architecture lists the roles that it names
 * otherwise (arch/row.h). Names that tools put words before are made plain by io when a folder is
 * opened ("model." is the only prefix here). */
#ifndef ARCH_NAMES_H
#define ARCH_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "io/io.h"
#include "tensor/per_head.h"

/* X(ROLE, GGUF name within the block, HF name within the layer); "" = that kind has none; a name
 * that ends with '.' is the tensor's own, without a suffix. The roles of PER_HEAD_LIST, whose
 * rows are the same and a word more, come after these. */
#define ARCH_ROLE_LIST(X)                                                                          \
    X(ATTN_NORM, "attn_norm", "input_layernorm")                                                   \
    X(FFN_NORM, "ffn_norm", "post_attention_layernorm")                                            \
    X(Q, "attn_q", "self_attn.q_proj")                                                             \
    X(K, "attn_k", "self_attn.k_proj")                                                             \
    X(V, "attn_v", "self_attn.v_proj")                                                             \
    X(O, "attn_output", "self_attn.o_proj")                                                        \
    X(Q_NORM, "attn_q_norm", "self_attn.q_norm")                                                   \
    X(K_NORM, "attn_k_norm", "self_attn.k_norm")                                                   \
    X(Q_A, "attn_q_a", "self_attn.q_a_proj")                                                       \
    X(Q_A_NORM, "attn_q_a_norm", "self_attn.q_a_layernorm")                                        \
    X(Q_B, "attn_q_b", "self_attn.q_b_proj")                                                       \
    X(KV_A, "attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa")                                       \
    X(KV_A_NORM, "attn_kv_a_norm", "self_attn.kv_a_layernorm")                                     \
    X(KV_B, "attn_kv_b", "self_attn.kv_b_proj")                                                    \
    X(K_B, "attn_k_b", "")                                                                         \
    X(V_B, "attn_v_b", "")                                                                         \
    X(HEAD_GATE, "", "")                                                                           \
    X(INDEX_Q, "indexer.attn_q_b", "self_attn.indexer.wq_b")                                       \
    X(INDEX_Q_NORM, "indexer.q_norm", "self_attn.indexer.q_norm")                                  \
    X(INDEX_K, "indexer.attn_k", "self_attn.indexer.wk")                                           \
    X(INDEX_K_NORM, "indexer.k_norm", "self_attn.indexer.k_norm")                                  \
    X(INDEX_W, "indexer.proj", "self_attn.indexer.weights_proj")                                   \
    X(GATE, "ffn_gate", "mlp.gate_proj")                                                           \
    X(UP, "ffn_up", "mlp.up_proj")                                                                 \
    X(DOWN, "ffn_down", "mlp.down_proj")                                                           \
    X(ROUTER, "ffn_gate_inp", "mlp.gate")                                                          \
    X(ROUTER_BIAS, "exp_probs_b", "mlp.gate")                                                      \
    X(GATE_EXPS, "ffn_gate_exps", "mlp.experts.%d.gate_proj")                                      \
    X(UP_EXPS, "ffn_up_exps", "mlp.experts.%d.up_proj")                                            \
    X(GATE_UP_EXPS, "ffn_gate_up_exps", "")                                                        \
    X(DOWN_EXPS, "ffn_down_exps", "mlp.experts.%d.down_proj")                                      \
    X(GATE_SHEXP, "ffn_gate_shexp", "mlp.shared_experts.gate_proj")                                \
    X(UP_SHEXP, "ffn_up_shexp", "mlp.shared_experts.up_proj")                                      \
    X(DOWN_SHEXP, "ffn_down_shexp", "mlp.shared_experts.down_proj")                                \
    X(SHEXP_GATE, "ffn_gate_inp_shexp", "mlp.shared_expert_gate")                                  \
    X(DELTA_QKV, "attn_qkv", "linear_attn.in_proj_qkv")                                            \
    X(DELTA_Z, "attn_gate", "linear_attn.in_proj_z")                                               \
    X(DELTA_B, "ssm_beta", "linear_attn.in_proj_b")                                                \
    X(DELTA_A, "ssm_alpha", "linear_attn.in_proj_a")                                               \
    X(DELTA_QKVZ, "ssm_in", "linear_attn.in_proj_qkvz")                                            \
    X(DELTA_BA, "ssm_ba", "linear_attn.in_proj_ba")                                                \
    X(DELTA_CONV, "ssm_conv1d", "linear_attn.conv1d")                                              \
    X(DELTA_DT, "ssm_dt.bias.", "linear_attn.dt_bias.")                                            \
    X(DELTA_DECAY, "ssm_a.", "linear_attn.A_log.")                                                 \
    X(DELTA_NORM, "ssm_norm", "linear_attn.norm")                                                  \
    X(DELTA_O, "ssm_out", "linear_attn.out_proj")                                                  \
    X(KDA_CONV_Q, "ssm_conv1d_q", "self_attn.q_conv1d")                                            \
    X(KDA_CONV_K, "ssm_conv1d_k", "self_attn.k_conv1d")                                            \
    X(KDA_CONV_V, "ssm_conv1d_v", "self_attn.v_conv1d")                                            \
    X(KDA_F_A, "ssm_f_a", "self_attn.f_a_proj")                                                    \
    X(KDA_F_B, "ssm_f_b", "self_attn.f_b_proj")                                                    \
    X(KDA_G_A, "ssm_g_a", "self_attn.g_a_proj")                                                    \
    X(KDA_G_B, "ssm_g_b", "self_attn.g_b_proj")                                                    \
    X(MTP_EH, "nextn.eh_proj", "eh_proj")                                                          \
    X(MTP_ENORM, "nextn.enorm", "enorm")                                                           \
    X(MTP_HNORM, "nextn.hnorm", "hnorm")                                                           \
    X(MTP_EMBED, "nextn.embed_tokens", "embed_tokens")                                             \
    X(MTP_HEAD, "nextn.shared_head_head", "shared_head.head")                                      \
    X(MTP_HEAD_NORM, "nextn.shared_head_norm", "shared_head.norm")
/* Others, of which no set has any: of layers with several streams (hyper-connections), of attention
 * over compressed entries, of experts that a token's id chooses; of MTP layers with several
 * streams, in place of MTP_EH; of norms of what a sub-layer gives, of layers that end with a
 * factor, and of experts beside a dense block, which with their router have norms of their own
 * (post, pre: after and before; 1 of the dense block, 2 of them). */
#define ARCH_MORE_ROLE_LIST(X)                                                                     \
    X(HC_ATTN_FN, "hc_attn_fn", "attn_hc.fn.")                                                     \
    X(HC_ATTN_BASE, "hc_attn_base", "attn_hc.base.")                                               \
    X(HC_ATTN_SCALE, "hc_attn_scale", "attn_hc.scale.")                                            \
    X(HC_FFN_FN, "hc_ffn_fn", "ffn_hc.fn.")                                                        \
    X(HC_FFN_BASE, "hc_ffn_base", "ffn_hc.base.")                                                  \
    X(HC_FFN_SCALE, "hc_ffn_scale", "ffn_hc.scale.")                                               \
    X(O_A, "attn_output_a", "self_attn.o_a_proj")                                                  \
    X(ENTRY_KV, "attn_compressor_kv", "self_attn.compressor.kv_proj")                              \
    X(ENTRY_GATE, "attn_compressor_gate", "self_attn.compressor.gate_proj")                        \
    X(ENTRY_APE, "attn_compressor_ape", "self_attn.compressor.position_bias.")                     \
    X(ENTRY_NORM, "attn_compressor_norm", "self_attn.compressor.kv_norm")                          \
    X(INDEX_ENTRY_KV, "indexer_compressor_kv", "self_attn.compressor.indexer.kv_proj")             \
    X(INDEX_ENTRY_GATE, "indexer_compressor_gate", "self_attn.compressor.indexer.gate_proj")       \
    X(INDEX_ENTRY_APE, "indexer_compressor_ape", "self_attn.compressor.indexer.position_bias.")    \
    X(INDEX_ENTRY_NORM, "indexer_compressor_norm", "self_attn.compressor.indexer.kv_norm")         \
    X(EXPERT_OF, "ffn_gate_tid2eid", "mlp.gate.tid2eid.")                                          \
    X(MTP_E, "nextn.e_proj", "e_proj")                                                             \
    X(MTP_H, "nextn.h_proj", "h_proj")                                                             \
    X(MTP_HC_FN, "nextn.hc_head_fn", "hc_head_fn.")                                                \
    X(MTP_HC_BASE, "nextn.hc_head_base", "hc_head_base.")                                          \
    X(MTP_HC_SCALE, "nextn.hc_head_scale", "hc_head_scale.")                                       \
    X(ATTN_POST_NORM, "", "")                                                                      \
    X(FFN_POST_NORM, "", "")                                                                       \
    X(FFN_POST_NORM_1, "", "")                                                                     \
    X(FFN_PRE_NORM_2, "", "")                                                                      \
    X(FFN_POST_NORM_2, "", "")                                                                     \
    X(ROUTER_SCALE, "", "")                                                                        \
    X(EXPERT_SCALE, "", "")                                                                        \
    X(LAYER_SCALE, "", "")
enum arch_role {
#define X(role, ...) ROLE_##role,
    ARCH_ROLE_LIST(X) PER_HEAD_LIST(X)
#undef X
        N_ROLE_BIT,
    ROLE_BEFORE_MORE = N_ROLE_BIT - 1,
#define X(role, ...) ROLE_##role,
    ARCH_MORE_ROLE_LIST(X)
#undef X
        N_ROLE
};
#define ROLE_PER_HEAD0 (N_ROLE_BIT - N_PER_HEAD) /* the first of those of PER_HEAD_LIST */
/* A role below N_ROLE_BIT as a bit of a set. */
#define ARCH_BIT(role) ((uint64_t)1 << ROLE_##role)
_Static_assert(N_ROLE_BIT <= 64, "a set of roles is one word");
static inline bool arch_in(uint64_t set, int role)
{
    return role < N_ROLE_BIT && set >> role & 1;
}
/* HC_*: of the streams' head. */
enum arch_global {
    GLOBAL_EMBED,
    GLOBAL_NORM,
    GLOBAL_HEAD,
    GLOBAL_HC_FN,
    GLOBAL_HC_BASE,
    GLOBAL_HC_SCALE,
    N_GLOBAL
};

/* A role whose name differs from the table's. NULL: it does not. The list of an architecture ends
 * with role N_ROLE. "%d" in the HF name of an expert's matrix stands for its number. */
struct arch_alias {
    enum arch_role role;
    const char *gguf, *hf;
};

struct arch_layer; /* arch/arch.h */

/* How the tensors of a file are called: what kind it is, and whose names differ. */
struct arch_naming {
    enum io_kind kind;
    const struct arch_alias *alias; /* NULL = the table alone */
    int mtp_from; /* folders: layers from there on are "mtp.layers.0" and so on, and what an MTP
                     layer has beside a layer's is once in "mtp."; 0 = they are like the others */
    bool bare;    /* folders: nothing is before "layers", and what is outside of them has names of
                     its own ("embed.weight"); MTP layers are "mtp.0" as a whole */
    /* names that layers with a state have otherwise; NULL: none does. layer: [n_layer], which those
     * are */
    const struct arch_alias *in_delta;
    const struct arch_layer *layer;
    int n_layer;
    /* folders: the embedding's name; the suffix of the bias that chooses; NULL = the usual ones */
    const char *embed, *selects;
};

/* The tensor's name within its block or layer, without a suffix; "" = that kind has none. In layers
 * without a state, where others differ. */
const char *arch_role_name(const struct arch_naming *by, enum arch_role role);
/* The same in that layer. */
const char *arch_role_name_at(const struct arch_naming *by, enum arch_role role, int layer);
/* The tensor's name with suffix ("weight", "bias"; the router's selection bias has its own); of
 * experts that have tensors of their own, the first one's. */
void arch_tensor_name(const struct arch_naming *by, enum arch_role role, int layer,
                      const char *suffix, char *buf, int n);
const char *arch_global_name(const struct arch_naming *by, enum arch_global g);

/* A name in its parts. */
struct arch_name {
    int global;        /* enum arch_global, -1 = none */
    int role;          /* enum arch_role, -1 = unknown */
    int layer, expert; /* -1 = none; expert: -1 in stacks too */
    char suffix[32];   /* "weight", "bias", ...; "" where role is unknown */
};
/* The name of a tensor of a layer: global is -1, role and layer are there. */
void arch_name_put(const struct arch_naming *by, const struct arch_name *id, char *buf, int n);
/* The reverse. */
void arch_name_parse(const struct arch_naming *by, const char *name, struct arch_name *out);

#endif
