/* SPDX-License-Identifier: Apache-2.0 */
/* What a quantiser's configuration may say beside what its reader looks at. Harmless is how the
 * codes were found, how other programs compute with them, and what the tensors say anyway: which
 * modules are quantised, and the precision of scales. Activations and caches are --acts and --kv
 * here, whatever the file says of them. */
#include <string.h>

#include "io/io_internal.h"

/* What every quantiser's configuration may have. */
#define COMMON                                                                                     \
    {"quant_method|method|modules_to_not_convert|modules_not_quantized|ignored_layers|ignore|"     \
     "exclude_modules|modules_to_convert|lm_head|quant_lm_head|producer|version|*_version|"        \
     "dequantize|backend|_*",                                                                      \
     "*"},                                                                                         \
        {"activation_scheme|act_*|input_activations|output_activations|kv_cache_*|kv_quant*|"      \
         "static_kv_dtype|activation_*",                                                           \
         "*"},                                                                                     \
    {                                                                                              \
        "calib*|dataset|tokenizer|nsamples|seqlen|model_seqlen|batch_size|pad_token_id|"           \
        "max_input_length|model_name_or_path|model_file_base_name|iters|lr|minmax_lr|seed|amp",    \
            "*"                                                                                    \
    }

static const struct text_key fp8_row[] = {
    COMMON,
    {"weight_block_size|fmt|scale_fmt|weight_per_tensor", "*"},
    {"expert_dtype", "fp8|fp4|float8_e4m3fn|-"},
    {"dtype", "fp8|float8_e4m3fn|-"},
};

static const struct text_key awq_row[] = {
    COMMON,
    {"w_bit|bits|q_group_size|group_size|zero_point|do_fuse|fuse_max_seq_len|modules_to_fuse|"
     "exllama_config|pack_method|meta|*_kernels|damp_*|mse|device|true_sequential|offload_to_disk*|"
     "hyb_act|act_group_aware|parallel_packing|fail_safe|failsafe|static_groups|sym|"
     "sym_quantize|weight_only|mock_quantization",
     "*"},
    {"format|checkpoint_format", "gemm|-"},
    {"pack_dtype", "int32|-"},
    {"desc_act|rotation|adapter|dynamic", "-"},
};

static const struct text_key gptq_row[] = {
    COMMON,
    {"bits|w_bit|group_size|q_group_size|sym|desc_act|dynamic|format|checkpoint_format|"
     "is_marlin_format",
     "*"},
    {"damp_*|static_groups|true_sequential|meta|mse|act_group_aware|hyb_act|v2|v2_alpha|*fail_safe|"
     "*failsafe|block_name_to_quantize|module_name_preceding_first_block|"
     "modules_in_block_to_quantize|cache_block_outputs|disable_exllama|use_exllama|exllama_config|"
     "use_cuda_fp16|parallel_packing|offload_to_disk*|device|weight_only|mock_quantization|"
     "quantizer|gptaq*|foem*",
     "*"},
    {"pack_dtype", "int32|-"},
    {"rotation|adapter|lora*", "-"},
};

static const struct text_key autoround_row[] = {
    COMMON,
    {"bits|w_bit|group_size|q_group_size|sym|desc_act|dynamic|format|checkpoint_format|zero_point|"
     "is_marlin_format|packing_format|data_type|extra_config",
     "*"},
    {"autoround_version|block_name_to_quantize|to_quant_block_names|all_blocks|quant_block_list|"
     "enable_*|disable_*|low_gpu_mem_usage|low_cpu_mem_usage|scale_dtype|"
     "gradient_accumulate_steps|damp_*|true_sequential|not_use_best_mse|supported_types|nblocks|"
     "momentum|batch_dim|fp_layers|ignore_layers|provider|meta|static_groups|lr_scheduler|"
     "use_quant_input|device|scheme",
     "*"},
    {"super_bits|super_group_size|rotation*|transform*|regex_config|layer_config|adapter", "-"},
    {"pack_dtype", "int32|-"},
};

static const struct text_key ct_row[] = {
    COMMON,
    {"config_groups|format|quantization_status|global_compression_ratio|sparsity_config|"
     "transform_config|run_compressed|use_optimized_inference|scheme",
     "*"},
};
static const struct text_key ct_group_row[] = {
    {"targets|weights|input_activations|output_activations|format|_*", "*"},
};
static const struct text_key ct_weights_row[] = {
    {"num_bits|type|symmetric|group_size|strategy|block_structure|actorder|observer*|scale_dtype|"
     "zp_dtype|_*",
     "*"},
    {"dynamic", "-"},
};

