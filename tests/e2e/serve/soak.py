# SPDX-License-Identifier: Apache-2.0
"""Mixed traffic for a long time: memory, descriptors, threads and KV blocks stay where they are
(row K13).

soak.py BUILD [--minutes 30] [--load 0.2] [--out FILE.csv] [--kv-tokens N]: --load is the share of
one core that the server may take; the traffic is paced to it. Ends with 0 when nothing grew. A line
a minute goes to stdout. From 20 minutes on memory is judged too; what is bounded by design (the
caches of grammars, 32 MiB, and of stored responses, 256 KiB; the KV pool) is filled to its bound
first, for until then it has to grow."""
import argparse
import csv
import json
import os
import random
import socket
import struct
import sys
import time

ap = argparse.ArgumentParser()
ap.add_argument("build")
ap.add_argument("--minutes", type=float, default=30)
ap.add_argument("--load", type=float, default=0.2)
ap.add_argument("--out")
ap.add_argument("--kv-tokens", default="6000")
opt = ap.parse_args()

import serve  # noqa: E402
from serve import Server, chat  # noqa: E402
import e2e  # noqa: E402

serve.TIMEOUT = 900  # the machine may be held up
T = e2e.Tally("serve: soak")
CHAT, TEXT, EMBED, RESP = ("/v1/chat/completions",
                           "/v1/completions", "/v1/embeddings", "/v1/responses")
TOOL = {"type": "function", "function": {"name": "f", "strict": True, "parameters": {
    "type": "object", "properties": {"a": {"type": "integer"}},
    "required": ["a"], "additionalProperties": False}}}


def schema_of(name):
    schema = {"type": "object", "properties": {name: {"type": "string", "maxLength": 5}},
              "required": [name]}
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


def fill(s):
    """Until the caches of grammars and of stored responses hold no more, and the KV pool was used
    to its end."""
    for k in range(300):
        s.post(RESP, {"input": f"{k} " + "x " * 200, "max_output_tokens": 12})
    seen, i = -1, 0
    while i < 2000 and s.metric("sluice:grammar_cache_entries") > seen:
        seen = s.metric("sluice:grammar_cache_entries")
        for _ in range(8):
            s.post(CHAT, chat("?", max_tokens=40, response_format=schema_of(f"fill{i}")))
            i += 1
    for k in range(4):
        socks = [s.open(dict(chat(f"{k} {j}"), max_tokens=900, ignore_eos=True)) for j in range(8)]
        for c in socks:
            c.settimeout(serve.TIMEOUT)
            c.recv(65536)
            c.close()
    print(f"filled: {i} schemas, {seen:.0f} kept, "
          f"{s.metric('sluice:grammar_cache_bytes') / 1048576:.1f} MiB", flush=True)


def one(s, rng, i):
    """One piece of traffic; the status, or 0 for a client that left."""
    kind = rng.randrange(12)
    text = f"{'x ' * rng.randrange(200)} What is {i} + {rng.randrange(50)}?"
    if kind == 0:
        return s.stream(CHAT, chat(text, temperature=1, n=rng.randint(1, 3)))[0]
    if kind == 1:
        return s.post(CHAT, chat(text, tools=[TOOL], tool_choice="required", max_tokens=60))[0]
    if kind == 2:
        return s.post(CHAT, chat(text, max_tokens=40, response_format=schema_of(f"k{i}")))[0]
    if kind == 3:
        return s.post(TEXT,
                      {"prompt": [text, "Once"], "max_tokens": 8, "logprobs": 3, "echo": True})[0]
    if kind == 4:
        return s.post(EMBED, {"input": [text, "b"]})[0]
    if kind == 5:
        return s.post(RESP, {"input": text, "max_output_tokens": 12, "store": i % 2 == 0})[0]
    if kind == 6:  # a client that leaves
        c = s.open(dict(chat(text), max_tokens=400, ignore_eos=True, stream=bool(i % 2)))
        time.sleep(rng.random() * 0.05)
        if i % 3 == 0:
            c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        c.close()
        return 0
    if kind == 7:
        return s.call("POST", CHAT, b"{\"messages\": [" + b"1," * rng.randrange(50))[0]
    if kind == 8:
        return s.post(CHAT, chat(text, timeout_ms=1, max_tokens=300, ignore_eos=True))[0]
    if kind == 9:
        return s.get(rng.choice(["/metrics", "/v1/models", "/", "/health", "/nothing"]))[0]
    if kind == 10:  # long enough that KV blocks run short
        socks = [s.open(dict(chat(text), max_tokens=300, ignore_eos=True)) for _ in range(6)]
        for c in socks:
            c.settimeout(serve.TIMEOUT)
            c.recv(65536)
            c.close()
        return 0
    return s.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
                 timeout=2)[:1] and 0


