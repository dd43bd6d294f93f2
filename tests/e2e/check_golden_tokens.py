#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Replay tests/data/tokenizers.json: strings and the ids that the `tokenizers` package gives.

  check_golden_tokens.py [BUILD]

Models are those of the tiny checkpoints (folder and GGUF file) and, where SLUICE_TOKENIZERS names a
folder that has them, the real DeepSeek-V3 and Qwen3 tokenizers (tokenizer.json.xz).
"""
import json
import lzma
import os

import e2e


def ask(exe, model, flags, items):
    text = "".join(json.dumps(x) + "\n" for x in items).encode()
    code, out, err = e2e.run([exe, "tokenize", "-m", model, "--lines"] + flags, text)
    if code != 0:
        return None, f"exit {code}: {err.strip()[:300]}"
    got = [json.loads(x) for x in out.decode().split("\n") if x]
    return got, None if len(got) == len(items) else f"{len(got)} answers for {len(items)} lines"


def main():
    exe, tiny, tally = e2e.sluice(), e2e.tiny(), e2e.Tally("golden tokens")
    real = os.environ.get("SLUICE_TOKENIZERS", "")
    with e2e.scratch() as tmp:
        for g in json.load(open(os.path.join(e2e.DATA, "tokenizers.json"))):
            where = [f"{tiny}/{g['model']}", f"{tiny}/{g['model']}.gguf"]
            if g["model"].startswith("real/"):
                if not real:
                    continue
                where = [f"{tmp}/{g['model']}"]
                os.makedirs(where[0])
                for f in ("tokenizer.json", "tokenizer_config.json"):
                    src = f"{real}/{g['model'][5:]}/{f}"
                    data = open(src, "rb").read() if os.path.exists(src) else \
                        lzma.open(src + ".xz").read()
                    open(f"{where[0]}/{f}", "wb").write(data)
            for model in filter(os.path.exists, where):
                got, err = ask(exe, model, ["--special"], g["strings"])
                bad = err
                if not bad:
                    wrong = [i for i, x in enumerate(g["ids"]) if got[i] != x]
                    if wrong:
                        i = wrong[0]
                        bad = (f"{len(wrong)} of {len(got)} differ; first {g['strings'][i]!r}: "
                               f"got {got[i]}, expected {g['ids'][i]}")
                tally.check(os.path.basename(model), bad)
    tally.exit()


if __name__ == "__main__":
    main()
