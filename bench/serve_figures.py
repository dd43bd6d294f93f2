#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Figures of `sluice serve` that docs/serving.md tells.

  bench/serve_figures.py overhead MODEL.gguf [BATCH]...
      tokens/s beside `sluice bench`, and the CPU time of the threads that serve HTTP
  bench/serve_figures.py fair MODEL.gguf STREAMS PROMPT...
      gaps between tokens of streams while a prompt of so many tokens (16384) is read
  bench/serve_figures.py prefix MODEL.gguf
      time to the first token of 50 requests that have their first 2000 tokens in common
  bench/serve_figures.py masks MODEL.gguf [ANSWERS]
      token masks of constrained answers beside the time of the steps
  bench/serve_figures.py drafts MODEL.gguf PROMPTS.jsonl [CLIENTS]...
      what --draft auto (DRAFT="mtp --draft-max 1": another) gains at 1, 8 and 32 clients, in time
      and in CPU time. EXTRA=JSON: members that all bodies get, for instance a response_format.
      EVALSCOPE=FILE: the clients are that program's (evalscope[perf] of PyPI)

Two threads (THREADS=N: others), the client on the same cores. ROUNDS=N: so many times in turn (5);
TOKENS=N: of an answer in `overhead` and `drafts`. REQUESTS=N: of a round in `drafts`. SLUICE=FILE:
another program than build/sluice.
"""
import glob
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from compare import ROOT

SLUICE = os.environ.get("SLUICE", os.path.join(ROOT, "build", "sluice"))
THREADS = int(os.environ.get("THREADS", "2"))
DRAFT = ["--draft", *os.environ.get("DRAFT", "auto").split()]
ROUNDS = int(os.environ.get("ROUNDS", "5"))


class Serve:
    def __init__(self, model, *args):
        self.p = subprocess.Popen([SLUICE, "serve", "-m", model, "--port", "0",
                                   "-t", str(THREADS), *args], stderr=subprocess.PIPE, text=True)
        self.port = 0
        for line in self.p.stderr:
            m = re.search(r"listening on http://127.0.0.1:(\d+)", line)
            if m:
                self.port = int(m.group(1))
                break
        if not self.port:
            raise SystemExit("serve_figures: the server does not start")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.p.terminate()
        self.p.wait()

    def http_ms(self):
        """CPU time of all threads but the team's: the engine's thread is the first, its workers
        follow."""
        ids = sorted(map(int, os.listdir(f"/proc/{self.p.pid}/task")))
        return sum(int(open(f"/proc/{self.p.pid}/task/{i}/schedstat").read().split()[0])
                   for i in ids[THREADS:]) * 1e-6

    def push_ms(self):
        """Time that the engine's thread spent in writing to streams."""
        return 1e3 * metric(self, "sluice:push_seconds_total", 0)

    def http_ticks(self):
        """Clock ticks of the same threads in user mode, and in the kernel (on a loopback device
        that is the receiver's side of TCP, too)."""
        ids = sorted(map(int, os.listdir(f"/proc/{self.p.pid}/task")))
        rows = [open(f"/proc/{self.p.pid}/task/{i}/stat").read().rsplit(")", 1)[1].split()
                for i in ids[THREADS:]]
        return sum(int(r[11]) for r in rows), sum(int(r[12]) for r in rows)

    def load(self, *args, api="completions"):
        route = "chat/completions" if api == "chat" else api
        cmd = [SLUICE, "load", "--url", f"http://127.0.0.1:{self.port}/v1/{route}",
               "--api", api, "--model", "default", "-q", "--json", "-"]
        r = json.loads(subprocess.run(cmd + list(map(str, args)), stdout=subprocess.PIPE,
                                      check=True, text=True).stdout)["levels"][0]
        assert r["failed"] == 0, r
        return r

    def evalscope(self, program, prompts, *, parallel, number, n_out):
        """As load, but asked by evalscope: the last user's message of each line."""
        with tempfile.TemporaryDirectory() as d:
            lines = os.path.join(d, "lines.txt")
            with open(prompts, encoding="utf-8") as f, open(lines, "w", encoding="utf-8") as to:
                for line in map(json.loads, f):
                    text = line["messages"][-1]["content"] if "messages" in line else line["prompt"]
                    to.write(" ".join(text.split()) + "\n")
            r = subprocess.run(
                [program, "perf", "--url", f"http://127.0.0.1:{self.port}/v1/chat/completions",
                 "--model", "default", "--api", "openai", "--parallel", str(parallel),
                 "--number", str(number), "--dataset", "line_by_line", "--dataset-path", lines,
                 "--max-tokens", str(n_out), "--temperature", "0", "--stream",
                 "--outputs-dir", d], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            found = glob.glob(d + "/**/benchmark_summary.json", recursive=True)
            if not found:
                raise SystemExit(r.stdout[-2000:])
            with open(found[0]) as f, open(found[0].replace("summary", "percentile")) as g:
                all_, part = json.load(f), {x["Percentiles"]: x for x in json.load(g)}
        assert all_["Success Requests"] == number, all_
        return {"output_tps": all_["Output Throughput (tok/s)"],
                "output_tokens": number * all_["Avg Output Tokens"],
                "itl_ms": {"p99": part["99%"]["ITL (ms)"]}}

    def post(self, body):
        s = socket.create_connection(("127.0.0.1", self.port))
        b = json.dumps({"model": "default", "temperature": 0,
                        "ignore_eos": True, "stream": True, **body}).encode()
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
                  % len(b) + b)
        return s


