#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Logits of every tiny checkpoint against transformers' (tests/oracle/make_tiny.py).

  check_logits.py [BUILD [NAME...]]     SLUICE_TINY names another folder of checkpoints than tests/data's

Bar: max |difference| <= 1e-4 of the deviation of the reference's logits; argmax equal at every position
that is no tie in the reference. -v prints each row.
"""
import array
import json
import os
import sys

import e2e

BAR = 1e-4


def compare(ref, blob, seq, z):
    """(largest difference over the deviation, positions whose argmax differs)"""
    v, worst, wrong = ref["n_vocab"], 0.0, 0
    for k, row in enumerate(seq["rows"]):
        a = z[row * v:(row + 1) * v]
        b = blob[seq["offset"] + k * v:seq["offset"] + (k + 1) * v]
        for x, y in zip(a, b):
            d = abs(x - y)
            if not d <= worst:  # a NaN is larger than everything
                worst = d
    for row, want in enumerate(seq["argmax"]):
        a = z[row * v:(row + 1) * v]
        wrong += want >= 0 and a.index(max(a)) != want
    return worst / ref["std"], wrong


def main():
    verbose = "-v" in sys.argv
    sys.argv = [a for a in sys.argv if a != "-v"]
    exe, tiny, only = e2e.sluice(), e2e.tiny(), set(sys.argv[2:])
    tally, worst_of_all = e2e.Tally("logits"), 0.0
    with e2e.scratch() as tmp:
        for m in json.load(open(f"{tiny}/manifest.json")):
            if only and m["model"] not in only and m["ref"] not in only:
                continue
            ref = json.load(open(f"{tiny}/ref/{m['ref']}.json"))
            blob = array.array("f", open(f"{tiny}/ref/{m['ref']}.f32", "rb").read())
            for i, seq in enumerate(ref["seqs"]):
                name = f"{m['model']}[{i}]"
                ids, out = f"{tmp}/ids", f"{tmp}/logits.f32"
                open(ids, "w").write(",".join(map(str, seq["ids"])) + "\n")
                code, so, err = e2e.run([exe, "eval", "-m", f"{tiny}/{m['model']}", "--ids-file",
                                         ids, "--dump-logits", out, "--acts", "f32", "--json",
                                         "-t", "2"])
                if code != 0:
                    tally.check(name, f"exit {code}: {err.strip()[:400]}")
                    break
                z = array.array("f", open(out, "rb").read())
                os.remove(out)
                want = ref["n_vocab"] * len(seq["ids"])
                if len(z) != want:
                    tally.check(name, f"{len(z)} floats dumped, not {want}")
                    continue
                d, wrong = compare(ref, blob, seq, z)
                worst_of_all = max(worst_of_all, d)
                if verbose:
                    print(f"{name:44s} {d:.1e}  argmax differs {wrong}")
                bad = None if d <= BAR and not wrong else (
                    f"differs by {d:.2e} of the deviation (bar {BAR}), argmax at {wrong} positions")
                tally.check(name, bad)
    print(f"largest difference {worst_of_all:.2e} of the deviation")
    tally.exit()


if __name__ == "__main__":
    main()
