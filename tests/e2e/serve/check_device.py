# SPDX-License-Identifier: Apache-2.0
"""A device that fails while others are served. One step that fails ends the requests in it and
nobody else's; a device that is lost ends all of them, each with an error event, then nobody gets in
(503), and the server leaves with exit code 1 and one line that says why; with --on-lost reopen it
goes on instead. A device that gives no answer is lost after ten seconds. One that can not be opened
is an error, or with --fallback cpu a warning.

The device is `check`, the CPU behind a queue, which fails at its K-th call, or `sim`, which hangs
at it (docs/devices.md)."""
import http.client
import json
import re
import subprocess
import threading
import time

from serve import TIMEOUT, Server, chat, error_of
import e2e

T = e2e.Tally("serve: device")
CHAT = "/v1/chat/completions"
N_CLIENT = 8
GONE = (ConnectionError, http.client.HTTPException)


def need(name, cond, what=""):
    T.check(name, None if cond else (str(what) or "not so"))


def first_that_opens(kind, *args, k=512, factor=1):
    """A server whose device fails later than its opening, and the ones that failed at it; kind: up
    to the number of the call. factor: how much later."""
    failed = []
    while k < 1 << 24:
        try:
            server = Server("--drain", "5", *args, env={"SL_DEVICE": f"{kind}{k}"})
            if factor == 1:
                return server, failed
            server.proc.kill()
            return first_that_opens(kind, *args, k=k * factor)[0], failed
        except RuntimeError as x:
            failed.append((k, str(x)))
        k *= 2
    raise RuntimeError(f"{kind}: it never opened: {failed[-1]}")


class Client(threading.Thread):
    """A long story as a stream: its events, and whether it was cut off without an end."""

    def __init__(self, server, i):
        super().__init__()
        self.server, self.i, self.events, self.cut = server, i, [], False

    def run(self):
        body = chat(f"Story {self.i}", max_tokens=1900, ignore_eos=True)
        try:
            status, got, _ = self.server.stream(CHAT, body)
            self.events = [e for e in got if e != "[DONE]"] if status == 200 else [got]
        except GONE as x:
            self.cut = repr(x)


def stories(server):
    """All clients' ends, and what /ready said before, meanwhile and after."""
    clients = [Client(server, i) for i in range(N_CLIENT)]
    ready = [status_of(server)]
    for c in clients:
        c.start()
    t0 = time.time()
    while any(c.is_alive() for c in clients) and time.time() - t0 < TIMEOUT:
        ready.append(status_of(server))
        time.sleep(0.01)
    ready.append(status_of(server))
    for c in clients:
        c.join(5)
    return clients, ready


def status_of(server):
    try:
        return server.get("/ready")[0]
    except GONE + (OSError,):
        return 0


def lost():
    s, failed = first_that_opens("check:lost=", factor=8)  # all clients are in by then
    for k, why in failed:
        need(f"lost={k} at the opening: exit 1", "ended: 1 " in why, why)
        need(f"lost={k} at the opening: one line says it", why.count("device") >= 1, why)
    with s:
        clients, ready = stories(s)
        for c in clients:
            last = c.events[-1] if c.events else {}
            need(f"client {c.i}: an end", not c.cut and not c.is_alive(), c.cut)
            need(f"client {c.i}: an error", not error_of(json.dumps(last)), last)
            need(f"client {c.i}: it says that the device is lost", "lost" in json.dumps(last), last)
        need("/ready before they ran", ready[0] == 200, ready[:5])
        need("/ready afterwards", ready[-1] in (0, 503), ready[-5:])
        need("no request gets in", refused(s))
        try:
            code = s.proc.wait(12)
        except subprocess.TimeoutExpired:
            code = "still there"
        need("exit code", code == 1, code)
        s.reader.join(5)
        said = [ln for ln in b"".join(s.log).decode().split("\n") if "lost" in ln and
                not ln.startswith("{")]
        need("one line says why", len(said) == 1 and said[0].startswith("sluice: "), said)
        need("it says in which step, and what ended", re.search(
            rf" in step \d+: all {N_CLIENT} requests ended$", said[0]), said)


