# SPDX-License-Identifier: Apache-2.0
"""Routes and fields: shapes of answers, streams that add up to the whole, what each field does."""
import base64
import json
import os
import re
import shutil
import struct
import sys
import tempfile
import threading
import time

from serve import DEMO, Server, chat, error_of
import e2e

T = e2e.Tally("serve: api")


def need(name, cond, what=""):
    T.check(name, None if cond else (what or "not so"))


def get_routes(s):
    need("health", s.get("/health")[0] == 200)
    need("ready", s.get("/ready")[0] == 200)
    status, head, data = s.get("/v1/models")
    m = json.loads(data)
    need("models", status == 200 and m["object"] == "list" and m["data"][0]["object"] == "model")
    status, head, data = s.get("/v1/models/" + m["data"][0]["id"].replace(" ", "%20"))
    need("one model", status == 200 and json.loads(data) == m["data"][0], data)
    status, head, data = s.get("/v1/models/gpt-5")
    need("another model", status == 404 and json.loads(data)["error"]["code"] == "model_not_found",
         data)
    need("request id", head["x-request-id"].startswith("req_"))
    need("own request id",
         s.get("/health", {"X-Request-Id": "abc-1"})[1]["x-request-id"] == "abc-1")
    need("bad request id",
         s.get("/health", {"X-Request-Id": "a b\x7f"})[1]["x-request-id"] != "a b\x7f")
    for path, kind in [("/", "text/html"), ("/app.js", "text/javascript"),
                       ("/style.css", "text/css"),
                       ("/icon.svg", "image/svg+xml")]:
        status, head, data = s.get(path)
        need(f"page {path}", status == 200 and head["content-type"].startswith(kind)
             and len(data) > 50)
        policy = head["content-security-policy"]
        need("policy", "default-src 'none'" in policy
             and "unsafe" not in policy and "http" not in policy, policy)
    text = s.get("/metrics")[2].decode()
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting",
                 "vllm:kv_cache_usage_perc",
                 "vllm:prompt_tokens_total", "vllm:generation_tokens_total",
                 "vllm:time_to_first_token_seconds_bucket",
                 "vllm:time_per_output_token_seconds_sum",
                 "vllm:e2e_request_latency_seconds_count", "vllm:prefix_cache_hits_total",
                 "vllm:num_preemptions_total", "vllm:request_success_total"):
        need(f"metric {name}", f"\n{name}{{" in text)
    with open(e2e.ROOT + "/docs/serving.md", encoding="utf-8") as f:
        told = set(re.findall(r"`((?:vllm:|sluice:|http_)[a-z0-9_]+)", f.read()))
    there = {ln.split()[2] for ln in text.split("\n") if ln.startswith("# TYPE ")}
    # of several stages; of ranks that have experts each, after they were placed anew
    there |= {"sluice:pipeline_idle_ratio", "sluice:rank_load_ratio", "sluice:rank_load_share",
              "sluice:placement_load_ratio", "sluice:rank_requests_running",
              "sluice:rank_requests_waiting", "sluice:rank_kv_used_tokens", "sluice:rank_kv_tokens",
              "sluice:rank_step_seconds_total", "sluice:dist_wait_seconds_total",
              "sluice:dist_bytes_total", "sluice:dist_ops_total", "sluice:link_latency_us",
              "sluice:link_gbps", "sluice:local_page_ratio"}
    need("metrics in docs/serving.md", there == told, sorted(there ^ told))
    for line in text.strip().split("\n"):
        if not line.startswith("#"):
            need("metric line", line.count(" ") >= 1 and float(line.rsplit(" ", 1)[1]) >= 0, line)


def counted(s):
    """The counters rise by what the answers say of themselves."""
    def now():
        return [float(re.search(name + r"\{.*\} (\S+)\n", s.get("/metrics")[2].decode())[1])
                for name in ("vllm:prompt_tokens_total", "vllm:generation_tokens_total")]
    before, u = now(), s.post("/v1/chat/completions", chat(n=3, max_tokens=9, ignore_eos=True,
                                                           cache_salt="counted"))[1]["usage"]
    for _ in range(100):  # an answer is out before its last step is counted
        rose = [b - a for a, b in zip(before, now())]
        if rose == [u["prompt_tokens"], 27]:
            break
        time.sleep(0.05)
    need("tokens counted", rose == [u["prompt_tokens"], 27] and u["completion_tokens"] == 27,
         (rose, u))


