#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bad model files: one clear line, exit 1, in time, in little memory (docs/reliability.md F1, F2,
F4, F6, F8, F9, F12).

  check_badfiles.py [BUILD [KIND...]]

Files of badgguf.py and badhf.py go through `inspect` and `run`; a good GGUF file is cut at every
byte of its header; FIFO, device, loop of links, sparse terabyte, folder in place of a file.
"""
import os
import resource
import stat
import sys
import time

import badgguf
import badhf
import e2e

MEM, CPU, WALL = 3 << 30, 10, 20


def rss(args):
    """(code, stderr, peak resident KiB of this child, seconds)"""
    pid_read, pid_write = os.pipe()
    t0 = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.close(pid_read)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(pid_write, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU, CPU))
        os.execv(args[0], args)
    os.close(pid_write)
    err = b""
    while chunk := os.read(pid_read, 65536):
        err += chunk
    os.close(pid_read)
    _, st, use = os.wait4(pid, 0)
    return os.waitstatus_to_exitcode(st), err.decode("utf-8", "replace"), use.ru_maxrss, \
        time.monotonic() - t0


def fails(args, names=None):
    """None when the command fails as it should."""
    code, out, err = e2e.run(args, timeout=WALL, mem=MEM, cpu=CPU)
    if code == 0:
        return "accepted: " + out.decode("utf-8", "replace")[:100].replace("\n", " | ")
    bad = e2e.one_line_failure(code, err)
    if not bad and code != 1:
        bad = f"exit {code}, not 1: {err.strip()}"
    if not bad and names and names not in err:
        bad = f"does not name the file: {err.strip()}"
    return bad


def runs(exe, path):
    return [exe, "run", "-m", path, "--ids", "5,6,7", "-n", "2", "-t", "1", "--ignore-eos"]


def gguf_kinds(exe, tmp, tally, only):
    path = tmp + "/model.gguf"

    def put(data):
        with open(path, "wb") as f:
            f.write(data)
    put(badgguf.Gguf().bytes())
    code, _, err = e2e.run(runs(exe, path))
    tally.check("good gguf", None if code == 0 else f"does not run: {err.strip()}")
    _, _, base, _ = rss([exe, "inspect", path])
    for name, data in badgguf.structure():
        if only and name not in only:
            continue
        put(data)
        tally.check(f"gguf {name} inspect", fails([exe, "inspect", path], "model.gguf"))
        tally.check(f"gguf {name} run", fails(runs(exe, path), "model.gguf"))
        code, err, kib, sec = rss([exe, "inspect", path])
        extra = kib - base
        tally.check(f"gguf {name} cost", f"{extra} KiB more than a good file, {sec:.2f} s"
                    if extra > 2048 + len(data) // 512 or sec > 1 else None)
    for name, data in badgguf.meaning():
        if only and name not in only:
            continue
        put(data)
        tally.check(f"gguf {name} run", fails(runs(exe, path)))
        code, _, err = e2e.run([exe, "inspect", path], timeout=WALL, mem=MEM, cpu=CPU)
        tally.check(f"gguf {name} inspect", e2e.one_line_failure(code, err) if code else None)
    for name, data in badgguf.text():
        if only and name not in only:
            continue
        put(data)
        if "template" in name:
            with open(tmp + "/m.json", "w") as f:
                f.write('[{"role": "user", "content": "x"}]')
            tally.check(f"gguf {name}", fails([exe, "template", "-m", path, "--messages",
                                               tmp + "/m.json"]))
            continue
        tally.check(f"gguf {name}", fails([exe, "run", "-m", path, "-p", "t1 t2", "-n", "1"]))


def cuts(exe, tmp, tally):
    """F1: cut at every byte of the header and at some of the data."""
    g = badgguf.Gguf()
    g.key("tokenizer.ggml.tokens", badgguf.ARR, (badgguf.STR, ["a", "b"]))
    g.key("tokenizer.ggml.token_type", badgguf.ARR, (badgguf.I32, [1, 1]))
    head, data = g.header()[0], g.bytes()
    path = tmp + "/cut.gguf"
    for n in list(range(len(head))) + list(range(len(head), len(data) - 32, 8191)):
        with open(path, "wb") as f:
            f.write(data[:n])
        tally.check(f"cut at {n}", fails([exe, "inspect", path], "cut.gguf"))


def hf_kinds(exe, tmp, tally, only):
    def put(name, files):
        d = f"{tmp}/hf_{abs(hash(name))}"
        os.makedirs(d)
        for f, data in files.items():
            with open(f"{d}/{f}", "wb") as g:
                g.write(data)
        return d
    code, _, err = e2e.run(runs(exe, put("good", badhf.folder())))
    tally.check("good folder", None if code == 0 else f"does not run: {err.strip()}")
    for kinds, inspect in ((badhf.structure(), True), (badhf.meaning(), False)):
        for name, files in kinds:
            if only and name not in only:
                continue
            d = put(name, files)
            tally.check(f"hf {name} run", fails(runs(exe, d)))
            if inspect:
                tally.check(f"hf {name} inspect", fails([exe, "inspect", d]))
            else:
                code, _, err = e2e.run([exe, "inspect", d], timeout=WALL, mem=MEM, cpu=CPU)
                tally.check(f"hf {name} inspect", e2e.one_line_failure(code, err) if code else None)


def odd_files(exe, tmp, tally):
    """F12"""
    fifo = tmp + "/fifo.gguf"
    os.mkfifo(fifo)
    loop = tmp + "/loop.gguf"
    os.symlink(loop, loop)
    sparse = tmp + "/sparse.gguf"
    with open(sparse, "wb") as f:
        f.write(b"GGUF")
        f.truncate(1 << 40)
    os.makedirs(tmp + "/folder.gguf")
    os.makedirs(tmp + "/empty_folder")
    secret = tmp + "/secret.gguf"
    with open(secret, "wb") as f:
        f.write(badgguf.Gguf().bytes())
    os.chmod(secret, 0)
    todo = [fifo, loop, sparse, tmp + "/folder.gguf", tmp + "/empty_folder", "/dev/null",
            "/dev/zero", "/dev/full", tmp + "/not_there.gguf", tmp + "/a/b/c", "/proc/self/mem"]
    if os.geteuid() != 0:
        todo.append(secret)
    for p in todo:
        for args in ([exe, "inspect", p], runs(exe, p)):
            t0 = time.monotonic()
            bad = fails(args)
            sec = time.monotonic() - t0
            tally.check(f"{args[1]} {p}", bad or (f"took {sec:.1f} s" if sec > 2 else None))
    assert stat.S_ISFIFO(os.stat(fifo).st_mode)


def main():
    exe, only = e2e.sluice(), set(sys.argv[2:])
    tally = e2e.Tally("bad files")
    with e2e.scratch() as tmp:
        gguf_kinds(exe, tmp, tally, only)
        hf_kinds(exe, tmp, tally, only)
        if not only:
            cuts(exe, tmp, tally)
            odd_files(exe, tmp, tally)
    tally.exit()


if __name__ == "__main__":
    main()
