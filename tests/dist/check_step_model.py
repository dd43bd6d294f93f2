#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The planner's step of CPU ranks against measured ones: tp=2, pp=2, dp=2,ep=2, as threads of one
process and as processes whose messages a slow link carries.

  check_step_model.py [BUILD] [--table] [--only=PART OF A ROW]...

bench measures one rank alone, doctor --ranks all of them, and plan --this-cluster --bench predicts;
then bench --layout measures. A row is that three times, and its error the middle one: what a
machine of others lends in memory bandwidth may change from one minute to the next. Models have
made-up weights (--mock). Fails where the median error of all rows is over 15 % or one over 35 %."""
import json
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "e2e")]
import e2e  # noqa: E402
import mpi  # noqa: E402
import shapes  # noqa: E402

BUILD = e2e.build_dir()
SLUICE = e2e.sluice(BUILD)
SHIM = os.path.join(BUILD, "tests", "dist", "libslowlink.so")
MEDIAN, WORST, TIMES = 15.0, 35.0, 3
MODELS = {"small": (shapes.SMALL, "q4_1"), "moe": (shapes.MOE, "q4_0")}
# (model, layout, how, us of a link, Mbit/s; 0 = any)
ROWS = [("small", "tp=2", "threads", 0, 0), ("small", "pp=2", "threads", 0, 0),
        ("moe", "tp=2", "threads", 0, 0), ("moe", "pp=2", "threads", 0, 0),
        ("moe", "tp=2,ep=2", "threads", 0, 0), ("moe", "dp=2,ep=2", "threads", 0, 0),
        ("small", "tp=2", "processes", 0, 0), ("moe", "tp=2", "processes", 0, 0),
        ("moe", "dp=2,ep=2", "processes", 0, 0),
        ("moe", "tp=2", "messages", 0, 0), ("moe", "pp=2", "messages", 0, 0),
        ("moe", "dp=2,ep=2", "messages", 0, 0),
        ("small", "tp=2", "messages", 50, 0), ("moe", "tp=2", "messages", 50, 0),
        ("moe", "pp=2", "messages", 50, 0), ("moe", "dp=2,ep=2", "messages", 50, 0),
        ("moe", "tp=2", "messages", 500, 0), ("moe", "pp=2", "messages", 500, 0),
        ("moe", "dp=2,ep=2", "messages", 500, 0),
        ("moe", "tp=2", "messages", 50, 1000), ("moe", "pp=2", "messages", 50, 1000),
        ("moe", "dp=2,ep=2", "messages", 50, 1000), ("moe", "tp=2", "messages", 50, 100),
        ("moe", "pp=2", "messages", 50, 100), ("moe", "dp=2,ep=2", "messages", 50, 100)]
BATCH, DEPTH, N_NEW = (1, 4), 128, 24


def env_of(how, us, mbit):
    env = {"SLOWLINK_US": str(us), "SLOWLINK_MBIT": str(mbit)}
    if how == "messages":
        env["SL_DIST"] = "messages"
    if us or mbit:
        env["LD_PRELOAD"] = SHIM
    return env


def sluice(how, args, env):
    """stdout of the command: of one process, or of two that share a model."""
    if how == "threads":
        code, out, err = e2e.run([SLUICE, *args], timeout=600, env=env)
        out = out.decode()
    else:
        pre = [x for k, v in env.items() for x in ("-x", f"{k}={v}")]
        code, out, err, _ = mpi.run([(2, [SLUICE, *args])], timeout=600, pre=pre)
    if code:
        sys.exit(f"{' '.join(args)} ({how}): exit {code}: {err[-500:]}")
    return out


def bench(how, model, layout, env, threads):
    prompts = "0" if layout else "256" # of ranks steps are compared
    args = ["bench", "--mock", "--mock-type", model[1], "-m", model[0], "-p", prompts, "-n",
            str(N_NEW), "-b", ",".join(map(str, BATCH)), "-d", str(DEPTH), "-r", "3", "--json",
            "-t", str(threads), "-c", "1024"]
    rows = json.loads(sluice(how, args + (["--layout", layout] if layout else []), env))
    return rows


def plan(work, model, layout, ranks, bench_rows, combine="f32"):
    file, one = os.path.join(work, "ranks.json"), os.path.join(work, "bench.json")
    with open(file, "w") as f:
        f.write(ranks)
    with open(one, "w") as f:
        json.dump(bench_rows, f)
    got = {}
    for b in BATCH:
        args = [SLUICE, "plan", "--this-cluster", file, "--bench", one, "-m", model[0],
                "--weights", model[2], "--layout", layout, "--mtp", "0", "--concurrency", str(b),
                "--input", str(DEPTH), "--output", str(N_NEW), "--json"]
        code, out, err = e2e.run(args)
        if code:
            sys.exit(f"plan {layout}: exit {code}: {err[-500:]}")
        got[b] = json.loads(out)["options"][0]["step_us"]
    return got


def main():
    why = mpi.missing(BUILD) or (not os.path.exists(SHIM) and "no libslowlink.so")
    if why:
        print(f"step_model: skipped: {why}")
        sys.exit(77)
    only = [a.split("=", 1)[1] for a in sys.argv if a.startswith("--only=")]
    errors = []
    print(f"{'model':6} {'layout':10} {'ranks':9} {'us':>4} {'Mbit':>5} {'users':>5} "
          f"{'measured':>9} {'planned':>9} {'error %':>8}   of three", flush=True)
    with tempfile.TemporaryDirectory() as work:
        models = {}
        for name, (config, kind) in MODELS.items():
            models[name] = (shapes.folder(work, name, config), kind, "q4")
        for name, layout, how, us, mbit in ROWS:
            if only and not any(o in f"{name} {layout} {how} {us} {mbit} " for o in only):
                continue
            model, env = models[name], env_of(how, us, mbit)
            seen = {}
            for _ in range(TIMES):
                one = bench("threads", model, None, {}, 1)
                ranks = sluice("processes" if how == "threads" else how,
                               ["doctor", "--ranks", "--json"], env)
                got = bench(how, model, layout, env, 2)
                want = plan(work, model, layout, ranks, one)
                for x in got:
                    if x["test"].startswith("tg"):
                        ms = 1e3 * x["batch"] / x["tps_max"]
                        step = want[x["batch"]]
                        said = step["total"] * 1e-3
                        seen.setdefault(x["batch"], []).append(
                            (100 * (said / ms - 1), ms, said, step))
            for users, of in seen.items():
                of.sort(key=lambda t: t[0])
                e, ms, said, step = of[TIMES // 2]
                errors.append(abs(e))
                print(f"{name:6} {layout:10} {how:9} {us:4} {mbit:5} {users:5} {ms:9.2f} "
                      f"{said:9.2f} {e:+8.1f}   {of[0][0]:+.1f} .. {of[-1][0]:+.1f}", flush=True)
                if "--table" in sys.argv:
                    print("   ", {k: round(v) for k, v in step.items() if v})
    errors.sort()
    median = errors[len(errors) // 2]
    print(f"{len(errors)} rows: median error {median:.1f} %, worst {errors[-1]:.1f} %")
    sys.exit(0 if median <= MEDIAN and errors[-1] <= WORST else 1)


main()
