# SPDX-License-Identifier: Apache-2.0
"""Rows of the reliability table about load, time and leaving: split requests (H3), 1 000 slow
senders (H5), stopped readers (H6), no descriptors left (H7), leaving at any moment (H8, H9), a
killed server (H16), overload (K3), time limits (K4), KV blocks that run short (K5, K6), salts (K7),
reload and drain under load (K11, K12), a stopped engine (K14), what is worth repeating (A8).

check_stress.py BUILD [--full] [PART ..]: --full takes the numbers of the table; PART is a function
below, such as capped."""
import ctypes
import http.client
import json
import os
import random
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import serve
from serve import Server, chat, key_line
import e2e

FULL = "--full" in sys.argv
ONLY = [a for a in sys.argv[2:] if a != "--full"]
serve.TIMEOUT = 900  # the machine may be held up
T = e2e.Tally("serve: stress")
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
OPEN_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
STORY = {"messages": [{"role": "user", "content": "Tell a story"}],
         "max_tokens": 1800, "ignore_eos": True, "temperature": 1}


def need(name, cond, what=""):
    T.check(name, None if cond else (str(what)[:300] or "not so"))


def cpu(s):
    with open(f"/proc/{s.proc.pid}/stat") as f:
        st = f.read().rsplit(")", 1)[1].split()
    return (int(st[11]) + int(st[12])) / 100


def read_all(c):
    out = b""
    try:
        while True:
            p = c.recv(65536)
            if not p:
                return out
            out += p
    except (ConnectionResetError, socket.timeout):
        return out


def p99(v):
    return sorted(v)[min(len(v) - 1, int(0.99 * len(v)))]


def threads(n, fn, *args):
    th = [threading.Thread(target=fn, args=(k, *args)) for k in range(n)]
    for t in th:
        t.start()
    for t in th:
        t.join()


# ---- H ----

def splits(s):
    body = json.dumps({"prompt": "Once", "max_tokens": 2, "temperature": 0}).encode()
    whole = (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
             b"%d\r\nConnection: close\r\n\r\n" % len(body) + body)
    rng, want = random.Random(1), None
    cuts = [[i] for i in (range(1, len(whole)) if FULL else range(1, len(whole), 9))]
    cuts += [sorted(rng.sample(range(1, len(whole)), rng.randint(2, 9)))
             for _ in range(200 if FULL else 10)]
    for cut in cuts:
        with socket.create_connection(("127.0.0.1", s.port), timeout=20) as c:
            c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for a, b in zip([0] + cut, cut + [len(whole)]):
                c.sendall(whole[a:b])
                time.sleep(0.0005)
            out = read_all(c)
        text = out.startswith(b"HTTP/1.1 200") and json.loads(
            out.split(b"\r\n\r\n", 1)[1])["choices"]
        want = want or text
        need(f"split {cut}", text and text == want, out[:200])


def leaving(s):
    """How many steps the engine takes after it was told is in tests/unit/test_engine_serve.c; here
    is when all is idle again."""
    rng, slow = random.Random(2), 0
    for i in range(200 if FULL else 20):
        c = s.open(dict(STORY, stream=bool(i & 1), n=1 + i % 3))
        time.sleep(rng.random() * (0.2 if i % 5 == 0 else 0.02))
        if i & 2:
            c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        c.close()
        gone = s.idle(10)
        slow = max(slow, gone or 10)
        need(f"leaving {i}", gone is not None, "still running")
    print(f"left: idle again after at most {slow * 1000:.0f} ms")
    for i in range(50 if FULL else 5):
        c = s.open(dict(STORY, stream=True, max_tokens=30))
        c.shutdown(socket.SHUT_WR)
        need(f"half-closed {i}", b"[DONE]" in read_all(c))
        c = s.open(dict(STORY, stream=bool(i & 1)))
        c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        time.sleep(rng.random() * 0.02)
        c.close()
        need(f"reset {i}", s.idle(10) is not None, "still running")
    need("no KV is held", s.idle() is not None and s.metric("vllm:kv_cache_usage_perc") == 0)


