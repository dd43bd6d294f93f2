#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Dequantisation of every GGUF block type and of FP8 against gguf-py, bit for bit.

  check_dequant.py [BUILD] [--blocks N]      N random blocks of each type (1000000)

Runs in the oracle environment: $(tests/oracle/venv.sh) scripts/check_dequant.py build
Scales are any finite f16 (subnormal, negative, zero too), all E8M0 codes below NaN, all UE4M3
codes; F16, BF16 and F8_E4M3 run through every bit pattern. NaN equals NaN.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import gguf
from gguf import GGMLQuantizationType as Q

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SCALES = {Q.Q4_0: [0], Q.Q4_1: [0, 2], Q.Q5_0: [0], Q.Q5_1: [0, 2], Q.Q8_0: [0], Q.Q2_K: [80, 82],
          Q.Q3_K: [108], Q.Q4_K: [0, 2], Q.Q5_K: [0, 2], Q.Q6_K: [208], Q.IQ4_NL: [0],
          Q.IQ4_XS: [0], Q.MXFP4: [], Q.NVFP4: []}


def blocks(q, n, rng):
    b = rng.integers(0, 256, (n, gguf.GGML_QUANT_SIZES[q][1]), dtype=np.uint8)
    for at in SCALES[q]:
        h = rng.integers(0, 65536, n).astype(np.uint16)
        h = np.where((h & 0x7c00) == 0x7c00, h & 0x83ff, h).astype(np.uint16)  # finite
        b[:, at:at + 2] = h[:, None].view(np.uint8).reshape(n, 2)
    if q == Q.MXFP4:
        b[:, 0] = rng.integers(0, 255, n)
    if q == Q.NVFP4:
        b[:, :4] &= 0x7f
    return b


def dump(exe, model, tensor, out):
    p = subprocess.run([exe, "inspect", model, "--dump", tensor, out], capture_output=True)
    if p.returncode:
        sys.exit(f"inspect --dump {tensor} failed: {p.stderr.decode().strip()}")
    return np.fromfile(out, np.float32)


def differ(got, want):
    """Number of values that are not the same bits (NaN equals NaN); a wrong size counts as all."""
    want = np.ascontiguousarray(want, np.float32).ravel()
    if got.size != want.size:
        return want.size
    return int(((got.view(np.uint32) != want.view(np.uint32))
                & ~(np.isnan(got) & np.isnan(want))).sum())


def gguf_file(path, tensors):
    w = gguf.GGUFWriter(path, "llama")
    w.add_block_count(1)
    for name, raw, q in tensors:
        w.add_tensor(name, raw, raw_dtype=q)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def check_fp8(exe, tmp):
    """All 256 codes under random 128x128 scales, in a matrix whose sides are no multiples of
    128."""
    rng = np.random.default_rng(5)
    rows, cols = 200, 300
    code = rng.integers(0, 256, (rows, cols)).astype(np.uint8)
    code[0, :256] = np.arange(256)
    s = rng.uniform(1e-4, 2, (2, 3)).astype(np.float32)
    e, m = (code >> 3) & 15, (code & 7).astype(np.float32)
    v = np.where(e == 0, m * 2.0**-9, (1 + m / 8) * np.exp2(e.astype(np.float32) - 7))
    v = np.where((code & 127) == 127, np.nan, v) * np.where(code & 128, -1, 1)
    want = v.astype(np.float32) * np.repeat(np.repeat(s, 128, 0), 128, 1)[:rows, :cols]
    os.makedirs(tmp + "/fp8", exist_ok=True)
    head = json.dumps({
        "m.weight": dict(dtype="F8_E4M3", shape=[rows, cols], data_offsets=[0, rows * cols]),
        "m.weight_scale_inv": dict(dtype="F32", shape=[2, 3],
                                   data_offsets=[rows * cols, rows * cols + 24])}).encode()
    with open(tmp + "/fp8/model.safetensors", "wb") as f:
        f.write(len(head).to_bytes(8, "little") + head + code.tobytes() + s.tobytes())
    with open(tmp + "/fp8/config.json", "w") as f:
        json.dump(dict(model_type="deepseek_v3", quantization_config=dict(
            quant_method="fp8", fmt="e4m3", weight_block_size=[128, 128])), f)
    got = dump(exe, tmp + "/fp8", "m.weight", tmp + "/out")
    n = differ(got, want)
    print(f"F8_E4M3  {rows * cols:>10d} values, {n} differ")
    return n


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("build", nargs="?", default=os.path.join(ROOT, "build"))
    ap.add_argument("--blocks", type=int, default=1000000)
    a = ap.parse_args()
    exe = os.path.join(a.build, "sluice")
    rng = np.random.default_rng(20240)
    bad = 0
    with tempfile.TemporaryDirectory() as tmp:
        path, out = tmp + "/x.gguf", tmp + "/out"
        every = np.arange(65536, dtype=np.uint16).reshape(256, 256)
        gguf_file(path, [("f16.weight", every.view(np.float16), Q.F16),
                         ("bf16.weight", every.view(np.uint8).reshape(256, 512), Q.BF16)])
        with np.errstate(all="ignore"):
            for name, want in (("f16", every.view(np.float16).astype(np.float32)),
                               ("bf16", (every.astype(np.uint32) << 16).view(np.float32))):
                n = differ(dump(exe, path, name + ".weight", out), want)
                print(f"{name.upper():8s} {65536:>10d} patterns, {n} differ", flush=True)
                bad += n
        for q in SCALES:
            done = wrong = 0
            while done < a.blocks:
                n = min(a.blocks - done, 131072 if gguf.GGML_QUANT_SIZES[q][0] == 256 else 524288)
                n = max(n // 16, 1) * 16
                b = blocks(q, n, rng)
                gguf_file(path, [("x.weight", b.reshape(16, -1), q)])
                with np.errstate(all="ignore"):
                    want = gguf.dequantize(b, q)
                wrong += differ(dump(exe, path, "x.weight", out), want)
                done += n
            print(f"{q.name:8s} {done:>10d} blocks, {wrong} values differ", flush=True)
            bad += wrong
        bad += check_fp8(exe, tmp)
    print("dequantisation: " + (f"{bad} values differ" if bad else "bit-exact, every type"))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
