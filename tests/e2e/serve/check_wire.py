# SPDX-License-Identifier: Apache-2.0
"""The wire as an attacker sees it: malformed HTTP (H1), the same behind nginx (H2), addresses in
requests (H13).

check_wire.py BUILD [--full]. The cases are written from RFC 9110 and 9112. nginx and strace where
they are installed."""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

from serve import Server, chat, error_of
import e2e

FULL = "--full" in sys.argv
T = e2e.Tally("serve: wire")
BODY = json.dumps({"prompt": "Once", "max_tokens": 1, "temperature": 0}).encode()
N = len(BODY)
END = b"\r\n\r\n"
NEXT = b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: smuggled\r\n\r\n"


def need(name, cond, what=""):
    T.check(name, None if cond else (str(what)[:300] or "not so"))


def line(text):
    return text + b"\r\nHost: localhost" + END


def head(text, first=b"GET /health HTTP/1.1\r\nHost: localhost\r\n"):
    return first + text + END


def post(fields, tail=BODY):
    return b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" + fields + END + tail


def chunks(*lines):
    """A chunked body; the pieces as they are."""
    return post(b"Transfer-Encoding: chunked", b"".join(lines))


def must():
    """(name, bytes): each must be refused (4xx, 5xx or closed), and nothing after it may be taken
    for a request."""
    for name, text in {
            "two spaces": b"GET  /health HTTP/1.1",
            "tab": b"GET\t/health HTTP/1.1", "leading space": b" GET /health HTTP/1.1",
            "spaces before version": b"GET /health  HTTP/1.1",
            "trailing word": b"GET /health HTTP/1.1 x", "no version": b"GET /health",
            "no method": b"/health HTTP/1.1", "no target": b"GET HTTP/1.1",
            "HTTP/1": b"GET /health HTTP/1", "HTTP/1.1.1": b"GET /health HTTP/1.1.1",
            "HTTP/11": b"GET /health HTTP/11", "lower case version": b"GET /health http/1.1",
            "HTTP/1.x": b"GET /health HTTP/1.x",
            "HTTP/2.0": b"GET /health HTTP/2.0", "HTTP/9.9": b"GET /health HTTP/9.9",
            "HTTP /1.1": b"GET /health HTTP /1.1",
            "HTTP/ 1.1": b"GET /health HTTP/ 1.1",
            "HTTP/1,1": b"GET /health HTTP/1,1", "FTP/1.1": b"GET /health FTP/1.1",
            "HTTP/-1.1": b"GET /health HTTP/-1.1",
            "HTTP/1.10": b"GET /health HTTP/1.10", "method with space": b"G ET /health HTTP/1.1",
            "method with (": b"GE(T /health HTTP/1.1", "method with control":
                b"GE\x01T /health HTTP/1.1", "method with NUL": b"G\0T /health HTTP/1.1",
            "method with colon": b"GET: /health HTTP/1.1",
            "target with control": b"GET /hea\x01lth HTTP/1.1", "target with DEL":
                b"GET /hea\x7flth HTTP/1.1", "target with NUL": b"GET /health\0x HTTP/1.1",
            "target with space": b"GET /hea lth HTTP/1.1",
            "fragment": b"GET /health#a HTTP/1.1", "CR in the line": b"GET /health\rx HTTP/1.1",
            "asterisk": b"GET * HTTP/1.1", "authority": b"GET localhost:80 HTTP/1.1",
            "CONNECT": b"CONNECT localhost:80 HTTP/1.1",
            "relative target": b"GET health HTTP/1.1", "backslash": b"GET \\health HTTP/1.1",
            "absolute target without a name": b"GET http:///health HTTP/1.1",
            "with a port only": b"GET http://:80/health HTTP/1.1",
            "with a user": b"GET http://user@localhost/health HTTP/1.1",
            "with an escaped NUL": b"GET /health%00 HTTP/1.1",
            "with an escaped line end": b"GET /v1/models%0d%0a HTTP/1.1",
            "with an escaped DEL": b"GET /health%7F HTTP/1.1",
            "with an escape": b"GET http://localhost%2f/health HTTP/1.1",
            "with a port that is none": b"GET http://localhost:8x/health HTTP/1.1",
            "with a port and more": b"GET http://localhost:80:80/health HTTP/1.1",
            "with half an address": b"GET http://[::1/health HTTP/1.1",
            "with more than an address": b"GET http://[::1]a/health HTTP/1.1",
            "of another scheme": b"GET ftp://localhost/health HTTP/1.1",
            "with one slash": b"GET http:/localhost/health HTTP/1.1",
            "with an escaped scheme": b"GET %68ttp://localhost/health HTTP/1.1"}.items():
        yield "line: " + name, line(text)
    for c in b"(),/;<=>?@[\\]{}\"":
        yield f"name with {chr(c)}", head(b"X%cY: 1" % c)
    for name, text in {
            "no colon": b"nocolon", "space before colon": b"X : 1",
            "tab before colon": b"X\t: 1", "empty name": b": 1", "control in name": b"X\x01: 1",
            "NUL in name": b"X\0Y: 1", "high byte in name": b"X\xe9: 1",
            "space in name": b"X Y: 1", "NUL in value": b"X: a\0b", "CR in value": b"X: a\rb",
            "CR at the end": b"X: a\r", "first line folded": b" X: 1"}.items():
        folded = b"GET /health HTTP/1.1\r\n X: 1\r\nHost: localhost" + END
        yield "field: " + name, head(text) if name != "first line folded" else folded
    yield ("field: a lone LF and an empty name",
           b"GET /health HTTP/1.1\nHost: localhost\r\n:\r\nX: 1" + END)
    yield "host: none", b"GET /health HTTP/1.1" + END
    yield "host: two", head(b"Host: localhost")
    yield "host: two that differ", head(b"Host: other")
    for h in (b"a b", b"a/b", b"user@localhost", b"localhost, other", b"[::1", b"localhost:8x",
              b"local\thost", b"localhost\x01", b"http://localhost", b"loc%00alhost"):
        yield f"host: {h!r}", b"GET /v1/models HTTP/1.1\r\nHost: " + h + END
    for name, text in {
            "twice": b"Content-Length: %d\r\nContent-Length: %d" % (N, N),
            "two": b"Content-Length: %d\r\nContent-Length: 3" % N,
            "list": b"Content-Length: %d, %d" % (N, N),
            "list that differs": b"Content-Length: %d, 3" % N, "plus": b"Content-Length: +%d" % N,
            "minus": b"Content-Length: -%d" % N, "minus 0": b"Content-Length: -0",
            "hex": b"Content-Length: 0x%x" % N, "empty": b"Content-Length: ",
            "word": b"Content-Length: abc", "point": b"Content-Length: %d.0" % N,
            "exponent": b"Content-Length: 1e1", "space in it": b"Content-Length: 1 0",
            "2^63": b"Content-Length: 9223372036854775808",
            "2^64": b"Content-Length: 18446744073709551616",
            "2^64 and it": b"Content-Length: %d" % (2 ** 64 + N),
            "vertical tab": b"Content-Length: \x0b%d" % N,
            "NUL": b"Content-Length: %d\0" % N, "semicolon": b"Content-Length: %d;" % N,
            "and TE": b"Content-Length: %d\r\nTransfer-Encoding: chunked" % N,
            "after TE": b"Transfer-Encoding: chunked\r\nContent-Length: %d" % N,
            "other digits": "Content-Length: ٥".encode()}.items():
        yield "length: " + name, post(text)
    good = b"%x\r\n%s\r\n0\r\n\r\n" % (N, BODY)
    for te in (b"gzip", b"gzip, chunked", b"identity", b"xchunked",
               b"chunkedx", b"chunked, identity", b"chunked, chunked", b"\x0bchunked", b"chunked\0",
               b"\"chunked\"", b"chunked;q=1", b"chunk ed",
               b"deflate", b", chunked", b"chunked,", b""):
        yield f"coding: {te!r}", post(b"Transfer-Encoding: " + te, good)
    yield "coding: twice", post(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", good)
    yield "coding: space before colon", post(b"Transfer-Encoding : chunked", good)
    for name, size in {"word": b"zz", "minus": b"-%x" % N, "plus": b"+%x" % N, "0x": b"0x%x" % N,
                       "space before": b" %x" % N, "empty": b"", "17 digits": b"1" + b"0" * 16,
                       "all f": b"f" * 18, "letter after": b"%xg" % N, "comma": b"%x,%x" % (N, N),
                       "NUL": b"%x\0" % N, "underscore": b"1_0"}.items():
        yield "chunk size: " + name, chunks(size + b"\r\n" + BODY + b"\r\n0\r\n\r\n")
    yield "chunk: longer than said", chunks(b"3\r\n" + BODY + b"\r\n0\r\n\r\n")
    yield "chunk: no line end after it", chunks(b"%x\r\n%s0\r\n\r\n" % (N, BODY))
    yield "chunk: two bytes too many", chunks(b"%x\r\n%sxx\r\n0\r\n\r\n" % (N, BODY))
    yield "chunk: CR alone after the size", chunks(b"%x\r%s\r\n0\r\n\r\n" % (N, BODY))


def should():
    """(name, bytes, statuses; 0 = closed): what is wise, or how to be lenient."""
    ok = (200,)
    good = b"%x\r\n%s\r\n0\r\n\r\n" % (N, BODY)
    yield "empty line first", b"\r\n" + head(b"X: 1"), ok
    yield "tab around a value", head(b"X:\t1\t"), ok
    yield "no space after the colon", head(b"X:1"), ok
    yield "empty value", head(b"X:"), ok
    yield "upper case chunked", post(b"Transfer-Encoding: CHUNKED", good), ok
    yield "upper case name", post(b"CONTENT-LENGTH: %d" % N), ok
    yield "zeros before the length", post(b"Content-Length: 000%d" % N), ok + (400,)
    yield "spaces around the length", post(b"Content-Length:   %d  " % N), ok
    yield "chunk extension", chunks(b"%x;a=b\r\n%s\r\n0\r\n\r\n" % (N, BODY)), ok
    yield "chunk extension without value", chunks(b"%x;a\r\n%s\r\n0\r\n\r\n" % (N, BODY)), ok
    yield "upper case chunk size", chunks(b"%X\r\n%s\r\n0\r\n\r\n" % (N, BODY)), ok
    yield "zeros before the chunk size", chunks(b"000%x\r\n%s\r\n0\r\n\r\n" % (N, BODY)), ok
    yield "last chunk of many zeros", chunks(b"%x\r\n%s\r\n0000\r\n\r\n" % (N, BODY)), ok
    yield "trailer", chunks(b"%x\r\n%s\r\n0\r\nX: 1\r\n\r\n" % (N, BODY)), ok
    yield "a length in the trailer", chunks(b"%x\r\n%s\r\n0\r\nContent-Length: 5\r\n\r\n"
                                            % (N, BODY)), ok + (400,)
    yield "many small chunks", chunks(b"".join(b"1\r\n%c\r\n" % c for c in BODY) + b"0\r\n\r\n"), ok
    yield "bare LF", b"GET /health HTTP/1.1\nHost: localhost\n\n", ok + (400, 0)
    yield "HTTP/1.0", b"GET /health HTTP/1.0\r\nHost: localhost" + END, ok
    yield ("HTTP/1.0 with TE",
           b"POST /v1/completions HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked"
           + END + good, ok + (400, 0))
    yield "HTTP/1.2", b"GET /health HTTP/1.2\r\nHost: localhost" + END, ok + (505, 400, 0)
    yield "query", b"GET /health?a=b HTTP/1.1\r\nHost: localhost" + END, ok
    yield "absolute target", b"GET http://localhost/health HTTP/1.1\r\nHost: localhost" + END, ok
    yield "folded field", head(b"X: a\r\n b"), ok + (400,)
    yield "long target", b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: localhost" + END, (
        404, 414, 400, 431)
    yield "long field", head(b"X: " + b"a" * 9000), ok + (431, 400)
    yield ("GET with a body", b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3"
           + END + b"abc", ok + (400, 413))
    yield "HEAD", b"HEAD /health HTTP/1.1\r\nHost: localhost" + END, ok + (405,)
    yield "OPTIONS *", b"OPTIONS * HTTP/1.1\r\nHost: localhost" + END, (200, 204, 400, 404, 405)
    yield "lower case method", line(b"get /health HTTP/1.1"), (400, 405, 501)
    yield "unknown method", line(b"FETCH /health HTTP/1.1"), (400, 405, 501)
    yield "expectation", post(b"Content-Length: %d\r\nExpect: 100-continue" % N), (100, 200)