def aborted(s):
    """Samples that a client left count as aborted, each once, and no others."""
    def now():
        text = s.get("/metrics")[2].decode()
        return [float(re.search(r'request_success_total\{.*finished_reason="%s"\} (\S+)\n' % k,
                                text)[1]) for k in ("stop", "length", "abort", "error")]
    before = now()
    s.post("/v1/completions", {"prompt": "a", "max_tokens": 2, "n": 2, "ignore_eos": True})
    c = s.open({"prompt": "a", "max_tokens": 1500, "n": 3, "ignore_eos": True, "stream": True},
               "/v1/completions")
    c.recv(100)
    c.close()
    for _ in range(100):
        rose = [b - a for a, b in zip(before, now())]
        if sum(rose) >= 5:
            break
        time.sleep(0.05)
    need("aborted ones counted", rose == [0, 2, 3, 0], rose)


def forbidden(s):
    """What a request forbids is its own fault, not the server's."""
    ids = s.post("/tokenize", {"prompt": "a"})[1]["tokens"]
    for more in ({"logit_bias": {str(t): -100 for t in ids}},
                 {"min_tokens": 3, "stop_token_ids": ids}):
        status, r = s.post("/v1/completions",
                           {"prompt": "x", "guided_choice": ["a"], "max_tokens": 4, **more})
        need("all tokens forbidden",
             status == 400 and r["error"]["type"] == "invalid_request_error", (status, r))


def chat_shapes(s):
    status, r = s.post("/v1/chat/completions", chat())
    need("chat status", status == 200, r)
    need("chat keys", {"id", "object", "created", "model", "choices", "usage"} <= set(r), r)
    c = r["choices"][0]
    need("choice", {"finish_reason", "index", "message", "logprobs"} <= set(c), c)
    need("message", {"role", "content", "refusal"} <= set(c["message"]) and
         c["message"]["refusal"] is None and "tool_calls" not in c["message"], c)
    u = r["usage"]
    need("usage", u["total_tokens"] == u["prompt_tokens"] + u["completion_tokens"] and
         "cached_tokens" in u["prompt_tokens_details"], u)
    long = {"prompt": "Count the lorries on the bridge. " * 20, "max_tokens": 1, "temperature": 0}
    seen = [s.post("/v1/completions", long)[1]["usage"] for _ in range(2)]
    d = [x["prompt_tokens_details"] for x in seen]
    need("what the prefix cache found and was given", d[0]["cache_write_tokens"]
         == d[1]["cached_tokens"] > 0.6 * seen[0]["prompt_tokens"]
         and d[0]["cached_tokens"] == d[1]["cache_write_tokens"] == 0, seen)
    need("timings", r["timings"]["ttft_ms"] > 0)
    whole = c["message"]["content"]
    status, ev, _ = s.stream("/v1/chat/completions", chat())
    need("stream ends", ev[-1] == "[DONE]")
    need("no usage unasked", all(e.get("usage") is None and e["choices"] for e in ev[:-1]), ev)
    need("role first", ev[0]["choices"][0]["delta"]["role"] == "assistant")
    text = "".join(e["choices"][0]["delta"].get("content") or "" for e in ev[:-1])
    need("stream is the whole", text == whole, (text, whole))
    need("one finish", [e["choices"][0]["finish_reason"] for e in ev[:-1]].count("stop") == 1 and
         ev[-2]["choices"][0]["finish_reason"] == "stop")
    status, ev, _ = s.stream("/v1/chat/completions", chat(stream_options={"include_usage": True}))
    need("usage last", ev[-2]["choices"] == [] and ev[-2]["usage"]["completion_tokens"] > 0, ev[-2])
    need("usage null before", all(e["usage"] is None for e in ev[:-2]))


