#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No output depends on memory that nobody wrote (docs/reliability.md F14): every command gives the
same bytes when fresh memory holds 0x00, 0x55 and 0xff, and valgrind, where it is installed, finds
no use of an uninitialised value.

  check_uninit.py BUILD [NAME]..."""
import hashlib
import os
import re
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import e2e  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
TIMES = rb'"(search_s|eval_us)":[0-9.e-]+|[0-9.]+ s, [0-9.]+ GB/s'
STDIN = (b'[{"role":"user","content":"Gr\xc3\xbc\xc3\x9fe, \xe4\xb8\x96\xe7\x95\x8c '
         b'\xf0\x9f\x91\x8b 12345"}]')
PROMPT = ["-p", "What is 3 + 4?", "-n", "12"]
IDS = "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20"


def commands(tiny):
    """(name, arguments; OUT stands for a file or folder that the command writes)"""
    for arch in ("deepseek_v3", "qwen3_moe", "llama3", "deepseek_v2_lite.gguf", "q_all.gguf"):
        for extra in ([], ["--acts", "f32", "--kv", "f32"], ["--kv", "q8"]):
            yield (" ".join(["logits", arch] + extra),
                   ["eval", "-m", os.path.join(tiny, arch),
                    "--ids", IDS, "--dump-logits", "OUT", "-t", "2", "-q"] + extra)
    yield "run", ["run", "--temp", "0.8", "--seed", "3", "-t", "2", "-q"] + PROMPT
    yield "run json", ["run", "--json-schema", os.path.join(HERE, "schema.json"),
                       "-t", "1", "-q"] + PROMPT
    yield "tokenize", ["tokenize", "--pieces"]
    yield "template", ["template", "--messages", "-"]
    yield "inspect", ["inspect", "--json", "-m", os.path.join(tiny, "deepseek_v3_fp8")]
    for type_ in ("q4_k", "q6_k", "nvfp4", "mxfp4"):
        yield "quantize " + type_, ["quantize", os.path.join(tiny, "qwen3_moe"),
                                    "OUT.gguf", "--weights", type_, "-q"]
    yield "quantize int4", ["quantize", os.path.join(tiny, "qwen3_moe"),
                            "OUT", "--weights", "int4", "-q"]
    yield "pack", ["pack", os.path.join(tiny, "qwen3_moe.gguf"), "OUT.packed", "-q"]
    yield "plan", ["plan", "--model", "DeepSeek-R1",
                   "--hardware", "910b4", "--cards", "16", "--json"]


def digest(path):
    """Of a file, or of all files of a folder."""
    h = hashlib.sha256()
    for root, folders, names in os.walk(path) if os.path.isdir(
            path) else [(os.path.dirname(path), [], [os.path.basename(path)])]:
        folders.sort()
        for n in sorted(names):
            h.update(n.encode() + open(os.path.join(root, n), "rb").read())
    return h.hexdigest()


def one(prefix, exe, args, env):
    """(exit code, stderr, digest of everything that came out)"""
    d = tempfile.mkdtemp(prefix="sluice-uninit-")
    try:
        out = [a.replace("OUT", os.path.join(d, "out")) if a.startswith("OUT") else a for a in args]
        code, stdout, err = e2e.run(prefix + [exe] + out, stdin=STDIN, timeout=300, env=env)
        h = hashlib.sha256(re.sub(TIMES, b"", stdout.replace(d.encode(), b"")))
        for n in sorted(os.listdir(d)):
            h.update(n.encode() + digest(os.path.join(d, n)).encode())
        return code, err, h.hexdigest()
    finally:
        shutil.rmtree(d)


def main():
    build = e2e.build_dir()
    names = sys.argv[2:]
    tally, exe, tiny = e2e.Tally("uninitialised memory"), e2e.sluice(build), e2e.tiny(build)
    lib = os.path.join(build, "tests", "e2e", "libfault_preload.so")
    grind = shutil.which("valgrind")
    for name, args in commands(tiny):
        if names and not any(n in name for n in names):
            continue
        seen = {}
        for byte in (0, 0x55, 0xff):
            code, err, seen[byte] = one(
                [], exe, args, dict(LD_PRELOAD=lib, FAULT_KIND="poison", FAULT_AT=str(byte)))
            if code != 0:
                tally.check(f"{name} with {byte:#04x}", f"exit {code}: {err.strip()[-200:]}")
        tally.check(f"{name}: same bytes whatever memory held",
                    None if len(set(seen.values())) == 1 else f"differ: {seen}")
        if grind:
            code, err, _ = one([grind, "-q", "--error-exitcode=99", "--leak-check=no"],
                               exe, args, {})
            tally.check(f"{name} under valgrind",
                        None if code == 0 else f"exit {code}: {err.strip()[:400]}")
    if not grind:
        print("no valgrind: that half was left out")
    tally.exit()


if __name__ == "__main__":
    main()
