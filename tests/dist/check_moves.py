#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Experts change ranks while a server answers: 8 streams at a time, whose tokens are those of a
server without ranks, from a source, a packed file and through an attached front; a rank whose
source is damaged keeps the experts where they are. --long: 200 times, with the gaps between
events beside those of a server that moves none.

  check_moves.py [BUILD] [--long]
"""
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LONG = "--long" in sys.argv
sys.argv = [a for a in sys.argv if a != "--long"]
sys.path[:0] = [os.path.join(HERE, "..", "e2e", "serve"), os.path.join(HERE, "..", "e2e")]
import serve  # noqa: E402
from serve import DEMO, Engine, Server  # noqa: E402
import e2e  # noqa: E402

T = e2e.Tally("moves")
ENOUGH = 24  # times that ranks begin to use others
RANKS = 2 if LONG else 4  # as many as there are cores, where time is measured
SPREAD = ("--layout", f"tp={RANKS},ep={RANKS}", "-t", str(RANKS), "--max-batch", "8")
MOVE = ("--spare", "2", "--place-mbps", "100000")
GROUPS = ("--layout", "dp=2,tp=2,ep=4", "-t", "4", "--max-batch", "8")
EACH = ("--stream-interval-ms", "0") if LONG else ()


def need(name, cond, what=""):
    T.check(name, None if cond else (str(what) or "not so"))


def answer(server, i, n=300):
    """(token ids, seconds between events) of a stream."""
    ids, times = [], []
    body = dict(prompt=f"{i} {'abc' * (i % 7)} tell me of", max_tokens=n, temperature=1, seed=i,
                ignore_eos=True, stream=True, return_token_ids=True)
    with server.open(body, "/v1/completions") as s:
        s.settimeout(120)
        for e in serve.events(s):
            times.append(time.time())
            if e == "[DONE]":
                break
            if "error" in e:
                return [e["error"]], []
            for c in e["choices"]:
                ids += c.get("token_ids") or []
    return ids, [b - a for a, b in zip(times, times[1:])]


def answers(server, first, n=8):
    """Those of n streams at a time."""
    out = [None] * n

    def one(k):
        out[k] = answer(server, first + k)
    threads = [threading.Thread(target=one, args=(k,)) for k in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return [o[0] for o in out], [g for o in out for g in o[1]]


def p99(gaps):
    return sorted(gaps)[int(len(gaps) * 0.99)]


class Asker(threading.Thread):
    """Asks for moves, but while it rests, until it is told to stop."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.over, self.rests, self.status = server, False, False, set()
        self.start()

    def run(self):
        while not self.over:
            if not self.rests:
                self.status.add(self.server.post("/admin/place", {})[0])
            time.sleep(0.03)


def moved(server, want, goal, seconds, still=None):
    """Rounds of 8 streams until ranks have begun to use others often enough. still: each of them
    also on that server, on which nothing moves, and whose gaps come second."""
    gaps, quiet, asker, end, first = [], [], Asker(server), time.time() + seconds, 0
    while True:
        expected = [want(first + k) for k in range(8)]
        asker.rests = False
        got, more = answers(server, first)
        gaps += more
        need(f"answers {first} are the same", got == expected)
        asker.rests = still is not None
        if still:
            time.sleep(0.5)  # what was asked for is over
            got, more = answers(still, first)
            quiet += more
            need(f"without moves {first} the same", got == expected)
        n = server.metric("sluice:placement_number")
        if n >= goal or time.time() > end:
            break
        first += 8
    asker.over = True
    asker.join()
    need("moves are asked for", asker.status == {202}, asker.status)
    need(f"{goal} placements", n >= goal, n)
    need("none failed", server.metric("sluice:placement_failures_total") == 0)
    print(f"moves: {n:.0f} placements, {server.metric('sluice:placement_loads_total'):.0f} experts "
          f"in {server.metric('sluice:rebalances_total'):.0f} passes, p99 gap "
          f"{1000 * p99(gaps):.1f} ms", flush=True)
    if still:
        print(f"moves: none: p99 gap {1000 * p99(quiet):.1f} ms ({len(gaps)} and {len(quiet)})",
              flush=True)
    return gaps, quiet


def shared(server):
    """The metrics' lines, and each rank's share: it is told once tokens have gone to experts since
    the last of them moved."""
    end = time.time() + 20
    while True:
        answer(server, 0, 20)
        lines = server.get("/metrics")[2].decode().split("\n")
        shares = [float(ln.split()[-1]) for ln in lines
                  if ln.startswith("sluice:rank_load_share{")]
        if shares or time.time() > end:
            return lines, shares
        time.sleep(0.1)


def wanted(server):
    """What a server without ranks answers, remembered."""
    known = {}

    def want(i):
        if i not in known:
            known[i] = answer(server, i)[0]
        return known[i]
    return want


