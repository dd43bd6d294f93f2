#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prompts that another engine computes (--prefill): the answers are those of a server that does all
itself, through a link that damages, loses or delays what goes over it, and when that engine is
killed and comes back. --long: more of all. --hidden: how much of the way of keys and values is
hidden behind the prompt, over links of several speeds, the last of them of 1 Gbit/s between two
namespaces (needs root; for a machine with nothing else to do).

  check_apart.py [BUILD] [--long | --hidden]
"""
import itertools
import json
import math
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
HIDDEN, LONG = "--hidden" in sys.argv, "--long" in sys.argv
sys.argv = [a for a in sys.argv if a not in ("--hidden", "--long")]
sys.path[:0] = [HERE, os.path.join(HERE, "..", "e2e", "serve"), os.path.join(HERE, "..", "e2e")]
import forward  # noqa: E402
import mpi  # noqa: E402
import nodes  # noqa: E402
import serve  # noqa: E402
import shapes  # noqa: E402
from serve import DEMO, Engine, Server  # noqa: E402
import e2e  # noqa: E402

T = e2e.Tally("apart")
HEAD = struct.Struct("<IBQ")
EVENTS, PAGE = 7, 12  # types of frames
NEW = itertools.count()
ONE = ("-t", "1")
LINE = "The keeper of the lighthouse wrote down every ship that passed, its name and its hour. "


def need(name, cond, what=""):
    T.check(name, None if cond else (str(what) or "not so"))


def until(fn, seconds=20):
    end = time.time() + seconds
    while not (got := fn()) and time.time() < end:
        time.sleep(0.02)
    return got


class Link:
    """A socket in front of an engine's, which hands everything on but for what fault says of the
    engine's frames: fault(type, body, number of the page) -> body, None (it is lost) or "cut"."""

    def __init__(self, path, bytes_per_s=0):
        self.path, self.rate, self.fault, self.n_page = path, bytes_per_s, None, 0
        self.folder = tempfile.TemporaryDirectory()
        self.at = os.path.join(self.folder.name, "link")
        self.address = "unix:" + self.at
        self.n_bytes, self.busy_s = 0, 0.0
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(self.at)
        self.server.listen(8)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.server.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            try:
                far.connect(self.path)
            except OSError:
                near.close()
                continue
            threading.Thread(target=self.up, args=(near, far), daemon=True).start()
            threading.Thread(target=self.down, args=(far, near), daemon=True).start()

    def up(self, near, far):
        try:
            while data := near.recv(1 << 16):
                far.sendall(data)
        except OSError:
            pass
        forward.end(near, far)

    def pace(self, n):
        """The link carries n bytes."""
        if not self.rate:
            return
        now = time.monotonic()
        self.free = max(getattr(self, "free", now), now) + n / self.rate
        self.busy_s += n / self.rate
        if self.free > now:
            time.sleep(self.free - now)

    def down(self, far, near):
        held = b""
        try:
            while data := far.recv(1 << 18):
                held += data
                while len(held) >= HEAD.size:
                    n, kind, ident = HEAD.unpack_from(held)
                    if len(held) < HEAD.size + n:
                        break
                    body, held = held[HEAD.size:HEAD.size + n], held[HEAD.size + n:]
                    if kind == PAGE:
                        self.n_page += 1
                        self.n_bytes += n
                        self.pace(HEAD.size + n)
                    if self.fault:
                        body = self.fault(kind, body, self.n_page)
                    if body == "cut":
                        raise OSError
                    if body is not None:
                        near.sendall(HEAD.pack(len(body), kind, ident) + body)
        except OSError:
            pass
        forward.end(near, far)

    def close(self):
        self.server.close()
        self.folder.cleanup()


# ---- answers ----

SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},
                                           "hour": {"type": "integer"}},
          "required": ["name", "hour"], "additionalProperties": False}


