# SPDX-License-Identifier: Apache-2.0
"""Rows of the reliability table that a client can see: hostile grammars (T7), every number of every
field (P1), fan-out and length
(P2, P3), combinations (P4) with the shape of every answer (A1), ids (P5), streams against wholes
(A3), stop strings (A4), fields (A6).

check_rows.py BUILD [--full]: --full takes the numbers of the table."""
import http.client
import itertools
import json
import os
import random
import re
import socket
import sys
import time

from serve import Server, chat, error_of, rss
import e2e

FULL = "--full" in sys.argv
T = e2e.Tally("serve: rows")
CHAT, TEXT, RESP, EMBED = ("/v1/chat/completions",
                           "/v1/completions", "/v1/responses", "/v1/embeddings")
BASE = {CHAT: {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2},
        TEXT: {"prompt": "x", "max_tokens": 2},
        RESP: {"input": "x", "max_output_tokens": 2, "store": False}, EMBED: {"input": "x"}}


def need(name, cond, what=""):
    T.check(name, None if cond else (str(what)[:300] or "not so"))


def fields():
    """[(name, {route: what}, type, low, high)] of docs/api.md, which a unit test holds to the
    code."""
    out = []
    with open(os.path.join(e2e.ROOT, "docs", "api.md"), encoding="utf-8") as f:
        for line in f:
            c = [x.strip() for x in line.split("|")]
            if len(c) < 8 or not re.fullmatch(r"`\w+`",
                                              c[1]) or c[6] not in ("", "boolean", "string") and \
                    not c[6].startswith(("integer", "number")):
                continue
            m = re.fullmatch(r"(\w+)(?: (\S+) to (\S+))?", c[6] or "any")
            routes = {r: w for r, w in zip((CHAT, TEXT, RESP, EMBED), c[2:6]) if w}
            out.append((c[1].strip("`"), routes, m[1], m[2], m[3]))
    return out


def post_raw(c, path, text):
    c.request("POST", path, text, {"Content-Type": "application/json"})
    r = c.getresponse()
    return r.status, r.read()


# ---- T7 ----

def hostile():
    """Grammars that break others: (field, value)."""
    n = 60000
    deep = 300
    for p in ["(" * n + ")" * n, "(" * n, "[" * n,
              "(a|" * n, "a{" * n, "((a*)*)*" * 500, "(a+)+$" * 100, "(a|a)*" * 2000, "a{100000}",
              "(a{1000}){1000}", "((a{100}){100}){100}",
              "a{99999999999}", "(?=a)", "(?<=a)b", "\\1", "(a)\\1", "[z-a]", "[[:x:]]", "\\p{L}",
              "*", "+", "?", "a**", "a|*", "(?P<a", "\\",
              "\\x", "\\u12", "[\\", "(?i)a", "a++", "\\b", "^^", "a^b", "$a$", "[^\\x00-\\uffff]",
              "\U0001f600" * 9000, "(" * 127 + "a" + ")" * 127,
              ".{0,100000}.{0,100000}", "(.*a){50}"]:
        yield "guided_regex", p
    for g in ["root ::= root", "root ::= root \"a\"", "root ::= (" * n,
              "root ::= " + "(" * deep + "\"a\"" + ")" * deep, "root ::= x", "", "root",
              "root ::= \"" + "a" * 500000, "root ::= [", "root ::= \"a\"{1000000}",
              "root ::= (\"a\"{1000}){1000}", "root ::= a\na ::= b\nb ::= a",
              "root ::= <[99999999]>", "root ::= <[99999]>", "root ::= \"\\x\"",
              "root ::= (\"a\"*)*", "root ::= %json {", "root ::= %json " + "[" * n,
              "root ::= %regex \"" + "(" * n + "\"",
              "\n".join(f"r{i} ::= r{i + 1}" for i in range(30000)), "root ::= \"a\"" + "?" * n,
              "root ::= " + " | ".join(f"\"{i}\"" for i in range(20000)), "%root %root %root"]:
        yield "guided_grammar", g
    nest, arr = {"type": "string"}, {"type": "string"}
    for _ in range(60):
        nest = {"type": "object", "properties": {"a": nest}}
        arr = {"type": "array", "items": arr}
    big = {"type": "object", "properties": {f"k{i}": {"type": "integer"} for i in range(8193)}}
    for j in [nest, arr, big, {"$ref": "#"}, {"$ref": "#/a/b"},
              {"$ref": "file:///etc/passwd"}, {"$ref": "http://127.0.0.1:9/x"}, {"enum": []},
              {"enum": ["x" * 100] * 8000}, {"type": "string", "pattern": "(" * n},
              {"type": "string", "pattern": "(a+)+" * 300},
              {"type": "string", "maxLength": 10 ** 9},
              {"type": "string", "minLength": -1}, {"minItems": 10 ** 6, "type": "array"},
              {"type": "array", "items": {"type": "array", "maxItems": 100000}, "maxItems": 100000},
              {"type": "number", "minimum": 1e300},
              {"type": "integer", "minimum": 10 ** 30},
              {"multipleOf": 0}, {"not": {}}, {"if": {}}, {"type": 5}, {"type": ["x"]}, True, False,
              {"anyOf": [{"$ref": "#"}]}, {"anyOf": [{}] * 5000},
              {"oneOf": [{}] * 300}, {"allOf": [{}, {}]}, {"patternProperties": {"(": {}}},
              {"properties": {"a": {"$ref": "#/properties/b"}, "b": {"$ref": "#/properties/a"}},
               "required": ["a"]}]:
        yield "guided_json", j


