# SPDX-License-Identifier: Apache-2.0
"""One tenant floods, another asks now and then (row K9): the neighbour keeps its blocks of the
prefix cache, its part of the running sequences and of the steps, and a place in the queue; its time
to the first token, as its client sees it, at most doubles.

check_tenants.py BUILD [--full] [short|behind|long]: four clients of one key keep long prompts under
way, no two alike; one client of another key asks after a pause, a few questions alone and a few
beside in turn, so that both meet the same machine. The bar on p99 is --full's. It needs a machine
that does nothing else (a server that is idle between questions is woken before busy neighbours, one
that computes all the time is not), so turns in which anything else took a tenth of a core are asked
again, both sides of them, for up to five minutes a row. Without --full the middle may not be four
times as long (it was 300 times before there were shares)."""
import json
import multiprocessing
import os
import random
import socket
import sys
import threading
import time

import serve
from serve import Server, chat, key_line
import e2e

FULL = "--full" in sys.argv
ONLY = [a for a in sys.argv[2:] if a != "--full"]
CHAT = "/v1/chat/completions"
serve.TIMEOUT = 120
T = e2e.Tally("serve: tenants")


def need(name, cond, what=""):
    T.check(name, None if cond else (str(what)[:300] or "not so"))


def p99(v):
    return sorted(v)[min(len(v) - 1, int(0.99 * len(v)))]


