#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quantize and verify over the tiny checkpoints: every type, both kinds of files and both ways
between them, wrong usage, full disks, kills in the middle."""
import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import time

import e2e

S, TINY = e2e.sluice(), e2e.tiny()
IDS = "5,6,7,8,9,20,30,40,50,60"
# relative RMS error that a type may have on random weights
GGUF = {"f32": 1e-9, "f16": 1e-3, "bf16": 4e-3, "q8_0": 0.01,
        "q4_0": 0.11, "q4_1": 0.09, "q5_0": 0.06,
        "q5_1": 0.05, "q4_k": 0.11, "q5_k": 0.06, "q6_k": 0.03, "nvfp4": 0.11, "mxfp4": 0.14}
FOLDER = {"f32": 1e-9, "bf16": 4e-3, "int8": 0.012,
          "int4": 0.16, "awq": 0.12, "fp8": 0.04, "nvfp4": 0.11,
          "mxfp4": 0.14}


def fails(args, code, word, **kw):
    rc, _, err = e2e.run([S] + args, **kw)
    problem = e2e.one_line_failure(rc, err)
    if problem or rc != code:
        return problem or f"exit code {rc}, not {code}: {err}"
    return None if word in err else f"no '{word}' in: {err}"


def quantize(src, dst, *more):
    rc, out, err = e2e.run([S, "quantize", src, dst, "--json", "-q", *more])
    return (e2e.last_json(out), None) if rc == 0 else (None, err.strip() or f"exit code {rc}")


def verify(a, b, tol):
    rc, out, err = e2e.run([S, "verify", a, b, "--tol", str(tol), "--json", "-q"])
    if rc not in (0, 1) or not out:
        return err.strip() or f"exit code {rc}"
    r = e2e.last_json(out)
    return None if rc == 0 and r[
        "ok"] else f"worst {r['rms_rel']}, {r['only_a']} and {r['only_b']} alone"


def logits(model, out):
    rc, _, err = e2e.run([S, "eval", "-m", model, "--ids",
                          IDS, "--dump-logits", out, "--acts", "f32", "-q"])
    if rc:
        return err
    with open(out, "rb") as f:
        return f.read()


def same_logits(a, b):
    import array
    x, y = array.array("f", a), array.array("f", b)
    mean = sum(x) / len(x)
    std = (sum((v - mean) ** 2 for v in x) / len(x)) ** 0.5
    return max(abs(p - q) for p, q in zip(x, y)) / std


def rms(a, b):
    import array
    x, y = array.array("f", a), array.array("f", b)
    mean = sum(x) / len(x)
    return (sum((p - q) ** 2 for p, q in zip(x, y)) / sum((p - mean) ** 2 for p in x)) ** 0.5


# Folders of which GGUF can not say something, and those that do not come back from it.
NO_GGUF = {"deepseek_v3_mscale": "mscale", "gpt_oss": "swiglu_limit",
           "gpt_oss_mxfp4": "swiglu_limit", "minimax_m3_mxfp8": "swiglu_limit",
           "kimi_linear5": "heads of delta attention", "bailing_hybrid5": "kda_safe_gate",
           "glm5_next_fp8": "heads of delta attention"}
# A decay's logarithm and a norm less 1 are rounded.
ROUNDED = {"qwen3_next": 1e-6, "qwen3_5_moe": 1e-6, "qwen3_5": 1e-6, "minimax_m3": 1e-6,
           "kimi_linear": 1e-6, "bailing_hybrid": 1e-6, "glm5_next": 1e-6}
SEES = ("kimi_k25", "qwen3_5_moe", "qwen3_5", "minimax_m3", "glm5_next", "gemma4")
NOT_BACK = {"llama3": "rope_freqs.weight", "llama3_old": "rope_freqs.weight"}


def refused(bad, word):
    return None if bad and word in bad else f"not refused for {word}: {bad}"


def guesses(t, name, models, tmp, what="MTP"):
    """Logits of the MTP layer, where the model has one: of the others the tool says so."""
    with open(f"{TINY}/ref/{name}.json") as f:
        has = "mtp" in json.load(f)
    with open(f"{tmp}/ids", "w") as f:
        f.write(IDS + "\n")
    out = []
    for m in models:
        rc, _, err = e2e.run([os.path.join(e2e.build_dir(), "mtp_dump"), m, f"{tmp}/ids",
                              f"{tmp}/mtp"])
        if rc or not has:
            bad = None if rc and not has and "no MTP layer" in err else f"exit code {rc}: {err}"
            t.check(f"{name} {what} {m}", bad)
            continue
        with open(f"{tmp}/mtp", "rb") as f:
            out.append(f.read())
    for i in range(1, len(out)):
        d = same_logits(out[0], out[i])
        t.check(f"{name} {what} logits {i}", f"differ by {d}" if d > 1e-4 else None)


def both_ways(t, tmp):
    """folder -> GGUF -> folder with all values and logits kept, of every folder"""
    with open(os.path.join(TINY, "manifest.json")) as f:
        models = [m["model"] for m in json.load(f)]
    for name in (m for m in models if os.path.isdir(os.path.join(TINY, m))):
        src, g, hf = os.path.join(TINY,
                                  name), os.path.join(tmp, name + ".gguf"), os.path.join(tmp, name)
        _, bad = quantize(src, g, "--weights", "f32")
        if name in NO_GGUF:
            t.check(f"{name} to GGUF", refused(bad, NO_GGUF[name]))
            continue
        t.check(f"{name} to GGUF", bad or verify(src, g, 0) or
                (None if name in NOT_BACK else verify(g, src, ROUNDED.get(name, 0))))
        _, bad = quantize(g, hf, "--weights", "f32")
        if name in NOT_BACK:
            t.check(f"{name} back to a folder", refused(bad, NOT_BACK[name]))
            continue
        whole = g if name in SEES else src  # of these the language model goes both ways
        t.check(f"{name} back to a folder", bad or verify(whole, hf, ROUNDED.get(name, 0)))
        # transformers wants them so
        kind = {k: type(v) for k, v in json.load(open(os.path.join(hf, "config.json"))).items()}
        t.check(f"{name} reals", None if {kind.get(k, float) for k in (
            "routed_scaling_factor", "rms_norm_eps", "rope_theta")} == {float} else f"{kind}")
        raw = [logits(m, os.path.join(tmp, "l.f32")) for m in (src, g, hf)]
        wrong = next((r for r in raw if isinstance(r, str)), None)
        for i in (1, 2):
            d = 0 if wrong else same_logits(raw[0], raw[i])
            t.check(f"{name} logits {i}", wrong or (f"differ by {d}" if d > 1e-4 else None))
        guesses(t, name, (src, g, hf), tmp)
        ids = [e2e.run([S, "tokenize", "-m", m],
                       stdin="Hello, Welt 1234! don't 北京\n\n x".encode())[1]
               for m in (src, g, hf)]
        t.check(f"{name} tokens", None if ids[0] and ids[0] == ids[1] == ids[2] else f"{ids}")
        shutil.rmtree(hf, ignore_errors=True)


def gguf_first(t, tmp):
    """GGUF -> folder -> GGUF, of a family whose published GGUF files come first."""
    for name in ("q_gpt_oss",):
        src, hf, g = f"{TINY}/{name}.gguf", f"{tmp}/{name}", f"{tmp}/{name}.back.gguf"
        _, bad = quantize(src, hf, "--weights", "f32")
        t.check(f"{name} to a folder", bad or verify(src, hf, 0) or verify(hf, src, 0))
        _, bad = quantize(hf, g, "--weights", "f32")
        t.check(f"{name} back to GGUF", bad or verify(src, g, 0))
        raw = [logits(m, f"{tmp}/l.f32") for m in (src, hf, g)]
        wrong = next((r for r in raw if isinstance(r, str)), None)
        for i in (1, 2):
            d = 0 if wrong else same_logits(raw[0], raw[i])
            t.check(f"{name} logits {i}", wrong or (f"differ by {d}" if d > 1e-5 else None))
        for typ in ("bf16", "mxfp4", "int8", "nvfp4", "awq", "fp8"):
            dst = f"{tmp}/{name}.{typ}"
            _, bad = quantize(src, dst, "--weights", typ)
            t.check(f"{name} as {typ}", bad or verify(src, dst, FOLDER[typ]))
            t.check(f"{name} as {typ} runs",
                    e2e.run([S, "run", "-m", dst, "--ids", IDS, "-n", "3", "-q"])[0])


def fuse(path):
    """The MTP layer's experts in one tensor of each part, as transformers has them in memory."""
    with open(path, "rb") as f:
        head, data = json.loads(f.read(struct.unpack("<Q", f.read(8))[0])), f.read()
    meta = head.pop("__metadata__", None)
    parts = {n: (h["dtype"], h["shape"], data[slice(*h["data_offsets"])]) for n, h in head.items()}
    p = "mtp.layers.0.mlp.experts."
    n = 1 + max(int(k[len(p):].split(".")[0]) for k in parts if k.startswith(p))
    for new, names in (("gate_up_proj", ("gate_proj", "up_proj")), ("down_proj", ("down_proj",))):
        for tail, end in ((".weight", ""), (".weight_scale_inv", "_scale_inv")):
            each = [parts.pop(f"{p}{e}.{a}{tail}") for e in range(n) for a in names]
            rows, cols = each[0][1]
            parts[p + new + end] = (each[0][0], [n, rows * len(names), cols],
                                    b"".join(x[2] for x in each))
    out, at = {"__metadata__": meta} if meta else {}, 0
    for k, (dtype, shape, b) in parts.items():
        out[k] = dict(dtype=dtype, shape=shape, data_offsets=[at, at + len(b)])
        at += len(b)
    raw = json.dumps(out).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(raw)) + raw + b"".join(x[2] for x in parts.values()))


