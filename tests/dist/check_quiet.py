#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Engines of ranks and their servers, once they are ready: which ports are open on the machine, and
that under load no process opens a socket of the network, connects, binds or listens.

  check_quiet.py [BUILD]
"""
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "e2e", "serve"), os.path.join(HERE, "..", "e2e")]
import check_attach as attach  # noqa: E402
import check_faults as faults  # noqa: E402
import e2e  # noqa: E402
import mpi  # noqa: E402
import nodes  # noqa: E402
from serve import Server  # noqa: E402

T = e2e.Tally("quiet")
CALLS = "connect,socket,bind,listen,accept,accept4"


def need(name, cond, what=""):
    T.check(name, None if cond else (str(what) or "not so"))


def ports(pids):
    """By ss: those at which these processes listen."""
    if not shutil.which("ss"):
        return {p for pid in pids for p in attach.listening(pid)}
    out = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, check=True).stdout
    return {int(row.split()[3].rsplit(":", 1)[1]) for row in out.strip().split("\n")
            if any(f"pid={pid}," in row for pid in pids)}


class Watched:
    """The calls of processes that have to do with sockets, by strace."""

    def __init__(self, pids):
        self.out = tempfile.NamedTemporaryFile("r", suffix=".strace")
        args = [x for pid in pids for x in ("-p", str(pid))]
        self.p = subprocess.Popen(["strace", "-f", "-qq", "-e", f"trace={CALLS}", "-o",
                                   self.out.name, *args], stderr=subprocess.PIPE)
        time.sleep(1)

    def calls(self):
        """Without those of clients that come to a server, and of a socket of this machine."""
        self.p.send_signal(signal.SIGINT)
        self.p.wait(20)
        self.out.seek(0)
        return [ln for ln in self.out.read().split("\n")
                if ln and not re.search(r"accept4?\(|AF_UNIX|resumed>|exited with|--- SIG", ln)]


def traced():
    """None, or why processes can not be watched here."""
    if not shutil.which("strace"):
        return "no strace"
    p = subprocess.run(["strace", "-qq", "-e", "trace=connect", "true"], capture_output=True,
                       text=True)
    return p.stderr.strip()[:100] if p.returncode else None


def ready(layout, how):
    why = traced()

    def run(g, front):
        name = f"{layout}, {how}"
        ranks = nodes.ranks(g.mark)
        need(f"{name}: ranks listen at no port", not ports(ranks.values()), ports(ranks.values()))
        need(f"{name}: a server at its own", ports([front.proc.pid]) == {front.port})
        if why:
            print(f"not run: calls of {name}: {why}")
            return
        w = Watched([*ranks.values(), front.proc.pid])
        rng = random.Random(1)
        asked = [attach.Story(front, f"{i} of {rng.random()}", max_tokens=60) for i in range(8)]
        for s in asked:
            s.join(120)
        calls = w.calls()
        need(f"{name}: they answer", all(s.done and not s.error() for s in asked))
        need(f"{name}: no call that opens a way out", not calls, calls[:8])
    faults.with_group(run, layout, how)


def main():
    why = mpi.missing(e2e.build_dir())
    if why:
        print(f"skipped: {why}")
        sys.exit(77)
    ready("tp=2", "memory")
    ready("dp=2,ep=2", "messages")
    with Server() as alone:
        need("a server of its own listens at its port", ports([alone.proc.pid]) == {alone.port})
    T.exit()


if __name__ == "__main__":
    main()
