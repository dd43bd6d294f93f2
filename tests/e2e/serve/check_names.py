# SPDX-License-Identifier: Apache-2.0
"""Names by which things are asked for: models, paths, hosts, keys, metrics, fields of other
servers; and sampling where a request says nothing."""
import json
import os
import re
import subprocess
import tempfile

from serve import Server, chat, error_of, key_line
import e2e

T = e2e.Tally("serve: names")
CHAT, TEXT, RESP, EMBED = ("/v1/chat/completions",
                           "/v1/completions", "/v1/responses", "/v1/embeddings")
ONE = {CHAT: chat("Hi", max_tokens=2), TEXT: {"prompt": "a", "max_tokens": 2},
       RESP: {"input": "a", "max_output_tokens": 2}, EMBED: {"input": "a"}}
# what vLLM's dashboards of 2026 read (examples/observability there)
DASHBOARD = ("e2e_request_latency_seconds_bucket", "prompt_tokens_total", "generation_tokens_total",
             "inter_token_latency_seconds_bucket", "num_requests_running",
             "num_requests_waiting", "kv_cache_usage_perc",
             "time_to_first_token_seconds_bucket", "request_time_per_output_token_seconds_bucket",
             "request_success_total", "request_queue_time_seconds_sum",
             "request_prefill_time_seconds_sum", "request_decode_time_seconds_sum",
             "request_inference_time_seconds_bucket", "request_prompt_tokens_bucket",
             "request_generation_tokens_bucket", "request_max_num_generation_tokens_bucket",
             "request_params_n_bucket", "request_params_max_tokens_bucket",
             "num_preemptions_total", "prefix_cache_queries_total", "prefix_cache_hits_total",
             "time_per_output_token_seconds_bucket")


def need(name, cond, what=""):
    T.check(name, None if cond else (what or "not so"))


def aliases(s):
    names = ["one", "two", "gpt-4o-mini", "org/name"]
    got = [m["id"] for m in json.loads(s.get("/v1/models")[2])["data"]]
    need("listed, each once", got == names, got)
    for n in names:
        need(f"model {n}", json.loads(s.get(f"/v1/models/{n}")[2])["id"] == n)
        for path, body in ONE.items():
            status, r = s.post(path, {**body, "model": n})
            need(f"{path} {n}", status == 200 and r["model"] == n, (status, r))
        ev = s.stream(CHAT, {**ONE[CHAT], "model": n})[1]
        need(f"stream {n}", ev[0]["model"] == n, ev[0])
    speaks = {"anthropic-version": "2023-06-01"}
    r = json.loads(s.get("/v1/models", speaks)[2])
    need("listed in Anthropic's form", [m["id"] for m in r["data"]] == names
         and (r["first_id"], r["last_id"]) == (names[0], names[-1]), r)
    for n in names:
        need(f"Anthropic's model {n}", json.loads(s.get(f"/v1/models/{n}", speaks)[2])["id"] == n)
        body = {"model": n, "messages": ONE[CHAT]["messages"], "max_tokens": 2}
        need(f"messages {n}", s.post("/v1/messages", body)[1]["model"] == n)
        ev = s.stream("/v1/messages", body)[1]
        need(f"messages stream {n}", ev[0]["message"]["model"] == n, ev[0])
    need("the first where none is said", s.post(CHAT, ONE[CHAT])[1]["model"] == "one")
    need("the first in metrics", 'model_name="one"' in s.get("/metrics")[2].decode())
    status, data = s.post(CHAT, {**ONE[CHAT], "model": "one,two"})[:2]
    need("another", status == 404 and data["error"]["message"] ==
         'model: the model "one,two" does not exist: this server has ' +
         ", ".join(f'"{n}"' for n in names), (status, data))


