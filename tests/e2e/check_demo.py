#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The demo model against the code that trained it.

  check_demo.py [BUILD] [-v]     SLUICE_DEMO names another GGUF than models/demo/demo.gguf

1. `eval --dump-logits --acts f32` on reference.json's ids: the five largest logits after each id,
their mean
   and deviation, and the argmax (Python's own library is enough).
2. `run --ids` on its chats: the greedy answers, id by id.
3. `tokenize` and `template` agree with the ids of its chats.
4. Where torch, gguf and tokenizers can be imported: every logit against the training code's own
forward pass.

Bar: |difference| <= 1e-4 of the deviation of the reference's logits; argmax equal at every
position.
"""
import array
import json
import os
import sys

import e2e

BAR = 1e-4
FOLDER = os.path.join(e2e.ROOT, "models", "demo")


def dump(exe, model, ids, tmp, tally):
    """The engine's logits of ids as an array of f32, or None when it failed."""
    f, out = f"{tmp}/ids", f"{tmp}/logits.f32"
    open(f, "w").write(",".join(map(str, ids)) + "\n")
    code, _, err = e2e.run([exe, "eval", "-m", model, "--ids-file", f, "--dump-logits", out,
                            "--acts", "f32", "-t", "2"])
    if code != 0:
        tally.check("eval", f"exit {code}: {err.strip()[:400]}")
        return None
    z = array.array("f", open(out, "rb").read())
    os.remove(out)
    return z


def against_file(ref, z, tally, verbose):
    """The dumped logits against the few numbers kept per position."""
    n = len(ref["ids"])
    v, worst, wrong = len(z) // n, 0.0, 0
    std = sum(ref["std"]) / n
    for i in range(n):
        row = z[i * v:(i + 1) * v]
        mean = sum(row) / v
        far = [abs(row[k] - x) for k, x in ref["top"][i]] + [abs(mean - ref["mean"][i])]
        far.append(abs((sum((x - mean) ** 2 for x in row) / (v - 1)) ** 0.5 - ref["std"][i]))
        for d in far:
            if not d <= worst:  # a NaN is larger than everything
                worst = d
        wrong += row.index(max(row)) != ref["argmax"][i]
    if verbose:
        print(f"reference.json: {worst / std:.1e} of the deviation, argmax differs {wrong}")
    tally.check("logits", None if worst <= BAR * std and not wrong else
                f"differ by {worst / std:.2e} of the deviation (bar {BAR}), argmax at {wrong} "
                "positions")


def against_torch(ref, model, z, tally, verbose):
    """The dumped logits against the training code, all of them."""
    sys.path.insert(0, os.path.join(FOLDER, "train"))
    try:
        import torch
        from gguf_io import load
    except ImportError as e:
        print(f"not compared with the training code: {e}")
        return
    torch.set_num_threads(2)
    with torch.no_grad():
        m = load(model)
        want = m.logits(m(torch.tensor([ref["ids"]]))[0])
    got = torch.frombuffer(z, dtype=torch.float32).view(want.shape)
    d = ((got - want).abs().max() / want.std()).item()
    wrong = (got.argmax(-1) != want.argmax(-1)).sum().item()
    if verbose:
        print(f"training code: {d:.1e} of the deviation, argmax differs {wrong}")
    tally.check("training code", None if d <= BAR and not wrong else
                f"differs by {d:.2e} of the deviation (bar {BAR}), argmax at {wrong} positions")


def chats(exe, model, ref, tmp, tally):
    for c in ref["chats"]:
        name = f"chat {c['prompt']!r}"
        code, out, err = e2e.run([exe, "run", "-m",
                                  model, "--ids", ",".join(map(str, c["ids"])), "-n",
                                  str(len(c["answer"])), "--temp", "0", "--acts", "f32", "--json"])
        if code != 0:
            tally.check(name, f"exit {code}: {err.strip()[:400]}")
            continue
        got = json.loads(out)["tokens"]
        want = c["answer"]
        # the closing end-of-sentence id may be left out of the answer
        tally.check(name, None if got in (want, want[:-1]) else f"answered {got}, not {want}")
        code, out, err = e2e.run([exe, "tokenize", "-m", model, "--decode"],
                                 stdin=json.dumps(want[:-1]).encode())
        tally.check(name + " decoded",
                    None if code == 0 and out.decode().rstrip("\n") == c["text"] else
                    f"exit {code}: {out[:200]} {err.strip()[:200]}")
        f = f"{tmp}/messages.json"
        json.dump([{"role": "user", "content": c["prompt"]}], open(f, "w"))
        code, text, err = e2e.run([exe, "template", "-m", model, "--messages", f])
        code2, out, err2 = e2e.run([exe, "tokenize", "-m", model, "--special"], stdin=text)
        ids = json.loads(out) if code2 == 0 else None
        tally.check(name + " rendered", None if ids == c["ids"] else
                    f"exit {code}, {code2}: {text[:200]} {ids} {(err + err2).strip()[:200]}")


def main():
    verbose = "-v" in sys.argv
    sys.argv = [a for a in sys.argv if a != "-v"]
    exe = e2e.sluice()
    model = os.environ.get("SLUICE_DEMO", os.path.join(FOLDER, "demo.gguf"))
    ref = json.load(open(os.path.join(FOLDER, "reference.json"), encoding="utf-8"))
    tally = e2e.Tally("demo")
    with e2e.scratch() as tmp:
        z = dump(exe, model, ref["ids"], tmp, tally)
        if z is not None:
            against_file(ref, z, tally, verbose)
            against_torch(ref, model, z, tally, verbose)
        chats(exe, model, ref, tmp, tally)
    tally.exit()


if __name__ == "__main__":
    main()
