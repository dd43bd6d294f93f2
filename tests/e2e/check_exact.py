#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""With --exact the logits of a text have the same bits on the CPU whatever it is good at, on every
device, and with the experts on either side. Without it they have on a device those of the CPU
beside it, in each of the forms that CPUs have.

  check_exact.py BUILD [KIND...] [--brief]   KIND: vulkan, cuda, sim; without one all that there
                                             are. --brief: without --exact on this CPU's form
                                             and two caches alone

77: none of these devices is there (Debian: mesa-vulkan-drivers; for CUDA the tests have a
libcuda.so.1 of their own, tests/dev/fake, in LD_LIBRARY_PATH).
"""
import json
import os
import sys

import e2e

# MLA and experts, of floats and of codes; heads and experts
MODELS = ["deepseek_v3", "q_mla.gguf", "q_moe.gguf"]
N = 70  # tokens of a text: more than a workgroup's columns


def evaluate(exe, path, ids, out, args, env=None):
    """(logits, what went wrong)"""
    code, _, err = e2e.run([exe, "eval", "-q", "-m", path, "--ids-file", ids, "-c", "96",
                            "--dump-logits", out, *args], env=env, timeout=600)
    if code != 0 or "not given back" in err:
        return None, f"exit {code}: {err.strip()[:300]}"
    with open(out, "rb") as f:
        return f.read(), None


def check_model(exe, name, kinds, tmp, tally):
    path = os.path.join(e2e.tiny(), name)
    ids, out = os.path.join(tmp, "ids"), os.path.join(tmp, "out")
    with open(ids, "w") as f:
        f.write(" ".join(str(3 + 7 * i * i % 250) for i in range(N)))
    kv = ["--kv", "f16"]
    want, bad = evaluate(exe, path, ids, out, ["--exact", *kv])
    tally.check(f"{name} on cpu", bad)
    ways = [("cpu, ref", ["--device", "cpu"], {"SL_CPU": "ref"})]
    ways += [("cpu, a thread", ["--device", "cpu", "-t", "1"], None)]
    for kind in kinds:
        ways.append((kind, ["--device", kind], None))
        ways.append((f"{kind}, experts on the cpu", ["--device", kind, "--cpu-moe"], None))
        ways.append((f"experts on {kind}", ["--place", f"experts={kind}"], None))
    for what, args, env in ways:
        got, bad = evaluate(exe, path, ids, out, [*args, "--exact", *kv], env)
        tally.check(f"{name} {what}", bad or (None if got == want else "other bits"))
    # the same as users see it
    with open(ids, "w") as f:
        f.write("Once upon a time there was a small house in a wood. " * 3)
    text = [exe, "eval", "-q", "-m", path, "-f", ids, "-c", "64", "--exact", *kv]
    code, _, err = e2e.run([*text, "--save-base", out])
    for kind in kinds if code == 0 else []:
        code, said, err = e2e.run([*text, "--json", "--base", out, "--device", kind])
        kl = json.loads(said)["kl_mean"] if code == 0 else 1
        tally.check(f"{name} KL on {kind}", None if kl <= 1e-7 else f"{kl}: {err.strip()}")
    tally.check(f"{name} eval", None if code == 0 else err)


def check_default(exe, name, kinds, sets, caches, tmp, tally):
    """Prompts (of latents, keys and values are made), and tokens after them."""
    path = os.path.join(e2e.tiny(), name)
    ids, out = os.path.join(tmp, "ids"), os.path.join(tmp, "out")
    with open(ids, "w") as f:
        f.write(" ".join(str(3 + 7 * i * i % 250) for i in range(2 * N)))
    text = [exe, "run", "-q", "-m", path, "-p", "Once upon a time there was", "-n", "40",
            "--temp", "0", "--ignore-eos", "--json"]
    for cpu in [None, *sets]:
        env = {"SL_CPU": cpu} if cpu else None
        for kv in ["auto"] if cpu else caches:
            args = ["--kv", kv, "-c", "192"]
            want, bad = evaluate(exe, path, ids, out, args, env)
            _, words, _ = e2e.run([*text, "--kv", kv], env=env)
            for kind in kinds:
                what = f"{name} by default, SL_CPU {cpu}, --kv {kv}, {kind}"
                got, worse = evaluate(exe, path, ids, out, [*args, "--device", kind], env)
                tally.check(what, bad or worse or (None if got == want else "other bits"))
                if kv == "auto":
                    split, bad = evaluate(exe, path, ids, out,
                                          [*args, "--device", kind, "--cpu-moe"], env)
                    tally.check(f"{what}, experts on the cpu",
                                bad or (None if split == want else "other bits"))
                code, said, err = e2e.run([*text, "--kv", kv, "--device", kind], env=env)
                same = code == 0 and json.loads(said)["tokens"] == json.loads(words)["tokens"]
                tally.check(f"{what}, tokens", None if same else f"others: {err.strip()}")


def check_line(exe, tally, args, text):
    code, _, err = e2e.run([exe, "run", "-p", "x", "-n", "1", "-m",
                            os.path.join(e2e.tiny(), "llama3"), *args])
    bad = e2e.one_line_failure(code, err)
    tally.check(" ".join(args), bad or (None if text in err else f"no '{text}': {err.strip()}"))


def check_lines(exe, kind, tally):
    """Where it can not be held it is refused; and what doctor says of the products."""
    args = ["--device", f"{kind}:0,fail=exact"]
    check_line(exe, tally, args + ["--exact"], "--exact can not be held: 1 of 2048 quotients")
    code, _, err = e2e.run([exe, "run", "-q", "-p", "x", "-n", "1", "-m",
                            os.path.join(e2e.tiny(), "llama3"), *args])
    tally.check("the same without --exact", None if code == 0 else err)
    for args in ([f"{kind}:0,no-matrix-units"], [kind, "--no-matrix-units"]):
        code, out, err = e2e.run([exe, "doctor", "--json", "--device", *args])
        said = json.loads(out).get("products") if code == 0 else err
        by_hand = str(said).startswith(("by hand: ", "a column")) and "no-matrix" in said
        tally.check(f"doctor {args}", None if by_hand else said)
    code, _, err = e2e.run([exe, "run", "-q", "-p", "x", "-n", "1", "--place", f"experts={kind}",
                            "-m", os.path.join(e2e.tiny(), "qwen3_moe"), "--no-matrix-units"])
    tally.check("a card of a part", None if code == 0 else err)
    check_line(exe, tally, ["--no-matrix-units"], "sluice: no-matrix-units: no card is among the "
               "devices (device: vulkan or cuda)")
    if kind != "cuda":
        return
    check_line(exe, tally, ["--device", "cuda:0,fail=units"],
               "sluice: cuda:0: matrix units give wrong sums on this driver (CUDA 12.4): --device "
               "cuda:0,no-matrix-units runs without")
    args = ["--device", "cuda:0,fail=units", "--no-matrix-units"]  # they are not looked at
    code, _, err = e2e.run([exe, "run", "-q", "-p", "x", "-n", "1", "-m",
                            os.path.join(e2e.tiny(), "llama3"), *args])
    tally.check("without matrix units", None if code == 0 else err)
    code, out, err = e2e.run([exe, "doctor", "--device", "cuda"])
    tally.check("doctor on cuda", None if b"products on matrix units: int8, mma" in out else err)


def main():
    exe = e2e.sluice()
    code, out, err = e2e.run([exe, "doctor", "--json"])
    if code != 0:
        sys.exit(f"doctor: {err}")
    doctor = json.loads(out)
    forms = ["avx512vnni", "avx2", "ref"]  # attention on f32, on 16-bit integers over latents, f32
    sets = [s for s in forms if s in doctor["isa_native"].split() and s != doctor["isa"]]
    there = {c["name"].split(":")[0] for c in doctor["gpus"]} | {"sim"}
    brief = "--brief" in sys.argv
    named = [k for k in sys.argv[2:] if k != "--brief"]
    kinds = [k for k in named or ["sim", "vulkan", "cuda"] if k in there]
    if not kinds:
        print("exact: not run: none of the devices is there")
        return 77
    tally = e2e.Tally("exact on " + ", ".join(kinds))
    with e2e.scratch() as tmp:
        for name in MODELS:
            check_model(exe, name, kinds, tmp, tally)
            check_default(exe, name, [k for k in kinds if k != "sim"], [] if brief else sets,
                          ["auto", "q8"] if brief else ["auto", "f16", "q8", "f32"], tmp, tally)
    for kind in kinds:
        if kind != "sim":
            check_lines(exe, kind, tally)
    tally.exit()


if __name__ == "__main__":
    sys.exit(main())
