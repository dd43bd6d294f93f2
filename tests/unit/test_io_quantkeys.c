/* SPDX-License-Identifier: Apache-2.0 */
/* Configurations of quantisers: every key is obeyed, harmless, or refused by name; those of
 * published models pass. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/io_internal.h"
#include "os/os.h"
#include "test.h"

static void write_file(const char *dir, const char *name, const void *p, size_t n)
{
    char path[128];
    sl_err err = {0};
    snprintf(path, sizeof path, "%s/%s", dir, name);
    ASSERT_OK(os_write_file(path, p, n, &err));
}

static void remove_file(const char *dir, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    unlink(path);
}

/* What keeps the matrices of a folder with this quantization_config from being read; "" = nothing.
 */
static void why_not(const char *quant, char *why, size_t n)
{
    static const char head[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
    char dir[] = "/tmp/sluice-test-XXXXXX", text[4096], data[200] = {sizeof head - 1};
    io_model *m = NULL;
    sl_err err = {0};
    assert_non_null(mkdtemp(dir));
    memcpy(data + 8, head, sizeof head - 1);
    write_file(dir, "model.safetensors", data, 8 + sizeof head - 1 + 4);
    snprintf(text, sizeof text, "{\"model_type\":\"llama\",\"quantization_config\":{%s}}", quant);
    write_file(dir, "config.json", text, strlen(text));
    sl_status st = io_open(dir, false, &m, &err);
    snprintf(why, n, "%s", st ? err.text : m->scheme ? "" : m->scheme_err.text);
    io_close(m);
    remove_file(dir, "model.safetensors");
    remove_file(dir, "config.json");
    rmdir(dir);
}

#define GPTQ "\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":128"
#define AWQ "\"quant_method\":\"awq\",\"bits\":4,\"group_size\":128,\"zero_point\":true"
#define FP8 "\"quant_method\":\"fp8\",\"fmt\":\"e4m3\",\"weight_block_size\":[128,128]"
#define ROUND "\"quant_method\":\"auto-round\",\"bits\":4,\"group_size\":128,\"sym\":true"
#define CT(more, weights)                                                                          \
    "\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\",\"config_groups\":{"    \
    "\"group_0\":{\"targets\":[\"Linear\"],\"weights\":{\"num_bits\":4,\"type\":\"int\","          \
    "\"strategy\":\"group\",\"group_size\":128" weights "}" more "}}"
#define NVFP4 "\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\",\"group_size\":16"

static const char *const refused[][3] = {
    {GPTQ ",\"dynamic\":{\"-:.*gate\":{},\"+:.*down_proj\":{\"bits\":8}}", "dynamic",
     "+:.*down_proj"},
    {GPTQ ",\"dynamic\":{\"lm_head\":{\"bits\":8}}", "dynamic", "lm_head"},
    {GPTQ ",\"checkpoint_format\":\"marlin\"", "checkpoint_format", "marlin"},
    {GPTQ ",\"rotation\":\"hadamard\"", "rotation", "hadamard"},
    {GPTQ ",\"adapter\":{\"name\":\"lora\",\"rank\":32}", "adapter", "{...}"},
    {GPTQ ",\"pack_dtype\":\"int16\"", "pack_dtype", "int16"},
    {GPTQ ",\"per_channel_offset\":true", "per_channel_offset", "not known"},
    {AWQ ",\"version\":\"gemv_fast\"", "version", "gemv_fast"},
    {AWQ ",\"checkpoint_format\":\"gemv\"", "checkpoint_format", "gemv"},
    {AWQ ",\"format\":\"marlin\"", "format", "marlin"},
    {AWQ ",\"desc_act\":true", "desc_act", "true"},
    {AWQ ",\"rotate\":1", "rotate", "not known"},
    {FP8 ",\"expert_dtype\":\"int4\"", "expert_dtype", "int4"},
    {FP8 ",\"rotation\":true", "rotation", "true"},
    {ROUND ",\"packing_format\":\"auto_round:auto_gptq\",\"extra_config\":{\"model.layers.0.mlp\":{"
           "\"bits\":8,\"group_size\":128}}",
     "extra_config", "bits 8"},
    {ROUND ",\"extra_config\":{\"lm_head\":{\"group_size\":64}}", "extra_config", "group_size 64"},
    {ROUND ",\"extra_config\":{\"lm_head\":{\"sym\":false}}", "extra_config", "sym false"},
    {ROUND ",\"super_bits\":6", "super_bits", "6"},
    {ROUND ",\"data_type\":\"mx_fp\"", "data_type", "mx_fp"},
    {CT(",\"rotation\":1", ""), "group_0: rotation", "1"},
    {CT("", ",\"dynamic\":true"), "group_0: dynamic", "true"},
    {CT("", ",\"bias_correction\":true"), "group_0: bias_correction", "true"},
    {CT("", "") ",\"transform_config\":{\"config_groups\":{\"R1\":{}}}", "transform_config", ""},
    {CT("", "") ",\"hadamard\":true", "hadamard", "not known"},
    {NVFP4 ",\"pre_quant_scale\":true", "pre_quant_scale", "true"},
    {NVFP4 ",\"has_zero_point\":true", "has_zero_point", "true"},
    {NVFP4 ",\"rotate\":\"hadamard\"", "rotate", "hadamard"},
    {"\"quant_method\":\"mxfp4\",\"global_scale\":2", "global_scale", "2"},
};

TEST(io_quantiser_keys_are_obeyed_or_refused_by_name)
{
    for (int i = 0; i < BASE_COUNT_OF(refused); i++) {
        char why[300];
        why_not(refused[i][0], why, sizeof why);
        if (!strstr(why, refused[i][1]) || !strstr(why, refused[i][2]))
            fail_msg("\"%s\": want %s and %s (%s)", why, refused[i][1], refused[i][2],
                     refused[i][0]);
    }
}

/* Every key of what AutoGPTQ, GPTQModel, AutoAWQ, llm-awq, AutoRound, llmcompressor, ModelOpt,
 * DeepSeek, Qwen and OpenAI write. */
static const char *const published[] = {
    GPTQ ",\"damp_percent\":0.01,\"desc_act\":true,\"static_groups\":false,\"sym\":true,"
         "\"true_sequential\":true,\"model_name_or_path\":null,\"model_file_base_name\":"
         "\"model\","
         "\"is_marlin_format\":false",
    GPTQ ",\"checkpoint_format\":\"gptq_v2\",\"damp_auto_increment\":0.0025,\"dynamic\":{\"-:.*"
         "mlp.gate\":{},\"-:.*visual.*\":{}},\"lm_head\":false,\"meta\":{\"quantizer\":["
         "\"gptqmodel:2.1\"],\"uri\":\"u\",\"mse\":0.0},\"method\":\"gptq\",\"pack_dtype\":"
         "\"int32\",\"sym\":true,\"parallel_packing\":true,\"rotation\":null,\"adapter\":null,"
         "\"hyb_act\":false,\"act_group_aware\":true,\"v2\":false,\"v2_alpha\":0.25,"
         "\"offload_to_disk\":true,\"fail_safe\":{\"strategy\":\"rtn\"}",
    GPTQ ",\"batch_size\":1,\"block_name_to_quantize\":\"model.layers\",\"cache_block_outputs\":"
         "true,\"dataset\":\"c4\",\"disable_exllama\":false,\"exllama_config\":{\"version\":1},"
         "\"max_input_length\":null,\"model_seqlen\":4096,\"module_name_preceding_first_block\":"
         "["
         "\"a\"],\"modules_in_block_to_quantize\":[[\"q\"]],\"pad_token_id\":null,\"tokenizer\":"
         "null,\"use_cuda_fp16\":true,\"backend\":\"auto\",\"use_exllama\":true",
    AWQ ",\"version\":\"gemm\",\"modules_to_not_convert\":null,\"do_fuse\":false,"
        "\"fuse_max_seq_len\":null,\"modules_to_fuse\":null,\"exllama_config\":null,"
        "\"backend\":"
        "\"autoawq\"",
    AWQ ",\"checkpoint_format\":\"gemm\",\"format\":\"gemm\",\"desc_act\":false,\"lm_"
        "head\":false,"
        "\"pack_dtype\":\"int32\",\"meta\":{\"a\":1},\"dynamic\":null,\"sym\":false",
    "\"quant_method\":\"awq\",\"zero_point\":true,\"q_group_size\":128,\"w_bit\":4,"
    "\"version\":"
    "\"GEMM\"",
    FP8 ",\"activation_scheme\":\"dynamic\",\"scale_fmt\":\"ue8m0\",\"modules_to_not_convert\":"
        "["
        "\"lm_head\"],\"ignored_layers\":[\"a\"],\"kv_cache_scheme\":null,\"dequantize\":false",
    "\"quant_method\":\"fp8\",\"activation_scheme\":\"static\",\"ignored_layers\":[\"lm_"
    "head\"]",
    ROUND ",\"packing_format\":\"auto_round:auto_gptq\",\"autoround_version\":\"0.4.7\","
          "\"block_name_to_quantize\":\"model.layers\",\"data_type\":\"int\",\"extra_config\":{"
          "\"model.layers.0.mlp.gate\":{\"bits\":16,\"data_type\":\"fp\"},\"lm_head\":{\"bits\":"
          "4}}"
          ",\"iters\":1000,\"lr\":0.001,\"minmax_lr\":0.001,\"low_gpu_mem_usage\":true,"
          "\"nsamples\":512,\"seqlen\":2048,\"batch_size\":8,\"amp\":true,\"act_bits\":16,"
          "\"enable_quanted_input\":true,\"enable_minmax_tuning\":true,"
          "\"gradient_accumulate_steps\":1,\"low_cpu_mem_usage\":true,\"scale_dtype\":"
          "\"torch.float16\",\"to_quant_block_names\":null,\"super_bits\":null",
    CT(",\"input_activations\":null,\"output_activations\":null,\"format\":\"pack-"
       "quantized\"",
       ",\"symmetric\":true,\"actorder\":\"static\",\"block_structure\":null,\"dynamic\":"
       "false,"
       "\"observer\":\"mse\",\"observer_kwargs\":{},\"scale_dtype\":null,\"zp_dtype\":"
       "null") ",\"global_compression_ratio\":1.5,\"ignore\":[\"lm_head\"],\"kv_cache_"
               "scheme\":{"
               "\"num_bits\":8,\"type\":\"float\"},\"quantization_status\":\"compressed\","
               "\"sparsity_config\":{\"format\":\"dense\"},\"transform_config\":{},"
               "\"version\":\"0.12.2\"",
    NVFP4 ",\"ignore\":[\"lm_head\"],\"kv_cache_scheme\":{\"dynamic\":false,\"num_bits\":8,"
          "\"type\":\"float\"},\"producer\":{\"name\":\"modelopt\",\"version\":\"0.29\"},"
          "\"config_groups\":{\"group_0\":{\"input_activations\":{\"dynamic\":false},"
          "\"weights\":{"
          "\"dynamic\":false,\"num_bits\":4},\"targets\":[\"Linear\"]}}",
    "\"quant_method\":\"modelopt\",\"quantization\":{\"quant_algo\":\"FP8\","
    "\"kv_cache_quant_algo\":\"FP8\",\"exclude_modules\":[\"lm_head\"],\"has_zero_point\":"
    "false}",
    "\"quant_method\":\"modelopt\",\"quant_algo\":\"MIXED_PRECISION\",\"quantized_layers\":"
    "{"
    "\"a\":{\"quant_algo\":\"NVFP4\",\"group_size\":16}}",
    "\"quant_method\":\"mxfp4\",\"modules_to_not_convert\":[\"model.layers.*.self_attn\","
    "\"model.layers.*.mlp.router\",\"model.embed_tokens\",\"lm_head\"]",
};

TEST(io_published_quantiser_configurations_pass)
{
    for (int i = 0; i < BASE_COUNT_OF(published); i++) {
        char why[300];
        why_not(published[i], why, sizeof why);
        if (*why) fail_msg("%s: %s", why, published[i]);
    }
}