def guessing_types(t, tmp):
    """An MTP layer of another name in folders: in codes like the others, of each kind, or plain
    beside them. What is written is what is computed; what is said to be plain is."""
    for name in ("qwen3_next", "qwen3_5_moe", "qwen3_5"):
        src, whole = f"{TINY}/{name}", {}
        for typ in ("fp8", "int8", "nvfp4", "mxfp4"):
            dst = f"{tmp}/{name}.{typ}"
            _, bad = quantize(src, dst, "--weights", typ)
            t.check(f"{name} as {typ}", bad or verify(src, dst, FOLDER[typ]))
            _, bad = quantize(dst, dst + ".f32", "--weights", "f32")
            t.check(f"{name} as {typ} read", bad or verify(dst, dst + ".f32", 0))
            _, bad = quantize(dst, dst + ".gguf", "--weights", "f32")
            t.check(f"{name} as {typ} to GGUF", bad)
            guesses(t, name, (dst, dst + ".f32", dst + ".gguf"), tmp, f"MTP of {typ}")
            with open(f"{dst}/model.safetensors", "rb") as f:
                head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
            whole[typ] = {n: h["dtype"] for n, h in head.items() if n.startswith("mtp.")}
        codes = [n for n, d in whole["fp8"].items() if d == "F8_E4M3"]
        t.check(f"{name} codes", None if any("q_proj" in n for n in codes) and "mtp.fc.weight"
                not in codes else f"{codes}")
        dst = f"{tmp}/{name}.plain"
        _, bad = quantize(src, dst, "--weights", "fp8", "--keep", r"^mtp[.]")
        t.check(f"{name} plain MTP", bad or verify(src, dst, FOLDER["fp8"]))
        kept = json.load(open(f"{dst}/config.json"))["quantization_config"]
        t.check(f"{name} plain MTP said", None if "mtp.layers.0.self_attn.q_proj" in
                kept["modules_to_not_convert"] else f"{kept}")
        _, bad = quantize(dst, dst + ".f32", "--weights", "f32")
        t.check(f"{name} plain MTP read", bad)
        guesses(t, name, (dst, dst + ".f32"), tmp, "plain MTP")
    one = f"{tmp}/qwen3_5_moe.fp8"
    shutil.copytree(one, one + ".fused")
    fuse(one + ".fused/model.safetensors")
    t.check("fused MTP", verify(one, one + ".fused", 0) or verify(one + ".fused", one, 0))
    guesses(t, "qwen3_5_moe", (one, one + ".fused"), tmp, "fused MTP")


