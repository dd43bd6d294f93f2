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
import threading
import time
import urllib.request

import e2e

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "serve"))
import serve  # noqa: E402

MODELS = ["llama3", "qwen2.gguf", "qwen3", "qwen3_moe.gguf", "glm4_moe", "deepseek_v3",
          "deepseek_v2_lite.gguf", "deepseek_v3_fp8", "gpt_oss_mxfp4", "mistral_window",
          "q_all.gguf", "q_moe.gguf", "q_mla.gguf", "q_gpt_oss.gguf", "qwen3_5_moe"]
IDS = ",".join(str(3 + 7 * i % 250) for i in range(21))


def cards(exe, kind):
    code, out, err = e2e.run([exe, "doctor", "--json"])
    if code != 0:
        sys.exit(f"doctor: {err}")
    return [c for c in json.loads(out)["gpus"] if c["name"].startswith(kind + ":")]


def tokens(exe, path, *args, env=None):
    """(tokens, what went wrong); -q and -v: all that it says, without a measurement at the end"""
    code, out, err = e2e.run([exe, "run", "-m", path, "--ids", IDS, "-n", "10", "--temp", "0",
                              "--ignore-eos", "--json", "--exact", "-q", "-v", *args], env=env)
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
    code, _, err = e2e.run([exe, "run", "-p", "x", "-n", "1", "-v", "-m", path, "--device", "auto"])
    tally.check("run on auto", None if code == 0 and f"--device auto: {name}" in err else
                f"exit {code}: {err}")


def check_lines(exe, kind, path, tally):
    m = ["-m", path, "--device"]
    check_line(exe, tally, m + [kind + ":40"], f"--device {kind}:40: there")
    check_line(exe, tally, m + [f"{kind}:0,{kind}:41"], f"--device {kind}:41: there")
    check_line(exe, tally, ["-m", path, "--place", f"head={kind}:0,{kind}:1"],
               f"device '{kind}': '{kind}:1' is another device: --place puts")
    check_line(exe, tally, m + [kind + ":0,fast"], "option 'fast' (there are: NUMBER, slab=BYTES")


def check_vulkan(exe, path, tally):
    none = {"VK_ICD_FILENAMES": "/nonexistent", "VK_DRIVER_FILES": "/nonexistent"}
    check_line(exe, tally, ["-m", path, "--device", "vulkan"],
               "no driver for Vulkan is installed (Debian: mesa", none)
    code, _, err = e2e.run([exe, "run", "-p", "x", "-n", "1", "-v", "-m", path, "--device", "auto"])
    with e2e.scratch() as tmp:  # a library that can not be loaded stands before the real one
        open(os.path.join(tmp, "libvulkan.so.1"), "w").close()
        check_line(exe, tally, ["-m", path, "--device", "vulkan:1"], "vulkan:1: libvulkan.so.1 is "
                   "not installed (Debian: libvulkan1 and a driver", {"LD_LIBRARY_PATH": tmp})
    one = err.count("--device auto: ") == 1
    tally.check("auto", None if code == 0 and one and "llvmpipe" not in err else
                f"exit {code}: {err}")


def looks(text):
    """The card in software as another: tests/dev/fake/vulkan.c."""
    lib = os.path.join(os.path.abspath(sys.argv[1]), "tests", "dev", "fake", "vulkan")
    return {"LD_LIBRARY_PATH": lib, "SL_FAKE_VULKAN": text}


def check_looks(exe, tally, tiny):
    """Memory as cards have it, several of them, and what a driver may lack."""
    llama, moe = os.path.join(tiny, "llama3"), os.path.join(tiny, "q_moe.gguf")
    m = ["-m", llama, "--device", "vulkan"]
    ways = [("own", moe, ["--cpu-moe", "--stream-from", "2", "--hot-experts", "1"]),
            ("own,noclock", moe, []), ("card,lacks=shaderFloat64", llama, []),
            ("apu", llama, ["--kv", "q8"])]
    for text, path, args in ways:
        want, _ = tokens(exe, path, *args[:2] if args[:1] == ["--kv"] else [])
        got, bad = tokens(exe, path, "--device", "vulkan", *args, env=looks(text))
        tally.check(f"tokens on {text}", bad or (None if got == want else f"{got}, not {want}"))
    check_two(exe, tally, moe, "vulkan", looks("own,count=2"))
    for name in ("bufferDeviceAddress", "timelineSemaphore", "scalarBlockLayout", "shaderInt64"):
        check_line(exe, tally, m, f"sluice: vulkan:0: no {name}: this driver can not run "
                   "sluice: update it", looks("lacks=" + name))
    check_line(exe, tally, m, "no Vulkan 1.2: this driver", looks("old"))
    check_line(exe, tally, m, "no 24 KiB of shared memory: ", looks("shared=16384"))
    check_line(exe, tally, m, "no workgroups of 256: ", looks("lanes=128"))
    check_line(exe, tally, m, "vulkan:0: 64.0 MiB needed, 8.0 free (VK_ERROR_OUT_OF_DEVICE_MEMORY)",
               looks("own,mem=8"))
    code, out, err = e2e.run([exe, "doctor", "--json"], env=looks("card,mem=24576"))
    card = json.loads(out)["gpus"][-1] if code == 0 else {"memory": err}
    tally.check("memory of a card", None if card["memory"] == 24576 << 20 else str(card))


