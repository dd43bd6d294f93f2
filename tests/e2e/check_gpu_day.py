#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu-day from end to end, small, on the card in software of tests/dev/fake, beside a
llama.cpp that says what it is told: rows pass, fail, are measured alone or are not run and say why.

  check_gpu_day.py BUILD

77: this build has no device `cuda`.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import e2e

SCRIPT = os.path.join(e2e.ROOT, "scripts", "gpu-day")
ROWS = "P,C1,C2,C6,C7,C14,G2,G3,G6,G7,G10"
BENCH = """#!/bin/sh
echo '[{"avg_ts": %s}]'
"""
BATCHED = """#!/bin/sh
echo 'a line of its own'
echo '{"speed_tg": %s}'
"""


def llama(folder, tps):
    """Its programs, which say that they make tps tokens a second."""
    os.makedirs(folder)
    for name, text in (("llama-bench", BENCH), ("llama-batched-bench", BATCHED)):
        path = os.path.join(folder, name)
        with open(path, "w") as f:
            f.write(text % tps)
        os.chmod(path, 0o755)
    return folder


def day(tmp, build, *args, env=None):
    """(exit code, {row: its result}, the page, what was said)"""
    out = os.path.join(tmp, "out")
    shutil.rmtree(out, ignore_errors=True)
    p = subprocess.run([sys.executable, SCRIPT, "--quick", "--build", build, "--out", out, *args],
                       capture_output=True, text=True, env=env)
    if not os.path.exists(os.path.join(out, "gpu-day.json")):
        return p.returncode, {}, "", p.stdout + p.stderr
    with open(os.path.join(out, "gpu-day.json")) as f:
        report = json.load(f)
    with open(os.path.join(out, "gpu-day.html")) as f:
        page = f.read()
    return p.returncode, {r["row"]: r for c in report["cards"] for r in c["rows"]}, page, p.stdout


def resumed(tally, tmp, build, model):
    """Rows that have a result are kept, those that were not run are tried."""
    what = ["--device", "cuda:0", "--rows", "P,G2,G6"]
    _, before, _, _ = day(tmp, build, *what)
    before["P"]["text"] = "as it was"
    kept = os.path.join(tmp, "kept.json")
    with open(kept, "w") as f:
        json.dump({"cards": [{"name": "cuda:0", "rows": list(before.values())}]}, f)
    code, rows, _, said = day(tmp, build, *what, "--resume", kept, model)
    check(tally, "going on", (code, {k: r["status"] for k, r in rows.items()}),
          (0, {"P": "measured", "G2": "measured", "G6": "not run"}))
    check(tally, "what was there", rows["P"]["text"], "as it was")


def ended(tally, tmp, build):
    """Results of rows are there while others run, and when the script is killed."""
    out = os.path.join(tmp, "killed")
    p = subprocess.Popen([sys.executable, SCRIPT, "--build", build, "--out", out, "--device",
                          "cuda:0", "--rows", "P,C5"], stdout=subprocess.DEVNULL)
    path, rows = os.path.join(out, "gpu-day.json"), []
    for _ in range(600):
        time.sleep(0.1)
        if os.path.exists(path):
            with open(path) as f:
                rows = [r["row"] for c in json.load(f)["cards"] for r in c["rows"]]
        if rows or p.poll() is not None:
            break
    running = p.poll() is None
    p.send_signal(signal.SIGINT)
    p.wait(60)
    check(tally, "rows of a day that is cut off", (running, rows), (True, ["P"]))


def packed(tally, tmp, build):
    """A build that travels, to a machine without tools."""
    pack, bare = os.path.join(tmp, "pack.tar.xz"), dict(os.environ, PATH="/nonexistent")
    code = subprocess.run([sys.executable, SCRIPT, "--quick", "--build", build, "--pack", pack],
                          stdout=subprocess.DEVNULL).returncode
    check(tally, "packing", code, 0)
    code, rows, _, said = day(tmp, pack, "--device", "cuda:0", "--rows", "P,C1,C2", "--synth",
                              "no:q4_0", env=bare)
    check(tally, "from a pack", (code, {k: r["status"] for k, r in rows.items()}),
          (0, {"P": "measured", "C1": "pass", "C2": "not run"}))
    tally.check("a model that can not be made", None if "--synth no:q4_0: left out" in said
                else said)


def check(tally, what, got, want):
    tally.check(what, None if got == want else f"{got}, not {want}")


def main():
    build, tiny = os.path.abspath(sys.argv[1]), e2e.tiny()
    models = [os.path.join(tiny, m) for m in ("llama3.gguf", "qwen3_moe.gguf")]
    code, out, _ = e2e.run([e2e.sluice(), "doctor", "--json"])
    if code or not any(c["name"] == "cuda:0" for c in json.loads(out)["gpus"]):
        print("gpu_day: not run: there is no device cuda")
        return 77
    tally = e2e.Tally("gpu_day")
    with e2e.scratch() as tmp:
        fast, slow = (llama(os.path.join(tmp, t), t) for t in ("1e12", "1e-9"))
        code, rows, page, said = day(tmp, build, "--device", "cuda:0", "--rows", ROWS,
                                     "--llama-bin", fast, *models)
        check(tally, "exit code beside a fast one", code, 1)
        status = {k: r["status"] for k, r in rows.items()}
        check(tally, "rows beside a fast one", status,
              {"P": "measured", "C1": "pass", "C2": "not run", "C6": "pass", "C7": "pass",
               "C14": "pass", "G2": "fail", "G3": "fail", "G6": "fail", "G7": rows["G7"]["status"],
               "G10": rows["G10"]["status"]})
        tally.check("planned and measured", None if rows["G10"]["status"] in ("pass", "fail") and
                    len(rows["G10"]["figures"]["errors_pct"]) > 2 else rows["G10"])
        g7 = rows["G7"]
        tally.check("streamed prompts", None if g7["status"] in ("measured", "fail", "pass") and
                    g7["figures"]["bus_gbps"] > 0 and "on the bus" in g7["text"] else g7)
        tally.check("the page", None if all(r["row"] in page for r in rows.values()) and
                    "8 of 8 tokens" in page else said)
        code, rows, _, said = day(tmp, build, "--device", "cuda:0", "--rows", "C1,G2,G3",
                                  "--llama-bin", slow, *models)
        check(tally, "beside a slow one", (code, {k: r["status"] for k, r in rows.items()}),
              (0, {"C1": "pass", "G2": "pass", "G3": "pass"}))
        code, rows, _, said = day(tmp, build, "--rows", "G2,G6", models[0])
        check(tally, "alone", (code, {k: r["status"] for k, r in rows.items()}),
              (0, {"G2": "measured", "G6": "not run"}))
        tally.check("why not", None if "no model with experts" in rows["G6"]["text"] else rows)
        resumed(tally, tmp, build, models[0])
        ended(tally, tmp, build)
        packed(tally, tmp, build)
        code, rows, _, said = day(tmp, build, "--minutes", "0.01", "--rows", "G2", models[0])
        tally.check("no time", None if code and "minutes are over" in said else said)
        code, _, _, said = day(tmp, build, "--device", "cuda:7")
        tally.check("no such card", None if code == 1 and "no cuda:7" in said else said)
    tally.exit()


if __name__ == "__main__":
    sys.exit(main())