def types(t, tmp):
    src = os.path.join(TINY, "q_all.gguf")  # widths of 256: every type fits
    for typ, tol in GGUF.items():
        dst = os.path.join(tmp, "t.gguf")
        r, bad = quantize(src, dst, "--weights", typ, "--embed", typ, "--head", typ, "--force")
        t.check(f"gguf {typ}", bad or verify(src, dst, tol))
        if not bad:
            row = [c for c in r["classes"] if c["class"] == "attention" and c["to"] == typ]
            t.check(f"gguf {typ} table", None if row and row[0]["error"] <= tol else f"{r}")
            t.check(f"gguf {typ} runs",
                    e2e.run([S, "run", "-m", dst, "--ids", IDS, "-n", "3", "-q"])[0])
    for typ, tol in FOLDER.items():
        dst = os.path.join(tmp, "t")
        r, bad = quantize(src, dst, "--weights", typ, "--force")
        t.check(f"folder {typ}", bad or (None if all((c["error"] or 0) <= tol for c in r["classes"]
                                                   if c["to"] == typ) else f"{r}"))
        t.check(f"folder {typ} has its files", None if not bad and sorted(os.listdir(dst)) == [
            "config.json", "generation_config.json",
            "model.safetensors", "tokenizer.json", "tokenizer_config.json"] else "missing")
        t.check(f"folder {typ} reads", bad or verify(src, dst, tol))
        t.check(f"folder {typ} runs",
                e2e.run([S, "run", "-m", dst, "--ids", IDS, "-n", "3", "-q"])[0])
    r, bad = quantize(os.path.join(TINY, "qwen3_moe"),
                      os.path.join(tmp, "mix"), "--weights", "int8", "--experts",
                      "int4", "--keep", r"layers\.0\..*v_proj")
    t.check("mixed folder",
            bad or verify(os.path.join(TINY, "qwen3_moe"), os.path.join(tmp, "mix"), 0.17))
    for name in ("minimax_m2", "gpt_oss", "gpt_oss_mxfp4", "kimi_k25", "glm4_moe",
                 "glm4_moe_lite"):
        src, dst = os.path.join(TINY, name), os.path.join(tmp, "mix." + name)
        _, bad = quantize(src, dst, "--weights", "int8", "--experts", "int4")
        t.check(f"mixed folder of {name}", bad or verify(src, dst, 0.17))
        plain = dst + ".f32"  # what is written is what is computed
        _, bad = quantize(dst, plain, "--weights", "f32")
        raw = [logits(m, os.path.join(tmp, "l.f32")) for m in (dst, plain)]
        bad = bad or next((r for r in raw if isinstance(r, str)), None)
        d = 0 if bad else same_logits(*raw)
        t.check(f"mixed folder of {name} runs", bad or (f"differs by {d}" if d > 1e-5 else None))
    q = json.load(open(os.path.join(tmp, "mix", "config.json")))["quantization_config"]
    t.check("mixed groups", None if len(q["config_groups"]) == 2
            and "model.layers.0.self_attn.v_proj" in
            q["ignore"] else f"{q}")