def paths(s):
    for path, body in ONE.items():
        for p in (path[3:], path + "/", path[3:] + "/"):
            need(f"POST {p}", s.post(p, body)[0] == 200)
    for p in ("/models", "/v1/models/", "/models/" + "sluice%20demo", "/v1/health", "/healthz",
              "/ping", "/livez", "/readyz", "/health/", "/v1/version", "/version", "/v1/metrics"):
        need(f"GET {p}", s.get(p)[0] == 200, s.get(p))
    need("version", json.loads(s.get("/version")[2])["version"].count(".") >= 2)
    need("tokenize", s.post("/v1/tokenize", {"prompt": "a"})[0] == 200)
    for p in ("/v1/models%00", "/v1/models/sluice%20demo%00", "/v1/models%0A", "/health%00x",
              "/v1/models/sluice%7fdemo", "/%00", "/v1/models?x=%00", "/%1f"):
        status, _, data = s.get(p)
        need(f"control characters {p}", status == 400 and not error_of(data), (status, data))
    for p in ("/v1/models/%ff", "/v1/models/%c3%28"):
        status, _, data = s.get(p)
        need(f"no text {p}", status == 404 and not error_of(data.decode()), (status, data))
    for p in ("/v2/models", "/app.js/", "/v1/app.js", "/nothing", "/v1"):
        status, _, data = s.get(p)
        need(f"no path {p}", status == 404 and "/v1/" in json.loads(data)["error"]["message"],
             (status, data))
    text = s.get("/metrics")[2].decode()
    for n in DASHBOARD:
        need(f"metric {n}", f"\nvllm:{n}{{" in text)
    need("metric http", re.search(r'\nhttp_requests_total\{.*status="2xx"\} [1-9]', text))


def hosts(path):
    with Server("--api-key-file", path) as s:
        bearer = {"Authorization": "Bearer sk-names"}
        for host in ("sluice:8080", "a.example", "x.svc.cluster.local"):
            for p in ("/health", "/ready", "/ping", "/healthz"):
                need(f"{p} {host}", s.get(p, {"Host": host})[0] == 200)
            for key in (bearer, {"x-api-key": "sk-names"}, {"api-key": "sk-names"}):
                need(f"a key and {host}", s.get("/v1/models", {"Host": host, **key})[0] == 200)
                need(f"a key, a page and {host}", s.get(
                    "/v1/models", {"Host": host, "Origin": "http://" + host, **key})[0] == 403)
            need(f"no key and {host}", s.get("/v1/models", {"Host": host})[0] in (401, 403))
            need(f"a wrong key and {host}", s.get(
                "/v1/models", {"Host": host, "Authorization": "Bearer sk-other"})[0] in (401, 403))
    with Server("--allow-host", "sluice") as s:
        need("no keys: a name that is known",
             s.get("/v1/models", {"Host": "sluice:8080"})[0] == 200)
        need("no keys: another", s.get("/v1/models", {"Host": "other"})[0] == 403
             and s.get("/metrics", {"Host": "other"})[0] == 403)
        need("no keys: health", s.get("/health", {"Host": "other"})[0] == 200)


NEUTRAL = {"use_beam_search": False, "length_penalty": 1.0, "bad_words": [], "prompt_logprobs":
               None, "typical_p": 1, "tfs_z": 1.0, "mirostat": 0, "mirostat_tau": 5.0,
           "xtc_probability": 0, "xtc_threshold": 0.1, "dry_multiplier": 0.0, "dry_base": 1.75,
           "dynatemp_range": 0, "top_n_sigma": -1, "cache_prompt": True, "id_slot": -1,
           "repeat_last_n": 64, "include_reasoning": True, "vllm_xargs": {}, "n_probs": 0,
           "min_keep": 0, "samplers": [], "echo": False, "spaces_between_special_tokens": True,
           "truncate_prompt_tokens": None, "n_keep": 0,
           "lora": [], "include_stop_str_in_output": False, "some_unknown_field": None}
REFUSED = {"use_beam_search": True, "length_penalty": 0.5, "bad_words": ["x"], "allowed_token_ids":
               [5], "prompt_logprobs": 1, "typical_p": 0.5, "mirostat": 2, "xtc_probability": 0.5,
           "dry_multiplier": 0.8, "dynatemp_range": 1, "top_n_sigma": 1,
           "include_stop_str_in_output": True, "truncate_prompt_tokens": 5,
           "max_new_tokens": 5, "logits_processors": ["x"],
           "samplers": ["top_k"], "include_reasoning": False, "thinking_token_budget": 5,
           "vllm_xargs": {"a": 1}, "lora": [{"id": 0}],
           "options": {"num_ctx": 5}, "do_sample": False,
           "return_tokens_as_token_ids": True, "stop_regex": "a",
           "no_repeat_ngram_size": 3, "random_seed": 1}
ELSEWHERE = {CHAT: {"prompt": "a", "max_output_tokens": 5,
                    "best_of": 2, "functions": [{"name": "f"}], "echo": True, "chat_template": "x"},
             TEXT: {"suffix": "x", "max_completion_tokens": 5,
                    "tools": [{"type": "function"}], "messages": [{}], "best_of": 3},
             RESP: {"n": 2, "max_tokens": 5, "response_format": {"type": "json_object"},
                    "messages": [{}], "logprobs": True, "guided_json": {}},
             EMBED: {"truncate_prompt_tokens": 5, "normalize": False, "dimensions": 3}}


