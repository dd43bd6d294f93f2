#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks change no bit: logits of wide models (wide.py) with --layout against one rank's.

  check_layout.py [BUILD] [--mpi] [--brief | --turn] [--only TEXT]

Each model runs in four pairs of --acts and --kv, on as many ranks as it can be shared by, up to 4,
and in the first pair on the most; and in two stages, of one rank and of two; mixtures of experts
also with experts that are spread (ep), whole or by rows, in order and placed with copies, and with
ranks that have sequences of their own (dp); and with shares that are not even (weight). The token
ids fill more than one span of attention. What can not be shared is refused by name.
--mpi: ranks are processes that mpirun starts, in place of threads.
--brief: the first pair alone; what goes between ranks is f32 in every form. --turn: the first, and
one of the others, from model to model another.
--only: layouts with that text, as weight, and nothing that is refused."""
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "e2e"), os.path.join(HERE, "..", "dist")]
import e2e  # noqa: E402
import mpi  # noqa: E402
import wide  # noqa: E402

# the most ranks: as many as query heads; those of keys are 2, 6, 3, 2, -, -, 2, 2 and 2
MODELS = {"llama.q4_0": 10, "window.q6_k": 6, "qwen3.q4_k": 6, "qwen3_moe.int8": 8,
          "deepseek_v2.q8_0": 4, "deepseek_v3.awq": 17, "gpt_oss.mxfp4": 16, "glm4_moe.nvfp4": 12,
          "llama.bf16": 10}
STATES = ("qwen3_next.q4_0", "qwen3_5.awq")  # layers have states, which ranks do not share
# experts, and those of a token
EXPERTS = {"qwen3_moe.int8": (6, 2), "deepseek_v2.q8_0": (4, 2), "deepseek_v3.awq": (8, 3),
           "gpt_oss.mxfp4": (6, 3), "glm4_moe.nvfp4": (8, 3)}
FORMS = (("auto", "bf16"), ("int8", "q8"), ("bf16", "f16"), ("f32", "f32"))
ONLY = sys.argv.pop(sys.argv.index("--only") + 1) if "--only" in sys.argv else ""
IDS = ",".join(str(3 + (i * 37 + i * i) % 250) for i in range(150))


def threads(args):
    """Two for each of few ranks, one for each of many: more of them than cores only wait."""
    said = dict(w.split("=") for a in args if re.match(r"(tp|dp|pp|ep)=", a) for w in a.split(","))
    n = int(said.get("tp", 1)) * int(said.get("dp", 1)) * int(said.get("pp", 1))
    return str(2 * n if n < 3 else n)


def logits(build, model, out, n, *args):
    """What it says where it fails, else the logits; n: 0 = one rank, else processes."""
    if os.path.exists(out):
        os.unlink(out)
    command = [os.path.join(build, "sluice"), "eval", "-m", model, "--ids", IDS, "--dump-logits",
               out, "-q", "-t", threads(args), *args]
    p = subprocess.run(mpi.command((n, command)) if n else command, capture_output=True, text=True,
                       stdin=subprocess.DEVNULL)
    if p.returncode:
        return p.stderr.strip(), None
    with open(out, "rb") as f:
        return "", f.read()


def write_load(path, n, used):
    """Counts by which experts do not stay where they are in order."""
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"experts": n, "used": used, "layers": [
            {"layer": il, "tokens": 1, "counts": [(7 * i + 3 * il) % 5 * 10 + i for i in range(n)]}
            for il in range(3)]}, f)


def spread_layouts(work, name):
    """Ranks and options of layouts whose experts are whole: in order, placed with copies, and in
    stages."""
    if name not in EXPERTS:
        return
    n, used = EXPERTS[name]
    load = os.path.join(work, "load.json")
    for tp in (t for t in (2, 3, 4) if n % t == 0):
        yield tp, [f"tp={tp},ep={tp}"]
    yield 4, ["tp=2,ep=2,pp=2"]
    write_load(load, n, used)
    yield 2, ["tp=2,ep=2", "--expert-stats", load, "--redundant", "2"]
    for dp in (d for d in (2, 3, 4) if n % d == 0):
        yield dp, [f"dp={dp},ep={dp}"]
    yield 2, ["dp=2,ep=2", "--dispatch", "swap"]
    yield 2, ["dp=2,ep=2", "--expert-stats", load, "--redundant", "2"]
    yield 4, ["dp=2,ep=2,pp=2"]
    wide_by = ["--expert-stats", load, "--redundant", str(-n % 4)] if n % 4 else []
    yield 4, ["dp=2,tp=2,ep=4", *wide_by]
    yield 4, ["dp=2,tp=2,ep=4", "--dispatch", "swap", *wide_by]
    yield 8, ["dp=2,tp=2,ep=4,pp=2", *wide_by]
    # groups of ranks that share each expert by rows
    yield 4, ["tp=4,ep=2"]
    yield 2, ["dp=2"]
    yield 4, ["dp=2,tp=2,ep=2", "--expert-stats", load, "--redundant", "2"]
    yield 4, ["dp=4,ep=2", "--dispatch", "swap"]


def uneven_layouts(work, name, most):
    """The same of layouts whose ranks are not alike: matrices, heads, more ranks than heads of
    keys, experts, all together."""
    yield 3, ["tp=3,weight=3:2:1"]
    yield 4, ["tp=2,pp=2,weight=1:4"]
    if most >= 4:
        yield 4, ["tp=4,weight=1:1:5:2"]
    if name not in EXPERTS:
        return
    load = os.path.join(work, "load.json")
    write_load(load, *EXPERTS[name])
    yield 3, ["tp=3,ep=3,weight=3:2:1"]
    yield 3, ["dp=3,ep=3,weight=3:2:1"]
    yield 4, ["tp=2,dp=2,ep=2,weight=3:1:2:1"]
    yield 2, ["dp=2,ep=2,weight=1:3", "--dispatch", "swap", "--expert-stats", load, "--redundant",
              "1"]
    yield 4, ["dp=2,tp=2,ep=4,weight=2:1:1:3" if EXPERTS[name][0] < 8 else
              "dp=2,tp=2,ep=4,weight=4:1:1:1", "--expert-stats", load, "--redundant", "1"]


def combined(tally, build, work, out, name, with_mpi):
    """Forms of experts' outputs: the same whatever the layout, and not those of f32."""
    if name not in EXPERTS:
        return
    model = wide.make(work, os.path.join(build, "sluice"), name,
                      os.path.join(build, "tests", "tiny"))
    _, plain = logits(build, model, out, 0)
    for form in ("bf16", "q8"):
        why, one = logits(build, model, out, 0, "--combine", form)
        tally.check(f"{name} combine {form}",
                    why or one == plain and "logits are those of f32")
        for layout in (["dp=2,ep=2"], ["dp=2,ep=2", "--dispatch", "swap"], ["tp=2,ep=2"],
                       ["tp=2"], ["pp=2"], ["dp=2"]):
            if layout[0] in ("dp=2,ep=2", "tp=2,ep=2") and EXPERTS[name][0] % 2:
                continue
            why, got = logits(build, model, out, 2 * with_mpi, "--combine", form, "--layout",
                              *layout)
            if form == "q8" and "in groups of 32" in why:
                continue
            tally.check(f"{name} combine {form} {' '.join(layout)}",
                        why or got != one and "logits differ from those of one rank")


