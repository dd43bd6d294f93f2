# SPDX-License-Identifier: Apache-2.0
"""HTTP as bytes: what a strict server refuses, how splits and sizes are taken (H3, H4), who is cut
off.

check_http.py BUILD [--full]: --full sends 1 GiB where a client never ends a line."""
import json
import random
import select
import socket
import struct
import sys
import time

from serve import Server, chat, error_of
import e2e

T = e2e.Tally("serve: http")
BODY = json.dumps({"prompt": "Once upon", "max_tokens": 2, "temperature": 0}).encode()
HEAD_BYTES = 16 << 10  # docs/serving.md
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"


def status_of(data):
    return int(data[9:12]) if data.startswith(b"HTTP/1.1 ") and data[9:12].isdigit() else 0


def expect(name, data, *want):
    """want: statuses; 0 stands for "closed without an answer"."""
    got = status_of(data)
    T.check(name, None if got in want else f"{got} not in {want}: {data[:120]!r}")


def smuggling(s):
    n = len(BODY)
    length = b"Content-Length: %d\r\n" % n
    chunked = b"Transfer-Encoding: chunked\r\n"
    body = b"%x\r\n%s\r\n0\r\n\r\n" % (n, BODY)
    close = b"Connection: close\r\n"
    for name, head, tail, want in [
        ("good length", length, BODY, (200, )),
        ("good chunked", chunked, body, (200, )),
        ("CL and TE", length + chunked, body, (400, )),
        ("TE and CL", chunked + length, body, (400, )),
        ("CL twice", length * 2, BODY, (400, )),
        ("two CL", length + b"Content-Length: 3\r\n", BODY, (400, )),
        ("CL list", b"Content-Length: %d, %d\r\n" % (n, n), BODY, (400, )),
        ("CL plus", b"Content-Length: +%d\r\n" % n, BODY, (400, )),
        ("CL minus", b"Content-Length: -5\r\n", BODY, (400, )),
        ("CL hex", b"Content-Length: 0x10\r\n", BODY, (400, )),
        ("CL empty", b"Content-Length: \r\n", BODY, (400, )),
        ("CL huge", b"Content-Length: 99999999999999999999999\r\n", BODY, (400, 413)),
        ("CL 2^63", b"Content-Length: 9223372036854775808\r\n", BODY, (400, 413)),
        ("TE gzip", b"Transfer-Encoding: gzip\r\n", BODY, (400, 501)),
        ("TE gzip, chunked", b"Transfer-Encoding: gzip, chunked\r\n", body, (400, 501)),
        ("TE twice", chunked * 2, body, (400, )),
        ("TE identity", b"Transfer-Encoding: identity\r\n" + length, BODY, (400, )),
        ("TE xchunked", b"Transfer-Encoding: xchunked\r\n", body, (400, )),
        ("chunk size text", chunked, b"zz\r\n" + BODY + b"\r\n0\r\n\r\n", (400, 0)),
        ("chunk size minus", chunked, b"-1\r\n" + BODY + b"\r\n0\r\n\r\n", (400, 0)),
        ("chunk size huge", chunked, b"ffffffffffffffffff\r\n" + BODY, (400, 413, 0)),
        ("two hosts", length + b"Host: other\r\n", BODY, (400, )),
        ("header without colon", length + b"nocolon\r\n", BODY, (400, 0)),
        ("space before colon", b"Content-Length : %d\r\n" % n, BODY, (400, 0)),
    ]:
        out = s.raw(HEAD + close + head + b"\r\n" + tail, timeout=3)
        if out.endswith(b"<TIMEOUT>") and not status_of(out):
            out = b""
        expect(name, out, *want)
        # the library writes the head of some of its own refusals twice, and closes: harmless
        T.check(f"{name}: one answer", "two answers" if out.count(b"\r\n\r\n{") > 1 else None)
    for name, data, want in [
        ("no host", b"GET /health HTTP/1.1\r\n\r\n", (400, )),
        ("HTTP/0.9", b"GET /health\r\n\r\n", (400, 0, 505)),
        ("HTTP/3.0", b"GET /health HTTP/3.0\r\nHost: localhost\r\n\r\n", (400, 0, 505)),
        ("HTTP/1.0", b"GET /health HTTP/1.0\r\n\r\n", (200, 0)),
        ("garbage", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20 + b"\r\n\r\n", (400, 0)),
        ("bare LF line", b"GET /health HTTP/1.1\nHost: localhost\n\n", (200, 400, 0)),
        ("only CRLF", b"\r\n" * 2000, (400, 0)),
        ("space in target", b"GET /hea lth HTTP/1.1\r\nHost: localhost\r\n\r\n", (400, 404, 0)),
        ("absolute target", b"GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
         (200, )),
        ("absolute target and query",
         b"GET HTTP://[::1]:1/health?a=b HTTP/1.1\r\nHost: localhost\r\n\r\n", (200, )),
        ("absolute target of https",
         b"GET https://127.0.0.1/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n", (200, )),
        ("absolute target without a path",
         b"GET http://localhost HTTP/1.1\r\nHost: localhost\r\n\r\n", (200, )),
        ("absolute target, query without a path",
         b"GET http://localhost?a HTTP/1.1\r\nHost: localhost\r\n\r\n", (200, )),
        ("absolute target over HTTP/1.0", b"GET http://localhost/health HTTP/1.0\r\n\r\n", (200, )),
        ("absolute target without Host", b"GET http://localhost/health HTTP/1.1\r\n\r\n", (400, )),
        ("the target's name counts", b"GET http://localhost/health HTTP/1.1\r\nHost: evil\r\n\r\n",
         (200, )),
        ("and not that of Host", b"GET http://evil/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
         (403, )),
        ("absolute target of an unknown path",
         b"GET http://localhost/nothing HTTP/1.1\r\nHost: localhost\r\n\r\n", (404, )),
        ("absolute target inside another",
         b"GET http://localhost/http://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
         (404, )),
        ("absolute target after a slash",
         b"GET /http://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n", (404, )),
        ("the target's origin",
         b"GET http://localhost/health HTTP/1.1\r\nHost: evil\r\nOrigin: http://localhost\r\n\r\n",
         (200, )),
        ("an origin of Host's",
         b"GET http://localhost/health HTTP/1.1\r\nHost: evil\r\nOrigin: http://evil\r\n\r\n",
         (403, )),
        ("long line", b"GET /" + b"a" * 40000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
         (414, 431, 400, 413, 0)),
        ("long header",
         b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 40000 + b"\r\n\r\n", (431, 400,
                                                                                          413, 0)),
        ("many headers",
         b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 5000 + b"\r\n", (431, 400,
                                                                                         413, 0)),
        ("no newline", b"A" * 300000, (414, 431, 400, 413, 0))
    ]:
        out = s.raw(data, timeout=2)
        if out.startswith(b"HTTP/1.0 "):
            out = b"HTTP/1.1 " + out[9:]
        expect(name, b"" if out == b"<TIMEOUT>" else out, *want)


