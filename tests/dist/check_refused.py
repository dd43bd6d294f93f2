#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What ranks that are processes refuse when they open: shared memory too small, a network that is
not there or not named, ranks bound to one CPU, another file on a rank, a damaged one, another
program or other options on a rank, layouts that do not divide. Each time all end within 5 s with
the one reason and what to do, said once.

  check_refused.py [BUILD] [--times N]    --times: each N times
"""
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
TIMES = int(sys.argv.pop(sys.argv.index("--times") + 1)) if "--times" in sys.argv else 1
sys.argv = [a for a in sys.argv if a != "--times"]
sys.path[:0] = [HERE, os.path.join(HERE, "..", "e2e")]
import e2e  # noqa: E402
import mpi  # noqa: E402
import nodes  # noqa: E402

BUILD = e2e.build_dir()
SLUICE = e2e.sluice(BUILD)
TINY = e2e.tiny(BUILD)
DEMO = os.path.join(e2e.ROOT, "models", "demo", "demo.gguf")
T = e2e.Tally("refused")
MOST = 5 if TIMES > 1 else 20  # seconds; allowance for machines where other tests run


def run_args(model, layout="tp=2", *more, sluice=SLUICE):
    return [sluice, "run", "-m", model, "--ids", "5,6,7,8", "-n", "4", "--layout", layout, *more]


cases, seconds = [], []


def refused(*case):
    cases.append(case)


def try_all():
    """Several at a time, as launchers that end others sleep for seconds."""
    with ThreadPoolExecutor(4 if TIMES > 1 else 8) as pool:
        list(pool.map(lambda case: try_one(*case), cases))
    cases.clear()


def try_one(name, command, what, times=1):
    """times: by how many ranks it is said at most."""
    mark = nodes.mark()
    t0 = time.monotonic()
    p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         stdin=subprocess.DEVNULL,
                         env=dict(os.environ, **{nodes.MARK: mark}))
    try:
        out, err = p.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        for pid in [*nodes.ranks(mark).values(), p.pid]:
            os.kill(pid, 9)
        out, err = p.communicate()
        T.check(f"{name}: ends", f"not within 60 s: {err[-500:]}")
        return
    took = time.monotonic() - t0
    seconds.append(took)
    T.check(f"{name}: refused", p.returncode == 0 and "exit 0")
    T.check(f"{name}: says once what to do", not 1 <= len(re.findall(what, err)) <= times and
            err[-1500:])
    T.check(f"{name}: within {MOST} s", took > MOST and f"{took:.1f} s")
    left = nodes.ranks(mark)
    while left and time.monotonic() - t0 < took + 2:  # killed ones, which the kernel takes apart
        time.sleep(0.05)
        left = nodes.ranks(mark)
    T.check(f"{name}: all end", left and f"{left} are left")
    T.check(f"{name}: no output", out and f"{out[:200]!r}")


def small_shm():
    p = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"],
                       capture_output=True)
    if p.returncode:
        print("not run: a small /dev/shm: no right to mount")
        return
    script = 'mount -t tmpfs -o size=5m tmpfs /dev/shm && exec "$@"'
    args = [SLUICE, "run", "-m", DEMO, "-p", "hi", "-n", "4", "--layout", "tp=3"]
    refused("small /dev/shm", ["unshare", "-m", "sh", "-c", script, "sh", *mpi.command((3, args))],
            r"/dev/shm is too small: .*--shm-size")


def same_cpu():
    args = run_args(os.path.join(TINY, "qwen3_moe"))
    bound = [a if a != "none" else "core:overload-allowed" for a in mpi.command((2, args))]
    refused("ranks bound to one CPU", [*bound[:1], "--cpu-set", "0", *bound[1:]],
            r"layout: ranks 0 and 1 were bound to the same CPUs, 1 for 2 ranks: mpirun "
            r"--map-by numa --bind-to numa")


def copy(model, folder, name):
    to = os.path.join(folder, name)
    shutil.copytree(os.path.join(TINY, model), to)
    return to, os.path.join(to, sorted(f for f in os.listdir(to) if f.endswith(".safetensors"))[0])


def of_two(good, bad):
    """The second rank has another model."""
    return mpi.command((1, run_args(good)), (1, run_args(bad)))


def files(folder):
    good = os.path.join(TINY, "qwen3_moe")
    other, path = copy("qwen3_moe", folder, "other")
    n = os.path.getsize(path)
    with open(path, "r+b") as f:  # the same shapes, other numbers
        f.seek(n - 1000)
        b = f.read(2)
        f.seek(n - 1000)
        f.write(bytes(x ^ 0x11 for x in b))
    refused("other numbers on a rank", of_two(good, other),
            r"layout: rank 1 is not as rank 0: its model's files hold other bytes: copy them again")
    refused("another model on a rank", of_two(good, os.path.join(TINY, "deepseek_v2")),
            r"layout: rank 1 is not as rank 0: the model is another one")
    cut, path = copy("qwen3_moe", folder, "cut")
    with open(path, "r+b") as f:
        f.truncate(n - 4096)
    refused("a file cut short on a rank", of_two(good, cut), r"sluice: .*\.safetensors.*")
    torn, path = copy("qwen3_moe", folder, "torn")
    with open(path, "r+b") as f:
        f.write(b"\xff" * 8)
    refused("a damaged head on a rank", of_two(good, torn), r"sluice: .*\.safetensors.*")
    packed, bad = os.path.join(folder, "good.packed"), os.path.join(folder, "bad.packed")
    e2e.run([SLUICE, "pack", good, packed])
    shutil.copy(packed, bad)
    with open(bad, "r+b") as f:
        f.seek(os.path.getsize(bad) - 64)
        f.write(b"\xff" * 8)
    refused("a damaged packed file on a rank", of_two(packed, bad), r"sluice: .*bad\.packed.*")
    refused("no file on a rank", of_two(good, "/nowhere/m.gguf"),
            r"sluice: layout: rank 1 \(.*\): model not found: /nowhere/m.gguf")
    refused("no file anywhere", of_two("/nowhere/m.gguf", "/nowhere/m.gguf"),
            r"sluice: model not found: /nowhere/m.gguf")


def options():
    """One command line is not the other's."""
    model = os.path.join(TINY, "qwen3_moe")
    unlike = r"layout: rank 1 is not as rank 0: "
    for what, more, says in (
            ("--kv", ("--kv", "q8"), unlike + "--kv differs"),
            ("--acts", ("--acts", "int8"), unlike + "--acts differs"),
            ("--combine", ("--combine", "q8"), unlike + "--combine differs"),
            ("a word of --combine", ("--combine", "f16"),
             r"sluice: layout: rank 1 \(.*\): combine: \"f16\": f32, bf16 or q8")):
        refused(f"{what} of a rank",
                mpi.command((1, run_args(model)), (1, run_args(model, "tp=2", *more))), says)
    refused("--layout of a rank",
            mpi.command((1, run_args(model)), (1, run_args(model, "pp=2"))),
            unlike + "--layout differs")
    refused("a word of a rank's --layout",
            mpi.command((1, run_args(model)), (1, run_args(model, "tp=x"))),
            r"layout: 'tp=x': a number from 1 on comes after '='")
    refused("a rank's instructions",
            mpi.command((1, run_args(model)), (1, ["env", "SL_CPU=ref", *run_args(model)])),
            unlike + r"the CPU's instruction set differs, .*\(SL_CPU limits it\)")