def fields(s):
    for path in (CHAT, TEXT, RESP):
        status, r = s.post(path, {**ONE[path], **NEUTRAL})
        need(f"{path}: neutral values", status == 200, r)
        for k, v in REFUSED.items():
            status, r = s.post(path, {**ONE[path], k: v})
            need(f"{path}: {k} is refused by name",
                 status == 400 and r["error"]["param"] == k, (status, r))
    for path, rows in ELSEWHERE.items():
        for k, v in rows.items():
            status, r = s.post(path, {**ONE[path], k: v})
            need(f"{path}: {k} is refused", status == 400 and r["error"]["param"] == k, (status, r))
    a, b = (s.post(TEXT, {"prompt": "The server", "max_tokens": 12, "temperature": 0, k: 1.5})[
        1]["choices"][0]["text"] for k in ("repeat_penalty", "repetition_penalty"))
    need("repeat_penalty", a == b)
    need("repeat_last_n",
         s.post(TEXT, {**ONE[TEXT], "repeat_penalty": 1.1, "repeat_last_n": 64})[0] == 400)
    for path, name in ((CHAT, "max_tokens"), (CHAT, "max_completion_tokens"),
                       (TEXT, "max_tokens"), (TEXT, "n_predict"), (RESP, "max_output_tokens")):
        body = {k: v for k, v in ONE[path].items() if not k.startswith("max_")}
        for v, want in ((-1, 200), (3, 200), (0, 400), (-2, 400), (1.5, 400), ("3", 400)):
            status, r = s.post(path, {**body, "temperature": 0, "stop_token_ids":
                                          list(range(4096)[-60:]), "timeout_ms": 20000, name: v})
            need(f"{path} {name} {v}", status == want and (want == 200 or r[
                "error"]["param"] == name and "-1" in r["error"]["message"] + "-1"), (status, r))
    for path in (CHAT, TEXT, RESP):
        texts = []
        for seed in (2**64 - 1, 2**64 - 1, 2**64 - 2, -2**63, 2**63):
            status, r = s.post(path, {**ONE[path], "seed": seed, "temperature": 2, "logit_bias": {
                "1": -100}, ("max_output_tokens" if path == RESP else "max_tokens"): 12})
            need(f"{path} seed {seed}", status == 200, r)
            texts.append(json.dumps(r.get("choices") or [o["content"] for o in r["output"]]))
        need(f"{path}: seeds tell", texts[0] == texts[1] and len(set(texts)) > 1, texts)
        for seed in (2**64, -2**63 - 1, 1.5, "1"):
            status, r = s.post(path, {**ONE[path], "seed": seed})
            need(f"{path} seed {seed}", status == 400 and r["error"]["param"] == "seed", r)
    for path in (RESP, CHAT):
        whole = s.post(path, {**ONE[path], "temperature": 0,
                              "max_output_tokens" if path == RESP else "max_tokens": 30})[1]
        need(f"{path}: stop",
             json.dumps(s.post(path, {**ONE[path], "temperature": 0, "stop": ["e"],
                                      "max_output_tokens" if path == RESP else "max_tokens": 30})[
                                          1]) != json.dumps(whole))


def bodies(s):
    status, r = s.post(CHAT, json.dumps(ONE[CHAT]).encode(), {"Content-Encoding": "gzip"})
    need("gzip", status == 415 and "Content-Encoding" in r["error"]["message"], (status, r))
    need("identity", s.post(CHAT, json.dumps(ONE[CHAT]).encode(),
                            {"Content-Encoding": "identity"})[0] == 200)
    need("BOM", s.post(CHAT, b"\xef\xbb\xbf" + json.dumps(ONE[CHAT]).encode())[0] == 200)
    need("Keep-Alive", s.get("/health")[1].get("keep-alive") == "timeout=75")
    n = json.loads(s.get("/v1/models")[2])["data"][0]["max_model_len"]
    for path, body in ((CHAT, chat("word " * (n + 500), max_tokens=77)),
                       (TEXT, {"prompt": "word " * (n + 500), "max_tokens": 77}),
                       (TEXT, {"prompt": [5] * (n + 9), "max_tokens": 77})):
        status, r = s.post(path, body)
        count = re.search(r"of (\d+) tokens.* 77 .*length is %d " % n, r["error"]["message"])
        need(f"{path}: too long, in numbers", status == 400
             and r["error"]["code"] == "context_length_exceeded" and count and int(count[1]) > n, r)


