#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Replay tests/data/tokfiles.json.xz: tokenizer files of all kinds, texts, and what sentencepiece,
tokenizers, tiktoken and transformers say. Made by tests/oracle/check_sentencepiece.py and
check_token_files.py (--golden).

  check_token_files.py [BUILD]
"""
import base64
import json
import lzma
import os

import e2e


def ask(exe, model, flags, items):
    text = "".join(json.dumps(x) + "\n" for x in items).encode()
    code, out, err = e2e.run([exe, "tokenize", "-q", "-m", model, "--lines"] + flags, text)
    if code != 0:
        return None, f"exit {code}: {err.strip()[:300]}"
    return [json.loads(x) for x in out.decode().split("\n") if x], None


def difference(exe, model, flags, items, want):
    got, err = ask(exe, model, flags, items)
    if err or got == want:
        return err
    if len(got) != len(want):
        return f"{len(got)} answers for {len(want)} lines"
    i = next(i for i in range(len(want)) if got[i] != want[i])
    return f"{items[i]!r}: got {got[i]!r}, expected {want[i]!r}"


def template(exe, model, want):
    code, out, err = e2e.run([exe, "template", "-q", "-m", model, "--messages", "-"],
                             b'[{"role":"user","content":"x"}]')
    text = out.decode()
    return (None if code == 0 and text == want
            else f"template: {text!r}, expected {want!r} {err[:200]}")


def main():
    exe, tally = e2e.sluice(), e2e.Tally("token files")
    cases = json.loads(lzma.open(os.path.join(e2e.DATA, "tokfiles.json.xz")).read())
    with e2e.scratch() as tmp:
        for i, c in enumerate(cases):
            folder = f"{tmp}/{i}"
            os.makedirs(folder)
            for name, x in c["files"].items():
                b64 = x.get("b64") if isinstance(x, dict) and len(x) == 1 else None
                data = base64.b64decode(b64) if b64 else json.dumps(x).encode()
                open(f"{folder}/{name}", "wb").write(data)
            model = folder + "/model.gguf" if "model.gguf" in c["files"] else folder
            tally.check(c["name"], difference(exe, model, c["flags"], c["texts"], c["ids"]))
            if "back" in c:
                tally.check(c["name"] + " --decode",
                            difference(exe, model, ["--decode"], c["ids"], c["back"]))
            if "template" in c:
                tally.check(c["name"] + " template", template(exe, model, c["template"]))
    assert len(cases) > 20, "cases are missing"
    tally.exit()


if __name__ == "__main__":
    main()