def layouts():
    """Those that do not divide, and such as were not started so."""
    moe, dense = os.path.join(TINY, "qwen3_moe"), os.path.join(TINY, "llama2")
    for n, layout, model, says in (
            (3, "tp=2", moe, r"layout: tp=2: 3 processes were started"),
            (9, "pp=9", moe, r"layout: pp=9: the model has \d layers: as many stages at most"),
            (5, "tp=5", moe, r"layout: 5 ranks: the model's heads can be shared by \d at most"),
            (3, "tp=3,ep=3", moe, r"layout: ep=3: \d experts and 0 copies are not dealt evenly to "
             r"3 ranks: they are with --redundant \d"),
            (2, "dp=2,ep=2", dense, r"layout: ep=2: .* has no experts that are chosen"),
            (2, "dp=2", dense, r"layout: dp=2: every rank would hold all of .*, which has no "
             r"experts"),
            (2, "tp=2,weight=1:2:3", moe, r"3 weights, a stage has 2 ranks")):
        refused(f"{layout} of {n} processes", mpi.command((n, run_args(model, layout))), says)


def programs(folder):
    """A program of another version, and one without what speaks MPI."""
    model = os.path.join(TINY, "qwen3_moe")
    version = subprocess.run([SLUICE, "version"], capture_output=True, text=True).stdout.split()[1]
    alone, other = os.path.join(folder, "alone"), os.path.join(folder, "program")
    for to in (alone, other):
        os.mkdir(to)
        shutil.copy(SLUICE, to)
    shutil.copy(os.path.join(BUILD, "libsluice-mpi.so"), other)
    path = os.path.join(other, "sluice")
    with open(path, "rb") as f:
        code = f.read()
    text = version.encode() + b"\0"
    changed = code.replace(text, bytes([text[0] ^ 1]) + text[1:])
    T.check("the version is in the program", changed == code and version)
    with open(path, "wb") as f:
        f.write(changed)
    refused("another program on a rank",
            mpi.command((1, run_args(model)), (1, run_args(model, sluice=path))),
            r"layout: rank 1 is not as rank 0: sluice is another version")
    refused("without the module",
            mpi.command((2, run_args(model, sluice=os.path.join(alone, "sluice")))),
            r"libsluice-mpi\.so is not beside the program", 2)


def networks(stack):
    why = nodes.missing()
    if why:
        print(f"not run: two machines: {why}")
        return
    args = run_args(os.path.join(TINY, "qwen3_moe"))
    n = stack.enter_context(nodes.Nodes())
    refused("no network named", n.command((2, args), network=None),
            r"1 of 2 ranks are on other machines, and no network is named for them: mpirun "
            r"--mca btl_tcp_if_include")
    refused("a network that is not there", n.command((2, args), network="10.99.0.0/24"),
            r"no network of this machine is in btl_tcp_if_include=10\.99\.0\.0/24", 2)


def main():
    why = mpi.missing(BUILD)
    if why:
        print(f"skipped: {why}")
        sys.exit(77)
    for _ in range(TIMES):
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            networks(stack)
            small_shm()
            same_cpu()
            options()
            layouts()
            files(folder)
            programs(folder)
            try_all()
    print(f"{len(seconds)} refusals, median {sorted(seconds)[len(seconds) // 2]:.1f} s, at most "
          f"{max(seconds):.1f} s")
    T.exit()


if __name__ == "__main__":
    main()
