# SPDX-License-Identifier: Apache-2.0
"""Starting a server and talking to it: what the checks of `sluice serve` share."""
import atexit
import hashlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import ssl
import sys
import tempfile
import threading
import time
import weakref

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import e2e  # noqa: E402

DEMO = os.path.join(e2e.ROOT, "models", "demo", "demo.gguf")
TIMEOUT = 60  # seconds for one answer
KEYS = ("message", "type", "param", "code")


def unchunk(data):
    """The bytes of a body in chunks of HTTP, as far as it came."""
    out = b""
    while b"\r\n" in data:
        head, rest = data.split(b"\r\n", 1)
        n = int(head, 16)
        out, data = out + rest[:n], rest[n + 2:]
    return out


def events(sock):
    """The events of a stream as they come, for a socket of Server.open: parsed, or "[DONE]". An
    event may lie in two chunks of HTTP, and a chunk in two parts of TCP."""
    r = http.client.HTTPResponse(sock)
    r.begin()
    held = b""
    while part := r.read1(65536):
        *blocks, held = (held + part).split(b"\n\n")
        for line in (ln for b in blocks for ln in b.split(b"\n")):
            if line.startswith(b"data: "):
                yield "[DONE]" if line[6:] == b"[DONE]" else json.loads(line[6:])


# ---- what no client may see (H14) ----

class Leaks:
    """Looks through every answer of status 400 and more, its head too, and every error event of a
    stream, whoever reads it: addresses of memory, paths, places in the source, keys in use. A find
    ends the check with exit code 1."""
    KEEP = 1 << 16
    FORM = re.compile(rb"0x[0-9a-fA-F]{6,}"
                      rb"|/(?:usr|home|root|tmp|work|opt|var|etc|proc|dev|lib|build|mnt|srv|run)/"
                      rb"[\w.+-]+|\b[\w-]+\.(?:c|h|py|inc|cu):\d+")
    BAD = re.compile(rb'HTTP/1\.[01] [45]\d\d |"error":\s*\{|event: error|response\.failed')
    HEAD = re.compile(rb"HTTP/1\.[01] \d\d\d ")

    def __init__(self):
        self.lock, self.found, self.secret, self.n = threading.Lock(), set(), set(), 0
        self.held = weakref.WeakKeyDictionary()  # of each connection: the last bytes

    def hide(self, *texts):
        """Texts that no answer may hold."""
        self.secret |= {t.encode() for t in texts if len(t) >= 4}

    def look(self, text):
        found = {m[0] for m in self.FORM.finditer(text)} | {t for t in self.secret if t in text}
        with self.lock:
            self.n += 1
            self.found |= {(f, text[:300]) for f in found}

    def feed(self, sock, data):
        had = self.held.get(sock, b"")
        text = had + data
        at = 0
        while m := self.BAD.search(text, at):
            end = self.HEAD.search(text, m.end())
            self.look(text[m.start():end.start() if end else len(text)])
            if not end:
                self.held[sock] = text[m.start():][:self.KEEP]  # more of it may come
                return
            at = end.start()
        self.held[sock] = text[-64:]

    def verdict(self):
        if self.found:
            for what, where in sorted(self.found):
                print(f"FAIL leak: {what!r} in {where!r}", flush=True)
            os._exit(1)


leaks = Leaks()


def watched(cls):
    """Have what sockets of this class receive looked through."""
    recv, recv_into = cls.recv, cls.recv_into

    def see(self, *a, **k):
        data = recv(self, *a, **k)
        leaks.feed(self, data)
        return data

    def see_into(self, buf, *a, **k):
        n = recv_into(self, buf, *a, **k)
        leaks.feed(self, bytes(memoryview(buf)[:n]))
        return n
    cls.recv, cls.recv_into = see, see_into


watched(socket.socket)
watched(ssl.SSLSocket)
leaks.hide(e2e.ROOT, DEMO, os.path.realpath(DEMO), e2e.build_dir())
atexit.register(leaks.verdict)