def bench_rate(model, n, n_out):
    cmd = [SLUICE, "bench", "-m", model, "-t", str(THREADS),
           "-p", "0", "-n", str(n_out), "-b", str(n), "-d", "32", "-r", "1", "--json", "-q"]
    return json.loads(subprocess.run(cmd, stdout=subprocess.PIPE,
                                     check=True, text=True).stdout)[0]["tps"]


def decode_round(s, n, n_out):
    """n streams of n_out tokens after 32 tokens of context, greedy and with the bias that `sluice
    bench` gives its sequences where there are several. When it began and ended, and the streams'
    rates added up, from the times in their last chunks. The client stands for one on another
    machine: it reads every 100 ms, because one that wakes for every token takes the server's
    cores."""
    began = time.monotonic()
    def body(i):
        b = {"prompt": [100 + (37 * i + 7919 * k) % 3000 for k in range(33)],
             "max_tokens": n_out, "temperature": 0, "stream_options": {"include_usage": True}}
        return {**b, "logit_bias": {str(200 + 11 * i): 100}} if n > 1 else b
    left = [(s.post(body(i)), bytearray()) for i in range(n)]
    # one buffer for all: fresh ones cost this client twice what reading does
    ends, room = [], bytearray(1 << 18)
    view = memoryview(room)
    while left:
        time.sleep(0.1)
        for c, end in list(left):
            try:
                k = c.recv_into(room, 0, socket.MSG_DONTWAIT)
            except BlockingIOError:
                continue
            end += view[max(0, k - 1000):k]
            del end[:-1000]
            if not k or b"[DONE]" in end[-40:]:
                left.remove((c, end))
                ends.append(bytes(end))
                c.close()
    rates = [re.findall(rb'"decode_tps":([0-9.e+]+)', e) for e in ends]
    if any(len(r) != 1 for r in rates):
        raise SystemExit("serve_figures: a stream did not end as it should: " + next(
            e for e, r in zip(ends, rates) if len(r) != 1)[-300:].decode(errors="replace"))
    return began, time.monotonic(), sum(float(r[0]) for r in rates)


def full_rate(steps, n, began, ended):
    """Tokens/s from the first step of a round that decodes for all n streams to the last, whatever
    lies between them: what `sluice bench` measures. And the share of that time that is not in
    steps."""
    full = [e for e in steps if began < e["ts"] * 1e-6 < ended and e["args"]["decode"] == n]
    if len(full) < 2:
        raise SystemExit(f"serve_figures: answers are over before all {n} streams decode: TOKENS=N "
                         "for longer ones")
    us = full[-1]["ts"] - full[0]["ts"]
    inside = sum(e["dur"] for e in steps if full[0]["ts"] <= e["ts"] < full[-1]["ts"])
    return n * (len(full) - 1) / us * 1e6, 1 - inside / us


