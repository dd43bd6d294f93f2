/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor names of the architectures in both kinds of files, by role: for loading, and for converting one kind into the other. */
#ifndef MODEL_NAMES_H
#define MODEL_NAMES_H

#include "io/io.h"

/* X(ROLE, GGUF name within the block, HF name within the layer) */
#define MODEL_ROLE_LIST(X)                                                                         \
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
    X(MTP_EH, "nextn.eh_proj", "eh_proj")                                                          \
    X(MTP_ENORM, "nextn.enorm", "enorm")                                                           \
    X(MTP_HNORM, "nextn.hnorm", "hnorm")                                                           \
    X(MTP_EMBED, "nextn.embed_tokens", "embed_tokens")                                             \
    X(MTP_HEAD, "nextn.shared_head_head", "shared_head.head")                                      \
    X(MTP_HEAD_NORM, "nextn.shared_head_norm", "shared_head.norm")
enum model_role {
#define X(role, gguf, hf) ROLE_##role,
    MODEL_ROLE_LIST(X)
#undef X
        N_ROLE
};
/* The tensor's name in this file, with suffix ("weight", "bias"; the router's bias has its own). expert is used where the HF name has a number. */
void model_tensor_name(enum io_kind kind, enum model_role role, int layer, int expert,
                       const char *suffix, char *buf, int n);
enum model_global { GLOBAL_EMBED, GLOBAL_NORM, GLOBAL_HEAD };
/* The reverse. */
struct model_name {
    int global;        /* enum model_global, -1 = none */
    int role;          /* enum model_role, -1 = unknown */
    int layer, expert; /* -1 = none; expert: -1 in stacks too */
    char suffix[32];   /* "weight", "bias", ...; "" where role is unknown */
};
void model_name_parse(enum io_kind kind, const char *name, struct model_name *out);
const char *model_global_name(enum io_kind kind, enum model_global g);

#endif
