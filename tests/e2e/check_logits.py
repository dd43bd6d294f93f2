#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Logits of every tiny checkpoint against transformers' (tests/oracle/make_tiny.py).

  check_logits.py [BUILD [NAME...]]     SLUICE_TINY names another folder of checkpoints than
                                        tests/data's

Bar for --acts f32: max |difference| <= 1e-4 of the deviation of the reference's logits; argmax
equal at every position that is no tie in the reference. With int8 and bf16 activations (and the
bf16 KV cache) the row in the middle differs by at most 6 % of the deviation, root mean square: a
wrong kernel is far outside, and a route that rounding turns over in one row of a random model does
no harm. -v prints each row.
"""
import array
import json
import os
import sys

import e2e

BAR, ROUGH = 1e-4, 0.06
# Of a model that is not placed in parts, which tests on two devices (SL_PLACE) ask for.
NOT_APART = "has its feed-forward blocks where its attention is"


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


def middle(ref, blob, seq, z):
    """Root mean square difference over the deviation, of the row in the middle."""
    v, rows = ref["n_vocab"], []
    for k, row in enumerate(seq["rows"]):
        a = z[row * v:(row + 1) * v]
        b = blob[seq["offset"] + k * v:seq["offset"] + (k + 1) * v]
        rows.append((sum((x - y) ** 2 for x, y in zip(a, b)) / v) ** 0.5)
    return sorted(rows)[len(rows) // 2] / ref["std"]


def ask(exe, tmp, model, seq, acts):
    """(logits, None) or (None, what went wrong)"""
    ids, out = f"{tmp}/ids", f"{tmp}/logits.f32"
    open(ids, "w").write(",".join(map(str, seq["ids"])) + "\n")
    code, _, err = e2e.run([exe, "eval", "-m", model, "--ids-file", ids, "--dump-logits", out,
                            "--acts", acts, "--json", "-t", "2"])
    if code != 0:
        return None, f"exit {code}: {err.strip()[:400]}"
    z = array.array("f", open(out, "rb").read())
    os.remove(out)
    return z, None


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
                for acts in ("f32", "int8", "bf16") if i == 0 else ("f32",):
                    name = f"{m['model']}[{i}] {acts}"
                    z, bad = ask(exe, tmp, f"{tiny}/{m['model']}", seq, acts)
                    want = ref["n_vocab"] * len(seq["ids"])
                    if not bad and len(z) != want:
                        bad = f"{len(z)} floats dumped, not {want}"
                    if bad and NOT_APART in bad and os.environ.get("SL_PLACE"):
                        print(f"{name}: refused as it should be: its parts stay together")
                    elif bad:
                        tally.check(name, bad)
                    elif acts == "f32":
                        d, wrong = compare(ref, blob, seq, z)
                        worst_of_all = max(worst_of_all, d)
                        if verbose:
                            print(f"{name:44s} {d:.1e}  argmax differs {wrong}")
                        tally.check(name, None if d <= BAR and not wrong else
                                    f"differs by {d:.2e} of the deviation (bar {BAR}), "
                                    f"argmax at {wrong} positions")
                    else:
                        d = middle(ref, blob, seq, z)
                        if verbose:
                            print(f"{name:44s} {d:.1e}")
                        tally.check(name, None if d <= ROUGH else
                                    f"the middle row differs by {d:.3f} of the deviation")
    print(f"largest difference {worst_of_all:.2e} of the deviation")
    tally.exit()


if __name__ == "__main__":
    main()
