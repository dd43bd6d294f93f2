#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""JSON-Schema-Test-Suite against the grammars: of each schema that is held exactly, every valid
instance is an answer that the grammar takes and every invalid one is not. Says, by keyword, how
many schemas are held and how many instances agree. By hand, with a checkout of the suite:

  tests/oracle/check_schema_suite.py --suite DIR [--draft draft2020-12] [--exe build/grammar_walk]

Instances are put as answers are written (numbers that are whole without a point, members in the
schema's order: any order will do here), and the schemas say what they leave unsaid
(docs/grammar.md): where a schema has no type, all types; where an object names its members, that
others may follow; the same for tuples. Formats are annotations in the suite and are subsets here:
they are not measured."""
import argparse
import itertools
import json
import os
import subprocess
import sys

OLD = ("draft4", "draft6", "draft7")
TYPES = ["null", "boolean", "number", "string", "array", "object"]
ONE = ("additionalProperties", "items", "additionalItems", "contains",
       "not", "if", "then", "else", "propertyNames", "unevaluatedProperties", "unevaluatedItems")
LIST = ("allOf", "anyOf", "oneOf", "prefixItems")
MAP = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


def said(s, draft):
    """The same schema with what it leaves unsaid; where something asks what was evaluated, others
    are not let in."""
    if not isinstance(s, dict) or "unevaluated" in json.dumps(s):
        return s
    return filled(s, draft)


def filled(s, draft):
    if not isinstance(s, dict):
        return s
    out = dict(s)
    if "$ref" in s and draft in OLD:
        return out
    for k in ONE:
        if k in s:
            out[k] = [filled(x, draft)
                      for x in s[k]] if isinstance(s[k], list) else filled(s[k], draft)
    for k in LIST:
        if isinstance(s.get(k), list):
            out[k] = [filled(x, draft) for x in s[k]]
    for k in MAP:
        if isinstance(s.get(k), dict):
            out[k] = {n: filled(x, draft) for n, x in s[k].items()}
    if isinstance(s.get("dependencies"), dict):
        out["dependencies"] = {n: x if isinstance(x, list) else filled(x, draft) for n,
                               x in s["dependencies"].items()}
    if "unevaluatedProperties" not in s and ("properties" in s or "patternProperties" in s):
        out.setdefault("additionalProperties", True)
    if "unevaluatedItems" not in s:
        if "prefixItems" in s:
            out.setdefault("items", True)
        if isinstance(s.get("items"), list):
            out.setdefault("additionalItems", True)
    if not {"type", "enum", "const"} & set(s):
        out["type"] = TYPES
    return out


def written(v):
    if isinstance(v, float) and v.is_integer() and abs(v) < 1e17:
        return int(v)
    if isinstance(v, list):
        return [written(x) for x in v]
    if isinstance(v, dict):
        return {k: written(x) for k, x in v.items()}
    return v


def orders(v):
    """v with its members in other orders, a few hundred at most."""
    if isinstance(v, dict):
        kids = [[(k, o) for o in itertools.islice(orders(x), 8)] for k, x in v.items()]
        for perm in itertools.islice(itertools.permutations(kids), 120):
            for combo in itertools.islice(itertools.product(*perm), 20):
                yield dict(combo)
    elif isinstance(v, list):
        for combo in itertools.islice(
                itertools.product(*[list(itertools.islice(orders(x), 8)) for x in v]), 40):
            yield list(combo)
    else:
        yield v


def wide(v):
    return json.dumps(v, ensure_ascii=False)


def compact(v):  # as the values of enum and const are written
    return json.dumps(v, ensure_ascii=False, separators=(",", ":"))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--suite", required=True)
    p.add_argument("--draft", default="draft2020-12")
    p.add_argument("--exe", default="build/grammar_walk")
    p.add_argument("-v", action="store_true")
    a = p.parse_args()
    folder = os.path.join(a.suite, "tests", a.draft)
    cases, lines = [], []
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".json") or name == "format.json":
            continue
        for group in json.load(open(os.path.join(folder, name), encoding="utf-8")):
            tests = []
            inputs = []
            for t in group["tests"]:
                texts = [f(o) for o in itertools.islice(orders(written(t["data"])), 200)
                         for f in (wide, compact)]
                tests.append((t, len(inputs), len(inputs) + len(texts)))
                inputs += texts
            cases.append((name[:-5], group, tests))
            if a.draft in OLD and isinstance(group["schema"], dict):
                group["schema"].setdefault("$schema", "http://json-schema.org/%s-0%s/schema#"
                                           % (a.draft[:5], a.draft[5:]))
            lines.append(json.dumps({"kind": "schema", "text": json.dumps(
                said(group["schema"], a.draft)), "inputs": inputs}))
    r = subprocess.run([a.exe, "match"], input="\n".join(lines).encode() + b"\n",
                       stdout=subprocess.PIPE, check=False)
    out = [json.loads(x) for x in r.stdout.splitlines()]
    if len(out) != len(cases):
        sys.exit(f"{a.exe}: ended after {len(out)} of {len(cases)}: {r.returncode}")
    table, wrong = {}, 0
    for (name, group, tests), o in zip(cases, out):
        # schemas, held, valid, of them taken, invalid, of them refused
        row = table.setdefault(name, [0, 0, 0, 0, 0, 0])
        row[0] += 1
        nothing = "no answer is possible" in o.get("error", "")
        if "error" in o and not nothing:
            if a.v:
                print(f"  refused  {name}: {group['description']}: {o['error']}")
            continue
        row[1] += 1
        for t, lo, hi in tests:
            taken = not nothing and any(o["match"][lo:hi])
            at = 2 if t["valid"] else 4
            row[at] += 1
            row[at + 1] += taken == t["valid"]
            if taken != t["valid"]:
                wrong += not t["valid"]
                print(f"  {'valid, not taken' if t['valid'] else 'INVALID, TAKEN'}: {name}: "
                      f"{group['description']}: {t['description']}: {json.dumps(t['data'])[:80]}" +
                      (f"\n      {json.dumps(group['schema'])[:300]}" if a.v else ""))
    print(f"{'keyword':28} schemas  held   valid  taken  invalid  refused")
    for name, r in sorted(table.items()) + [("all", [sum(c) for c in zip(*table.values())])]:
        print(f"{name:28} {r[0]:7} {r[1]:5} {r[2]:7} {r[3]:6} {r[4]:8} {r[5]:8}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
