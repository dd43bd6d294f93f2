#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The bytes of a model's file that each rank reads from the disk, after its pages have been thrown
out of memory, against its share by the shapes; ranks are processes, and each counts for itself.

  check_read.py [BUILD]
"""
import json
import os
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "e2e"), os.path.join(HERE, "..", "bits")]
import e2e  # noqa: E402
import mpi  # noqa: E402
import wide  # noqa: E402

BUILD = e2e.build_dir()
T = e2e.Tally("bytes read")
ROOM = 8 << 20
# counts what the process that it starts has read
COUNTED = """
import os, resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
n = resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock * 512
rank = os.environ.get("OMPI_COMM_WORLD_RANK", "0")
open(os.path.join(sys.argv[1], rank), "w").write(str(n))
sys.exit(code)
"""
wide.CONFIGS["read_dense"] = dict(wide.CONFIGS["llama"], hidden_size=1024, intermediate_size=4096,
                                  num_hidden_layers=6, num_attention_heads=16,
                                  num_key_value_heads=16)
wide.CONFIGS["read_moe"] = dict(wide.CONFIGS["qwen3_moe"], hidden_size=1024,
                                num_attention_heads=16, num_key_value_heads=16,
                                moe_intermediate_size=512, num_experts=24)


def size(shape):
    n = 2
    for d in shape:
        n *= d
    return n


def share(name, shape, layout):
    """Bytes of a tensor of bf16 that each of two ranks reads."""
    n, vector = size(shape), len(shape) == 1
    expert = ".experts." in name
    if layout == "pp=2":
        if vector:
            return n, n  # few: whichever has it
        layers = wide.CONFIGS[MODEL]["num_hidden_layers"]
        if "lm_head" in name:
            return n, 0
        if "embed" in name:
            return 0, n
        first = int(name.split(".")[2]) < layers // 2 + layers % 2
        return (0, n) if first else (n, 0)
    if vector or name.endswith("mlp.gate.weight"):
        return n, n
    if layout.startswith("dp"):
        n2 = n if not expert else n if int(name.split(".experts.")[1].split(".")[0]) < 12 else 0
        return n2, (n if not expert or not n2 else 0)
    if layout == "tp=2,ep=2" and expert:
        mine = int(name.split(".experts.")[1].split(".")[0]) < 12
        return (n, 0) if mine else (0, n)
    return n // 2, n // 2


def shares(folder, layout):
    with open(os.path.join(folder, "model.safetensors"), "rb") as f:
        head = json.loads(f.read(int.from_bytes(f.read(8), "little")))
    out = [0, 0]
    for name, t in head.items():
        for r, n in enumerate(share(name, t["shape"], layout)):
            out[r] += n
    return out


def forget(folder):
    """Its pages leave the memory."""
    for name in os.listdir(folder):
        fd = os.open(os.path.join(folder, name), os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def read_by(folder, layout, work):
    """(by each rank from the disk, what each holds), None: it failed"""
    programs = []
    for path in folder, folder + ".other":  # as on two machines: neither reads for the other
        forget(path)
        programs.append((1, [sys.executable, "-c", COUNTED, work, e2e.sluice(BUILD), "run", "-m",
                             path, "--ids", "5,6,7,8", "-n", "2", "--layout", layout, "--json"]))
    code, out, err, _ = mpi.run(programs, timeout=120)
    if code:
        T.check(f"{MODEL}, {layout}", f"exit {code}: {err[-600:]}")
        return None
    got = []
    for r in range(2):
        with open(os.path.join(work, str(r))) as f:
            got.append(int(f.read()))
    return got, json.loads(out.strip().split("\n")[-1])["weight_bytes_per_rank"]


def check(folder, layout, work):
    want, got = shares(folder, layout), read_by(folder, layout, work)
    if not got:
        return
    read, held = got
    whole = os.path.getsize(os.path.join(folder, "model.safetensors"))
    print(f"{MODEL}, {layout}: file {whole >> 20} MiB; " + "; ".join(
        f"rank {r}: share {want[r] >> 20}, read {read[r] >> 20}, holds {held[r] >> 20} MiB"
        for r in range(2)), flush=True)
    if not sum(read):
        print("not run: nothing is counted: the folder is on no disk")
        return
    for r in range(2):
        T.check(f"{MODEL}, {layout}: rank {r} reads its share",
                not want[r] * 0.9 - ROOM <= read[r] <= want[r] * 1.03 + ROOM and
                f"{read[r]} of {want[r]}")


if __name__ == "__main__":
    missing = mpi.missing(BUILD)
    if missing:
        print(f"skipped: {missing}")
        sys.exit(77)
    made = os.path.join(BUILD, "tests", "ranks_read")
    os.makedirs(made, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        for MODEL, layouts in (("read_dense", ("tp=2", "pp=2")),
                               ("read_moe", ("tp=2", "tp=2,ep=2", "dp=2,ep=2"))):
            path = wide.make(made, e2e.sluice(BUILD), MODEL + ".own", e2e.tiny(BUILD))
            if not os.path.exists(path + ".other"):
                shutil.copytree(path, path + ".other")
            for each in layouts:
                check(path, each, scratch)
    T.exit()