def refused(server):
    try:
        status, body = server.post(CHAT, chat())
        return status == 503 and body["error"]["code"] == "engine_dead"
    except GONE + (OSError,):
        return True


def one_step():
    """What others got before and after the failed step is what a good device gives."""
    with Server() as s:
        want = s.post(CHAT, chat())[1]["choices"]
    s, failed = first_that_opens("check:fail=")
    need("fail at the opening: exit 1", all("ended: 1 " in why for _, why in failed), failed)
    with s:
        bad = 0
        for turn in range(40):
            clients, ready = stories(s)
            ends = [c.events[-1] if c.events else {} for c in clients]
            need(f"turn {turn}: all ended", not any(c.cut or c.is_alive() for c in clients))
            bad += sum("error" in e for e in ends)
            need(f"turn {turn}: the server is ready", ready[-1] == 200, ready[-5:])
            if bad:
                break
        need("a step failed", bad > 0)
        status, got = s.post(CHAT, chat())
        need("the next request", status == 200 and got["choices"] == want, got)
        need("it leaves as it should", s.stop() == 0)


def hang():
    """Nobody waits for ever: after ten seconds the device is asked, which hangs."""
    kind = "sim:clock=real,lat=1us,hand=1us,fail=hang:"
    s, _ = first_that_opens(kind, k=8192)  # below it opening would take ten seconds
    with s:
        clients = [Client(s, i) for i in range(N_CLIENT)]
        for c in clients:
            c.start()
        n_step, t0 = 0, time.time()
        while any(c.is_alive() for c in clients) and time.time() - t0 < TIMEOUT:
            time.sleep(0.05)
            try:
                n = s.metric("sluice:steps_total")
            except GONE + (OSError,):
                continue
            if n != n_step:
                n_step, t0 = n, time.time()
        took = time.time() - t0
        need("they end within 12 s of the last step", 8 < took < 12, took)
        for c in clients:
            c.join(5)
            end = c.events[-1] if c.events else {}
            need(f"client {c.i}: an error", not c.cut and not error_of(json.dumps(end)), end)
            need(f"client {c.i}: it says why", "no answer in 10 s" in json.dumps(end), end)
        need("/ready afterwards", status_of(s) in (0, 503))
        need("exit code", s.proc.wait(12) == 1)


def reopen():
    """Every request of the lost device ends with an error; then the same server computes again."""
    with Server() as s:
        want = s.post(CHAT, chat())[1]["choices"]
    s, _ = first_that_opens("check:lost=", "--on-lost", "reopen", factor=8)
    with s:
        need("before", s.post(CHAT, chat())[1]["choices"] == want)
        clients, ready = stories(s)
        for c in clients:
            end = c.events[-1] if c.events else {}
            need(f"client {c.i}: an error", not c.cut and not error_of(json.dumps(end)), end)
        t0 = time.time()
        while status_of(s) != 200 and time.time() - t0 < TIMEOUT:
            time.sleep(0.05)
        need("it is ready again", status_of(s) == 200)
        status, got = s.post(CHAT, chat())
        need("the same answer", status == 200 and got["choices"] == want, got)
        need("metric", s.metric("sluice:device_reopens_total") >= 1)
        need("it leaves as it should", s.stop() == 0)


def fallback():
    card = ("--device", "vulkan:40")
    try:
        with Server(*card):
            need("a card that there is not", False, "it started")
    except RuntimeError as x:
        need("a card that there is not: exit 1", "ended: 1 " in str(x), x)
    with Server(*card, "--fallback", "cpu") as s:
        need("metric", s.metric("sluice:device_fallback") == 1)
        need("an answer", s.post(CHAT, chat())[0] == 200)
        said = b"".join(s.log).decode()
        need("a warning", "the CPU computes everything (fallback)" in said, said)
        need("it leaves as it should", s.stop() == 0)


if __name__ == "__main__":
    lost()
    one_step()
    hang()
    reopen()
    fallback()
    T.exit()