def grammars(s):
    before, worst, n = rss(s), 0, 0
    for field, value in hostile():
        t0 = time.perf_counter()
        status, _, data = s.call("POST", TEXT, {"prompt": "x", "max_tokens": 2, field: value})
        t = time.perf_counter() - t0
        worst, n = max(worst, t), n + 1
        name = f"hostile {n} {field} {str(value)[:30]!r}"
        need(name, status in (200, 400, 413) and (status == 200 or not error_of(data)),
             (status, data[:200]))
    print(f"{n} hostile grammars: worst {worst * 1000:.0f} ms, {rss(s) - before} KiB more")
    need("hostile grammars: count", n >= 60, n)
    need("hostile grammars: memory", rss(s) - before <= 64 << 10, rss(s) - before)
    need("hostile grammars: time", worst <= (0.25 if FULL else 2), worst)


# ---- P1, P2, P3, P5 ----

def numbers(s):
    c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
    n = 0
    for name, routes, kind, lo, hi in fields():
        for path, what in routes.items():
            if what != "honoured" or kind not in ("integer", "number", "boolean", "string"):
                continue
            bad = ["1e999", "-1e999", "1e300", "-1e300", "99999999999999999999999",
                   "-9223372036854775808.5", "[1]", "{}", "NaN", "Infinity",
                   "0x10", "1e", "--1", "\"\\u0000\""]
            if kind == "integer":
                bad += ["0.5"]
            if lo is not None:
                bad += [str(int(float(lo)) - 1), str(int(float(hi)) + 1)]
            for v in bad:
                body = dict(BASE[path])
                body.pop(name, None)
                status, data = post_raw(c, path, json.dumps(body)[:-1] + f", \"{name}\": {v}}}")
                n += 1
                problem = None if status == 400 else f"status {status} {data[:100]!r}"
                problem = problem or error_of(data)
                e = json.loads(data)["error"] if not problem else {}
                if not problem and e["param"] != name and "line 1" not in e["message"]:
                    problem = f"{e}"
                T.check(f"{path} {name} = {v}", problem)
    print(f"{n} extreme values")
    need("extremes: count", n >= 500, n)


def fan_out(s):
    c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
    for k, n, ok in [(128, 1, True), (129, 1, False), (64, 2, True),
                     (43, 3, False), (1, 128, True), (2, 65, False), (2, 128, False)]:
        t0 = time.perf_counter()
        status, data = post_raw(c, TEXT, json.dumps({"prompt": ["x"] * k,
                                                     "n": n, "max_tokens": 1, "temperature": 1}))
        t = time.perf_counter() - t0
        need(f"{k} prompts of {n}", (status in (200, 429)) == ok and (ok or not error_of(data)),
             (status, data[:200]))
        if not ok:
            need(f"{k} prompts of {n}: at once", t < (0.01 if FULL else 1), t)


