# SPDX-License-Identifier: Apache-2.0
"""What clients do wrong (A2): the right status, the four keys, the field's name; foreign names and
origins (H12); leaks (H14); and the server lives."""
import json
import os
import shutil
import socket

from serve import DEMO, Server, chat, error_of, key_line, leaks
import e2e
import ggufkeys

T = e2e.Tally("serve: errors")
CHAT, TEXT, EMBED, RESP = ("/v1/chat/completions",
                           "/v1/completions", "/v1/embeddings", "/v1/responses")
NUMBERS = {  # field: (route, low, high)
    "temperature": (CHAT, 0, 2), "top_p": (CHAT, 0, 1),
    "n": (CHAT, 1, 128), "max_tokens": (CHAT, 1, 1 << 24),
    "max_completion_tokens": (CHAT, 1, 1 << 24), "presence_penalty": (CHAT, -2, 2),
    "frequency_penalty": (CHAT, -2, 2), "top_logprobs": (CHAT, 0, 20), "top_k": (CHAT, -1, 1 << 30),
    "min_p": (CHAT, 0, 1), "repetition_penalty": (CHAT, 0.01, 100),
    "min_tokens": (CHAT, 0, 1 << 24),
    "priority": (CHAT, -100, 100), "timeout_ms": (CHAT, 0, 86400000), "seed": (CHAT, None, None),
    "logprobs": (TEXT, 0, 20), "best_of": (TEXT, 1, 1)}
BAD_NUMBERS = ["1e999", "-1e999", "\"5\"", "[1]", "{}", "true", "99999999999999999999999",
               "-99999999999999999999999", "1e300", "-1e300", "-9223372036854775808.5"]


def bad(s, name, path, body, status=400, param=None, code=None, headers=None):
    """One wrong request. body: bytes or something for JSON."""
    got, head, data = s.call("POST", path, body, headers)
    problem = None if got == status else f"status {got}, not {status}: {data[:200]!r}"
    problem = problem or error_of(data)
    if not problem:
        e = json.loads(data)["error"]
        if param and e["param"] != param:
            problem = f"param {e['param']!r}, not {param!r}: {e}"
        elif code and e["code"] != code:
            problem = f"code {e['code']!r}, not {code!r}"
    T.check(name, problem)


def numbers(s):
    for field, (path, lo, hi) in NUMBERS.items():
        values = list(BAD_NUMBERS)
        if lo is not None:
            values += [str(lo - 1), str(hi + 1), str(lo - 0.5) if field != "seed" else "0.5"]
        for v in values:
            if field == "seed" and v in ("1e300",):
                pass
            base = {"messages": [{"role": "user", "content": "x"}],
                    "max_tokens": 2} if path == CHAT else \
                {"prompt": "x", "max_tokens": 2}
            base.pop(field, None)
            text = json.dumps(base)[:-1] + f", \"{field}\": {v}}}"
            want = None if v in ("1e999", "-1e999") else field
            bad(s, f"{field} = {v}", path, text.encode(), 400, want)


