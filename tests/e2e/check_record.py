#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--record of run, batch files and serve, and bench --replay: the same bits with one and two
threads; what does not fit is refused in one line.

  check_record.py [BUILD]
"""
import json
import os
import sys

import e2e

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "serve"))

SLUICE = e2e.sluice()
n_bad = 0


def check(ok, what):
    global n_bad
    if not ok:
        n_bad += 1
        print("record: " + what)


def replay(path, *more):
    return e2e.run([SLUICE, "bench", "--replay", path, *more])


def good(what, path, *more):
    code, out, err = replay(path, "--json", *more)
    r = json.loads(out) if code == 0 else {}
    check(code == 0 and r["steps"] > 3 and r["rows"] > 3 and r["differ"] == 0,
          f"{what} {more}: {code} {out} {err}")
    return r


def refused(what, words, path, *more, code=1):
    got, out, err = replay(path, *more)
    ok = got == code and not out and err.count("\n") == 1 and err.startswith("sluice: ")
    check(ok and all(w in err for w in words), f"{what}: {got} {out} {err}")


def serve(path):
    import serve as s
    with s.Server("--threads", "1", "--ctx", "512", "--max-batch", "4", "--record", path) as server:
        for i in range(3):
            r = server.post("/v1/completions", {"prompt": "One, two, " * (i + 1), "max_tokens": 5})
            check(r[0] == 200, f"serve --record: {r}")


def main():
    with e2e.tempfile.TemporaryDirectory() as d:
        one, many, mtp, form, served = (os.path.join(d, n)
                                        for n in ("one", "many", "mtp", "form", "served"))
        lines = "".join(
            json.dumps({"ids": [(7 * i + k) % 90 for k in range(3 + 9 * i)], "n": 6}) + "\n"
            for i in range(6))
        with open(os.path.join(d, "lines"), "w") as f:
            f.write(lines)
        code, out, err = e2e.run(
            [SLUICE, "run", "-p", "Once upon", "-n", "8", "-c", "512", "--record", one])
        plain = e2e.run([SLUICE, "run", "-p", "Once upon", "-n", "8", "-c", "512"])[1]
        check(code == 0 and out == plain, f"run --record: {code} {out} {err}")
        code, out, err = e2e.run([SLUICE, "run", "--batch-file", os.path.join(d, "lines"),
                                  "-c", "512", "-t", "2", "--record", many])
        check(code == 0, f"batch --record: {code} {err}")
        code, out, err = e2e.run([SLUICE, "run", "-p", "The capital", "-n", "20", "-c", "512",
                                  "--draft", "mtp", "--draft-vocab", "600", "--record", mtp])
        check(code == 0, f"run --draft mtp --record: {code} {err}")
        code, out, err = e2e.run([SLUICE, "run", "-p", "The capital", "-n", "8", "-c", "512",
                                  "--combine", "q8", "--defer", "1", "--record", form])
        check(code == 0, f"run --combine q8 --record: {code} {err}")
        state, model = os.path.join(d, "state"), ["-m", os.path.join(e2e.tiny(), "qwen3_next.gguf")]
        code, out, err = e2e.run([SLUICE, "run", *model, "-p", "The capital", "-n", "8",
                                  "-c", "512", "--record", state])
        check(code == 0, f"run --record of a model with states: {code} {err}")
        names = [one, many, mtp, form, state, served]
        try:
            serve(served)
        except SystemExit:  # this build has no server
            names.pop()
        for name in names:
            for t in "12":
                r = good(os.path.basename(name), name, "-t", t, *(model if name == state else []))
                check(r.get("threads") == int(t), "threads")
        with open(many, "rb") as f:
            data = f.read()
        cut = os.path.join(d, "cut")

        def write(p):
            with open(cut, "wb") as f:
                f.write(p)
        write(data[:-3])
        refused("cut", [cut, f"byte {len(data) - 3}: the recording ends"], cut)
        write(data[:300] + bytes([data[300] ^ 1]) + data[301:])
        refused("damaged", [cut, "byte ", "damaged"], cut)
        write(data[:8] + b"\x09" + data[9:])
        refused("another version", ["version 9"], cut)
        write(b"GGUF" + data[4:])
        refused("no recording", ["byte 0", "not a recording"], cut)
        refused("another model", ["another model"], many,
                "-m", os.path.join(e2e.tiny(), "llama3.gguf"))
        refused("a model without an MTP layer", [mtp + ": draft"], mtp,
                "-m", os.path.join(e2e.tiny(), "llama3.gguf"))
        refused("another form", ["combine"], form, "--combine", "bf16")
        refused("other options", ["type of the KV cache"], many, "--kv", "q8")
        refused("not there", ["none"], os.path.join(d, "none"))
        refused("with -p", ["--replay"], many, "-p", "5", code=2)
        got = e2e.run([SLUICE, "run", "-p", "x", "-n", "2", "--record", "/dev/full"])
        check(got[0] == 1 and "--record /dev/full" in got[2], f"full disk: {got}")
        got = e2e.run([SLUICE, "run", "-p", "x", "-n", "2", "--record", os.path.join(d, "no", "x")])
        check(got[0] == 1 and got[2].count("\n") == 1, f"no folder: {got}")
    print(f"record: {'all good' if not n_bad else f'{n_bad} bad'}")
    return 1 if n_bad else 0


sys.exit(main())
