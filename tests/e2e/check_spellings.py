#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same model in two spellings, as different tools write it: what `verify` says of both, their
logits, and what `quantize` makes of the second.

  check_spellings.py [BUILD [NAME...]]
"""
import array
import os
import sys

import e2e
import quants

S = e2e.sluice()
IDS = "5,6,7,8,9,20,30,40,50,60"


def fused(t, c, files):
    """Experts in one tensor of a layer, as transformers has them in memory."""
    for layer in range(c["num_hidden_layers"] + 1):
        p = f"model.layers.{layer}.mlp.experts."
        for part, names in (("gate_up_proj", ("gate_proj", "up_proj")),
                            ("down_proj", ("down_proj",))):
            for tail, new in ((".weight", ""), (".weight_scale_inv", "_scale_inv")):
                if f"{p}0.{names[0]}{tail}" not in t:
                    continue
                all_of = [t.pop(f"{p}{e}.{n}{tail}") for e in range(quants.E) for n in names]
                dtype, (rows, cols), _ = all_of[0]
                t[p + part + new] = (dtype, [quants.E, rows * len(names), cols],
                                     b"".join(d for _, _, d in all_of))


def scale_inv(t, c, files):
    """transformers' FP8 without blocks: weight_scale_inv of one value, and an activation_scale."""
    c["quantization_config"]["weight_block_size"] = None
    for n in [n for n in t if n.endswith(".weight_scale")]:
        t[n + "_inv"] = ("F32", [], t.pop(n)[2])
        t[n.removesuffix("weight_scale") + "activation_scale"] = ("F32", [], quants.f32([0.01]))


def as_dtype(tail, dtype):
    """E8M0 scales have a dtype of their own in some files, and are U8 in others."""
    def edit(t, c, files):
        for n in [n for n in t if n.endswith(tail)]:
            t[n] = (dtype, *t[n][1:])
    return edit


def kv_scales(t, c, files):
    """Scales of a quantised cache, as three tools spell them."""
    for layer in range(c["num_hidden_layers"]):
        p = f"model.layers.{layer}.self_attn."
        for n, shape in (("k_scale", [1]), ("v_scale", [1]), ("k_proj.k_scale", []),
                         ("v_proj.v_scale", []), ("k_proj.output_scale", [1]),
                         ("v_proj.output_scale", [1]),
                         ("attn.k_scale", [1]), ("attn.v_scale", [1]), ("q_scale", [1])):
            t[p + n] = ("F32", shape, quants.f32([0.02]))


def no_zeros(stored):
    """Zero points of symmetric weights: none, spelt out."""
    def edit(t, c, files):
        for n in [n for n in t if n.endswith("weight_scale")]:
            rows, groups = t[n][1]
            shape = [rows // 8, groups] if stored == b"\x88" else [rows, groups]
            t[n.removesuffix("scale") + "zero_point"] = ("I32" if stored == b"\x88" else "I8",
                                                         shape, stored * (rows * groups // (
                                                             2 if stored == b"\x88" else 1)))
    return edit


def old_key(t, c, files):
    """compressed-tensors of 2024."""
    c["compression_config"] = dict(c.pop("quantization_config"), quant_method="compressed_tensors")


def biases(value):
    """Biases of MLP matrices, which old GPTQ files are full of: zeros are nothing, others have no
    place."""
    def edit(t, c, files):
        for n in [n for n in t if n.endswith("proj.qweight") and ".mlp." in n]:
            rows = t[n][1][1]
            t[n.removesuffix("qweight") + "bias"] = ("F16", [rows], quants.f16([value] * rows))
    return edit


def conf(**kw):
    return lambda t, c, files: c["quantization_config"].update(kw)


def autoround(layout):
    """AutoRound's configuration over the same tensors."""
    def edit(t, c, files):
        q = c["quantization_config"]
        c["quantization_config"] = dict(quant_method="auto-round", bits=4, group_size=q[
            "group_size"], sym=q.get("sym", False), data_type="int",
                                        autoround_version="0.5.1", batch_size=8,
                                        iters=200, block_name_to_quantize="model.layers")
        if layout:
            c["quantization_config"]["packing_format"] = layout
    return edit


def weights(**kw):
    return lambda t, c, files: c["quantization_config"][
        "config_groups"]["group_0"]["weights"].update(kw)