def serve_rates(model, n, n_out, rounds, between):
    """Of each round: what full_rate says, and the streams' own rates added up (they begin one after
    the other); CPU of serving HTTP in ms per 1000 tokens; then the share of it in user mode.
    between() runs before, between and after the rounds."""
    times, cpu = [], []
    with tempfile.TemporaryDirectory() as d:
        trace = os.path.join(d, "trace.json")
        with Serve(model, "--max-batch", str(n), "-c",
                   "4096", "--kv-tokens", str(4096 * (n + 1)), "--trace", trace) as s:
            decode_round(s, n, 8)  # the contexts stay in the prefix cache, as in the bench
            between()
            for _ in range(rounds):
                push = s.push_ms()
                http = s.http_ms()
                times.append(decode_round(s, n, n_out))
                http = s.http_ms() - http
                cpu.append((http + s.push_ms() - push) / (n * n_out) * 1e3)
                between()
            user, kernel = s.http_ticks()
        with open(trace) as f:
            steps = [e for e in json.load(f)["traceEvents"] if e["name"] == "step"]
    return [full_rate(steps, n, a, b) for a, b,
            _ in times], [r for _, _, r in times], cpu, user / max(1, user + kernel)


def overhead(model, *batches):
    """Server and bench in turn, because machines drift: each server run beside the mean of the
    bench runs before and after it."""
    for n in map(int, batches or ("1", "32")):
        n_out = int(os.environ.get("TOKENS", "128" if n > 1 else "512"))
        alone = []
        full, own, cpu, user = serve_rates(model, n, n_out, ROUNDS,
                                           lambda: alone.append(bench_rate(model, n, n_out)))
        rates, between = zip(*full)
        ratios, whole = ([2 * r / (a + b) for r, a, b in zip(v, alone, alone[1:])]
                         for v in (rates, own))
        m = statistics.median
        print(f"batch {n}: {m(rates):.1f} tok/s ({min(rates):.1f} .. {max(rates):.1f}), `sluice "
              f"bench` {m(alone):.1f} ({min(alone):.1f} .. {max(alone):.1f}): median of "
              f"{ROUNDS} rounds {100 * m(ratios):.1f} % "
              f"({', '.join(f'{100 * r:.1f}' for r in sorted(ratios))}); of the fastest runs "
              f"{100 * max(rates) / max(alone):.1f} %, of the medians "
              f"{100 * m(rates) / m(alone):.1f} %; the streams' own rates, starts included "
              f"{100 * m(whole):.1f} %; between steps {100 * m(between):.1f} % of the time; HTTP "
              f"{m(cpu):.1f} ms of CPU per 1000 tokens, "
              f"{100 * user:.0f} % of it in user mode", flush=True)


def quantile(v, q):
    return sorted(v)[min(len(v) - 1, int(q * len(v)))] if v else float("nan")


class Streams:
    """Streams that decode without end, and when each event came."""

    def __init__(self, server, n):
        self.times = [[] for _ in range(n)]
        self.stop = False
        self.all = [threading.Thread(target=self.read, args=(server, i), daemon=True)
                    for i in range(n)]
        for t in self.all:
            t.start()

    def read(self, server, i):
        with server.post({"prompt": f"stream {i}", "max_tokens": 1 << 20}) as s:
            while not self.stop:
                data = s.recv(1 << 16)
                if not data:
                    return
                self.times[i] += [time.perf_counter()] * data.count(b"data: {")

    def gaps(self, t0, t1):
        return [1e3 * (b - a) for t in self.times for a, b in zip(t, t[1:]) if t0 < b <= t1]


def busy_s(*pids):
    """CPU seconds of the whole machine, of these processes, and those that a host took away from
    the machine while it had work."""
    tick = os.sysconf("SC_CLK_TCK")
    user, nice, system, *_, steal = map(int, open("/proc/stat").readline().split()[1:9])
    own = 0
    for pid in pids:
        f = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
        own += int(f[11]) + int(f[12])
    return (user + nice + system) / tick, own / tick, steal / tick


def read_prompt(s, n):
    with s.post({"prompt": [100 + i * 7919 % 300 for i in range(n)],
                 "max_tokens": 1, "cache_salt": str(time.time())}) as c:
        text = b""
        while b"[DONE]" not in text:
            data = c.recv(1 << 16)
            if not data:
                raise SystemExit("serve_figures: the prompt was not read: "
                                 + text.decode(errors="replace"))
            text = text[-300:] + data


