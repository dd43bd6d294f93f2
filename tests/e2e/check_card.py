#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A device of kernels of its own runs whole models as the CPU does: the same tokens of tiny
checkpoints of every kind, all on it and with parts on the CPU; slabs of 64 KiB and copies by way of
pinned memory change nothing; what it can not do, and allocations and submits that fail, is one
line.

  check_card.py BUILD vulkan|cuda [MODEL...]   MODEL: names of tiny checkpoints, or paths

With --exact the bits are the same, so are all tokens. 77: there is no such device (Debian:
mesa-vulkan-drivers; for CUDA the tests have a libcuda.so.1 of their own, tests/dev/fake, in
LD_LIBRARY_PATH).
"""
import json
import os
import re
import sys
import urllib.request

import e2e

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "serve"))
import serve  # noqa: E402

MODELS = ["llama3", "qwen2.gguf", "qwen3", "qwen3_moe.gguf", "glm4_moe", "deepseek_v3",
          "deepseek_v2_lite.gguf", "deepseek_v3_fp8", "gpt_oss_mxfp4", "mistral_window",
          "q_all.gguf", "q_moe.gguf", "q_mla.gguf", "q_gpt_oss.gguf"]
IDS = ",".join(str(3 + 7 * i % 250) for i in range(21))


def cards(exe, kind):
    code, out, err = e2e.run([exe, "doctor", "--json"])
    if code != 0:
        sys.exit(f"doctor: {err}")
    return [c for c in json.loads(out)["gpus"] if c["name"].startswith(kind + ":")]


def tokens(exe, path, *args):
    """(tokens, what went wrong)"""
    code, out, err = e2e.run([exe, "run", "-m", path, "--ids", IDS, "-n", "10", "--temp", "0",
                              "--ignore-eos", "--json", "--exact", *args])
    if code == 0 and "not given back" in err:
        return None, err.strip()
    return (e2e.last_json(out)["tokens"], None) if code == 0 else (None, err.strip())


def check_model(exe, kind, path, tally):
    name = os.path.basename(path)
    want, bad = tokens(exe, path)
    if bad:
        tally.check(f"{name} on cpu", bad)
        return
    ways = [["--device", kind], ["--device", f"{kind}:0,staged,slab=65536"]]
    if "moe" in name or "deepseek" in name or "mla" in name:
        ways.append(["--device", kind, "--cpu-moe"])
        ways.append(["--place", f"experts={kind}"])
        ways.append(["--device", kind, "--cpu-moe", "--hot-experts", "2"])
        streamed = ["--cpu-moe", "--stream-from", "2"]
        ways.append(["--device", f"{kind}:0,staged,slab=65536", *streamed, "--hot-experts", "1"])
        ways.append(["--device", kind, *streamed])
    for way in ways:
        got, bad = tokens(exe, path, *way)
        same = None if got == want else f"tokens differ: {want} and {got}"
        tally.check(f"{name} {' '.join(way)}", bad or same)


def check_line(exe, tally, args, text, env=None):
    code, _, err = e2e.run([exe, "run", "-p", "x", "-n", "1", *args], env=env)
    bad = e2e.one_line_failure(code, err)
    tally.check(" ".join(args), bad or (None if text in err else f"no '{text}': {err.strip()}"))


def check_auto(exe, path, name, tally):
    """The device that `auto` is, if it is not the CPU."""
    code, out, err = e2e.run([exe, "doctor", "--device", "auto", "--json"])
    got = json.loads(out)["device"] if code == 0 else f"exit {code}: {err}"
    tally.check("auto", None if got == name else f"{got}, not {name}")
    code, _, err = e2e.run([exe, "run", "-p", "x", "-n", "1", "-m", path, "--device", "auto"])
    tally.check("run on auto", None if code == 0 else f"exit {code}: {err}")


def check_lines(exe, kind, path, tally):
    m = ["-m", path, "--device"]
    check_line(exe, tally, m + [kind + ":40"], f"--device {kind}:40: there")
    check_line(exe, tally, m + [kind + ":0,fast"], "option 'fast' (there are: NUMBER, slab=BYTES")


def check_vulkan(exe, path, tally):
    none = {"VK_ICD_FILENAMES": "/nonexistent", "VK_DRIVER_FILES": "/nonexistent"}
    check_line(exe, tally, ["-m", path, "--device", "vulkan"],
               "no driver for Vulkan is installed (Debian: mesa", none)
    code, _, err = e2e.run([exe, "run", "-p", "x", "-n", "1", "-v", "-m", path, "--device", "auto"])
    tally.check("auto", None if code == 0 and "llvmpipe" not in err else f"exit {code}: {err}")


def fake(text):
    return {"SL_FAKE_CUDA": text}


def check_cuda(exe, path, tally):
    """Lines of the library of tests; and each of its calls fails once."""
    m = ["-m", path, "--device"]
    check_line(exe, tally, m + ["cuda"], "cuda:0: there is no card for CUDA", fake("count=0"))
    check_line(exe, tally, m + ["cuda:2"], "cuda:2: there are 2: cuda:0 Fake 0 9 GB, cuda:1 Fake 1",
               fake("count=2"))
    check_line(exe, tally, m + ["cuda"],
               "cuda:0: Fake 0: compute capability 5.2: at least 6.1 is needed", fake("cc=52"))
    check_line(exe, tally, m + ["cuda"], "GiB are available", fake("mem=1"))
    check_line(exe, tally, m + ["cuda"], "cuda:0: lost (CUDA_ERROR_LAUNCH_FAILED)", fake("lost=8"))
    if not re.search(r"libcuda\.so\.1 ", e2e.run(["ldconfig", "-p"])[1].decode()):
        check_line(exe, tally, m + ["cuda"], "cuda:0: libcuda.so.1 is not installed",
                   {"LD_LIBRARY_PATH": ""})
    args = [exe, "run", "-q", "-m", path, "--ids", "5,6,7", "-n", "3", "--temp", "0", "--device",
            "cuda"]  # -q: without the probe of its closing line
    code, _, err = e2e.run(args, env=fake("calls"))
    n = int(re.search(r"libcuda: (\d+) calls", err)[1]) if code == 0 else 0
    tally.check("calls", None if n > 100 else f"{n} calls: {err.strip()}")
    said, some = "", [*range(1, min(n, 60)), *range(60, n + 1, 5)]
    for k in some:
        code, _, err = e2e.run(args, env=fake(f"fail={k}"), timeout=60)
        said += err
        lines = err.strip().split("\n")  # of a step that fails: what failed, and what ends
        if code != 1 or len(lines) > 2 or any(not s.startswith("sluice: ") for s in lines):
            tally.check(f"call {k} of {n}", f"exit {code}: {err.strip()[:300]}")
            return
    need = re.search(r"MiB needed, [\d.]+ free \(CUDA_ERROR_OUT_OF_MEMORY\)", said)
    tally.check(f"{len(some)} of {n} calls", None if need else "no memory that is full")


def check_faults(exe, kind, path, tally):
    """Each allocation and each submit fails once: one line, or a request that ends with one."""
    for what in ("alloc", "submit"):
        done = 0
        for k in range(1, 200):
            args = ["run", "-m", path, "--ids", "5,6,7", "-n", "3", "--temp", "0", "--device",
                    f"{kind}:0,fail={what}:{k}"]
            code, _, err = e2e.run([exe] + args, timeout=60)
            if code == 0:
                done = k - 1
                break
            if (code != 1 or f"{what} {k} fails" not in err.replace("allocation", "alloc")
                    or "not given back" in err):
                tally.check(f"{what} {k}", f"exit {code}: {err.strip()[:200]}")
                return
        tally.check(f"every {what}", None if done > 2 else f"only {done} were seen to fail")


def check_serve(kind, path, tally):
    """A server, whose sandbox leaves the driver its files."""
    with serve.Server("--device", kind, "--ctx", "256", "--chunk", "32", model=path) as s:
        req = urllib.request.Request(f"http://127.0.0.1:{s.port}/v1/completions", method="POST",
                                     data=b'{"prompt": "Once", "max_tokens": 4}',
                                     headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(req, timeout=120) as r:
            n = json.load(r)["usage"]["completion_tokens"]
    tally.check("serve", None if 1 <= n <= 4 else f"{n} tokens")


def main():
    exe, kind = e2e.sluice(), sys.argv[2]
    found = cards(exe, kind)
    if not found:
        print(f"{kind}: not run: there is no device")
        return 77
    tally = e2e.Tally(kind)
    tiny = e2e.tiny()
    llama = os.path.join(tiny, "llama3")
    print(f"{kind}: {found[0]['text']}")
    for name in sys.argv[3:] or MODELS:
        check_model(exe, kind, name if os.path.sep in name else os.path.join(tiny, name), tally)
    if not sys.argv[3:]:
        check_lines(exe, kind, llama, tally)
        if kind == "vulkan":
            check_vulkan(exe, llama, tally)
        elif found[0]["text"].startswith("Fake"):
            check_auto(exe, llama, "cuda:0", tally)
            check_cuda(exe, llama, tally)
        check_serve(kind, llama, tally)
        check_faults(exe, kind, llama, tally)
    tally.exit()


if __name__ == "__main__":
    sys.exit(main())