def sizes(s):
    big = b"{\"prompt\": \"" + b"x" * (3 << 20) + b"\"}"
    out = s.raw(HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(big) + big)
    expect("3 MiB", out, 413)
    T.check("3 MiB body",
            error_of(out.split(b"\r\n\r\n", 1)[1]) if status_of(out) == 413 else "no 413")
    out = s.raw(HEAD + b"Content-Length: %d\r\n\r\n" % (1 << 40) + big, timeout=5)
    expect("1 TiB", out, 413, 0)
    chunks = b"".join(b"%x\r\n%s\r\n" % (65536, b"x" * 65536) for _ in range(48))
    expect("3 MiB chunked",
           s.raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"), 413)
    rss = s_rss(s)
    out = s.raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks * 10, timeout=5)
    expect("30 MiB chunked", out, 413, 0)
    T.check("flat memory", None if s_rss(s) < rss + 16384 else f"{rss} -> {s_rss(s)} KiB")


def endless(s):
    """H4: a line, a field, a chunk size, a body without end: cut after at most what the kernel's
    buffers and one head hold."""
    most = (1 << 30) if "--full" in sys.argv else 64 << 20
    piece, rss = b"a" * 65536, s_rss(s)
    for name, first, cut in [
        ("line", b"GET /", 4 << 20),
        ("field name", b"GET /health HTTP/1.1\r\nHost: localhost\r\n", 4 << 20),
        ("field", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ", 4 << 20),
        ("no line", b"", 4 << 20),
        ("chunk size", HEAD + b"Transfer-Encoding: chunked\r\n\r\n", 4 << 20),
        ("chunk extension", HEAD + b"Transfer-Encoding: chunked\r\n\r\n5;", 4 << 20),
        ("chunk", HEAD + b"Transfer-Encoding: chunked\r\n\r\n7fffffff\r\n", 32 << 20),
        ("length", HEAD + b"Content-Length: 2147483647\r\n\r\n", 32 << 20)
    ]:
        n, out = 0, b""
        with socket.create_connection(("127.0.0.1", s.port), timeout=20) as c:
            try:
                c.sendall(first)
                while n < most:
                    c.sendall(piece)
                    n += len(piece)
            except OSError:
                pass
            try:
                out = c.recv(4096)
            except OSError:
                pass
        T.check(f"endless {name}: cut", None if n < cut else f"took {n} bytes")
        want = (0, 400, 413, 414, 431,
                500) if name == "chunk extension" else (0, 400, 413, 414,
                                                        431)  # there it is the library's own word
        T.check(f"endless {name}: {status_of(out)}",
                None if status_of(out) in want else f"{out[:100]!r}")
    for name, first, cap in [
        ("line", b"GET /", HEAD_BYTES),
        ("field name", b"GET /health HTTP/1.1\r\nHost: localhost\r\n", HEAD_BYTES),
        ("field", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ", HEAD_BYTES),
        ("no line", b"", HEAD_BYTES),
        ("chunk size", HEAD + b"Transfer-Encoding: chunked\r\n\r\n", HEAD_BYTES),
        ("length", HEAD + b"Content-Length: 2147483647\r\n\r\n", 0)
    ]:
        taken = taken_before_cut(s, first)
        T.check(f"endless {name}: {taken} bytes before the cut",
                None if taken <= cap else f"over {cap}")
    T.check("endless: memory", None if s_rss(s) < rss + 4096 else f"{rss} -> {s_rss(s)} KiB")


def taken_before_cut(s, first):
    """Bytes after first, in small pieces with time between them, until the server answers or
    closes."""
    n = 0
    with socket.create_connection(("127.0.0.1", s.port), timeout=20) as c:
        c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        c.sendall(first)
        while n < 1 << 20 and not select.select([c], [], [], 0.004 if n else 0.3)[0]:
            try:
                c.sendall(b"a" * 256)
            except OSError:
                break
            n += 256
    return n


def s_rss(s):
    with open(f"/proc/{s.proc.pid}/status") as f:
        for line in f:
            if line.startswith("VmRSS"):
                return int(line.split()[1])


def splits(s):
    rng = random.Random(1)
    whole = HEAD + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(BODY) + BODY
    want = None
    for i in range(60):
        cuts = sorted(rng.sample(range(1, len(whole)), rng.randint(1, 6)))
        with socket.create_connection(("127.0.0.1", s.port), timeout=10) as c:
            c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for a, b in zip([0] + cuts, cuts + [len(whole)]):
                c.sendall(whole[a:b])
                time.sleep(0.0005)
            out = b""
            while True:
                p = c.recv(65536)
                if not p:
                    break
                out += p
        text = json.loads(out.split(b"\r\n\r\n", 1)[1])["choices"] if status_of(out) == 200 else out
        want = want or text
        T.check(f"split {cuts}", None if text == want else f"{text}")
    pipe = (whole.replace(b"Connection: close\r\n", b"")) * 3 + whole
    out = s.raw(pipe)
    T.check("four pipelined",
            None if out.count(b"HTTP/1.1 200") == 4 else f"{out.count(b'HTTP/1.1 200')}")


STORY = {
    "messages": [{
        "role": "user",
        "content": "Tell a story"
    }],
    "max_tokens": 1800,
    "ignore_eos": True,
    "temperature": 1
}


def leaving(s):
    """Clients that leave at any moment: their work ends, others' goes on."""
    rng = random.Random(2)
    for i in range(40):
        stream, n, rst = bool(i & 1), 1 + i % 3, bool(i & 2)
        c = s.open(dict(STORY, stream=stream, n=n))
        time.sleep(rng.random() * 0.02)
        if rst:
            c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        c.close()
        gone = s.idle(5)
        T.check(f"leaving {i}", None if gone is not None else "still running")
    for i in range(30):  # while a worker still compiles the form
        schema = {
            "type": "object",
            "properties": {
                f"k{i}": {
                    "type": "string",
                    "maxLength": 20000
                }
            },
            "required": [f"k{i}"]
        }
        c = s.open(
            dict(STORY,
                 stream=bool(i & 1),
                 response_format={
                     "type": "json_schema",
                     "json_schema": {
                         "schema": schema
                     }
                 }))
        time.sleep(rng.random() * 0.03)
        c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        c.close()
        gone = s.idle(5)
        T.check(f"leaving a worker {i}", None if gone is not None else "still running")
    for i in range(5):
        c = s.open(dict(STORY, stream=True, max_tokens=40))
        c.shutdown(socket.SHUT_WR)
        out = b""
        while True:
            p = c.recv(65536)
            if not p:
                break
            out += p
        T.check(f"half-closed stream {i}", None if b"[DONE]" in out else f"{out[-100:]!r}")


def slow_reader(s):
    """A reader that stops: its request ends, the memory held for it is bounded."""
    rss = s_rss(s)
    socks = [
        s.open(dict(STORY, stream=True, logprobs=True, top_logprobs=20), rcvbuf=4096)
        for _ in range(6)
    ]
    t0 = time.time()
    while time.time() - t0 < 20 and s.metric("vllm:num_requests_running") > 0:
        time.sleep(0.2)
    T.check("stopped readers", None if time.time() - t0 < 19 else "still running")
    T.check("memory of stopped readers",
            None if s_rss(s) - rss < 6 * 1024 else f"{s_rss(s) - rss} KiB for 6")
    t1 = time.time()
    status, r = s.post("/v1/completions", {"prompt": "x", "max_tokens": 2})
    T.check("others go on", None if status == 200 and time.time() - t1 < 5 else f"{status}")
    for c in socks:
        c.close()


def slow_senders(s):
    """Heads and bodies that drip are closed at their deadline; others do not notice."""
    head = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(50)]
    body = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(50)]
    for c in head:
        c.sendall(b"GET /health HTTP/1.1\r\nHost: l")
    for c in body:
        c.sendall(HEAD + b"Content-Length: 5000\r\n\r\n{")
    return head, body, time.time()


def slow_senders_end(s, head, body, t0):
    deadline = t0 + 18
    for name, socks in (("head", head), ("body", body)):
        for c in socks:
            c.settimeout(max(0.1, deadline - time.time()))
            try:
                while c.recv(4096):
                    pass
                ok = True
            except ConnectionResetError:
                ok = True
            except socket.timeout:
                ok = False
            T.check(f"slow {name}", None if ok else "still open after 18 s")
            c.close()


with Server() as server:
    slow = slow_senders(server)
    for part in (smuggling, sizes, endless, splits, leaving, slow_reader):
        part(server)
    slow_senders_end(server, *slow)
    status, r = server.post("/v1/chat/completions", chat())
    T.check("alive", None if status == 200 else f"{status} {r}")
    T.check("exit", None if server.stop() == 0 else "not 0")
T.exit()