def fair_once(model, n_stream, n, trace):
    ctx = n + 4096
    with Serve(model, "-c", str(ctx), "--kv-tokens",
               str(ctx + 4096 * n_stream), "--trace", trace) as s:
        streams = Streams(s, n_stream)
        time.sleep(1.5)
        pids = (s.p.pid, os.getpid())
        t0, (all0, own0, steal0) = time.perf_counter(), busy_s(*pids)
        read_prompt(s, n)
        t1, (all1, own1, steal1) = time.perf_counter(), busy_s(*pids)
        time.sleep(1)
        g, quiet = streams.gaps(t0, t1), streams.gaps(t0 - 1, t0)
        streams.stop = True
    others = max(0, (all1 - all0) - (own1 - own0))
    return g, quiet, t1 - t0, (others + steal1 - steal0) / (t1 - t0)


def fair_steps(trace, n_stream):
    """Steps from the first that carries prompt tokens to the last: p99 over their median, and over
    the median of those in between that only decode; and how far the machine alone spreads them: p99
    over the median of those that only decode before the prompt."""
    with open(trace) as f:
        steps = [e for e in json.load(f)["traceEvents"]
                 if e["name"] == "step" and e["args"]["decode"] == n_stream]
    mixed = [i for i, e in enumerate(steps) if e["args"]["prompt"]]
    dur = [e["dur"] for e in steps[mixed[0]:mixed[-1] + 1]]
    alone = [e["dur"] for e in steps[mixed[0] - 1:mixed[-1] + 2] if not e["args"]["prompt"]]
    p99 = quantile(dur, 0.99)
    first = [e["dur"] for e in steps[max(0, mixed[0] - 200):mixed[0]]]
    return p99 / quantile(dur, 0.5), p99 / quantile(
        alone, 0.5), quantile(first, 0.99) / quantile(first, 0.5)


def fair(model, n_stream, *lengths):
    n_stream = int(n_stream)
    for n in map(int, lengths or ("16384",)):
        rows = []
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory() as d:
                trace = os.path.join(d, "trace.json")
                g, quiet, took, others = fair_once(model, n_stream, n, trace)
                rows.append((quantile(g, 0.5), quantile(g, 0.99), quantile(g, 0.99)
                             / quantile(g, 0.5), max(g), statistics.mean(quiet), took, others,
                             *fair_steps(trace, n_stream)))
        mid, p99, ratio, most, before, took, others, steps, decode, noise = (
            statistics.median(c) for c in zip(*rows))
        each = [", ".join(f"{r[k]:.2f}" for r in rows) for k in (2, 7, 8, 9)]
        print(f"{n_stream} streams, a prompt of {n} tokens, {THREADS} threads, medians of {ROUNDS} "
              f"rounds: read in {took:.2f} s; gaps p50 {mid:.2f} ms, "
              f"p99 {p99:.2f} ms: {ratio:.2f} of the p50 ({each[0]}), most {most:.2f} ms; mean "
              f"before it {before:.2f} ms\n"
              f"  steps: p99 {steps:.2f} of the p50 ({each[1]}), {decode:.2f} of those that only "
              f"decode ({each[2]}); "
              f"before the prompt, steps that only decode: p99 {noise:.2f} of their p50 "
              f"({each[3]}); "
              f"other programs and the host took {100 * others:.0f} % of a CPU", flush=True)


def prefix(model):
    with Serve(model, "-c", "4096", "--kv-tokens", "16384") as s:
        cold = s.load("--parallel", 1, "--number", 3,
                      "--input-length", 2100, "--output-length", 8, "--seed", 5)["ttft_ms"]["p50"]
        args = ("--parallel", 1, "--input-length",
                2050, "--prefix-length", 2000, "--output-length", 8, "--seed", 9)
        s.load(*args, "--number", 1)
        hot = s.load(*args, "--number", 50)
    t = hot["ttft_ms"]
    print(f"2000 of {hot['input_mean']:.0f} tokens in common, 50 requests: TTFT p50 {t['p50']:.1f} "
          f"ms, p99 {t['p99']:.1f} ms; cold {cold:.1f} ms: "
          f"{t['p50'] / cold:.3f} of it; {100 * hot['cached_tokens'] / hot['input_tokens']:.0f} % "
          "of the prompt tokens were there")


