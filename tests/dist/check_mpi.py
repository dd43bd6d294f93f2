#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that are processes: what commands give under mpirun, and how it ends when one is killed or
stopped (check_refused.py: what is refused when they open).

  check_mpi.py [BUILD] [--faults N]      --faults: those only, N times each

Both with memory in common and with messages, as between machines (SL_DIST=messages)."""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "e2e")]
import e2e  # noqa: E402
import mpi  # noqa: E402

BUILD = e2e.build_dir()
SLUICE = e2e.sluice(BUILD)
TINY = e2e.tiny(BUILD)
MODEL = os.path.join(TINY, "deepseek_v3_fp8")
DEMO = os.path.join(e2e.ROOT, "models", "demo", "demo.gguf")
IDS = "5,6,7,8,5,6,7,8,5,6,7"
tally = e2e.Tally("mpi")
AT_ONCE = 5
HOW = threading.local()  # .what: the way that this thread's ranks take


def env(**more):
    return dict(os.environ, SL_DIST=getattr(HOW, "what", "memory"), **more)


def run(programs):
    return mpi.run(programs, env=env())


def check(name, bad):
    tally.check(f"{name} ({getattr(HOW, 'what', 'memory')})", bad)


def said(text, what):
    return None if re.search(what, text) else f"no {what!r} in {text[-600:]!r}"


def run_args(*more, model=MODEL):
    return [SLUICE, "run", "-m", model, "--ids", IDS, "-n", "24", "--ignore-eos", "--json", "-q",
            *more]


def check_answers():
    code, out, err = e2e.run(run_args())
    one = e2e.last_json(out)["run_hash"]
    for layout, n in (("tp=2", 2), ("pp=2", 2), ("tp=2,pp=2", 4)):
        code, out, err, _ = run([(n, run_args("--layout", layout))])
        check(f"run, {layout}", code and f"exit {code}: {err[-400:]}")
        if code:
            continue
        lines = out.strip().split("\n")
        got = json.loads(lines[-1])
        check(f"one line, {layout}", len(lines) != 1 and f"{len(lines)} lines")
        check(f"answer, {layout}", got["run_hash"] != one and "another answer")
        check(f"ranks, {layout}", got["ranks"] != n and f"ranks: {got['ranks']}")
        team = e2e.last_json(e2e.run(run_args("--layout", layout, "-t", str(n)))[1])
        for key in ("wire_bytes_per_token", "weight_bytes_per_rank"):
            check(f"{key}, {layout}", got[key] != team[key] and
                        f"{got[key]}, of threads {team[key]}")
        code, out, err, _ = run([(n, run_args("--layout", layout, "--draft", "auto"))])
        check(f"drafts, {layout}", code and f"exit {code}: {err[-400:]}" or
                    json.loads(out)["run_hash"] != one and "another answer")
    # prompts that stages compute in pieces
    long = ["--ids", ",".join(str(5 + i % 90) for i in range(130))]
    one_long = e2e.last_json(e2e.run(run_args(*long))[1])["run_hash"]
    code, out, err, _ = run([(2, run_args(*long, "--layout", "pp=2"))])
    check("a prompt in pieces", code and f"exit {code}: {err[-400:]}" or
                json.loads(out)["run_hash"] != one_long and "another answer")
    # stages on devices whose memory is not the host's
    on = ["--layout", "pp=2", "--device"]
    code, out, err, _ = run([(2, run_args(*long, *on, "check"))])
    check("a prompt on devices", code and f"exit {code}: {err[-400:]}" or
                json.loads(out)["run_hash"] != one_long and "another answer")
    code, out, err, _ = run([(2, run_args(*long, *on, "check", "--cpu-moe"))])
    check("a prompt on devices and CPUs", code and f"exit {code}: {err[-400:]}" or
                json.loads(out)["run_hash"] != one_long and "another answer")
    # hot experts of every stage, and prompts streamed by all of them, whose counts are added up
    moe = os.path.join(TINY, "qwen3_moe")
    one_moe = e2e.last_json(e2e.run(run_args(*long, model=moe))[1])["run_hash"]
    for more in (["--stream-from", "16"], ["--stream-from", "auto", "--hot-update", "20"]):
        args = [*long, *on, "check", "--cpu-moe", "--hot-experts", "2", *more, "-v"]
        code, out, err, _ = run([(2, run_args(*args, model=moe))])
        check(f"hot and streamed experts {more[1]}", code and f"exit {code}: {err[-400:]}" or
                    json.loads(out)["run_hash"] != one_moe and "another answer")
        check(f"streamed by both {more[1]}", more[1] == "16" and
                    said(err, "stream-from: experts of 2 layers come to check and other stages' "
                              "devices in steps of 16 tokens and more"))
    code, out, err, _ = run([(1, run_args(*on, "check", "--cpu-moe", "--stream-from", "9")),
                             (1, run_args(*on, "check", "--cpu-moe"))])
    check("other streams", said(err, "layout: rank 1 is not as rank 0: --stream-from differs"))
    # ranks that share layers
    code, out, err, _ = run([(2, run_args(*long, "--layout", "tp=2", "--device", "check"))])
    check("shared layers on devices", code and f"exit {code}: {err[-400:]}" or
                json.loads(out)["run_hash"] != one_long and "another answer")
    code, out, err, _ = run([(1, run_args(*on, "cpu")), (1, run_args(*on, "check"))])
    check("other devices", said(err, "layout: rank 1 is not as rank 0: --device differs"))
    code, out, err, _ = run([(1, run_args(*on, "check")),
                             (1, run_args(*on, "check", "--cpu-moe"))])
    check("other places", said(err, "layout: rank 1 is not as rank 0: --place differs"))
    # rank 0's sizes count
    code, out, err, _ = run([(1, run_args("--layout", "tp=2", "-c", "64")),
                                 (1, run_args("--layout", "tp=2", "-c", "36"))])
    check("other sizes", code and f"exit {code}: {err[-400:]}" or
                json.loads(out)["run_hash"] != one and "another answer")
    # several processes without a layout are what they always were
    code, out, err, _ = run([(2, run_args())])
    check("two programs without a layout",
                code and f"exit {code}: {err[-300:]}" or out.count(one) != 2 and "not two answers")


def check_model_dir():
    """A machine that has the model elsewhere than the others."""
    path, here = DEMO, socket.gethostname()
    _, out, _ = e2e.run(run_args(model=path))
    one = e2e.last_json(out)["run_hash"]
    for name, model, more in (("this one's", "/nowhere.gguf", [f"{here}={path}"]),
                              ("its short name's", "/nowhere.gguf",
                               ["elsewhere=/nowhere.gguf", f"{here.split('.')[0]}={path}"]),
                              ("another's", path, ["elsewhere=/nowhere.gguf"])):
        args = [a for m in more for a in ("--model-dir", m)]
        code, out, err, _ = run([(2, run_args("--layout", "tp=2", *args, model=model))])
        check(f"--model-dir: {name}", code and f"exit {code}: {err[-400:]}" or
              json.loads(out.strip().split("\n")[-1])["run_hash"] != one and "another answer")
    for args, says in (([f"{here}={path}"], "goes with --layout and several processes"),
                       (["x=a", "x=b"], "x is there twice"), (["x"], "expected HOST=PATH")):
        args = [a for m in args for a in ("--model-dir", m)]
        code, _, err = e2e.run(run_args(*args, model=path))
        check(f"--model-dir: {says}", not code and "it ran" or said(err, says))
    code, _, err, _ = run([(2, run_args("--layout", "tp=2", "--model-dir", "x", model=path))])
    check("--model-dir of processes", not code and "it ran" or said(err, "expected HOST=PATH"))


def check_batch_on_stdin():
    """Standard input is rank 0's."""
    lines = "".join(json.dumps({"ids": [5, 6, 7, i], "n": 8}) + "\n" for i in range(6))
    args = [SLUICE, "run", "-m", MODEL, "--batch-file", "-", "-q"]
    one = e2e.run(args, stdin=lines.encode())[1].decode()
    p = subprocess.run(mpi.command((2, args + ["--layout", "tp=2"])), input=lines, timeout=60,
                       capture_output=True, text=True, env=env())
    check("a batch on standard input", p.returncode and p.stderr[-400:] or
                [json.loads(x)["tokens"] for x in p.stdout.strip().split("\n")] !=
                [json.loads(x)["tokens"] for x in one.strip().split("\n")] and "another answer")


