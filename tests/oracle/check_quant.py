#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `sluice quantize` writes, read by others: folders by numpy after the formats' own words,
GGUF by gguf-py, and, where they can, folders by transformers.

  check_quant.py BUILD     compares the values with the source's and the error with the one that
                           quantize printed
"""
import json
import os
import sys
import tempfile

import gguf
import numpy as np
import torch

import runs
from folders import tensors

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")
S, TINY = os.path.join(BUILD, "sluice"), os.path.join(BUILD, "tests", "tiny")
E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6], np.float32)
SRC = "deepseek_v3"  # widths of 136 and 40: what does not fit is kept
WIDE = "q_all.gguf"  # widths of 256


def run(*args):
    out = runs.sluice(S, *args).strip()
    return json.loads(out.split("\n")[-1]) if out else None


def u8(t):
    return t.view(torch.uint8).numpy()


def nibbles(x):
    """[n, k/2] bytes -> [n, k], low nibble first"""
    return np.stack([x & 15, x >> 4], -1).reshape(x.shape[0], -1)


def values(t, base):
    """Dequantised [rows, columns] of module `base`, or None when it is not quantised."""
    def get(s):
        return t.get(f"{base}.{s}")
    if get("qweight") is not None:  # AWQ, GEMM
        order = [0, 4, 1, 5, 2, 6, 3, 7]
        qw, qz, sc = (get(k) for k in ("qweight", "qzeros", "scales"))
        w, z = (np.stack([(a.numpy() >> (4 * i)) & 15 for i in order], -1).reshape(a.shape[0], -1)
                for a in (qw, qz))
        g = w.shape[0] // z.shape[0]
        return ((w - np.repeat(z, g, 0)) * np.repeat(sc.float().numpy(), g, 0)).T
    if get("weight_packed") is not None and get("weight_shape") is not None:  # int4
        p, shape = get("weight_packed").numpy().view(np.uint32), get("weight_shape").tolist()
        q = np.stack([(p >> (4 * i)) & 15 for i in range(8)],
                     -1).reshape(p.shape[0], -1)[:, :shape[1]]
        return (q.astype(np.int32) - 8) * get("weight_scale").float().numpy()
    if get("weight_global_scale") is not None:  # NVFP4
        s = np.repeat(get("weight_scale").float().numpy(), 16, 1)
        return E2M1[nibbles(u8(get("weight_packed")))] * s / get("weight_global_scale").numpy()
    if get("weight_packed") is not None:  # MXFP4
        return E2M1[nibbles(u8(get("weight_packed")))] * np.exp2(
            np.repeat(u8(get("weight_scale")).astype(np.float32), 32, 1) - 127)
    w = get("weight")
    if w.dtype == torch.int8:
        return w.numpy() * get("weight_scale").float().numpy()
    for s in ("weight_scale_inv", "weight_scale"):
        if w.dtype == torch.float8_e4m3fn and get(s) is not None:
            b = get(s).numpy().repeat(128, 0).repeat(128, 1)[:w.shape[0], :w.shape[1]]
            return w.float().numpy() * b
    return None


CLASS = (("shared_experts.", "feed-forward"), ("experts.", "experts"),
         ("self_attn.", "attention"), ("mlp.", "feed-forward"), ("lm_head", "head"))


def check_folder(kind, more, tmp):
    src = tensors(os.path.join(TINY, SRC))
    dst = os.path.join(tmp, "f")
    rep = run("quantize", os.path.join(TINY, SRC),
              dst, "--weights", kind, "--force", "--json", "-q", *more)
    got, err, ref, n = tensors(dst), {}, {}, 0
    for name, x in src.items():
        base = name[:-7]
        if not name.endswith(".weight") or x.ndim < 2:
            continue
        v = values(got, base) if name not in got or got[name].dtype != x.dtype else None
        if v is None:
            assert torch.equal(got[name], x), f"{kind}: {name} changed"
            continue
        c = next(b for a, b in CLASS if a in name)
        d = v.astype(np.float64) - x.double().numpy()
        assert np.abs(d).max() < 0.6 * x.abs().max().item(), f"{kind}: {name}"
        err[c], ref[c], n = err.get(c, 0) + (d ** 2).sum(), ref.get(
            c, 0) + (x.double().numpy() ** 2).sum(), n + 1
    said = {r["class"]: r["error"] for r in rep["classes"] if r["to"] == kind}
    assert n and set(said) == set(err), f"{kind}: {said} {err}"
    for c, e in said.items():
        mine = (err[c] / ref[c]) ** 0.5
        assert abs(mine - e) < 1e-4 * e, f"{kind} {c}: {mine}, quantize said {e}"
    return n


def check_gguf(kind, tmp):
    dst = os.path.join(tmp, "t.gguf")
    rep = run("quantize", os.path.join(TINY, WIDE),
              dst, "--weights", kind, "--force", "--json", "-q")
    src = {t.name: t for t in gguf.GGUFReader(os.path.join(TINY, WIDE)).tensors}
    got = {t.name: t for t in gguf.GGUFReader(dst).tensors}
    err = ref = n = 0
    for name, t in got.items():
        if "ffn_" not in name or t.tensor_type.name.lower() != kind or src[
                name].tensor_type == t.tensor_type:
            continue
        w = src[name]
        x, y = (np.asarray(gguf.dequantize(a.data, a.tensor_type),
                           np.float64).reshape(t.shape[::-1]) for a in (w, t))
        for a, side in ((w, src), (t, got)):
            s = side.get(name.replace(".weight", ".scale"))
            if s is not None:
                x, y = (x * s.data[0], y) if a is w else (x, y * s.data[0])
        err, ref, n = err + ((x - y) ** 2).sum(), ref + (x ** 2).sum(), n + 1
    rows = [r for r in rep["classes"] if r["class"] == "feed-forward"
            and r["to"] == kind and r["from"].lower() != kind]
    said = (sum((r["error"] or 0) ** 2 * r["weights"] for r in rows)
            / sum(r["weights"] for r in rows)) ** 0.5
    mine = (err / ref) ** 0.5
    # rows weigh differently
    assert n and abs(mine - said) < 0.2 * said + 1e-9, f"{kind}: {mine}, quantize said {said}"
    return n


def check_transformers(kind, more, src, tmp):
    """Logits of the folder in transformers against ours."""
    from transformers import AutoModelForCausalLM
    dst = os.path.join(tmp, "h")
    ids = [5, 6, 7, 8, 9, 20, 30, 40, 50, 60]
    run("quantize", os.path.join(TINY, src), dst, "--weights",
        kind, "--force", "--json", "-q", *more)
    # compressed-tensors gives those back in bf16
    dtype = torch.bfloat16 if kind in ("nvfp4", "mxfp4") else torch.float32
    model = AutoModelForCausalLM.from_pretrained(dst,
                                                 dtype=dtype, attn_implementation="eager").eval()
    with torch.no_grad():
        want = model(torch.tensor([ids])).logits[0].float().numpy()
    got = runs.logits(S, dst, ids, "--acts", "f32")
    return float(np.abs(want - got).max() / want.std())


def main():
    with tempfile.TemporaryDirectory() as tmp:
        for kind, more in (("int8", []), ("int4", []),
                           ("awq", ["--group", "32"]), ("fp8", []), ("nvfp4", []), ("mxfp4", []),
                           ("int8", ["--plain"]), ("awq", ["--group", "32", "--plain"])):
            print(f"folder {kind} {' '.join(more)}: {check_folder(kind, more, tmp)} matrices as "
                  "numpy reads them", flush=True)
        for kind in ("q8_0", "q4_0", "q4_1", "q5_0",
                     "q5_1", "q4_k", "q5_k", "q6_k", "mxfp4", "nvfp4"):
            print(f"gguf {kind}: {check_gguf(kind, tmp)} matrices as gguf-py reads them",
                  flush=True)
        # What transformers runs on a CPU; int8 means activations of 8 bits a token there, NVFP4 and
        # MXFP4 bf16 everywhere. It takes blocks of FP8 to be rows / rows of scales, so parts of a
        # block are wrong there: check_third.py compares whole ones.
        for kind, tol in (("f32", 1e-4), ("bf16", 1e-4),
                          ("int4", 1e-4), ("int8", 0.2), ("nvfp4", 0.2), ("mxfp4", 0.2)):
            try:
                d = check_transformers(kind, [], "llama2", tmp)
                print(f"transformers {kind}: logits differ by {d:.2e} of their deviation",
                      flush=True)
                assert d < tol
            except ImportError as e:
                print(f"transformers {kind}: not checked: {str(e).splitlines()[0][:100]}")
    print("ok")


if __name__ == "__main__":
    main()