def sampling(where):
    m = os.path.join(where, "m")
    subprocess.run([e2e.sluice(), "quantize", "demo", m, "--weights", "bf16", "-q"],
                   check=True, capture_output=True)
    file = os.path.join(m, "generation_config.json")
    base = {}
    if os.path.exists(file):
        with open(file, encoding="utf-8") as f:
            base = json.load(f)
    greedy = {"temperature": 0.01, "top_k": 1}
    for more, args, want in ((greedy, [], True), (greedy, ["--temp", "1.5", "--top-k", "0"], False),
                             (greedy, ["--generation-config", "off"], False),
                             ({}, ["--temp", "0"], True),
                             ({"temperature": "x", "top_k": None, "top_p": 7}, [], False),
                             ({"no_repeat_ngram_size": 3}, ["--generation-config", "off"], False),
                             ({"do_sample": False}, [], True)):
        with open(file, "w", encoding="utf-8") as f:
            json.dump({**base, "do_sample": True, **more}, f)
        with Server("-m", m, *args) as s:
            body = {"prompt": "The server", "max_tokens": 12}
            greedy_text = s.post(TEXT, {**body, "temperature": 0})[1]["choices"][0]["text"]
            got = {s.post(TEXT, body)[1]["choices"][0]["text"] for _ in range(4)}
            need(f"{more} {args}", (got == {greedy_text}) == want, got)
            need(f"{more} {args}: stronger",
                 len({s.post(TEXT, {**body, "temperature": 1.5,
                                    "top_k": 0})[1]["choices"][0]["text"] for _ in range(4)}) > 1)
            told = json.loads(s.get("/v1/models")[2])["data"][0]["meta"]["sampling"]
            need(f"{more} {args}: told",
                 told["top_k"] == (0 if args else more.get("top_k") or 0), told)
            log = b"".join(s.log).decode()
            need(f"{more} {args}: said", ("sampled with" in log)
                 == ("off" not in args if args else more in (greedy, {"do_sample": False})), log)
            if "top_p" in more:
                need("what can not be used is named", "temperature" in log and "top_p" in log, log)
    with open(file, "w", encoding="utf-8") as f:
        json.dump({**base, "no_repeat_ngram_size": 3}, f)
    # and before the engine is opened, which reads the weights, and knows no such device
    for more in [], ["--device", "nothing"]:
        r = subprocess.run([e2e.sluice(), "serve", "-m", m, "--port", "0", *more],
                           capture_output=True, text=True, timeout=120)
        need(f"what is not done here is refused {more}", r.returncode == 1
             and "no_repeat_ngram_size is 3" in r.stderr
             and "--generation-config off" in r.stderr, r.stderr)


def seeded():
    """--seed is that of requests that give none."""
    body = {"prompt": "The server", "max_tokens": 12, "temperature": 1.5}
    with Server("--seed", "7") as s:
        def text(**more):
            return s.post(TEXT, {**body, **more})[1]["choices"][0]["text"]
        got = {text() for _ in range(4)} | {text(seed=7)}
        need("--seed 7", len(got) == 1, got)
        need("--seed 7, and other seeds", len({text(seed=i) for i in range(4)}) > 1)


def placed():
    """Parts on two devices: the answers of one, and metrics that say what lies where."""
    told, answer = [], []
    for more in ([], ["--place", "head=check; dense=check"]):
        with Server("--device", "cpu", *more) as s:
            answer.append(s.post(TEXT, {"prompt": "The server", "max_tokens": 12,
                                        "temperature": 0})[1]["choices"][0]["text"])
            told.append({(d, u): float(n) for d, u, n in
                         re.findall(r'device_bytes\{.*device="(\w+)",use="(\w+)"\} (\S+)\n',
                                    s.get("/metrics")[2].decode())})
    one, two = told
    need("the same answer", len(answer[0]) > 5 and answer[0] == answer[1], answer)
    need("one device", set(one) == {("cpu", "weights"), ("cpu", "kv")}
         and one["cpu", "kv"] > 0, one)
    need("two devices", two["check", "weights"] > 0 and two["check", "kv"] == 0
         and 0 < two["cpu", "weights"] < one["cpu", "weights"]
         and two["cpu", "kv"] == one["cpu", "kv"], (one, two))


with Server("--alias", "one,two", "--alias", "gpt-4o-mini",
            "--alias", "two", "--served-model-name", "org/name") as s:
    aliases(s)
with Server() as s:
    paths(s)
    fields(s)
    bodies(s)
with tempfile.TemporaryDirectory() as d:
    keys = os.path.join(d, "keys")
    with open(os.open(keys, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
        f.write(key_line("anna", "sk-names"))
    hosts(keys)
    sampling(d)
seeded()
placed()
T.exit()
