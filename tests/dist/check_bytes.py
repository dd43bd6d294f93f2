#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What ranks move, against what the shapes say (docs/distribution.md): for each row of a join every
rank takes the columns of the others, so that n ranks take n - 1 rows; logits come to rank 0 alone.
A stage takes a row of the model's columns for every rank of it and every token.

  check_bytes.py [BUILD]"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "e2e"), os.path.join(HERE, "..", "bits")]
import e2e  # noqa: E402
import wide  # noqa: E402

PROMPT, ANSWER = 11, 24


def joined(c):
    """Columns of a token's joins."""
    heads, d = c["num_attention_heads"], c["hidden_size"]
    d_v = c.get("v_head_dim") or c.get("head_dim") or d // heads
    experts = c.get("n_routed_experts") or c.get("num_experts") or c.get("num_local_experts") or 0
    used = c.get("num_experts_per_tok", 0)
    dense = c.get("first_k_dense_replace", 0) if experts else c["num_hidden_layers"]
    f_exp = c.get("moe_intermediate_size") or c["intermediate_size"]
    n = d  # a row of the table of tokens
    for il in range(c["num_hidden_layers"]):
        n += heads * d_v + d + d  # attention, its output, that of the feed-forward block
        if il < dense:
            n += c["intermediate_size"]
        else:
            n += used * f_exp + (c.get("n_shared_experts") or 0) * f_exp
    return n


def moved(c, tp, pp):
    vocab = c["vocab_size"]
    own = (vocab + 15) // 16 // tp * 16 if tp > 1 else vocab
    tokens = PROMPT + ANSWER - 1  # the last one is told, not computed
    return 4 * (tokens * ((tp - 1) * joined(c) + (pp - 1) * tp * c["hidden_size"]) +
                ANSWER * (vocab - own))


def main():
    build = e2e.build_dir()
    tally = e2e.Tally("bytes between ranks")
    work = os.path.join(build, "tests", "ranks_bytes")
    os.makedirs(work, exist_ok=True)
    for name, most in (("llama.q4_0", 4), ("qwen3_moe.int8", 4), ("deepseek_v2.q8_0", 4),
                       ("gpt_oss.mxfp4", 3), ("glm4_moe.nvfp4", 3)):
        model = wide.make(work, e2e.sluice(build), name, e2e.tiny(build))
        for tp, pp in [(n, 1) for n in range(2, most + 1)] + [(1, 2), (2, 2)]:
            code, out, err = e2e.run([
                e2e.sluice(build), "run", "-m", model, "--ids",
                ",".join(str(5 + i) for i in range(PROMPT)), "-n", str(ANSWER), "--ignore-eos",
                "--json", "--layout", f"tp={tp},pp={pp}", "-t", str(tp * pp)])
            want = moved(wide.CONFIGS[name.split(".")[0]], tp, pp) / (PROMPT + ANSWER)
            got = None if code else e2e.last_json(out)["wire_bytes_per_token"]
            tally.check(f"{name} tp={tp},pp={pp}", code and err or
                        abs(got - want) >= 1 and f"{got}, not {want:.1f} a token")
    tally.exit()


if __name__ == "__main__":
    main()
