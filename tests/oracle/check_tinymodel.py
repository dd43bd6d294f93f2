#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What tests/e2e/tinymodel.py computes against transformers (float32): the right values of
check_files.py.

  check_tinymodel.py        needs torch and transformers
"""
import math
import os
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import check_files  # noqa: E402
import tinymodel as tiny  # noqa: E402


def transformers(folder, ids):
    m = AutoModelForCausalLM.from_pretrained(folder,
                                             dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        return m.eval()(torch.tensor([ids])).logits[0].tolist()


def cases():
    for arch in ("llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "deepseek_v2", "deepseek_v3"):
        for eps in (1e-6, 1e-5):
            yield f"{arch} {eps}", tiny.config(arch, rms_norm_eps=eps), {}
    c = tiny.config("llama", rope_theta=10000.0)
    for truncate in (True, False):
        s = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64,
                 truncate=truncate)
        yield f"yarn {truncate}", dict(c, rope_scaling=s), dict(
            inv_freq=check_files.yarn_freq(c, 4, 64, truncate), mscale=.1 * math.log(4) + 1)
    slide = ["full_attention", "sliding_attention"]
    for arch, extra, win in (("qwen2", dict(max_window_layers=1), [0, 8]),
                             ("qwen2", dict(max_window_layers=0, layer_types=slide[::-1]), [8, 0]),
                             ("qwen3", dict(max_window_layers=2, layer_types=slide), [0, 8]),
                             ("qwen3_moe", dict(max_window_layers=28), [8, 8]),
                             ("mistral", {}, [8, 8])):
        use = {} if arch == "mistral" else dict(use_sliding_window=True)
        yield f"{arch} {extra}", tiny.config(arch,
                                             sliding_window=8, **use, **extra), dict(windows=win)


def main():
    bad, ids = 0, tiny.ids(40)
    for name, c, how in cases():
        w = tiny.weights(c)
        with tempfile.TemporaryDirectory() as d:
            want = transformers(tiny.folder(d, c, w), ids)
        got = [v for row in tiny.Net(c, w, **how).forward(ids) for v in row]
        diff = tiny.distance(got, want)
        bad += diff > 2e-5
        print(f"{'ok ' if diff <= 2e-5 else 'BAD'} {name:60s} {diff:.1e}", flush=True)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
