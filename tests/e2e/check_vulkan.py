#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The device `vulkan` runs whole models as the CPU does: the same tokens of tiny checkpoints of
every kind, all on it and with parts on the CPU; slabs of 64 KiB and copies by way of pinned memory
change nothing; what it can not do, and allocations and submits that fail, is one line.

  check_vulkan.py [BUILD [MODEL...]]   MODEL: names of tiny checkpoints, or paths

The CPU has AVX2 at most and the cache is f16: then the bits are the same, so are all tokens. 77:
no device for Vulkan is there (Debian: mesa-vulkan-drivers).
"""
import json
import os
import sys
import urllib.request

import e2e

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "serve"))
import serve  # noqa: E402

MODELS = ["llama3", "qwen2.gguf", "qwen3", "qwen3_moe.gguf", "glm4_moe", "deepseek_v3",
          "deepseek_v2_lite.gguf", "deepseek_v3_fp8", "gpt_oss_mxfp4", "mistral_window",
          "q_all.gguf", "q_moe.gguf", "q_mla.gguf", "q_gpt_oss.gguf"]
ENV = {"SL_CPU": "avx2"}
IDS = ",".join(str(3 + 7 * i % 250) for i in range(21))


def cards(exe):
    code, out, err = e2e.run([exe, "doctor", "--json"])
    if code != 0:
        sys.exit(f"doctor: {err}")
    return json.loads(out)["gpus"]


def tokens(exe, path, *args):
    """(tokens, what went wrong)"""
    code, out, err = e2e.run([exe, "run", "-m", path, "--ids", IDS, "-n", "10", "--temp", "0",
                              "--ignore-eos", "--json", "--kv", "f16", *args], env=ENV)
    return (e2e.last_json(out)["tokens"], None) if code == 0 else (None, err.strip())


def check_model(exe, path, name, tally):
    want, bad = tokens(exe, path)
    if bad:
        tally.check(f"{name} on cpu", bad)
        return
    ways = [["--device", "vulkan"], ["--device", "vulkan:0,staged,slab=65536"]]
    if "moe" in name or "deepseek" in name or "mla" in name:
        ways.append(["--device", "vulkan", "--cpu-moe"])
        ways.append(["--place", "experts=vulkan"])
    for way in ways:
        got, bad = tokens(exe, path, *way)
        same = None if got == want else f"tokens differ: {want} and {got}"
        tally.check(f"{name} {' '.join(way)}", bad or same)


def check_line(exe, tally, args, text, env=None):
    code, _, err = e2e.run([exe, "run", "-p", "x", "-n", "1", *args], env=env)
    bad = e2e.one_line_failure(code, err)
    tally.check(" ".join(args), bad or (None if text in err else f"no '{text}': {err.strip()}"))


def check_lines(exe, path, tally):
    m = ["-m", path, "--device"]
    check_line(exe, tally, m + ["vulkan:40"], "--device vulkan:40: there")
    check_line(exe, tally, m + ["vulkan:0,fast"], "option 'fast' (there are: NUMBER, slab=BYTES")
    none = {"VK_ICD_FILENAMES": "/nonexistent", "VK_DRIVER_FILES": "/nonexistent"}
    check_line(exe, tally, m + ["vulkan"], "no driver for Vulkan is installed (Debian: mesa", none)
    code, _, err = e2e.run([exe, "run", "-p", "x", "-n", "1", "-v"] + m + ["auto"])
    tally.check("auto", None if code == 0 and "vulkan" not in err else f"exit {code}: {err}")


def check_faults(exe, path, tally):
    """Each allocation and each submit fails once: one line, or a request that ends with one."""
    for kind in ("alloc", "submit"):
        done = 0
        for k in range(1, 200):
            args = ["run", "-m", path, "--ids", "5,6,7", "-n", "3", "--temp", "0", "--device",
                    f"vulkan:0,fail={kind}:{k}"]
            code, _, err = e2e.run([exe] + args, timeout=60)
            if code == 0:
                done = k - 1
                break
            if code != 1 or f"{kind} {k} fails" not in err.replace("allocation", "alloc"):
                tally.check(f"{kind} {k}", f"exit {code}: {err.strip()[:200]}")
                return
        tally.check(f"every {kind}", None if done > 2 else f"only {done} were seen to fail")


def check_serve(path, tally):
    """A server, whose sandbox leaves the driver its files."""
    with serve.Server("--device", "vulkan", "--ctx", "256", "--chunk", "32", model=path) as s:
        req = urllib.request.Request(f"http://127.0.0.1:{s.port}/v1/completions", method="POST",
                                     data=b'{"prompt": "Once", "max_tokens": 4}',
                                     headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(req, timeout=120) as r:
            n = json.load(r)["usage"]["completion_tokens"]
    tally.check("serve", None if 1 <= n <= 4 else f"{n} tokens")


def main():
    exe = e2e.sluice()
    found = cards(exe)
    if not found:
        print("vulkan: not run: there is no device")
        return 77
    tally = e2e.Tally("vulkan")
    tiny = e2e.tiny()
    print(f"vulkan: {found[0]['text']}")
    for name in sys.argv[2:] or MODELS:
        path = name if os.path.sep in name else os.path.join(tiny, name)
        check_model(exe, path, os.path.basename(path), tally)
    if not sys.argv[2:]:
        check_lines(exe, os.path.join(tiny, "llama3"), tally)
        check_serve(os.path.join(tiny, "llama3"), tally)
        check_faults(exe, os.path.join(tiny, "llama3"), tally)
    tally.exit()


if __name__ == "__main__":
    sys.exit(main())