static const struct text_key modelopt_row[] = {
    COMMON,
    {"quantization|quant_algo|group_size|quantized_layers|config_groups|quant_library|"
     "modelopt_*",
     "*"},
    {"has_zero_point|pre_quant_scale|smoothquant*|awq_*|rotat*", "-"},
};

static const struct text_key mxfp4_row[] = {COMMON};

/* Ascend's description has a key for each tensor; these are its others. */
static const struct text_key ascend_row[] = {
    COMMON,
    {"*.*|model_quant_type|group_size|fa_quant_type|reduce_quant_type|metadata|model_type|"
     "packed_modules_mapping|weight_bits|is_*_packed",
     "*"},
    {"optional|quarot*|rotat*", "-"},
};

#define LIST(rows) rows, BASE_COUNT_OF(rows)
static const struct {
    const char *method;
    const struct text_key *row;
    int n;
} list[] = {
    {"fp8", LIST(fp8_row)},
    {"mxfp8", LIST(fp8_row)},
    {"awq", LIST(awq_row)},
    {"gptq", LIST(gptq_row)},
    {"auto-round", LIST(autoround_row)},
    {"compressed-tensors", LIST(ct_row)},
    {"modelopt", LIST(modelopt_row)},
    {"mxfp4", LIST(mxfp4_row)},
    {"ascend", LIST(ascend_row)},
};
static const char changes[] = "the weights";

/* config_groups of compressed-tensors: each group, and what it says of weights. */
static sl_status check_groups(const struct json *groups, sl_err *err)
{
    static const struct text_keys group = {LIST(ct_group_row), changes},
                                  weights = {LIST(ct_weights_row), changes};
    if (!groups || groups->kind != JSON_OBJECT_K) return SL_OK;
    for (const struct json *g = groups->child; g; g = g->next) {
        SL_TRY(text_keys_check(&group, g->key, g, err));
        SL_TRY(text_keys_check(&weights, g->key, text_json_get(g, "weights"), err));
    }
    return SL_OK;
}

sl_status io_quant_keys(const io_model *m, const char *method, sl_err *err)
{
    for (int i = 0; i < BASE_COUNT_OF(list); i++) {
        const struct text_keys k = {list[i].row, list[i].n, changes};
        if (strcmp(list[i].method, method) != 0) continue;
        SL_TRY(text_keys_check(&k, NULL, m->quant, err));
        const struct json *inner = text_json_get(m->quant, "quantization");
        if (inner) SL_TRY(text_keys_check(&k, "quantization", inner, err));
        if (strcmp(method, "compressed-tensors") == 0)
            return check_groups(text_json_get(m->quant, "config_groups"), err);
    }
    return SL_OK;
}

/* ---- rules for single modules ---- */

/* GPTQModel's dynamic: expressions of module names. One that begins with "-:" leaves modules as
 * they are, which the tensors say; any other gives modules numbers of their own. */
sl_status io_quant_dynamic(const io_model *m, sl_err *err)
{
    const struct json *d = text_json_get(m->quant, "dynamic");
    if (!d || d->kind != JSON_OBJECT_K) return SL_OK;
    for (const struct json *r = d->child; r; r = r->next) {
        if (strncmp(r->key, "-:", 2) == 0 || r->n == 0) continue;
        return SL_FAIL(err, UNSUPPORTED,
                       "%s: %s: dynamic: \"%.60s\": GPTQ with numbers of its own for some modules "
                       "is not read",
                       io_short(m->path), m->quant_file, r->key);
    }
    return SL_OK;
}

/* AutoRound's extra_config: modules, each with what differs from the whole. 16 bits and more are
 * plain tensors, which say so themselves. */
sl_status io_quant_extra(const io_model *m, sl_err *err)
{
    static const char *const key[] = {"bits", "group_size", "sym", "data_type"};
    const struct json *x = text_json_get(m->quant, "extra_config");
    if (!x || x->kind != JSON_OBJECT_K) return SL_OK;
    for (const struct json *e = x->child; e; e = e->next) {
        const struct json *bits = text_json_get(e, "bits");
        if (bits && bits->kind == JSON_INT_K && bits->i >= 16) continue;
        for (int i = 0; i < BASE_COUNT_OF(key); i++) {
            const struct json *own = text_json_get(e, key[i]),
                              *all = text_json_get(m->quant, key[i]);
            if (!own || own->kind == JSON_NULL_K) continue;
            struct text_key_value a = text_key_value(own);
            if (all && strcmp(a.text, text_key_value(all).text) == 0) continue;
            return SL_FAIL(err, UNSUPPORTED,
                           "%s: %s: extra_config: %.60s has %s %s of its own, which is not read",
                           io_short(m->path), m->quant_file, e->key, key[i], a.text);
        }
    }
    return SL_OK;
}
