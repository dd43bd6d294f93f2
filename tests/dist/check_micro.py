#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps in two halves (--micro 2) change no token: drawn answers of many requests, of ranks with
sequences of their own against one rank's; of threads, of processes, and of messages, which a slow
link delays where the shim was built (trials compare every bit, of threads). What can not be cut is
refused by name.

  check_micro.py [BUILD] [--threads]"""
import json
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "e2e"), os.path.join(HERE, "..", "bits"), HERE]
import e2e  # noqa: E402
import mpi  # noqa: E402
import wide  # noqa: E402

BUILD = e2e.build_dir()
SLUICE = e2e.sluice(BUILD)
SHIM = os.path.join(BUILD, "tests", "dist", "libslowlink.so")
MODELS = ("qwen3_moe.int8", "deepseek_v3.awq")
# prompts of 1 to 40 tokens: some requests end, and leave a group with one sequence or none
LENGTHS = (5, 1, 40, 9, 17, 2, 30)
LAYOUTS = (["dp=2,ep=2"], ["dp=2,ep=2", "--dispatch", "swap"], ["dp=2", "--dispatch", "swap"],
           ["dp=2,ep=2", "--dispatch", "swap", "--combine", "q8"])
MORE = (["dp=4,ep=2", "--dispatch", "swap"], ["dp=3"])
REFUSED = ((["tp=2"], "micro: 2: goes with a layout with dp"),
           (["dp=2,ep=2,pp=2"], "micro: 2: not with pp"),
           (["dp=2,tp=2,ep=2"], "micro: 2: not with tp"),
           (["dp=2,ep=2", "--device", "check"], "micro: 2: check: on the CPU alone"))


def prompts():
    return "".join(json.dumps({"ids": [3 + (i * 37 + k * k * 11) % 250 for k in range(n)],
                               "n": 4 + 9 * (i % 3), "seed": i}) + "\n"
                   for i, n in enumerate(LENGTHS))


def answers(model, how, n, args):
    """What it says where it fails, else every answer's tokens."""
    args = [SLUICE, "run", "-m", model, "--batch-file", PROMPTS, "-q", "--temp", "1", "-c", "128",
            "--chunk", "16", "-t", str(max(n, 1)), *args]
    if how in ("", "threads"):
        code, out, err = e2e.run(args, timeout=120)
        out, err = out.decode(), err.decode() if isinstance(err, bytes) else err
    else:
        env = {"SL_DIST": "memory" if how == "memory" else "messages"}
        if how == "slow":
            env.update(SLOWLINK_US="300", LD_PRELOAD=SHIM)
        pre = [x for k, v in env.items() for x in ("-x", f"{k}={v}")]
        code, out, err, _ = mpi.run([(n, args)], timeout=120, pre=pre)
    if code:
        return f"exit {code}: {err.strip()[-300:]}", []
    return "", [json.loads(x)["tokens"] for x in out.splitlines()]


def check(model, how, layout):
    n = int(layout[0][3])
    form = layout[layout.index("--combine"):] if "--combine" in layout else []
    why, want = answers(model, "", 0, form)
    if not why:
        why, got = answers(model, how, n, ["--layout", *layout, "--micro", "2"])
    if not why and got != want:
        why = "answers differ from those of one rank"
    print(f"{os.path.basename(model)} {' '.join(layout)} {how}: {why or 'the same'}", flush=True)
    return not why


def refused(model, args, text):
    why, _ = answers(model, "threads", 4, ["--layout", *args, "--micro", "2"])
    print(f"{' '.join(args)}: {why[-120:]}", flush=True)
    return text in why


def main():
    global PROMPTS
    ways = ["threads"]
    if "--threads" not in sys.argv and not mpi.missing(BUILD):
        ways += ["memory", "messages"] + ["slow"] * os.path.exists(SHIM)
    with tempfile.TemporaryDirectory() as work:
        PROMPTS = os.path.join(work, "prompts")
        with open(PROMPTS, "w", encoding="utf-8") as f:
            f.write(prompts())
        models = [wide.make(work, SLUICE, m, os.path.join(BUILD, "tests", "tiny")) for m in MODELS]
        jobs = [(m, how, layout) for m in models for how in ways
                for layout in (*LAYOUTS, *(MORE if how == "threads" else ()))]
        with ThreadPoolExecutor(2) as pool:
            good = list(pool.map(lambda j: check(*j), jobs))
        good += [refused(models[0], *r) for r in REFUSED]
    sys.exit(not all(good))


main()