class Running:
    """A long answer of two processes, or of those of another layout, with the slowest kernels: else
    it may be over before anything happens to them."""

    def __init__(self, *more, layout="tp=2", n=2):
        self.n = n
        args = [SLUICE, "run", "-m", "demo", "-p", "Once", "-n", "1900", "-c", "2048",
                "--ignore-eos", "--layout", layout, *more]
        self.p = subprocess.Popen(mpi.command((n, args)), stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                  env=env(SL_CPU="ref"))
        self.out, self.err = b"", b""
        self.readers = [threading.Thread(target=self.read, args=(f, k))
                        for f, k in ((self.p.stdout, "out"), (self.p.stderr, "err"))]
        for t in self.readers:
            t.start()
        t0 = time.monotonic()
        while len(self.out) < 200 and time.monotonic() - t0 < 60 and self.p.poll() is None:
            time.sleep(0.02)
        self.ranks = mpi.ranks(self.p.pid)

    def read(self, f, key):
        while True:
            b = f.read1(4096)
            if not b:
                return
            setattr(self, key, getattr(self, key) + b)

    def wait(self, seconds):
        """(exit code or None, seconds, stderr)"""
        t0 = time.monotonic()
        try:
            self.p.wait(seconds)
        except subprocess.TimeoutExpired:
            mpi.end(self.p)
        took = time.monotonic() - t0
        for t in self.readers:
            t.join()
        return self.p.returncode, took, self.err.decode("utf-8", "replace")