def over_long(s):
    with socket.create_connection(("127.0.0.1", s.port), timeout=20) as c:
        t0 = time.perf_counter()
        c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
                  % (32 << 20))
        head = c.recv(4096)
        t = time.perf_counter() - t0
    need("32 MiB", head.startswith(b"HTTP/1.1 413"), head[:100])
    need("32 MiB: before it is read", t < 1, t)
    worst = 0
    # as much as a body may have
    for text in ("word " * 200000, "a" * 10 ** 6, " " * 10 ** 6,
                 "{\"a\": [1, 2]}" * 60000, "\"\\\n" * 160000):
        for path, body in ((TEXT, {"prompt": text}), (
                CHAT, {"messages": [{"role": "user", "content": text}]}), (RESP, {"input": text})):
            data, best = json.dumps(body).encode(), 9
            for _ in range(3):
                with socket.create_connection(("127.0.0.1", s.port), timeout=20) as c:
                    c.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
                              % (path.encode(), len(data)) + data[:-1])
                    time.sleep(0.05)  # until all but the last byte is read
                    t0 = time.perf_counter()
                    c.sendall(data[-1:])
                    head = c.recv(65536)
                    best = min(best, time.perf_counter() - t0)
                need(f"over the context: {path} {text[:5]!r}", head.startswith(b"HTTP/1.1 400")
                     and b"context_length_exceeded" in head, head[-200:])
            worst = max(worst, best)
    print(f"a prompt of 1 MB: refused {worst * 1000:.1f} ms after its last byte at most")
    need("over the context: time", worst <= (0.01 if FULL else 0.1), worst)


def ids(s):
    v = s.post("/tokenize", {"prompt": "x"})[1]
    n_vocab = 4096
    need("vocabulary", v["max_model_len"] == 2048, v)
    for value in (-1, -2 ** 31, n_vocab, n_vocab + 1,
                  2 ** 31 - 1, 2 ** 31, 2 ** 32, 2 ** 63 - 1, -2 ** 63, 1.5, "1", None, True, [1]):
        for name, path, body in [
                ("prompt", TEXT, {"prompt": [1, value]}),
                ("prompts", TEXT, {"prompt": [[1], [value]]}),
                ("prompt_token_ids", CHAT, {"prompt_token_ids": [value], "max_tokens": 1}),
                ("stop_token_ids", TEXT, {"prompt": "x", "stop_token_ids": [value]}),
                ("input", EMBED, {"input": [1, value]}),
                ("tokens", "/detokenize", {"tokens": [value]}),
                ("logit_bias", TEXT, {"prompt": "x", "logit_bias": {str(value): 1}})]:
            if name == "logit_bias" and value == "1":
                continue
            status, _, data = s.call("POST", path, body)
            need(f"{name} {value!r}", status == 400 and not error_of(data), (status, data[:200]))
    need("the last id",
         s.post(TEXT, {"prompt": [n_vocab - 1], "max_tokens": 1, "stop_token_ids": [n_vocab - 1],
                                      "logit_bias": {str(n_vocab - 1): -100}})[0] == 200)


# ---- P4, A1 ----

