#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--mock: models of which only the configuration is there. Every architecture opens and answers,
the same way each time and whatever shares it; what makes no sense is refused by name."""
import json
import os
import re
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import e2e  # noqa: E402

SLUICE = e2e.sluice()
TINY = e2e.tiny()
tally = e2e.Tally("mock")
SHARED = dict(architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", vocab_size=512,
              hidden_act="silu", rms_norm_eps=1e-6, max_position_embeddings=2048,
              hidden_size=128, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
              num_key_value_heads=2, head_dim=32, attention_bias=False, rope_theta=1e6,
              decoder_sparse_step=1, moe_intermediate_size=64, num_experts_per_tok=2,
              num_experts=8, norm_topk_prob=True, mlp_only_layers=[], tie_word_embeddings=False,
              bos_token_id=0, eos_token_id=1, torch_dtype="bfloat16")
IDS = "5,6,7,8,9,10,11,12"


def run(model, *more, cmd="run"):
    args = [SLUICE, cmd, "--mock", "-m", model, "--ids", IDS, "-n", "6", "--ignore-eos", "--json",
            "-t", "2", "-q", "-v", *more]  # no measurement at the end, but all that is said
    code, out, err = e2e.run(args)
    if code or "not used" in err or "missing" in err:
        return None, f"exit {code}: {err[-300:]}"
    return e2e.last_json(out), None


def alone(work, name):
    """The configuration of a checkpoint, and nothing else of it."""
    d = os.path.join(work, name)
    os.makedirs(d)
    shutil.copy(os.path.join(TINY, name, "config.json"), d)
    return d


def every_architecture(work):
    seen = 0
    for name in sorted(os.listdir(TINY)):
        if not os.path.exists(os.path.join(TINY, name, "config.json")):
            continue
        d = alone(work, name)
        got, fault = run(d)
        tally.check(name, fault)
        seen += 1
    tally.check("architectures", seen < 14 and f"{seen} of them")


def types(work):
    d = os.path.join(work, "shared")
    os.makedirs(d)
    with open(os.path.join(d, "config.json"), "w") as f:
        json.dump(SHARED, f)
    hashes, per_token = set(), {}
    for t in ("bf16", "f16", "f32", "q8_0", "q4_0", "q4_1"):
        got, fault = run(d, "--mock-type", t)
        tally.check(f"type {t}", fault)
        if got:
            hashes.add(got["run_hash"])
            per_token[t] = got["bytes_per_token"]
    tally.check("each type is another model", len(hashes) < 4 and f"{len(hashes)} answers")
    tally.check("4 bits are fewer bytes", not per_token["q4_0"] < per_token["q8_0"] <
                per_token["bf16"] < per_token["f32"] and f"{per_token}")
    one, _ = run(os.path.join(d, "config.json"), "--mock-type", "q8_0")
    for layout in ("tp=2,pp=2", "tp=2,ep=2", "dp=2,ep=2"):
        got, fault = run(d, "--mock-type", "q8_0", "--layout", layout, "-t", "4",
                         "--device", "cpu")  # ranks are the CPU's, whatever SL_DEVICE says
        tally.check(f"layout {layout}", fault or
                    got["run_hash"] != one["run_hash"] and "another answer")
    code, out, err = e2e.run([SLUICE, "run", "-m", f"mock=q8_0:{d}", "--ids", IDS, "-n", "6",
                              "--ignore-eos", "--json", "-q"])
    tally.check("as a name", code and err or
                e2e.last_json(out)["run_hash"] != one["run_hash"] and "another answer")


def bench(work):
    code, out, err = e2e.run([SLUICE, "bench", "--mock", "-m", os.path.join(work, "qwen3_moe"),
                              "-p", "16", "-n", "4", "-b", "1", "-r", "1", "--json"])
    tally.check("bench", code and err or len(json.loads(out)) < 2 and out[:200])


def refused(work):
    d, gguf = os.path.join(work, "qwen3_moe"), os.path.join(TINY, "qwen3_moe")
    os.makedirs(os.path.join(work, "empty"))
    ids = ["--ids", "1", "-n", "1"]
    for args, code, what in (
            (["run", "--mock", "-m", "demo", *ids], 1, "mock: .*config.json is needed"),
            (["run", "--mock", "-m", os.path.join(work, "empty"), *ids], 1, "config.json"),
            (["run", "--mock", "--mock-type", "q3", "-m", d, *ids], 2, r"q3.*bf16\|f16"),
            (["run", "--mock-type", "q8_0", "-m", gguf, *ids], 1, "--mock-type: goes with --mock"),
            (["run", "--mock", "-m", d, "--pack-cache", "beside", *ids], 1, "pack-cache: mock"),
            (["pack", f"mock:{d}", os.path.join(work, "x.packed")], 1, "mock weights"),
            (["eval", "--mock", "-m", d], 2, "--mock"),
            (["quantize", "--mock", d, "x.gguf", "--weights", "q8_0"], 2, "--mock"),
            (["run", "--mock", "-m", d, "-p", "Hello", "-n", "1"], 1, "tokenizer")):
        rc, out, err = e2e.run([SLUICE, *args])
        fault = None if rc == code else f"exit {rc}: {err[-200:]}"
        tally.check(f"refused: {' '.join(args[:4])}", fault or
                    not re.search(what, err) and f"no {what!r} in {err[-300:]!r}" or
                    e2e.one_line_failure(rc, err))


with e2e.scratch() as at:
    every_architecture(at)
    types(at)
    bench(at)
    refused(at)
tally.exit()