def fault(name, rank, sig, what, most, *more, **of):
    """most: seconds that it may take; beside the time that it says it has waited."""
    r = Running(*more, **of)
    if sorted(r.ranks) != list(range(r.n)):
        check(name, f"ranks {r.ranks}: {r.wait(1)}")
        return
    os.kill(r.ranks[rank] if rank >= 0 else r.p.pid, sig)
    code, took, err = r.wait(most + 30)
    waited = re.search(r"no sign for (\d+\.\d) s", err)
    most += float(waited[1]) if waited else 0
    check(f"{name}: fails", code == 0 and "exit 0")
    check(f"{name}: in time", took > most and f"{took:.1f} s of {most}: {err[-300:]}")
    if what:
        check(f"{name}: says who", said(err, what))
    end = time.monotonic() + max(0, most - took)
    while any(map(mpi.alive, r.ranks.values())) and time.monotonic() < end:
        time.sleep(0.02)
    left = [k for k, pid in r.ranks.items() if mpi.alive(pid)]
    check(f"{name}: all end", left and f"ranks {left} are left")
    for pid in r.ranks.values():
        if mpi.alive(pid):
            os.kill(pid, signal.SIGKILL)


def faults():
    """Of each (fault, its arguments)."""
    silent = r"rank {} \(\S+, process \d+\) gave no sign for \d+\.\d s"
    gone = r"rank {} \(\S+, process \d+\) is gone"
    kill, stop = signal.SIGKILL, signal.SIGSTOP
    deadline = ("--dist-deadline-ms", "1500")
    stages = {"layout": "pp=3", "n": 3}
    return [
        (fault, "rank 1 stopped", 1, stop, silent.format(1), 4, *deadline),
        (fault, "rank 0 stopped", 0, stop, silent.format(0), 6, *deadline),
        (lambda: fault("first of three stages stopped", 2, stop, silent.format(2), 5, *deadline,
                       **stages),),
        (lambda: fault("first of three stages killed", 2, kill, gone.format(2), 5, **stages),),
        (fault, "rank 1 killed", 1, kill, gone.format(1), 5),
        (fault, "rank 0 killed", 0, kill, gone.format(0), 5),
        (fault, "launcher killed", -1, kill, None, 5)]


