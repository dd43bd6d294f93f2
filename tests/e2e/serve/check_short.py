# SPDX-License-Identifier: Apache-2.0
"""Memory that is short at any moment (S1, K5): allocations of a running server fail at random.
Whoever gets an answer gets the one that others got before; the rest is 429, a stream that ends with
an error event, or, where not even the head of a request could be held, a connection that closes
without a byte.

check_short.py BUILD [--full]: --full runs ten times as long. Needs the library of
check_faults.py."""
import errno
import http.client
import json
import os
import random
import signal
import sys
import threading
import time

from serve import Server, chat, error_of
import e2e

FULL = "--full" in sys.argv
T = e2e.Tally("serve: short of memory")
CHAT, TEXT, RESP, EMBED = ("/v1/chat/completions",
                           "/v1/completions", "/v1/responses", "/v1/embeddings")
TOOLS = [{"type": "function", "function": {
    "name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}},
                                                                          "required": ["a"],
                                  "additionalProperties": False}}}]
ASK = [  # (path, body)
    (CHAT, chat()), (CHAT, chat("Tell me more", n=2, logprobs=True, top_logprobs=5,
                                temperature=1, seed=3)), (CHAT, chat("word " * 300)),
    (CHAT, chat("Add", tools=TOOLS, tool_choice="required", max_tokens=60, temperature=1, seed=5)),
    (CHAT, chat("A number", response_format={"type": "json_object"},
                temperature=1, seed=6, max_tokens=40)),
    (TEXT, {"prompt": ["Once", "Twice"], "max_tokens": 20, "temperature": 0, "logprobs": 3}),
    (TEXT, {"prompt": "Once", "max_tokens": 3, "temperature": 0, "logprobs": 2, "echo": True}),
    (RESP, {"input": "Say it", "max_output_tokens": 30, "temperature": 0, "store": False}),
    (RESP, {"input": "Add", "tools": [dict(TOOLS[0]["function"], type="function")],
            "tool_choice": "required", "max_output_tokens": 60, "temperature": 0}),
    (EMBED, {"input": ["a", "b c"]}), (EMBED, {"input": "a", "encoding_format": "base64"}),
    ("/tokenize", {"prompt": "a b c " * 50}),
    ("/apply-template", chat()), ("/detokenize", {"tokens": [5, 6, 7]})]
STREAMED = [(p, dict(b, stream=True)) for p, b in ASK if p in (CHAT, TEXT, RESP)]
# from answer to answer, or by what was cached
CHANGES = {"id", "created", "created_at", "timings",
           "item_id", "call_id", "system_fingerprint", "usage"}


def plain(v):
    if isinstance(v, dict):
        return {k: plain(x) for k, x in v.items() if k not in CHANGES}
    return [plain(x) for x in v] if isinstance(v, list) else v


def content(body, data):
    """What two answers to one request have in common, and whether it ends in an error."""
    if not body.get("stream"):
        return plain(json.loads(data)), False
    got = [json.loads(ln[6:]) for ln in data.decode().split("\n") if ln.startswith("data: {")]
    text, end, bad = {}, [], False
    for e in got:
        bad |= bool(e.get("error")) or e.get("type") == "response.failed"
        end += [e["type"]] if e.get("type") in ("response.completed", "response.incomplete") else []
        if "delta" in e:
            key = (e["type"], e["output_index"])
            text[key] = text.get(key, "") + e["delta"]
        for c in e.get("choices", []):
            d = c.get("delta", c)
            for key, s in (("content", d.get("content")),
                           ("reason", d.get("reasoning_content")), ("text", c.get("text"))):
                text[c["index"], key] = text.get((c["index"], key), "") + (s or "")
            for t in d.get("tool_calls", []):
                text[c["index"], t["index"]] = text.get((c["index"], t["index"]), "") + t[
                    "function"].get("name", "") + t["function"]["arguments"]
            lp = c.get("logprobs") or {}
            text[c["index"], "n"] = text.get((c["index"], "n"),
                                             0) + len(lp.get("content") or lp.get("tokens") or [])
            end += [(c["index"], c["finish_reason"])] if c["finish_reason"] else []
    bad |= body.get("stream") and not data.endswith(
        b"data: [DONE]\n\n") and "input" not in body and not bad and "cut" or False
    return (text, sorted(map(str, end))), bad


def one(s, path, body, want):
    """The kind of what came; an unexpected one begins with a capital."""
    try:
        status, head, data = s.call("POST", path, body)
    # RemoteDisconnected is one of them
    except (ConnectionResetError, BrokenPipeError, http.client.BadStatusLine):
        return "closed"
    except (OSError, http.client.HTTPException, ValueError) as e:
        return f"Broken: {type(e).__name__} {str(e)[:80]}"
    if status == 200:
        try:
            got, bad = content(body, data)
        except (ValueError, KeyError, TypeError) as e:
            return f"Malformed: {e!r} {data[-200:]}"
        if bad == "cut":
            return f"Cut: {data[-100:]}"
        if bad:
            return "error event" if b"there is no memory" in data else f"Error event: {data[-300:]}"
        return "good" if got == want else f"Other: {got} {want}"
    if error_of(data):
        return f"Error body: {status} {data[:100]}"
    if status == 429:
        return "429" if 1 <= int(head.get("retry-after", 0)) <= 60 else f"Retry-After: {head}"
    return f"Status {status}: {data[:200]}"


def main():
    lib = os.path.join(e2e.build_dir(), "tests", "e2e", "libfault_preload.so")
    if not os.path.isfile(lib):
        print("no fault_preload in this build: skipped")
        sys.exit(77)
    n = 2000 if FULL else 200
    for every in (3000, 300, 40):
        env = {"LD_PRELOAD": lib, "FAULT_KIND": "alloc",
               "FAULT_EVERY": str(every), "FAULT_HOW": str(errno.ENOMEM)}
        with Server("--max-queue", "64", env=env) as s:
            todo = ASK + STREAMED
            want = [content(b, s.call("POST", p, b)[2])[0] for p, b in todo]
            seen, lock = {}, threading.Lock()

            def client(k):
                rng = random.Random(k)
                for _ in range(n // 4):
                    i = rng.randrange(len(todo))
                    kind = one(s, *todo[i], want[i])
                    with lock:
                        seen[kind] = seen.get(kind, 0) + 1
            s.proc.send_signal(signal.SIGUSR2)
            th = [threading.Thread(target=client, args=(k,)) for k in range(4)]
            for t in th:
                t.start()
            for t in th:
                t.join()
            s.proc.send_signal(signal.SIGUSR2)
            time.sleep(0.3)  # until one of its threads has taken it
            print(f"one allocation of {every} fails: "
                  f"{dict(sorted(seen.items(), key=lambda x: -x[1]))}"[:2000])
            for kind, count in seen.items():
                T.check(f"{every}: {count} x {kind}",
                        "not one of those that may be" if kind[0].isupper() else None)
            T.check(f"{every}: some good, some not",
                    None if seen.get("good", 0) > n / 10 and len(seen) > 1 else seen)
            T.check(f"{every}: few closed without a word",
                    None if seen.get("closed", 0) <= max(2, n / 20) * (300 / every + 1) else seen)
            T.check(f"{every}: idle again", None if s.idle() is not None
                    and s.metric("vllm:kv_cache_usage_perc") == 0 else "not")
            again = [one(s, p, b, w) for (p, b), w in zip(todo, want)]
            T.check(f"{every}: as before", None if set(again) == {"good"} else again)
            T.check(f"{every}: exit", None if s.stop() == 0 else "not 0")
    T.exit()


main()