def check_two(exe, tally, path, kind, env):
    """Layers shared by two cards, of one rank and of two."""
    want, _ = tokens(exe, path)
    for args in ([], ["--split", "1,2"], ["--cpu-moe", "-ts", "0,1"], ["--layout", "pp=2"],
                 ["--cpu-moe", "--hot-experts", "2"], ["--layout", "pp=2", "--cpu-moe"],
                 ["--layout", "pp=2", "--cpu-moe", "--hot-experts", "2", "--stream-from", "2"]):
        got, bad = tokens(exe, path, "--device", f"{kind}:0,{kind}:1", *args, env=env)
        tally.check(f"two cards {' '.join(args)}", bad or
                    (None if got == want else f"{got}, not {want}"))


SHARED = (("llama2", "tp=2", []), ("deepseek_v2_lite", "tp=2", []),
          ("deepseek_v2_lite", "tp=2,ep=2", ["--cpu-moe"]), ("qwen3_moe_mixed", "tp=2,pp=2", []),
          ("q_gpt_oss.gguf", "tp=2,ep=2", []), ("qwen3_moe_mixed", "tp=2,ep=2", ["cpu"]),
          ("deepseek_v2", "dp=2,ep=2", []), ("deepseek_v2", "dp=2,ep=2", ["--cpu-moe"]),
          ("deepseek_v2_lite", "dp=2,tp=2,ep=4", []), ("llama2", "tp=2", ["cpu"]),
          ("deepseek_v2", "dp=2,tp=2,ep=2", ["--cpu-moe"]), ("deepseek_v2", "dp=2,tp=2,ep=2", []),
          ("q_gpt_oss.gguf", "tp=4,ep=2", []), ("q_gpt_oss.gguf", "tp=4,ep=2", ["cpu"]),
          ("deepseek_v2_lite", "dp=2", ["cpu"]))


def check_shared(exe, kind, tally, tiny):
    """Ranks that share layers, on cards, and on a card and the CPU; one whose card fails."""
    for name, layout, more in SHARED:
        path = os.path.join(tiny, name)
        want, _ = tokens(exe, path)
        device = f"{kind},cpu" if more == ["cpu"] else kind
        args = ["--layout", layout, "--device", device, *[a for a in more if a != "cpu"]]
        got, bad = tokens(exe, path, *args, "-t", "4")
        tally.check(f"{name} {' '.join(args)}", bad or
                    (None if got == want else f"{got}, not {want}"))
    path = os.path.join(tiny, "deepseek_v2_lite")
    check_line(exe, tally, ["-m", path, "--layout", "tp=2", "--device", f"{kind},cpu"],
               "layout: experts whose rows ranks share are on cards or on CPUs, not on both: "
               "--place experts=cpu, or ep=2")
    for k in (40, 60, 80):
        code, _, err = e2e.run([exe, "run", "-m", path, "--ids", IDS, "-n", "30", "--temp", "0",
                                "--ignore-eos", "--layout", "tp=2,ep=2", "--device",
                                f"{kind},{kind}:0,fail=submit:{k}"], timeout=60)
        tally.check(f"submit {k} of a rank's card", None if code == 1 and
                    f"submit {k} fails" in err else f"exit {code}: {err[-200:]}")


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
    check_line(exe, tally, m + ["cuda"], " free: too little for this model", fake("mem=1"))
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


