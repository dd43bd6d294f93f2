# SPDX-License-Identifier: Apache-2.0
"""An engine without HTTP and the servers that attach to it: what each gives the other, and what
becomes of clients when one of them is killed.

  check_attach.py [BUILD] [--kills N]     --kills: only engines that are killed, N times, each time
                                          under 10 streams at a random token
"""
import http.client
import json
import os
import random
import re
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time

KILLS = int(sys.argv.pop(sys.argv.index("--kills") + 1)) if "--kills" in sys.argv else 0
sys.argv = [a for a in sys.argv if a != "--kills"]
import serve  # noqa: E402
from serve import DEMO, Engine, Server, chat, error_of
import e2e

serve.TIMEOUT = 300  # an answer may wait for an engine to start
T = e2e.Tally("serve: attach")
CHAT = "/v1/chat/completions"
GONE = (ConnectionError, http.client.HTTPException, OSError)
LONG = dict(max_tokens=1900, ignore_eos=True)


def need(name, cond, what=""):
    T.check(name, None if cond else (str(what) or "not so"))


def until(fn, seconds=10):
    """fn(), once it is true, or what it was at last."""
    end = time.time() + seconds
    while not (got := fn()) and time.time() < end:
        time.sleep(0.02)
    return got


class Story(threading.Thread):
    """A long stream: its events as they come."""

    def __init__(self, server, text="A story", **more):
        super().__init__(daemon=True)
        self.body = chat(text, **{**LONG, **more})
        self.server, self.events, self.done, self.cut = server, [], False, ""
        self.times = []
        self.start()

    def run(self):
        try:
            with self.server.open(dict(self.body, stream=True)) as s:
                s.settimeout(60)
                for event in serve.events(s):
                    if event == "[DONE]":
                        self.done = True
                        break
                    self.times.append(time.time())
                    self.events.append(event)
        except GONE as x:
            self.cut = repr(x)

    def text(self):
        return "".join(e["choices"][0]["delta"].get("content") or "" for e in self.events
                       if e.get("choices"))

    def error(self):
        return next((e["error"] for e in self.events if "error" in e), None)


def listening(pid):
    """TCP sockets on which a process listens."""
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            inodes.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except FileNotFoundError:
            pass
    found = []
    for name in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{name}") as f:
            for row in list(f)[1:]:
                col = row.split()
                if col[3] == "0A" and f"socket:[{col[9]}]" in inodes:
                    found.append(int(col[1].rsplit(":", 1)[1], 16))
    return found


def resident(pid, path):
    """KiB of a file that a process has mapped and in memory."""
    sum_kib, inside = 0, False
    with open(f"/proc/{pid}/smaps") as f:
        for line in f:
            if line[0] in "0123456789abcdef" and "-" in line.split()[0]:
                inside = line.rstrip().endswith(os.path.realpath(path))
            elif inside and line.startswith("Rss:"):
                sum_kib += int(line.split()[1])
    return sum_kib


def quiet():
    """One engine, fronts that come and go, on one port."""
    with Engine() as e, Server(engine=e) as a:
        mode = stat.S_IMODE(os.stat(e.path).st_mode)
        need("only this user may use the socket", mode == 0o600, oct(mode))
        need("the engine listens on no port", listening(e.proc.pid) == [], listening(e.proc.pid))
        need("a front listens on its own", listening(a.proc.pid) == [a.port])
        need("ready", a.get("/ready")[0] == 200)
        body = chat("Count to ten", max_tokens=40, return_token_ids=True)
        want = a.post(CHAT, body)[1]["choices"]
        kib = resident(a.proc.pid, DEMO)
        need("a front has no weights", kib * 1024 < os.path.getsize(DEMO) / 4, f"{kib} KiB")
        with Server("--port", str(a.port), engine=e) as b:
            need("two fronts share a port", b.port == a.port)
            got = [a.post(CHAT, body)[1]["choices"] for _ in range(8)]
            need("both give the same", all(g == want for g in got), got)
        need("the other goes on", a.post(CHAT, body)[1]["choices"] == want)
        with Server() as alone:
            need("and so does a server of its own",
                 alone.post(CHAT, body)[1]["choices"] == want)
        garbage(e, a, body, want)
        front_killed(e, a)
        drained(e, a)


