/* SPDX-License-Identifier: Apache-2.0 */
/* The architectures, one row each: X(name) stands for arch_<name> in <name>.c. A later row wins
 * where two match. */
X(llama)
X(qwen2)
X(qwen3)
X(qwen3_moe)
X(deepseek_v2)
X(deepseek_v3)
X(gpt_oss)
X(glm4_moe)
X(glm4_moe_lite)
X(minimax_m2)