def mappings(s):
    """[(first address, end, name, KiB, resident KiB)]"""
    out = []
    with open(f"/proc/{s.proc.pid}/smaps") as f:
        for ln in f:
            w = ln.split()
            if not w[0].endswith(":"):
                at, end = (int(x, 16) for x in w[0].split("-"))
                name = w[5] if len(w) > 5 else ""
            elif w[0] == "Size:":
                size = int(w[1])
            elif w[0] == "Rss:":
                out.append((at, end, name, size, int(w[1])))
    return out


def reserved(s):
    """Where the weights and the pool of KV blocks are: made at the start, they grow by use, 2 MiB
    at once."""
    return [m[:2] for m in mappings(s) if m[3] >= 16384 and m[2] != "[heap]"]


def own_kib(s, but):
    """Resident memory outside the address ranges of but."""
    return sum(m[4] for m in mappings(s) if not any(a <= m[0] and m[1] <= b for a, b in but))


def stopped_readers(s):
    n, but = (32 if FULL else 8), reserved(s)
    rss = own_kib(s, but)
    socks = [s.open(dict(STORY, stream=True, logprobs=True, top_logprobs=20), rcvbuf=4096)
             for _ in range(n)]
    t0, peak, most = time.time(), 0, 0
    while time.time() - t0 < 40:
        now = s.metric("vllm:num_requests_running") + s.metric("vllm:num_requests_waiting")
        most = max(most, now)
        peak = max(peak, own_kib(s, but) - rss)
        if most and not now:
            break
        time.sleep(0.02)
    t = time.time() - t0
    need("stopped readers began", most >= n / 2, most)
    print(f"{n} stopped readers: ended after {t:.1f} s, {peak / n:.0f} KiB each at most")
    need("stopped readers end", t < 30, t)
    need("memory of a stopped reader", peak / n <= 256, peak / n)
    for c in socks:
        c.close()


def descriptors():
    own, soft = resource.getrlimit(resource.RLIMIT_NOFILE), 120
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, own[1]))  # which the server inherits
    with Server() as s:
        resource.setrlimit(resource.RLIMIT_NOFILE, own)
        socks = []
        for _ in range(200):
            c = socket.socket()
            c.settimeout(2)
            try:
                c.connect(("127.0.0.1", s.port))
                socks.append(c)
            except OSError:
                c.close()
        time.sleep(1)
        idle = idle_share(s, socks)
        print(f"200 connections on {soft} descriptors: {idle * 100:.0f} % of a core while nothing "
              "can be taken")
        need("no spinning without descriptors", idle <= 0.05, idle)
        need("alive after it", s.post(CHAT, chat())[0] == 200)
        need("exit", s.stop() == 0)
    flood(2048 if FULL else 1200)


def idle_share(s, socks):
    """Of a core, while they are open; closes them."""
    c0, t0 = cpu(s), time.time()
    time.sleep(3)
    idle = (cpu(s) - c0) / (time.time() - t0)
    for c in socks:
        c.close()
    time.sleep(0.5)
    return idle


