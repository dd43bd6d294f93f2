# SPDX-License-Identifier: Apache-2.0
"""Configurations of models whose weights are made up (--mock), for tests of time."""
import json
import os

BASE = dict(hidden_act="silu", rms_norm_eps=1e-6, max_position_embeddings=4096,
            bos_token_id=0, eos_token_id=1, torch_dtype="bfloat16", attention_bias=False)
# the shape of SmolLM2-135M: many small layers; and a mixture of a few large ones
SMALL = dict(BASE, architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=49152,
             hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
             num_key_value_heads=3, head_dim=64, tie_word_embeddings=True, rope_theta=1e5,
             mlp_bias=False)
MOE = dict(BASE, architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", vocab_size=32000,
           hidden_size=2048, intermediate_size=6144, num_hidden_layers=4, num_attention_heads=32,
           num_key_value_heads=4, head_dim=128, rope_theta=1e6, decoder_sparse_step=1,
           moe_intermediate_size=768, num_experts_per_tok=8, num_experts=32, norm_topk_prob=True,
           mlp_only_layers=[], tie_word_embeddings=False)


def folder(work, name, config):
    """A folder for -m, in work."""
    path = os.path.join(work, name)
    os.makedirs(path)
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f)
    return path
