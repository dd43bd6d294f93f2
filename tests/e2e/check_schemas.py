#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The schemas of tests/data/schemas.json (pydantic, zod, schemars, MCP servers): each compiles
loose, and strict where the file says so, says what it does not hold as the file says, and random
answers under it are accepted by the validator below. tests/oracle/check_schemas.py does the same
with jsonschema, more often; tests/oracle/make_schemas.py makes the file."""
import json
import os
import re
import subprocess
import sys

import e2e

KIND = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def number(v):
    return isinstance(v, (int, float)) and not isinstance(v, bool)


def is_type(v, t):
    if t in ("number", "integer"):
        return number(v) and (t == "number" or v == int(v))
    return isinstance(v, KIND[t])


def same(a, b):
    if number(a) and number(b):
        return a == b
    return type(a) is type(b) and json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


class Validator:
    """All keywords of the collection, as JSON Schema 2020-12 and draft 7 say; formats are not
    looked at."""

    def __init__(self, root):
        self.root = root
        self.old = "draft-0" in root.get("$schema", "")
        self.named = {}
        self.index(root)

    def index(self, s):
        for x in s.values() if isinstance(s, dict) else s if isinstance(s, list) else ():
            self.index(x)
        if isinstance(s, dict):
            for key, name in (("$anchor", "#%s"), ("$id", "%s")):
                if isinstance(s.get(key), str):
                    self.named[name % s[key]] = s

    def ref(self, r):
        if r in self.named:
            return self.named[r]
        at = self.root
        for step in r[1:].split("/")[1:]:
            at = at[step.replace("~1", "/").replace("~0", "~")]
        return at

    def ok(self, s, v):
        if isinstance(s, bool):
            return s
        if "$ref" in s and not self.ok(self.ref(s["$ref"]), v):
            return False
        if "$ref" in s and self.old:
            return True
        return self.any_type(s, v) and (not isinstance(v, str) or self.string(s, v)) and (
            not number(v) or self.number(s, v)) and (
            not isinstance(v, list)
            or self.array(s, v)) and (not isinstance(v, dict) or self.object(s, v))

    def any_type(self, s, v):
        t = s.get("type")
        types = [] if t is None else [t] if isinstance(t, str) else t
        if types and not any(is_type(v, x)
                             for x in types) and not (s.get("nullable") and v is None):
            return False
        if "enum" in s and not any(same(v, x)
                                   for x in s["enum"]) or "const" in s and not same(v, s["const"]):
            return False
        if "not" in s and self.ok(s["not"], v):
            return False
        if "if" in s and not self.ok(s.get("then" if self.ok(s["if"], v) else "else", True), v):
            return False
        return (all(self.ok(x, v) for x in s.get("allOf", []))
                and ("anyOf" not in s or any(self.ok(x, v) for x in s["anyOf"])) and
                ("oneOf" not in s or sum(self.ok(x, v) for x in s["oneOf"]) == 1))

    def string(self, s, v):
        return s.get("minLength", 0) <= len(v) <= s.get(
            "maxLength", 1 << 40) and ("pattern" not in s or re.search(s["pattern"], v) is not None)

    def number(self, s, v):
        below, above = s.get("exclusiveMinimum"), s.get("exclusiveMaximum")
        if "minimum" in s and (v < s["minimum"] or below is True and v == s["minimum"]):
            return False
        if "maximum" in s and (v > s["maximum"] or above is True and v == s["maximum"]):
            return False
        if not isinstance(below, bool) and below is not None and v <= below or not isinstance(
                above, bool) and above is not None and v >= above:
            return False
        return "multipleOf" not in s or (v / s["multipleOf"]) == int(v / s["multipleOf"])

    def array(self, s, v):
        pre, rest = s.get("prefixItems", []), s.get("items", True)
        if isinstance(rest, list):
            pre, rest = rest, s.get("additionalItems", True)
        n = sum(self.ok(s["contains"], x) for x in v) if "contains" in s else 1
        return (s.get("minItems", 0) <= len(v) <= s.get("maxItems", 1 << 40)
                and all(self.ok(pre[i] if i < len(pre) else rest, x) for i, x in enumerate(v)) and
                s.get("minContains", 1) <= n <= s.get("maxContains", 1 << 40) and
                not (s.get("uniqueItems") and any(same(x, y) for i,
                                                  x in enumerate(v) for y in v[:i])))

    def object(self, s, v):
        if not all(k in v for k in s.get("required", [])) or not s.get(
                "minProperties", 0) <= len(v) <= s.get("maxProperties", 1 << 40):
            return False
        for k, need in {**s.get("dependentRequired", {}), **s.get("dependencies", {})}.items():
            if k in v and not all(x in v for x in need):
                return False
        for k, x in v.items():
            of = [t for p, t in s.get("patternProperties", {}).items() if re.search(p, k)]
            of += [s["properties"][k]] if k in s.get("properties", {}) else []
            if not all(self.ok(t, x) for t in of or [s.get(
                    "additionalProperties", True)]) or not self.ok(s.get("propertyNames", True), k):
                return False
        return True


def main():
    exe = os.path.join(e2e.build_dir(), "grammar_walk")
    with open(os.path.join(e2e.ROOT, "tests", "data", "schemas.json"), encoding="utf-8") as f:
        rows = json.load(f)
    lines, what, ends, bad = [], [], 0, 0
    for r in rows:
        for i, kind in enumerate(("schema", "loose", "schema", "loose")):
            what.append((r, kind))
            lines.append(json.dumps({"kind": kind,
                                     "text": json.dumps(r["schema"]), "seed": i + 11}))
    tokens = os.path.join(e2e.ROOT, "models", "demo", "tokenizer.json")
    out = subprocess.run([exe, "walk", tokens, "200"], input="\n".join(lines).encode() + b"\n",
                         stdout=subprocess.PIPE, check=True).stdout.splitlines()
    for (r, kind), line in zip(what, out):
        o = json.loads(line)
        relaxed = o.get("relaxed", "")
        says = o.get("error", "") if kind == "schema" else relaxed or o.get("error", "")
        wrong = says != r["strict" if kind == "schema" else "relaxed"]
        if not wrong and o.get("finish") == "stop" and not relaxed:
            ends += 1
            wrong = not Validator(r["schema"]).ok(r["schema"], json.loads(o["text"]))
        if wrong:
            bad += 1
            print(f"{r['name']}: {kind}: {o}"[:600])
    print(f"{len(rows)} schemas, {len(out)} answers, {ends} complete")
    sys.exit(bad > 0 or ends < 500)


if __name__ == "__main__":
    main()