TOOLS = [{"type": "function", "function": {
    "name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}]
ABSENT = object()
SPACE = {
    "temperature": [ABSENT, 0, 2, 1e-9], "top_p": [ABSENT, 0, 1, 0.5],
    "top_k": [ABSENT, -1, 1, 1 << 30], "min_p": [ABSENT, 0, 1],
    "n": [ABSENT, 1, 3], "presence_penalty": [ABSENT, -2, 2],
    "frequency_penalty": [ABSENT, -2, 2], "repetition_penalty": [ABSENT, 0.01, 1, 100],
    "seed": [ABSENT, 0, -1, 2 ** 63 - 1], "logprobs": [ABSENT, True, False],
    "top_logprobs": [ABSENT, 0, 20], "stop": [ABSENT, "e", ["a", "\u20ac"]],
    "logit_bias": [ABSENT, {}, {"5": -100, "6": 100}],
    "tools": [ABSENT, TOOLS, []], "tool_choice": [ABSENT, "none", "auto", "required"],
    "parallel_tool_calls": [ABSENT, False],
    "response_format": [ABSENT, {"type": "text"}, {"type": "json_object"}],
    "ignore_eos": [ABSENT, True], "min_tokens": [ABSENT, 0, 3],
    "max_tokens": [ABSENT, 1, 3], "stream": [ABSENT, True],
    "stream_options": [ABSENT, {"include_usage": True}],
    "return_token_ids": [ABSENT, True], "skip_special_tokens": [ABSENT, False],
    "reasoning_effort": [ABSENT, "none", "high"],
    "chat_template_kwargs": [ABSENT, {"thinking": True}], "cache_salt": [ABSENT, "s"],
    "priority": [ABSENT, -100, 100], "timeout_ms": [ABSENT, 60000],
    "user": [ABSENT, "u"], "stop_token_ids": [ABSENT, [1, 2]]}


def shape(r, chunk):
    """What is wrong with the shape of a chat answer or chunk."""
    want = {"id": str, "object": str, "created": int, "model": str, "choices": list}
    for k, t in want.items():
        if type(r.get(k)) is not t:
            return f"{k}: {r.get(k)!r}"
    if r["object"] != ("chat.completion.chunk" if chunk else "chat.completion"):
        return r["object"]
    for c in r["choices"]:
        if type(c.get("index")) is not int or "finish_reason" not in c or "logprobs" not in c:
            return f"choice {c}"
        if c["finish_reason"] not in (("stop", "length",
                                       "tool_calls") + ((None,) if chunk else ())):
            return f"finish_reason {c['finish_reason']}"
        m = c.get("delta" if chunk else "message")
        if not isinstance(m, dict) or (not chunk and (m.get("role") != "assistant"
                                                      or "content" not in m or "refusal" not in m)):
            return f"message {m}"
        for t in m.get("tool_calls", [{"index": 0, "id": "", "type": "function",
                                       "function": {"name": "", "arguments": ""}}]):
            if chunk and type(t.get("index")) is not int or not chunk and not (
                t["id"] is not None and t["type"] == "function"
                    and isinstance(t["function"]["arguments"], str)):
                return f"tool call {t}"
        if m.get("tool_calls") == []:
            return "empty tool_calls"
        for t in (c["logprobs"] or {}).get("content", []):
            if not (isinstance(t["token"], str) and t["logprob"] <= 0
                    and isinstance(t["bytes"], list) and isinstance(t["top_logprobs"], list)):
                return f"logprob {t}"
    u = r.get("usage")
    if (u is None) != chunk and not (chunk and r["choices"] == []):
        return f"usage {u}"
    if u and u["total_tokens"] != u["prompt_tokens"] + u["completion_tokens"]:
        return f"usage {u}"
    return None


def combinations(s):
    rng, names = random.Random(4), list(SPACE)
    open_pairs = {(a, i, b, j) for a, b in itertools.combinations(names, 2)
                  for i in range(len(SPACE[a])) for j in range(len(SPACE[b]))}
    n_pair, codes, bodies = len(open_pairs), {}, 0
    for k in range(2000 if FULL else 150):
        pick = {a: rng.randrange(len(SPACE[a])) for a in names}
        body = dict({"messages": BASE[CHAT]["messages"], "max_completion_tokens": 3},
                    **{a: SPACE[a][i] for a, i in pick.items() if SPACE[a][i] is not ABSENT})
        open_pairs -= {(a, pick[a], b, pick[b]) for a, b in itertools.combinations(names, 2)}
        if body.get("stream"):
            status, ev, _ = s.stream(CHAT, body)
            problem = None
            if status == 200:
                problem = None if ev[-1] == "[DONE]" else f"ends with {ev[-1]}"
                for e in ev[:-1]:
                    problem = problem or ("error" in e and str(e)) or shape(e, True)
                    bodies += 1
        else:
            status, r = s.post(CHAT, body)
            problem = shape(r, False) if status == 200 else None
            bodies += status == 200
        codes[status] = codes.get(status, 0) + 1
        if status not in (200, 400):
            problem = f"status {status}"
        T.check(f"combination {k}", problem and f"{problem} {json.dumps(body)[:300]}")
    print(f"combinations by status {codes}, {bodies} bodies of the right shape, "
          f"{n_pair - len(open_pairs)} of {n_pair} pairs")
    need("combinations: accepted ones", codes.get(200, 0) > sum(codes.values()) / 5, codes)
    if FULL:
        need("combinations: every pair", not open_pairs, len(open_pairs))
        need("bodies", bodies >= 500, bodies)


# ---- A3, A4, A6 ----

def streams(s):
    rng = random.Random(3)
    for k in range(1000 if FULL else 40):
        body = chat(f"Tell me about {rng.randrange(10 ** 6)}",
                    temperature=1, seed=k, max_tokens=rng.randint(1, 30), n=1 + k % 2,
                    logprobs=k % 3 == 0, **({"tools": TOOLS} if k % 4 == 0 else {}))
        if k % 5 == 0:
            body["chat_template_kwargs"] = {"thinking": True}
        _, r = s.post(CHAT, body)
        _, ev, _ = s.stream(CHAT, dict(body, stream_options={"include_usage": True}))
        n = body["n"]
        text, think, why = [""] * n, [""] * n, [None] * n
        for e in ev[:-2]:
            c = e["choices"][0]
            text[c["index"]] += c["delta"].get("content") or ""
            think[c["index"]] += c["delta"].get("reasoning_content") or ""
            why[c["index"]] = c["finish_reason"] or why[c["index"]]
        want = [(c["message"]["content"] or "", c["message"].get("reasoning_content", ""),
                 c["finish_reason"]) for c in r["choices"]]
        need(f"stream {k}", list(zip(text, think, why)) == want and
             all(ev[-2]["usage"][x] == r["usage"][x]
                 for x in ("prompt_tokens", "completion_tokens")), (want, ev[-2]))


def stops(s):
    rng = random.Random(5)
    for k in range(1000 if FULL else 40):
        body = {"prompt": rng.choice(["Once", "caf\u00e9 \u20ac ", "x\U0001f600"]),
                "temperature": 1.5, "seed": k, "max_tokens": 40, "ignore_eos": True}
        whole = s.post(TEXT, body)[1]["choices"][0]["text"]
        if not whole:
            continue
        at = rng.randrange(len(whole))
        stop = [whole[at:at + rng.randint(1, 6)], "\u0bee never said"]
        if "\ufffd" in stop[0]:
            continue
        want = whole[:whole.index(stop[0])]
        r = s.post(TEXT, dict(body, stop=stop))[1]["choices"][0]
        need(f"stop {k}", r["text"] == want and r["finish_reason"] == "stop", (whole, stop, r))
        _, ev, _ = s.stream(TEXT, dict(body, stop=stop))
        need(f"stop streamed {k}",
             "".join(e["choices"][0]["text"] for e in ev[:-1] if e["choices"]) == want, (want, ev))


SPEC = """audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens
max_tokens messages metadata modalities model moderation n parallel_tool_calls prediction
presence_penalty prompt_cache_key prompt_cache_options prompt_cache_retention reasoning_effort
response_format safety_identifier seed service_tier stop store stream stream_options temperature
tool_choice tools top_logprobs top_p user verbosity web_search_options""".split()


def known_fields(s):
    table = {}
    for name, routes, *_ in fields():
        if CHAT in routes:
            table[name] = routes[CHAT]
    need("37 fields of the description", len(SPEC) == 37 and not set(SPEC) - set(table),
         set(SPEC) - set(table))
    for name in SPEC:
        status, _ = s.post(CHAT, dict(BASE[CHAT], **{name: {"no": "such"}}))
        want = 200 if table.get(name) == "ignored" else 400
        need(f"{name} with an odd value", status == want, status)
        status, _ = s.post(CHAT, dict({"messages": BASE[CHAT]["messages"],
                                       "max_completion_tokens": 1}, **({name: None} if name not in (
            "messages", "max_completion_tokens") else {})))
        need(f"{name} null", status == 200, status)


with Server() as server:
    for part in (grammars, numbers, fan_out, over_long,
                 ids, combinations, streams, stops, known_fields):
        t_part = time.time()
        part(server)
        print(f"{part.__name__}: {time.time() - t_part:.1f} s", flush=True)
    need("alive", server.post(CHAT, chat())[0] == 200)
    need("idle", server.idle() is not None)
    need("exit", server.stop() == 0)
T.exit()