def asked(i):
    """Request number i: prompts of some hundred tokens, each drawn in another way."""
    body = dict(prompt=f"{i % 5} " + LINE * (4 + i % 3), max_tokens=12, seed=i, temperature=0,
                return_token_ids=True, ignore_eos=True)
    more = [dict(), dict(temperature=1), dict(temperature=0.8, n=3, top_p=0.9),
            dict(logprobs=3), dict(temperature=1, repetition_penalty=1.2, stop=["qz"]),
            dict(ignore_eos=False, temperature=0.7, max_tokens=60, response_format={
                "type": "json_schema", "json_schema": {"name": "ship", "schema": SCHEMA}})]
    body.update(more[i % len(more)])
    return body


def answer(server, i):
    status, body = server.post("/v1/completions", asked(i))
    return body["choices"] if status == 200 else (status, body)


def answers(server, first, n):
    out = [None] * n

    def one(k):
        out[k] = answer(server, first + k)
    threads = [threading.Thread(target=one, args=(k,)) for k in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return out


def came(server):
    """(prompts that came whole, that did not)."""
    return (server.metric("sluice:kv_transfers_total"),
            server.metric("sluice:kv_transfers_lost_total"))


def fresh(server, i):
    """A prompt whose beginning nobody has asked for."""
    body = {"prompt": f"{i} ships. " + LINE * 4, "max_tokens": 1}
    return server.post("/v1/completions", body)[0] == 200


def linked(server):
    """The other engine is asked, which a server does without until it is there: how many prompts
    came until then."""
    until(lambda: fresh(server, next(NEW)) and came(server)[0] > 0)
    return came(server)[0]


def most_came(name, server, before):
    """Four prompts and more came whole since then, and none did not."""
    until(lambda: came(server)[0] >= before + 4, 5)
    n, lost = came(server)
    need(name, n >= before + 4 and lost == 0, (before, n, lost))


def same(name, server, want, first=0, n=12 if LONG else 6):
    got = answers(server, first, n)
    need(name, got == [want(first + k) for k in range(n)],
         [(g, want(first + k)) for k, g in enumerate(got) if g != want(first + k)][:1])


# ---- what is checked ----

def quiet(want):
    """The same answers: one server, an engine behind fronts, several layouts."""
    with Engine(*ONE) as p:
        with Server("--prefill", p.address, "-t", "1", "--draft", "auto") as s:
            before = linked(s)
            same("the same answers with drafts", s, want)
            most_came("prompts came from the other engine", s, before)
            need("bytes are counted", s.metric("sluice:kv_transfer_bytes_total") > 1000)
            status, body = s.post("/v1/embeddings", {"input": LINE * 4})
            need("embeddings are computed here", status == 200, body)
        with Engine("--prefill", p.address, *ONE) as d, Server(engine=d) as a, \
                Server(engine=d) as b:
            before = linked(a)
            same("through one front", a, want)
            same("through another", b, want, 6, 3)
            most_came("and from there", a, before)
    for one, other in (("tp=2", "dp=2,ep=2"), ("dp=2,ep=2", "tp=2,ep=2"))[:2 if LONG else 1]:
        with Engine("--layout", one) as p, \
                Server("--layout", other, "--prefill", p.address) as s:
            before = linked(s)
            same(f"{one} -> {other}", s, want)
            most_came(f"{one} -> {other} came", s, before)


def started(layout, how, model, *args):
    """An engine of as many processes as the layout has ranks, with memory in common or not; or of
    one."""
    if not layout:
        return Engine(*args, *ONE, model=model)
    n = math.prod(int(w[3:]) for w in layout.split(",") if not w.startswith("ep="))
    return Engine("--layout", layout, "-t", str(n), *args, before=mpi.command((n, [])),
                  env={"SL_DIST": how}, model=model)


TINY = e2e.tiny(e2e.build_dir())
MLA, GQA, MOE = [DEMO] + [os.path.join(TINY, m + ".gguf") for m in ("llama2", "qwen3_moe_mixed")]
# model, who computes prompts, who continues them, how their ranks speak
PROCESSES = ((GQA, "tp=3", "", "memory"), (GQA, "", "tp=3", "messages"),
             (MLA, "pp=2", "dp=2,ep=2", "messages"))
MORE_PROCESSES = ((MLA, "tp=2", "pp=2", "memory"), (GQA, "pp=2,tp=2", "tp=4", "memory"),
                  (MOE, "dp=2,tp=2,ep=4", "pp=2,tp=2", "messages"),
                  (MLA, "tp=3", "pp=3", "messages"), (MOE, "tp=2,pp=2", "dp=2,ep=2", "messages"),
                  (MLA, "dp=2,tp=2,ep=4", "dp=2,ep=2,pp=2", "memory"))


def processes():
    """Ranks that are processes, on either side."""
    why = mpi.missing(e2e.build_dir())
    if why:
        print(f"apart: processes: skipped: {why}", flush=True)
        return
    want = {}
    for model in (MLA, GQA, MOE):
        with Server("-t", "1", model=model) as alone:
            want[model] = [answer(alone, i) for i in range(12 if LONG else 6)]
    for model, one, other, how in PROCESSES + (MORE_PROCESSES if LONG else ()):
        what = f"{os.path.basename(model)}, {one or 'one rank'} -> {other or 'one rank'}, {how}"
        with started(one, how, model) as p, \
                started(other, how, model, "--prefill", p.address) as d, \
                Server(engine=d, model=model) as s:
            before = linked(s)
            same(what, s, want[model].__getitem__)
            most_came(f"{what}: came", s, before)
            same(f"{what}: again", s, want[model].__getitem__)


def chosen():
    """Of two engines that have nothing to do that one computes a prompt which has its beginning.
    Who asks has a small cache, and short prompts of its own that drive others out."""
    prompts = [f"{c} {c} {c} " + LINE * 9 for c in "AB"]
    other = itertools.count()
    with Engine(*ONE) as p, Engine(*ONE) as q, Server(engine=p) as a, Server(engine=q) as b, \
            Server("--prefill", p.address, "--prefill", q.address, "--prefill-from", "200",
                   "--kv-tokens", "640", "-c", "512", *ONE) as s:
        def given():
            time.sleep(0.6)  # fronts are told four times a second
            return [int(x.metric("sluice:kv_given_total")) for x in (a, b)]

        def ask(prompt):
            need("an answer", s.post("/v1/completions", {"prompt": prompt, "max_tokens": 1,
                                                         "temperature": 0})[0] == 200)
        threads = [threading.Thread(target=ask, args=(x,)) for x in prompts]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        need("one each at the same time", given() == [1, 1], given())
        for _ in range(3):
            for x in prompts:
                for _ in range(5):
                    ask(f"{next(other)} " + LINE * 5)
                ask(x + "And then.")
        need("each where its beginning is", given() == [4, 4], given())


class Faults:
    """What is wrong with page number at, or from it on."""

    def __init__(self, what, at):
        self.what, self.at, self.first = what, at, None

    def __call__(self, kind, body, n):
        if kind != PAGE:
            return body
        if self.first is None:
            self.first = n
        k = n - self.first
        if self.what == "flip" and k == self.at:
            return body[:-9] + bytes([body[-9] ^ 4]) + body[-8:]
        if self.what == "sum" and k == self.at:
            return body[:8] + bytes([body[8] ^ 1]) + body[9:]
        if self.what == "drop" and k == self.at or self.what == "all" and k >= self.at:
            return None
        if self.what == "cut" and k == self.at:
            return "cut"
        return body


def damaged(want):
    """A byte is not what it was, pages or the connection are lost: no client sees anything of it,
    and the next request is as always."""
    with Engine("--prefix-cache", "off", *ONE) as p:
        link = Link(p.path)
        with Server("--prefill", link.address, "-t", "1", "--prefix-cache", "off") as s:
            faults = (("flip", 1), ("drop", 0), ("all", 17), ("cut", 9))
            more = (("flip", 31), ("sum", 5), ("drop", 40), ("all", 0))
            for what, at in faults + (more if LONG else ()):
                _, lost = came(s)
                link.fault = Faults(what, at)
                same(f"{what} {at}", s, want, at % 3, 2)
                need(f"{what} {at}: it was computed here", came(s)[1] > lost, came(s))
                link.fault = None
                n = came(s)[0]
                ready = until(lambda: answer(s, 0) == want(0) and came(s)[0] > n)
                need(f"{what} {at}: the next comes as always", ready, came(s))
        link.close()


def killed(want):
    """The other engine is killed under load, and comes back."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "p")
        with Server("--prefill", "unix:" + path, "-t", "1") as s:
            same("nobody is there yet", s, want, 0, 2)
            need("so it was computed here", came(s)[0] == 0, came(s))
            for k in range(2 if LONG else 1):
                p = Engine("--prefix-cache", "off", *ONE, path=path)
                n = came(s)[0]
                until(lambda: fresh(s, next(NEW)) and came(s)[0] > n)
                need("it came", came(s)[0] > n, came(s))
                out = []
                t = threading.Thread(target=lambda: out.extend(answers(s, 50 + 4 * k, 4)))
                t.start()
                time.sleep(0.15 + 0.2 * k)
                p.proc.kill()
                p.proc.wait()
                os.unlink(path)
                t.join()
                need("killed: the answers are the same",
                     out == [want(50 + 4 * k + j) for j in range(4)])
            need("the server lives", s.get("/ready")[0] == 200)
            need("no request failed", s.metric("sluice:failed_steps_total") == 0)


def refused():
    with Engine("--kv", "q8", *ONE) as p:
        for args, says in ((("--prefill", p.address, "--attach", "unix:/x"), "--attach"),
                           (("--prefill", "tcp:1"), "unix:"),
                           (("--prefill", p.address, "--prefill-from", "0"), "prefill-from"),
                           (("--prefill", p.address, "--kv", "f16"), "its --kv is another one"),
                           (("--prefill", p.address, "--kv", "q8", "--record", "f.rec"),
                            "--record")):
            r = subprocess.run([e2e.sluice(), "serve", "-m", DEMO, "--port", "0", *args],
                               capture_output=True, text=True, timeout=60, check=False)
            need(f"{args} is refused, in one line", r.returncode in (1, 2) and says in r.stderr and
                 r.stderr.count("\n") == 1, r.stderr)
            if os.path.exists("f.rec"):
                os.unlink("f.rec")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "p")
        with Server("--prefill", "unix:" + path, "--kv", "f16", "-t", "1") as s, \
                Engine("--kv", "q8", *ONE, path=path):
            need("another cache is named", until(lambda: any(b"its --kv" in ln for ln in s.log)),
                 s.log)
            need("and answers come", s.post("/v1/completions", asked(0))[0] == 200)
            need("from here", came(s)[0] == 0)


class Timed:
    """A prompt over and over, and what its pages took."""
    KINDS = ("bytes", "seconds", "wait_seconds")

    def __init__(self, server, prompt):
        self.s, self.prompt = server, prompt

    def totals(self):
        return [self.s.metric(f"sluice:kv_transfer_{k}_total") for k in self.KINDS]

    def once(self):
        """(seconds of the prompt, its tokens, bytes, seconds from the first page to the last, of
        those after the prompt was computed)"""
        before, t = self.totals(), time.monotonic()
        status, body = self.s.post("/v1/completions", dict(prompt=self.prompt, max_tokens=1))
        if status != 200:
            raise RuntimeError(f"{status} {body}")
        t = time.monotonic() - t
        return [t, body["usage"]["prompt_tokens"]] + [b - a for a, b in zip(before, self.totals())]

    def hidden(self, rate, what, times=5):
        """The share of the way at so many bytes a second that is over when the prompt is."""
        runs = sorted((self.once() for _ in range(times)), key=lambda r: r[4])
        t, _, n_bytes, _, wait = runs[times // 2]
        carry = n_bytes / rate
        print(f"apart: {what}: a prompt of {t:.2f} s, {1000 * carry:.1f} ms to carry its "
              f"{n_bytes / 1e6:.1f} MB, {1000 * wait:.1f} ms after the prompt was computed: "
              f"{1 - wait / carry:.1%} hidden", flush=True)
        return 1 - wait / carry


ALONE = ("--prefix-cache", "off", "--chunk", "128")
MOCK = ("--mock", "--mock-type", "q4_1", "-c", "4096")
N_TOK = 2000  # whose keys and values are 46 MB


class Long:
    """A prompt of some thousand tokens of a model of 30 layers, which an engine computes that is
    reached at near(its socket)."""

    def __init__(self, near):
        self.near, self.work = near, tempfile.TemporaryDirectory()
        self.model = shapes.folder(self.work.name, "small", shapes.SMALL)

    def __enter__(self):
        self.p = Engine(*MOCK, *ALONE, *ONE, model=self.model)
        self.s = Server(*MOCK, "--prefill", self.near(self.p.path), *ONE, "--prefix-cache", "off",
                        model=self.model)
        self.timed = Timed(self.s, [5 + i * 7 % 900 for i in range(N_TOK)])
        return self.timed

    def __exit__(self, *a):
        need("all came", came(self.s)[1] == 0, came(self.s))
        self.s.__exit__()
        self.p.stop()
        self.work.cleanup()


def slow():
    """Over links that take a part of the prompt's time for what they carry."""
    links = []

    def near(path):
        links.append(Link(path))
        return links[0].address
    with Long(near) as timed:
        timed.once()
        t, n_tok, n_bytes = sorted(timed.once() for _ in range(3))[1][:3]
        need("pages come", n_bytes > 0)
        print(f"apart: {n_tok} tokens, {n_bytes:.0f} bytes, {t:.2f} s", flush=True)
        for part in (0.15, 0.3):
            links[0].rate = n_bytes / (part * t)
            hidden = timed.hidden(links[0].rate, f"{links[0].rate / 125e6:.3f} Gbit/s")
            need(f"hidden at {links[0].rate:.0f} bytes/s", hidden >= 0.9, hidden)
    links[0].close()


def gigabit():
    """Over a link of 1 Gbit/s between two machines (namespaces): the kernel carries no more."""
    why = nodes.missing()
    if why:
        print(f"apart: 1 Gbit/s: skipped: {why}", flush=True)
        return
    procs = []
    with nodes.Nodes() as m:
        def near(path):
            address, more = m.forward(path)
            procs.extend(more)
            return address
        m.slow("1gbit", burst="500000", limit="4000000")
        try:
            with Long(near) as timed:
                had = m.carried()
                n_bytes = timed.once()[2]
                share = (m.carried() - had) / n_bytes if n_bytes else 0
                print(f"apart: the link carried {share:.3f} of the pages' bytes", flush=True)
                need("pages go over the link", 1 <= share <= 1.08, share)
                hidden = timed.hidden(125e6, f"{N_TOK} tokens, 1 Gbit/s")
                need("hidden at 1 Gbit/s", hidden >= 0.9, hidden)
        finally:
            for q in procs:
                q.kill()


def main():
    if HIDDEN:
        slow()
        gigabit()
        T.exit()
    known = {}
    with Server("-t", "1") as alone:
        for i in list(range(18 if LONG else 9)) + list(range(50, 58 if LONG else 54)):
            known[i] = answer(alone, i)

        def want(i):
            return known[i]
        quiet(want)
        damaged(want)
        killed(want)
    processes()
    chosen()
    refused()
    T.exit()


if __name__ == "__main__":
    main()