def shout(t, c, files):
    """Names in capitals, where tools compare without regard to them."""
    q = c["quantization_config"]
    q.update({k: q[k].upper() for k in ("quant_method", "version", "checkpoint_format",
                                        "quant_algo") if isinstance(q.get(k), str)})
    for g in q.get("config_groups", {}).values():
        g["targets"] = [n.upper() for n in g["targets"]]
        g["weights"].update({k: g["weights"][k].upper() for k in ("type", "strategy", "actorder")
                             if isinstance(g["weights"][k], str)})


def zeros_of(byte):
    """Other bytes in all of GPTQ's zero points."""
    def edit(t, c, files):
        for n in [n for n in t if n.endswith(".qzeros")]:
            dtype, shape, data = t[n]
            t[n] = (dtype, shape, bytes([byte]) * len(data))
    return edit


def nibbles(data, rows, cols, along_rows):
    """int4 of 32-bit words, packed along the rows or the columns, one a byte."""
    out = bytearray(rows * cols)
    for i, b in enumerate(data):
        for k in (2 * i, 2 * i + 1):
            word, j = divmod(k, 8)
            at = (word // cols * 8 + j) * cols + word % cols if along_rows else k
            out[at] = ((b >> 4 * (k & 1) & 15) - 8) & 255
    return bytes(out)


def byte_zeros(t, c, files):
    """Zero points of packed codes as tools of 2024 wrote them."""
    for n in [n for n in t if n.endswith("weight_zero_point")]:
        _, (words, groups), data = t[n]
        t[n] = ("I8", [words * 8, groups], nibbles(data, words * 8, groups, True))


def byte_codes(t, c, files):
    """The same int4 in int-quantized's way: one a byte."""
    byte_zeros(t, c, files)
    for n in [n for n in t if n.endswith("weight_packed")]:
        (rows, words), data = t[n][1], t.pop(n)[2]
        t[n.removesuffix("_packed")] = ("I8", [rows, words * 8],
                                        nibbles(data, rows, words * 8, False))
    c["quantization_config"]["format"] = c["quantization_config"][
        "config_groups"]["group_0"]["format"] = "int-quantized"


def one_for_all(edit):
    """W8A8 with the same scale and zero point in every row; edit: one of the tensor."""
    def writer(m, name, rows, cols, gain):
        m.put(name + ".weight", "I8", [rows, cols], m.some(rows * cols))
        n = 1 if edit else rows
        m.put(name + ".weight_scale", "F32", [1] if edit else [rows, 1],
              quants.f32([gain / cols**.5 / quants.STD8] * n))
        m.put(name + ".weight_zero_point", "I8", [1] if edit else [rows, 1], b"\x03" * n)
    c = dict(quants.qwen(), quantization_config=quants.ct_config(
        "int-quantized", 8, "tensor" if edit else "channel", sym=False))
    return quants.build_of("one.qwen3_moe", c, writer, {})


def in_text_config(t, c, files):
    """As models have it whose language part is one of several."""
    c["text_config"] = dict(quantization_config=c.pop("quantization_config"))


def activations_alone(t, c, files):
    """A group that quantises no weights."""
    c["quantization_config"]["config_groups"]["group_1"] = dict(
        targets=["re:.*self_attn"], weights=None, input_activations=dict(num_bits=8, type="float"))


def of_its_own(name, **kw):
    """The configuration in a file of its own; in config.json something that says no method."""
    def edit(t, c, files):
        q = c.pop("quantization_config")
        files[name] = {k: v for k, v in q.items() if k != "quant_method"}
        if kw:
            c["quantization_config"] = kw
    return edit


BF16 = (lambda edit: quants.build_of("bf16.qwen3_moe", quants.qwen(), quants.bf16_matrix, {}, edit))
BF16_V3 = (lambda edit: quants.build_of("bf16.deepseek_v3",
                                        quants.deepseek(), quants.bf16_matrix, {}, edit))


def of(name):
    return lambda edit: quants.build(name, edit)


CASES = {
    "fused experts": (BF16, fused),
    "fused experts deepseek_v3": (BF16_V3, fused),
    "fused experts fp8": (of("fp8.qwen3_moe"), fused),
    "gptq with biases of zero": (of("gptq.qwen3_moe"), biases(0)),
    "packed zero points of symmetric weights": (of("ct_int4.qwen3_moe"), no_zeros(b"\x88")),
    "zero points of symmetric weights": (of("ct_w8a8.qwen3_moe"), no_zeros(b"\0")),
    "zero points that zero_point denies": (
        of("awq.qwen3_moe"), lambda t, c, files: c["quantization_config"].update(zero_point=False)),
    "compression_config": (of("ct_int4.qwen3_moe"), old_key),
    "quantization_config in text_config": (of("ct_int4.qwen3_moe"), in_text_config),
    "fp8 of tensors": (of("fp8_tensor.qwen3_moe"), scale_inv),
    "ue8m0 scales as U8": (of("fp8_e8m0.qwen3_moe"), as_dtype(".weight_scale_inv", "U8")),
    "mxfp4 scales as F8_E8M0": (of("ct_mxfp4.qwen3_moe"), as_dtype(".weight_scale", "F8_E8M0")),
    "capitals awq": (of("awq.qwen3_moe"), shout),
    "capitals gptq": (of("gptq_order.qwen3_moe"), shout),
    "capitals fp8": (of("fp8.qwen3_moe"), shout),
    "capitals compressed-tensors": (of("ct_int4_order.qwen3_moe"), shout),
    "capitals modelopt": (of("modelopt_fp8.qwen3_moe"), shout),
    "llm-awq's file": (of("awq.qwen3_moe"), of_its_own("quant_config.json")),
    "modelopt without a method": (of("modelopt_nvfp4_config.qwen3_moe"), of_its_own(
        "hf_quant_config.json", producer=dict(name="modelopt"))),
    "modelopt of weights alone": (of("modelopt_nvfp4_config.qwen3_moe"),
                                  conf(quant_algo="W4A16_NVFP4")),
    "ascend in config.json": (of("ascend_w8a8.qwen3_moe"), lambda t,
                              c, files: c.update(quantization_config=dict(quant_method="ascend"))),
    "gptq of no form": (of("gptq.qwen3_moe"), conf(checkpoint_format="")),
    "gptq zero points of the other form": (of("gptq.qwen3_moe"), zeros_of(0x88)),
    "gptq_v2 zero points of the other form": (of("gptq_order.qwen3_moe"), zeros_of(0x77)),
    "gptq 8 bits, zero points of the other form":
        (lambda edit: quants.build_of("g8.qwen3_moe", dict(
        quants.qwen(), quantization_config=quants.gptq_config(8)),
                                      quants.f(quants.gptq, bits=8), {}, edit), zeros_of(0x80)),
    "gptq_v2 by format": (of("gptq_order.qwen3_moe"),
                          lambda t, c, files: c["quantization_config"].update(
        format=c["quantization_config"].pop("checkpoint_format"))),
    "auto-round in gptq's layout": (of("gptq.qwen3_moe"), autoround("auto_round:auto_gptq")),
    "auto-round in awq's layout": (of("awq.qwen3_moe"), autoround("auto_round:auto_awq")),
    "auto-round of no layout": (of("gptq.qwen3_moe"), autoround(None)),
    "actorder true": (of("ct_int4_order.qwen3_moe"), weights(actorder=True)),
    "block_structure text": (of("ct_fp8_block.qwen3_moe"), weights(block_structure="128x128")),
    "group of activations": (of("ct_int4.qwen3_moe"), activations_alone),
    "zero points of bytes": (of("ct_int4_asym.qwen3_moe"), byte_zeros),
    "int4 of bytes": (of("ct_int4_asym.qwen3_moe"), byte_codes),
    "one scale and zero point": (one_for_all, lambda t, c, files: None),
    "kv scales fp8": (of("fp8.qwen3_moe"), kv_scales),
    "kv scales compressed-tensors": (of("ct_fp8_chan.qwen3_moe"), kv_scales),
    "kv scales modelopt": (of("modelopt_fp8.qwen3_moe"), kv_scales),
}


def write(folder, files):
    os.makedirs(folder)
    for f, b in files.items():
        with open(os.path.join(folder, f), "wb") as o:
            o.write(b)
    return folder


def logits(model, out):
    rc, _, err = e2e.run([S, "eval", "-m", model, "--ids",
                          IDS, "--dump-logits", out, "--acts", "f32", "-q"])
    return err.strip() or f"exit code {rc}" if rc else open(out, "rb").read()


def verify(a, b):
    rc, out, err = e2e.run([S, "verify", a, b, "--json", "-q"])
    if rc not in (0, 1) or not out:
        return err.strip() or f"exit code {rc}"
    r = e2e.last_json(out)
    return None if rc == 0 and r["ok"] and r[
        "same"] else f"{r['only_a']} and {r['only_b']} alone, {r['rms_rel']}"


def one(t, name, make, edit, tmp):
    d = os.path.join(tmp, name.replace(" ", "_"))
    a, b = write(d + ".a", make(None)), write(d + ".b", make(edit))
    t.check(f"{name}: verify", verify(a, b))
    z = [logits(m, d + ".z") for m in (a, b)]
    t.check(f"{name}: logits", None if z[0] == z[1]
            and isinstance(z[0], bytes) else f"{z[1] if isinstance(z[1], str) else 'differ'}")
    for dst, typ in ((d + ".gguf", "q8_0"), (d + ".q", "int8"), (d + ".f", "bf16")):
        rc, _, err = e2e.run([S, "quantize", b, dst, "--weights", typ, "-q"])
        t.check(f"{name}: quantize {typ}",
                (err.strip() or rc) if rc else None if verify_near(b, dst) else "is another model")


def stored_biases(t, tmp):
    """ModelSlim's quant_bias with a bias in it: converted, it is a tensor of its own, and stands
    for one that was there besides."""
    def besides(t, c, files):
        for n in [n for n in t if n.endswith("q_proj.quant_bias")]:
            rows = t[n][1][0]
            t[n.removesuffix("quant_bias") + "bias"] = ("BF16", [rows], quants.bf16([7.0] * rows))
            files["quant_model_description_w8a8.json"][
                n.removesuffix("quant_bias") + "bias"] = "FLOAT"
    for name, edit in (("biases in scales", None), ("biases in scales and besides", besides)):
        d = write(os.path.join(tmp, name.replace(" ", "_")),
                  quants.build("ascend_w8a8_bias.qwen3_moe", edit))
        want = logits(d, d + ".z")
        t.check(f"{name}: verify itself", verify(d, d))
        unbiased = write(d + ".u", quants.build("ascend_w8a8.qwen3_moe"))
        for side, a, b in (("a", d, unbiased), ("b", unbiased, d)):
            r = e2e.last_json(e2e.run([S, "verify", a, b, "--json", "-q"])[1])
            t.check(f"{name}: verify without, {side}",
                    None if r[f"only_{side}"] and not r["ok"] else f"{r}"[:200])
        for dst in (d + ".gguf", d + ".f"):
            rc, _, err = e2e.run([S, "quantize", d, dst, "--weights", "f32", "-q"])
            got = logits(dst, d + ".z") if rc == 0 else err
            if isinstance(want, str) or isinstance(got, str):
                t.check(name, f"{want if isinstance(want, str) else got}")
                continue
            a, b = array.array("f", want), array.array("f", got)
            d_max, size = max(abs(x - y) for x, y in zip(a, b)), max(abs(x) for x in a)
            t.check(f"{name}: {dst[-2:]}",
                    None if d_max < 1e-4 * size else f"logits differ by {d_max} of {size}")
            t.check(f"{name}: verify {dst[-2:]}", verify(d, dst))
            t.check(f"{name}: verify {dst[-2:]} the other way", verify(dst, d))


def refused(t, tmp):
    d = write(os.path.join(tmp, "biased"), quants.build("gptq.qwen3_moe", biases(0.5)))
    z = logits(d, d + ".z")
    t.check("biases of an MLP", None if isinstance(z, str)
            and e2e.one_line_failure(1, z) is None and "bias" in z else f"{z[:200]!r}")


def verify_near(a, b):
    rc, out, _ = e2e.run([S, "verify", a, b, "--tol", "0.05", "--json", "-q"])
    return rc == 0 and e2e.last_json(out)["ok"]


def main():
    t = e2e.Tally("spellings")
    with e2e.scratch() as tmp:
        for name, (make, edit) in CASES.items():
            if not sys.argv[2:] or any(name.startswith(o) for o in sys.argv[2:]):
                one(t, name, make, edit, tmp)
        stored_biases(t, tmp)
        refused(t, tmp)
    t.exit()


if __name__ == "__main__":
    main()