def texts(s):
    m = [{"role": "user", "content": "x"}]
    table = [
        ("no messages", CHAT, {}, "messages"),
        ("messages text", CHAT, {"messages": "x"}, "messages"),
        ("messages empty", CHAT, {"messages": []}, "messages"),
        ("message null", CHAT, {"messages": [None]}, "messages[0].role"),
        ("role", CHAT, {"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ("content", CHAT, {"messages": m + [{"role": "user", "content": 5}]},
         "messages[1].content"),
        ("content number", CHAT, {"messages": [{"role": "user", "content": 5}]},
         "messages[0].content"),
        ("image", CHAT, {"messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/x"}}]}]},
         "messages[0].content"),
        ("file url", CHAT, {"messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}]},
         "messages[0].content"),
        ("stop number", CHAT, {"messages": m, "stop": 5}, "stop"),
        ("stop empty", CHAT, {"messages": m, "stop": [""]}, "stop"),
        ("stop many", CHAT, {"messages": m, "stop": ["x"] * 17}, "stop"),
        ("stop long", CHAT, {"messages": m, "stop": "x" * 1025}, "stop"),
        ("bias list", CHAT, {"messages": m, "logit_bias": [1]}, "logit_bias"),
        ("bias token", CHAT, {"messages": m, "logit_bias": {"4096": 1}}, "logit_bias"),
        ("bias negative", CHAT, {"messages": m, "logit_bias": {"-1": 1}}, "logit_bias"),
        ("bias name", CHAT, {"messages": m, "logit_bias": {"x": 1}}, "logit_bias"),
        ("bias range", CHAT, {"messages": m, "logit_bias": {"5": 101}}, "logit_bias"),
        ("bias text", CHAT, {"messages": m, "logit_bias": {"5": "1"}}, "logit_bias"),
        ("stop ids", CHAT, {"messages": m, "stop_token_ids": ["x"]}, "stop_token_ids"),
        ("stop ids vocabulary", CHAT, {"messages": m, "stop_token_ids": [4096]}, "stop_token_ids"),
        ("prompt ids", CHAT, {"messages": m, "prompt_token_ids": [4096]}, "prompt_token_ids"),
        ("prompt ids empty", CHAT, {"messages": m, "prompt_token_ids": []}, "prompt_token_ids"),
        ("bias blank", CHAT, {"messages": m, "logit_bias": {" 1": 1}}, "logit_bias"),
        ("part without text", CHAT, {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
         "messages[0].content"),
        ("web search as it is", CHAT, {"messages": m, "web_search_options": {}},
         "web_search_options"),
        ("left recursion", CHAT, {"messages": m, "grammar": 'root ::= top\ntop ::= top "a" | "b"'},
         "grammar"),
        ("left recursion of a schema", CHAT,
         {"messages": m, "guided_json": {"anyOf": [{"$ref": "#"}, {"const": 1}]}}, "guided_json"),
        ("id of a text", CHAT, {"messages": m, "grammar": 'root ::= "a" <[5]>'}, "grammar"),
        ("two structures", CHAT, {"messages": m, "guided_regex": "a", "guided_choice": ["a"]},
         "guided_choice"),
        ("stop ids many", CHAT, {"messages": m, "stop_token_ids": [1] * 65}, "stop_token_ids"),
        ("top_logprobs alone", CHAT, {"messages": m, "top_logprobs": 2}, "top_logprobs"),
        ("stream_options alone", CHAT, {"messages": m, "stream_options": {}}, "stream_options"),
        ("stream_options of a text", CHAT,
         {"messages": m, "stream": True, "stream_options": {"include_usage": "yes"}},
         "stream_options.include_usage"),
        ("effort in an object", CHAT, {"messages": m, "reasoning": {"effort": 5}},
         "reasoning.effort"),
        ("no such member of text", RESP, {"input": "x", "text": {"form": {"type": "text"}}},
         "text.form"),
        *((f"{k} of a schema", CHAT, {"messages": m, "response_format": {
            "type": "json_schema", "json_schema": {"name": "x", "schema": {}, k: v}}},
           f"response_format.json_schema.{k}")
          for k, v in (("name", 5), ("strict", "yes"), ("description", []))),
        ("stream text", CHAT, {"messages": m, "stream": "yes"}, "stream"),
        ("functions", CHAT, {"messages": m, "functions": [{"name": "f"}]}, "functions"),
        ("function_call", CHAT, {"messages": m, "function_call": "auto"}, "function_call"),
        ("audio", CHAT, {"messages": m, "audio": {"voice": "x"}}, "audio"),
        ("modalities", CHAT, {"messages": m, "modalities": ["audio"]}, "modalities"),
        ("web search", CHAT, {"messages": m, "web_search_options": {"a": 1}}, "web_search_options"),
        ("tools text", CHAT, {"messages": m, "tools": "x"}, "tools"),
        ("tool type", CHAT, {"messages": m, "tools": [{"type": "retrieval"}]}, "tools[0].type"),
        ("tool name", CHAT, {"messages": m, "tools": [{"type": "function", "function": {}}]},
         "tools[0].function.name"),
        *((f"tool {k}", CHAT, {"messages": m, "tools": [
            {"type": "function", "function": {"name": "f", k: v}}]}, f"tools[0].function.{k}")
          for k, v in (("description", 5), ("parameters", "x"),
                       ("parameters", []), ("strict", "yes"))),
        *((f"responses {k}", RESP, {"input": "x", k: v}, k)
          for k in ("text", "reasoning", "metadata", "tools", "include", "user")
          for v in (5, True, "" if k in ("text", "tools")
                    else {"a": 1} if k in ("include", "user") else "x")),
        ("tool_choice", CHAT, {"messages": m, "tool_choice": "perhaps"}, "tool_choice"),
        ("format", CHAT, {"messages": m, "response_format": {"type": "xml"}},
         "response_format.type"),
        ("format text", CHAT, {"messages": m, "response_format": "json"}, None),
        *((f"format {t} with a schema", CHAT, {"messages": m, "response_format": {
            "type": t, "json_schema": {"name": "x", "schema": {"type": "integer"}}}},
           "response_format.json_schema") for t in ("text", "json_object")),
        ("format text and more", TEXT, {"prompt": "x", "response_format": {
            "type": "text", "pattern": "a"}}, "response_format.pattern"),
        ("format json_object and more", RESP, {"input": "x", "text": {"format": {
            "type": "json_object", "pattern": "a"}}}, "text.format.pattern"),
        ("schema", CHAT,
         {"messages": m, "response_format": {"type": "json_schema", "json_schema": {}}},
         "response_format"),
        ("kwargs", CHAT, {"messages": m, "chat_template_kwargs": {"messages": "x"}},
         "chat_template_kwargs"),
        ("kwargs deep", CHAT, {"messages": m, "chat_template_kwargs": {"a": [1]}},
         "chat_template_kwargs"),
        ("min over max", CHAT, {"messages": m, "min_tokens": 9, "max_tokens": 3}, "min_tokens"),
        ("reasoning_effort", CHAT, {"messages": m, "reasoning_effort": 5}, "reasoning_effort"),
        ("tool_calls", CHAT, {"messages": [{"role": "assistant", "tool_calls": [{}]}]},
         "messages[0].tool_calls"),
        ("tool_calls number", CHAT, {"messages": [{"role": "assistant", "tool_calls": 5}]},
         "messages[0].tool_calls"),
        ("name number", CHAT, {"messages": [{"role": "user", "content": "x", "name": 5}]},
         "messages[0].name"),
        ("tool_call_id number", CHAT, {"messages": [
            {"role": "tool", "content": "x", "tool_call_id": 5}]}, "messages[0].tool_call_id"),
        ("no prompt", TEXT, {}, "prompt"),
        ("prompt object", TEXT, {"prompt": {}}, "prompt"),
        ("prompt id", TEXT, {"prompt": [4096]}, "prompt"),
        ("prompt negative id", TEXT, {"prompt": [-1]}, "prompt"),
        ("prompt ids vocabulary", TEXT, {"prompt_token_ids": [4096]}, "prompt_token_ids"),
        ("prompt ids text", TEXT, {"prompt_token_ids": "x"}, "prompt_token_ids"),
        ("prompt ids texts", TEXT, {"prompt_token_ids": ["x", "y"]}, "prompt_token_ids"),
        ("prompt ids none", TEXT, {"prompt_token_ids": []}, "prompt_token_ids"),
        ("input id", EMBED, {"input": [4096]}, "input"),
        ("input ids", EMBED, {"input": [[1], [4096]]}, "input"),
        ("tokenize flag", "/tokenize", {"prompt": "x", "add_special_tokens": 0},
         "add_special_tokens"),
        ("tokenize special", "/tokenize", {"prompt": "x", "parse_special": "no"}, "parse_special"),
        ("detokenize flag", "/detokenize", {"tokens": [5], "special": 1}, "special"),
        ("prompt mixed", TEXT, {"prompt": [1, "x"]}, "prompt"),
        ("prompt empty", TEXT, {"prompt": ""}, "prompt"),
        ("prompts empty", TEXT, {"prompt": []}, "prompt"),
        ("prompt NUL", TEXT, {"prompt": "a\0b"}, "prompt"),
        ("max_tokens 0", TEXT, {"prompt": "x", "max_tokens": 0}, "max_tokens"),
        ("suffix", TEXT, {"prompt": "x", "suffix": "y"}, "suffix"),
        ("fan-out", TEXT, {"prompt": ["x"] * 129}, "prompt"),
        ("no input", EMBED, {}, "input"),
        ("input empty", EMBED, {"input": ""}, "input"),
        ("an empty one of inputs", EMBED, {"input": ["x", ""]}, "input"),
        ("input of a NUL", EMBED, {"input": "\0"}, "input"),
        ("prompt of a NUL", TEXT, {"prompt": ["x", "a\0b"]}, "prompt"),
        ("an empty list of lists", TEXT, {"prompt": [[1], []]}, "prompt"),
        ("text among ids", TEXT, {"prompt": [1, "x"]}, "prompt"),
        ("fan-out with samples", TEXT, {"prompt": ["x"] * 43, "n": 3}, "prompt"),
        ("input list empty", EMBED, {"input": []}, "input"),
        ("input many", EMBED, {"input": ["x"] * 2049}, "input"),
        ("encoding", EMBED, {"input": "x", "encoding_format": "hex"}, "encoding_format"),
        ("dimensions", EMBED, {"input": "x", "dimensions": 8}, "dimensions"),
        ("no text", "/tokenize", {}, "prompt"),
        ("tokens", "/detokenize", {"tokens": [99999]}, "tokens"),
        ("tokens missing", "/detokenize", {}, "tokens"),
        ("template", "/apply-template", {}, "messages"),
        ("template of a NUL", "/apply-template",
         {"messages": [{"role": "user", "content": "a\0b"}]}, "messages"),
        ("body list", CHAT, [], None), ("body text", CHAT, "x", None),
        ("body number", CHAT, 5, None),
    ]
    for name, path, body, param in table:
        bad(s, name, path, body, 400, param)
    bad(s, "model", CHAT, chat(model="other"), 404, "model", "model_not_found")
    for path, body in (("/tokenize", {"prompt": "x"}),
                       ("/detokenize", {"tokens": [5]}), ("/apply-template", chat())):
        bad(s, f"model {path}", path, {**body, "model": "other"}, 404, "model", "model_not_found")
    long = "word " * 20000
    bad(s, "too long", TEXT, {"prompt": long}, 400, "prompt", "context_length_exceeded")
    bad(s, "too long chat", CHAT, chat(long), 400, "messages", "context_length_exceeded")
    bad(s, "a later one too long", TEXT, {"prompt": ["a"] * 20 + [long]},
        400, "prompt", "context_length_exceeded")
    bad(s, "a later input too long", EMBED, {"input": ["a", long]},
        400, "input", "context_length_exceeded")
    bad(s, "an answer that is too ambiguous", TEXT,
        {"prompt": "x", "guided_regex": "(a?){100000}"}, 400, None, "invalid_value")
    _, r = s.post(CHAT, chat(long))
    T.check("OpenAI's words", None
            if "this model's maximum context length is 2048 tokens" in r["error"]["message"] else r)
    bad(s, "out of context ids", TEXT, {"prompt": [5] * 2049},
        400, "prompt", "context_length_exceeded")


def counted(tmp):
    """The number in a refusal is that of the prompt, with the BOS and EOS that the files wish."""
    keys = {"tokenizer.ggml.bos_token_id": (4, 0), "tokenizer.ggml.add_bos_token": (7, 1),
            "tokenizer.ggml.add_eos_token": (7, 1)}
    src = os.path.join(e2e.build_dir(), "tests", "tiny", "qwen3.gguf")
    m = ggufkeys.write(src, os.path.join(tmp, "around.gguf"), keys)
    with Server("--ctx", "64", model=m) as s:
        for n in (5, 60, 61, 62, 64, 65, 200):
            body = {"prompt": "b" * n, "max_tokens": 1}
            ids, whole, theirs = (s.post("/tokenize", x)[1]["count"] for x in (
                {"prompt": "b" * n, "add_special_tokens": False}, {"prompt": "b" * n},
                {"content": "b" * n}))
            T.check(f"{n} bytes by /tokenize", None if (whole, theirs) == (ids + 2, ids)
                    else (ids, whole, theirs))
            status, r = s.post(TEXT, body)
            if status == 200:
                T.check(f"{n} bytes are used", None if r["usage"]["prompt_tokens"]
                        == ids + 2 <= 64 else (r, ids))
            else:
                T.check(f"{n} bytes are counted", None if ids + 2 > 63 and
                        f"prompt of {ids + 2} tokens" in r["error"]["message"] else (r, ids))


def json_texts(s):
    for name, body, where in [
            ("empty", b"", "line 1"), ("cut", b"{\"a\": ", "line 1"),
            ("trailing comma", b"{\"a\": 1,}", "line 1"),
            ("line 2", b"{\n  \"a\": nope\n}", "line 2 column 8"),
            ("NaN", b"{\"a\": NaN}", "line 1"),
            ("twice", b"{\"a\": 1, \"a\": 2}", "line 1"),
            ("not UTF-8", b"{\"a\": \"\xff\"}", "line 1"),
            ("surrogate", b"{\"a\": \"\\ud800\"}", "line 1"),
            ("control", b"{\"a\": \"\x01\"}", "line 1"),
            ("two values", b"{} {}", "line 1"), ("deep", b"[" * 100000, "line 1"),
            ("deep object", b"{\"a\":" * 100000, "line 1"), ("NUL", b"\0", "line 1"),
            ("BOM", b"\xef\xbb\xbf\xef\xbb\xbf{}", "line 1"),
            ("single quotes", b"{'a': 1}", "line 1")]:
        got, head, data = s.call("POST", CHAT, body)
        problem = None if got == 400 else f"status {got}"
        problem = problem or error_of(data)
        if not problem and where not in json.loads(data)["error"]["message"]:
            problem = f"no {where!r}: {data!r}"
        T.check(f"JSON {name}", problem)


def routes(s):
    for method, path, status in [
            ("GET", "/nothing", 404), ("GET", "/v1/chat/completions", 405),
            ("POST", "/health", 405),
            ("DELETE", "/v1/models", 405), ("GET", "/v1/../health", 404), ("GET", "//health", 404),
            ("GET", "/healthx/", 404), ("GET", "/%2e%2e/etc/passwd", 404), ("PUT", CHAT, 405),
            ("OPTIONS", CHAT, 405), ("TRACE", "/health", 405), ("GET", "/V1/models", 404)]:
        got, head, data = s.call(method, path)
        T.check(f"{method} {path}", None if got == status else f"status {got}: {data[:100]!r}")
        T.check(f"{method} {path} body", error_of(data))
        allow = head.get("allow", "").split(", ")
        T.check(f"{method} {path} Allow", None if (status == 405) == (allow != [""])
                and method not in allow else f"Allow: {allow}")
    got, head, data = s.call("PUT", "/v1/responses/x")
    T.check("Allow of two routes", None if head.get("allow") == "GET, HEAD, DELETE" else f"{head}")
    got, head, data = s.call("HEAD", "/health")
    T.check("HEAD", None if got == 200 and data == b"" else f"{got} {data!r}")
    for host, status in [("localhost", 200), ("127.0.0.1:5", 200),
                         ("[::1]:80", 200), ("evil.example", 403),
                         ("localhost.evil.example", 403),
                         ("127.0.0.1.evil.example", 403), ("LOCALHOST:1", 200),
                         ("", 403), ("1.2.3", 403)]:
        got, head, data = s.get("/v1/models", {"Host": host})
        T.check(f"Host {host!r}", None if got == status else f"status {got}")
    for origin, status in [("http://localhost", 200), ("http://evil.example", 403), ("null", 403),
                           ("https://localhost", 200)]:
        got, head, data = s.get("/v1/models", {"Origin": origin, "Host": "localhost"})
        T.check(f"Origin {origin}", None if got == status else f"status {got}")
        T.check(f"Origin {origin} CORS",
                "CORS header" if "access-control-allow-origin" in head else None)


def cors():
    """A page of an origin that is allowed calls with what SDKs send from browsers, and reads what
    they read."""
    page = {"Origin": "https://chat.example.org", "Host": "localhost"}
    asked = "authorization,content-type,x-stainless-os,x-stainless-retry-count"
    with Server("--cors-origin", page["Origin"]) as s:
        got, head, _ = s.call("OPTIONS", CHAT, None,
                              {**page, "Access-Control-Request-Headers": asked})
        T.check("preflight", None if got == 204 and head["access-control-allow-headers"] == asked
                and
                head["access-control-allow-origin"] == page["Origin"]
                and "DELETE" in head["access-control-allow-methods"] else f"{got} {head}")
        got, head, _ = s.get("/v1/models", page)
        T.check("what the page may read", None if got == 200
                and "x-request-id" in head.get("access-control-expose-headers", "") and
                "retry-after" in head["access-control-expose-headers"] else f"{got} {head}")
        got, head, _ = s.call("OPTIONS", CHAT, None, {**page, "Origin": "https://evil.example",
                                                      "Access-Control-Request-Headers": asked})
        T.check("preflight of another", None if got == 403
                and not [h for h in head if h.startswith("access-control")] else f"{got} {head}")


def leaks_are_seen():
    """H14: the look at every answer (serve.py) finds what it is for, in pieces too, and nothing
    where there is nothing."""
    key_line("x", "sk-H14-secret")
    before = leaks.n

    def found(*pieces):
        a, b = socket.socketpair()
        with a, b:
            for p in pieces:
                a.sendall(p)
                b.recv(65536)
        got, leaks.found = {f for f, _ in leaks.found}, set()
        return got
    head, event = (b"HTTP/1.1 500 X\r\nA: b\r\n\r\n",
                   b"HTTP/1.1 200 OK\r\n\r\ndata: {\"a\": 1}\n\ndata: {\"error\": {")
    for text, want in ((b"at 0x7ffe12ab34cd", b"0x7ffe12ab34cd"),
                       (b"/usr/lib/x.so", b"/usr/lib"), (b"/srv/m.gguf", b"/srv/m.gguf"),
                       (b"in job.c:123", b"job.c:123"),
                       (DEMO.encode(), DEMO.encode()), (b"key sk-H14-secret", b"sk-H14-secret"),
                       (key_line("x", "sk-H14-secret").split()[1].encode(), None)):
        for name, first in (("answer", head), ("event", event)):
            for cut in (0, len(text) // 2, len(text)):
                got = found(first + text[:cut], text[cut:] + b"}\r\n")
                T.check(f"leak {text!r} in an {name}, cut at {cut}",
                        None if (want in got if want else got) else f"not seen: {got}")
        T.check(f"leak {text!r} in a head",
                None if found(b"HTTP/1.0 404 X\r\nB: " + text + b"\r\n\r\n") else "not seen")
        got = found(b"HTTP/1.1 200 OK\r\n\r\n" + text
                    + b"HTTP/1.1 400 X\r\n\r\n{}HTTP/1.1 200 OK\r\n\r\n" + text)
        T.check(f"{text!r} in a good answer", f"seen: {got}" if got else None)
    T.check("answers were looked at", None if leaks.n > before else "none")


def without(tmp):
    """Models without a template or a tokenizer: what needs one is 400 by the field, and the file's
    name, however much like a field's, is not told."""
    for name, gone, field in (("messages", "chat_template", "messages"),
                              ("prompt", None, "prompt")):
        model = os.path.join(tmp, name)
        shutil.copytree(os.path.join(e2e.tiny(), "qwen3"), model)
        if gone:
            path = os.path.join(model, "tokenizer_config.json")
            with open(path, encoding="utf-8") as f:
                config = json.load(f)
            config.pop(gone)
            with open(path, "w", encoding="utf-8") as f:
                json.dump(config, f)
        else:
            for f in ("tokenizer.json", "tokenizer_config.json"):
                os.remove(os.path.join(model, f))
        with Server("-m", model) as s:
            status, r = s.post(
                CHAT, {"messages": [{"role": "user", "content": "x"}]}) if gone else s.post(
                    "/v1/completions", {"prompt": "x"})
            e = r["error"]
            T.check(f"no {gone or 'tokenizer'}", None if status == 400 and e["param"] == field
                    and not e["message"].startswith(name) else f"{status} {r}")
            status, r = s.post("/v1/completions", {"prompt": [5, 6, 7], "max_tokens": 3})
            T.check("token ids go on", None if status == 200 else f"{status} {r}")


leaks_are_seen()
cors()
with e2e.scratch() as tmp_dir:
    without(tmp_dir)
    counted(tmp_dir)
seen = leaks.n
with Server() as server:
    for part in (numbers, texts, json_texts, routes):
        part(server)
    status, r = server.post(CHAT, chat())
    T.check("alive", None if status == 200 else f"{status} {r}")
    T.check("each refusal was looked at", None if leaks.n - seen > 300 else leaks.n - seen)
    T.check("idle", None if server.idle() is not None else "something runs")
    T.check("exit", None if server.stop() == 0 else "not 0")
T.exit()
