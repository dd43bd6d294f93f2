#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No bit changed, of what a user keeps or sees: packed files, files that `quantize` writes, and
greedy answers, of every tiny checkpoint. tiny.txt has their hashes; a change that alters any of
them has to change that file, and a reviewer sees it.

  check_tiny.py [BUILD] [--only TEXT] [--jobs N] [--emulate "COMMAND"] [--update]

Each checkpoint of tests/data as it is, and each folder quantised into three of nine weight types,
by turns, so that every type meets every kind of layer. A row has

  written  the file or folder that quantize made (tensors, configuration, texts); - = not quantised
  packed   the packed file: its matrices and tables, without its source's time and place
  f32 ...  16 greedy tokens with --acts f32, int8, bf16, and --kv f32, where attention is f32 and so
           all CPUs agree (docs/bits.md)

The packed file is made on the machine's best instruction set and on its least: the same bytes.
--emulate: `sluice` is run by COMMAND (a qemu and its -cpu)."""
import hashlib
import json
import os
import re
import struct
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "e2e")]
import e2e  # noqa: E402
from check_bits import flag, option  # noqa: E402
from wide import FOLDERS, TYPES  # noqa: E402

ROWS = os.path.join(HERE, "tiny.txt")
ACTS = ("f32", "int8", "bf16")
COLUMNS = ("written", "packed") + ACTS
IDS = "7,44,190,3,251,77,18,205,120"
# whose clamps or YaRN a GGUF file can not say
NO_GGUF = {"gpt_oss", "gpt_oss_mxfp4", "deepseek_v3_mscale", "minimax_m3_mxfp8", "kimi_linear5",
           "bailing_hybrid5", "glm5_next_fp8"}
DATA = 2 << 20  # first byte of a packed file's matrices: docs/formats.md


def short(h):
    return h.hexdigest()[:16]


def hash_written(path):
    h = hashlib.sha256()
    for d, _, files in sorted(os.walk(path)) if os.path.isdir(path) else [("", [], [path])]:
        for f in sorted(files):
            h.update(f.encode() if d else b"")
            with open(os.path.join(d, f), "rb") as x:
                h.update(x.read())
    return short(h)


def hash_packed(path):
    """All but the header, and of the tables the source's files, whose times and paths differ."""
    with open(path, "rb") as f:
        raw = f.read()
    at, n = struct.unpack_from("<QQ", raw, 32)
    p, = struct.unpack_from("<I", raw, at)
    end = at + 4
    for _ in range(p):
        end += 8 + struct.unpack_from("<Q", raw, end)[0] + 24
    h = hashlib.sha256(raw[DATA:at])
    h.update(raw[end:at + n])
    return short(h)


def names(tiny):
    """Models, and of folders those that are quantised: NAME.TYPE."""
    with open(f"{tiny}/manifest.json") as f:
        models = [m["model"] for m in json.load(f)]
    folders = [m for m in models if os.path.isdir(f"{tiny}/{m}")]
    turns = [(m, TYPES[(3 * i + k) % len(TYPES)]) for i, m in enumerate(folders) for k in range(3)]
    return models + [f"{m}.{t}" for m, t in turns if t in FOLDERS or m not in NO_GGUF]


def read_rows():
    rows = {}
    if os.path.exists(ROWS):
        with open(ROWS) as f:
            for line in f:
                if line.strip() and not line.startswith("#"):
                    name, *cells = line.split()
                    rows[name] = dict(zip(COLUMNS, cells))
    return rows


def write_rows(rows):
    with open(ROWS, "w") as f:
        f.write("# SPDX-License-Identifier: Apache-2.0\n"
                "# What check_tiny.py compares. Made by check_tiny.py --update.\n"
                f"# {'model':28} {'written':16} {'packed':16} {'f32':16} {'int8':16} bf16\n")
        for name, row in rows.items():
            f.write(f"{name:30} {' '.join(f'{row[c]:16}' for c in COLUMNS)}".rstrip() + "\n")


class Check:
    def __init__(self, rows, update, tmp, emulate):
        self.rows, self.update, self.tmp = rows, update, tmp
        self.exe, self.tiny = emulate + [e2e.sluice()], e2e.tiny()
        self.tally, self.lock = e2e.Tally("bits of tiny models"), threading.Lock()

    def call(self, *args, **env):
        code, out, err = e2e.run([*self.exe, *args], env=env)
        if code:
            raise RuntimeError(f"{' '.join(args)}: exit {code}: {err.strip()[:300]}")
        return out.decode()

    def make(self, name):
        """(path, whether it was written here)"""
        base, _, kind = name.rpartition(".")
        if not base or kind not in TYPES:
            return f"{self.tiny}/{name}", False
        path = f"{self.tmp}/{name}" + ("" if kind in FOLDERS else ".gguf")
        self.call("quantize", f"{self.tiny}/{base}", path, "--weights", kind, "--plain", "-q")
        return path, True

    def packed(self, name, path):
        """Its hash; the file is gone afterwards."""
        got = []
        for cpu in ("", "avx2"):
            dst = f"{self.tmp}/{name}.{cpu}.packed"
            self.call("pack", path, dst, "-q", **({"SL_CPU": cpu} if cpu else {}))
            got.append(hash_packed(dst))
            os.remove(dst)
        return got[0] if got[0] == got[1] else f"{got[0]}, with SL_CPU=avx2 {got[1]}"

    def tokens(self, path, acts):
        out = self.call("run", "-m", path, "--ids", IDS, "-n", "16", "--acts", acts, "--kv", "f32",
                        "--ignore-eos", "--json", "-q", "-t", "2")
        return re.search(r'"run_hash": ?"(\w{16})"', out)[1]

    def one(self, name):
        try:
            path, ours = self.make(name)
            row = {"written": hash_written(path) if ours else "-",
                   "packed": self.packed(name, path)}
            row.update((a, self.tokens(path, a)) for a in ACTS)
            want = row if self.update else self.rows.get(name, {})
            bad = [f"{c} {row[c]}, tiny.txt has {want.get(c, 'none')}" for c in COLUMNS
                   if row[c] != want.get(c) or "," in row[c]]
        except (RuntimeError, OSError, TypeError, struct.error) as x:
            row, bad = None, [str(x)]
        with self.lock:
            self.tally.check(name, "; ".join(bad) or None)
            if self.update and row:
                self.rows[name] = row


def main():
    rows, update, emulate = read_rows(), flag("--update"), option("--emulate", "").split()
    only, n_job = option("--only", ""), int(option("--jobs", str(os.cpu_count() or 1)))
    with e2e.scratch() as tmp:
        check = Check(rows, update, tmp, emulate)
        listed = names(check.tiny)
        with ThreadPoolExecutor(n_job) as pool:
            for name in listed:
                if only in name:
                    pool.submit(check.one, name)
    if update:
        write_rows({n: rows[n] for n in listed if n in rows})
    elif set(rows) != set(listed):
        check.tally.check("the list", f"{sorted(set(rows) ^ set(listed))} is not in both")
    check.tally.exit()


if __name__ == "__main__":
    main()
