#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare the reference dequantisers with gguf-py, bit for bit, on random blocks
(docs/reliability.md N5).

dequant_oracle.py DEQUANT_CAT [BLOCKS]   compare, 1000000 blocks of each type unless told otherwise
dequant_oracle.py --golden               print the table of tests/unit/test_tensor_dequant.c

Random bytes: NaN and infinite scales occur. NaN must stand where gguf-py has NaN; its payload is
not compared (it depends on the order of operands). Needs gguf and numpy (tests/oracle/venv.sh)."""
import subprocess
import sys

import gguf
import numpy as np

TYPES = ("F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS "
         "MXFP4 NVFP4").split()
QUANT = ("Q8_0 Q4_0 Q4_1 F16 BF16").split()
np.seterr(all="ignore")


def splitmix(seed, n):
    """n u64 of base/rng.h's rng_next."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def blocks_of(name, n, seed):
    qt = gguf.GGMLQuantizationType[name]
    size = gguf.GGML_QUANT_SIZES[qt][1]
    raw = splitmix(seed, (n * size + 7) // 8).view(np.uint8)[: n * size]
    return qt, raw.reshape(n, size).copy()


def reference(qt, blocks):
    return gguf.dequantize(blocks, qt).reshape(-1).astype(np.float32)


def canonical(f):
    """Bits with every NaN the same."""
    return np.where(np.isnan(f), np.uint32(0x7FC00000), f.view(np.uint32))


def compare(cat, total):
    bad = 0
    for name in TYPES:
        done = n_nan = n_inf = 0
        while done < total:
            n = min(100000, total - done)
            qt, blocks = blocks_of(name, n, 1 + done)
            out = subprocess.run([cat, name], input=blocks.tobytes(),
                                 stdout=subprocess.PIPE, check=True).stdout
            want = reference(qt, blocks)
            got = np.frombuffer(out, dtype=np.float32)
            if got.size != want.size or not np.array_equal(canonical(got), canonical(want)):
                bad += 1
                print(f"{name}: DIFFERS in blocks {done}..{done + n}")
                break
            n_nan += int(np.isnan(want).sum())
            n_inf += int(np.isinf(want).sum())
            done += n
        print(f"{name}: {done} blocks equal ({n_nan} NaN, {n_inf} infinite weights)", flush=True)
    rng = np.random.default_rng(1)
    for name in QUANT:
        qt = gguf.GGMLQuantizationType[name]
        x = (rng.standard_normal((20000, 64))
             * np.exp(rng.standard_normal((20000, 1)) * 3)).astype(np.float32)
        x[::7] = 0
        x[1::7] = np.round(x[1::7]) + np.float32(0)  # no -0: its sign in a minimum is not defined
        out = subprocess.run([cat, "--quant", name],
                             input=x.tobytes(), stdout=subprocess.PIPE, check=True).stdout
        same = out == gguf.quantize(x, qt).tobytes()
        bad += not same
        print(f"{name}: quantiser {'equal' if same else 'DIFFERS'} on {x.size} weights")
    return bad


def golden():
    import xxhash
    for name in TYPES:
        qt, blocks = blocks_of(name, 4096, 7)
        digest = xxhash.xxh3_64_intdigest(canonical(reference(qt, blocks)).tobytes())
        print(f"    {{TENSOR_{name}, 0x{digest:016x}ull}},")


if __name__ == "__main__":
    if sys.argv[1:] == ["--golden"]:
        golden()
    else:
        sys.exit(1 if compare(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1000000)
                 else 0)