def groups(server, want):
    """Groups of ranks with sequences of their own, whose experts move, too; what each has."""
    moved(server, want, 4, 120)
    lines, shares = shared(server)
    need("each of four ranks' share is told", len(shares) == 4, shares)
    end, told = time.time() + 20, {}
    while time.time() < end and sum(told.get("kv_used_tokens", [1])) != 0:
        time.sleep(0.3)  # a second old at most; prompts may stay in the cache
        lines = server.get("/metrics")[2].decode().split("\n")
        told = {}
        for ln in lines:
            if (ln.startswith("sluice:rank_") and "share" not in ln and "ratio" not in ln
                    and "step_seconds" not in ln):  # those of every rank
                name, rank = ln.split("{")[0][12:], ln.split('rank="')[1].split('"')[0]
                told.setdefault(name, []).append(float(ln.split()[-1]))
                need("the first ranks of groups", rank in ("0", "2"), ln)
    total = sum(told.get("kv_tokens", []))
    need("caches of both groups", set(told) == {"requests_running", "requests_waiting",
                                                "kv_used_tokens", "kv_tokens"}
         and all(len(v) == 2 for v in told.values()) and total > 0, told)
    steps = [ln.split('rank="')[1].split('"')[0] for ln in lines
             if ln.startswith("sluice:rank_step_seconds_total{") and float(ln.split()[-1]) > 0]
    need("each of four ranks tells of its steps", steps == ["0", "1", "2", "3"], steps)


def refused():
    for args, says in ((("--spare", "2"), "a layout with ep"),
                       (("--rebalance", "5"), "a layout with ep"),
                       (("--layout", "tp=2", "--spare", "2"), "a layout with ep"),
                       (("--layout", "tp=2,ep=2", "--spare", "17"), "16")):
        p = subprocess.run([e2e.sluice(), "serve", "-m", DEMO, "--port", "0", *args],
                           capture_output=True, text=True)
        need(f"{args} is refused", p.returncode in (1, 2) and says in p.stderr, p.stderr)
    with Server() as s:
        status, body = s.post("/admin/place", {})
        need("nothing to move", status == 400 and "--spare" in body["error"]["message"], body)


def counts(folder):
    """The file of --expert-stats: on SIGHUP and at the end, and where it places experts."""
    path = os.path.join(folder, "load.json")

    def read():
        with open(path, encoding="utf-8") as f:
            return json.load(f)
    with Server("--expert-stats", path) as s:
        answer(s, 1, 50)
        s.proc.send_signal(signal.SIGHUP)
        end = time.time() + 10
        while not os.path.exists(path) and time.time() < end:
            time.sleep(0.02)
        first = read()["layers"][0]["tokens"]
        need("SIGHUP writes counts", first >= 50, first)
        answer(s, 2, 50)
    last = read()["layers"][0]["tokens"]
    need("the end writes them again", last > first, (first, last))
    end = time.time() + 60
    with Engine("--expert-stats", path, "--expert-half-life", "1000000", *SPREAD, "--redundant",
                "4") as e, Server(engine=e) as s:
        answer(s, 3, 50)
        told = []
        for _ in range(2):
            os.utime(path, (0, 0))
            e.proc.send_signal(signal.SIGHUP)
            while os.path.getmtime(path) == 0 and time.time() < end:
                time.sleep(0.02)
            told.append(read()["layers"][0]["tokens"])
        need("they are added to what was there", told[0] > last, told)
        need("once", told[0] == told[1], told)


def main():
    refused()
    with tempfile.TemporaryDirectory() as folder, Server() as alone:
        want = wanted(alone)
        counts(folder)
        with contextlib.ExitStack() as both:
            s = both.enter_context(Server(*SPREAD, *MOVE, *EACH))
            still = both.enter_context(Server(*SPREAD, *EACH)) if LONG else None
            gaps, quiet = moved(s, want, 200 if LONG else ENOUGH, 600 if LONG else 120, still)
            lines, shares = shared(s)
            need("each rank's share is told",
                 len(shares) == RANKS and abs(sum(shares) - RANKS) < 0.01,
                 shares)
            heat = [ln for ln in lines if ln.startswith("sluice:expert_heat_tokens_total{")]
            need("the heat map is bounded", 0 < len(heat) <= 24 * 32, len(heat))
            total = sum(float(ln.split()[-1]) for ln in heat)
            need("it has every token that experts have", total == sum(
                float(ln.split()[-1]) for ln in lines
                if ln.startswith("sluice:expert_tokens_total{")), total)
        if not LONG:
            with Server(*GROUPS, *MOVE) as s:
                groups(s, want)
        if LONG:
            need("the p99 gap grows by a fifth at most", p99(gaps) <= 1.2 * p99(quiet),
                 (p99(gaps), p99(quiet)))
        packed = os.path.join(folder, "demo.packed")
        subprocess.run([e2e.sluice(), "pack", DEMO, packed], check=True, capture_output=True)
        with Server(*SPREAD, *MOVE, model=packed) as s:
            moved(s, want, ENOUGH, 120)
        p = subprocess.run([e2e.sluice(), "serve", "-m", packed, "--port", "0", *SPREAD, *MOVE,
                            "--place-from", "peer"], capture_output=True, text=True)
        need("a packed file's experts come from it", p.returncode and
             "a packed file, which every rank maps: disk" in p.stderr, p.stderr[-300:])
        # from the memory of another group, whose ranks share each expert by rows
        with Server("--layout", "tp=4,ep=2", "-t", "4", "--max-batch", "8", *MOVE, "--place-from",
                    "peer") as s:
            moved(s, want, ENOUGH // 2, 120)
        with Engine(*SPREAD, "--rebalance", "1", "--place-mbps", "100000") as e, \
                Server(engine=e) as s:
            moved(s, want, ENOUGH, 120)
    T.exit()


if __name__ == "__main__":
    main()
