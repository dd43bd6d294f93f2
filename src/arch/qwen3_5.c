/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen3.5 and 3.6 without experts, alone or nested in a model that sees. */
#include "arch/row.h"

static const struct arch_alias alias[] = {ARCH_DELTA_ALIAS, {N_ROLE, NULL, NULL}};

const struct arch arch_qwen3_5 = {
    .name = "qwen3_5",
    .gguf = "qwen35",
    .hf_type = "qwen3_5_text|qwen3_5",
    .hf_class = "Qwen3_5ForCausalLM",
    .tool_family = "qwen",
    .hf_keys = ARCH_HF_KEYS_DELTA,
    .gguf_keys = ARCH_GGUF_KEYS_DELTA,
    .alias = alias,
    .mtp_apart = true,
    .norm_one = true,
    .no_keys = true,
    .delta_tiled = true,
    .unsaid = {.d_head = 256},
    .read_gguf = arch_gguf_delta,
    .read_hf = arch_hf_delta,
    .write_gguf = arch_put_delta,
    .write_hf = arch_jw_delta,
};