def wide_ids(t, tmp):
    """Numbers of experts have 4 bytes in GGUF: one that needs more is refused, and stays in a
    folder."""
    src, dst = os.path.join(TINY, "deepseek_v4_mtp"), os.path.join(tmp, "wide_ids")
    shutil.copytree(src, dst)
    path, name = os.path.join(dst, "model.safetensors"), "layers.0.ffn.gate.tid2eid"
    with open(path, "r+b") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        at = json.loads(f.read(n))[name]["data_offsets"][0]
        f.seek(8 + n + at + 8 * 7)
        f.write(struct.pack("<q", (1 << 32) + 1))
    _, bad = quantize(dst, dst + ".gguf", "--weights", "f32")
    t.check("an id of 33 bits", refused(bad, f"tensor {name}: number 7 is 4294967297") or
            (None if "wide_ids" in bad else f"no path: {bad}"))
    _, bad = quantize(dst, dst + ".f32", "--weights", "f32")
    t.check("an id of 33 bits in a folder", bad)


def scales_of_one_product(t, tmp):
    """Engines multiply q, k and v as one matrix, and gate and up: their NVFP4 matrices have one
    second scale."""
    for arch, sets in (("qwen3_moe", ("self_attn.{q,k,v}_proj", "mlp.experts.1.{gate,up}_proj")),
                       ("deepseek_v3", ("self_attn.{q_a_proj,kv_a_proj_with_mqa}",
                                        "mlp.shared_experts.{gate,up}_proj"))):
        dst = os.path.join(tmp, "one" + arch)
        _, bad = quantize(os.path.join(TINY, arch), dst, "--weights", "nvfp4")
        if bad:
            return t.check(f"nvfp4 of {arch}", bad)
        raw = open(os.path.join(dst, "model.safetensors"), "rb").read()
        n = struct.unpack_from("<Q", raw)[0]
        head = json.loads(raw[8:8 + n])

        def scale(layer, module):
            return struct.unpack_from("<f", raw, 8 + n + head[
                f"model.layers.{layer}.{module}.weight_global_scale"]["data_offsets"][0])[0]

        for one in sets:
            first, rest = one.split("{")
            each, last = rest.split("}")
            got = [scale(1, first + e + last) for e in each.split(",")]
            t.check(f"{arch} {one}", None if len(set(got)) == 1 else f"{got}")
        t.check(f"{arch} others", None if scale(1, "self_attn.o_proj")
                != scale(1, sets[1].replace("{gate,up}", "up")) else "all the same")
        t.check(f"{arch} reads", verify(os.path.join(TINY, arch), dst, 0.11))


