#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models with a recurrent state on a device of kernels of its own, alone and with parts on the CPU:
the same logits, the same tokens, and every step of a server's recording, with prompts in pieces,
drafts that are right and wrong, snapshots of the prefix cache and several sequences.

  check_states.py BUILD vulkan|cuda

77: there is no such device (Debian: mesa-vulkan-drivers; for CUDA the tests have a libcuda.so.1 of
their own, tests/dev/fake, in LD_LIBRARY_PATH).
"""
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import e2e

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "serve"))
import serve  # noqa: E402

# what of each may lie on the CPU; value heads in both orders, matrices apart and together
MODELS = (("qwen3_next", "experts"), ("qwen3_5_moe", "experts"), ("qwen3_5", "dense"),
          ("qwen3_5_moe.gguf", "attn@1"), ("kimi_linear.gguf", "experts"),
          ("bailing_hybrid", "attn@3"))
TEXT = "The sea is wide and the sky is high; the sea is deep. "


def logits(exe, path, tmp, args):
    """(logits, what went wrong)"""
    ids, out = os.path.join(tmp, "ids"), os.path.join(tmp, "out")
    with open(ids, "w") as f:
        f.write(" ".join(str(3 + 7 * i * i % 250) for i in range(100)))
    code, _, err = e2e.run([exe, "eval", "-q", "-m", path, "--ids-file", ids, "-c", "128",
                            "--dump-logits", out, *args])
    if code != 0 or "not given back" in err:
        return None, f"exit {code}: {err.strip()[:300]}"
    with open(out, "rb") as f:
        return f.read(), None


def tokens(exe, path, args):
    code, out, err = e2e.run([exe, "run", "-q", "-m", path, "-p", TEXT * 3, "-n", "30", "--temp",
                              "0", "--ignore-eos", "--json", "-c", "256", "--chunk", "32", *args])
    return (e2e.last_json(out)["tokens"], None) if code == 0 else (None, err.strip()[:300])


def check_model(exe, kind, name, part, tmp, tally):
    path = os.path.join(e2e.tiny(), name)
    ways = [["--device", kind], ["--device", kind, "--place", f"{part}=cpu"],
            ["--place", f"{part}={kind}"]]
    if name == MODELS[0][0]:
        ways.append(["--device", f"{kind}:0,staged,slab=65536", "--exact"])
    for way in ways:
        on_cpu = ["--exact"] if "--exact" in way else []
        want, bad = logits(exe, path, tmp, on_cpu)
        got, worse = logits(exe, path, tmp, way)
        tally.check(f"{name} {' '.join(way)}", bad or worse or
                    (None if got == want else "other bits"))
    want, bad = tokens(exe, path, [])
    for more in (["--draft", "ngram"], ["--place", f"{part}=cpu", "--draft", "auto"]):
        got, worse = tokens(exe, path, ["--device", kind, *more])
        tally.check(f"{name} on {kind} {' '.join(more)}, tokens", bad or worse or
                    (None if got == want else f"{got}, not {want}"))


def ask(s, text, guess=None):
    """An answer, whose drafts are `guess` where there is one."""
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 24, "temperature": 0,
            "ignore_eos": True}
    if guess is not None:
        body["prediction"] = {"type": "content", "content": guess}
    status, r = s.post("/v1/chat/completions", body)
    if status != 200:
        raise RuntimeError(f"{status} {r}")
    return r


def record(path, file, tally):
    """On the CPU; what the recording should hold was seen."""
    with serve.Server("--ctx", "512", "--chunk", "32", "--max-batch", "3", "--draft", "ngram",
                      "--record", file, model=path) as s:
        first = ask(s, TEXT * 2)["choices"][0]["message"]["content"]
        again = ask(s, TEXT * 2, first)
        with ThreadPoolExecutor(3) as pool:
            for i in range(4):
                pool.submit(ask, s, TEXT * 2 + "And so? " * i, first[:20 * i])
        for _ in range(40):  # on a busy machine steps may say for a while that no drafts pay
            n = s.metric("vllm:spec_decode_num_draft_tokens_total")
            if n:
                break
            ask(s, TEXT * 2, first)
    cached = again["usage"]["prompt_tokens_details"]["cached_tokens"]
    tally.check("the recording has snapshots and drafts",
                None if cached > 0 and n else f"{cached} tokens were cached, {n} drafts")


def check_steps(exe, kind, name, tmp, tally):
    file, path = os.path.join(tmp, "steps"), os.path.join(e2e.tiny(), name)
    record(path, file, tally)
    for way in (["--device", "cpu"], ["--device", kind],
                ["--device", kind, "--place", "experts=cpu"]):
        code, out, err = e2e.run([exe, "bench", "-m", path, "--replay", file, "--json", *way])
        r = json.loads(out) if code == 0 else {}
        tally.check(f"recorded steps of {name} {' '.join(way)}", None if code == 0 and
                    r["steps"] > 60 and r["differ"] == 0 else f"exit {code}: {r} {err.strip()}")


def main():
    exe, kind = e2e.sluice(), sys.argv[2]
    code, out, err = e2e.run([exe, "doctor", "--json"])
    if code != 0:
        sys.exit(f"doctor: {err}")
    if not any(c["name"].startswith(kind + ":") for c in json.loads(out)["gpus"]):
        print(f"{kind}: not run: there is no device")
        return 77
    tally = e2e.Tally(f"states on {kind}")
    with e2e.scratch() as tmp:
        for name, part in MODELS:
            check_model(exe, kind, name, part, tmp, tally)
        check_steps(exe, kind, "qwen3_5_moe", tmp, tally)
    tally.exit()


if __name__ == "__main__":
    sys.exit(main())
