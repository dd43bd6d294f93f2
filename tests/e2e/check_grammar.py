#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Grammars from outside, with python3's own library: random schemas x random logits checked by a
small validator, random patterns against re, and `sluice run` under schemas and grammars.
tests/oracle/check_grammar.py does the same with jsonschema, more often."""
import argparse
import importlib.util
import json
import os
import random
import re
import sys
import tempfile

import e2e

spec = importlib.util.spec_from_file_location(
    "oracle", os.path.join(e2e.ROOT, "tests", "oracle", "check_grammar.py"))
oracle = importlib.util.module_from_spec(spec)
spec.loader.exec_module(oracle)


class Invalid(Exception):
    pass


TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def is_type(v, t):
    if t == "number":
        return isinstance(v, (int, float)) and not isinstance(v, bool)
    if t == "integer":
        return (isinstance(v, int)
                and not isinstance(v, bool)) or (isinstance(v, float) and v.is_integer())
    return isinstance(v, TYPES[t])


def same(a, b):
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


def need(ok, what):
    if not ok:
        raise Invalid(what)


def check(s, v, root):
    """v by schema s, for the keywords that the generator uses."""
    if isinstance(s, bool):
        return need(s, "false")
    if "$ref" in s:
        return check(root["$defs"][s["$ref"].split("/")[-1]], v, root)
    for key in ("anyOf", "oneOf"):
        if key in s:
            n = 0
            for t in s[key]:
                try:
                    check(t, v, root)
                    n += 1
                except Invalid:
                    pass
            need(n >= 1 if key == "anyOf" else n == 1, key)
    if "enum" in s:
        need(any(same(v, x) for x in s["enum"]), "enum")
    if "const" in s:
        need(same(v, s["const"]), "const")
    if "type" in s:
        t = s["type"]
        need(any(is_type(v, x) for x in ([t] if isinstance(t, str) else t)), "type")
    if isinstance(v, str):
        need(len(v) >= s.get("minLength", 0) and len(v) <= s.get("maxLength", 1 << 30), "length")
        need("pattern" not in s or re.search(s["pattern"], v), "pattern")
    if is_type(v, "number"):
        need("minimum" not in s or v >= s["minimum"], "minimum")
        need("maximum" not in s or v <= s["maximum"], "maximum")
        need("exclusiveMinimum" not in s or v > s["exclusiveMinimum"], "exclusiveMinimum")
        need("exclusiveMaximum" not in s or v < s["exclusiveMaximum"], "exclusiveMaximum")
        by = s.get("multipleOf")  # as jsonschema divides
        need(not by or ((v / by).is_integer() if isinstance(by, float) else v % by == 0),
             "multipleOf")
    if isinstance(v, list):
        need(len(v) >= s.get("minItems", 0) and len(v) <= s.get("maxItems", 1 << 30), "items")
        pre = s.get("prefixItems", [])
        for i, x in enumerate(v):
            check(pre[i] if i < len(pre) else s.get("items", True), x, root)
    if isinstance(v, dict):
        need(all(k in v for k in s.get("required", [])), "required")
        for k, x in v.items():
            check(s.get("properties", {}).get(k, s.get("additionalProperties", True)), x, root)


def main():
    build = e2e.build_dir()
    exe = os.path.join(build, "grammar_walk")
    a = argparse.Namespace(seed=5, patterns=300, schemas=0)
    bad = oracle.patterns(exe, a)
    made = [oracle.Schemas(random.Random(f"e2e/{i}")).top() for i in range(400)]
    lines = [{"kind": "schema", "text": json.dumps(s), "seed": i} for i, s in enumerate(made)]
    ends = 0
    for s, x in zip(made, oracle.walk(exe, [
            "walk", os.path.join(e2e.ROOT, "models", "demo", "tokenizer.json"), "300"], lines)):
        if "error" in x:
            bad += "no answer is possible" not in x["error"]
        elif x["finish"] == "stop":
            ends += 1
            try:
                check(s, json.loads(x["text"]), s)
            except (Invalid, ValueError) as e:
                bad += 1
                print(f"{e}: {json.dumps(s)[:400]}\n  {x['text']!r:.400}")
    print(f"schemas: {len(made)}: {ends} complete answers")
    bad += ends < 300
    bad += runs(build)
    sys.exit(1 if bad else 0)


def runs(build):
    """sluice run on the demo model."""
    exe, bad = e2e.sluice(build), 0
    city = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12},
                                             "n": {"type": "integer", "minimum": 3, "maximum": 17},
                                             "tags": {"type": "array", "items":
                                                          {"enum": ["a", "b"]}, "maxItems": 2}},
            "required": ["city", "n", "tags"], "additionalProperties": False}
    with tempfile.TemporaryDirectory() as d:
        def file(name, text):
            with open(os.path.join(d, name), "w") as f:
                f.write(text)
            return os.path.join(d, name)

        schema, gbnf = file("s.json",
                            json.dumps(city)), file("g.gbnf", 'root ::= ("yes" | "no") "!"\n')
        for seed in range(1, 7):
            code, out, err = e2e.run([exe, "run", "-q", "-m", "demo", "-p", "A city:", "-n", "120",
                                      "--temp", "1.5",
                                      "--seed", str(seed), "--json-schema", schema])
            try:
                check(city, json.loads(out), city)
            except (Invalid, ValueError) as e:
                bad += 1
                print(f"run --json-schema, seed {seed}: exit {code}: {e}: {out!r} {err}")
        code, out, err = e2e.run([exe, "run", "-q", "-m",
                                  "demo", "-p", "x", "-n", "40", "--temp", "2", "--grammar", gbnf])
        if code or out.strip() not in (b"yes!", b"no!"):
            bad += 1
            print(f"run --grammar: exit {code}: {out!r} {err}")
        for name, text, opt, says in (("bad.json", '{"uniqueItems": true}', "--json-schema",
                                       "#/uniqueItems"),
                                      ("bad.gbnf", "root ::= (", "--grammar", "line 1")):
            code, out, err = e2e.run([exe, "run", "-m", "demo", "-p", "x", opt, file(name, text)])
            if code != 1 or says not in err or name not in err or err.count("\n") != 1:
                bad += 1
                print(f"{opt} {name}: exit {code}: {err}")
    return bad


if __name__ == "__main__":
    main()
