#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Faults around files: failing allocations (docs/reliability.md S1), failing and short system calls
(F11), code in the model folder (F13), a file that is cut while it is read (F10), a kill in the
middle of quantising and packing.

  check_faults.py BUILD [alloc|calls|code|cut|kill]...

A fault may end a command with exit 1 and one line, or be overcome; then the output is what it is
without the fault. Nothing may crash, hang or leave a file behind. SLUICE_FAULTS=all tries every
allocation of `run` too, not a sample."""
import errno
import os
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import e2e  # noqa: E402

ALL = os.environ.get("SLUICE_FAULTS") == "all"


def gguf(n_weight):
    """A GGUF file with one F32 vector."""
    name = b"big.weight"
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 1)
    head += struct.pack("<Q", 20) + b"general.architecture" + struct.pack(
        "<I", 8) + struct.pack("<Q", 4) + b"none"
    head += struct.pack("<Q",
                        len(name)) + name + struct.pack("<IQQIQ", 2, 1024, n_weight // 1024, 0, 0)
    head += b"\0" * (-len(head) % 32)
    return head + struct.pack("<f", 1.5) * n_weight


class Faults:
    def __init__(self, build, tally):
        self.exe, self.tally = e2e.sluice(build), tally
        self.lib = os.path.join(build, "tests", "e2e", "libfault_preload.so")
        if not os.path.isfile(self.lib):
            sys.exit(f"no {self.lib}: build it first")

    def run(self, args, log, kind="", at=0, how=0, cwd=None):
        """(exit code, stdout, stderr, whether the fault happened)"""
        if os.path.exists(log):
            os.unlink(log)
        env = dict(LD_PRELOAD=self.lib, FAULT_KIND=kind,
                   FAULT_AT=str(at), FAULT_HOW=str(how), FAULT_LOG=log)
        code, out, err = e2e.run([self.exe] + args, timeout=60, cwd=cwd, env=env)
        lines = open(log).read().split("\n") if os.path.exists(log) else []
        return code, out, err, "fault" in lines, lines

    def one(self, name, args, good, log, kind, at, how, cwd):
        """Run with one fault; False when it did not happen any more."""
        before = set(os.listdir(cwd))
        code, out, err, happened, _ = self.run(args, log, kind, at, how, cwd)
        problem = None
        if code == 0:
            problem = None if out == good else "exit 0 with another output"
        else:
            problem = e2e.one_line_failure(code, err)
        left = [f for f in os.listdir(cwd) if f not in before and ".tmp" in f]
        if not problem and left:
            problem = f"left {left} behind"
        self.tally.check(f"{name} {kind} {at} errno {how}", problem)
        return happened

    def each(self, name, args, kind, how, step, limit, cwd, log):
        """Every step-th call of a kind until there is none."""
        code, good, err, _, _ = self.run(args, log, cwd=cwd)
        if code != 0:
            self.tally.check(name, f"fails without a fault: {err.strip()}")
            return
        at = 1
        while at < limit and self.one(name, args, good, log, kind, at, how, cwd):
            at += step if at > 200 else 1


def stable(args):
    """inspect prints nothing that changes from run to run."""
    return ["inspect"] + args + ["--json"]


def check_alloc(f, tmp, model, tiny):
    log = os.path.join(tmp, "log")
    for name, args in (("gguf", stable([model])),
                       ("folder", stable([os.path.join(tiny, "deepseek_v3_fp8")])),
                       ("split", stable([os.path.join(tiny, "qwen3_split-00002-of-00002.gguf")])),
                       ("dump", ["inspect", model, "--dump", "big.weight", "out.f32"])):
        f.each("alloc " + name, args, "alloc", errno.ENOMEM, 1 if ALL else 7, 20000, tmp, log)
    run = ["run", "-m", os.path.join(tiny, "qwen3"),
           "--ids", "5,6,7", "-n", "2", "-t", "2", "--ignore-eos", "-q"]
    f.each("alloc run", run, "alloc", errno.ENOMEM, 1 if ALL else 61, 20000, tmp, log)


def check_calls(f, tmp, model, tiny):
    log = os.path.join(tmp, "log")
    folder = stable([os.path.join(tiny, "deepseek_v3")])
    dump = ["inspect", model, "--dump", "big.weight", "out.f32"]
    for kind, hows in (("open", (errno.EINTR, errno.EIO, errno.EMFILE)), ("fstat", (errno.EIO,)),
                       ("read", (errno.EINTR, errno.EIO, 0)), ("mmap", (errno.ENOMEM,))):
        for how in hows:
            f.each("folder", folder, kind, how, 5, 400, tmp, log)
    for kind, hows in (("open", (errno.EINTR, errno.EACCES, errno.ENOSPC)),
                       ("write", (errno.EINTR, errno.ENOSPC, errno.EIO, 0)),
                       ("fsync", (errno.EINTR, errno.EIO)), ("rename", (errno.EIO, errno.EACCES))):
        for how in hows:
            f.each("dump", dump, kind, how, 5, 400, tmp, log)
    # what EINTR and short transfers may not change is the file that comes out
    want = struct.pack("<f", 1.5) * (1 << 20)
    for kind, how in (("write", errno.EINTR), ("write", 0),
                      ("fsync", errno.EINTR), ("open", errno.EINTR)):
        for at in range(1, 6):
            out = os.path.join(tmp, "whole.f32")
            if os.path.exists(out):
                os.unlink(out)
            code, _, err, _, _ = f.run(["inspect", model, "--dump", "big.weight", out],
                                       log, kind, at, how, tmp)
            ok = code == 0 and open(out, "rb").read() == want
            f.tally.check(f"whole {kind} {at} {how}", None if ok else f"exit {code}: {err.strip()}")


def check_code(f, tmp, tiny):
    """Files that can hold code lie in the folder; none is opened, nothing is executed."""
    folder = os.path.join(tmp, "coded")
    os.mkdir(folder)
    for name in os.listdir(os.path.join(tiny, "qwen3")):
        os.symlink(os.path.join(tiny, "qwen3", name), os.path.join(folder, name))
    traps = ["modeling_qwen3.py", "configuration.py",
             "tokenization.py", "pytorch_model.bin", "model.pt", "x.pth", "model.pkl",
             "setup.py", "hook.sh", "training_args.bin",
             "adapter_model.bin", "model.ckpt", "__init__.py", "lib.so"]
    for name in traps:
        with open(os.path.join(folder, name), "w") as t:
            t.write("import os; os.abort()\n")
    log = os.path.join(tmp, "log")
    run = ["run", "-m", folder, "--ids", "5,6,7", "-n", "2", "-t", "1", "--ignore-eos", "-q"]
    for args in (stable([folder]), run):
        code, _, err, _, lines = f.run(args, log, cwd=tmp)
        opened = [x[5:] for x in lines if x.startswith("open ")]
        f.tally.check("code exit", None if code == 0 else err.strip())
        f.tally.check("code log", None if any(x.endswith("config.json") for x in opened)
                      else "opens were not seen")
        bad = [x for x in opened if os.path.basename(x) in traps]
        f.tally.check("code opened", f"opened {bad}" if bad else None)
        ran = [x for x in lines if x.startswith("exec ")]
        f.tally.check("code executed", f"executed {ran}" if ran else None)
    for name in os.listdir(folder):
        if ".safetensors" in name:
            os.unlink(os.path.join(folder, name))
    code, _, err, _, lines = f.run(stable([folder]), log, cwd=tmp)
    f.tally.check("code only", e2e.one_line_failure(code, err)
                  or (None if "can run code" in err else err.strip()))
    bad = [x for x in lines if x.startswith("open ") and os.path.basename(x[5:]) in traps]
    f.tally.check("code only opened", f"opened {bad}" if bad else None)


def check_kill(f, tmp, tiny):
    """Killed at each system call that matters: nothing loads but what is whole (a file that was
    only to be synced and renamed is), and the same command with --force goes through and tidies
    up."""
    log, work = os.path.join(tmp, "log"), os.path.join(tmp, "kill")
    src = os.path.join(tiny, "qwen3")
    logits = ["eval", "--ids", "5,6,7", "--dump-logits", os.path.join(tmp, "z"), "-q", "-m"]
    os.mkdir(work)
    for dst, args in (("q", ["quantize", src, "q", "--weights", "int8", "--shard", "60000", "-q"]),
                      ("q.gguf", ["quantize", src, "q.gguf", "--weights", "q8_0", "-q"]),
                      ("p.packed", ["pack", src, "p.packed", "-q"])):
        lines = f.run(args, log, cwd=work)[4]
        opens = [line for line in lines if line.startswith("open ")]
        # before it nothing is written
        first = next(i for i, line in enumerate(opens) if ".tmp" in line)
        file = os.path.join(work, dst)
        whole = open(file, "rb").read() if os.path.isfile(file) else None
        subprocess.run(["rm", "-rf", file])
        for kind in ("open", "fsync", "rename"):
            at, happened = first + 1 if kind == "open" else 1, True
            while happened:
                code, _, err, happened, _ = f.run(args, log, kind, at, -9, work)
                wrong = [] if code == (-9 if happened else 0) else [f"exit {code}: {err.strip()}"]
                for name in os.listdir(work):
                    if name != dst and f.run(logits + [name], log, cwd=work)[
                            0] == 0 and open(os.path.join(work, name), "rb").read() != whole:
                        wrong.append(f"{name} loads")
                code, _, err, _, _ = f.run(args + ["--force"], log, cwd=work)
                if code or os.listdir(work) != [dst] or f.run(logits + [dst], log, cwd=work)[0]:
                    wrong.append(f"again: exit {code} {err.strip()}, {os.listdir(work)}")
                f.tally.check(f"{args[0]} {dst} killed at {kind} {at}", "; ".join(wrong) or None)
                subprocess.run(["rm", "-rf", file])
                at += 1


def check_cut(f, tmp, model):
    """The file shrinks while it is dumped through a pipe: one line that names file and byte, exit
    1."""
    data = open(model, "rb").read()
    for i in range(20):
        path, fifo = os.path.join(tmp, "cut.gguf"), os.path.join(tmp, "fifo")
        with open(path, "wb") as out:
            out.write(data)
        if os.path.exists(fifo):
            os.unlink(fifo)
        os.mkfifo(fifo)
        p = subprocess.Popen([f.exe, "inspect", path, "--dump", "big.weight", fifo],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with open(fifo, "rb") as reader:
            reader.read(1 + 65536 * (i % 4))  # the writer is now blocked somewhere in the middle
            os.truncate(path, 4096 * (1 + 5 * i))
            while reader.read(1 << 20):
                pass
        _, err = p.communicate(timeout=2)
        err = err.decode()
        problem = e2e.one_line_failure(p.returncode, err)
        if not problem and ("cut.gguf" not in err or "byte " not in err or p.returncode != 1):
            problem = err.strip()
        f.tally.check(f"cut {i}", problem)


def main():
    build = e2e.build_dir()
    parts = sys.argv[2:] or ["alloc", "calls", "code", "cut", "kill"]
    tally = e2e.Tally("faults")
    f = Faults(build, tally)
    tiny = e2e.tiny(build)
    with e2e.scratch() as tmp:
        model = os.path.join(tmp, "one.gguf")
        with open(model, "wb") as out:
            out.write(gguf(1 << 20))
        if "alloc" in parts:
            check_alloc(f, tmp, model, tiny)
        if "calls" in parts:
            check_calls(f, tmp, model, tiny)
        if "code" in parts:
            check_code(f, tmp, tiny)
        if "cut" in parts:
            check_cut(f, tmp, model)
        if "kill" in parts:
            check_kill(f, tmp, tiny)
    tally.exit()


main()