def check_faults(exe, kind, path, tally, *args, step=1):
    """Each allocation and each submit fails once, of the latter from the 30th on every step-th: one
    line, or a request that ends with one."""
    way = "staged," if args else ""
    for what in ("alloc", "submit"):
        done, k = 0, 1
        while k < 1000:
            code, _, err = e2e.run([exe, "run", "-m", path, "--ids", "5,6,7", "-n", "3", "--temp",
                                    "0", "--device", f"{kind}:0,{way}fail={what}:{k}", *args],
                                   timeout=60)
            if code == 0:
                break
            done += 1
            said = err.replace("allocation", "alloc").strip().split("\n")
            if (code != 1 or len(said) != 1 or f"{what} {k} fails" not in said[0]
                    or "not given back" in err):
                tally.check(f"{what} {k} {' '.join(args)}", f"exit {code}: {err.strip()[:200]}")
                return
            k += 1 if k < 30 else step
        tally.check(f"every {what} {' '.join(args)}",
                    None if done > 2 else f"only {done} were seen to fail")


def check_serve(kind, path, tally):
    """A server, whose sandbox leaves the driver its files."""
    with serve.Server("--device", kind, "--ctx", "256", "--chunk", "32", model=path) as s:
        req = urllib.request.Request(f"http://127.0.0.1:{s.port}/v1/completions", method="POST",
                                     data=b'{"prompt": "Once", "max_tokens": 4}',
                                     headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(req, timeout=120) as r:
            n = json.load(r)["usage"]["completion_tokens"]
    tally.check("serve", None if 1 <= n <= 4 else f"{n} tokens")


def opens_and_fails(kind, path):
    """A server whose device fails later than its opening."""
    for k in (100, 200, 400, 800, 1600):
        try:
            return serve.Server("--device", f"{kind}:0,fail=submit:{k}", "--ctx", "512",
                                "--drain", "5", model=path)
        except RuntimeError as e:
            if f"submit {k} fails" not in str(e):
                raise
    raise RuntimeError("it never opened")


def check_lost(kind, path, tally):
    """8 streams on a device that is lost: each ends with an error event, then nobody gets in and
    the server leaves with exit code 1 and a line that says how many have ended."""
    ends = [None] * 8

    def ask(i):
        try:
            ends[i] = s.stream("/v1/completions", {"prompt": f"Story {i}", "max_tokens": 400,
                                                   "ignore_eos": True, "stream": True})[1][-2:]
        except OSError as e:
            ends[i] = repr(e)

    with opens_and_fails(kind, path) as s:
        clients = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
        t0 = time.time()
        for c in clients:
            c.start()
        for c in clients:
            c.join(60)
        took = time.time() - t0
        good = sum("fails, as its option says" in json.dumps(e) and "error" in json.dumps(e)
                   for e in ends)
        tally.check("8 streams of a device that is lost", None if good == 8 and took < 12 else
                    f"{took:.1f} s: {ends}")
        code = s.proc.wait(12)
        s.reader.join(5)
        said = [ln for ln in b"".join(s.log).decode().split("\n") if ln.startswith("sluice: ")
                and "fails" in ln]
        tally.check("its last line", None if code == 1 and len(said) == 1 and re.search(
            r" in step \d+: all 8 requests ended$", said[0]) else f"exit {code}: {said}")


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
        check_shared(exe, kind, tally, tiny)
        check_lines(exe, kind, llama, tally)
        if kind == "vulkan":
            check_vulkan(exe, llama, tally)
            if "llvmpipe" in found[0]["text"] and os.path.isdir(looks("")["LD_LIBRARY_PATH"]):
                check_looks(exe, tally, tiny)
        elif found[0]["text"].startswith("Fake"):
            check_auto(exe, llama, "cuda:0", tally)
            check_cuda(exe, llama, tally)
            moe = os.path.join(tiny, "q_moe.gguf")
            check_two(exe, tally, moe, kind, fake("count=2"))
            got = tokens(exe, moe, "--device", kind, "--cpu-moe", env=fake("recordings=3"))
            tally.check("3 recordings", None if got == tokens(exe, moe) else str(got))
        check_serve(kind, llama, tally)
        check_lost(kind, llama, tally)
        check_faults(exe, kind, llama, tally)
        with e2e.scratch() as tmp:  # whose load says which are hot: else there is a second line
            load, moe = os.path.join(tmp, "load.json"), os.path.join(tiny, "qwen3_moe.gguf")
            e2e.run([exe, "run", "-m", moe, "--ids", IDS, "-n", "2", "--expert-stats", load])
            check_faults(exe, kind, moe, tally, "--cpu-moe", "--hot-experts", "2", "--hot-from",
                         load, "--stream-from", "3", step=4)
    tally.exit()


if __name__ == "__main__":
    sys.exit(main())
