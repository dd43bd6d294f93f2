# SPDX-License-Identifier: Apache-2.0
"""Starting a server and talking to it: what the checks of `sluice serve` share."""
import hashlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import e2e  # noqa: E402

DEMO = os.path.join(e2e.ROOT, "models", "demo", "demo.gguf")
TIMEOUT = 60  # seconds for one answer
KEYS = ("message", "type", "param", "code")


class Server:
    """A server on a free port. with Server("--max-batch", "4") as s: ..."""

    def __init__(self, *args, env=None):
        self.cmd = [e2e.sluice(), "serve", "-m", DEMO, "--port", "0", "--log-json", "-t", "2", *args]
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
        if self.proc.poll() is None:
            self.proc.send_signal(signal.SIGTERM)
            try:
                self.proc.wait(20)
            except subprocess.TimeoutExpired:
                self.proc.kill()
                raise

    def stop(self, timeout=20):
        """SIGTERM; the exit code."""
        self.proc.send_signal(signal.SIGTERM)
        code = self.proc.wait(timeout)
        self.reader.join(5)
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

    def open(self, body, path="/v1/chat/completions", headers=None, rcvbuf=0):
        """A socket on which the request was sent and nothing read."""
        s = socket.socket()
        if rcvbuf:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        s.settimeout(30)
        s.connect(("127.0.0.1", self.port))
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
            return r.status, dict((k.lower(), v) for k, v in r.getheaders()), r.read()
        finally:
            c.close()

    def post(self, path, body, headers=None):
        """(status, parsed JSON)"""
        status, _, data = self.call("POST", path, body, headers)
        return status, json.loads(data)

    def get(self, path, headers=None):
        return self.call("GET", path, None, headers)

    def stream(self, path, body, headers=None):
        """(status, list of parsed events, comments); the last event of a good stream is "[DONE]"."""
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
    return f"{name} {hashlib.sha256(key.encode()).hexdigest()} {more}\n"


def rss(s):
    """Resident memory of a server, KiB."""
    with open(f"/proc/{s.proc.pid}/status") as f:
        return next(int(ln.split()[1]) for ln in f if ln.startswith("VmRSS"))


def chat(text="What is 17 + 25?", **more):
    return {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 16, **more}