SCHEMA = {"type": "object", "additionalProperties": False,
          "required": ["name", "born", "age", "tags"], "properties": {
    "name": {"type": "string", "maxLength": 200}, "born": {"type": "string", "format": "date"},
    "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 8}}}


def metric(s, name, missing=None):
    with socket.create_connection(("127.0.0.1", s.port)) as c:
        c.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        text = b""
        while data := c.recv(1 << 16):
            text += data
    m = re.search(rf"^{name}(?:{{.*}})? (\S+)", text.decode(), re.M)
    return float(m.group(1)) if m or missing is None else missing


def masks(model, n=8):
    """Time of token masks beside that of the steps, n answers at a time, each under a grammar that
    nobody used before."""
    n, names = int(n), ("sluice:grammar_masks_total",
                        "sluice:grammar_mask_seconds_total", "sluice:step_seconds_total")
    with Serve(model, "--max-batch", str(n), "-c", "1024", "--kv-tokens", str(1024 * (n + 1))) as s:
        for what in ("new grammars", "the same again"):
            before = [metric(s, k) for k in names]
            form = [{**SCHEMA, "description": f"{i}"} for i in range(n)]
            all_ = [s.post({"prompt": f"Person {i}: ", "max_tokens": 64,
                            "temperature": 1, "seed": i, "ignore_eos": False, "stream": False,
                            "response_format": {"type": "json_schema", "json_schema": {
                                "name": "p", "schema": f}}}) for i, f in enumerate(form)]
            for c in all_:
                head = c.recv(1 << 16)
                if b" 200 " not in head[:20]:
                    raise SystemExit(f"serve_figures: {head.decode(errors='replace')}")
                c.close()
            count, mask, step = (metric(s, k) - b for k, b in zip(names, before))
            print(f"{n} answers at a time, {what}: {count:.0f} masks, {1e6 * mask / count:.1f} us "
                  f"each, {100 * mask / step:.2f} % of the steps' time")


def cpu_s(s):
    """CPU seconds of the server so far."""
    with open(f"/proc/{s.p.pid}/stat") as f:
        row = f.read().rsplit(")", 1)[1].split()
    return (int(row[11]) + int(row[12])) / os.sysconf("SC_CLK_TCK")


def drafts(model, prompts, *clients):
    """Two servers, without drafts and with, that are asked the same in turn: tokens/s, and tokens
    of a second of CPU time, which other programs on the machine change less."""
    n_out, program = os.environ.get("TOKENS", "128"), os.environ.get("EVALSCOPE")
    extra = ["--extra-args", os.environ["EXTRA"]] if "EXTRA" in os.environ else []
    with open(prompts, encoding="utf-8") as f:
        api = "chat" if "messages" in json.loads(f.readline()) else "completions"
    with Serve(model) as off, Serve(model, *DRAFT) as auto:
        for n in map(int, clients or ("1", "8", "32")):
            rows = {off: [], auto: []}
            for _ in range(ROUNDS):
                for s, out in rows.items():
                    before, number = cpu_s(s), int(os.environ.get("REQUESTS", max(48, 3 * n)))
                    if program:
                        r = s.evalscope(program, prompts, parallel=n, number=number, n_out=n_out)
                    else:
                        r = s.load("--parallel", n, "--number", number, "--dataset", prompts,
                                   "--output-length", n_out, "--temp", 0, "--warmup", 0,
                                   "--allow-eos", *extra, api=api)
                    made = r["output_tokens"]
                    out.append((r["output_tps"], made / (cpu_s(s) - before), r["itl_ms"]["p99"]))
            m = statistics.median
            gain = [[b[k] / a[k] for a, b in zip(rows[off], rows[auto])] for k in range(2)]
            print(f"{n} clients: {m(r[0] for r in rows[auto]):.1f} tok/s, without drafts "
                  f"{m(r[0] for r in rows[off]):.1f}: median of {ROUNDS} rounds {m(gain[0]):.3f} "
                  f"({', '.join(f'{g:.2f}' for g in sorted(gain[0]))}); tokens of a CPU second "
                  f"{m(gain[1]):.3f} ({', '.join(f'{g:.2f}' for g in sorted(gain[1]))}); p99 of "
                  f"the time between tokens {m(r[2] for r in rows[auto]):.1f} ms, without "
                  f"{m(r[2] for r in rows[off]):.1f}", flush=True)


def main():
    commands = {"overhead": overhead, "fair": fair, "prefix": prefix, "masks": masks,
                "drafts": drafts}
    if len(sys.argv) < 3 or sys.argv[1] not in commands:
        raise SystemExit(__doc__)
    commands[sys.argv[1]](*sys.argv[2:])


main()