def garbage(e, a, body, want):
    story = Story(a, max_tokens=400)
    until(lambda: len(story.events) > 3)
    head = struct.pack("<IBQ", 5, 2, 1 << 7)  # a SUBMIT of five bytes
    for data in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, head + b"\0" * 5, head[:7],
                 struct.pack("<IBQ", 0, 3, 0), struct.pack("<IBQ", 0, 99, 0)):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(e.path)
            s.settimeout(5)
            s.sendall(data)
            if len(data) > 13 or data[4:5] == b"c":
                end = b"x"
                while end:
                    end = s.recv(65536)  # a greeting, states, and the end
    need("strangers disturb nobody", a.post(CHAT, body)[1]["choices"] == want)
    story.join(60)
    need("nor a stream", story.done and not story.error(), story.error())
    need("the log says so", sum(b"disconnected" in ln for ln in e.log) >= 3, e.log)


def front_killed(e, a):
    with Server(engine=e) as b:
        stories = [Story(b, f"Story {i}") for i in range(4)]
        need("they run", until(lambda: all(len(s.events) > 3 for s in stories)))
        b.proc.kill()
        b.proc.wait()
    t = time.time()
    need("the requests of a killed front end", until(
        lambda: a.metric("vllm:num_requests_running") == 0, 2))
    need("soon", time.time() - t < 1.5, time.time() - t)
    for s in stories:
        s.join(10)
    need("and its streams", not any(s.done for s in stories))
    need("the other front goes on", a.post(CHAT, chat())[0] == 200)


def drained(e, a):
    story = Story(a, max_tokens=1500)
    until(lambda: len(story.events) > 3)
    e.proc.send_signal(signal.SIGTERM)
    need("not ready when the engine goes down", until(lambda: a.get("/ready")[0] == 503, 2))
    status, body = a.post(CHAT, chat())
    need("nothing new gets in", status == 503 and not error_of(json.dumps(body)), body)
    story.join(60)
    need("what runs goes on to its end", story.done and not story.error(), story.error())
    need("the engine ends well", e.stop() == 0)
    need("its socket is gone", not os.path.exists(e.path))
    need("a front lives", a.get("/health")[0] == 200)