def flood(n):
    """More connections than the 1024 that the server takes: it waits without work, and serves again
    when they are gone."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(n + 400, OPEN_FILES), OPEN_FILES))
    with Server() as s:
        socks = []
        for _ in range(n):
            c = socket.socket()
            c.setblocking(False)
            c.connect_ex(("127.0.0.1", s.port))
            socks.append(c)
        time.sleep(1)
        held, idle = descriptors_of(s), idle_share(s, socks)
        print(f"{n} connections: {held} descriptors, {idle * 100:.0f} % of a core")
        need("connections: at most the cap", held <= 1024 + 64, held)
        need("connections: no spinning", idle <= 0.05, idle)
        need("connections: alive after it", s.post(CHAT, chat())[0] == 200)
        need("exit", s.stop() == 0)


def slow_senders():
    """Connections that drip a head, drip a body, or take nothing of an answer: closed in time, and
    others notice little."""
    n = 990 if FULL else 120

    def ttft(c, count, drips=()):
        """With bytes on some of the slow connections between the requests."""
        out, todo = [], list(drips)
        for i in range(count):
            for k, byte in todo[i * len(todo) // count:(i + 1) * len(todo) // count]:
                try:
                    k.send(byte)
                except OSError:
                    pass
            time.sleep(0.005)
            c.request("POST", CHAT, json.dumps(chat("Count from one to forty. " * 8,
                                                    max_tokens=2, seed=len(out))))
            out.append(json.loads(c.getresponse().read())["timings"]["ttft_ms"])
        return out

    with Server() as s:
        c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
        count = 300 if FULL else 40
        ttft(c, 20)
        before, socks, born, age = ttft(c, count), [], {}, {}
        watch, idle = select.epoll(), descriptors_of(s)
        for i in range(n):
            k = socket.socket()
            if i % 3 == 2:
                k.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            k.connect(("127.0.0.1", s.port))
            born[k.fileno()] = time.monotonic()
            k.sendall((b"GET /health HTTP/1.1\r\nHost: l",
                       b"POST /v1/completions HTTP/1.1\r\nHost: l\r\nContent-Length: 5000\r\n\r\n{",
                       b"GET /app.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 8)[i % 3])
            watch.register(k, select.EPOLLRDHUP | select.EPOLLET)
            socks.append(k)
        time.sleep(0.5)
        beside = ttft(c, count, [(k, b"aa{"[j % 3:j % 3 + 1]) for _ in range(2) for j,
                                 k in enumerate(socks) if j % 3 != 2])
        end = max(born.values()) + 20
        while len(age) < n and time.monotonic() < end:
            for fd, _ in watch.poll(0.2):
                age.setdefault(fd, time.monotonic() - born[fd])
        late = n - sum(a <= 15 for a in age.values())
        held = max(0, descriptors_of(s) - idle)  # the server's own sockets
        oldest = [max((age.get(k.fileno(), 99) for k in socks[m::3])) for m in range(3)]
        for k in socks:
            k.close()
        print("closed at an age of at most %.2f s (head), %.2f (body), %.2f (read)" % tuple(oldest))
        print(f"{n} slow connections: {late} older than 15 s, {held} held, TTFT p50 "
              f"{sorted(before)[count // 2]:.1f} p99 {p99(before):.1f} ms alone, "
              f"p50 {sorted(beside)[count // 2]:.1f} p99 {p99(beside):.1f} beside them")
        need("slow connections are closed", late == 0 and held == 0, (late, held, oldest))
        need("slow connections cost others little", p99(beside) <= max(
            1.5 * p99(before), 0 if FULL else p99(before) + 200), (p99(before), p99(beside)))
        need("exit", s.stop() == 0)


def descriptors_of(s):
    return len(os.listdir(f"/proc/{s.proc.pid}/fd"))


def slowhttptest():
    """The tool that people use, where it is installed: header, body and read, 1 000 connections
    each."""
    tool = shutil.which("slowhttptest")
    if not tool:
        print("slowhttptest: not installed, skipped")
        return
    n = 1000 if FULL else 100
    with Server() as s:
        for kind in ("-H", "-B", "-X"):
            url = f"http://127.0.0.1:{s.port}/" + ("v1/completions" if kind == "-B" else "app.js")
            more = ["-w", "10", "-y", "20", "-n", "5",
                    "-z", "32", "-k", "3"] if kind == "-X" else ["-i", "5"]
            idle, t0 = descriptors_of(s), time.time()
            p = subprocess.Popen([tool, kind, "-c", str(n), "-r",
                                  "500", "-l", "24", "-u", url, *more], stdout=subprocess.DEVNULL)
            time.sleep(8)
            held = descriptors_of(s) - idle
            ok = all(s.post(CHAT, chat(max_tokens=2))[0] == 200 for _ in range(10))
            # the tool's own look at the server among them
            while descriptors_of(s) > idle + 4 and time.time() - t0 < 22:
                time.sleep(0.1)
            t = time.time() - t0
            p.kill()
            p.wait()
            print(f"slowhttptest {kind}, {n} connections: {held} open after 8 s, none after "
                  f"{t:.1f} s")
            need(f"slowhttptest {kind}: held first", held >= 0.9 * n, held)
            need(f"slowhttptest {kind}: closed in time", t <= 15.5 + n / 500, t)
            need(f"slowhttptest {kind}: others are served", ok)
        need("exit", s.stop() == 0)


def killed():
    for i in range(20 if FULL else 2):
        with Server() as s:
            c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=20)
            c.request("POST", CHAT, json.dumps(dict(STORY, stream=True)))
            r = c.getresponse()
            r.read(100 + 37 * i)
            s.proc.kill()
            try:
                r.read()
                need(f"killed {i}", False, "a clean end")
            except (http.client.IncompleteRead, ConnectionResetError):
                need(f"killed {i}", True)
            s.proc.wait()


# ---- K ----

def overload():
    """Arrivals at four times the rate that the server reaches: what is taken is answered as fast as
    before, the rest is refused at once. The model computes on one CPU and leaves the others to the
    clients, which would otherwise take them from it."""
    seconds, n = (120 if FULL else 4), 64
    with Server("--max-batch", "8", "--max-queue", "8", "-t", "1") as s:
        def client(k, until, got, every):
            c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
            due = time.time() + every * k / n
            while time.time() < until:
                time.sleep(max(0, due - time.time()))
                due += every
                t0 = time.perf_counter()
                c.request("POST", CHAT, json.dumps(chat(f"{k}", max_tokens=300, ignore_eos=True)))
                r = c.getresponse()
                data = r.read()
                got.append((r.status, time.perf_counter() - t0,
                            r.getheader("Retry-After"), len(data)))
        alone, over = [], []
        t = max(4, seconds / 4)
        t0 = time.time()
        threads(8, client, t0 + t, alone, 0)
        base = sum(g[0] == 200 for g in alone) / (time.time() - t0)
        t0 = time.time()
        threads(n, client, t0 + seconds, over, n / (4 * base))
        took = time.time() - t0
        done, busy = sum(g[0] == 200 for g in over) / took, [g for g in over if g[0] == 429]
        need("four times the load", len(over) / took >= 3.5 * base, (base, len(over) / took))
        print(f"overload {seconds} s: {base:.1f} answers/s alone, {done:.1f} beside "
              f"{len(over) / took:.0f} requests/s, {len(busy)} refused, "
              f"p99 {p99([g[1] for g in busy] or [0]) * 1000:.0f} ms")
        need("only 200 and 429", {g[0] for g in over} <= {200, 429}, {g[0] for g in over})
        need("some are refused", len(busy) > 0)
        need("Retry-After", all(g[2] and 1 <= int(g[2]) <= 60 for g in busy))
        need("goodput", done >= (0.95 if FULL else 0.5) * base, (base, done))
        if FULL:
            need("refused at once", p99([g[1] for g in busy]) <= 0.05, p99([g[1] for g in busy]))
        need("exit", s.stop() == 0)


def time_limits(s):
    for ms in (20, 60, 150):
        t0 = time.perf_counter()
        status, r = s.post(CHAT, chat(timeout_ms=ms, max_tokens=1900, ignore_eos=True))
        t = (time.perf_counter() - t0) * 1000
        need(f"limit of {ms} ms", status == 504 and r["error"]["code"] == "timeout"
             and t < ms + (60 if FULL else 1000), (status, t))
    with Server("--max-batch", "1") as one:
        held = one.open(dict(STORY, stream=True))
        held.recv(16)
        for ms in (20, 60, 150):
            t0 = time.perf_counter()
            status, r = one.post(CHAT, chat(timeout_ms=ms))
            t = (time.perf_counter() - t0) * 1000
            need(f"limit of {ms} ms in the queue", status == 504 and r["error"]["code"] == "timeout"
                 and t < ms + (60 if FULL else 1000), (status, t))
        held.close()
        need("exit", one.stop() == 0)
    _, ev, _ = s.stream(CHAT, chat(timeout_ms=60, max_tokens=1900, ignore_eos=True))
    need("limit in a stream", ev[-1] == "[DONE]" and ev[-2]["error"]["code"] == "timeout", ev[-3:])
    status, head, _ = s.call("POST", CHAT, chat(timeout_ms=20, max_tokens=1900, ignore_eos=True))
    need("not worth repeating", head.get("x-should-retry") == "false", head)


def short_of_blocks():
    """KV blocks for a part of what runs: requests lose theirs and are computed again, to the same
    answers."""
    n = 500 if FULL else 16
    ask = [chat(f"Tell {i}", max_tokens=200, ignore_eos=True, temperature=1, seed=i)
           for i in range(n)]
    with Server("--kv-tokens", "20000", "--max-batch", "16") as s:
        want = [None] * n

        def solo(k):
            for i in range(k, n, 8):
                want[i] = s.post(CHAT, ask[i])[1]["choices"][0]["message"]["content"]
        threads(8, solo)
        need("exit", s.stop() == 0)
    with Server("--ctx", "1024", "--kv-tokens", "1024",
                "--max-batch", "16", "--max-queue", "4096") as s:
        got = [None] * n

        def one(k):
            for i in range(k, n, 16):
                got[i] = s.post(CHAT, ask[i])[1]["choices"][0]["message"]["content"]
        threads(16, one)
        lost = s.metric("vllm:num_preemptions_total")
        print(f"short of blocks: {n} requests, {lost:.0f} times blocks were lost, "
              f"{sum(a != b for a, b in zip(got, want))} answers differ")
        need("same answers", got == want)
        need("blocks were lost", lost > 0, lost)
        need("all blocks are back",
             s.idle() is not None and s.metric("vllm:kv_cache_usage_perc") == 0)
        need("exit", s.stop() == 0)


def whole(body, data):
    """What is wrong with a good answer, or the code of the error event with which a stream ends;
    None: nothing."""
    if body["stream"]:
        if not data.endswith(b"data: [DONE]\n\n"):
            return "a cut stream"
        got = [json.loads(ln[6:]) for ln in data.split(b"\n") if ln.startswith(b"data: {")]
        if "error" in got[-1]:
            return "event: " + got[-1]["error"]["code"]
    else:
        got = [json.loads(data)]
    tokens = sum(len(c["logprobs"]["content"]) for e in got for c in e["choices"] if c["logprobs"])
    ends = sum(c["finish_reason"] == "length" for e in got for c in e["choices"])
    told = got[-1]["usage"]["completion_tokens"]
    if tokens == told and ends == body["n"]:
        return None
    return f"an answer that is not whole: {tokens} of {told} tokens, {ends} of {body['n']} ends"


def capped():
    """Hardly any memory and KV blocks for what is asked: requests are refused or computed again,
    the process stays below its cap, and who gets an answer gets all of it, or an error event where
    it ends."""
    seconds = float(os.environ.get("SECONDS_CAPPED", 1800 if FULL else 5))
    room = int(os.environ.get("MIB_CAPPED", 64)) << 20
    with Server("--ctx", "1024", "--kv-tokens", "2048",
                "--max-batch", "16", "--max-queue", "24") as s:
        s.post(CHAT, chat())
        with open(f"/proc/{s.proc.pid}/status") as f:
            data = next(int(ln.split()[1]) for ln in f if ln.startswith("VmData")) << 10
        resource.prlimit(s.proc.pid, resource.RLIMIT_DATA, (data + room,) * 2)
        until, codes, lock, peak = time.time() + seconds, {}, threading.Lock(), [0]

        def client(k):
            rng = random.Random(k)
            while time.time() < until:
                text = "word " * rng.choice((5, 200, 600, 5000, 180000))
                body = chat(f"{k} {text}", max_tokens=rng.choice((5, 200, 900)),
                            ignore_eos=True, n=rng.choice((1, 1, 4)), stream=rng.random() < 0.5,
                            logprobs=True, top_logprobs=rng.choice((0, 20)))
                if body["stream"]:
                    body["stream_options"] = {"include_usage": True}
                try:
                    st, head, data = s.call("POST", CHAT, body)
                    if st == 200:
                        st = whole(body, data) or 200
                    elif st == 429 and not 1 <= int(
                            head.get("retry-after", 0)) <= 60 or serve.error_of(data):
                        st = f"{st}: {data[:80]}"
                except (OSError, http.client.HTTPException, ValueError) as e:
                    st = f"{type(e).__name__}: {str(e)[:60]}"
                with lock:
                    codes[st] = codes.get(st, 0) + 1
                    peak[0] = max(peak[0], serve.rss(s))
                if st == 429:
                    time.sleep(0.2)
        threads(48, client)
        print(f"capped {seconds:.0f} s: by status {codes}, "
              f"{s.metric('vllm:num_preemptions_total'):.0f} times blocks were lost, RSS {peak[0]} "
              "KiB")
        need("capped: refused or done",
             set(codes) <= {200, 400, 429, "event: rate_limit_exceeded", "event: timeout"}, codes)
        need("capped: some of each", codes.get(200, 0) > 0 and codes.get(429, 0) > 0, codes)
        # and the weights, which are mapped
        need("capped: below the cap", peak[0] << 10 <= data + room + (64 << 20), peak)
        need("capped: all blocks are back",
             s.idle() is not None and s.metric("vllm:kv_cache_usage_perc") == 0)
        need("exit", s.stop() == 0)


def salts(s):
    hits = 0
    prompt = "A secret of somebody. " * 60
    first = s.post(CHAT, chat(prompt, cache_salt="anna",
                              max_tokens=1))[1]["usage"]["prompt_tokens_details"]["cached_tokens"]
    again = s.post(CHAT, chat(prompt, cache_salt="anna",
                              max_tokens=1))[1]["usage"]["prompt_tokens_details"]["cached_tokens"]
    need("own prefix", first == 0 and again > 0, (first, again))
    n = 10000 if FULL else 60
    for i in range(n):
        hits += s.post(CHAT, chat("A secret of somebody. " * 6,
                                  cache_salt=f"s{i}", max_tokens=1))[1]["usage"][
            "prompt_tokens_details"]["cached_tokens"] > 0
    need("no hit across salts", hits == 0, hits)
    seen, new = [], []
    rng = random.Random(1)
    # does the time tell whether another tenant has asked this?
    for i in range(300 if FULL else 40):
        text = f"{i} " + "word " * 150
        asked = rng.random() < 0.5
        if asked:
            s.post(CHAT, chat(text, cache_salt="anna", max_tokens=1))
        t = s.post(CHAT, chat(text, cache_salt="ben", max_tokens=1))[1]["timings"]["ttft_ms"]
        (seen if asked else new).append(t)
    auc = sum((a < b) + 0.5 * (a == b) for a in seen for b in new) / (len(seen) * len(new))
    print(f"salts: {hits} hits of {n}, AUC {auc:.3f}")
    need("no timing signal", abs(auc - 0.5) <= (0.05 if FULL else 0.3), auc)


def reload():
    with e2e.scratch() as tmp:
        path = os.path.join(tmp, "keys")

        def write(*names):
            with open(path + ".new", "w") as f:
                f.write("".join(key_line(n, f"sk-{n}") for n in names))
            os.rename(path + ".new", path)
        write("anna", "ben")
        with Server("--api-key-file", path) as s:
            anna, bad = {"Authorization": "Bearer sk-anna"}, []
            stop = time.time() + (60 if FULL else 6)

            def load(k):
                while time.time() < stop:
                    st, ev, _ = s.stream(CHAT, chat(max_tokens=40, ignore_eos=True), anna)
                    if st != 200 or ev[-1] != "[DONE]":
                        bad.append(st)
            th = threading.Thread(target=threads, args=(4, load))
            th.start()
            slow = 0
            for i in range(20 if FULL else 3):
                write("anna", f"n{i}")
                s.proc.send_signal(signal.SIGHUP)
                t0 = time.time()
                while time.time() - t0 < 5 and s.get(
                        "/v1/models", {"Authorization": f"Bearer sk-n{i}"})[0] != 200:
                    time.sleep(0.005)
                slow = max(slow, time.time() - t0)
                need(f"revoked {i}", s.get("/v1/models", {
                    "Authorization": f"Bearer sk-{'ben' if i == 0 else f'n{i - 1}'}"})[0] == 401)
            th.join()
            print(f"reload under load: at most {slow * 1000:.0f} ms, {len(bad)} streams hurt")
            need("reload drops nothing", not bad, bad)
            need("reload in time", slow <= 1, slow)
            need("exit", s.stop() == 0)


def drain():
    quick = []
    for i in range(50 if FULL else 1):
        with Server("--max-batch", "16") as s:
            socks = [s.open(dict(STORY, stream=True, max_tokens=120)) for _ in range(16)]
            for c in socks:
                c.recv(16)
            t0 = time.time()
            s.proc.send_signal(signal.SIGTERM)
            try:
                while time.time() - t0 < 5 and s.get("/ready")[0] != 503:
                    pass
            except OSError:
                pass
            quick.append(time.time() - t0)
            ends = [read_all(c).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n") for c in socks]
            need(f"drain {i}", all(ends) and s.proc.wait(20) == 0, (ends, s.proc.poll()))
    print(f"drain: ready is 503 after {sorted(quick)[len(quick) // 2] * 1000:.0f} ms in the "
          f"middle, {max(quick) * 1000:.0f} at most")
    need("ready", sorted(quick)[len(quick) // 2] <= (0.1 if FULL else 1), quick)


PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17


def stopped_engine():
    """The engine's thread alone is stopped: /health says so within 5 s, and is well again after
    it."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    with Server() as s:
        for i in range(20 if FULL else 1):
            if libc.ptrace(PTRACE_SEIZE, s.proc.pid, None, None) != 0:
                print("stopped engine: skipped: ptrace is not allowed "
                      f"({os.strerror(ctypes.get_errno())})")
                return
            c = s.open(dict(STORY, stream=True))
            c.recv(16)
            libc.ptrace(PTRACE_INTERRUPT, s.proc.pid, None, None)
            os.waitpid(s.proc.pid, 0x40000000)  # __WALL
            t0 = time.time()
            while time.time() - t0 < 20 and s.get("/health")[0] == 200:
                time.sleep(0.05)
            t = time.time() - t0
            libc.ptrace(PTRACE_DETACH, s.proc.pid, None, None)
            t1 = time.time()
            while time.time() - t1 < 10 and s.get("/health")[0] != 200:
                time.sleep(0.02)
            if i == 0:
                print(f"stopped engine: /health is 503 after {t:.1f} s, well "
                      f"{time.time() - t1:.2f} s after it goes on")
            need(f"stopped engine {i}", 4 < t < 6.5 and time.time() - t1 < 5, (t, time.time() - t1))
            c.close()
            s.idle()
        need("exit", s.stop() == 0)


