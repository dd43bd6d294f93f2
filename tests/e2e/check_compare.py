#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/compare.py with programs that stand in for llama.cpp: ratios, a failing program, going on
after a stop, tables in a document, what is missing. check_compare.py BUILD_DIR"""
import csv, glob, json, os, shutil, subprocess, sys, tempfile

BUILD = os.path.abspath(sys.argv[1])
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
bad = 0


def check(ok, what, detail=""):
    global bad
    bad += not ok
    if not ok:
        print(f"BAD: {what}: {detail}")


def program(path, text):
    with open(path, "w") as f:
        f.write("#!/bin/sh\n" + text)
    os.chmod(path, 0o755)


with tempfile.TemporaryDirectory() as d:
    os.makedirs(d + "/models")
    os.makedirs(d + "/bin")
    shutil.copy2(os.path.join(BUILD, "tests", "tiny", "smollm.gguf"), d + "/models/smollm2.gguf")
    program(d + "/sluice", f"""echo run >>{d}/log
case $1 in doctor) echo '{{"read_gbps": 50.0}}' ;;
*) echo '[{{"test":"pp512","batch":1,"tps":300,"tps_max":310,
  "pct_bandwidth":null,"pct_int8_peak":60,"probe_gbps":50}},
{{"test":"tg64","batch":1,"tps":90,"tps_max":90,
  "pct_bandwidth":88,"pct_int8_peak":1,"probe_gbps":50}}]' ;; esac""")
    program(d + "/bin/llama-bench",
            """echo '[{"n_prompt":512,"n_gen":0,"samples_ts":[99,100,124]},
{"n_prompt":0,"n_gen":64,"samples_ts":[60]}]'""")

    def compare(*args):
        r = subprocess.run([sys.executable, ROOT + "/bench/compare.py", "--work",
                            d, "--llama", d + "/bin", "--sluice", d + "/sluice", "--rounds", "2",
                            "--only", "smollm2", *args],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return r.returncode, r.stdout, r.stderr

    r = compare("--csv", d + "/a.csv", "--svg", d + "/a.svg")
    check(r[0] == 0 and "| smollm2/pp512 | 300.0 | 100.0 | 3.00 | 3.00 .. 3.00 | 2.50 | 60 % | "
                        "5.00 | 50 |" in r[1], "table", r)
    rows = list(csv.DictReader(open(d + "/a.csv")))
    check([x["ratio"] for x in rows] == ["3", "1.5"]
          and rows[0]["rounds"] == "2" and rows[0]["ratio_of_best"] == "2.5", "csv", rows)
    check(open(d + "/a.svg").read().count("<rect") == 3, "svg")
    n = len(open(d + "/log").readlines())
    check(compare()[0] == 0 and len(open(d + "/log").readlines()) == n, "nothing is measured twice")
    results = glob.glob(d + "/results/*.jsonl")[0]
    lines = open(results).read().splitlines()
    with open(results, "w") as f:  # stopped in the second round
        f.write("\n".join(lines[:5]) + '\n{"case": "smol')
    check(compare()[0] == 0 and len(open(d + "/log").readlines()) > n, "goes on where it was")
    n = len(open(d + "/log").readlines())
    check(compare()[0] == 0 and len(open(d + "/log").readlines()) == n,
          "nothing is lost after a half line")
    program(d + "/bin/llama-bench", "echo no such type >&2; exit 3")
    r = compare("--fresh", "--csv", d + "/a.csv")
    check(r[0] == 0 and "| smollm2/tg64 | 90.0 | - | - |" in r[1]
          and "exit 3: no such type" in open(d + "/a.csv").read(), "a failing peer", r)
    with open(d + "/doc.md", "w") as f:
        f.write("before\n<!-- compare native -->\nold\n<!-- /compare native -->\nafter\n")
    r = compare("--tables-only", "--docs", d + "/doc.md")
    doc = open(d + "/doc.md").read()
    check(doc.startswith("before\n<!-- compare native -->\n| case")
          and doc.endswith("<!-- /compare native -->\nafter\n") and "old" not in doc, "docs", doc)
    shutil.copy(d + "/a.csv", d + "/doc.md")
    r = compare("--tables-only", "--docs", d + "/doc.md")
    check(r[0] == 1 and "are not there" in r[2], "a document without the lines", r)

    def refuses(words, *args, env=None):
        """One line says what is wrong."""
        r = subprocess.run([sys.executable, ROOT + "/bench/compare.py", "--only", "smollm2", *args],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                           env={**os.environ, **(env or {})})
        check(r.returncode and "Traceback" not in r.stderr and "compare" in r.stderr.splitlines()[
            -1] and words in r.stderr.splitlines()[-1], words, r.stderr)

    fresh = ["--work", d + "/fresh", "--sluice", d + "/sluice"]
    refuses("llama.cpp can not be fetched", *fresh, env={"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": d})
    refuses(d + "/none/llama-bench: no such program", *fresh, "--llama", d + "/none")
    refuses(d + "/none/llama-bench: no such program",
            *fresh, "--llama", d + "/bin", "--ik", d + "/none")
    refuses("/none: no such program", "--work", d, "--sluice", "/none")
    refuses("invalid positive value: '0'", *fresh, "--rounds", "0")
    refuses("nothing was measured", *fresh, "--tables-only")
    refuses(d + "/none/x.csv: No such file", "--work",
            d, "--tables-only", "--csv", d + "/none/x.csv")
    program(d + "/sluice", "echo out of memory >&2; exit 1")
    refuses("nothing was measured: exit 1: out of memory", "--work",
            d, "--fresh", "--sluice", d + "/sluice", "--llama", d + "/bin", "--rounds", "1")
real = subprocess.run([sys.executable, ROOT + "/bench/compare.py", "--list"],
                      stdout=subprocess.PIPE, text=True)
check(real.returncode == 0 and "dsv2lite-q4_0/tg32@d4096/q8" in real.stdout, "list")
with tempfile.TemporaryDirectory() as d:
    # the chart of the README is what its command draws from the table
    args = ["--from", ROOT + "/docs/performance.md", "--table", "native", "--svg", d + "/c.svg"]
    title = "2 cores of an EPYC (Zen 4), 2 threads, 25 November 2026"
    r = subprocess.run([sys.executable, ROOT + "/bench/compare.py", *args, "--title", title])
    drawn, kept = open(d + "/c.svg").read(), open(ROOT + "/docs/compare.svg").read()
    check(r.returncode == 0 and drawn == kept, "docs/compare.svg is docs/performance.md's table")
    check(title in open(ROOT + "/README.md").read(), "the README has the chart's command")
    r = subprocess.run([sys.executable, ROOT + "/bench/compare.py", *args[:3], "none", *args[4:]],
                       stderr=subprocess.PIPE, text=True)
    check(r.returncode == 1 and "compare none" in r.stderr, "a table that is not there", r.stderr)
with open(ROOT + "/docs/performance.md") as f:
    check("<!-- compare native -->" in f.read(), "docs/performance.md has the lines")
print("compare: bad" if bad else "compare: good")
sys.exit(bad > 0)
