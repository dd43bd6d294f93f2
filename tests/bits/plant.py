#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Do the checks of bits see a fault? Plants one of each kind in a copy of the tree, builds it, and
runs what scripts/check runs (dev_check, bits, trials): at least one of them must fail.

  plant.py [BUILD] [NAME...]    BUILD: a build folder whose wide models are used; default build
  plant.py BUILD --places       only looks whether every fault still has its place and compiles
                                there (some seconds)

About a minute a fault, and as long for the tree as it is, which must pass: what fails anyway sees
nothing. A fault is one replacement in one file; one that no longer applies is an
error, so that this list follows the code."""
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "e2e")]
import e2e  # noqa: E402

# name: (file, what stands there, what is planted)
FAULTS = {
    # a lane's scale depends on the longest token of its unit
    "scale-of-a-neighbour": ("src/kern/x86/attn_avx2.c", "ATTN_I16_SUM - hi[j + i]",
                             "ATTN_I16_SUM - m->n_pos"),
    # spans are folded from the last to the first where a step is small enough to be split
    "sum-order-by-batch": ("src/dev/cpu/span.c",
                           "        for (int i = w0; i < w0 + j->window; i++)\n",
                           "        for (int i = w0 + j->window - 1; i >= w0; i--)\n"),
    # what only the later tokens of a tile see is cut to pairs
    "tail-by-chunk": ("src/dev/cpu/mla.c", "1, v16 / 16, hi[i] - all, 1);",
                      "1, v16 / 16, (hi[i] - all) / 2 * 2, 1);"),
    # MLA's form depends on how many tokens of a sequence happen to be in the step
    "form-by-time": ("src/dev/cpu/step.c", "s->pos[t] < end;",
                     "s->pos[t] < end &&\n"
                     "                           s->seq_tok0[q + 1] - s->seq_tok0[q] > 8;"),
    # rows are read on beyond the end of a block
    "page-past-its-end": ("src/dev/cpu/mla.c",
                          "n = s->copy ? end - i : "
                          "BASE_MIN(kv->blk_tok - (s->p0 + i) % kv->blk_tok, end - i);",
                          "n = end - i;"),
}


def copy_tree(tree):
    """Everything of this checkout but what git ignores."""
    p = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=e2e.ROOT, check=True,
                       capture_output=True, text=True)
    for name in p.stdout.split("\n"):
        if name and os.path.isfile(os.path.join(e2e.ROOT, name)):
            os.makedirs(os.path.dirname(os.path.join(tree, name)), exist_ok=True)
            shutil.copy2(os.path.join(e2e.ROOT, name), os.path.join(tree, name))


def planted(name):
    """The file's text with the fault in it."""
    path, old, new = FAULTS[name]
    with open(os.path.join(e2e.ROOT, path)) as f:
        text = f.read()
    if text.count(old) != 1:
        sys.exit(f"plant: {name}: {path} has its place {text.count(old)} times, not once")
    return text.replace(old, new)


def compiles(name, build):
    """Looks whether the file with the fault in it compiles as BUILD compiles it; one that BUILD
    does not compile at all, for another kind of CPU, is passed over."""
    path = os.path.realpath(os.path.join(e2e.ROOT, FAULTS[name][0]))
    with open(os.path.join(build, "compile_commands.json")) as f:
        rows = [r for r in json.load(f) if os.path.realpath(r["file"]) == path]
    if not rows:
        return
    with tempfile.TemporaryDirectory(prefix="sluice-plant-") as tmp:
        file = os.path.join(tmp, os.path.basename(path))
        with open(file, "w") as f:
            f.write(planted(name))
        command = [file if os.path.realpath(os.path.join(rows[0]["directory"], x)) == path else x
                   for x in shlex.split(rows[0]["command"])]
        p = subprocess.run(command + ["-fsyntax-only"], cwd=rows[0]["directory"],
                           capture_output=True, text=True)
    if p.returncode:
        sys.exit(f"plant: {name}: {FAULTS[name][0]} does not compile with it:\n{p.stderr[-1000:]}")


def caught(tree, wide):
    """The tests of scripts/check that fail, by name. One that finds no end ends this, for it says
    nothing."""
    env = dict(os.environ, SLUICE_CMAKE="-DSL_TESTS=ON")
    p = subprocess.run(["scripts/build", "release", "check_dev", "bits", "trials", "sluice"],
                       cwd=tree, env=env, capture_output=True, text=True)
    if p.returncode:
        sys.exit(f"plant: the tree does not build:\n{p.stdout[-2000:]}{p.stderr[-2000:]}")
    if not os.path.exists(f"{tree}/build/tests/wide"):
        os.symlink(wide, f"{tree}/build/tests/wide")
    p = subprocess.run(["ctest", "--test-dir", "build", "-R", "^(dev_|bits|trials)", "-LE", "slow",
                        "--stop-on-failure"],
                       cwd=tree, capture_output=True, text=True)
    if "(Timeout)" in p.stdout:
        sys.exit(f"plant: a test ran out of time:\n{p.stdout[-2000:]}")
    return [x.split()[2] for x in p.stdout.split("\n") if "(Failed)" in x]


def main():
    build = e2e.build_dir()
    for name in FAULTS:
        compiles(name, build)
    if sys.argv[2:] == ["--places"]:
        return
    wide = os.path.join(build, "tests", "wide")
    missed = 0
    with tempfile.TemporaryDirectory(prefix="sluice-plant-") as tmp:
        tree = os.path.join(tmp, "tree")
        copy_tree(tree)
        os.makedirs(wide, exist_ok=True)  # its models are made once, and stay
        by = caught(tree, wide)
        if by:
            sys.exit(f"plant: without a fault these fail: {', '.join(by)}")
        print("no fault: passes", flush=True)
        for name in sys.argv[2:] or FAULTS:
            path = FAULTS[name][0]
            with open(os.path.join(tree, path), "w") as f:
                f.write(planted(name))
            by = caught(tree, wide)
            shutil.copy(os.path.join(e2e.ROOT, path), os.path.join(tree, path))
            print(f"{name}: {'caught by ' + ', '.join(by) if by else 'NOT CAUGHT'}", flush=True)
            missed += not by
    print(f"plant: {missed} of {len(sys.argv[2:] or FAULTS)} faults were not caught")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
