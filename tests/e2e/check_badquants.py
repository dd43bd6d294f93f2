#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bad quantised folders: each is a good one of quants.py with one thing changed, and must be
refused in one line that names the tensor (or the field) and says what is wrong.

  check_badquants.py [BUILD [NAME...]]
"""
import json
import os
import struct
import sys

import e2e
import quants

Q = "model.layers.0.self_attn.o_proj"
EXP = "model.layers.0.mlp.experts.2.down_proj"
NAN16, INF_BF16, NAN32 = struct.pack("<H", 0x7e00), struct.pack(
    "<H", 0x7f80), struct.pack("<I", 0x7fc00000)


def drop(name):
    return lambda t, c, f: t.pop(name)


def put(name, dtype, shape, data):
    return lambda t, c, f: t.__setitem__(name, (dtype, shape, data))


def shape(name, fn):
    """Another shape over the same bytes."""
    def edit(t, c, f):
        d, s, b = t[name]
        t[name] = (d, fn(s), b)
    return edit


def dtype(name, new):
    def edit(t, c, f):
        d, s, b = t[name]
        t[name] = (new, s, b)
    return edit


def patch(name, at, data):
    """Other bytes at element `at` of the tensor."""
    def edit(t, c, f):
        d, s, b = t[name]
        i = at * len(data)
        t[name] = (d, s, b[:i] + data + b[i + len(data):])
    return edit


def cut(name, k=0):
    """The first half of dimension k."""
    def edit(t, c, f):
        d, s, b = t[name]
        assert k == 0
        t[name] = (d, [s[0] // 2] + s[1:], b[:len(b) // 2])
    return edit


def conf(**kw):
    return lambda t, c, f: c["quantization_config"].update(kw)


def group(**kw):
    return lambda t, c, f: c["quantization_config"][
        "config_groups"]["group_0"]["weights"].update(kw)


def group0(**kw):
    return lambda t, c, f: c["quantization_config"]["config_groups"]["group_0"].update(kw)


def whole(name, cfg):
    return lambda t, c, f: f.__setitem__(name, cfg)


def kind(name, k):
    def edit(t, c, f):
        next(iter(f.values()))[name] = k
    return edit


def unkind(name):
    return lambda t, c, f: next(iter(f.values())).pop(name)


def plain(name, rows, cols):
    return put(name + ".weight", "BF16", [rows, cols], bytes(2 * rows * cols))


def modelopt(**kw):
    return lambda t, c, f: f["hf_quant_config.json"]["quantization"].update(kw)


# (format, what is changed, edit, words that the message must have)
CASES = [
    ("awq", "no zeros", drop(Q + ".qzeros"), [Q, "its qzeros is missing"]),
    ("awq", "no scales", drop(EXP + ".scales"), [EXP, "its scales is missing"]),
    ("awq", "scales turned", shape(Q + ".scales", lambda s: s[::-1]),
     [Q + ".scales", "expected [2, 256]"]),
    ("awq", "scales half", cut(Q + ".scales"), [Q + ".scales", "expected [2, 256]"]),
    ("awq", "scales of integers", dtype(Q + ".scales", "I16"),
     [Q + ".scales", "I16", "expected F16"]),
    ("awq", "zeros half", cut(Q + ".qzeros"), [Q + ".qzeros", "expected [2, 32]"]),
    ("awq", "zeros of floats", dtype(Q + ".qzeros", "F32"), [Q + ".qzeros", "expected I32"]),
    ("awq", "NaN scale", patch(Q + ".scales", 300, NAN16), [Q, "row 44, group 1 is not finite"]),
    ("awq", "NaN scale of an expert", patch(EXP + ".scales", 3, NAN16),
     [EXP, "row 3, group 0 is not finite"]),
    ("awq", "codes of floats", dtype(Q + ".qweight", "F32"),
     [Q + ".qweight", "is F32, expected I32"]),
    ("awq", "codes flat", shape(Q + ".qweight", lambda s: [s[0] * s[1]]),
     [Q + ".qweight", "1 dimensions"]),
    ("awq", "codes half", cut(Q + ".qweight"), [Q, "256"]),
    ("awq", "group size 48", conf(group_size=48), ["groups of 48 do not divide"]),
    ("awq", "group size 0", conf(group_size=-7), ["group_size is -7"]),
    ("awq", "group size 64 with scales of 128", conf(group_size=64), [".scales", "expected [4, "]),
    ("awq", "gemv", conf(version="gemv"), ['version "gemv"', "gemm with 4 bits is"]),
    ("awq", "3 bits", conf(bits=3), ["3 bits"]),
    ("awq", "bits text", conf(bits="four"), ["config.json: bits"]),
    ("awq", "zero_point text", conf(zero_point="yes"), ["config.json: zero_point is a string"]),
    ("gptq", "sym text", conf(sym="no"), ["config.json: sym is a string"]),
    ("awq", "plain and packed", plain(Q, 256, 256), [Q, "is there twice"]),
    ("awq", "one expert of another shape", lambda t,
     c, f: (t.pop(EXP + ".qweight"), plain(EXP, 256, 96)(t, c, f)),
     [EXP, "expected [256, 128]"]),
    ("awq", "unknown method", conf(quant_method="frob"),
     ['"frob"', "awq, gptq, compressed-tensors", "tensor model.layers.", ".qweight"]),
    ("ct_int4", "compression_config a number", lambda t,
     c, f: c.update(compression_config=7, quantization_config=None),
     ["config.json: compression_config is not an object"]),
    ("awq", "method a number", conf(quant_method=7), ["config.json", "quant_method is an integer"]),
    ("gptq", "order out of range", patch(Q + ".g_idx", 7, struct.pack("<i", 2)),
     [Q + ".g_idx", "column 7 is in group 2 of 2"]),
    ("gptq", "order negative", patch(Q + ".g_idx", 255, struct.pack("<i", -1)),
     [Q + ".g_idx", "column 255 is in group -1"]),
    ("gptq", "order half", cut(Q + ".g_idx"), [Q + ".g_idx", "expected [256]"]),
    ("gptq_order", "no order", drop(Q + ".g_idx"), [Q, "g_idx is missing"]),
    ("ct_int4_order", "no order", drop(EXP + ".weight_g_idx"), [EXP, "weight_g_idx is missing"]),
    ("gptq", "no zeros", drop(Q + ".qzeros"), [Q, "qzeros"]),
    ("gptq", "2 bits", conf(bits=2), ["2 bits", "4 and 8 are"]),
    ("gptq", "marlin of old", conf(is_marlin_format=True), ['"marlin"']),
    ("ct_int4_order", "actorder true, no order", lambda t, c, f: (group(
        actorder=True)(t, c, f), t.pop(EXP + ".weight_g_idx")), [EXP, "weight_g_idx is missing"]),
    ("ct_int4_asym", "zeros of bytes out of range", put(Q + ".weight_zero_point", "I8", [
        256, 2], b"\x08" * 512), [Q + ".weight_zero_point", "outside -8 .. 7"]),
    ("ct_int4_asym", "zeros of bytes half", put(Q + ".weight_zero_point", "I8", [
        128, 2], bytes(256)), [Q + ".weight_zero_point", "expected [256, 2]"]),
    ("ct_fp8_block", "blocks no numbers", group(block_structure="128x0"), ["block_structure"]),
    ("gptq", "marlin", conf(checkpoint_format="marlin"), ['"marlin"']),
    ("gptq", "dynamic", conf(dynamic={"-:x": {}, "+:.*down": {"bits": 8}}),
     ["dynamic", "+:.*down"]),
    ("gptq", "a key that nobody knows", conf(rotate_by=90), ["rotate_by is 90", "not known"]),
    ("gptq", "rotated", conf(rotation="hadamard"), ["rotation is hadamard"]),
    ("awq", "another layout by its new name", conf(checkpoint_format="gemv"),
     ["checkpoint_format is gemv"]),
    ("fp8", "experts in four bits", conf(expert_dtype="fp4"), ["expert_dtype is fp4"]),
    ("ct_int4", "a key of weights", group(shear=2), ["group_0: shear is 2"]),
    ("modelopt_nvfp4", "zero points", modelopt(has_zero_point=True), ["has_zero_point is true"]),
    ("ascend_w8a8", "rotated", kind("optional", {"quarot": {"rotation_map": {}}}), ["optional is"]),
    ("gptq", "group size 100", conf(group_size=100), ["groups of 100 do not divide"]),
    ("ct_int4", "no shape", drop(Q + ".weight_shape"), [Q, "weight_shape is missing"]),
    ("ct_int4", "other shape", put(Q + ".weight_shape", "I64", [2], struct.pack("<2q", 256, 300)),
     [Q + ".weight_shape", "300"]),
    ("ct_int4", "huge shape", put(Q + ".weight_shape", "I64", [2], struct.pack("<2q", 256, 2**62)),
     [Q + ".weight_shape"]),
    ("ct_int4", "shape of floats", put(Q + ".weight_shape", "F32", [2], bytes(8)),
     [Q + ".weight_shape", "expected I64"]),
    ("ct_int4", "no scale", drop(Q + ".weight_scale"), [Q, "weight_scale is missing"]),
    ("ct_int4", "Inf scale", patch(Q + ".weight_scale", 9, INF_BF16),
     [Q, "row 4, group 1 is not finite"]),
    ("ct_int4", "scale flat", shape(Q + ".weight_scale", lambda s: [s[0] * s[1]]),
     [Q + ".weight_scale", "expected [256, 2]"]),
    ("ct_int4", "scale of bytes", dtype(Q + ".weight_scale", "I16"),
     [Q + ".weight_scale", "scales are F32, F16 or BF16"]),
    ("ct_int4", "asymmetric without zeros", group(symmetric=False),
     ["weight_zero_point is missing"]),
    ("ct_int4_asym", "zeros not packed", shape(Q + ".weight_zero_point", lambda s: s[::-1]),
     [Q + ".weight_zero_point", "expected [32, 2]"]),
    ("ct_int4", "unknown format", lambda t, c, f: (conf(format="frob")(t, c, f), group0(
        format="frob")(t, c, f)), ['"frob"', "pack-, int-", "tensor model.layers."]),
    ("ct_int4", "3 bits", group(num_bits=3), ["3 bits"]),
    ("ct_int4", "strategy", group(strategy="spiral"), ['"spiral"']),
    ("ct_int4", "group size 0", group(group_size=0), ["group_size is 0"]),
    ("ct_int4", "group size 96", group(group_size=96), ["groups of 96 do not divide"]),
    ("ct_int4", "targets nothing", group0(targets=["re:.*frob"]), ["does not quantise it"]),
    ("ct_int4", "ignored but packed", conf(ignore=["lm_head", Q]), [Q, "does not quantise it"]),
    ("ct_int4", "bad expression", conf(ignore=["re:(["]), ["ignore"]),
    ("ct_int4", "ignore no list", conf(ignore=7), ["ignore"]),
    ("ct_int4", "target no text", group0(targets=[7]), ["group_0"]),
    ("ct_int4", "no groups", conf(config_groups=3), ["config_groups"]),
    ("ct_int4", "plain and packed", plain(Q, 256, 256), [Q, "is there twice"]),
    ("ct_int4", "transform", conf(transform_config=dict(config_groups={})), ["transform_config"]),
    ("ct_int4", "sparse", conf(sparsity_config=dict(format="sparse-24-bitmask")),
     ["sparse-24-bitmask"]),
    ("ct_int4", "as nvfp4", lambda t, c, f: (conf(format="nvfp4-pack-quantized")(t, c, f),
                                             group0(format="nvfp4-pack-quantized")(t, c, f),
                                             group(type="float", strategy="tensor_group",
                                                   group_size=16)(t, c, f)),
     ["expected U8"]),
    ("ct_int4", "as int8", lambda t, c,
     f: (conf(format="int-quantized")(t, c, f), group0(format="int-quantized")(t, c, f)),
     ["does not fit int-quantized"]),
    ("ct_w8a8", "no scale", drop(Q + ".weight_scale"), [Q, "weight_scale is missing"]),
    ("ct_w8a8", "scale half", cut(Q + ".weight_scale"), [Q + ".weight_scale", "expected [256, 1]"]),
    ("ct_w8a8", "NaN scale", patch(Q + ".weight_scale", 5, NAN32),
     [Q, "row 5, group 0 is not finite"]),
    ("ct_w8a8", "unsigned", dtype(Q + ".weight", "U8"), [Q, "expected I8"]),
    ("ct_w8a8_asym", "no zeros", drop(Q + ".weight_zero_point"),
     [Q, "weight_zero_point is missing"]),
    ("ct_w4a8", "code out of range", patch(Q + ".weight", 256 * 3 + 1, b"\x09"),
     [Q, "row 3 has a number outside -8 .. 7"]),
    ("ct_fp8_chan", "no scale", drop(Q + ".weight_scale"), [Q, "weight_scale is missing"]),
    ("ct_fp8_chan", "NaN scale", patch(Q + ".weight_scale", 5, INF_BF16), [Q, "row 5"]),
    ("ct_fp8_chan", "scale turned", shape(Q + ".weight_scale", lambda s: s[::-1]),
     [Q + ".weight_scale", "expected [256, 1]"]),
    ("ct_fp8_block", "scale half", cut(Q + ".weight_scale"),
     [Q + ".weight_scale", "is not [2, 2]"]),
    ("ct_fp8_block", "no blocks", group(block_structure=None), ["block_structure"]),
    ("ct_nvfp4", "NaN scale", patch(Q + ".weight_scale", 17, b"\x7f"),
     [Q, "row 1, group 1 is not finite"]),
    ("ct_nvfp4", "negative scale", patch(Q + ".weight_scale", 17, b"\xb8"),
     [Q, "row 1, group 1 is negative"]),
    ("ct_nvfp4", "no global", drop(Q + ".weight_global_scale"),
     [Q, "weight_global_scale is missing"]),
    ("ct_nvfp4", "global zero", put(Q + ".weight_global_scale", "F32", [1], bytes(4)),
     [Q + ".weight_global_scale", "number over 0"]),
    ("ct_nvfp4", "global NaN", put(Q + ".weight_global_scale", "F32", [1], NAN32),
     [Q + ".weight_global_scale", "number over 0"]),
    ("ct_nvfp4", "global infinite",
     put(Q + ".weight_global_scale", "F32", [1], struct.pack("<f", float("inf"))),
     [Q + ".weight_global_scale", "number over 0"]),
    ("ct_nvfp4", "two globals", put(Q + ".weight_global_scale", "F32", [2], bytes(8)),
     [Q + ".weight_global_scale", "expected [1]"]),
    ("ct_nvfp4", "scale of bytes", dtype(Q + ".weight_scale", "U8"),
     [Q + ".weight_scale", "expected F8_E4M3"]),
    ("ct_mxfp4", "NaN scale", patch(Q + ".weight_scale", 9, b"\xff"),
     [Q, "row 1, group 1 is not finite"]),
    ("ct_mxfp4", "scale half", cut(Q + ".weight_scale"),
     [Q + ".weight_scale", "expected [256, 8]"]),
    ("ct_mxfp4", "group size 16", group(group_size=16), ["group_size 16"]),
    ("modelopt_nvfp4", "no second scale", drop(Q + ".weight_scale_2"),
     [Q, "weight_scale_2 is missing"]),
    ("modelopt_nvfp4", "NaN second scale", put(Q + ".weight_scale_2", "F32", [], NAN32),
     [Q, "not finite"]),
    ("modelopt_nvfp4", "negative second scale",
     put(Q + ".weight_scale_2", "F32", [], struct.pack("<f", -1)), [Q, "negative"]),
    ("modelopt_nvfp4", "smoothing", put(Q + ".pre_quant_scale", "BF16", [256], bytes(512)),
     [Q, "pre_quant_scale"]),
    ("modelopt_nvfp4", "algorithm", modelopt(quant_algo="W4A8_AWQ"), ["W4A8_AWQ", "NVFP4, FP8"]),
    ("modelopt_nvfp4", "group size 32", modelopt(group_size=32), ["group_size is 32"]),
    ("modelopt_nvfp4", "scale turned", shape(Q + ".weight_scale", lambda s: s[::-1]),
     [Q + ".weight_scale", "expected [256, 16]"]),
    ("modelopt_fp8", "no rows", put(Q + ".weight", "F8_E4M3", [0, 256], b""),
     [Q, "0 x 256 is no matrix"]),
    ("modelopt_fp8", "no columns", put(EXP + ".weight", "F8_E4M3", [256, 0], b""),
     [EXP, "256 x 0 is no matrix"]),
    ("modelopt_fp8", "two scales", put(Q + ".weight_scale", "F32", [2], bytes(8)),
     [Q + ".weight_scale", "expected [256]"]),
    ("fp8", "NaN scale", patch(Q + ".weight_scale_inv", 3, NAN32), [Q, "not finite"]),
    ("fp8", "no configuration", lambda t, c, f: c.pop("quantization_config"),
     ["q_proj.weight is F8_E4M3 with scales", "q_proj.weight_scale_inv", "no quantization_config"]),
    ("fp8", "e5m2", conf(fmt="e5m2"), ["e5m2"]),
    ("fp8", "block text", conf(weight_block_size="128"), ["weight_block_size"]),
    ("ascend_w8a8", "FLOAT but integers", kind(Q + ".weight", "FLOAT"), [Q, "I8", "FLOAT"]),
    ("ascend_w8a8", "not described", unkind(Q + ".weight"), [Q, "nothing of it"]),
    ("ascend_w8a8", "unknown type", kind(Q + ".weight", "W4A4_FLATQUANT_DYNAMIC"),
     [Q, "W4A4_FLATQUANT_DYNAMIC", "W8A8_MIX"]),
    ("ascend_w8a8", "described but plain", kind("lm_head.weight", "W8A8_DYNAMIC"),
     ["lm_head.weight", "BF16"]),
    ("ascend_w8a8", "no deq_scale", drop(Q + ".deq_scale"), [Q, "deq_scale is missing"]),
    ("ascend_w8a8", "no quant_bias", drop(Q + ".quant_bias"), [Q, "quant_bias is missing"]),
    ("ascend_w8a8", "quant_bias half", cut(Q + ".quant_bias"),
     [Q + ".quant_bias", "expected [256]"]),
    ("ascend_w8a8", "input_scale 0", put(Q + ".input_scale", "F32", [1], bytes(4)),
     [Q, "input_scale is 0"]),
    ("ascend_w8a8", "input_offset half", put(Q + ".input_offset", "BF16", [1], b"\x00\x3f"),
     [Q, "input_offset is 0.5"]),
    ("ascend_w8a8", "NaN deq_scale", patch(Q + ".deq_scale", 8, NAN32), [Q, "row 8"]),
    ("ascend_w8a8_bits", "NaN deq_scale", patch(Q + ".deq_scale", 8, NAN32 + bytes(4)),
     [Q, "row 8"]),
    ("ascend_w8a8", "second scales", put(EXP + ".weight_scale_second", "F32", [
        256, 1], bytes(1024)), [EXP + ".weight_scale_second", "W4A8_DYNAMIC"]),
    ("ascend_w8a8", "offset", put(EXP + ".weight_offset", "F32", [256, 1],
                                  struct.pack("<256f", *[1.0] * 256)), [EXP, "weight_offset"]),
    ("ascend_w8a8", "norm bias", put("model.norm.bias", "BF16", [256], b"\x80\x3f" * 256),
     ["model.norm.bias", "bias"]),
    ("ascend_w4a8", "scale half", cut(EXP + ".weight_scale"), [EXP, "row 0 has a number outside"]),
    ("ascend_w4a8", "scale third", put(EXP + ".weight_scale", "F32", [85, 1], bytes(340)),
     [EXP, "neither the same nor twice"]),
    ("ascend_w4a8_old", "code out of range", patch(EXP + ".weight", 130, b"\x08"),
     [EXP, "row 1 has a number outside"]),
    ("ascend_w4a8_second", "groups do not divide", put(EXP + ".weight_scale_second", "F32", [
        256, 3], bytes(3072)), [EXP, "3 groups do not divide"]),
]
# where an architecture has no place for it
NO_BIAS = ("ascend_w8a8", "bias in MLA", patch(Q + ".quant_bias", 4, struct.pack("<i", 123456789)),
           [Q, "no place"])


def pick(files, want):
    """A safetensors file of the tensors that want(name) takes, and their names."""
    b = files["model.safetensors"]
    n = int.from_bytes(b[:8], "little")
    head, body, m = json.loads(b[8:8 + n]), b[8 + n:], quants.Maker("shard")
    for name, h in head.items():
        if want(name):
            m.put(name, h["dtype"], h["shape"], body[slice(*h["data_offsets"])])
    return m.file(), list(m.t)


def shards(first, second, cut=lambda n: n.startswith("model.layers.1."), index=None):
    """A folder in two files: first's tensors that cut() leaves, second's that it takes."""
    a, b = quants.build(first), quants.build(second)
    one, names1 = pick(a, lambda n: not cut(n))
    two, names2 = pick(b, cut)
    where = dict({n: "model-00001-of-00002.safetensors" for n in names1},
                 **{n: "model-00002-of-00002.safetensors" for n in names2})
    if index:
        index(where)
    return {"config.json": a["config.json"], "model-00001-of-00002.safetensors": one,
            "model-00002-of-00002.safetensors": two,
            "model.safetensors.index.json":
                json.dumps(dict(metadata={}, weight_map=where)).encode()}


L1 = "model.layers.1."
# (what, files, words that the message must have; None: it runs)
SHARDS = [
    ("codes and scales in two files",
     lambda: shards("ct_int4.qwen3_moe", "ct_int4.qwen3_moe", lambda n: n.endswith("scale")), None),
    ("of AWQ and GPTQ", lambda: shards("awq.qwen3_moe", "gptq.qwen3_moe"),
     [L1, "scales is [2, 256]"]),
    ("of compressed-tensors and AWQ", lambda: shards("ct_int4.qwen3_moe", "awq.qwen3_moe"), [L1]),
    ("of groups of 128 and 32", lambda: shards("ct_int4.qwen3_moe", "ct_int4_g32.qwen3_moe"),
     [L1, "weight_scale", "expected"]),
    ("of FP8 blocks and NVFP4", lambda: shards("fp8.qwen3_moe", "ct_nvfp4.qwen3_moe"), [L1]),
    ("of symmetric and asymmetric groups",
     lambda: shards("ct_int4.qwen3_moe", "ct_int4_asym.qwen3_moe"),
     [L1, "weight_zero_point is not zero", "symmetric"]),
    ("of symmetric and asymmetric rows",
     lambda: shards("ct_w8a8.qwen3_moe", "ct_w8a8_asym.qwen3_moe"),
     [L1, "weight_zero_point is not zero", "symmetric"]),
    ("of AWQ and FP8 blocks", lambda: shards("awq.qwen3_moe", "fp8.qwen3_moe"),
     [L1, "F8_E4M3 with scales", "stored by awq"]),
    ("of GPTQ and FP8 of channels", lambda: shards("gptq.qwen3_moe", "ct_fp8_chan.qwen3_moe"),
     [L1, "F8_E4M3 with scales", "stored by gptq"]),
    ("without the second file", lambda: {
        k: v for k, v in shards("awq.qwen3_moe", "awq.qwen3_moe").items() if "00002-of" not in k},
     ["model-00002-of-00002.safetensors"]),
    ("indexed in the wrong file", lambda: shards("awq.qwen3_moe", "awq.qwen3_moe",
                                                 index=lambda w: w.update(
                                                     {Q + ".scales":
                                                          "model-00002-of-00002.safetensors"})),
     [Q + ".scales"]),
]


def refuses(exe, d, tmp, words):
    code, _, err = e2e.run([exe, "eval", "-m", d, "--ids-file",
                            tmp + "/ids", "--dump-logits", tmp + "/z"], timeout=60,
                           mem=4 << 30, cpu=30)
    if code == 0:
        return "was run"
    bad = e2e.one_line_failure(code, err)
    if bad:
        return bad
    missing = [w for w in words if w not in err]
    return f"no {missing} in: {err.strip()}" if missing else None


def fill(d, files):
    for f in os.listdir(d):
        os.remove(f"{d}/{f}")
    for f, b in files.items():
        open(f"{d}/{f}", "wb").write(b)


def main():
    exe, only, tally = e2e.sluice(), sys.argv[2:], e2e.Tally("bad quantised folders")
    todo = [(fmt + ".qwen3_moe", *rest) for fmt,
            *rest in CASES] + [(NO_BIAS[0] + ".deepseek_v3", *NO_BIAS[1:])]
    with e2e.scratch() as tmp:
        open(tmp + "/ids", "w").write("3,4,5\n")
        os.makedirs(tmp + "/m")
        for name, what, edit, words in todo:
            if only and not any(o in f"{name} {what}" for o in only):
                continue
            fill(tmp + "/m", quants.build(name, edit))
            tally.check(f"{name} {what}", refuses(exe, tmp + "/m", tmp, words))
            # numbers that nothing may be made of
            if any(w in x for w in ("finite", "negative", "a number outside") for x in words):
                code, _, err = e2e.run([exe, "quantize", tmp + "/m",
                                        tmp + "/q.gguf", "--weights", "q8_0", "-q"], timeout=60)
                tally.check(f"{name} {what} quantize", e2e.one_line_failure(code, err))
            code, _, err = e2e.run([exe, "inspect", tmp + "/m"], timeout=60)
            tally.check(f"{name} {what} inspect", e2e.one_line_failure(code, err) if code else None)
        for what, make, words in SHARDS:
            if only and not any(o in "shards " + what for o in only):
                continue
            fill(tmp + "/m", make())
            bad = refuses(exe, tmp + "/m", tmp, words or [])
            tally.check("shards " + what, bad if words else None if bad == "was run" else bad)
    tally.exit()


if __name__ == "__main__":
    main()
