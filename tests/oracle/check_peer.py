#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Are the tiny GGUF files what llama.cpp understands? Second oracle: the PyPI package
llama-cpp-python.

  check_peer.py [NAME,...]     writes each spec as an F32 GGUF file and compares llama.cpp's logits
                               with
                               transformers'. What llama.cpp does otherwise is named and skipped.
"""
import os
import sys
import tempfile

import numpy as np

import tiny_gguf
import tiny_hf
import tiny_tok
from make_tiny import sequences, to_np
from tiny_specs import QUANT, SPECS


SKIP = {
    "qwen3_moe_mixed": "llama.cpp knows no dense layers in qwen3moe",
    "deepseek_v2": "llama.cpp ranks groups by the sum of the best two, DeepSeek-V2 by the best",
    "deepseek_v2_lite": "llama.cpp knows the form without q_lora at 26 and 27 layers only",
    "qwen3_next": "llama.cpp's value heads are as wide as its key heads",
    "qwen3_5": "llama.cpp's value heads are as wide as its key heads",
}


def main():
    from llama_cpp import Llama
    only = sys.argv[1].split(",") if len(sys.argv) > 1 else None
    bad = 0
    for name, spec in {**SPECS, **QUANT}.items():
        c = spec["config"]
        if only and name not in only or not only and not spec.get("gguf", ["plain"]):
            continue
        if name in SKIP:
            print(f"{name:20s} skipped: {SKIP[name]}")
            continue
        with tempfile.TemporaryDirectory() as tmp:
            w = tiny_hf.weights(name, spec)
            path = tmp + "/x.gguf"
            s = dict(spec, dtype="F32", mtp=0)
            s.pop("types", None)
            tok = tiny_tok.gguf_keys(spec["tok"], tiny_hf.text_config(c)["vocab_size"])
            tiny_gguf.write(path, name, s, to_np(w), tok)
            seqs = [x[0] for x in sequences(name, spec)][:2]
            ref = tiny_hf.reference(spec, w, tmp + "/hf", seqs)[0]
            try:
                m = Llama(path, n_ctx=1024, logits_all=True, verbose=False, n_threads=2,
                          type_k=0, type_v=0)
            except ValueError as e:
                print(f"{name:20s} FAILED to load: {e}")
                bad += 1
                continue
            worst = 0.0
            for ids, z in zip(seqs, ref):
                m.reset()
                m.eval(ids)
                worst = max(worst, float(np.abs(np.array(m.scores[:len(ids)]) - z).max()))
            worst /= float(np.concatenate(ref).std())
            bad += worst > 1e-4
            print(f"{name:20s} {worst:.1e} of the deviation{'' if worst < 1e-4 else '  BAD'}",
                  flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