def scales_of_others(t, tmp):
    """llama.cpp refuses NVFP4 files with scales that it does not look for: of MLA's own matrices
    and of MTP layers."""
    src, dst = os.path.join(e2e.ROOT, "models", "demo", "demo.gguf"), os.path.join(tmp, "s.gguf")
    _, bad = quantize(src, dst, "--weights", "nvfp4", "--embed", "nvfp4")
    if bad:
        return t.check("nvfp4 of the demo model", bad)
    info = e2e.last_json(e2e.run([S, "inspect", dst, "--json"])[1])
    names = [x["name"] for x in info["tensors"] if x["name"].endswith(".scale")]
    known = ("attn_output", "ffn_gate", "ffn_up", "ffn_down",
             "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps", "ffn_gate_shexp", "ffn_up_shexp",
             "ffn_down_shexp")
    wrong = [n for n in names if n.split(".")[2] not in known
             or int(n.split(".")[1]) >= info["layers"]]
    t.check("nvfp4 of the demo model", None if names and not wrong else f"{wrong or names}")
    # llama.cpp's graphs of MLA models and Qwen2 multiply feed-forward matrices by no scale: it says
    # 1
    for model, heard in ((src, False), (os.path.join(TINY, "qwen2.gguf"), False),
                         (os.path.join(TINY, "qwen3_moe.gguf"), True)):
        _, bad = quantize(model, dst, "--weights", "nvfp4", "--force")
        raw, tensors = open(dst, "rb").read(), e2e.last_json(
            e2e.run([S, "inspect", dst, "--json"])[1])["tensors"]
        of = {x["name"]: struct.unpack_from("<f", raw, x["offset"])[0]
              for x in tensors if x["name"].endswith(".scale") and "ffn_" in x["name"]}
        t.check(f"scales of {os.path.basename(model)}",
                bad or (None if all((v == 1) != heard for v in of.values()) and
                                                               (of or "qwen2" in model)
                        else f"{of}"))


