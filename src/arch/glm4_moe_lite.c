/* SPDX-License-Identifier: Apache-2.0 */
/* GLM-4.7-Flash: DeepSeek-V3's layers with one group of experts. Its GGUF files say deepseek2, so
 * that only folders come here. */
#include <string.h>

#include "arch/row.h"

static bool match_gguf(const io_model *m)
{
    (void)m;
    return false;
}

/* first_k_dense_replace, or a list that says it of each layer. */
static sl_status read_layers(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    const struct json *list = text_json_get(o, "mlp_layer_types");
    int i = 0;
    SL_TRY(arch_hf_int(o, "first_k_dense_replace", 1, 0, 1024, &c->n_dense_lead, err));
    for (i = c->n_dense_lead; i < c->n_layer; i++)
        c->layer[i].ffn = ARCH_MOE;
    if (!list || list->kind == JSON_NULL_K) return SL_OK;
    if (list->kind != JSON_ARRAY_K || list->n != (size_t)c->n_layer)
        return SL_FAIL(err, FORMAT, "mlp_layer_types is not a list of %d layers", c->n_layer);
    i = 0;
    for (const struct json *v = list->child; v; v = v->next, i++) {
        bool moe = text_json_is(v, "sparse");
        if (!moe && !text_json_is(v, "dense"))
            return SL_FAIL(err, UNSUPPORTED, "mlp_layer_types[%d] is neither dense nor sparse", i);
        c->layer[i].ffn = moe ? ARCH_MOE : ARCH_DENSE;
    }
    return SL_OK;
}

static sl_status read_hf(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    double scale = 1;
    SL_TRY(arch_hf_mla(o, c, err));
    SL_TRY(arch_hf_int(o, "n_routed_experts|num_experts|num_local_experts", 64, 1, 4096,
                       &c->n_expert, err));
    SL_TRY(read_layers(o, c, err));
    SL_TRY(arch_hf_int(o, "num_experts_per_tok", 4, 1, 64, &c->n_expert_used, err));
    SL_TRY(arch_hf_int(o, "moe_intermediate_size", 1536, 1, 1 << 22, &c->d_ff_expert, err));
    SL_TRY(arch_hf_int(o, "n_shared_experts", 1, 0, 64, &c->n_shared, err));
    SL_TRY(arch_hf_int(o, "n_group", 1, 1, 4096, &c->n_group, err));
    SL_TRY(arch_hf_int(o, "topk_group", 1, 1, 4096, &c->n_group_used, err));
    SL_TRY(arch_hf_real(o, "routed_scaling_factor", 1.8, 0, 1e6, &scale, err));
    c->route_scale = (float)scale;
    SL_TRY(text_json_bool(o, "norm_topk_prob", true, &c->route_norm, err));
    c->route_sigmoid = c->route_bias = true;
    return SL_OK;
}

const struct arch arch_glm4_moe_lite = {
    .name = "glm4_moe_lite",
    .gguf = "deepseek2",
    .hf_type = "glm4_moe_lite",
    .hf_class = "Glm4MoeLiteForCausalLM",
    .hf_keys = "rope_interleave|qk_rope_head_dim|qk_nope_head_dim|q_lora_rank|kv_lora_rank|"
               "v_head_dim|routed_scaling_factor|num_experts|num_local_experts|n_routed_experts|"
               "num_experts_per_tok|moe_intermediate_size|norm_topk_prob|n_shared_experts|n_group|"
               "topk_group|topk_method|scoring_func|first_k_dense_replace|mlp_layer_types",
    .gguf_keys = ARCH_GGUF_KEYS_MLA,
    .match_gguf = match_gguf,
    .read_hf = read_hf,
    .write_gguf = arch_put_moe_shared};
