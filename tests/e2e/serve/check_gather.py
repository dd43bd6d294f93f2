# SPDX-License-Identifier: Apache-2.0
"""Which tokens of a stream leave together (--stream-interval-ms), told by the chunks of the chunked
coding: one for each send."""
import json
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time

from serve import Server
import e2e

T = e2e.Tally("serve: gathering")
INTERVAL = 32  # docs/serving.md
SIZE = ("-c", "8192", "--kv-tokens", "16384")


def need(name, cond, what=""):
    T.check(name, None if cond else (str(what) or "not so"))


class Stream:
    """A completion; chunks: (when it was read, its bytes)."""

    def __init__(self, s, n, prompt=None, tls=None):
        self.chunks, self.sent = [], time.monotonic()
        self.sock = s.open({"prompt": prompt or [100, 200, 300],
                            "max_tokens": n, "temperature": 0, "ignore_eos": True, "stream": True,
                            "stream_options": {"include_usage": True},
                            "cache_salt": str(self.sent)}, path="/v1/completions", tls=tls)
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        data = b""
        while b"\r\n\r\n" not in data:
            data += self.sock.recv(1)
        data = b""
        while part := self.sock.recv(1 << 16):
            data += part
            while b"\r\n" in data:
                head, rest = data.split(b"\r\n", 1)
                n = int(head, 16)
                if not n:
                    return
                if len(rest) < n + 2:
                    break
                self.chunks.append((time.monotonic(), rest[:n]))
                data = rest[n + 2:]

    def close(self):
        self.sock.shutdown(socket.SHUT_RD)
        self.thread.join(10)
        self.sock.close()

    def end(self):
        """Its tokens, the times the server tells, and the events of each chunk."""
        self.thread.join(60)
        self.sock.close()
        text = b"".join(c for _, c in self.chunks)
        events = [json.loads(ln[6:]) for ln in text.decode().split("\n")
                  if ln.startswith("data: {")]
        last = events[-1]
        if "usage" not in last:
            return 0, {}, text[-300:]
        return last["usage"]["completion_tokens"], last[
            "timings"], [c.count(b"data: {") for _, c in self.chunks]


def rate(name, s, n_per_send, tls=None):
    """However long steps take here, half an interval lies between two sends. n_per_send: chunks
    that the library makes of one."""
    stream = Stream(s, 1200, tls=tls)
    n, t, per = stream.end()
    need(f"{name}: whole", n == 1200, per)
    # more: the first, the end, and 64 KiB that end in the middle of a send
    most = (t["decode_ms"] / (INTERVAL / 2) + 16) * n_per_send
    need(f"{name}: {len(per)} sends in {t['decode_ms']:.0f} ms",
         len(per) <= most, f"over {most:.0f}")


def at_once():
    with Server("--stream-interval-ms", "0", *SIZE) as s:
        n, _, per = Stream(s, 1200).end()
        need(f"0: {len(per)} sends of 1200 tokens", n == 1200 and len(per) >= 600, per)


def long_interval():
    with Server("--stream-interval-ms", "1000", *SIZE) as s:
        stream = Stream(s, 100)
        n, t, per = stream.end()
        need("first token and end", n == 100 and 1 < len(per) < 10 and per[0] < 60, per)
        late = [1e3 * (stream.chunks[k][0] - stream.sent) - t[key] for k,
                key in ((0, "ttft_ms"), (-1, "total_ms"))]
        need("first token and end: at once", max(late) < 500, late)
        n, _, per = Stream(s, 4000).end()
        need("more than the server holds for a stream", n == 4000, per)
        stream = Stream(s, 8000)
        while len(stream.chunks) < 2:
            time.sleep(0.01)
        t0 = time.monotonic()
        beside = Stream(s, 2, [100 + i * 7919 % 300 for i in range(1900)])
        beside.end()
        t1 = time.monotonic()
        n = sum(t0 < t < t1 for t, _ in stream.chunks)
        need(f"beside a prompt of 1900 tokens: {n} sends", n >= 12, f"{n} in {t1 - t0:.3f} s")
        need("its progress", sum(b": prefill" in c for _, c in beside.chunks) >= 2,
             beside.chunks[:3])
        stream.close()
        took = s.idle()
        need("cancelled", took is not None and took < 1, took)


def tls(tmp):
    if not shutil.which("openssl"):
        return
    cert, key = os.path.join(tmp, "cert.pem"), os.path.join(tmp, "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048",
                    "-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost"],
                   check=True, capture_output=True)
    ctx = ssl.create_default_context(cafile=cert)
    ctx.check_hostname = False
    with Server("--tls-cert", cert, "--tls-key", key, *SIZE) as s:
        rate("TLS", s, 4, ctx)


with Server(*SIZE) as server:
    rate("two threads", server, 1)
with Server(*SIZE, "-t", "1") as server:
    rate("one thread", server, 1)
at_once()
long_interval()
with e2e.scratch() as tmp_dir:
    tls(tmp_dir)
T.exit()
