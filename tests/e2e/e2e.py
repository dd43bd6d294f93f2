# SPDX-License-Identifier: Apache-2.0
"""What the end-to-end checks share. Needs nothing but python3's own library."""
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DATA = os.path.join(ROOT, "tests", "data")


def build_dir():
    """The build folder: the first argument, else build/."""
    return os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build"))


def sluice(build=None):
    for d in ("", "tools", "bin"):
        p = os.path.join(build or build_dir(), d, "sluice")
        if os.path.isfile(p):
            return p
    sys.exit(f"no sluice in {build or build_dir()}: build it first")


def tiny(build=None):
    """The folder of the tiny checkpoints, which CMake unpacks into the build folder."""
    out = os.environ.get("SLUICE_TINY") or os.path.join(build or build_dir(), "tests", "tiny")
    if not os.path.exists(os.path.join(out, "manifest.json")):
        sys.exit(f"no checkpoints in {out}: build first")
    return out


def limits(mem, cpu):
    def fn():
        if mem:
            resource.setrlimit(resource.RLIMIT_AS, (mem, mem))
        if cpu:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return fn


def instrumented():
    """Whether the build is one of the sanitizers', which reserve terabytes of addresses."""
    return os.path.basename(build_dir()).endswith(("-asan", "-tsan"))


def run(args, stdin=None, timeout=120, mem=0, cpu=0, cwd=None, env=None):
    """(exit code, stdout bytes, stderr text); a timeout gives code None."""
    if instrumented():
        mem, cpu, timeout = 0, 10 * cpu, 10 * timeout
    e = dict(os.environ, LC_ALL="C.UTF-8", **(env or {}))
    try:
        p = subprocess.run(args, input=stdin, capture_output=True, timeout=timeout, cwd=cwd, env=e,
                           preexec_fn=limits(mem, cpu))
    except subprocess.TimeoutExpired:
        return None, b"", "timeout"
    return p.returncode, p.stdout, p.stderr.decode("utf-8", "replace")


def scratch():
    return tempfile.TemporaryDirectory(prefix="sluice-e2e-")


def one_line_failure(code, err):
    """What is wrong with this as the failure of a command (None: nothing)."""
    if code is None:
        return "did not end in time"
    if code < 0:
        return f"killed by signal {-code}"
    if code not in (1, 2):
        return f"exit code {code}, not 1 or 2"
    lines = err.strip("\n").split("\n")
    if len(lines) != 1 or not lines[0].startswith("sluice: ") or len(lines[0]) < 20:
        return f"not one line 'sluice: ...' on stderr: {err[:300]!r}"
    return None


def last_json(out):
    return json.loads(out.decode().strip().split("\n")[-1])


class Tally:
    """Counts and prints; exit() ends the program with the verdict."""

    def __init__(self, what):
        self.what, self.good, self.bad = what, 0, 0
        self.lock = threading.Lock()

    def check(self, name, problem):
        with self.lock:
            self.good += not problem
            self.bad += bool(problem)
        if problem:
            print(f"FAIL {name}: {problem}", flush=True)

    def exit(self):
        print(f"{self.what}: {self.good} good, {self.bad} bad", flush=True)
        sys.exit(1 if self.bad or not self.good else 0)
