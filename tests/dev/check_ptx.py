#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The kernels' PTX rounds as IEEE says and calls nothing; with NVIDIA's ptxas at hand it is code of
every generation of cards.

  check_ptx.py BUILD

77: the build has no PTX (Debian: clang).
"""
import concurrent.futures
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

# Sums and products without a rounding may be contracted to one of both; others are approximate.
LOOSE = re.compile(r"\b(?:add|sub|mul|fma|mad|div|sqrt|rcp)(?:\.(?:approx|full|ftz|sat))*"
                   r"\.f(?:32|64)|\b\w+(?:\.\w+)*\.(?:approx|full|ftz)\b|\bmad\.\w*\.?f\d\d"
                   r"|^\s*\.extern.*|\bcall\b.*", re.M)
TARGET = re.compile(r"^\.target sm_(\d+)", re.M)
CARDS = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"]


def looks(path):
    """What is wrong with a file's text."""
    with open(path) as f:
        text = f.read()
    name = os.path.basename(path)[:-4]
    bad = [m[0].strip() for m in LOOSE.finditer(text)]
    if f".visible .entry {name}(" not in text:
        bad.append(f"no entry {name}")
    return [f"{name}: {b}" for b in bad[:3]]


def assemble(ptxas, card, path, tmp):
    out = os.path.join(tmp, f"{card}-{os.path.basename(path)}")
    p = subprocess.run([ptxas, "-arch=" + card, path, "-o", out], capture_output=True, text=True)
    said = f"{os.path.basename(path)} for {card}: {p.stderr.strip()[:200]}"
    return [said] if p.returncode else []


LOOSE_ONES = ["mul.f32 %f1", "add.f64 %fd1", "div.full.f32 %f1", "sqrt.approx.f32 %f1",
              "call.uni x", "fma.rn.ftz.f32 %f1", "mad.f32 %f1", ".extern .func x"]
STRICT_ONES = ["mul.rn.f32 %f1", "add.s32 %r1", "fma.rn.f32 %f1", "div.rn.f32", "mul.wide.u32 %rd1"]


def main():
    assert all(LOOSE.search(s) for s in LOOSE_ONES) and not any(map(LOOSE.search, STRICT_ONES))
    all_ = sorted(glob.glob(os.path.join(sys.argv[1], "src", "dev", "ptx", "*.ptx")))
    if not all_:
        print("ptx: not run: this build has none (Debian: clang)")
        return 77
    bad = sum([looks(p) for p in all_], [])
    ptxas = shutil.which("ptxas") or shutil.which("ptxas", path="/usr/local/cuda/bin")
    cards = []
    if ptxas:
        known = subprocess.run([ptxas, "--help"], capture_output=True, text=True).stdout
        cards = [c for c in CARDS if f"'{c}'" in known]
        # every kernel for the newest; for the others those that have instructions of their own
        some = [p for p in all_ if os.path.basename(p) in ("mv_q4_0.ptx", "attn.ptx", "prep.ptx",
                                                           "route.ptx", "best.ptx", "mm_q4_0.ptx",
                                                           "cm_q4_0.ptx", "cm_q6_k.ptx")]
        jobs = [(c, p) for c in cards for p in (all_ if c == cards[-1] else some)
                if int(c[3:]) >= int(TARGET.search(open(p).read())[1])]
        units = [p for p in all_ if os.path.basename(p).startswith("cm_")]
        bad += [f"{p}: no matrix units" for p in units if "mma.sync" not in open(p).read()]
        with tempfile.TemporaryDirectory(prefix="sluice-ptx-") as tmp, \
                concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            bad += sum(pool.map(lambda j: assemble(ptxas, *j, tmp), jobs), [])
    for line in bad:
        print("FAIL", line)
    made = f"assembled for {', '.join(cards)}" if cards else "not assembled: there is no ptxas"
    print(f"ptx: {len(all_)} kernels, {len(bad)} bad; {made}")
    return 1 if bad or len(all_) < 70 else 0


if __name__ == "__main__":
    sys.exit(main())
