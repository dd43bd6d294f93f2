#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same answer whatever the company (RELIABILITY N1, N3): alone or in a batch file, with 1 to 4 threads.

  check_company.py [BUILD [MODEL...]]

For tiny checkpoints of four architectures, quantised ones too: prompts of 1 to 90 tokens, answered one at a time and all in one
batch, greedy and sampled with a seed each; and the logits of one sequence, bit for bit, with 1, 2, 3 and 4 threads.
"""
import json
import random
import sys

import e2e

MODELS = ["llama3", "qwen3_moe", "deepseek_v3", "q_mla.gguf", "q_all.gguf"]


def check(exe, path, name, tmp, tally):
    r = random.Random(name)
    reqs = []
    for i in range(12):
        ids = [r.randrange(3, 300) for _ in range(r.choice((1, 2, 7, 16, 17, 33, 64, 90)))]
        reqs.append(dict(ids=ids, n=r.randint(1, 20), seed=i))
    modes = [("0", "auto"), ("0.8", "auto")]
    if name.startswith("q_"):  # small enough for f32 by default: the integer products by name
        modes.append(("0.8", "int8"))
    for temp, acts in modes:
        common = ["-m", path, "--temp", temp, "--acts", acts, "--ignore-eos", "--json"]
        alone = []
        for i, q in enumerate(reqs):
            code, out, err = e2e.run([exe, "run", "--ids", ",".join(map(str, q["ids"])), "-n",
                                      str(q["n"]), "--seed", str(q["seed"]), "-t",
                                      str(1 + i % 4)] + common)
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
                                     + common)
            what = f"{name} temp {temp} {acts} threads {t}"
            if code != 0:
                tally.check(what, f"exit {code}: {err.strip()[:300]}")
                continue
            got = [json.loads(x)["tokens"] for x in out.decode().strip().split("\n")]
            wrong = [i for i in range(len(reqs)) if i >= len(got) or got[i] != alone[i]]
            tally.check(what, wrong and f"answers {wrong} differ from those given alone")
    ids = ",".join(str(r.randrange(3, 300)) for _ in range(150))
    first = None
    for acts in ("f32", "int8", "bf16"):
        first = None
        for t in "1234":
            out = tmp + "/z"
            code, _, err = e2e.run([exe, "eval", "-m", path, "--ids", ids, "--dump-logits", out,
                                    "--acts", acts, "-t", t, "--json"])
            if code != 0:
                tally.check(f"{name} logits", f"exit {code}: {err.strip()[:300]}")
                return
            z = open(out, "rb").read()
            first = first or z
            tally.check(f"{name} logits {acts} threads {t}", z != first and "other bits")


def main():
    exe, tiny = e2e.sluice(), e2e.tiny()
    tally = e2e.Tally("company")
    with e2e.scratch() as tmp:
        for name in sys.argv[2:] or MODELS:
            check(exe, f"{tiny}/{name}", name, tmp, tally)
    tally.exit()


if __name__ == "__main__":
    main()