def engine_killed():
    """Without replay: a front says that its engine is gone, and serves again when there is one."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "engine")
        e = Engine(path=path)
        with Server("--replay", "off", engine=e) as a:
            stories = [Story(a, f"Story {i}") for i in range(4)]
            need("they run", until(lambda: all(len(s.events) > 3 for s in stories)))
            e.stop(signal.SIGKILL)
            t = time.time()
            for s in stories:
                s.join(10)
            need("streams end within 2 s", time.time() - t < 2, time.time() - t)
            need("with an error event", all(s.done and s.error() for s in stories),
                 [s.cut or s.error() for s in stories])
            need("that says why", all("engine" in s.error()["message"] for s in stories))
            need("not ready", a.get("/ready")[0] == 503)
            need("but alive", a.get("/health")[0] == 200)
            status, body = a.post(CHAT, chat())
            need("new requests are refused", status == 503 and not error_of(json.dumps(body)), body)
            with Engine(path=path):
                need("ready again", until(lambda: a.get("/ready")[0] == 200))
                need("and serves", a.post(CHAT, chat())[0] == 200)


# ---- replay ----

SCHEMA = {"type": "json_schema", "json_schema": {"name": "s", "strict": True, "schema": {
    "type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"},
                                           "minItems": 60, "maxItems": 60}},
    "required": ["a"], "additionalProperties": False}}}
ASKED = [
    dict(),
    dict(temperature=1, seed=1),
    dict(temperature=1.2, seed=2, top_k=50, top_p=0.95, frequency_penalty=0.5, logit_bias={"5": 3}),
    dict(temperature=1, seed=3, n=4),
    dict(temperature=0.8, seed=4, logprobs=True, top_logprobs=3),
    dict(temperature=1, seed=5, response_format=SCHEMA, max_tokens=400, ignore_eos=False),
    dict(temperature=1, seed=6, stop=["zzz", "the the the"], min_tokens=300),
    dict(temperature=1, seed=7, repetition_penalty=1.1, stream_options={"include_usage": True}),
]


def shorter(most):
    """ASKED with shorter answers."""
    for a in ASKED:
        a["max_tokens"] = min(a.get("max_tokens", 700), most)
        if "min_tokens" in a:
            a["min_tokens"] = min(a["min_tokens"], most // 2)


class Asked(Story):
    """One of ASKED as a stream."""

    def __init__(self, server, i):
        super().__init__(server, f"Tell me of {i}", **{"max_tokens": 700, **ASKED[i]})

    def answer(self):
        """All that does not depend on time, by choice."""
        out = {}
        for e in self.events:
            if "error" in e:
                return e
            for c in e["choices"]:
                had = out.setdefault(c["index"], ["", [], None])
                had[0] += c["delta"].get("content") or ""
                had[1] += [(t["token"], t["logprob"], [(a["token"], a["logprob"]) for a in
                                                       t["top_logprobs"]])
                           for t in (c.get("logprobs") or {}).get("content") or []]
                had[2] = c["finish_reason"] or had[2]
            if e.get("usage"):
                out["usage"] = {k: e["usage"][k] for k in ("prompt_tokens", "completion_tokens")}
        return out


def running(stories, n):
    """Wait until each has so many events more, or is over."""
    goal = [len(s.events) + n for s in stories]
    return until(lambda: all(s.done or len(s.events) >= g for s, g in zip(stories, goal)), 60)


def replayed():
    """An engine that is killed twice under all kinds of requests: not a byte is another."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "engine")
        e = Engine(path=path)
        with Server(engine=e) as a:
            first = [Asked(a, i) for i in range(len(ASKED))]
            for s in first:
                s.join(120)
            need("the first time all are whole", all(s.done and not s.error() for s in first))
            again = [Asked(a, i) for i in range(len(ASKED))]
            whole = []
            plain = threading.Thread(target=lambda: whole.append(
                a.post(CHAT, dict(chat("Plain", temperature=1, seed=9), **LONG))), daemon=True)
            plain.start()
            for n, more in ((3, ["--layout", "tp=2"]), (40, ["--draft", "mtp"])):
                need("they run", running(again, n))
                e.stop(signal.SIGKILL)
                need("not ready", until(lambda: a.get("/ready")[0] == 503, 2))
                e = Engine(*more, path=path)
            for s in again:
                s.join(120)
            plain.join(120)
            for i, (x, y) in enumerate(zip(first, again)):
                need(f"whole: {ASKED[i]}", y.done and not y.cut, y.cut or y.events[-1:])
                need(f"and the same: {ASKED[i]}", x.answer() == y.answer(),
                     [x.answer(), y.answer()])
            need("one that is no stream too", whole and whole[0][0] == 200, whole)
            need("nothing of it is told twice", whole and
                 whole[0][1]["usage"]["completion_tokens"] == LONG["max_tokens"], whole)
            need("replays are counted", a.metric("sluice:replays_total") >= len(ASKED))
            need("restarts are counted", a.metric("sluice:group_restarts_total") == 2)
            logged = [json.loads(ln) for ln in a.log if ln.startswith(b'{"event":"request"')]
            need("the log has them", any(r.get("replays") for r in logged))
            e = not_for_ever(a, e, path)
        e.stop()


def killed(n):
    """Engines that are killed again and again: with ranks, with drafts, in stages, plain. The
    seconds from a kill to the next token are told."""
    ways = ([], ["--layout", "tp=2"], ["--draft", "mtp"], ["--layout", "pp=2"],
            ["--draft", "ngram"], ["--layout", "dp=2,ep=2"], ["--layout", "tp=2", "--draft", "mtp"],
            ["--layout", "tp=2,ep=2"])
    rng, paused, n_same = random.Random(3), [], 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "engine")
        e = Engine(path=path)
        with Server(engine=e) as a:
            first = [Asked(a, i) for i in range(len(ASKED))]
            for s in first:
                s.join(300)
            want = [s.answer() for s in first]
            for k in range(n):
                which = [i % len(ASKED) for i in range(k, k + 10)]
                asked = [Asked(a, i) for i in which]
                running(asked, rng.randrange(1, 60))
                e.stop(signal.SIGKILL)
                t = time.time()
                e = Engine(*ways[k % len(ways)], path=path)
                for s in asked:
                    s.join(300)
                after = [min((x for x in s.times if x > t), default=t) - t for s in asked]
                paused.append(max(after))
                print(f"kill {k}: a token after {paused[-1]:.2f} s", flush=True)
                n_same += sum(s.done and s.answer() == want[i] for s, i in zip(asked, which))
                need(f"kill {k}: all are whole", all(s.done and not s.cut for s in asked))
            need("all are the same", n_same == 10 * n, f"{n_same} of {10 * n}")
            print(f"{n} kills, {n_same} of {10 * n} streams whole and the same, "
                  f"{a.metric('sluice:replays_total'):.0f} replays; from a kill to the next token "
                  f"{sorted(paused)[len(paused) // 2]:.2f} s, at most {max(paused):.2f} s")
        e.stop()