def refuse(tally, build, work, out):
    """Experts that can not be spread so."""
    for name, args, say in (
            ("llama.q4_0", ("tp=2,ep=2",), "has no experts"),
            ("qwen3_moe.int8", ("tp=4,ep=4",), "6 experts and 0 copies are not dealt evenly to 4 "
             "ranks: they are with --redundant 2"),
            ("qwen3_moe.int8", ("tp=8,ep=8",), "8 ranks: there are 6 experts"),
            ("qwen3_moe.int8", ("tp=2,ep=2", "--redundant", "2"), "--expert-stats FILE"),
            ("qwen3_moe.int8", ("tp=2", "--redundant", "2"), "go with a layout with ep"),
            ("llama.q4_0", ("dp=2,ep=2",), "has no experts"),
            ("llama.q4_0", ("dp=2",), "several engines (serve --attach), or tp"),
            ("qwen3_moe.int8", ("dp=2,tp=2,ep=3",), "of a stage's 4 ranks: ep=2, ep=4, or no ep"),
            ("qwen3_moe.int8", ("ep=2",), "tp=2,ep=2, or dp=2,ep=2"),
            ("qwen3_moe.int8", ("dp=4,ep=4",), "6 experts and 0 copies are not dealt evenly to 4 "
             "ranks: they are with --redundant 2"),
            ("qwen3_moe.int8", ("dp=2,ep=2", "--dispatch", "some"), "auto|gather|swap"),
            ("qwen3_moe.int8", ("tp=2", "--dispatch", "swap"), "goes with a layout with dp"),
            ("qwen3_moe.int8", ("dp=2,ep=2", "--defer", "1"), "not where ranks share layers"),
            ("qwen3_moe.int8", ("dp=2,ep=2", "--combine", "f16"), "f32|bf16|q8"),
            ("llama.q4_0", ("tp=2", "--combine", "q8"), "has no experts"),
            ("llama.q4_0", ("tp=2,weight=3:2:1",), "3 weights, a stage has 2 ranks"),
            ("llama.q4_0", ("tp=2,weight=1:0",), "weights are numbers from 1 to 1000"),
            ("window.q6_k", ("tp=7,weight=9:1:1:1:1:1:1",), "7 ranks: the model's heads can be "
             "shared by 6 at most"),
            ("deepseek_v2.q8_0", ("tp=4,ep=4,weight=2:1:1:1", "--redundant", "1"),
             "--expert-stats FILE"),
            ("qwen3_moe.int8", ("tp=7,ep=7,weight=2:1:1:1:1:1:1",), "7 ranks: there are 6 "
             "experts"),
            ("qwen3_next.q4_0", ("tp=2,ep=2",), "layer 0 has a state that is not shared"),
            ("qwen3_5.awq", ("tp=2,pp=2",), "layer 0 has a state that is not shared")):
        model = wide.make(os.path.join(work, name), os.path.join(build, "sluice"), name,
                          os.path.join(build, "tests", "tiny"))
        why, _ = logits(build, model, out, 0, "--layout", *args)
        tally.check(f"{name} {' '.join(args)} is refused", say not in why and f"says: {why!r}")


