#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure `sluice serve` beside llama-server: the same file, prompts, clients and cores.

  bench/compare_serve.py [--only TEXT]... [--list] [--rounds 3] [--threads 2] [--work DIR] [--llama
  DIR] [--fresh] [--timeout S]
                         [--csv FILE] [--docs FILE]

Each case is a model and a number of clients. In every round the servers run in turn (A B A B ...),
each alone on the machine, and both are driven by `sluice load` in the same closed loop over
/v1/completions, which runs on the same cores: prompts of made words, temperature 0, no end of
sequence, so that both compute the same number of tokens. llama-server gets one slot for each client
and continuous batching (`-np N -cb`). Every result goes to WORK/results/HOST-serve.jsonl at once: a
run that was stopped goes on where it was (--fresh begins anew), and the tables are made from all
that is there. Ratios are medians over rounds of sluice to llama-server in the same round. --docs
writes the table between the lines <!-- compare serve --> and <!-- /compare serve --> of FILE.

Models and llama.cpp are made or found as bench/compare.py does (--llama: a folder that holds
llama-server); `demo` is the bundled one.
"""
import argparse, csv, json, os, platform, re, socket, statistics, subprocess, sys, time
import urllib.request

from compare import ROOT, Failed, llama_source, load_results, model_file, num, out, say, sh, warm

# (model, clients, requests, prompt tokens, answer tokens)
CASES = [
    ("demo", 32, 256, 128, 64),
    ("smollm2", 32, 64, 128, 64),
    ("qwen12-q4_0", 32, 32, 32, 32),
    ("demo", 1, 16, 128, 128),
    ("smollm2", 1, 8, 128, 64),
]
FIGURES = ["output_tps", "ttft_mean", "ttft_p99", "tpot_mean", "tpot_p99", "failed"]


def case_name(c):
    return f"{c[0]}/{c[1]} clients, {c[3]}+{c[4]} tokens"


def server_path(a):
    if a.llama:
        return os.path.join(a.llama, "llama-server")
    build = os.path.join(a.work, "llama", "build")
    exe = os.path.join(build, "bin", "llama-server")
    if not os.path.exists(exe):
        sh([
            "cmake", "-S",
            llama_source(a.work), "-B", build, "-DCMAKE_BUILD_TYPE=Release", "-DLLAMA_CURL=OFF",
            "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_SERVER=ON", "-DLLAMA_BUILD_TOOLS=ON",
            "-DGGML_NATIVE=ON"
        ])
        sh(["cmake", "--build", build, "-j", str(os.cpu_count()), "--target", "llama-server"])
    return exe


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """One server, until it answers /health; stopped at the end of `with`."""

    def __init__(self, cmd, port, timeout, log):
        self.url = f"http://127.0.0.1:{port}"
        self.log = open(log, "w")
        self.p = subprocess.Popen(cmd, stdout=self.log, stderr=self.log)
        self.timeout = timeout

    def __enter__(self):
        try:
            return self.wait()
        except Failed:
            self.__exit__()
            raise

    def wait(self):
        end = time.time() + self.timeout
        while time.time() < end:
            if self.p.poll() is not None:
                raise Failed(f"the server ended with {self.p.returncode}: see {self.log.name}")
            try:
                if urllib.request.urlopen(self.url + "/health", timeout=2).status == 200:
                    return self
            except OSError:
                time.sleep(0.1)
        raise Failed(f"the server is not up after {self.timeout} s")

    def __exit__(self, *_):
        self.p.terminate()
        try:
            self.p.wait(20)
        except subprocess.TimeoutExpired:
            self.p.kill()
            self.p.wait()
        self.log.close()


def command(a, engine, path, case, port):
    _, n, _, n_in, n_out = case
    ctx = max(n_in + n_out + 64,
              768)  # the longest prompt that `sluice load` asks for to count words has 128 of them
    if engine == "sluice":
        return [
            a.sluice, "serve", "-m", path, "--port",
            str(port), "-t",
            str(a.threads), "--max-batch",
            str(n), "-c",
            str(ctx), "--kv-tokens",
            str(ctx * n)
        ]
    return [
        server_path(a), "-m", path, "--port",
        str(port), "-t",
        str(a.threads), "-np",
        str(n), "-cb", "-c",
        str(ctx * n)
    ]


def run(a, engine, path, case):
    model, n, n_req, n_in, n_out = case
    port = free_port()
    log = os.path.join(a.work, "results", f"serve-{engine}.log")
    with Server(command(a, engine, path, case, port), port, a.timeout, log) as server:
        text = out([
            a.sluice, "load", "--url", server.url + "/v1/completions", "--api", "completions",
            "--model", "default", "--parallel",
            str(n), "--number",
            str(n_req), "--input-length",
            str(n_in), "--output-length",
            str(n_out), "--warmup",
            str(min(n, 8)), "--json", "-", "-q"
        ], a.timeout)
    r = json.loads(text)["levels"][0]
    return {
        "output_tps": r["output_tps"],
        "ttft_mean": r["ttft_ms"]["mean"],
        "ttft_p99": r["ttft_ms"]["p99"],
        "tpot_mean": r["tpot_ms"]["mean"],
        "tpot_p99": r["tpot_ms"]["p99"],
        "failed": r["failed"],
        "input_mean": r["input_mean"],
        "output_mean": r["output_mean"]
    }


def path_of(model, work):
    return os.path.join(ROOT, "models", "demo", "demo.gguf") if model == "demo" else model_file(
        model, work)


def measure(a, cases, path):
    rows = load_results(path)
    for rnd in range(a.rounds):
        for case in cases:
            name = case_name(case)
            done = {r["engine"] for r in rows if r["case"] == name and r["round"] == rnd}
            for engine in ("sluice", "llama-server"):
                if engine in done:
                    continue
                file = path_of(case[0], a.work)
                warm(file)
                try:
                    got = run(a, engine, file, case)
                except (Failed, ValueError, KeyError) as e:
                    got = {"error": str(e)}
                row = {
                    "case": name,
                    "engine": engine,
                    "round": rnd,
                    "threads": a.threads,
                    "time": int(time.time()),
                    **got
                }
                rows.append(row)
                with open(path, "a") as f:
                    f.write(json.dumps(row) + "\n")
                say(f"  round {rnd + 1} {name} {engine}: " +
                    (row.get("error")
                     or f"{row['output_tps']:.0f} tok/s, p99 TTFT {row['ttft_p99']:.0f} ms"))
    return rows


def summary(rows):
    order = [case_name(c) for c in CASES]
    table = []
    for case in sorted({r["case"]
                        for r in rows},
                       key=lambda c: order.index(c) if c in order else len(order)):
        by = {(r["engine"], r["round"]): r for r in rows if r["case"] == case}
        t = {"case": case, "error": next((r["error"] for r in by.values() if "error" in r), "")}
        for e in ("sluice", "llama-server"):
            for k in FIGURES:
                v = [r[k] for (n, _), r in by.items() if n == e and k in r]
                t[e, k] = statistics.median(v) if v else None
        for k in ("output_tps", "ttft_p99"):
            both = [(by["sluice", n], by["llama-server", n])
                    for _, n in by
                    if ("sluice", n) in by and ("llama-server", n) in by]
            v = sorted({s[k] / p[k] for s, p in both if s.get(k) and p.get(k)})
            t["ratio", k] = (statistics.median(v), v[0], v[-1]) if v else None
        t["rounds"] = len({n for _, n in by})
        table.append(t)
    return table


def span(v):
    return "-" if v is None else f"{v[0]:.2f} ({v[1]:.2f} .. {v[2]:.2f})"


def markdown(table):
    head = [
        "case", "sluice tok/s", "llama-server tok/s", "ratio", "p99 TTFT s", "llama-server",
        "ratio", "TPOT ms", "llama-server"
    ]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for t in table:
        s = lambda e, k, f, by=1.0: num(None if t[e, k] is None else t[e, k] * by, f)
        lines.append("| " + " | ".join([
            t["case"],
            s("sluice", "output_tps", ".0f"),
            s("llama-server", "output_tps", ".0f"),
            span(t["ratio", "output_tps"]),
            s("sluice", "ttft_p99", ".3f", 1e-3),
            s("llama-server", "ttft_p99", ".3f", 1e-3),
            span(t["ratio", "ttft_p99"]),
            s("sluice", "tpot_mean", ".2f"),
            s("llama-server", "tpot_mean", ".2f")
        ]) + " |")
    return "\n".join(lines)


def write_csv(path, table):
    with open(path, "w", newline="") as f:
        w = csv.writer(f)
        w.writerow(["case"] + [f"{e}_{k}" for e in ("sluice", "llama-server") for k in FIGURES] + [
            "tps_ratio", "tps_ratio_min", "tps_ratio_max", "ttft_p99_ratio", "ttft_p99_ratio_min",
            "ttft_p99_ratio_max", "rounds", "error"
        ])
        for t in table:
            w.writerow([t["case"]] +
                       [num(t[e, k], ".5g")
                        for e in ("sluice", "llama-server")
                        for k in FIGURES] + [
                            num(x, ".4g")
                            for k in ("output_tps", "ttft_p99")
                            for x in (t["ratio", k] or (None, ) * 3)
                        ] + [t["rounds"], t["error"]])


def write_docs(path, text):
    begin, end = "<!-- compare serve -->", "<!-- /compare serve -->"
    doc = open(path).read()
    if begin not in doc or end not in doc:
        raise SystemExit(f"compare_serve: {path} has no lines {begin} and {end}")
    open(path,
         "w").write(doc[:doc.index(begin)] + begin + "\n" + text + "\n" + doc[doc.index(end):])


def cpu_name():
    m = re.search(r"model name\s*:\s*(.+)", open("/proc/cpuinfo").read())
    return m.group(1) if m else platform.machine()


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", action="append", default=[])
    p.add_argument("--list", action="store_true")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--work", default=os.path.expanduser("~/.cache/sluice/bench"))
    p.add_argument("--llama")
    p.add_argument("--fresh", action="store_true")
    p.add_argument("--timeout", type=float, default=900)
    p.add_argument("--sluice", default=os.path.join(ROOT, "build", "sluice"))
    p.add_argument("--csv")
    p.add_argument("--docs")
    a = p.parse_args()
    cases = [c for c in CASES if not a.only or any(t in case_name(c) for t in a.only)]
    if a.list:
        print("\n".join(map(case_name, cases)))
        return
    os.makedirs(os.path.join(a.work, "results"), exist_ok=True)
    path = os.path.join(a.work, "results", f"{platform.node()}-serve.jsonl")
    if a.fresh and os.path.exists(path):
        os.remove(path)
    table = summary(measure(a, cases, path))
    text = f"{cpu_name()}, {a.threads} threads.\n\n" + markdown(table)
    print(text)
    if a.csv:
        write_csv(a.csv, table)
    if a.docs:
        write_docs(a.docs, text)


if __name__ == "__main__":
    main()