def talk(port, data, wait):
    out = b""
    with socket.create_connection(("127.0.0.1", port), timeout=wait) as c:
        try:
            c.sendall(data)
            while True:
                p = c.recv(65536)
                if not p:
                    return out
                out += p
        except (ConnectionResetError, BrokenPipeError, socket.timeout):
            return out


def status_of(out):
    return int(out[9:12]) if out.startswith(b"HTTP/1.") and out[9:12].isdigit() else 0


def side_by_side(rows, fn):
    """Each row in one of eight threads: most of a case is waiting."""
    todo, got = list(enumerate(rows)), [None] * len(rows)

    def work():
        while todo:
            try:
                i, row = todo.pop()
            except IndexError:
                return
            got[i] = fn(row)
    th = [threading.Thread(target=work) for _ in range(8)]
    for t in th:
        t.start()
    for t in th:
        t.join()
    return got


def malformed(s):
    rows, good = list(must()), 0
    for (name, _), out in zip(rows, side_by_side(rows, lambda r: talk(s.port, r[1] + NEXT, 1.5))):
        st = status_of(out)
        ok = (st == 0 or 400 <= st < 600) and b"smuggled" not in out
        good += ok
        need(name, ok, out[:200])
    print(f"malformed: {good} of {len(rows)} refused")
    need("enough cases", len(rows) >= 113, len(rows))
    rows, good = list(should()), 0
    for (name, _, want), out in zip(rows, side_by_side(rows, lambda r: talk(s.port, r[1], 1.5))):
        good += status_of(out) in want
        if status_of(out) not in want:
            print(f"  {name}: {status_of(out)} not in {want}: {out[:100]!r}")
    print(f"lenient or wise: {good} of {len(rows)}")
    need("should", len(rows) >= 29 and good >= len(rows) - 2, (good, len(rows)))
    need("alive", s.post("/v1/completions", json.loads(BODY))[0] == 200)