# Run a check with SLUICE_TEST_ATTACH=1: every server is an engine and a front that is attached.
ATTACH = os.environ.get("SLUICE_TEST_ATTACH") == "1"
OF_ENGINE = ("--max-batch", "--kv-tokens", "--chunk", "--prefix-cache", "--ctx", "-c", "--acts",
             "--kv", "--draft", "--draft-max", "-t", "--device", "--place", "--experts-device",
             "--cpu-moe", "--n-cpu-moe", "--layout", "--defer", "--hot-experts", "--hot-from",
             "--hot-update", "--stream-from", "--fallback", "--prefill", "--prefill-from")


def split(args):
    """(options of the engine, of the front); values do not begin with --."""
    engine, front = [], []
    args = list(args)
    while args:
        n = 2 if len(args) > 1 and not args[1].startswith("--") else 1
        one, args = args[:n], args[n:]
        if one[0] in OF_ENGINE or one[0] in ("--max-queue", "-m"):
            engine += one
        if one[0] not in OF_ENGINE:
            front += one
    return engine, front


class Engine:
    """sluice engine on a socket of its own. with Engine("--max-batch", "4") as e: e.address"""

    def __init__(self, *args, env=None, model=DEMO, path=None, before=()):
        self.folder = None if path else tempfile.TemporaryDirectory()
        self.path = path or os.path.join(self.folder.name, "engine")
        self.address = "unix:" + self.path
        self.log = []
        self.proc = subprocess.Popen([*before, e2e.sluice(), "engine", "-m", model, "--listen",
                                      self.address, "-t", "2", *args], stderr=subprocess.PIPE,
                                     env=dict(os.environ, LC_ALL="C.UTF-8", **(env or {})))
        while not self.log or not self.log[-1].startswith(b"sluice: listening on unix:"):
            self.log.append(self.proc.stderr.readline())
            if not self.log[-1]:
                raise RuntimeError(f"engine ended: {self.proc.wait()} {self.log}")
        self.reader = threading.Thread(target=lambda: self.log.extend(self.proc.stderr),
                                       daemon=True)
        self.reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *a):
        self.stop()

    def stop(self, how=signal.SIGTERM):
        """The exit code."""
        if self.proc.poll() is None:
            self.proc.send_signal(how)
        code = self.proc.wait(30)
        self.reader.join(5)
        return code


