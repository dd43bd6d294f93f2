#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random answers under the schemas of tests/data/schemas.json, checked by jsonschema (formats too).
By hand:

  check_schemas.py BUILD [--draws 10000] [--seed 1] [--tokenizer FILE]

Every answer that ends must be accepted by the schema, but by what "relaxed" says is not held (only
then an answer may fail); one that does not end ran into the limit of tokens. Half of the draws are
exact, half loose; grammar_walk compares every mask with pushes."""
import argparse
import json
import os
import subprocess
import sys

import jsonschema

# of docs/grammar.md; others are annotations
FORMATS = ["date", "time", "date-time", "duration",
           "uuid", "email", "hostname", "ipv4", "ipv6", "uri"]
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("--draws", type=int, default=10000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--tokenizer", default=os.path.join(ROOT, "models", "demo", "tokenizer.json"))
    a = p.parse_args()
    with open(os.path.join(HERE, "..", "data", "schemas.json"), encoding="utf-8") as f:
        # nullable is no word of JSON Schema
        rows = [r for r in json.load(f) if "openapi" not in r["name"]]
    formats = jsonschema.FormatChecker(())
    formats.checkers = {k: v for k,
                        v in jsonschema.Draft202012Validator.FORMAT_CHECKER.checkers.items()
                        if k in FORMATS}
    lines, what = [], []
    for i in range(a.draws):
        r = rows[i // 2 % len(rows)]
        what.append((r, i % 2))
        lines.append(json.dumps({"kind": "loose" if i % 2 else "schema",
                                 "text": json.dumps(r["schema"]), "seed": a.seed * 1000003 + i}))
    out = subprocess.run([os.path.join(a.build, "grammar_walk"), "walk", a.tokenizer, "300"],
                         input="\n".join(lines).encode() + b"\n",
                         stdout=subprocess.PIPE, check=True)
    n = {"valid": 0, "length": 0, "refused": 0, "relaxed and not valid": 0, "WRONG": 0}
    for (r, loose), line in zip(what, out.stdout.splitlines()):
        o = json.loads(line)
        if "error" in o:
            bad = loose or o["error"] != r["strict"]
            n["WRONG" if bad else "refused"] += 1
            if bad:
                print(f"{r['name']}: {o}")
            continue
        if o["finish"] != "stop":
            n["length"] += 1
            continue
        draft = jsonschema.validators.validator_for(r["schema"], jsonschema.Draft202012Validator)
        try:
            v = json.loads(o["text"])
            draft(r["schema"], format_checker=formats).validate(v)
            n["valid"] += 1
        except Exception as e:  # also references that can not be resolved
            bad = not (loose and r["relaxed"])
            n["WRONG" if bad else "relaxed and not valid"] += 1
            if bad:
                print(f"{r['name']}{' (loose)' if loose else ''}: {o['text']!r:.300}: "
                      f"{str(e)[:200]}")
    print(", ".join(f"{v} {k}" for k, v in n.items()))
    sys.exit(1 if n["WRONG"] else 0)


if __name__ == "__main__":
    main()
