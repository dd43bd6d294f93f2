#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make tests/data/quants.json: the reference logits of every folder of tests/e2e/quants.py.

  make_quants.py OUT.json [NAME...]     (NAMEs replace their entries in OUT)

The folders are read here with numpy, by the formats' own descriptions, and transformers runs the
dequantised weights. For each folder: some rows of logits (base64 of f32), argmax of every row (-1:
a tie), their deviation, the CRC-32 of the dequantised f32 of four matrices, and two rows of the MTP
layer's logits where there is one (mtp_ref.py).
"""
import base64
import json
import os
import sys
import tempfile
import zlib

import numpy as np
import torch

import mtp_ref
import tiny_hf

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import quants  # noqa: E402

T, ROWS, MTP_ROWS = 16, [5, 10, 15], [4, 14]
NP = {"I64": "<i8", "I32": "<i4", "I8": "i1", "U8": "u1", "F32": "<f4", "F16": "<f2"}
E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6], np.float32)
f32 = np.float32


def e4m3():
    return torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().numpy()


E4M3 = e4m3()


class Folder:
    def __init__(self, files):
        b = files.get("model.safetensors") or files["quant_model_weight.safetensors"]
        n = int.from_bytes(b[:8], "little")
        self.head, self.data = json.loads(b[8:8 + n]), b[8 + n:]
        self.quant = json.loads(files["config.json"]).get("quantization_config")
        for name in ("quantize_config.json", "hf_quant_config.json"):
            if self.quant is None and name in files:
                self.quant = json.loads(files[name])
        for name in files:
            if name.startswith("quant_model_description"):
                self.quant = json.loads(files[name])

    def raw(self, name):
        h = self.head[name]
        a, b = h["data_offsets"]
        return h["dtype"], h["shape"], self.data[a:b]

    def get(self, name):
        """The tensor as an array: floats as f32."""
        d, shape, b = self.raw(name)
        if d == "BF16":
            return (np.frombuffer(b, "<u2").astype(np.uint32) << 16).view(f32).reshape(shape)
        if d == "F8_E4M3":
            return E4M3[np.frombuffer(b, "u1")].reshape(shape)
        if d == "F8_E8M0":
            return np.exp2(np.frombuffer(b, "u1").astype(np.float64)
                           - 127).astype(f32).reshape(shape)
        a = np.frombuffer(b, NP[d]).reshape(shape)
        return a.astype(f32) if d[0] == "F" else a

    def has(self, name):
        return name in self.head


def fields(words, bits, axis):
    """Words of 32 bits taken apart, lowest bits first, along an axis."""
    w = words.astype(np.int64) & 0xffffffff
    parts = [(w >> (bits * i)) & ((1 << bits) - 1) for i in range(32 // bits)]
    a = np.stack(parts, axis + 1)
    shape = list(words.shape)
    shape[axis] *= 32 // bits
    return a.reshape(shape)


def awq_columns(words):
    """[K, N/8] words -> [K, N] in AWQ's order: column P[i] of eight is in nibble i."""
    a = fields(words, 4, 1).reshape(words.shape[0], -1, 8)
    out = np.empty_like(a)
    out[:, :, [0, 2, 4, 6, 1, 3, 5, 7]] = a
    return out.reshape(words.shape[0], -1)


def affine(q, z, s, idx):
    """(q - z) * s, all [N, K] or [N, G] with the group of each column."""
    return (q - z[:, idx]).astype(f32) * s[:, idx]