def shards(t, tmp):
    """A folder in several files is the same model; each file keeps to the size unless one tensor is
    larger."""
    src = os.path.join(TINY, "qwen3_moe")
    for typ, size in (("int4", 40000), ("awq", 40000), ("bf16", 100000)):
        one, many = os.path.join(tmp, "one"), os.path.join(tmp, "many")
        bad = quantize(src, one, "--weights", typ, "--force")[
            1] or quantize(src, many, "--weights", typ, "--shard", str(size), "--force")[1]
        t.check(f"shards {typ}", bad or verify(one, many, 0) or verify(many, one, 0))
        files = sorted(f for f in os.listdir(many) if f.endswith(".safetensors"))
        index = json.load(open(os.path.join(many, "model.safetensors.index.json")))
        n = len(files)
        t.check(f"shards {typ} index", None if n > 3
                and files == [f"model-{i + 1:05d}-of-{n:05d}.safetensors" for i in range(n)] and
                sorted(set(index["weight_map"].values())) == files else f"{files} {index}")
        raw = [logits(m, os.path.join(tmp, "l.f32")) for m in (one, many)]
        wrong = next((r for r in raw if isinstance(r, str)), None)
        t.check(f"shards {typ} logits", wrong or (None if raw[0] == raw[1] else "differ"))
        os.remove(os.path.join(many, files[1]))
        t.check(f"shards {typ} one missing",
                fails(["run", "-m", many, "--ids", IDS, "-n", "1"], 1, files[1]))
        os.rename(os.path.join(many, files[2]), os.path.join(many, files[1]))
        t.check(f"shards {typ} one in another's place",
                fails(["run", "-m", many, "--ids", IDS, "-n", "1"], 1, "safetensors"))


def calibrated(t, tmp):
    text = os.path.join(e2e.DATA, "english.txt")
    for name in ("q_moe.gguf", "deepseek_v3", "llama2"):
        src, out = os.path.join(TINY, name), {}
        for how in ("", "--awq"):
            dst = os.path.join(tmp, "c.gguf")
            r, bad = quantize(src, dst, "--weights",
                              "q4_0", "--calib", text, "--calib-tokens", "300", "--force",
                              *how.split())
            t.check(f"{name} calibrated {how}",
                    bad or e2e.run([S, "run", "-m", dst, "--ids", IDS, "-n", "2", "-q"])[0])
            out[how] = r
        t.check(f"{name} folds", None if out["--awq"] and out["--awq"]["folded"] > 0 else f"{out}")
    # What is folded changes nothing: norms that are stored less 1, units that no factor passes.
    for name in ("qwen3_5", "minimax_m3", "gpt_oss"):
        src, raw = os.path.join(TINY, name), []
        for how in ([], ["--awq"]):
            dst = os.path.join(tmp, "c")
            _, bad = quantize(src, dst, "--weights", "int8", "--calib", text, "--calib-tokens",
                              "300", "--force", *how)
            t.check(f"{name} as a folder {how}", bad)
            raw.append(logits(dst, os.path.join(tmp, "l.f32")))
        raw.append(logits(src, os.path.join(tmp, "l.f32")))
        wrong = next((r for r in raw if isinstance(r, str)), None)
        d = [0, 0] if wrong else [rms(raw[2], r) for r in raw[:2]]
        t.check(f"{name} folds in a folder", wrong or (
            f"{d[1]} of deviation, {d[0]} without" if d[1] > 2 * d[0] else None))
    src = os.path.join(TINY, "llama2")
    t.check("awq without text",
            fails(["quantize", src, dst, "--weights", "q4_0", "--awq"], 2, "--calib"))