def long_prefill():
    """The engine computes prompts without a pause: /health stays 200 and is quick."""
    seconds = 60 if FULL else 3
    with Server("--chunk", "2048") as s:
        until, n, bad, slow = time.time() + seconds, [0], [], 0

        def prompts(k):
            while time.time() < until:
                n[0] += s.post(CHAT, chat("word " * 900,
                                          cache_salt=f"{k} {n[0]}", max_tokens=1))[0] == 200
        th = threading.Thread(target=threads, args=(4, prompts))
        th.start()
        while time.time() < until:
            t0 = time.time()
            bad += [c for c in (s.get("/health")[0],) if c != 200]
            slow = max(slow, time.time() - t0)
            time.sleep(0.02)
        th.join()
        print(f"long prefill {seconds} s: {n[0]} prompts, /health after {slow * 1000:.0f} ms at "
              "most")
        need("long prefill: alive", not bad and n[0] > 0, (bad, n))
        need("exit", s.stop() == 0)


def timed(fn, *args):
    if ONLY and fn.__name__ not in ONLY:
        return
    t0 = time.time()
    fn(*args)
    print(f"{fn.__name__}: {time.time() - t0:.1f} s", flush=True)


with Server() as server:
    for part in (splits, leaving, stopped_readers, time_limits, salts):
        timed(part, server)
    need("exit", server.stop() == 0)
for part in (descriptors, slow_senders, slowhttptest, killed,
             overload, short_of_blocks, capped, reload, drain, stopped_engine, long_prefill):
    timed(part)
T.exit()