CONF = """daemon off; worker_processes 1; pid {d}/pid; error_log {d}/err;
events {{ worker_connections 256; }}
http {{ access_log off; client_body_temp_path {d}/b; proxy_temp_path {d}/p; fastcgi_temp_path {d}/f;
uwsgi_temp_path {d}/u; scgi_temp_path {d}/s;
upstream up {{ server 127.0.0.1:{port}; keepalive 8; }}
server {{ listen 127.0.0.1:{front}; location / {{ proxy_pass http://up; proxy_http_version 1.1;
proxy_set_header Connection ""; proxy_set_header Host localhost;
proxy_request_buffering {buf}; proxy_buffering off; }} }} }}
"""


def behind_nginx(s):
    """Whatever nginx lets through: the answers of one connection to it belong to the requests that
    it saw, and those of others to theirs."""
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if not nginx:
        print("behind nginx: skipped: no nginx")
        return
    with e2e.scratch() as tmp:
        with socket.socket() as c:
            c.bind(("127.0.0.1", 0))
            front = c.getsockname()[1]
        rows, n = list(must()) + [r[:2] for r in should()], 0
        for buf in ("on", "off"):
            conf = os.path.join(tmp, "conf")
            with open(conf, "w") as f:
                f.write(CONF.format(d=tmp, port=s.port, front=front, buf=buf))
            p = subprocess.Popen([nginx, "-e", os.path.join(tmp, "err"), "-p", tmp, "-c", conf],
                                 stderr=subprocess.DEVNULL)
            t0 = time.time()
            while time.time() - t0 < 5:
                try:
                    socket.create_connection(("127.0.0.1", front), timeout=1).close()
                    break
                except OSError:
                    time.sleep(0.05)
            for (name, data), out in zip(rows, side_by_side(rows, lambda r: talk(front, r[1], 1))):
                need(f"nginx: {name}: no other answer", b"smuggled" not in out and out.count(
                    b"\r\nx-request-id: ") + out.count(b"HTTP/1.1 100") <= 2, out[:300])
                n += 1
            # the connections that nginx keeps are in step: every answer is of its own request
            for i in range(8):
                want = f"in-step-{i}"
                out = talk(front, b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: "
                                  b"%s\r\nConnection: close" % want.encode() + END, 5)
                need(f"nginx: in step {i}", status_of(out) == 200 and want.encode() in out,
                     out[:300])
            p.send_signal(signal.SIGTERM)
            p.wait(10)
        print(f"behind nginx: {n} cases")
        need("nginx: enough cases", n >= 87, n)