def not_for_ever(a, e, path):
    """What a replay does not do; the engine that is there at the end."""
    story = Story(a, "Three times")
    for _ in range(3):
        need("it runs", running([story], 30))
        e.stop(signal.SIGKILL)
        e = Engine(path=path)
    story.join(20)
    need("a third time is an error", story.done and story.error(), story.cut)
    need("ready once more", until(lambda: a.get("/ready")[0] == 200))
    kept = Story(a, "Until the end", timeout_ms=4000)
    left = Story(a, "Until its client leaves")
    other = Story(a, "Until another engine comes")
    need("they run", running([kept, left, other], 3))
    e.stop(signal.SIGKILL)
    t = time.time()
    kept.join(10)
    need("no replay is later than the request's time", kept.error() and
         kept.error()["code"] == "timeout" and time.time() - t < 6, kept.error())
    need("others wait", not other.done and not left.done)
    e = Engine("--kv", "f32", path=path)
    other.join(10)
    need("another engine is named", other.error() and "--kv" in other.error()["message"],
         other.error())
    need("it serves what is new", until(lambda: a.post(CHAT, chat())[0] == 200))
    return e


def groups():
    """Two engines behind one front: both work, and one takes over from the other."""
    with Engine() as x, Engine() as y:
        with Server("--attach", y.address, engine=x) as a:
            before = [cpu(e.proc.pid) for e in (x, y)]
            stories = [Story(a, f"Story {i}", temperature=1, seed=i) for i in range(6)]
            need("they run", running(stories, 40))
            used = [cpu(e.proc.pid) - b for e, b in zip((x, y), before)]
            need("on both", all(u > 0.03 for u in used), used)
            x.stop(signal.SIGKILL)
            need("ready with one", until(lambda: a.get("/ready")[0] == 200))
            for s in stories:
                s.join(60)
            need("all are whole", all(s.done and not s.error() for s in stories),
                 [s.error() for s in stories])
            want = [Story(a, f"Story {i}", temperature=1, seed=i) for i in range(6)]
            for s in want:
                s.join(60)
            need("and the same", [s.text() for s in stories] == [s.text() for s in want])


def cpu(pid):
    """Seconds that a process has computed."""
    with open(f"/proc/{pid}/stat") as f:
        col = f.read().rsplit(")", 1)[1].split()
    return (int(col[11]) + int(col[12])) / os.sysconf("SC_CLK_TCK")