def deq_awq(x, p):
    q, z, s = awq_columns(x.get(p + ".qweight")), awq_columns(
        x.get(p + ".qzeros")), x.get(p + ".scales")
    k = q.shape[0]
    return affine(q.T, z.T, s.T, np.arange(k) // (k // s.shape[0]))


def deq_gptq(x, p):
    bits = x.quant["bits"]
    less = 0 if x.quant[
        "checkpoint_format"] == "gptq_v2" else 0x11111111 if bits == 4 else 0x01010101
    q, s = fields(x.get(p + ".qweight"), bits, 0), x.get(p + ".scales")
    # of whole words, with carries
    z = fields(x.get(p + ".qzeros").astype(np.int64) + less, bits, 1)
    return affine(q.T, z.T, s.T, x.get(p + ".g_idx"))


def ct_group(x, p):
    """The group of the configuration that a module belongs to, told by what is stored."""
    return list(x.quant["config_groups"].values())


def deq_ct(x, p):
    if x.has(p + ".weight_packed"):
        d, shape, b = x.raw(p + ".weight_packed")
        if d == "U8":
            return deq_fp4(x, p, p + ".weight_packed")
        n, k = x.get(p + ".weight_shape")
        bits = 32 * shape[1] // int(k)
        half = 1 << (bits - 1)
        q = fields(x.get(p + ".weight_packed"), bits, 1)[:, :k] - half
        s = x.get(p + ".weight_scale")
        z = np.zeros(s.shape, np.int64)
        if x.has(p + ".weight_zero_point"):
            z = fields(x.get(p + ".weight_zero_point"), bits, 0)[:n] - half
        idx = x.get(p + ".weight_g_idx") if x.has(
            p + ".weight_g_idx") else np.arange(k) // (k // s.shape[1])
        return affine(q, z, s, idx)
    d, shape, b = x.raw(p + ".weight")
    s = x.get(p + ".weight_scale")
    if d == "F8_E4M3":
        return deq_fp8(x, p, s)
    z = x.get(p + ".weight_zero_point").astype(np.int64) if x.has(
        p + ".weight_zero_point") else np.zeros(s.shape, np.int64)
    return affine(x.get(p + ".weight").astype(np.int64),
                  z, s, np.arange(shape[1]) // (shape[1] // s.shape[1]))


def deq_fp8(x, p, s):
    w = x.get(p + ".weight")
    if s.size == 1:
        return w * s.reshape(())
    if s.ndim == 2 and s.shape[1] > 1 or s.shape[0] < w.shape[0]:
        s = np.repeat(np.repeat(s, 128, 0), 128, 1)[:w.shape[0], :w.shape[1]]
    return w * s


def deq_fp4(x, p, name):
    b = np.frombuffer(x.raw(name)[2], "u1").reshape(x.head[name]["shape"])
    q = E2M1[np.stack([b & 15, b >> 4], -1).reshape(b.shape[0], -1)]
    d, shape, raw = x.raw(p + ".weight_scale")
    if d == "F8_E4M3":
        s = E4M3[np.frombuffer(raw, "u1")].reshape(shape)
    else:
        s = np.exp2(np.frombuffer(raw, "u1").astype(np.float64) - 127).astype(f32).reshape(shape)
    w = q * np.repeat(s, q.shape[1] // s.shape[1], 1)
    if x.has(p + ".weight_scale_2"):
        w = w * x.get(p + ".weight_scale_2").reshape(())
    if x.has(p + ".weight_global_scale"):
        w = w * (f32(1) / x.get(p + ".weight_global_scale").reshape(()))
    return w


def deq_modelopt(x, p):
    if x.raw(p + ".weight")[0] == "U8":
        return deq_fp4(x, p, p + ".weight")
    return deq_fp8(x, p, x.get(p + ".weight_scale"))


def deq_fp8_method(x, p):
    return deq_fp8(x, p, x.get(p + (".weight_scale_inv"
                                    if x.has(p + ".weight_scale_inv") else ".weight_scale")))


def deq_ascend(x, p):
    kind = x.quant[p + ".weight"]
    d, shape, b = x.raw(p + ".weight")
    w = np.frombuffer(b, "i1").reshape(shape)
    if kind == "W8A8":
        d, _, raw = x.raw(p + ".deq_scale")
        deq = np.frombuffer(raw, "<i8").astype(np.int32).view(
            f32) if d == "I64" else np.frombuffer(raw, "<f4")
        return w.astype(f32) * deq[:, None] * (f32(1) / x.get(p + ".input_scale")[0])
    s = x.get(p + ".weight_scale")
    if kind == "W4A8_DYNAMIC":
        if shape[0] != s.shape[0]:  # rows 2i and 2i + 1 in the low and the high half
            u = np.stack([w & 15, (w >> 4) & 15], 1).reshape(-1, shape[1])
            w = np.where(u > 7, u - 16, u)
        if x.has(p + ".weight_scale_second"):
            s = s * x.get(p + ".weight_scale_second")
    return w.astype(f32) * np.repeat(s, w.shape[1] // s.shape[1], 1)


def ascend_bias(x, p):
    """What quant_bias holds besides the correction for the activations' zero point."""
    w = np.frombuffer(x.raw(p + ".weight")[2],
                      "i1").reshape(x.head[p + ".weight"]["shape"]).astype(np.int64)
    d, _, raw = x.raw(p + ".deq_scale")
    deq = np.frombuffer(raw, "<i8").astype(np.int32).view(
        f32) if d == "I64" else np.frombuffer(raw, "<f4")
    rest = x.get(p + ".quant_bias") + int(x.get(p + ".input_offset")[0]) * w.sum(1)
    return rest.astype(f32) * deq


DEQ = {"ascend": deq_ascend, "awq": deq_awq, "gptq": deq_gptq,
       "ct": deq_ct, "modelopt": deq_modelopt, "fp8": deq_fp8_method}


def values(name, files):
    x = Folder(files)
    c = json.loads(files["config.json"])
    mats, vecs, plain = quants.modules(c)
    deq = DEQ[name.split(".")[0].split("_")[0]]
    v = {}
    for n, *_ in mats:
        v[n + ".weight"] = x.get(n + ".weight") if x.has(
            n + ".weight") and x.raw(n + ".weight")[0] == "BF16" else deq(x, n)
        assert v[n + ".weight"].dtype == f32
        if x.has(n + ".quant_bias") and x.quant[n + ".weight"] == "W8A8":
            b = ascend_bias(x, n)
            if b.any():
                v[n + ".bias"] = b
                c["attention_bias"] = True
    for n, *_ in plain + vecs:
        v[n] = x.get(n)
    return c, v


def packed(z):
    return base64.b64encode(z.astype("<f4").tobytes()).decode()


def make(name, tmp):
    c, v = values(name, quants.build(name))
    ids = np.random.default_rng(zlib.crc32(name.encode())).integers(3, quants.V, T).tolist()
    spec, value = dict(config=c), {n: torch.from_numpy(np.ascontiguousarray(a)) for n,
                                   a in v.items()}
    z = tiny_hf.reference(spec, value, tmp + "/f32", [ids])[0][0]
    exact, hidden, _ = tiny_hf.reference(spec, value, tmp + "/f64", [ids], torch.float64)
    exact = exact[0]
    std, noise = float(z.std()), float(np.abs(z - exact).max()) / float(z.std())
    print(f"{name:36s} std {std:.2f}  f32-f64 {noise:.1e} std", flush=True)
    assert np.isfinite(std) and std > 0.3 and noise < 5e-5, name
    top = np.sort(z, -1)
    arg = np.where(top[:, -1] - top[:, -2] > 2e-4 * std, z.argmax(-1), -1)
    dump = [n for n in v if n.endswith(("0.self_attn.o_proj.weight",
                                        "1.mlp.down_proj.weight", "1.mlp.experts.3.up_proj.weight",
                                        "0.mlp.experts.2.down_proj.weight",
                                        "0.self_attn.indexer.wk.weight",
                                        "self_attn.kv_a_proj_with_mqa.weight"))]
    mtp = {"index_topk": c["index_topk"]} if "index_topk" in c else {}
    if c.get("num_nextn_predict_layers"):
        mtp["mtp"] = packed(mtp_ref.forward(c, value,
                                            c["num_hidden_layers"], ids, hidden[0])[MTP_ROWS])
    return dict(ids=ids, std=std, argmax=arg.tolist(), rows=ROWS, z=packed(z[ROWS]), **mtp,
                crc={n: zlib.crc32(np.ascontiguousarray(v[n]).tobytes()) for n in dump})


def main():
    path, names = sys.argv[1], sys.argv[2:] or quants.names()
    out = json.load(open(path)) if len(sys.argv) > 2 and os.path.exists(path) else {}
    with tempfile.TemporaryDirectory() as tmp:
        for n in names:
            out[n] = make(n, tmp)
    with open(path, "w") as f:
        f.write("{\n" + ",\n".join(f'"{n}": {json.dumps(out[n])}' for n in sorted(out)) + "\n}\n")


if __name__ == "__main__":
    main()
