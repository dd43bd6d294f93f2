#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Quantised Hugging Face folders of every format and two architectures (quants.py) against
transformers on weights that numpy dequantised
(tests/data/quants.json, tests/oracle/make_quants.py).

  check_quants.py [BUILD [NAME...]] [-v]

--acts f32: largest difference <= 1e-4 of the deviation of the logits, of the MTP layer's too,
argmax equal where it is no tie. Default activations: mean KL divergence from --acts f32 over 160
tokens <= 0.003 for each folder, with an indexer over those tokens that see all before them: in a
random model a choice that rounding turns over says nothing of the format. inspect --dump: the same
f32, bit for bit.
"""
import array
import base64
import json
import math
import os
import sys
import zlib

import e2e
import quants

BAR, MTP_ROWS = 1e-4, (4, 14)
# mean KL from --acts f32; auto is f32 itself for models of this size
ACTS = {"auto": 0.003, "bf16": 0.003, "int8": 0.02}


def logits(exe, tmp, ids, acts):
    open(f"{tmp}/ids", "w").write(",".join(map(str, ids)) + "\n")
    code, _, err = e2e.run([exe, "eval", "-m", f"{tmp}/m",
                            "--ids-file", f"{tmp}/ids", "--dump-logits", f"{tmp}/z", "--acts", acts,
                            "-t", "2"])
    if code != 0:
        return None, f"exit {code}: {err.strip()[:400]}"
    return array.array("f", open(f"{tmp}/z", "rb").read()), None


def compare(ref, z):
    v, worst = quants.V, 0.0
    want = array.array("f", base64.b64decode(ref["z"]))
    for k, row in enumerate(ref["rows"]):
        for a, b in zip(z[row * v:row * v + v], want[k * v:k * v + v]):
            if not abs(a - b) <= worst:
                worst = abs(a - b)
    wrong = 0
    for row, arg in enumerate(ref["argmax"]):
        a = z[row * v:row * v + v]
        wrong += arg >= 0 and a.index(max(a)) != arg
    return worst / ref["std"], wrong


def mtp(build, tmp, ref):
    """The rows of the MTP layer that the reference has (make_quants.py: MTP_ROWS)."""
    code, _, err = e2e.run([os.path.join(build, "mtp_dump"),
                            f"{tmp}/m", f"{tmp}/ids", f"{tmp}/mtp"])
    if code != 0:
        return f"exit {code}: {err.strip()[:400]}"
    v, worst = quants.V, 0.0
    z, want = array.array("f", open(f"{tmp}/mtp",
                                    "rb").read()), array.array("f", base64.b64decode(ref["mtp"]))
    for k, row in enumerate(MTP_ROWS):
        worst = max(worst,
                    *(abs(a - b) for a, b in zip(z[row * v:row * v + v], want[k * v:k * v + v])))
    return None if worst <= BAR * ref["std"] and len(
        want) == v * len(MTP_ROWS) else f"differs by {worst / ref['std']:.2e} of the deviation"


def log_softmax(a):
    m = max(a)
    s = math.log(sum(math.exp(x - m) for x in a))
    return [x - m - s for x in a]


def rows_of(z):
    return [log_softmax(z[i:i + quants.V]) for i in range(0, len(z), quants.V)]


def mean_kl(p, q):
    """Of rows_of both."""
    out = [sum(math.exp(x) * (x - y) for x, y in zip(a, b)) for a, b in zip(p, q)]
    return sum(out) / len(p)


def dumps(exe, tmp, ref):
    for name, crc in ref["crc"].items():
        code, _, err = e2e.run([exe, "inspect", f"{tmp}/m", "--dump", name, f"{tmp}/d"])
        if code != 0:
            return f"--dump {name}: exit {code}: {err.strip()[:300]}"
        got = zlib.crc32(open(f"{tmp}/d", "rb").read())
        os.remove(f"{tmp}/d")
        if got != crc:
            return f"--dump {name} differs from numpy's"
    return None


def one(exe, tmp, name, ref, tally, verbose, kls):
    os.makedirs(f"{tmp}/m", exist_ok=True)
    for f in os.listdir(f"{tmp}/m"):
        os.remove(f"{tmp}/m/{f}")
    for f, b in quants.build(name).items():
        open(f"{tmp}/m/{f}", "wb").write(b)
    tally.check(name + " dump", dumps(exe, tmp, ref))
    z, bad = logits(exe, tmp, ref["ids"], "f32")
    if "mtp" in ref:
        tally.check(name + " MTP", mtp(e2e.build_dir(), tmp, ref))
    # a mean of 16 positions says little
    many = [(i * i * 31 + i * 7 + 5) % quants.V for i in range(160)]
    f, bad2 = logits(exe, tmp, many, "f32") if z else (None, None)
    q = {}
    for acts in ACTS if f else ():
        q[acts], bad3 = logits(exe, tmp, many, acts)
        bad2 = bad2 or bad3
    if bad or bad2:
        return tally.check(name, bad or bad2)
    d, wrong = compare(ref, z)
    n = ref.get("index_topk", len(many)) * quants.V
    rows = rows_of(f[:n])
    kl = {acts: mean_kl(rows, rows if q[acts] == f else rows_of(q[acts][:n])) for acts in ACTS}
    if verbose:
        print(f"{name:40s} f32 {d:.1e} of the deviation, argmax differs {wrong}, KL "
              + ", ".join(f"{a} {v:.1e}" for a, v in kl.items()), flush=True)
    tally.check(name + " f32", None if d <= BAR and not wrong
                else f"differs by {d:.2e} of the deviation, argmax at {wrong} positions")
    for acts, v in kl.items():
        tally.check(f"{name} {acts}", None if v <= ACTS[acts] else f"KL {v:.5f} (bar {ACTS[acts]})")
        kls.setdefault((name.split(".")[1], acts), []).append(v)


def main():
    verbose = "-v" in sys.argv
    sys.argv = [a for a in sys.argv if a != "-v"]
    exe, only, tally = e2e.sluice(), sys.argv[2:], e2e.Tally("quants")
    refs = json.load(open(os.path.join(e2e.DATA, "quants.json")))
    kls = {}
    with e2e.scratch() as tmp:
        for name in quants.names():
            if only and not any(name.startswith(o) for o in only):
                continue
            if name not in refs:
                tally.check(name, "no reference in tests/data/quants.json")
                continue
            one(exe, tmp, name, refs[name], tally, verbose, kls)
    for (arch, acts), v in kls.items():
        print(f"{arch}: KL of --acts {acts} {sum(v) / len(v):.5f} in the mean, largest "
              f"{max(v):.5f}")
    tally.exit()


if __name__ == "__main__":
    main()