def refusals(t, tmp):
    src, dst = os.path.join(TINY, "q_moe.gguf"), os.path.join(tmp, "r.gguf")
    t.check("no type", fails(["quantize", src, dst], 2, "--weights"))
    t.check("unknown type", fails(["quantize", src, dst, "--weights", "q9"], 2, "q4_0"))
    t.check("awq in gguf", fails(["quantize", src, dst, "--weights", "awq"], 2, "it takes"))
    t.check("q4_k in folder",
            fails(["quantize", src, os.path.join(tmp, "r"), "--weights", "q4_k"], 2, "it takes"))
    t.check("awq with int8",
            fails(["quantize", src, os.path.join(tmp, "r"), "--weights", "awq", "--attn", "int8"],
                                   2, "mix"))
    t.check("group of another type",
            fails(["quantize", src, dst, "--weights", "q8_0", "--group", "64"], 2, "--group 64"))
    t.check("memory below 0",
            fails(["quantize", src, dst, "--weights", "q8_0", "--memory", "-5"], 2, "--memory"))
    text = os.path.join(tmp, "bytes")
    with open(text, "wb") as f:
        f.write(b"abc\xff" * 50)
    t.check("text of bytes",
            fails(["quantize", src, dst, "--weights", "q8_0", "--calib", text], 1, text))
    t.check("text of bytes to eval", fails(["eval", "-m", src, "-f", text], 1, text))
    t.check("bad regex", fails(["quantize", src, dst, "--weights", "q8_0", "--keep", "("],
                               1, "--keep"))
    t.check("no memory", fails(["quantize", src, dst, "--weights", "q8_0", "--memory", "1000"],
                               1, "--memory"))
    t.check("no source", fails(["quantize", src + "x", dst, "--weights", "q8_0"], 1, "not found"))
    t.check("no parent folder",
            fails(["quantize", src, os.path.join(tmp, "no", "x.gguf"), "--weights", "q8_0"], 1,
                                      "No such file"))
    t.check("a name too long", fails(["quantize", src, os.path.join(tmp, "a" * 300 + ".gguf"),
                                      "--weights", "q8_0"], 1, "too long"))
    t.check("first", quantize(src, dst, "--weights", "q8_0")[1])
    t.check("no overwriting", fails(["quantize", src, dst, "--weights", "q8_0"], 1, "--force"))
    for what, at, more, word in (("a target that exists", dst, [], "--force"), (
        "no parent folder", os.path.join(tmp, "no", "x.gguf"), [], "No such file"),
                                 # all before the text is read
                                 ("a bad regex", dst + "x.gguf", ["--keep", "("], "--keep")):
        t.check(f"{what}, calibrated",
                fails(["quantize", src, at, "--weights", "q8_0", "--calib", text] + more, 1, word))
    t.check("forced", quantize(src, dst, "--weights", "q8_0", "--force")[1])
    os.mkdir(os.path.join(tmp, "mine"))
    open(os.path.join(tmp, "mine", "letter.txt"), "w").close()
    t.check("no replacing of other folders",
            fails(["quantize", src, os.path.join(tmp, "mine"), "--weights", "bf16",
                                                    "--force"], 1, "not replaced"))
    t.check("verify other models", fails(["verify", src, os.path.join(TINY, "llama2")], 1, ""))
    rc, _, err = e2e.run([S, "verify", os.path.join(TINY, "qwen3_moe.gguf"),
                          os.path.join(TINY, "qwen3.gguf"), "-q"])
    t.check("verify of another shape names the files", None
            if rc == 1 and err.count("qwen3_moe.gguf, [") == 1 and "qwen3.gguf" in err else err)
    rc, out, _ = e2e.run([S, "verify", src, dst, "--tol", "0.0001", "-q"])
    t.check("verify tells", None if rc == 1 and b"over" in out else f"{rc} {out}")


def names(t, tmp):
    """What verify reports, each tensor by a name of its own."""
    src, dst = os.path.join(TINY, "q_moe.gguf"), os.path.join(tmp, "names")
    t.check("names", quantize(src, dst, "--weights", "int8")[1])
    for a, b, stacks in ((src, dst, 0), (dst, src, 9)):
        r = e2e.last_json(e2e.run([S, "verify", a, b, "--json", "-q"])[1])
        got = [x["name"] for x in r["tensors"]]
        t.check(f"names of {os.path.basename(a)}", None if len(set(got)) == len(got) == r["same"]
                and sum("_exps." in n for n in got) == stacks
                else f"{len(got)}, {len(set(got))} different: {got[:20]}")


def not_numbers(t, tmp):
    src, bad = os.path.join(TINY, "q_all.gguf"), os.path.join(tmp, "nan.gguf")
    name = "blk.1.ffn_down.weight"  # F16
    at = next(x for x in e2e.last_json(e2e.run([S, "inspect", src, "--json"])[1])["tensors"]
              if x["name"] == name)
    for bits in (b"\x00\x7e", b"\x00\xfc"):  # NaN, -infinity
        with open(src, "rb") as f:
            data = bytearray(f.read())
        data[at["offset"] + 600:at["offset"] + 602] = bits
        with open(bad, "wb") as f:
            f.write(data)
        for dst, typ in (("n.gguf", "q4_k"), ("n.gguf", "nvfp4"), ("n", "awq"), ("n", "fp8")):
            t.check(f"no number, {typ}",
                    fails(["quantize", bad, os.path.join(tmp, dst), "--weights", typ], 1, name))