class Server:
    """A server on a free port. with Server("--max-batch", "4") as s: ... engine: attached to."""

    def __init__(self, *args, env=None, model=DEMO, engine=None):
        self.engine, more = None, ["-t", "2"]
        if ATTACH and not engine:
            own, args = split(args)
            self.engine = engine = Engine(*own, env=env, model=model)
        if engine:
            more = ["--attach", engine if isinstance(engine, str) else engine.address]
        self.cmd = [e2e.sluice(), "serve", "-m", model, "--port", "0", "--log-json", *more, *args]
        self.proc = subprocess.Popen(self.cmd, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                     env=dict(os.environ, LC_ALL="C.UTF-8", **(env or {})))
        self.log, self.port = [], 0
        while not self.port:
            line = self.proc.stderr.readline()
            if not line:
                self.proc.wait()
                if b"this build has no" in b"".join(self.log):
                    print("no serve in this build: skipped")
                    sys.exit(77)
                raise RuntimeError(f"serve ended: {self.proc.returncode} {self.log}")
            self.log.append(line)
            try:
                self.port = json.loads(line).get("port", 0)
            except ValueError:
                pass
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.proc.stderr:
            self.log.append(line)

    def __enter__(self):
        return self

    def __exit__(self, *a):
        try:
            if self.proc.poll() is None:
                self.proc.send_signal(signal.SIGTERM)
                try:
                    self.proc.wait(20)
                except subprocess.TimeoutExpired:
                    self.proc.kill()
                    raise
        finally:
            if self.engine:
                self.engine.stop()

    def stop(self, timeout=20):
        """SIGTERM; the exit code."""
        self.proc.send_signal(signal.SIGTERM)
        code = self.proc.wait(timeout)
        self.reader.join(5)
        if self.engine:
            self.engine.stop()
        return code

    def raw(self, data, timeout=10, half=False, limit=1 << 24):
        """Send bytes, read until the server closes or is silent for `timeout`; what came."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as s:
            out = b""
            try:
                s.sendall(data)
                if half:
                    s.shutdown(socket.SHUT_WR)
                while len(out) < limit:
                    part = s.recv(65536)
                    if not part:
                        break
                    out += part
            except (ConnectionResetError, BrokenPipeError):
                pass
            except socket.timeout:
                out += b"<TIMEOUT>"
            return out

    def open(self, body, path="/v1/chat/completions", headers=None, rcvbuf=0, tls=None):
        """A socket on which the request was sent and nothing read. tls: a context."""
        s = socket.socket()
        if rcvbuf:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        s.settimeout(30)
        s.connect(("127.0.0.1", self.port))
        s = tls.wrap_socket(s) if tls else s
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n"
        for k, v in (headers or {}).items():
            head += f"{k}: {v}\r\n"
        s.sendall(head.encode() + b"\r\n" + data)
        return s

    def call(self, method, path, body=None, headers=None):
        """(status, headers, body bytes)"""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        try:
            data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
            c.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
            r = c.getresponse()
            head = dict((k.lower(), v) for k, v in r.getheaders())
            if len(head) != len(r.getheaders()):
                raise ValueError(f"a header twice: {r.getheaders()}")
            return r.status, head, r.read()
        finally:
            c.close()

    def post(self, path, body, headers=None):
        """(status, parsed JSON)"""
        status, _, data = self.call("POST", path, body, headers)
        return status, json.loads(data)

    def get(self, path, headers=None):
        return self.call("GET", path, None, headers)

    def stream(self, path, body, headers=None):
        """(status, list of parsed events, comments); the last event of a good stream is
        "[DONE]"."""
        status, head, data = self.call("POST", path, dict(body, stream=True), headers)
        if status != 200:
            return status, json.loads(data), []
        events, comments = [], []
        for block in data.decode().split("\n\n"):
            for line in block.split("\n"):
                if line.startswith("data: "):
                    text = line[6:]
                    events.append(text if text == "[DONE]" else json.loads(text))
                elif line.startswith(":"):
                    comments.append(line)
        return status, events, comments

    def metric(self, name, headers=None):
        for line in self.get("/metrics", headers)[2].decode().split("\n"):
            if line.startswith(name + "{") or line.startswith(name + " "):
                return float(line.rsplit(" ", 1)[1])
        return None

    def idle(self, timeout=10):
        """Wait until nothing is running; seconds it took, or None."""
        t0 = time.time()
        while time.time() - t0 < timeout:
            if self.metric("vllm:num_requests_running") == 0 and \
                    self.metric("vllm:num_requests_waiting") == 0:
                return time.time() - t0
        return None


def error_of(data):
    """What is wrong with this as an error body (None: nothing)."""
    try:
        e = json.loads(data)["error"]
    except (ValueError, KeyError, TypeError) as x:
        return f"not an error object: {data[:200]!r} {x}"
    if set(e) != set(KEYS):
        return f"keys {sorted(e)}"
    if not isinstance(e["message"], str) or not e["message"] or not isinstance(e["type"], str):
        return f"message or type: {e}"
    return None


def key_line(name, key, more=""):
    leaks.hide(key, hashlib.sha256(key.encode()).hexdigest())
    return f"{name} {hashlib.sha256(key.encode()).hexdigest()} {more}\n"


def rss(s):
    """Resident memory of a server, KiB."""
    with open(f"/proc/{s.proc.pid}/status") as f:
        return next(int(ln.split()[1]) for ln in f if ln.startswith("VmRSS"))


def chat(text="What is 17 + 25?", **more):
    return {"messages": [{"role": "user", "content": text}],
            "temperature": 0, "max_tokens": 16, **more}
