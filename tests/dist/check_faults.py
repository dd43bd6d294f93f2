#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Engines of several ranks that fail while servers attached to them have 8 streams: a rank is
killed or stopped, the launcher is killed, the link between two machines stalls. What is measured is
when it is seen, when all ranks are gone and when the servers are ready again, with something that
starts engines again as soon as they end; and whether every stream is, to its last byte, what it is
without. A rank that is only slow is waited for.

  check_faults.py [BUILD] [--times N] [--from K]
      --times: every fault N times, each time with another layout, by common memory and by messages,
               and limits without the allowance for a busy machine; --from: of these from the Kth on
"""
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TIMES = int(sys.argv.pop(sys.argv.index("--times") + 1)) if "--times" in sys.argv else 0
FROM = int(sys.argv.pop(sys.argv.index("--from") + 1)) if "--from" in sys.argv else 0
sys.argv = [a for a in sys.argv if a not in ("--times", "--from")]
sys.path[:0] = [HERE, os.path.join(HERE, "..", "e2e", "serve"), os.path.join(HERE, "..", "e2e")]
import check_attach as attach  # noqa: E402
import e2e  # noqa: E402
import mpi  # noqa: E402
import nodes  # noqa: E402
from check_attach import until  # noqa: E402
from serve import DEMO, Server  # noqa: E402

T = e2e.Tally("faults")
LATE = 1 if TIMES else 4  # allowance for machines where other tests run
STREAMS = 8
DEADLINE = 1.5
LAYOUTS = ("tp=2", "pp=2", "tp=2,ep=2", "dp=2,ep=2")
KILLED = r"rank \d \(\S+, process \d+\) is gone"
SILENT = r"rank \d \(\S+, process \d+\) gave no sign for (\d+\.\d) s"


def need(name, cond, what=""):
    T.check(name, None if cond else (str(what) or "not so"))
    return bool(cond)


class Group:
    """An engine of processes that is started again whenever it ends, as a service manager does."""

    def __init__(self, layout, path, how, machines=None):
        self.args = [e2e.sluice(), "engine", "-m", DEMO, "--listen", "unix:" + path, "--layout",
                     layout, "--dist-deadline-ms", str(int(DEADLINE * 1000)), "--max-batch", "12"]
        self.n, self.layout = 2, layout
        self.machines, self.mark = machines, nodes.mark()
        self.env = dict(os.environ, SL_DIST=how, LC_ALL="C.UTF-8", **{nodes.MARK: self.mark})
        self.lines, self.lock = [], threading.Lock()  # (when, text) of the one that runs
        self.over, self.ready_after, self.n_start = False, None, 0
        self.ended = threading.Event()
        self.listens = threading.Event()
        self.thread = threading.Thread(target=self.keep, daemon=True)
        self.thread.start()
        if not self.listens.wait(120):
            raise RuntimeError(f"no engine: {self.text()}")

    def keep(self):
        while not self.over:
            t0 = time.monotonic()
            cmd = (self.machines.command((self.n, self.args), mark=self.mark) if self.machines
                   else mpi.command((self.n, self.args)))
            self.lines = []
            self.n_start += 1
            self.p = subprocess.Popen(cmd, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                      stdin=subprocess.DEVNULL, env=self.env)
            for line in self.p.stderr:
                text = line.decode("utf-8", "replace")
                with self.lock:
                    self.lines.append((time.monotonic(), text))
                if "listening on unix:" in text:
                    self.ready_after = self.ready_after or time.monotonic() - t0
                    self.listens.set()
            self.p.wait()
            while nodes.ranks(self.mark):
                time.sleep(0.02)
            self.t_gone = time.monotonic()
            self.listens.clear()
            self.ended.set()

    def text(self):
        with self.lock:
            return "".join(t for _, t in self.lines)

    def said(self, what):
        """When a line said so, and what of it."""
        with self.lock:
            for when, text in self.lines:
                if m := re.search(what, text):
                    return when, m
        return None

    def stop(self):
        self.over = True
        for pid in [*nodes.ranks(self.mark).values(), self.p.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        self.thread.join(20)


class Reference:
    """What the streams give without a fault."""

    def __init__(self, server):
        first = [attach.Asked(server, i) for i in range(STREAMS)]
        for s in first:
            s.join(300)
        need("without a fault all are whole", all(s.done and not s.error() for s in first))
        self.answer = [s.answer() for s in first]


def cut(g, fault, rank):
    if fault == "slow link":
        g.machines.slow("1kbit")
        return
    pid = g.p.pid if fault == "launcher killed" else nodes.ranks(g.mark)[rank]
    os.kill(pid, signal.SIGSTOP if fault == "stopped" else signal.SIGKILL)


def one(g, front, want, fault, rank, rng, times):
    """One fault under 8 streams. times: seconds by what they are of."""
    name = f"{g.layout}, {fault}{'' if rank is None else f' {rank}'}, {g.env['SL_DIST']}"
    asked = [attach.Asked(front, i) for i in range(STREAMS)]
    need(f"{name}: they run", attach.running(asked, rng.randrange(1, 40)), g.text()[-500:])
    g.ended.clear()
    seen = []
    reader = threading.Thread(target=watch, args=(g, seen), daemon=True)
    reader.start()
    t0 = time.monotonic()
    cut(g, fault, rank)
    # the deadline is twenty of the longest steps, of which one may be long on a busy machine
    ended = g.ended.wait(300 if fault == "slow link" else 60)
    if not need(f"{name}: it ends", ended, g.text()[-800:]):
        if fault == "slow link":
            g.machines.slow(None)
        return
    gone = g.t_gone
    if fault == "slow link":
        g.machines.slow(None)
    reader.join(5)
    most, says = (2, KILLED) if "killed" in fault else (DEADLINE + 1, SILENT)
    if fault != "launcher killed":
        if not need(f"{name}: says who", seen, g.text()[-800:]):
            return
        when, m = seen[0]
        if m.lastindex and fault != "stopped":  # a deadline is twenty of the longest steps at least
            most = max(most, float(m[1]) + 1)
        if says == SILENT and rank is not None:
            need(f"{name}: says the right one", f"rank {rank} " in m[0], m[0])
        times.setdefault(f"{fault} to seen", []).append(when - t0)
        need(f"{name}: seen within {most:.1f} s", when - t0 <= most * LATE, f"{when - t0:.2f} s")
    else:
        times.setdefault("launcher killed to all gone", []).append(gone - t0)
        need(f"{name}: all gone within 5 s", gone - t0 <= 5 * LATE, f"{gone - t0:.2f} s")
    ready = until(lambda: g.listens.is_set() and front.get("/ready")[0] == 200, 90)
    took = time.monotonic() - gone
    times.setdefault("gone to ready", []).append(took)
    need(f"{name}: ready again", ready and took <= (g.ready_after + 5) * LATE,
         f"{took:.1f} s, a start takes {g.ready_after:.1f} s")
    for s in asked:
        s.join(300)
    bad = [i for i, s in enumerate(asked) if not s.done or s.cut or s.answer() != want.answer[i]]
    need(f"{name}: all streams whole and the same", not bad,
         [(i, asked[i].cut, asked[i].events[-1:]) for i in bad])


def watch(g, seen):
    """The first line that says who."""
    end = time.monotonic() + 300
    while not seen and time.monotonic() < end:
        if m := g.said(f"{KILLED}|{SILENT}"):
            seen.append(m)
        if g.ended.is_set():
            return
        time.sleep(0.005)


def with_group(fn, layout, how, machines=None):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "engine")
        g = Group(layout, path, how, machines)
        try:
            with Server(engine="unix:" + path) as front:
                fn(g, front)
        finally:
            g.stop()


def faults(layout, how, which, rng, times):
    def run(g, front):
        for fault, rank in which:
            one(g, front, WANT, fault, rank, rng, times)
    with_group(run, layout, how)


def link(times, n, layout="pp=2"):
    """The link between two machines stalls."""
    why = nodes.missing()
    if why:
        print(f"not run: a link that stalls: {why}")
        return
    with nodes.Nodes() as machines:
        def run(g, front):
            for _ in range(n):
                one(g, front, WANT, "slow link", None, random.Random(n), times)
        with_group(run, layout, "messages", machines)


# ---- a slow rank ----

class Slow:
    """A process that gets a tenth of a CPU: by its cgroup, where there may be one, else stopped
    nine tenths of the time."""

    def __init__(self, pid):
        self.pid, self.over = pid, False
        self.group = f"/sys/fs/cgroup/cpu/sluice{os.getpid()}"
        try:
            os.mkdir(self.group)
            with open(self.group + "/cpu.cfs_quota_us", "w") as f:
                f.write("10000")
            with open(self.group + "/cgroup.procs", "w") as f:
                f.write(str(pid))
        except OSError:
            self.end_group()
            self.group = None
            self.thread = threading.Thread(target=self.blink, daemon=True)
            self.thread.start()

    def blink(self):
        while not self.over:
            for sig, s in ((signal.SIGSTOP, 0.09), (signal.SIGCONT, 0.01)):
                try:
                    os.kill(self.pid, sig)
                except OSError:
                    return
                time.sleep(s)
        os.kill(self.pid, signal.SIGCONT)

    def end_group(self):
        try:
            with open("/sys/fs/cgroup/cpu/cgroup.procs", "w") as f:
                f.write(str(self.pid))
        except OSError:
            pass
        try:
            os.rmdir(self.group)
        except OSError:
            pass

    def end(self):
        self.over = True
        if self.group:
            self.end_group()
        else:
            self.thread.join()


def slow_rank(layout, how, n):
    def run(g, front):
        for k in range(n):
            asked = [attach.Asked(front, i) for i in range(STREAMS)]
            attach.running(asked, 5)
            starts = g.n_start
            slow = Slow(nodes.ranks(g.mark)[k % g.n])
            by = "cgroup" if slow.group else "stops"
            time.sleep(4 * DEADLINE)
            slow.end()
            for s in asked:
                s.join(300)
            need(f"{layout}, {how}: a slow rank is waited for ({by})", g.n_start == starts,
                 g.text()[-500:])
            bad = [i for i, s in enumerate(asked)
                   if not s.done or s.cut or s.answer() != WANT.answer[i]]
            need(f"{layout}, {how}: all whole and the same", not bad, bad)
    with_group(run, layout, how)


def show(times):
    for what, v in sorted(times.items()):
        print(f"{what}: {len(v)} times, median {sorted(v)[len(v) // 2]:.2f} s, at most "
              f"{max(v):.2f} s", flush=True)


def every(times):
    for k in range(FROM, FROM + TIMES):
        layout, how = LAYOUTS[k % 4], ("memory", "messages")[k // 4 % 2]
        rank = (k + k // 4) % 2
        which = [("killed", rank), ("stopped", 1 - rank), ("launcher killed", None)]
        faults(layout, how, which, random.Random(k), times)
        link(times, 1)
        slow_rank(layout, how, 1)
        show(times)
        print(f"{k - FROM + 1} of {TIMES} times: {T.good} good, {T.bad} bad", flush=True)


def short(times):
    rng = random.Random(6)
    faults("tp=2", "memory", [("killed", 1), ("stopped", 1)], rng, times)
    faults("dp=2,ep=2", "messages", [("launcher killed", None)], rng, times)


if __name__ == "__main__":
    skip = mpi.missing(e2e.build_dir())
    if skip:
        print(f"skipped: {skip}")
        sys.exit(77)
    if not TIMES:
        attach.shorter(120)
    with Server("--max-batch", "12") as alone:
        WANT = Reference(alone)
    measured = {}
    (every if TIMES else short)(measured)
    show(measured)
    T.exit()