def waiting():
    """A front that comes first has its port and waits; one of another model says so."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "engine")
        other = os.path.join(e2e.tiny(), "llama3.gguf")
        cmd = [e2e.sluice(), "serve", "--port", "0", "--attach", "unix:" + path]
        front = subprocess.Popen(cmd, stderr=subprocess.PIPE, text=True)
        wrong = subprocess.Popen([*cmd, "-m", other], stderr=subprocess.PIPE, text=True)
        for how, want in (signal.SIGTERM, 0), (signal.SIGINT, 130):
            ends = subprocess.Popen(cmd, stderr=subprocess.PIPE, text=True)
            ends.stderr.readline()
            ends.send_signal(how)
            need(f"one that waits ends with {want}", ends.wait(10) == want, ends.returncode)
        first = front.stderr.readline()
        need("a front says that it waits", "waiting for an engine" in first, first)
        port = int(first.split("port ")[1].split()[0])
        before(port)
        front.send_signal(signal.SIGHUP)
        wrong.stderr.readline()
        with Engine(path=path) as e:
            line = front.stderr.readline()
            need("and then it listens", "listening on http" in line and f":{port}" in line, line)
            need("ready", asked(port, "GET", "/ready")[0] == 200)
            need("it answers", asked(port, "POST", CHAT, chat(max_tokens=4))[0] == 200)
            line = wrong.stderr.readline()
            need("another model is named", "vocabulary" in line and "-m" in line, line)
            two = subprocess.run([e2e.sluice(), "engine", "--listen", "unix:" + path],
                                 capture_output=True, text=True)
            need("one engine a socket", two.returncode == 1 and "listens" in two.stderr, two.stderr)
            need("which the first keeps", os.path.exists(e.path))
            for p in (front, wrong):
                p.send_signal(signal.SIGTERM)
                p.communicate(timeout=10)


def asked(port, method, path, body=None):
    """(status, head, text)"""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    c.request(method, path, json.dumps(body) if body else None,
              {"Content-Type": "application/json"})
    r = c.getresponse()
    return r.status, dict(r.getheaders()), r.read().decode()


def before(port):
    """What a port says whose engine is not there yet."""
    need("alive before", asked(port, "GET", "/health")[0] == 200)
    for method, path, body in (("GET", "/ready", None), ("GET", "/v1/models", None),
                               ("POST", CHAT, chat()), ("POST", "/v1/messages", chat()),
                               ("GET", "/none", None)):
        status, head, text = asked(port, method, path, body)
        need(f"{path} before is 503", status in (503, 529), status)
        need(f"{path} says when again", head.get("Retry-After") == "1", head)
        need(f"{path} says why", "no engine" in text and json.loads(text)["error"], text)


FRONT_TOO = {"config", "quiet", "verbose", "json", "model", "chat-template", "drain", "sandbox",
             "max-queue", "seed"}  # options of the engine that a front needs for itself


def options(command):
    """{name: arguments of another value than the default} by --help."""
    out = {}
    text = subprocess.run([e2e.sluice(), command, "--help"], capture_output=True, text=True).stdout
    for line in text.split("options:")[1].split("example:")[0].split("\n"):
        m = re.match(r"  (?:-\w, |    )--([\w-]+)(?: (\S+))?", line)
        if not m:
            continue
        name, arg = m[1], m[2]
        out[name] = ([] if not arg else ["3"] if arg in ("N", "S") else ["0.5"] if arg == "F" else
                     [arg.split("|")[1]] if "|" in arg else
                     ["tp=2"] if name == "layout" else ["x"])
    return out


def refused():
    """Every option of the engine, whatever it is called, but for those that both need."""
    of_engine, of_front = options("engine"), options("serve")
    both = sorted((of_engine.keys() & of_front.keys()) - FRONT_TOO) + ["trace"]
    both = [name for name in both if not name.startswith("mock")]  # of a model, and refused by it
    need("there are many", len(both) > 20, both)
    for name in both:
        p = subprocess.run([e2e.sluice(), "serve", "--attach", "unix:/none", f"--{name}",
                            *of_front[name]], capture_output=True, text=True)
        need(f"{name} is the engine's", p.returncode == 2 and f"--{name}:" in p.stderr and
             "--attach" in p.stderr, p.stderr)
    p = subprocess.run([e2e.sluice(), "serve", "--attach", "unix:/none"], capture_output=True,
                       text=True, env=dict(os.environ, SLUICE_KV="q8"))
    need("of the environment, too", p.returncode == 2 and "--kv" in p.stderr, p.stderr)
    for args, says in ((["serve", "--attach", "/none"], "unix:PATH"),
                       (["serve", "--replay", "off"], "--attach"),
                       (["serve", "--attach", "unix:" + "x" * 200], "bytes"),
                       (["engine"], "--listen"), (["engine", "--listen", "tcp:1"], "unix:PATH")):
        p = subprocess.run([e2e.sluice(), *args], capture_output=True, text=True)
        need(f"{args[0]} {args[-1][:12]}", p.returncode in (1, 2) and says in p.stderr and
             p.stderr.count("\n") == 1, p.stderr)


if __name__ == "__main__":
    if KILLS:
        killed(KILLS)
        T.exit()
    refused()
    waiting()
    quiet()
    engine_killed()
    replayed()
    groups()
    T.exit()
