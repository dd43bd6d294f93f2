# SPDX-License-Identifier: Apache-2.0
"""mpirun for tests: on few cores, as root too, with all ranks on one machine."""
import os
import shutil
import subprocess
import time

BASE = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]


def missing(build):
    """What is not there (None: nothing)."""
    if not shutil.which("mpirun"):
        return "no mpirun (Debian: openmpi-bin)"
    if not os.path.exists(os.path.join(build, "libsluice-mpi.so")):
        return "no libsluice-mpi.so in the build (Debian: libopenmpi-dev)"
    return None


def command(*programs):
    """mpirun of one or several (number of ranks, arguments)."""
    out = list(BASE)
    for i, (n, args) in enumerate(programs):
        out += ([":"] if i else []) + ["-n", str(n)] + list(args)
    return out


def run(programs, timeout=60, env=None, pre=()):
    """(exit code, stdout, stderr, seconds); code None: it did not end in time. pre: options of
    mpirun."""
    t0 = time.monotonic()
    line = command(*programs)
    line[len(BASE):len(BASE)] = pre
    p = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         text=True, stdin=subprocess.DEVNULL, env=dict(os.environ, **(env or {})))
    try:
        out, err = p.communicate(timeout=timeout)
        return p.returncode, out, err, time.monotonic() - t0
    except subprocess.TimeoutExpired:
        end(p)
        out, err = p.communicate()
        return None, out, err, time.monotonic() - t0


def ranks(launcher):
    """{rank: process} of the processes that an mpirun has started."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as f:
                parent = int(f.read().rsplit(")", 1)[1].split()[1])
            if parent != launcher:
                continue
            with open(f"/proc/{pid}/environ", "rb") as f:
                env = f.read().split(b"\0")
        except OSError:
            continue
        for e in env:
            if e.startswith(b"OMPI_COMM_WORLD_RANK="):
                found[int(e.split(b"=")[1])] = int(pid)
    return found


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def end(p):
    """An mpirun and its ranks, at once."""
    for pid in list(ranks(p.pid).values()) + [p.pid]:
        try:
            os.kill(pid, 9)
        except OSError:
            pass
