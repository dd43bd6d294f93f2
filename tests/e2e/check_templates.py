#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Replay tests/data/templates: what jinja2 (set up as transformers does) makes of them, byte for
byte.

  check_templates.py [BUILD]        (tests/oracle/check_templates.py --store made expected.json.xz)
"""
import json
import lzma

import e2e


def main():
    exe, tally, folder = e2e.sluice(), e2e.Tally("templates"), e2e.DATA + "/templates"
    want = json.loads(lzma.open(folder + "/expected.json.xz").read())
    with e2e.scratch() as tmp:
        json.dump(want["tools"], open(tmp + "/t.json", "w"))
        for name, texts in want["text"].items():
            for (chat, messages, opts), text in zip(want["chats"], texts):
                args = [exe, "template", "--template", f"{folder}/{name}", "--messages",
                        tmp + "/m.json", "--bos", want["bos"], "--eos", want["eos"]]
                with open(tmp + "/m.json", "w", encoding="utf-8") as f:
                    json.dump(messages, f, ensure_ascii=False)
                args += ["--tools", tmp + "/t.json"] if opts.get("tools") else []
                args += ["--no-generation-prompt"] if opts.get("noprompt") else []
                args += ["--kwargs", json.dumps(opts["kwargs"])] if opts.get("kwargs") else []
                code, out, err = e2e.run(args, timeout=20)
                if text is None:
                    bad = e2e.one_line_failure(code, err) if code else "rendered; jinja2 raises"
                elif code:
                    bad = f"exit {code}: {err.strip()[:300]}"
                else:
                    got = out.decode("utf-8", "replace")
                    bad = None if got == text else f"got {got!r} expected {text!r}"[:600]
                tally.check(f"{name} {chat}", bad)
    tally.exit()


if __name__ == "__main__":
    main()