def check_slow_rank():
    """A rank that runs a tenth of the time is waited for."""
    r = Running("--dist-deadline-ms", "1500")
    if sorted(r.ranks) != [0, 1]:
        check("a slow rank", f"ranks {r.ranks}: {r.wait(1)}")
        return
    before, t0 = len(r.out), time.monotonic()
    while r.p.poll() is None and time.monotonic() - t0 < 6:
        os.kill(r.ranks[1], signal.SIGSTOP)
        time.sleep(0.6)
        os.kill(r.ranks[1], signal.SIGCONT)
        time.sleep(0.06)
    check("a slow rank is not given up", r.p.poll() and r.wait(1))
    check("a slow rank: the answer goes on", len(r.out) <= before and "no more text")
    mpi.end(r.p)
    r.wait(5)


def planned(work):
    """The configuration that the planner writes for two ranks as doctor measured them."""
    ranks, config = os.path.join(work, "ranks.json"), os.path.join(work, "serve.json")
    code, out, err, _ = run([(2, [SLUICE, "doctor", "--ranks", "--json"])])
    check("doctor's ranks", code and f"exit {code}: {err[-400:]}")
    if not code:  # a rank copies its own rows at some 100 GB/s at most
        far = {k: v for k, v in json.loads(out).items() if k.endswith("_gbps") and not 0 < v < 400}
        check("speeds that there can be", far and f"GB/s: {far}")
    with open(ranks, "w") as f:
        f.write(out)
    code, out, err = e2e.run([SLUICE, "plan", "--this-cluster", ranks, "-m", DEMO, "--layout",
                              "tp2", "--mtp", "0", "--input", "512", "--concurrency", "2",
                              "--emit", config])
    check("plan", code and err or said(out.decode(), "start: mpirun -n 2 .*--config"))
    return config


def check_serve():
    with tempfile.TemporaryDirectory() as work:
        serve("--config", planned(work))


def serve(*of, n_stage=1):
    args = [SLUICE, "serve", *of, "--port", "0"]
    p = subprocess.Popen(mpi.command((2, args)), stderr=subprocess.PIPE, text=True,
                         stdin=subprocess.DEVNULL, env=env())
    timer = threading.Timer(90 if "--spare" not in of else 300, mpi.end, (p,))
    timer.start()
    text, port = "", 0
    for line in p.stderr:
        text += line
        m = re.search(r"listening on http://[^:]*:(\d+)", line)
        if m:
            port = int(m[1])
            break
    if not port:
        p.wait()
        check("serve", f"does not listen: {text[-500:]}")
        return
    ask = {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0}
    req = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions",
                                 json.dumps(ask).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(req, timeout=60) as r:
        got = json.load(r)["choices"][0]["text"]
    one = e2e.last_json(e2e.run([SLUICE, "run", "-m", "demo", "-p", ask["prompt"], "-n", "24",
                                 "--json"])[1])["text"]
    check("serve's answer", got != one and f"{got!r}, not {one!r}")
    if "--spare" in of:
        moves(port, ask, got)
    time.sleep(1.1)  # counts of ranks are a second old at most
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as r:
        text = r.read().decode()
    idle = re.findall(r'sluice:pipeline_idle_ratio\{[^}]*stage="(\d)"\} (\S+)', text)
    of = {k: [float(v) for _, v in
              re.findall(rf'sluice:{k}_total\{{[^}}]*rank="(\d)"(?:,path="node")?\}} (\S+)', text)]
          for k in ("rank_step_seconds", "dist_wait_seconds", "dist_bytes", "dist_ops")}
    right = (all(len(v) == 2 for v in of.values())
             and all(0 <= w <= s for w, s in zip(of["dist_wait_seconds"],
                                                of["rank_step_seconds"]))
             and all(sum(v) > 0 for k, v in of.items() if k != "dist_ops")
             and (sum(of["dist_ops"]) > 0) == (n_stage == 1))  # stages hand over, and join nothing
    check("what each rank waited and took", not right and f"{of}")
    link = re.findall(r'sluice:link_(latency_us|gbps)\{[^}]*\} (\S+)', text)
    near = [float(v) for v in re.findall(r'sluice:local_page_ratio\{[^}]*\} (\S+)', text)]
    check("pages that are near", len(near) not in (0, 2) or any(not 0 <= v <= 1 for v in near)
          and f"{near}")  # none where the kernel does not tell
    check("the link", len(link) != 2 * (n_stage == 1) or any(float(v) <= 0 for _, v in link)
          and f"{link}")
    check("idle stages", [int(k) for k, _ in idle] != list(range(n_stage)) * (n_stage > 1) or
                any(not 0 < float(v) < 1 for _, v in idle) and f"{idle}")
    owners = mpi.ranks(p.pid)
    listen = [n for n in listeners(owners.values()) if n != port]
    check("serve listens at its port only", listen and f"ports {listen} too")
    os.kill(owners[0], signal.SIGTERM)
    p.stderr.read()
    check("serve ends", p.wait(60) and f"exit {p.returncode}")
    timer.cancel()