def small_disk():
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # as from a shell with ulimit -f
    resource.setrlimit(resource.RLIMIT_FSIZE, (40000, 40000))


def crashes(t, tmp):
    src = os.path.join(TINY, "q_all.gguf")
    for dst in (os.path.join(tmp, "full.gguf"), os.path.join(tmp, "full")):
        p = subprocess.run([S, "quantize", src, dst, "--weights", "bf16"],
                           capture_output=True, preexec_fn=small_disk)
        left = [f for f in os.listdir(tmp) if f.startswith("full")]
        bad = e2e.one_line_failure(p.returncode, p.stderr.decode())
        t.check(f"no space {os.path.basename(dst)}", bad or (f"left {left}" if left else None))
    demo = os.path.join(e2e.ROOT, "models", "demo", "demo.gguf")
    for i in range(8):  # killed at different times
        dst = os.path.join(tmp, "kill.gguf" if i % 2 else "kill")
        p = subprocess.Popen([S, "quantize", demo, dst, "--weights", "nvfp4", "-q"])
        time.sleep(0.01 + 0.03 * i)
        p.kill()
        ended = p.wait() == 0
        for f in os.listdir(tmp):
            if not f.startswith("kill"):
                continue
            path = os.path.join(tmp, f)
            rc = e2e.run([S, "inspect", path])[0]
            runs = rc == 0 and e2e.run([S, "run", "-m",
                                        path, "--ids", IDS, "-n", "1", "-q"])[0] == 0
            if runs and path == dst:  # it was whole
                runs = verify(demo, dst, 0.2) is not None
            t.check(f"kill {i}: {f}", f"loads, ended {ended}" if runs else None)
        # the next one takes away what the killed one left
        again = e2e.run([S, "quantize", demo, dst, "--weights", "nvfp4", "-q", "--force"])
        left = [f for f in os.listdir(tmp) if f.startswith("kill") and f != os.path.basename(dst)]
        t.check(f"kill {i}, again", f"{again}, left {left}" if again[0] or left else None)
        shutil.rmtree(dst) if os.path.isdir(dst) else os.remove(dst)


def taken_meanwhile(t, tmp):
    """The name is free at first and not when all is written."""
    demo = os.path.join(e2e.ROOT, "models", "demo", "demo.gguf")
    for dst, typ in (("late", "nvfp4"), ("late.gguf", "q4_k")):
        path = os.path.join(tmp, dst)
        p = subprocess.Popen([S, "quantize", demo, path, "--weights", typ, "-q"],
                             stderr=subprocess.PIPE, text=True)
        while p.poll() is None and not any(f.startswith(dst + ".") for f in os.listdir(tmp)):
            time.sleep(0.001)
        p.send_signal(signal.SIGSTOP)
        os.mkdir(path) if dst == "late" else open(path, "w").close()
        p.send_signal(signal.SIGCONT)
        err = p.communicate()[1]
        left = [f for f in os.listdir(tmp) if f.startswith(dst + ".") and f.endswith(".tmp")]
        kept = not os.listdir(path) if dst == "late" else os.path.getsize(path) == 0
        ok = p.returncode == 1 and "exists already" in err and kept and not left
        t.check(f"{dst} taken meanwhile",
                None if ok else f"exit {p.returncode}: {err}, kept {kept}, left {left}")


def main():
    t = e2e.Tally("quantize and verify")
    with e2e.scratch() as tmp:
        for part in (both_ways, gguf_first, guessing_types, types, wide_ids,
                     scales_of_one_product, scales_of_others, shards, calibrated, refusals,
                     names, not_numbers, crashes, taken_meanwhile):
            part(t, tmp)
    t.exit()


if __name__ == "__main__":
    main()