def chat_fields(s):
    def post(**more):
        return s.post("/v1/chat/completions", chat(**more))

    status, r = post(n=3, temperature=1, seed=5)
    need("n", [c["index"] for c in r["choices"]] == [0, 1, 2], r)
    status, r2 = post(n=3, temperature=1, seed=5)
    need("seed", [c["message"] for c in r["choices"]] == [c["message"] for c in r2["choices"]])
    status, ev, _ = s.stream("/v1/chat/completions", chat(n=3, temperature=1, seed=5))
    text = {}
    for e in ev[:-1]:
        c = e["choices"][0]
        text[c["index"]] = text.get(c["index"], "") + (c["delta"].get("content") or "")
    need("n streamed",
         [text[i] for i in range(3)] == [c["message"]["content"] for c in r["choices"]])
    whole = post()[1]["choices"][0]["message"]["content"]
    cut = whole[len(whole) // 2:][:3]
    status, r = post(stop=cut)
    need("stop", r["choices"][0]["message"]["content"] == whole[:whole.index(cut)] and
         r["choices"][0]["finish_reason"] == "stop", (r, cut))
    status, r = post(max_tokens=3)
    need("max_tokens", r["usage"]["completion_tokens"] == 3 and
         r["choices"][0]["finish_reason"] == "length", r)
    status, r = post(max_tokens=9, max_completion_tokens=2)
    need("max_completion_tokens", r["usage"]["completion_tokens"] == 2)
    status, r = post(ignore_eos=True, max_tokens=40)
    need("ignore_eos", r["usage"]["completion_tokens"] == 40)
    status, r = post(min_tokens=30, max_tokens=30)
    need("min_tokens", r["usage"]["completion_tokens"] == 30)
    status, r = post(logprobs=True, top_logprobs=3, max_tokens=4)
    lp = r["choices"][0]["logprobs"]["content"]
    need("logprobs", len(lp) == 4 and all(len(t["top_logprobs"]) == 3 for t in lp), lp)
    need("logprobs sorted", all(t["logprob"] <= 0 and t["top_logprobs"] == sorted(
        t["top_logprobs"], key=lambda x: -x["logprob"]) for t in lp))
    need("logprob of the best", all(t["logprob"] == t["top_logprobs"][0]["logprob"] for t in lp))
    need("logprob bytes", "".join(bytes(t["bytes"]).decode() for t in lp) ==
         r["choices"][0]["message"]["content"])
    status, ev, _ = s.stream("/v1/chat/completions",
                             chat(logprobs=True, top_logprobs=3, max_tokens=4))
    got = [t for e in ev[:-1] for t in ((e["choices"][0]["logprobs"] or {}).get("content") or [])]
    need("logprobs streamed", got == lp)
    first = s.post("/tokenize", {"prompt": whole})[1]["tokens"][0]
    status, r = post(logit_bias={str(first): -100})
    need("logit_bias", not r["choices"][0]["message"]["content"].startswith(whole[:1]), r)
    status, r = post(return_token_ids=True)
    c = r["choices"][0]
    back = s.post("/detokenize", {"tokens": c["token_ids"], "special": False})[1]["prompt"]
    need("return_token_ids",
         back == whole and len(r["prompt_token_ids"]) == r["usage"]["prompt_tokens"], r)
    status, r2 = s.post("/v1/chat/completions", {
        "prompt_token_ids": r["prompt_token_ids"], "temperature": 0, "max_tokens": 16})
    need("prompt_token_ids", r2["choices"][0]["message"]["content"] == whole, r2)
    status, r = post(stop_token_ids=[c["token_ids"][2]])
    need("stop_token_ids", r["usage"]["completion_tokens"] == 3 and
         r["choices"][0]["finish_reason"] == "stop", r)
    parts = {"messages": [{"role": "user", "content": [{"type": "text", "text": "What is 17"},
                                                       {"type": "text", "text": " + 25?"}]}],
             "temperature": 0, "max_tokens": 16}
    need("parts", s.post("/v1/chat/completions",
                         parts)[1]["choices"][0]["message"]["content"] == whole)
    status, r = post(user="u", store=True, metadata={"a": "b"},
                     service_tier="auto", verbosity="low",
                     n_discard=-1, unknown=None)
    need("ignored fields", status == 200 and r["choices"][0]["message"]["content"] == whole, r)
    for text in (whole, [{"type": "text", "text": whole}]):
        for _ in range(300):  # by the measured times of steps drafts may not pay for a while
            status, r = post(prediction={"type": "content", "content": text})
            u = r["usage"]["completion_tokens_details"]
            if status != 200 or u["accepted_prediction_tokens"]:
                break
        need("prediction", status == 200 and r["choices"][0]["message"]["content"] == whole, r)
        need("prediction: tokens", u["accepted_prediction_tokens"] > 0 and
             u["rejected_prediction_tokens"] >= 0 and r["timings"]["draft_n"] > 0, r)
    for bad in ("x", {"type": "text", "content": "x"}, {"type": "content"},
                {"type": "content", "content": 5}):
        status, r = post(prediction=bad)
        need("bad prediction", status == 400 and "prediction" in r["error"]["message"], (bad, r))
    status, r = post(prediction={"type": "content", "content": "x"}, n=2)
    need("prediction and n", status == 400 and "prediction" in r["error"]["message"], r)
    status, r = post(timeout_ms=1, max_tokens=2000, ignore_eos=True)
    need("timeout", status == 504 and r["error"]["code"] == "timeout", (status, r))
    a = post(top_k=1, temperature=1.5)[1]["choices"][0]["message"]["content"]
    need("top_k 1 is greedy", a == whole)
    b = post(top_p=0, temperature=1.5)[1]["choices"][0]["message"]["content"]
    need("top_p 0 is greedy", b == whole)


def one_each(pairs):
    if len({k for k, _ in pairs}) != len(pairs):
        raise ValueError(f"a key twice: {pairs}")
    return dict(pairs)


def completions(s):
    def post(**more):
        return s.post("/v1/completions",
                      {"prompt": "Once upon", "temperature": 0, "max_tokens": 8, **more})

    status, r = post()
    need("completion", status == 200 and r["object"] == "text_completion" and
         r["choices"][0]["logprobs"] is None, r)
    whole = r["choices"][0]["text"]
    status, ev, _ = s.stream("/v1/completions",
                             {"prompt": "Once upon", "temperature": 0, "max_tokens": 8})
    need("completion stream", "".join(e["choices"][0]["text"] for e in ev[:-1]) == whole and
         ev[-1] == "[DONE]", ev)
    need("echo", post(echo=True)[1]["choices"][0]["text"] == "Once upon" + whole)
    status, r = s.post("/v1/completions", {"prompt": ["Once upon", "The cat"], "temperature": 0,
                                           "max_tokens": 8, "n": 2})
    need("prompt list", [c["index"] for c in r["choices"]] == [0, 1, 2, 3] and
         r["choices"][0]["text"] == r["choices"][1]["text"] == whole, r)
    ids = s.post("/tokenize", {"prompt": "Once upon"})[1]["tokens"]
    need("token ids", post(prompt=ids)[1]["choices"][0]["text"] == whole)
    need("lists of ids", [c["text"] for c in post(prompt=[ids, ids])[1]["choices"]] == [whole] * 2)
    status, r = post(logprobs=2)
    lp = r["choices"][0]["logprobs"]
    need("completion logprobs",
         len(lp["tokens"]) == len(lp["token_logprobs"]) == len(lp["top_logprobs"])
         == len(lp["text_offset"]) == 8 and "".join(lp["tokens"]) == whole
         and lp["text_offset"][0] == 0, lp)
    status, r = post(prompt="Once upon", echo=True, logprobs=1, max_tokens=0)
    if status == 200:
        lp = r["choices"][0]["logprobs"]
        need("echo logprobs", lp["token_logprobs"][0] is None and len(lp["tokens"]) == len(ids) and
             all(x <= 0 for x in lp["token_logprobs"][1:])
             and r["choices"][0]["text"] == "Once upon", r)
    else:
        need("echo logprobs", r["error"]["code"] == "not_supported", r)
    many = [7 + i * 31 % 4000 for i in range(1500)]
    # hot: tokens outside of the best ones, and pieces of characters, each under a key of its own
    body = json.dumps({"prompt": "Once", "logprobs": 5,
                       "max_tokens": 60, "temperature": 2, "seed": 1, "ignore_eos": True})
    lp = json.loads(s.call("POST", "/v1/completions", body.encode())[2],
                    object_pairs_hook=one_each)["choices"][0]["logprobs"]
    need("the token is among the best",
         all(t in top and top[t] == p and len(top) in (5, 6) for t, top, p in
         zip(lp["tokens"], lp["top_logprobs"], lp["token_logprobs"]))
         and {len(t) for t in lp["top_logprobs"]} == {5, 6}, lp)
    body = json.dumps({"prompt": "\U0001f600 \u9f98",
                       "logprobs": 20, "max_tokens": 9, "temperature": 2, "seed": 1, "echo": True})
    lp = json.loads(s.call("POST", "/v1/completions", body.encode())[2],
                    object_pairs_hook=one_each)["choices"][0]["logprobs"]
    need("pieces of characters", lp["tokens"][0].startswith("bytes:\\x")
         and all(t in top for t, top in zip(lp["tokens"][1:], lp["top_logprobs"][1:])), lp)
    names = post(prompt=list(range(300)), echo=True,
                 logprobs=0, max_tokens=0)[1]["choices"][0]["logprobs"]["tokens"]
    cont, e2, x82, ac = (names.index(f"bytes:\\x{b:02x}") for b in (0x80, 0xe2, 0x82, 0xac))
    lp = post(prompt=[cont, cont, e2, x82, ac, e2, x82, cont, *ids, cont],
              echo=True, logprobs=0, max_tokens=0)[1]["choices"][0]
    need("offsets of a prompt's characters, half ones and none",
         lp["text"] == "\ufffd\ufffd\u20ac\u2080Once upon\ufffd" and
         lp["logprobs"]["text_offset"][:9] == [0, 1, 2, 2, 2, 3, 3, 3, 4]
         and lp["logprobs"]["text_offset"][-1] == 13, lp)
    lp = post(logprobs=0, logit_bias={str(cont): 100}, max_tokens=5)[1]["choices"][0]
    need("offsets after bytes that are no characters",
         lp["text"] == "\ufffd" * 5 and lp["logprobs"]["text_offset"] == list(range(5)), lp)
    lp = post(prompt=many, echo=True, logprobs=20, max_tokens=2)[1]["choices"][0]["logprobs"]
    _, ev, _ = s.stream("/v1/completions", {"prompt": many, "echo": True,
                                            "logprobs": 20, "max_tokens": 2, "temperature": 0})
    said = [t for e in ev[:-1] for t in e["choices"][0]["logprobs"]["tokens"]]
    need("a long echo, whole and as a stream", len(lp["tokens"]) == 1502
         and said == lp["tokens"] and ev[-1] == "[DONE]", (len(lp["tokens"]), len(said)))
    need("many prompts", len(post(prompt=["x"] * 40, max_tokens=2)[1]["choices"]) == 40)
    need("suffix", post(suffix="end")[0] == 400)
    need("fan-out", post(prompt=["x"] * 65, n=2)[0] == 400)
    need("best_of", post(best_of=3)[0] == 400)


def text_routes(s):
    for text in ("Hello world", "a\u20ac\U0001f600b", "", "<|im_start|>user"):
        ids = s.post("/tokenize", {"prompt": text, "add_special_tokens": False})[1]
        back = s.post("/detokenize", {"tokens": ids["tokens"]})[1]["prompt"]
        need("tokenize round trip", back == text and ids["count"] == len(ids["tokens"]),
             (text, back))
    mark = "<\uff5cUser\uff5c>"
    ids = {f"{name} {more}": s.post("/tokenize", {name: mark, **more})[1]["count"]
           for name in ("prompt", "text", "content") for more in ({}, {"parse_special": True},
                                                                  {"parse_special": False})}
    one = [k for k, n in ids.items() if n == 1]
    need("control tokens in a text", one == [k for k in ids if "True" in k or k == "content {}"],
         ids)
    msgs = {"messages": [{"role": "user", "content": "Hi"}]}
    for body in ({"prompt": "a", "content": "b"}, {"prompt": "a", "text": "b"},
                 {**msgs, "content": "b"}, {**msgs, "parse_special": False},
                 {**msgs, "add_special": True},
                 {"prompt": "a", "add_special": True, "add_special_tokens": True}):
        status, r = s.post("/tokenize", body)
        need("tokenize: one of two", status == 400 and r["error"]["param"] in body, (body, r))
    status, r = s.post("/apply-template", {"messages": [{"role": "user", "content": "Hi"}]})
    need("apply-template", status == 200 and "Hi" in r["prompt"], r)
    plain, nulls = (s.post("/apply-template",
                           chat(tools=[{"type": "function", "function": {"name": "f", **more}}]))
                    for more in ({}, {"description": None, "parameters": None, "strict": None}))
    need("null members of a function", nulls == plain and plain[0] == 200, (nulls, plain))
    status, r2 = s.post("/tokenize", {"messages": [{"role": "user", "content": "Hi"}]})
    need("tokenize messages", status == 200 and r2["count"] > 3, r2)


TOOL = [{"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]


def tools(s):
    """The demo model calls tools and thinks; what is streamed adds up to the whole."""
    ask = chat("What is the weather in Rome?", tools=TOOL, max_tokens=60)
    status, r = s.post("/v1/chat/completions", ask)
    c = r["choices"][0]
    call = (c["message"].get("tool_calls") or [{}])[0]
    need("tool call", c["finish_reason"] == "tool_calls" and c["message"]["content"] is None and
         call["type"] == "function" and call["id"].startswith("call_") and
         call["function"]["name"] == "get_weather" and
         json.loads(call["function"]["arguments"]) == {"city": "Rome"}, c)
    status, ev, _ = s.stream("/v1/chat/completions", ask)
    args, names = "", []
    for e in ev[:-1]:
        for t in e["choices"][0]["delta"].get("tool_calls", []):
            need("call index", t["index"] == 0)
            names += [t["function"]["name"]] if "name" in t["function"] else []
            args += t["function"].get("arguments", "")
    need("tool call streamed",
         names == ["get_weather"] and args == call["function"]["arguments"] and
         ev[-2]["choices"][0]["finish_reason"] == "tool_calls", ev)
    ask["messages"] += [c["message"],
                        {"role": "tool", "tool_call_id": call["id"], "content": "sunny"}]
    status, r = s.post("/v1/chat/completions", ask)
    need("tool result", status == 200 and r["choices"][0]["message"]["content"], r)
    status, r = s.post("/v1/chat/completions",
                       chat("What is the weather in Rome?", tools=TOOL, tool_choice="none"))
    need("tool_choice none", "tool_calls" not in r["choices"][0]["message"], r)
    status, r = s.post("/v1/chat/completions",
                       chat("What is 5 + 7?", max_tokens=120, reasoning_effort="high"))
    m = r["choices"][0]["message"]
    need("reasoning", m.get("reasoning_content") and m["content"]
         and "<think>" not in m["content"] and
         r["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0, r)
    status, ev, _ = s.stream("/v1/chat/completions",
                             chat("What is 5 + 7?", max_tokens=120, reasoning_effort="high"))
    for key in ("reasoning_content", "content"):
        got = "".join(e["choices"][0]["delta"].get(key) or "" for e in ev[:-1])
        need(f"{key} streamed", got == m[key], (got, m))
    status, r = s.post("/v1/chat/completions",
                       chat("What is 5 + 7?", max_tokens=120, reasoning_effort="none"))
    need("no reasoning", "reasoning_content" not in r["choices"][0]["message"], r)


def structured(s):
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 10},
                                               "age": {"type": "integer",
                                                       "minimum": 0, "maximum": 99}},
              "required": ["name", "age"], "additionalProperties": False}

    def text(**more):
        status, r = s.post("/v1/chat/completions",
                           chat("Give me a person as JSON", max_tokens=200, **more))
        return r["choices"][0]["message"]["content"] if status == 200 else r

    js = {"type": "json_schema", "json_schema": {"name": "p", "schema": schema, "strict": True}}
    for name, more in [("json_schema", {"response_format": js}),
                       ("guided_json", {"guided_json": schema}),
                       ("structured json", {"structured_outputs": {"json": json.dumps(schema)}}),
                       ("json_object with schema",
                        {"response_format": {"type": "json_object", "schema": schema}}),
                       ("json_schema as a field", {"json_schema": schema, "grammar": ""})]:
        v = json.loads(text(**more))
        need(name, set(v) == {"name", "age"} and 0 <= v["age"] <= 99 and len(v["name"]) <= 10, v)
    status, ev, _ = s.stream("/v1/chat/completions",
                             chat("A person", max_tokens=200, response_format=js, temperature=1))
    need("json_schema streamed", set(json.loads("".join(
        e["choices"][0]["delta"].get("content") or "" for e in ev[:-1]))) == {"name", "age"}, ev)
    need("json_object", isinstance(json.loads(text(response_format={"type": "json_object"})), dict))
    need("choice", text(structured_outputs={"choice": ["red", "blue"]}) in ("red", "blue"))
    need("guided_choice", text(guided_choice=["red", "blue"]) in ("red", "blue"))
    need("grammar as a field", text(grammar="root ::= \"yes\" | \"no\"") in ("yes", "no"))
    for field, value in [("guided_choice", []), ("guided_regex", "("),
                         ("grammar", "root ::= ("), ("json_schema", {"type": 5})]:
        status, r = s.post("/v1/chat/completions", chat(**{field: value}))
        need(f"{field} refused by its name", status == 400 and r["error"]["param"] == field, r)
    need("grammar",
         text(structured_outputs={"grammar": "root ::= \"yes\" | \"no\""}) in ("yes", "no"))
    need("regex", text(guided_regex="[0-9]{3}-[a-c]").replace("-", "").isalnum())
    need("text", isinstance(text(response_format={"type": "text"}), str))
    status, r = s.post("/v1/responses", {"input": "A person", "max_output_tokens": 200, "text": {
        "format": {"type": "json_schema", "name": "p", "schema": schema, "strict": True}}})
    need("responses", set(json.loads(r["output"][0]["content"][0]["text"])) == {"name", "age"}, r)
    for bad_schema in ({"type": "array", "uniqueItems": True},
                       {"$ref": "#/$defs/nothing"}, {"type": 5}, {"pattern": "("}):
        for strict in (True, False):  # not strict: refused only where it is no schema
            status, r = s.post("/v1/chat/completions", chat(max_tokens=4, response_format={
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": bad_schema, "strict": strict}}))
            if not strict and bad_schema != {"type": 5}:
                need(f"schema {bad_schema}, not strict", status == 200, r)
                continue
            need(f"schema {bad_schema}",
                 status == 400 and r["error"]["param"] == "response_format" and
                 ": :" not in r["error"]["message"], r)


def embeddings(s):
    status, r = s.post("/v1/embeddings", {"input": ["a cat", "a dog"]})
    if status == 400 and r["error"]["code"] == "not_supported":
        return
    need("embeddings", status == 200 and [d["index"] for d in r["data"]] == [0, 1], r)
    v = r["data"][0]["embedding"]
    need("unit length", abs(sum(x * x for x in v) - 1) < 1e-4)
    status, b = s.post("/v1/embeddings", {"input": "a cat", "encoding_format": "base64"})
    raw = base64.b64decode(b["data"][0]["embedding"])
    w = struct.unpack(f"<{len(raw) // 4}f", raw)
    need("base64", len(w) == len(v) and max(abs(x - y) for x, y in zip(v, w)) < 1e-6)
    for dim in (len(v) - 1, len(v) + 1, 1):
        status, r = s.post("/v1/embeddings", {"input": "a cat", "dimensions": dim})
        need(f"{dim} dimensions", status == 400 and r["error"]["param"] == "dimensions"
             and str(len(v)) in r["error"]["message"], r)
    status, r = s.post("/v1/embeddings", {"input": "a cat", "dimensions": len(v)})
    need("its own dimensions", status == 200 and r["data"][0]["embedding"] == v, r)
    status, r = s.post("/v1/embeddings", {"input": [f"text {i}" for i in range(100)]})
    need("100 inputs", status == 200 and len(r["data"]) == 100, r)


def company(s):
    """The same answers alone and in company."""
    ask = [chat(f"What is {i} + {i + 3}?", max_tokens=24, temperature=i % 2, seed=i)
           for i in range(24)]
    alone = [s.post("/v1/chat/completions", a)[1]["choices"][0]["message"]["content"] for a in ask]
    got = [None] * len(ask)

    def one(i):
        got[i] = s.post("/v1/chat/completions", ask[i])[1]["choices"][0]["message"]["content"]

    th = [threading.Thread(target=one, args=(i,)) for i in range(len(ask))]
    for t in th:
        t.start()
    for t in th:
        t.join()
    need("alone and in company", got == alone)


def counted_text(s):
    """A greedy answer, and what its drafts were."""
    r = s.post("/v1/chat/completions", chat("Count from 1 to 20.", max_tokens=60, temperature=0))[1]
    return r["choices"][0]["message"]["content"], r["timings"]


USER = [{"role": "user", "content": "What is 17 + 25?"}]
CHAT, RESP, MSG = "/v1/chat/completions", "/v1/responses", "/v1/messages"
ASKED = {CHAT: {"messages": USER, "max_tokens": 1}, "/v1/completions": {"prompt": "a"},
         RESP: {"input": "a", "max_output_tokens": 1}, MSG: {"messages": USER, "max_tokens": 1},
         MSG + "/count_tokens": {"messages": USER}, "/v1/embeddings": {"input": "a"},
         "/tokenize": {"prompt": "a"}, "/detokenize": {"tokens": [9]},
         "/apply-template": {"messages": USER}}
SAID = [{"role": "user", "content": "a", "weight": 1, "odd": [], "a\nb": 2}]
INSIDE = [  # path, what is added, the field that the error names
    (CHAT, {"stream": True, "stream_options": {"include_use": True}}, "stream_options.include_use"),
    (CHAT, {"response_format": {"type": "json_schema", "json_schema": {
        "schema": {}, "regex": "a"}}}, "response_format.json_schema.regex"),
    (CHAT, {"structured_outputs": {"regex": "a", "whitespace_pattern": " "}},
     "structured_outputs.whitespace_pattern"),
    (CHAT, {"thinking": {"type": "disabled", "keep": "all"}}, "thinking.keep"),
    (CHAT, {"reasoning": {"effort": "low", "max_tokens": 9}}, "reasoning.max_tokens"),
    (CHAT, {"prediction": {"type": "content", "content": "a", "n": 1}}, "prediction.n"),
    (CHAT, {"messages": USER + [{"role": "assistant", "content": "4", "prefix": True}]},
     "messages[1].prefix"),
    (CHAT, {"messages": [{"role": "user", "content": "a", "images": ["x"]}]},
     "messages[0].images"),
    (RESP, {"text": {"format": {"type": "json_schema", "name": "a", "schema": {},
                                "regex": "a"}}},
     "text.format.regex")]


def unknown_fields(s):
    """What no route knows is 400 by its name, or, with --unknown-fields ignore, said."""
    for path, body in ASKED.items():
        need(f"{path} plain", s.post(path, body)[0] == 200)
        for name in ("no_such_field", "stop_words", "input_ids"):
            status, r = s.post(path, dict(body, **{name: "x"}))
            e = r["error"]
            need(f"{path}: {name}", status == 400 and e["message"].startswith(name + ": ")
                 and e.get("param", name) == name, r)
            need(f"{path}: {name} null", s.post(path, dict(body, **{name: None}))[0] == 200)
    for path, more, field in INSIDE:
        status, r = s.post(path, dict(ASKED[path], **more))
        need(f"{field} is refused", status == 400 and r["error"]["param"] == field, r)
    head = s.call("POST", CHAT, {"messages": SAID, "max_tokens": 1})[1]
    need("members of messages are said",
         head.get("x-sluice-ignored") == "messages.weight, messages.a?b", head)


def told_fields():
    with Server("--unknown-fields", "ignore") as s:
        for path, body in ASKED.items():
            body = dict(body, no_such=1, c=None, **{"a\r\nb": 2})
            status, head, _ = s.call("POST", path, body)
            need(f"{path}: said", status == 200
                 and head.get("x-sluice-ignored") == "no_such, a??b", (status, head))
        need("a list is refused all the same",
             s.post(CHAT, dict(ASKED[CHAT], stop_words=["x"]))[0] == 400)
        long = {f"unknown_field_number_{i}": 1 for i in range(200)}
        head = s.call("POST", CHAT, dict(ASKED[CHAT], **long))[1]
        need("many are cut", len(head["x-sluice-ignored"]) == 1000, head)


def small_model(want):
    """The same answer with a small model, whose files the sandbox allows; here the model itself."""
    with tempfile.TemporaryDirectory() as d:
        small = shutil.copy(DEMO, os.path.join(d, "small.gguf"))
        with Server("--draft-model", small, "--draft", "model") as s:
            got, timings = counted_text(s)
            need("small model: answer", got == want, got)
            need("small model: timings", timings["draft_n"] > 0, timings)
            text = s.get("/metrics")[2].decode()
            n = re.search(r"^vllm:spec_decode_num_draft_tokens_total\{.*\} (\d+)", text, re.M)
            need("small model: metrics", n and int(n[1]) > 0, n)
            k = [int(x) for x in re.findall(r"^sluice:draft_k\{.*\} (\d+)$", text, re.M)]
            rows = re.search(r"^vllm:spec_decode_num_drafts_total\{.*\} (\d+)", text, re.M)
            need("steps by number of drafts", len(k) == 8 and k[0] > 0
                 and sum(k[1:]) == int(rows[1]) and
                 sum(i * x for i, x in enumerate(k)) == int(n[1]), (k, rows, n))


with Server("--draft", "auto") as server:
    for part in (get_routes, counted, aborted, forbidden, chat_shapes,
                 chat_fields, unknown_fields, completions, text_routes, tools, structured,
                 embeddings, company):
        part(server)
    answer = counted_text(server)[0]
    need("exit code", server.stop() == 0)
small_model(answer)
told_fields()
T.exit()
