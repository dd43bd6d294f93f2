#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Do evalscope's figures and those of `sluice load` agree? By hand, because evalscope is large:

  python3 -m venv V; V/bin/pip install 'evalscope[perf]==1.14.0'
  tests/oracle/check_evalscope.py BUILD V/bin/evalscope MODEL.gguf|fixed [REPEATS]

`fixed` is a server of this script with fixed times (250 ms to the first token, 10 ms for each
more), which no drift of the machine changes; evalscope itself takes 2 to 3 ms of a time to the
first token. Both send the same prompts to one server (`sluice serve -t 1` on the first CPU, no
prefix cache), in turn, from the other CPUs: 1 and 4 at a time, each answer 64 tokens long; no
warm-up, because evalscope's requests for that are part of the first wave. A repeat is a pair of
runs beside each other, the one first that was last before, because the machine drifts: the median
over pairs of the quotients of the mean TTFT, TPOT, latency and of the output tokens/s must be
within 3 % of 1.
"""
import glob
import http.server
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

BUILD, EVALSCOPE, MODEL = sys.argv[1:4]
REPEATS = int(sys.argv[4]) if len(sys.argv) > 4 else 3
LEVELS = [(1, 8), (4, 24)]
ANSWER = 64
SLUICE = os.path.join(BUILD, "sluice")
WORDS = ("time year people way day man thing life child world school state family group hand part "
         "place case week point".split())


def taskset(cpus, cmd):
    return ["taskset", "-c", cpus] + cmd if (os.cpu_count() or 1) > 1 else cmd


def others():
    return f"1-{os.cpu_count() - 1}"


class Fixed(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_POST(self):
        t0 = time.perf_counter()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        n = body.get("max_tokens", ANSWER)
        for i in range(n):
            time.sleep(max(0, t0 + 0.25 + 0.01 * i - time.perf_counter()))
            self.chunk(
                {"choices": [{"index": 0, "delta": {"content": "a "}, "finish_reason": None}]})
        self.chunk({"choices": [], "usage": {"prompt_tokens": 100,
                                             "completion_tokens": n, "total_tokens": 100 + n}})
        self.wfile.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")

    def chunk(self, o):
        data = b"data: " + json.dumps({"object": "chat.completion.chunk", **o}).encode() + b"\n\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))


class Stop:
    """What main ends a server by."""

    def __init__(self, server):
        self.terminate = server.shutdown

    def wait(self):
        pass


def fixed():
    s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Fixed)
    threading.Thread(target=s.serve_forever, daemon=True).start()
    return Stop(s), f"http://127.0.0.1:{s.server_port}"


def serve():
    p = subprocess.Popen(taskset("0", [SLUICE, "serve", "-m", MODEL, "--port", "0", "-t", "1",
                                       "--prefix-cache", "off", "--max-batch", "8", "-c", "1024"]),
                         stderr=subprocess.PIPE, text=True)
    for line in p.stderr:
        m = re.search(r"listening on (\S+)", line)
        if m:
            return p, m.group(1)
    raise SystemExit("check_evalscope: the server does not start")


def run_load(url, prompts, parallel, number):
    text = subprocess.run(taskset(others(), [SLUICE, "load", "--url", url, "--model", "default",
                                             "--dataset", prompts, "--parallel", str(parallel),
                                             "--number", str(number), "--output-length",
                                             str(ANSWER), "--warmup", "2", "--json", "-", "-q"]),
                          stdout=subprocess.PIPE, text=True, check=True).stdout
    r = json.loads(text)["levels"][0]
    assert r["failed"] == 0 and r["output_mean"] == ANSWER, r
    return {"TTFT ms": r["ttft_ms"]["mean"], "TPOT ms": r["tpot_ms"]["mean"],
            "latency ms": r["latency_ms"]["mean"], "tok/s": r["output_tps"],
            "p99 TTFT ms": r["ttft_ms"]["p99"], "p99 TPOT ms": r["tpot_ms"]["p99"],
            "p50 ITL ms": r["itl_ms"]["p50"]}


def run_evalscope(url, prompts, parallel, number):
    with tempfile.TemporaryDirectory() as d:
        cmd = [EVALSCOPE, "perf", "--url", url + "/v1/chat/completions",
               "--model", "default", "--api", "openai", "--parallel", str(parallel), "--number",
               str(number), "--dataset", "line_by_line",
               "--dataset-path", prompts, "--min-tokens", str(ANSWER), "--max-tokens", str(ANSWER),
               "--temperature", "0", "--extra-args",
               '{"ignore_eos": true}', "--stream", "--outputs-dir", d]
        r = subprocess.run(taskset(others(), cmd),
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        found = glob.glob(d + "/**/benchmark_summary.json", recursive=True)
        if not found:
            raise SystemExit(r.stdout[-2000:])
        s = json.load(open(found[0]))
        p = json.load(open(found[0].replace("summary", "percentile")))
    return parse(s, p)


def parse(s, p):
    at = {r["Percentiles"]: r for r in p}
    return {"TTFT ms": s["Avg TTFT (ms)"], "TPOT ms": s["Avg TPOT (ms)"],
            "latency ms": 1000 * s["Avg Latency (s)"],
            "tok/s": s["Output Throughput (tok/s)"],
            "p99 TTFT ms": at["99%"]["TTFT (ms)"], "p99 TPOT ms": at["99%"]["TPOT (ms)"],
            "p50 ITL ms": at["50%"]["ITL (ms)"]}


def main():
    bad = 0
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
        for i in range(64):
            f.write(" ".join(WORDS[(i * 7 + k * (i + 3)) % len(WORDS)] for k in range(100)) + "\n")
        f.flush()
        server, url = fixed() if MODEL == "fixed" else serve()
        try:
            for parallel, number in LEVELS:
                got = {"sluice load": [], "evalscope": []}
                run = {"sluice load": run_load, "evalscope": run_evalscope}
                for i in range(REPEATS):
                    for name in sorted(run, reverse=i % 2 == 0):
                        got[name].append(run[name](url, f.name, parallel, number))
                print(f"{parallel} at a time, {number} requests, medians of {REPEATS} pairs:")
                for key in got["evalscope"][0]:
                    a, b = (statistics.median(r[key] for r in got[n]) for n in got)
                    off = 100 * (statistics.median(x[key] / y[key] for x,
                                                   y in zip(*got.values())) - 1)
                    must = "p" not in key[:1]
                    bad += must and abs(off) > 3
                    print(f"  {key:13} sluice load {a:9.3f}  evalscope {b:9.3f}  {off:+5.1f} %"
                          + ("  OVER 3 %" if must and abs(off) > 3 else ""))
        finally:
            server.terminate()
            server.wait()
    print("evalscope:", "agree" if not bad else f"{bad} do not agree")
    sys.exit(bad > 0)


main()
