# SPDX-License-Identifier: Apache-2.0
"""Two machines for tests: two network namespaces of this one with a link between them, each with a
name of its own, so that mpirun and ranks take them for two. What the link carries is counted by the
kernel, and its rate may be cut. Needs root."""
import os
import shutil
import subprocess
import sys
import tempfile
import uuid

import mpi

HERE = os.path.dirname(os.path.abspath(__file__))
NET = "10.77.0"
MARK = "SLUICE_TEST_RUN"


def ip(*args):
    subprocess.run(["ip", *args], check=True, capture_output=True)


def missing():
    """What is not there (None: nothing)."""
    if os.geteuid() or not shutil.which("ip"):
        return "no root, or no ip (Debian: iproute2)"
    name = f"slt{os.getpid()}"
    try:
        ip("netns", "add", name)
        ip("netns", "del", name)
    except subprocess.CalledProcessError as x:
        return f"no namespaces: {x.stderr.decode().strip()}"
    return None


class Nodes:
    """with Nodes() as n: subprocess.Popen(n.command((2, [sluice, ...])))"""

    def __init__(self):
        self.ns = [f"sl{os.getpid()}{c}" for c in "ab"]
        self.dev = [f"sv{os.getpid()}{c}" for c in "ab"]
        self.folder = tempfile.TemporaryDirectory()
        for n in self.ns:
            ip("netns", "add", n)
            ip("-n", n, "link", "set", "lo", "up")
        ip("link", "add", self.dev[0], "netns", self.ns[0], "type", "veth", "peer", "name",
           self.dev[1], "netns", self.ns[1])
        for i in (0, 1):
            ip("-n", self.ns[i], "addr", "add", f"{NET}.{i + 1}/24", "dev", self.dev[i])
            ip("-n", self.ns[i], "link", "set", self.dev[i], "up")
        self.agent = os.path.join(self.folder.name, "agent")
        with open(self.agent, "w") as f:  # agent HOST COMMAND, in place of ssh
            f.write(f"#!/bin/sh\nh=$1\nshift\nexec ip netns exec sl{os.getpid()}$h unshare -u "
                    "sh -c 'hostname \"$0\"; exec sh -c \"$*\"' $h \"$@\"\n")
        os.chmod(self.agent, 0o755)

    def __enter__(self):
        return self

    def __exit__(self, *a):
        for n in self.ns:
            subprocess.run(["ip", "netns", "del", n], capture_output=True)
        self.folder.cleanup()

    def command(self, *programs, network=NET + ".0/24", slots=1, mark=None):
        """mpirun, in the first one, of ranks dealt out to both. network None: none is named."""
        mca = ["--mca", "plm_rsh_agent", self.agent, "--mca", "oob_tcp_if_include", NET + ".0/24"]
        if network:
            mca += ["--mca", "btl_tcp_if_include", network]
        first, *rest = mpi.command(*programs)
        return ["ip", "netns", "exec", self.ns[0], "unshare", "-u", "sh", "-c",
                "hostname a; exec \"$@\"", "sh", first, "--host", f"a:{slots},b:{slots}",
                "--map-by", f"ppr:{slots}:node", *mca, "-x", f"{MARK}={mark or 'none'}", *rest]

    def inside(self, i, *args):
        """The command in the i-th one."""
        return ["ip", "netns", "exec", self.ns[i], *args]

    def carried(self):
        """Bytes that the link has carried, both ways, heads of packets included."""
        n = 0
        text = subprocess.run(self.inside(0, "cat", "/proc/net/dev"), capture_output=True,
                              text=True, check=True).stdout
        for line in text.split("\n"):
            name, _, row = line.partition(":")
            if name.strip() == self.dev[0]:
                n += int(row.split()[0]) + int(row.split()[8])
        return n

    def forward(self, path):
        """A socket in the second machine (unix:PATH) that goes to the one at path of the first,
        over the link; and two processes, to be killed."""
        there, near = f"{NET}.1:7707", "unix:" + os.path.join(self.folder.name, "near")
        procs = []
        for i, at, to in ((0, there, "unix:" + path), (1, near, there)):
            args = self.inside(i, sys.executable, os.path.join(HERE, "forward.py"), at, to)
            procs.append(subprocess.Popen(args, stdout=subprocess.PIPE))
            procs[-1].stdout.readline()
        return near, procs

    def slow(self, rate, burst="1600", limit="30000"):
        """Cut the link's rate ("1kbit"), or let it be (None). burst, limit: bytes that may go at
        once, and that wait."""
        for i in (0, 1):
            tc = self.inside(i, "tc", "qdisc")
            if rate:
                subprocess.run([*tc, "add", "dev", self.dev[i], "root", "tbf", "rate", rate,
                                "burst", burst, "limit", limit], check=True, capture_output=True)
            else:
                subprocess.run([*tc, "del", "dev", self.dev[i], "root"], capture_output=True)


def mark():
    return uuid.uuid4().hex


def ranks(mark_text):
    """{rank: process} of what was started with that mark, wherever."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                env = dict(e.split(b"=", 1) for e in f.read().split(b"\0") if b"=" in e)
            with open(f"/proc/{pid}/stat") as f:
                state = f.read().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        rank = env.get(b"OMPI_COMM_WORLD_RANK")
        if env.get(MARK.encode()) == mark_text.encode() and rank and state != "Z":
            found[int(rank)] = int(pid)
    return found
