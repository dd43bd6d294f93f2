#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same answer whatever the company (docs/reliability.md N1, N3): alone or in a batch file, with
1 to 4 threads.

  check_company.py [BUILD [--acts A] [--kv K] [--cpu SET] [MODEL...]]

For tiny checkpoints of four architectures, quantised ones too: prompts of 1 to 90 tokens, answered
one at a time and all in one batch, greedy and sampled with a seed each; and the logits of one
sequence, bit for bit, with 1, 2, 3 and 4 threads. --acts and --kv are the program's; --cpu caps the
instruction set (SL_CPU); without them the forms of each model that `forms` lists. MODEL: a name
of a tiny checkpoint, or a path.
"""
import argparse
import json
import os
import random
import sys

import e2e

MODELS = ["llama3", "qwen3_moe", "deepseek_v3", "q_mla.gguf", "q_all.gguf"]


def forms(name, args):
    """[(temperature, acts, kv)] of the batches; small quantised models take f32 by default, so the
    integer products are asked for by name."""
    if args.acts or args.kv:
        return [(t, args.acts or "auto", args.kv or "auto") for t in ("0", "0.8")]
    out = [("0", "auto", "auto"), ("0.8", "auto", "q8")]
    return out + ([("0.8", "int8", "f16")] if name.startswith("q_") else [])


def requests(name):
    r = random.Random(name)
    return [dict(ids=[r.randrange(3, 300) for _ in range(r.choice((1, 2, 7, 16, 17, 33, 64, 90)))],
                 n=r.randint(1, 20), seed=i) for i in range(12)]


def check_batch(exe, path, name, tmp, tally, form, env):
    """The same answers alone and in one batch, with 1 to 4 threads."""
    temp, acts, kv = form
    reqs = requests(name)
    common = ["-m", path, "--temp", temp, "--acts", acts, "--ignore-eos", "--json", "-q"]
    common += [] if kv == "auto" else ["--kv", kv]
    alone = []
    for i, q in enumerate(reqs):
        code, out, err = e2e.run([exe, "run", "--ids", ",".join(map(str, q["ids"])), "-n",
                                  str(q["n"]), "--seed", str(q["seed"]), "-t", str(1 + i % 4)]
                                 + common, env=env)
        if code != 0:
            tally.check(f"{name} alone", f"exit {code}: {err.strip()[:300]}")
            return
        alone.append(e2e.last_json(out)["tokens"])
        if len(alone[-1]) != q["n"]:
            tally.check(f"{name} alone", f"{len(alone[-1])} tokens, not {q['n']}")
    with open(tmp + "/batch.jsonl", "w") as f:
        f.writelines(json.dumps(q) + "\n" for q in reqs)
    for t in "1234":
        code, out, err = e2e.run([exe, "run", "--batch-file", tmp + "/batch.jsonl", "-t", t]
                                 + common, env=env)
        what = f"{name} temp {temp} {acts} {kv} threads {t}"
        if code != 0:
            tally.check(what, f"exit {code}: {err.strip()[:300]}")
            continue
        got = [json.loads(x)["tokens"] for x in out.decode().strip().split("\n")]
        wrong = [i for i in range(len(reqs)) if i >= len(got) or got[i] != alone[i]]
        tally.check(what, wrong and f"answers {wrong} differ from those given alone")


def check_threads(exe, path, name, tmp, tally, acts, env):
    """The same logits with 1 to 4 threads."""
    r = random.Random(name + " threads")
    ids = ",".join(str(r.randrange(3, 300)) for _ in range(150))
    first = None
    for t in "1234":
        out = tmp + "/z"
        code, _, err = e2e.run([exe, "eval", "-m", path, "--ids", ids, "--dump-logits", out,
                                "--acts", acts, "-t", t, "--json"], env=env)
        if code != 0:
            tally.check(f"{name} logits", f"exit {code}: {err.strip()[:300]}")
            return
        z = open(out, "rb").read()
        first = first or z
        tally.check(f"{name} logits {acts} threads {t}", z != first and "other bits")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build", nargs="?")
    p.add_argument("models", nargs="*")
    for option in ("--acts", "--kv", "--cpu"):
        p.add_argument(option)
    args = p.parse_args()
    exe, tiny = e2e.sluice(), e2e.tiny()
    env = {"SL_CPU": args.cpu} if args.cpu else None
    tally = e2e.Tally("company")
    with e2e.scratch() as tmp:
        for name in args.models or MODELS:
            path = name if os.path.exists(name) else f"{tiny}/{name}"
            for form in forms(name, args):
                check_batch(exe, path, name, tmp, tally, form, env)
            for acts in [args.acts] if args.acts else ["f32", "int8", "bf16"]:
                check_threads(exe, path, name, tmp, tally, acts, env)
    tally.exit()


if __name__ == "__main__":
    main()