def check_alike(tally, build, work, name, with_mpi, forms, layouts_of):
    """Layouts, and their ranks, of layouts_of(acts): the logits of one rank. The model, and where
    logits go."""
    out = os.path.join(work, "logits.bin")
    os.makedirs(work, exist_ok=True)
    model = wide.make(work, os.path.join(build, "sluice"), name,
                      os.path.join(build, "tests", "tiny"))
    for acts, kv in forms:
        form = ("--acts", acts, "--kv", kv)
        why, one = logits(build, model, out, 0, *form)
        tally.check(f"{name} {acts} {kv} one rank", why)
        for n, layout in layouts_of(acts):
            if ONLY not in layout[0]:
                continue
            why, got = logits(build, model, out, with_mpi * n, "--layout", *layout, *form)
            tally.check(f"{name} {acts} {kv} {' '.join(map(os.path.basename, layout))}",
                        why or got != one and "logits differ from those of one rank")
    return model, out


def check_model(tally, build, work, name, with_mpi, forms):
    most = MODELS[name]

    def layouts(acts):
        ranks = [(n, [f"tp={n}"]) for n in range(2, min(most, 4) + 1)]
        if acts == "auto" and most > 4 and not with_mpi:
            ranks += [(n, [f"tp={n}"]) for n in sorted({min(most, 8), min(most, 16)})]
        ranks += [(2, ["tp=1,pp=2"]), (4, ["tp=2,pp=2"])]
        return [*ranks, *spread_layouts(work, name), *uneven_layouts(work, name, most)]
    model, out = check_alike(tally, build, work, name, with_mpi, forms, layouts)
    if not ONLY:
        combined(tally, build, work, out, name, with_mpi)
    if with_mpi or ONLY:
        return
    why, got = logits(build, model, out, 0, "--layout", f"tp={most + 1}")
    said = re.search(rf"layout: {most + 1} ranks: .* by {most} at most", why)
    tally.check(f"{name} tp={most + 1} is refused", not said and f"says: {why!r}")
    why, got = logits(build, model, out, 0, "--layout", "pp=3")
    said = re.search(r"layout: pp=3: the model has 2 layers: as many stages at most", why)
    tally.check(f"{name} pp=3 is refused", not said and f"says: {why!r}")


def check_states(tally, build, work, name, with_mpi, forms):
    layouts = [(2, ["pp=2"]), (3, ["pp=3"])]
    if name.startswith("qwen3_next"):  # with 6 experts
        layouts += [(2, ["dp=2"]), (2, ["dp=2,ep=2"]), (3, ["dp=3,ep=3", "--dispatch", "swap"]),
                    (4, ["dp=2,ep=2,pp=2"]), (2, ["dp=2,ep=2", "--micro", "2"])]
    check_alike(tally, build, work, name, with_mpi, forms, lambda acts: layouts)


def main():
    with_mpi = "--mpi" in sys.argv
    models = [*MODELS, *STATES]
    forms = dict.fromkeys(models, FORMS[:1] if "--brief" in sys.argv else FORMS)
    if "--turn" in sys.argv:
        forms = {m: (FORMS[0], FORMS[1 + i % 3]) for i, m in enumerate(models)}
    args = [a for a in sys.argv[1:] if a not in ("--mpi", "--brief", "--turn", "--only")]
    build = os.path.abspath(args[0] if args else "build")
    if with_mpi and mpi.missing(build):
        print(f"skipped: {mpi.missing(build)}")
        sys.exit(77)
    work = os.path.join(build, "tests", "layout_mpi" if with_mpi else "layout")
    tally = e2e.Tally("layout of processes" if with_mpi else "layout")
    with ThreadPoolExecutor(2) as pool:  # starting is what most runs take, on one core each
        jobs = [pool.submit(check_model, tally, build, os.path.join(work, name), name, with_mpi,
                            forms[name]) for name in MODELS]
        if not ONLY:
            jobs += [pool.submit(check_states, tally, build, os.path.join(work, name), name,
                                 with_mpi, forms[name]) for name in STATES]
    for job in jobs:
        job.result()
    if not with_mpi and not ONLY:
        refuse(tally, build, work, os.path.join(work, "logits.bin"))
    tally.exit()


if __name__ == "__main__":
    main()