def figures(s):
    with open(f"/proc/{s.proc.pid}/status") as f:
        st = {ln.split(":")[0]: ln.split()[1] for ln in f if len(ln.split()) > 1}
    with open(f"/proc/{s.proc.pid}/stat") as f:
        stat = f.read().rsplit(")", 1)[1].split()
    s.idle(10)
    text = {}
    for ln in s.get("/metrics")[2].decode().split("\n"):
        if ln and not ln.startswith("#"):
            text.setdefault(ln.split("{")[0], float(ln.rsplit(" ", 1)[1]))
    return {"rss_kib": int(st["VmRSS"]), "peak_kib": int(st["VmHWM"]),
            "threads": int(st["Threads"]),
            "fds": len(os.listdir(f"/proc/{s.proc.pid}/fd")),
            "cpu_s": (int(stat[11]) + int(stat[12])) / 100,
            "kv_used": text["vllm:kv_cache_usage_perc"],
            "kv_cached_tok": text["sluice:kv_cached_tokens"],
            "running": text["vllm:num_requests_running"],
            "waiting": text["vllm:num_requests_waiting"],
            "preempted": text["vllm:num_preemptions_total"],
            "tokens": text["vllm:generation_tokens_total"],
            "nan": text["sluice:nan_total"],
            "grammar_kib": text["sluice:grammar_cache_bytes"] / 1024}


def slope(rows):
    """KiB an hour in the second half: the middle one of the slopes between all pairs of minutes,
    which single peaks do not move. A minute counts with its least RSS: once a minute the server
    gives free pages back, and a look at one moment of each minute drifts through that."""
    half = rows[len(rows) // 2:]
    all_ = sorted(60 * (b["rss_kib"] - a["rss_kib"]) / (b["minute"] - a["minute"]) for i,
                  a in enumerate(half) for b in half[i + 1:])
    return all_[len(all_) // 2] if all_ else 0


with Server("--kv-tokens", opt.kv_tokens, "--max-batch", "8", "--max-queue", "32", "--db",
            os.path.join(e2e.ROOT, opt.build, "soak.db")) as server:
    rng, rows, codes, i = random.Random(1), [], {}, 0
    if opt.minutes >= 5:
        fill(server)
    t0 = last = time.time()
    cpu0, least = None, 1 << 40
    while time.time() - t0 < opt.minutes * 60 or len(rows) < 4:
        code = one(server, rng, i)
        i += 1
        codes[code] = codes.get(code, 0) + 1
        if cpu0 is None:
            cpu0, t0 = figures(server)["cpu_s"], time.time()
        with open(f"/proc/{server.proc.pid}/stat") as f:
            stat = f.read().rsplit(")", 1)[1].split()
        used = (int(stat[11]) + int(stat[12])) / 100 - cpu0
        time.sleep(max(0, min(5, used / opt.load - (time.time() - t0))))
        least = min(least, serve.rss(server))
        if time.time() - last >= min(60, opt.minutes * 6):
            last = time.time()
            rows.append({"minute": round((last - t0) / 60, 2),
                         "requests": i, **figures(server), "rss_kib": least})
            print(json.dumps(rows[-1]), flush=True)
            least = 1 << 40
    server.idle(20)
    end = figures(server)
    per_hour = slope(rows)
    print(f"{i} requests, by status {codes}; RSS {rows[0]['rss_kib']} -> {end['rss_kib']} KiB, "
          f"second half {per_hour:.0f} KiB an hour")
    T.check("no 5xx but time limits", None if not set(codes) & {500, 501, 502, 503} else f"{codes}")
    T.check("nothing runs", None if end["running"] == end["waiting"] == 0 else f"{end}")
    T.check("no KV block is lost", None if end["kv_used"] == 0 else f"{end['kv_used']}")
    T.check("no NaN", None if end["nan"] == 0 else f"{end['nan']}")
    T.check("descriptors", None if end["fds"] <= rows[0]["fds"] + 4
            else f"{rows[0]['fds']} -> {end['fds']}")
    T.check("threads", None if end["threads"] == rows[0]["threads"]
            else f"{rows[0]['threads']} -> {end['threads']}")
    if opt.minutes >= 20:
        T.check("memory is flat", None if per_hour <= 1024 else f"{per_hour:.0f} KiB an hour")
    if opt.out:
        with open(opt.out, "w", newline="") as f:
            w = csv.DictWriter(f, rows[0].keys())
            w.writeheader()
            w.writerows(rows)
    T.check("exit", None if server.stop() == 0 else "not 0")
for more in ("", "-wal", "-shm"):
    try:
        os.unlink(os.path.join(e2e.ROOT, opt.build, "soak.db" + more))
    except OSError:
        pass
sys.exit(T.exit())
