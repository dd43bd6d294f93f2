# SPDX-License-Identifier: Apache-2.0
"""Keys and limits, capacity, drain, reload, logs, TLS: the server as its owner sees it. Routes
without a key (H10), canaries in logs (H15), the sandbox (S2 to S4; the calls one by one are in
tests/unit/test_os_sandbox.c)."""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
import warnings

from serve import DEMO, Server, chat, error_of, key_line
import e2e

T = e2e.Tally("serve: life")
CHAT = "/v1/chat/completions"
STORY = {
    "messages": [{
        "role": "user",
        "content": "Tell a story CANARY-PROMPT"
    }],
    "max_tokens": 1800,
    "ignore_eos": True,
    "temperature": 1,
    "stream": True
}


def need(name, cond, what=""):
    T.check(name, None if cond else (str(what) or "not so"))


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def routes():
    """(method, path) of every route of docs/api.md, which a unit test holds to the table, in the
    ways that path matching was got round elsewhere."""
    with open(os.path.join(e2e.ROOT, "docs", "api.md"), encoding="utf-8") as f:
        rows = [ln.split("|")[1] for ln in f if re.match(r"\| `(GET|POST|DELETE) ", ln)]
    known = [(m, p)
             for row in rows
             for ms, p in re.findall(r"`(?:(GET|POST|DELETE) )?(/[^`]*)`",
                                     row.replace("`GET` and `DELETE", "`DELETE"))
             for m in ([ms] if ms else [])]
    known += [("GET", "/v1/responses/ID"), ("GET", "/nothing")]
    for m, p in known:
        if p in ("/", "/health", "/ready"):
            continue
        for v in (p, p + "/", "/" + p, p.upper(), p + "?key=sk-b", p + "%00", "/health/.." + p,
                  "/health%2f.." + p, p + ";/health", p + "#/health", p + "/../../health",
                  p + "%20", "/./" + p[1:], "/" + p[1:].replace("/", "%2f")):
            yield m, v
    for v in ("//health", "/health%2f..%2fmetrics", "/Health", "/health/x", "/app.js/",
              "/ready/../metrics"):
        yield "GET", v
    for m in ("PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "HEAD", "CONNECT", "X"):
        yield m, "/v1/models"
        yield m, "/v1/chat/completions"


def good(data):
    """An error of OpenAI's form, or of Anthropic's."""
    return not error_of(data) or json.loads(data).get("type") == "error" and bool(
        json.loads(data)["error"]["message"])


def keys(tmp):
    path = os.path.join(tmp, "keys")
    with open(path, "w") as f:
        f.write("# people\n" + key_line("anna", "sk-CANARY-KEY-a", "parallel=2") +
                key_line("ben", "sk-b", "requests=3") + key_line("cleo", "sk-c", "tokens=30") +
                key_line("dora", "sk-d", "admin") + key_line("one", "sk-one", "parallel=1"))
    with Server("--api-key-file", path, "--alias", "tiny", "--metrics", "on") as s:
        n, heads = 0, [("none", {}), ("wrong", bearer("sk-x")), ("empty", bearer("")),
                       ("hash", bearer(key_line("x", "sk-b").split()[1])),
                       ("basic", {
                           "Authorization": "Basic c2stYg=="
                       }), ("prefix", bearer("sk-bb"))]
        for n, (method, route) in enumerate(routes()):
            plain = route in ("/v1/models", CHAT, "/metrics", "/nothing", "//health")
            for name, head in heads if plain else heads[n % 6:n % 6 + 1]:
                got, h, data = s.call(method, route, b"{}" if method == "POST" else None, head)
                want = 400 if "#" in route or "%00" in route else 401  # no target, for anybody
                need(f"{method} {route} {name}", got == want
                     and (method == "HEAD" or good(data)), (got, data))
        print(f"{n + 1} routes and spellings without a key")
        need("routes without a key: count", n > 150, n)
        need("health is open", s.get("/health")[0] == 200 and s.get("/ready")[0] == 200)
        for k in ("sk-CANARY-KEY-a", "sk-d"):
            need(f"key {k[-1]}", s.post(CHAT, chat(model="tiny"), bearer(k))[0] == 200)
        got = [s.post("/admin/place", {}, bearer(k)) for k in ("sk-CANARY-KEY-a", "sk-d")]
        need("a key without the right", got[0][0] == 403 and got[0][1]["error"]["code"] ==
             "not_an_admin", got[0])
        need("a key with it", got[1][0] == 400 and "--spare" in got[1][1]["error"]["message"],
             got[1])
        got = [s.call("POST", CHAT, chat(max_tokens=1), bearer("sk-b")) for _ in range(4)]
        need("requests a minute", [g[0] for g in got] == [200] * 3 + [429] and
             1 <= int(got[3][1]["retry-after"]) <= 60, got[3])
        got = [s.call("POST", CHAT, chat(), bearer("sk-c")) for _ in range(3)]
        need("tokens a minute", got[0][0] == 200 and got[2][0] == 429, [g[0] for g in got])
        got = [
            s.call("POST", CHAT, dict(chat(max_tokens=1), stream=bool(i % 2)), bearer("sk-one"))[0]
            for i in range(60)
        ]
        need("one at a time, each when the last was answered", set(got) == {200}, got)
        held = [s.open(STORY, headers=bearer("sk-CANARY-KEY-a")) for _ in range(2)]
        for c in held:
            c.recv(64)
        need("parallel", s.call("POST", CHAT, chat(), bearer("sk-CANARY-KEY-a"))[0] == 429)
        for c in held:
            c.close()
        t0 = time.time(
        )  # the server sees the ends of two connections, on a machine that may be busy
        while (code := s.call("POST", CHAT, chat(),
                              bearer("sk-CANARY-KEY-a"))[0]) == 429 and time.time() - t0 < 5:
            time.sleep(0.02)
        need("parallel again", code == 200, (code, time.time() - t0))
        # reload: a key goes, one comes, a bad file changes nothing
        with open(path, "w") as f:
            f.write(key_line("anna", "sk-CANARY-KEY-a") + key_line("emil", "sk-e"))
        s.proc.send_signal(signal.SIGHUP)
        t0 = time.time()
        while time.time() - t0 < 2 and s.get("/v1/models", bearer("sk-e"))[0] != 200:
            pass
        need("reload in 1 s", time.time() - t0 < 1, time.time() - t0)
        need("revoked", s.get("/v1/models", bearer("sk-d"))[0] == 401)
        with open(path, "w") as f:
            f.write("anna sk-plain\n")
        s.proc.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        need("bad file keeps keys", s.get("/v1/models", bearer("sk-e"))[0] == 200)
        for target in (b"/%0d%0a{\"event\":\"forged\"}", b"/\x1b[31mred", b"/%00",
                       b"/CANARY?key=CANARY"):
            s.raw(b"GET " + target +
                  b" HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer sk-e\r\n"
                  b"X-Request-Id: CANARY \x1b[31m\r\nConnection: close\r\n\r\n",
                  timeout=3)
        need("exit", s.stop() == 0)
        log = b"".join(s.log)
        need("no canary in the log", b"CANARY" not in log)
        lines = [ln for ln in s.log if ln.startswith(b"{")]
        need("nothing forged", b"forged" not in log and b"\x1b" not in log)
        need("log is JSON", all(json.loads(ln) for ln in lines) and len(lines) > 50)
        need("key names in the log", any(json.loads(ln).get("key") == "anna" for ln in lines))
    trace = os.path.join(tmp, "trace.json")
    with Server("--trace", trace) as s:
        s.post(CHAT, chat())
        s.stop()
    with open(trace) as f:
        events = json.load(f)["traceEvents"]
    dur = {
        k: [e["dur"]
            for e in events
            if e["name"] == k]
        for k in ("step", "plan", "compute", "sample")
    }
    parts = list(zip(dur["plan"], dur["compute"], dur["sample"]))
    need(
        "trace: a step's parts add up",
        len(parts) == len(dur["step"]) > 3
        and all(abs(a - sum(b)) < 0.01 for a, b in zip(dur["step"], parts)), dur)
    need("trace: counters", {"requests", "kv tokens"}
         <= {e["name"]
             for e in events
             if e["ph"] == "C"})
    code, out, err = e2e.run(
        [e2e.sluice(), "serve", "-m", DEMO, "--port", "0", "--api-key-file", path])
    T.check("bad key file", e2e.one_line_failure(code, err) or (None if "line 1" in err else err))


def capacity():
    with Server("--max-batch", "2", "--max-queue", "4") as s:
        codes, waits = [], []

        def one():
            c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
            c.request("POST", CHAT, json.dumps(chat(max_tokens=300, ignore_eos=True)))
            r = c.getresponse()
            data = r.read()
            codes.append(r.status)
            if r.status == 429:
                waits.append(int(r.getheader("Retry-After")))
                need("429 body", not error_of(data))

        th = [threading.Thread(target=one) for _ in range(40)]
        for t in th:
            t.start()
        for t in th:
            t.join()
        need("over capacity", set(codes) == {200, 429} and codes.count(200) >= 6, codes)
        need("Retry-After", waits and all(1 <= w <= 60 for w in waits), waits)
        need("idle after", s.idle() is not None)


def drain():
    quick = []
    for i in range(3):
        with Server("--max-batch", "16") as s:
            socks = [s.open(dict(STORY, max_tokens=250)) for _ in range(16)]
            for c in socks:
                c.recv(16)
            t0 = time.time()
            s.proc.send_signal(signal.SIGTERM)
            while time.time() - t0 < 5:
                try:
                    if s.get("/ready")[0] == 503:
                        break
                except OSError:
                    break
            quick.append(time.time() - t0)
            try:
                need("new work is refused", s.call("POST", CHAT, chat())[0] == 503)
            except OSError:
                pass
            for c in socks:
                out = b""
                while True:
                    p = c.recv(65536)
                    if not p:
                        break
                    out += p
                need("stream ends well", out.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"), out[-80:])
            need("exit 0", s.proc.wait(10) == 0)
    need("ready is 503 in 100 ms",
         min(quick) < 0.1 and max(quick) < 2, quick)  # on a busy machine: once
    with Server("--drain", "0") as s:
        c = s.open(STORY)
        c.recv(16)
        t0 = time.time()
        need("no drain", s.stop() == 0 and time.time() - t0 < 3, time.time() - t0)
        out = b""
        try:
            while True:
                p = c.recv(65536)
                if not p:
                    break
                out += p
        except ConnectionResetError:
            pass
        need("a cut stream has no end", not out.endswith(b"0\r\n\r\n"), out[-50:])
    with Server() as s:
        c = s.open(STORY)
        c.recv(16)
        t0 = time.time()
        s.proc.send_signal(signal.SIGINT)
        need("Ctrl-C ends it at once",
             s.proc.wait(10) == 130 and time.time() - t0 < 3, (s.proc.returncode, time.time() - t0))
    with Server() as s:  # killed in the middle: clients must see it
        c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=20)
        c.request("POST", CHAT, json.dumps(STORY))
        r = c.getresponse()
        r.read(100)
        s.proc.kill()
        try:
            r.read()
            need("kill is seen", False)
        except (http.client.IncompleteRead, ConnectionResetError):
            need("kill is seen", True)
        s.proc.wait()


def refuse_to_start(tmp):
    for name, line in (("plain", "sk-abc\n"), ("long", "x" * 64 + "\n"),
                       ("huge", key_line("a", "sk-a", "requests=99999999999999999999"))):
        with open(os.path.join(tmp, name), "w") as f:
            f.write(line)
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = str(busy.getsockname()[1])
        for name, args, word in [
            ("port in use", ["--port", port], "in use"),
            ("host", ["--port", "0", "--host", "a b"], "--host"),
            ("foreign address", ["--port", "0", "--host", "203.0.113.7"], "203.0.113.7"),
            ("cert alone", ["--tls-cert", DEMO], "--tls-key"),
            ("bad cert", ["--port", "0", "--tls-cert", __file__, "--tls-key", __file__], "tls"),
            ("no cert", ["--port", "0", "--tls-cert", tmp + "/x", "--tls-key", tmp + "/x"], "/x"),
            ("port", ["--port", "70000"], "--port"),
            ("tool parser", ["--port", "0", "--tool-parser", "hermse"], "hermes"),
            ("reasoning parser", ["--port", "0", "--reasoning-parser", "qwen"], "qwen3"),
            ("empty alias", ["--port", "0", "--alias", ""], "--alias"),
            ("host with scheme", ["--port", "0", "--allow-host", "http://x"], "--allow-host"),
            ("origin", ["--port", "0", "--cors-origin", "example.org"], "--cors-origin"),
            ("plain key", ["--port", "0", "--api-key-file", tmp + "/plain"], "sha256sum"),
            ("long plain key", ["--port", "0", "--api-key-file", tmp + "/long"], "sha256sum"),
            ("huge limit", ["--port", "0", "--api-key-file", tmp + "/huge"], "requests=N"),
            ("keys", ["--port", "0", "--api-key-file", tmp + "/none"], "/none")
        ]:
            code, out, err = e2e.run([e2e.sluice(), "serve", "-m", DEMO, *args])
            T.check(name, e2e.one_line_failure(code, err) or (None if word in err else err))


def sandbox(tmp):
    keys_dir, secret = os.path.join(tmp, "keys.d"), os.path.join(tmp, "secret")
    os.mkdir(keys_dir)
    path = os.path.join(keys_dir, "keys")
    for p, key in ((path, "a"), (secret, "b")):
        with open(p, "w") as f:
            f.write(key_line("x", key))
    with Server("--api-key-file", path) as s:
        with open(f"/proc/{s.proc.pid}/status") as f:
            st = dict(ln.rstrip("\n").split(":\t", 1) for ln in f if ":\t" in ln)
        need("NoNewPrivs", st["NoNewPrivs"].strip() == "1")
        need("CapEff", int(st["CapEff"], 16) == 0, st["CapEff"])
        need("seccomp", st.get("Seccomp", "2").strip() in ("2", "0"))
        for task in os.listdir(f"/proc/{s.proc.pid}/task"):
            with open(f"/proc/{s.proc.pid}/task/{task}/status") as f:
                mode = [ln.split()[1] for ln in f if ln.startswith("Seccomp:")]
            need("seccomp on every thread", mode == [st["Seccomp"].strip()], mode)
        os.unlink(path)
        os.symlink(secret, path)
        s.proc.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        limited = s.get("/v1/models", bearer("b"))[0] == 401
        need("a file outside is not read", limited or not landlock(),
             "the key of a forbidden file is taken")
        need("old keys stay", not limited or s.get("/v1/models", bearer("a"))[0] == 200)
        need("exit", s.stop() == 0)


def linked_model(tmp):
    """A hub's cache is made of links: the sandbox must let through what they lead to."""
    link = os.path.join(tmp, "link.gguf")
    os.symlink(os.path.realpath(DEMO), link)
    with Server("-m", link) as s:
        need("a linked model", s.post(CHAT, chat(max_tokens=2))[0] == 200)


def landlock():
    try:
        with open("/sys/kernel/security/lsm") as f:
            return "landlock" in f.read()
    except OSError:
        return False


def tls(tmp):
    if not shutil.which("openssl"):
        return
    cert, key = tmp + "/cert.pem", tmp + "/key.pem"
    subprocess.run([
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert,
        "-days", "2", "-subj", "/CN=localhost"
    ],
                   check=True,
                   capture_output=True)
    with Server("--tls-cert", cert, "--tls-key", key) as s:
        ctx = ssl.create_default_context(cafile=cert)
        ctx.check_hostname = False
        c = http.client.HTTPSConnection("127.0.0.1", s.port, timeout=30, context=ctx)
        c.request("POST", CHAT, json.dumps(dict(chat(), stream=True)))
        data = c.getresponse().read()
        need("TLS stream", data.endswith(b"data: [DONE]\n\n"), data[-100:])
        c.request("GET", "/health")
        need("TLS again", c.getresponse().status == 200)
        c = s.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", timeout=3)
        need("plain on TLS", not c.startswith(b"HTTP/1.1 200"))
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        with socket.create_connection(("127.0.0.1", s.port)) as raw, old.wrap_socket(raw) as w:
            need("TLS version", w.version() in ("TLSv1.2", "TLSv1.3"), w.version())
        warnings.simplefilter("ignore", DeprecationWarning)
        old.set_ciphers("ALL:@SECLEVEL=0")
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
        try:
            with socket.create_connection(("127.0.0.1", s.port)) as raw, old.wrap_socket(raw) as w:
                need("TLS 1.1 refused", False, w.version())
        except OSError as e:
            need("TLS 1.1 refused", "NO_PROTOCOLS" not in str(e), e)


def timed(fn, *args):
    t0 = time.time()
    fn(*args)
    print(f"{fn.__name__}: {time.time() - t0:.1f} s", flush=True)


with e2e.scratch() as tmp_dir:
    timed(keys, tmp_dir)
    timed(refuse_to_start, tmp_dir)
    timed(sandbox, tmp_dir)
    timed(linked_model, tmp_dir)
    timed(tls, tmp_dir)
timed(capacity)
timed(drain)
T.exit()