def moves(port, ask, want):
    """Experts change ranks while there are answers."""
    def post(path, body):
        r = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(),
                                   {"Content-Type": "application/json"})
        with urllib.request.urlopen(r, timeout=60) as f:
            return json.load(f)
    for k in range(6):
        post("/admin/place", {})
        post("/v1/completions", {"prompt": f"{k} of", "max_tokens": 60, "temperature": 1,
                                 "seed": k, "ignore_eos": True})
        got = post("/v1/completions", ask)["choices"][0]["text"]
        check(f"an answer while experts move, {k}", got != want and f"{got!r}, not {want!r}")
    last = post("/admin/place", {})
    check("experts have moved", not last["experts_moved"] and f"{last}")


def listeners(pids):
    """TCP ports at which these processes listen."""
    inodes, ports = set(), []
    for pid in pids:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                inodes.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
            except OSError:
                pass
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        if not os.path.exists(name):
            continue
        with open(name) as f:
            for line in f.readlines()[1:]:
                w = line.split()
                if w[3] == "0A" and f"socket:[{w[9]}]" in inodes:
                    ports.append(int(w[1].rsplit(":", 1)[1], 16))
    return ports


def jobs_of(how, times):
    """(way, function, its arguments): those first that wait longest."""
    jobs = [(check_slow_rank,), *faults()] * (times or 1)
    if not times:
        jobs += [(serve, "-m", "demo", "--layout", "tp=2,ep=2", "--spare", "2", "--place-mbps",
                  "100000"), (check_answers,), (check_batch_on_stdin,)]
        jobs += [(check_model_dir,)] if how == "memory" else []
        jobs.append((check_serve,) if how == "memory" else
                    (lambda: serve("-m", "demo", "--layout", "pp=2", n_stage=2),))
    return [(how, *j) for j in jobs]


def do(job):
    HOW.what, fn, *args = job
    fn(*args)


def main():
    why = mpi.missing(BUILD)
    if why:
        print(f"skipped: {why}")
        sys.exit(77)
    times = int(sys.argv[sys.argv.index("--faults") + 1]) if "--faults" in sys.argv else 0
    # several at once: what they do is to wait for deadlines and for launchers that end others
    ways = [jobs_of(how, times) for how in ("memory", "messages")]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in pool.map(do, [job for both in zip(*ways) for job in both]):
            pass  # one that could not go to its end raises here
    tally.exit()


if __name__ == "__main__":
    main()