URLS = ["http://127.0.0.1:{p}/x", "https://127.0.0.1:{p}/x", "http://localhost:{p}/",
        "http://[::1]:{p}/", "http://169.254.169.254/latest/meta-data/", "file:///etc/passwd",
        "file://localhost/etc/passwd", "ftp://127.0.0.1:{p}/", "gopher://127.0.0.1:{p}/_x",
        "dict://127.0.0.1:{p}/", "http://0x7f000001:{p}/", "http://2130706433:{p}/",
        "http://127.1:{p}/", "//127.0.0.1:{p}/x", "http://a@127.0.0.1:{p}/", "unix:/tmp/x",
        "data:text/plain;base64,eA==", "http://127.0.0.1:{p}@evil/", "jar:http://127.0.0.1:{p}!/"]


def addresses():
    """Addresses wherever a request may have one: refused or taken as text, and nothing is ever
    connected to."""
    strace = shutil.which("strace")
    with e2e.scratch() as tmp, socket.socket() as trap, Server() as s:
        trap.bind(("127.0.0.1", 0))
        trap.listen(64)
        trap.settimeout(0.3)
        p, log, tr = trap.getsockname()[1], os.path.join(tmp, "log"), None
        if strace:
            tr = subprocess.Popen([strace, "-f", "-qq", "-e", "trace=connect,sendto,socket,execve",
                                   "-o", log, "-p", str(s.proc.pid)], stderr=subprocess.DEVNULL)
            time.sleep(1)
        n = 0
        for u in (x.format(p=p) for x in URLS):
            for part in ({"type": "image_url", "image_url": {"url": u}},
                         {"type": "input_audio", "input_audio": {"data": u, "format": "wav"}},
                         {"type": "file", "file": {"file_id": u}},
                         {"type": "video_url", "video_url": {"url": u}}):
                status, _, data = s.call("POST", "/v1/chat/completions",
                                         dict(messages=[{"role": "user", "content": [part]}]))
                need(f"address: {part['type']} {u}",
                     status == 400 and not error_of(data), (status, data[:200]))
                n += 1
            status, _, data = s.call("POST", "/v1/responses", {
                "input": [{"role": "user", "content": [{"type": "input_image", "image_url": u}]}]})
            need(f"address: input_image {u}", status == 400 and not error_of(data),
                 (status, data[:200]))
            schema = {"type": "json_schema",
                      "json_schema": {"name": "x", "schema": {"$ref": u}, "strict": True}}
            status, _, data = s.call("POST", "/v1/chat/completions", chat(response_format=schema))
            need(f"address: $ref {u}", status == 400 and not error_of(data), (status, data[:200]))
            del schema["json_schema"]["strict"]  # held as far as it can be, and still not fetched
            status, _, data = s.call("POST", "/v1/chat/completions",
                                     chat(response_format=schema, max_tokens=1))
            need(f"address: loose $ref {u}", status == 200, (status, data[:200]))
            status, _, data = s.call("POST", "/v1/chat/completions",
                                     chat(u, max_tokens=1, user=u, metadata={"a": u}))
            need(f"address: as text {u}", status in (200, 400), (status, data[:200]))
            n += 4
        try:
            trap.accept()
            need("nothing came", False)
        except socket.timeout:
            need("nothing came", True)
        if tr:
            tr.terminate()
            tr.wait(10)
            with open(log) as f:
                calls = [ln for ln in f if " connect(" in ln
                         or " execve(" in ln or (" socket(" in ln and "resumed" not in ln)]
            need("no connect, no socket, no program", not calls, calls[:3])
        print(f"addresses: {n} requests, {'0 connects by strace' if tr else 'no strace'}")
        need("exit", s.stop() == 0)


with Server() as server:
    malformed(server)
    behind_nginx(server)
    need("exit", server.stop() == 0)
addresses()
T.exit()