def p50(v):
    return sorted(v)[len(v) // 2]


class Client:
    """One connection that is kept; ttft() is the time from sending a request to the first token's
    bytes."""

    def __init__(self, port, key):
        self.port, self.key, self.sock = port, key, None

    def ask(self, body):
        """(status, seconds to the first token, seconds to the end, the last event)"""
        data = json.dumps(dict(body, stream=True, stream_options={"include_usage": True})).encode()
        head = (f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.key}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n").encode()
        if not self.sock:
            self.sock = socket.create_connection(("127.0.0.1", self.port), timeout=serve.TIMEOUT)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        t0, got, first = time.perf_counter(), b"", None
        self.sock.sendall(head + data)
        while True:
            part = self.sock.recv(65536)
            if not part:
                self.sock = None
                break
            got += part
            if first is None and b'"content":"' in got.replace(b'"content":""', b""):
                first = time.perf_counter() - t0
            if got.endswith(b"\r\n0\r\n\r\n") or (not got.startswith(b"HTTP/1.1 200")
                                                  and got.endswith(b"}")):
                break
        status = int(got[9:12]) if got else 0
        body = got.split(b"\r\n\r\n", 1)[-1]
        events = [ln[6:] for ln in serve.unchunk(body).split(b"\n") if ln.startswith(b"data: {")] \
            if status == 200 else []
        last = json.loads(events[-1]) if events else body
        return status, first, time.perf_counter() - t0, last


def flood(port, key, n, seed, on):
    """n clients in this process, each with one long prompt after another that nobody else has,
    while on. They stand for other machines: what they compute themselves comes last on this one."""
    os.nice(19)

    def one(k):
        rng, c = random.Random(f"{seed} {k}"), Client(port, key)
        while on.wait():
            text = " ".join(
                rng.choice("red green blue seven eight north south house tree river".split())
                for _ in range(FLOOD_WORDS))
            try:
                st = c.ask(chat(text, max_tokens=FLOOD_TOKENS, ignore_eos=True))[0]
            except OSError as e:
                st = type(e).__name__
                c.sock = None
            if st == 429:
                time.sleep(0.1)
    th = [threading.Thread(target=one, args=(k,)) for k in range(n)]
    for t in th:
        t.start()


FLOOD_WORDS, FLOOD_TOKENS = 900, 60


def neighbour(port, key, n, words, system):
    """n questions after one system prompt; [(ms to the first token, cached tokens, prompt
    tokens)]"""
    c, out, rng = Client(port, key), [], random.Random()
    for _ in range(n):
        text = f"{rng.random()} " + " ".join(
            rng.choice("one two three four five six".split()) for _ in range(words))
        body = chat(text, max_tokens=4, ignore_eos=True)
        if system:
            body["messages"].insert(0, {"role": "system", "content": system})
        st, first, _, last = c.ask(body)
        if st != 200 or not first:
            need("the neighbour is served", False, (st, last))
            return out
        out.append((first * 1000, last["usage"]["prompt_tokens_details"]["cached_tokens"],
                    last["usage"]["prompt_tokens"]))
        time.sleep(0.01 + 0.03 * rng.random())
    return out


class Flood:
    """Clients that flood between begin() and end()."""

    def __init__(self, s, n):
        self.s, self.n, self.on = s, n, multiprocessing.Event()
        self.proc = multiprocessing.Process(target=flood,
                                            args=(s.port, "sk-ben", n, random.random(), self.on),
                                            daemon=True)
        self.proc.start()

    def begin(self):
        self.on.set()
        self.tok = self.s.metric("vllm:prompt_tokens_total", ADMIN)
        t0 = time.time()
        while self.under_way() < self.n and time.time() - t0 < 5:
            time.sleep(0.02)
        time.sleep(0.3)

    def under_way(self):
        return sum(self.s.metric(f"vllm:num_requests_{x}", ADMIN) for x in ("running", "waiting"))

    def end(self):
        self.on.clear()
        need("the flood went on",
             self.s.metric("vllm:prompt_tokens_total", ADMIN) > self.tok + 5000)
        self.s.idle_as(ADMIN)

    def close(self):
        self.proc.kill()
        self.proc.join()
        self.s.idle_as(ADMIN)


def cpu_of(pid):
    with open(f"/proc/{pid}/stat") as f:
        st = f.read().rsplit(")", 1)[1].split()
    return int(st[11]) + int(st[12])


class Others:
    """What neither the server nor its clients took of the machine, in cores."""

    def __init__(self, *pids):
        self.pids = pids
        self.begin()

    def now(self):
        with open("/proc/stat") as f:
            busy = [int(x) for x in f.readline().split()[1:9]]
        return (sum(busy) - busy[3] - busy[4] -
                sum(cpu_of(p) for p in self.pids)) / os.sysconf("SC_CLK_TCK"), time.time()

    def begin(self):
        self.was = self.now()

    def cores(self):
        b, t = self.now()
        return (b - self.was[0]) / (t - self.was[1])


ADMIN = {"Authorization": "Bearer sk-anna"}


class Shared(Server):
    def idle_as(self, headers, timeout=20):
        t0 = time.time()
        while time.time() - t0 < timeout and self.metric("vllm:num_requests_running", headers) != 0:
            time.sleep(0.02)


def turns_of(s, fl, words, system):
    """(alone, beside, turns that were disturbed)"""
    turns, each = (6, 30) if FULL else (2, 8)
    alone, beside, again, until = [], [], 0, time.time() + 300
    others = Others(s.proc.pid, os.getpid(), fl.proc.pid)
    while len(beside) < turns * each and time.time() < until:
        others.begin()
        a = neighbour(s.port, "sk-anna", each, words, system)
        fl.begin()
        b = neighbour(s.port, "sk-anna", each, words, system)
        fl.end()
        if "-v" in sys.argv:
            print(f"turn: others {others.cores():.2f}, {time.time() - others.was[1]:.1f} s",
                  flush=True)
        if FULL and others.cores() > 0.1:
            again += 1
            continue
        alone += a
        beside += b
    need("a machine that does nothing else",
         len(beside) == turns * each, f"{again} turns were disturbed")
    return alone, beside, again


def ratio(s, what, words, system, n_flood):
    fl = Flood(s, n_flood)
    for _ in range(3):  # without --full the machine may be busy
        alone, beside, again = turns_of(s, fl, words, system)
        a, b = [x[0] for x in alone], [x[0] for x in beside]
        if FULL or not b or p50(b) <= 4 * p50(a):
            break
    fl.close()
    if not b:
        return
    least = min(x[1] for x in beside)
    print(
        f"{what}, {n_flood} floods: prompt {alone[-1][2]}, at least {least} cached beside the "
        f"flood; first token alone p50 {p50(a):.1f} "
        f"p99 {p99(a):.1f}, beside p50 {p50(b):.1f} p99 {p99(b):.1f} ms: {p99(b) / p99(a):.2f}x; "
        f"{again} turns asked again",
        flush=True)
    if system:
        need(f"{what}: its system prompt stays in the tree", least >= alone[-1][2] - 200, least)
    if FULL:
        need(f"{what}: p99 of the first token at most doubles",
             p99(b) <= 2 * p99(a), (p99(a), p99(b)))
    else:
        need(f"{what}: the flood is not in the way", p50(b) <= 4 * p50(a), (p50(a), p50(b)))


def crowd(s):
    """The flooder fills the queue: it is refused, the neighbour is not."""
    socks = []
    for i in range(60):
        socks.append(
            s.open(dict(chat(f"{i}"), max_tokens=1500, ignore_eos=True, stream=True),
                   headers={"Authorization": "Bearer sk-ben"}))
    time.sleep(0.3)
    codes = []
    for c in socks:
        c.setblocking(False)
        try:
            codes.append(c.recv(12)[9:12])
        except BlockingIOError:
            codes.append(b"wait")
    need("a flooder is refused", b"429" in codes, codes)
    need("the neighbour finds a place",
         all(x[0] < 20000 for x in neighbour(s.port, "sk-anna", 10, 20, None)))
    for c in socks:
        c.close()
    s.idle_as(ADMIN)


def main():
    system = "You are a patient helper who answers briefly. " * 55
    with e2e.scratch() as tmp:
        path = os.path.join(tmp, "keys")
        with open(path, "w") as f:
            f.write("".join(key_line(k, f"sk-{k}") for k in ("anna", "ben")))
        with Shared("--api-key-file", path, "--kv-tokens", "8192", "--ctx", "2048", "--max-batch",
                    "8", "--max-queue", "32") as s:
            neighbour(s.port, "sk-anna", 5, 60, system)
            for row in (("a short question", 30, None, 4), ("after a system prompt", 60, system,
                                                            4), ("a long question", 400, None, 4)):
                if not ONLY or set(ONLY) & set(row[0].split()):
                    ratio(s, *row)
            crowd(s)
            need("exit", s.stop() == 0)
    T.exit()


if __name__ == "__main__":
    main()
