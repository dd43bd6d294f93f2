/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSeek-V3, R1, V3.1 and Kimi-K2: MLA, sigmoid gate with a bias that chooses but does not weigh, groups scored by their two best, MTP layers. */
#include <string.h>

#include "model/model_internal.h"

static bool match_gguf(const io_model *m)
{
    uint64_t gating = 0;
    return io_meta_u64(m, "deepseek2.expert_gating_func", &gating, NULL) == SL_OK && gating == 2;
}

static sl_status read_gguf(const io_model *m, struct model_cfg *c, sl_err *err)
{
    return model_arch_deepseek_v2.read_gguf(m, c, err);
}

static sl_status read_hf(const struct json *o, struct model_cfg *c, sl_err *err)
{
    double scale = 1;
    const char *func = NULL, *method = NULL;
    SL_TRY(model_hf_mla(o, c, err));
    SL_TRY(text_json_str(o, "scoring_func", "sigmoid", &func, err));
    if (strcmp(func, "sigmoid") != 0)
        return SL_FAIL(err, UNSUPPORTED, "scoring_func '%.40s' is not supported (sigmoid)", func);
    SL_TRY(text_json_str(o, "topk_method", "noaux_tc", &method, err));
    if (strcmp(method, "noaux_tc") != 0)
        return SL_FAIL(err, UNSUPPORTED, "topk_method '%.40s' is not supported (noaux_tc)", method);
    SL_TRY(model_hf_int(o, "n_routed_experts|num_experts|num_local_experts", -1, 1, 4096, &c->n_expert, err));
    SL_TRY(model_hf_int(o, "first_k_dense_replace", 3, 0, 1024, &c->n_dense_lead, err));
    for (int i = 0; i < c->n_layer; i++) c->moe_layer[i] = i >= c->n_dense_lead;
    SL_TRY(model_hf_int(o, "num_experts_per_tok", 8, 1, 64, &c->n_expert_used, err));
    SL_TRY(model_hf_int(o, "moe_intermediate_size", 2048, 1, 1 << 22, &c->d_ff_expert, err));
    SL_TRY(model_hf_int(o, "n_shared_experts", 1, 0, 64, &c->n_shared, err));
    SL_TRY(model_hf_int(o, "n_group", 8, 1, 4096, &c->n_group, err));
    SL_TRY(model_hf_int(o, "topk_group", 4, 1, 4096, &c->n_group_used, err));
    SL_TRY(model_hf_real(o, "routed_scaling_factor", 2.5, 0, 1e6, &scale, err));
    c->route_scale = (float)scale;
    SL_TRY(text_json_bool(o, "norm_topk_prob", true, &c->route_norm, err));
    c->route_sigmoid = c->route_bias = true;
    return SL_OK;
}

const struct model_arch model_arch_deepseek_v3 = {.name = "deepseek_v3",
                                                  .gguf = "deepseek2",
                                                  .hf_type = "deepseek_v3|kimi_k2",
                                                  .match_gguf = match_gguf,
                                                  .read_gguf = read_gguf,
                                                  .read_hf = read_hf};
