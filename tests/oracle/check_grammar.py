#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Grammars against Python: random schemas x random logits, checked by jsonschema; random patterns,
checked by re.

  check_grammar.py BUILD [--schemas 10000] [--patterns 3000] [--seed 1] [--tokenizer FILE]

Every answer that ends must be valid JSON and accepted by jsonschema; one that does not must have
run into the token limit. Every mask is compared with pushes inside grammar_walk. Patterns: the same
verdict as re.fullmatch on random strings.
"""
import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = ["a", "b", "id", "name", "value", "items", "nested", "é", "x y", 'q"t', "type"]
PATTERNS = ["^[a-z]+$", "^[A-Z]{2}-[0-9]{3,5}$", "foo",
            "^(yes|no)$", "[0-9]$", "^x.*y$", r'^["\\/]{1,3}$', r"^\d{3}-\d{4}$", "é+"]
FORMATS = ["date", "time", "date-time", "uuid", "email", "ipv4", "ipv6", "hostname", "duration"]
VALUES = [None, True, False, 0, -7, 3.5, "", "a", "b\"c", "é", "long text", [1, 2], {"k": "v"}]


class Schemas:
    """Random schemas of what docs/grammar.md says is supported."""

    def __init__(self, rng):
        self.r = rng
        self.defs = {}

    def top(self):
        self.defs = {}
        for i in range(self.r.randint(0, 2)):
            self.defs[f"d{i}"] = {}
        for name in list(self.defs):
            self.defs[name] = self.object(2) if self.r.random() < 0.6 else self.schema(
                2, refs=False)
        s = self.schema(self.r.randint(1, 4), refs=False)
        if isinstance(s, dict) and self.defs:
            s = dict(s)
            s["$defs"] = self.defs
        return s

    def schema(self, depth, refs=True):
        r = self.r
        kinds = ["string", "integer", "number", "boolean", "null", "enum", "const", "any"]
        if depth > 0:
            kinds += ["object", "object", "array", "array", "anyOf", "types", "oneOf"]
        if refs and self.defs and depth > 0:
            kinds += ["ref"]
        return getattr(self, r.choice(kinds).replace("null", "null_"))(depth - 1)

    def any(self, depth):
        return self.r.choice([{}, True, {"description": "anything"}])

    def null_(self, depth):
        return {"type": "null"}

    def boolean(self, depth):
        return {"type": "boolean"}

    def ref(self, depth):
        return {"$ref": "#/$defs/" + self.r.choice(list(self.defs))}

    def enum(self, depth):
        s = {"enum": self.r.sample(VALUES, self.r.randint(1, 6))}
        if self.r.random() < 0.2:
            s = {"type": "string", "enum": [v for v in s["enum"] if isinstance(v, str)] or ["z"]}
        return s

    def const(self, depth):
        return {"const": self.r.choice(VALUES)}

    def string(self, depth):
        r, s = self.r, {"type": "string"}
        k = r.random()
        if k < 0.2:
            s["pattern"] = r.choice(PATTERNS)
        elif k < 0.4:
            s["format"] = r.choice(FORMATS)
        elif k < 0.7:
            lo = r.randint(0, 5)
            if r.random() < 0.6:
                s["minLength"] = lo
            if r.random() < 0.6:
                s["maxLength"] = lo + r.randint(0, 40)
        elif k < 0.75:
            s.update(pattern="^[a-c]*$", minLength=2, maxLength=5)
        return s

    def bound(self):
        r = self.r
        return r.choice([r.randint(-5, 5), r.randint(-1000, 1000),
                         r.randint(-10**9, 10**9), 0, round(r.uniform(-3, 3), r.randint(0, 4)),
                         r.uniform(-1e4, 1e4), r.choice([0.1, -0.5, 1e-5, 2.5, 99.99])])

    def limits(self, s, whole):
        r = self.r
        lo, hi = sorted([self.bound(), self.bound()])
        if r.random() < 0.5:
            s[r.choice(["minimum", "exclusiveMinimum"])] = lo
        if r.random() < 0.5:
            s[r.choice(["maximum", "exclusiveMaximum"])] = hi + (
                2 if whole else r.choice([0.5, 1, 0.01]))
        if r.random() < 0.2:
            s["multipleOf"] = r.choice([1, 2, 3, 7, 10, 50, 365, 0.5, 0.125, 7.5, 1000000])
        return s

    def integer(self, depth):
        return self.limits({"type": "integer"}, True)

    def number(self, depth):
        return self.limits({"type": "number"}, False)

    def array(self, depth):
        r, s = self.r, {"type": "array"}
        if r.random() < 0.25:
            s["prefixItems"] = [self.schema(depth - 1) for _ in range(r.randint(1, 3))]
            s["items"] = r.choice([False, self.schema(depth - 1)])
        elif r.random() < 0.9:
            s["items"] = self.schema(depth)
        lo = r.randint(0, 3)
        if r.random() < 0.5 and s.get("items") is not False:
            s["minItems"] = lo
        if r.random() < 0.6:
            s["maxItems"] = lo + r.randint(0, 3)
        return s

    def object(self, depth):
        r, s = self.r, {"type": "object"}
        names = r.sample(NAMES, r.randint(0, 5))
        s["properties"] = {n: self.schema(depth - 1) for n in names}
        s["required"] = [n for n in names if r.random() < 0.6]
        k = r.random()
        if k < 0.5:
            s["additionalProperties"] = False
        elif k < 0.6:
            s["additionalProperties"] = self.schema(0)
        elif k < 0.7:
            s["additionalProperties"] = True
        return s

    def anyOf(self, depth):
        return {"anyOf": [self.schema(depth) for _ in range(self.r.randint(1, 3))]}

    def oneOf(self, depth):
        return {"oneOf": [{"type": "object", "properties": {
            "kind": {"const": k}, "v": self.schema(0)}, "required": ["kind", "v"],
                           "additionalProperties": False} for k in ("p", "q")] + [{"type": "null"}]}

    def types(self, depth):
        s = {"type": self.r.sample(["string", "integer", "null", "boolean", "array"], 2),
             "maxLength": 9, "maxItems": 2}
        return s


def checker():
    import jsonschema
    from jsonschema import Draft202012Validator

    def check(schema, text):
        value = json.loads(text)
        Draft202012Validator(schema,
                             format_checker=Draft202012Validator.FORMAT_CHECKER).validate(value)
    return check, jsonschema.ValidationError


def walk(exe, args, lines, env=None):
    p = subprocess.run([exe] + args, input="".join(json.dumps(x) + "\n" for x in lines).encode(),
                       capture_output=True, check=False)
    out = [json.loads(x) for x in p.stdout.decode().splitlines()]
    if p.returncode or len(out) != len(lines):
        sys.exit(f"grammar_walk {' '.join(args)}: exit {p.returncode}, {len(out)} of {len(lines)} "
                 f"answers: {p.stderr.decode()[-500:]}\n"
                 f"next: {json.dumps(lines[len(out)])[:800]}")
    return out


def schemas(exe, a):
    check, Invalid = checker()
    bad = ends = limits = refused = 0
    for first in range(0, a.schemas, 500):
        n = min(500, a.schemas - first)
        made = [Schemas(random.Random(f"{a.seed}/{first + i}")).top() for i in range(n)]
        answers = walk(exe, ["walk", a.tokenizer, "300"], [{"kind": "schema", "text": json.dumps(
            s), "seed": first + i} for i, s in enumerate(made)])
        for i, (s, x) in enumerate(zip(made, answers)):
            why = None
            if "error" in x:
                refused += 1
                if x["status"] != "REQUEST" or "no answer is possible" not in x["error"]:
                    why = x["error"]
            elif x["finish"] == "length":
                limits += 1
            else:
                ends += 1
                try:
                    check(s, x["text"])
                except (Invalid, ValueError) as e:
                    why = str(e).splitlines()[0][:200]
            if why:
                bad += 1
                if bad <= 10:
                    print(f"schema {first + i}: {why}\n  {json.dumps(s)[:600]}\n  "
                          f"{x.get('text')!r:.600}")
    print(f"schemas: {a.schemas}: {ends} valid answers, {limits} at the token limit, {refused} "
          f"that nothing can match, {bad} wrong")
    return bad


class Patterns:
    def __init__(self, rng):
        self.r = rng

    def atom(self, depth):
        r = self.r
        k = r.random()
        if k < 0.45:
            return r.choice(["a", "b", "c", "é", r"\.", r"\n", "0", "€", r"\x41", "-"])
        if k < 0.6:
            return r.choice(["[a-c]", "[^a]", "[^a-cé]",
                             "[0-9a]", r"[\dx]", r"[\w-]", "[a\\-z]", r"[^\s]"])
        if k < 0.7:
            return r.choice([r"\d", r"\w", r"\s", r"\D", ".", "😀"])
        if depth > 0:
            return r.choice(["(?:%s)", "(%s)",
                             "(?P<n%d>%%s)" % r.randint(0, 10**9)]) % self.alt(depth - 1)
        return "a"

    def seq(self, depth):
        out = ""
        for _ in range(self.r.randint(0, 4)):
            out += self.atom(depth) + self.r.choice(["", "", "", "*", "+",
                                                     "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?"])
        return out

    def alt(self, depth):
        return "|".join(self.seq(depth) for _ in range(self.r.choice([1, 1, 2, 3])))


def patterns(exe, a):
    def alarm(*_):
        raise TimeoutError
    signal.signal(signal.SIGALRM, alarm)
    bad = n_input = yes = late = 0
    alphabet = "aabbccé0x-.A€😀 \n1_Z"
    for first in range(0, a.patterns, 500):
        lines = []
        for i in range(first, min(first + 500, a.patterns)):
            r = random.Random(f"{a.seed}/p{i}")
            p = Patterns(r).alt(3)
            inputs = ["".join(r.choice(alphabet[:r.randint(1, len(alphabet))])
                              for _ in range(r.randint(0, 7))) for _ in range(60)]
            lines.append({"kind": "regex", "text": p, "inputs": inputs})
        for q, x in zip(lines, walk(exe, ["match"], lines)):
            if "error" in x:
                if "no answer is possible" not in x["error"]:
                    bad += 1
                    print(f"{q['text']!r}: {x['error']}")
                continue
            c = re.compile(q["text"], re.ASCII)
            for s, got in zip(q["inputs"], x["match"]):
                signal.setitimer(signal.ITIMER_REAL, 0.5)
                try:
                    want = bool(c.fullmatch(s))
                except TimeoutError:  # re can take exponential time; we can not
                    late += 1
                    break
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                n_input += 1
                yes += want
                if want != got:
                    bad += 1
                    if bad <= 10:
                        print(f"{q['text']!r} on {s!r}: re says {want}")
    print(f"patterns: {a.patterns} on {n_input} strings ({yes} match), {late} left out where re "
          f"takes too long: {bad} wrong")
    return bad


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("build")
    ap.add_argument("--schemas", type=int, default=10000)
    ap.add_argument("--patterns", type=int, default=3000)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--tokenizer", default=os.path.join(HERE, "../../models/demo/tokenizer.json"))
    a = ap.parse_args()
    exe = os.path.join(a.build, "grammar_walk")
    bad = patterns(exe, a) if a.patterns else 0
    bad += schemas(exe, a) if a.schemas else 0
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
