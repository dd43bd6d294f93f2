#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the tiny checkpoints of tests/data/tiny and their reference logits (transformers, fp32,
eager).

  make_tiny.py OUT [--only NAME,...] [--all-types] [--pack tests/data/tiny.tar.xz]

OUT receives NAME/ (Hugging Face folders), NAME*.gguf, ref/NAME.json + .f32 and manifest.json, which
lists what is to be compared with what. With --only, what OUT holds already stays, and where it
holds nothing the archive of --pack is unpacked there first: so models are added to it. Seeds are
fixed. The newer architectures need transformers 5.
--all-types also writes one GGUF file for each block type and each of three architectures (not kept
in the repository). --pack writes OUT as one archive: LZMA finds the rows that a folder and its GGUF
file share, so it is half the size. ref/NAME.json: {"n_vocab", "std", "seqs": [{"ids", "argmax" (-1:
a tie), "rows", "offset"}]}: row i of the sequence has its logits at float offset + V *
rows.index(i) in the .f32 file. "mtp" is the same for the MTP layer: row i is what it makes of token
i+1 and hidden i.
"""
import argparse
import json
import lzma
import os
import shutil
import sys
import tarfile
import tempfile
import zlib

import numpy as np
import torch

import index_ref
import mtp_ref
import tiny_gguf
import tiny_hf
import tiny_tok
import tiny_v4
from tiny_specs import QUANT, SPECS, TYPES

T_FULL, T_TAIL, N_TAIL, T_LONG = 16, 56, 6, 700


def sequences(name, spec):
    rng = np.random.default_rng(zlib.crc32(name.encode()) + spec.get("ids", 0))
    n = tiny_hf.text_config(spec["config"])["vocab_size"]
    s = [(rng.integers(3, n, T_FULL).tolist(), list(range(T_FULL))),
         (rng.integers(3, n, T_TAIL).tolist(), list(range(T_TAIL - N_TAIL, T_TAIL)))]
    if "mid" in spec:
        k = spec["mid"]
        s.append((rng.integers(3, n, k).tolist(), [15, 63, 64, 65, 127, 128, k - 2, k - 1]))
    if spec.get("long"):
        s.append((rng.integers(3, n, T_LONG).tolist(), [63, 64, 511, 512, T_LONG - 1]))
    return s


def entry(ids, z, rows, std, blob):
    top = np.sort(z, -1)
    arg = np.where(top[:, -1] - top[:, -2] > 2e-4 * std, z.argmax(-1), -1)
    offset = sum(len(b) for b in blob)
    blob.append(np.ascontiguousarray(z[rows], np.float32).ravel())
    return dict(ids=ids, argmax=arg.tolist(), rows=rows, offset=offset)


def make_reference(out, name, spec, value, tmp):
    seqs = sequences(name, spec)
    ids = [s[0] for s in seqs]
    c, watch = tiny_hf.text_config(spec["config"]), None
    if "index_topk" in c and not tiny_v4.is_v4(c):
        watch = index_ref.Watch(name, c, value, lambda n: mtp_ref.angles(c, n))
    if tiny_hf.is_m3(c):
        watch = index_ref.WatchBlocks(name, c, value, tiny_hf.blocks_of(c))
    logits, hidden, _ = tiny_hf.reference(spec, value, tmp + "/f32", ids)
    exact, hidden64, _ = tiny_hf.reference(spec, value, tmp + "/f64", ids, torch.float64, watch)
    std = float(np.concatenate(logits).std())
    noise = max(float(np.abs(a - b).max()) for a, b in zip(logits, exact)) / std
    assert np.isfinite(std) and std > 0.3, (name, std)
    # rounding alone must not decide a route: else choose other ids
    assert noise < 5e-5, f"{name}: f32 and f64 differ by {noise:.1e} std"
    blob = []
    ref = dict(n_vocab=logits[0].shape[1], std=std,
               seqs=[entry(s[0], z, s[1], std, blob) for s, z in zip(seqs, logits)])
    if spec.get("mtp"):
        ref["mtp"] = []
        for s, h in list(zip(ids, hidden64))[:2]:
            z = mtp_ref.forward(tiny_hf.usual(c), value, c["num_hidden_layers"], s, h)
            ref["mtp"].append(entry(s, z, list(range(len(z) - N_TAIL, len(z))), std, blob))
    os.makedirs(out + "/ref", exist_ok=True)
    with open(f"{out}/ref/{name}.json", "w") as f:
        json.dump(ref, f)
    np.concatenate(blob).tofile(f"{out}/ref/{name}.f32")
    more = f"  least gap of positions {watch.least:.1e}" if watch else ""
    print(f"{name:20s} std {std:.2f}  f32-f64 {noise:.1e} std{more}", flush=True)


def to_np(value):
    return {n: t.numpy() for n, t in value.items()}


def make_plain(out, name, spec, tmp, manifest):
    folder = f"{out}/{name}"
    shutil.rmtree(folder, ignore_errors=True)
    value = tiny_hf.write_folder(folder, spec, tiny_hf.weights(name, spec))
    tiny_tok.write_folder(folder, spec["tok"])
    make_reference(out, name, spec, value, tmp)
    manifest.append(dict(model=name, ref=name))
    for kind in spec["gguf"]:
        base = name if kind == "plain" else f"{name}_{kind}"
        path = f"{out}/{base}.gguf"
        w = to_np(value)
        tok = tiny_tok.gguf_keys(spec["tok"], tiny_hf.text_config(spec["config"])["vocab_size"])
        s = dict(spec, mtp=0) if kind == "legacy" else spec
        tiny_gguf.write(path, name, s, w, tok, legacy=kind == "legacy",
                        split=20 if kind == "split" else 0)
        if kind == "split":
            first = sorted(f for f in os.listdir(out) if f.startswith(base + "-00"))[0]
            base = first.removesuffix(".gguf")
        manifest.append(dict(model=base + ".gguf", ref=name))


def make_quant(out, name, spec, tmp, manifest):
    w = tiny_hf.weights(name, spec)
    tok = tiny_tok.gguf_keys(spec["tok"], spec["config"]["vocab_size"])
    val = tiny_gguf.write(f"{out}/{name}.gguf", name, spec, to_np(w), tok,
                          seed=zlib.crc32(name.encode()))
    assert set(val) == set(w), set(w) ^ set(val)
    value = {n: torch.from_numpy(np.array(val[n])) for n in w}
    make_reference(out, name, spec, value, tmp)
    manifest.append(dict(model=name + ".gguf", ref=name))


def pack(out, path):
    def plain(t):
        t.mtime = t.uid = t.gid = 0
        t.uname = t.gname = ""
        t.mode = 0o755 if t.isdir() else 0o644
        return t
    print(f"packing {path}", flush=True)
    part = path + ".part"  # a build meanwhile, or an interrupt, must not find half of it
    with lzma.open(part, "wb", preset=9 | lzma.PRESET_EXTREME) as f:
        with tarfile.open(fileobj=f, mode="w", format=tarfile.USTAR_FORMAT) as t:
            for n in sorted(os.listdir(out)):
                if not n.startswith("."):  # a stamp of the build
                    t.add(f"{out}/{n}", n, filter=plain)
    os.replace(part, path)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("out")
    ap.add_argument("--only", default="")
    ap.add_argument("--all-types", action="store_true")
    ap.add_argument("--pack")
    a = ap.parse_args()
    only = set(filter(None, a.only.split(",")))
    os.makedirs(a.out, exist_ok=True)
    manifest, kept, at = [], [], a.out + "/manifest.json"
    todo = [(make_plain, n, s) for n, s in SPECS.items()]
    todo += [(make_quant, n, s) for n, s in QUANT.items()]
    if a.all_types:
        for q in TYPES:
            for n, s in QUANT.items():
                t = {"*": q, "attn_k_b": q, "token_embd": q, "output": q}
                todo.append((make_quant, f"{n}_{q.lower()}", dict(s, types=t)))
    unknown = only - {n for _, n, _ in todo}
    if unknown:
        sys.exit(f"make_tiny: no spec: {', '.join(sorted(unknown))}")
    if only and a.pack and os.path.exists(a.pack) and not os.path.exists(at):
        with tarfile.open(a.pack) as t:
            t.extractall(a.out, filter="data")
    if only and os.path.exists(at):
        kept = json.load(open(at))
    with tempfile.TemporaryDirectory() as tmp:
        for fn, n, s in todo:
            if not only or n in only:
                fn(a.out, n, s, tmp, manifest)
    made = {m["model"] for m in manifest}
    manifest = [m for m in kept if m["model"] not in made] + manifest
    with open(at, "w") as f:
        json.dump(manifest, f, indent=0)
    if a.pack:
        pack(a.out, a.pack)


if __name__ == "__main__":
    main()
