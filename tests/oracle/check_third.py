#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Quantised checkpoints that the tools people use write, read by sluice: every weight of `inspect
--dump` against the tool's own dequantisation, and the logits of --acts f32 against transformers on
those weights.

  check_third.py BUILD [NAME...]     an environment with what tests/oracle/third.sh installs; what
                                     is missing is said and skipped

llmcompressor (compressed-tensors), modelopt, gptqmodel, auto-gptq and autoawq each quantise and
pack by their own code; DeepSeek's FP8 goes through transformers' own quantiser and its inverse.
"""
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, Qwen3Config

import runs
from folders import tensors

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")
S = os.path.join(BUILD, "sluice")
IDS = [5, 6, 7, 8, 9, 20, 30, 40, 50, 60, 99, 1, 2, 3, 77, 127]
BAR = 1e-4  # of the deviation of the logits, where both dequantise the same way
good = bad = 0


def tell(name, ok, text):
    global good, bad
    good, bad = good + ok, bad + (not ok)
    print(("ok   " if ok else "BAD  ") + f"{name}: {text}", flush=True)


def sluice(*args):
    runs.sluice(S, *args, "-q")


def ours(folder):
    return runs.logits(S, folder, IDS, "--acts", "f32", "--kv", "f32")


def source(folder):
    """A model of Qwen3's shape, widths that fit groups of 128; its folder is what the tools start
    from."""
    torch.manual_seed(7)
    c = Qwen3Config(vocab_size=128, hidden_size=256,
                    intermediate_size=384, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=2, head_dim=64,
                    tie_word_embeddings=False, max_position_embeddings=512)
    m = AutoModelForCausalLM.from_config(c, dtype=torch.bfloat16)
    with torch.no_grad():
        for p in m.parameters():
            if p.dim() == 2:
                p.copy_(torch.randn(p.shape) * (1.5 / p.shape[1] ** .5))
            else:
                p.copy_(1 + .1 * torch.randn(p.shape))
    m.save_pretrained(folder)
    return folder


def matrices(folder):
    return [n[:-7] for n, x in tensors(folder).items() if x.ndim == 2 and "proj.weight" in n]


def compare(name, src, dst, want, tmp):
    """want: module -> the tool's own dequantised weight. The dump must be it but for one rounding
    where two scales are multiplied in another order (NVFP4); the logits are transformers' on it."""
    worst = 0.0
    for module, w in want.items():
        path = os.path.join(tmp, "dump")
        sluice("inspect", dst, "--dump", module + ".weight", path)
        got = np.fromfile(path, np.float32).reshape(w.shape)
        worst = max(worst, float(np.abs(got - w.float().numpy()).max() / np.abs(got).max()))
    m = AutoModelForCausalLM.from_pretrained(src, dtype=torch.float32,
                                             attn_implementation="eager").eval()
    with torch.no_grad():
        for module, w in want.items():
            m.get_submodule(module).weight.copy_(w.float())
        z = m(torch.tensor([IDS])).logits[0].numpy()
    d = float(np.abs(ours(dst) - z).max() / z.std())
    tell(name, len(want) == len(matrices(src)) and worst <= (2.0 ** -22 if "NVFP4" in name else 0)
         and d <= BAR,
         f"{len(want)} matrices, largest difference {worst:.1e}, logits {d:.1e} of the deviation")


def with_tensors(src, dst, quant, make):
    """A folder like src in which make(module, weight) has replaced the weight of every projection
    by tensors of its own."""
    os.makedirs(dst, exist_ok=True)
    config = json.load(open(os.path.join(src, "config.json")))
    config["quantization_config"] = quant
    json.dump(config, open(os.path.join(dst, "config.json"), "w"))
    out, want, names = {}, {}, matrices(src)
    for n, x in tensors(src).items():
        if n.removesuffix(".weight") not in names:
            out[n] = x
            continue
        module = n.removesuffix(".weight")
        parts, want[module] = make(module, x.float())
        out.update({f"{module}.{k}": v.contiguous() for k, v in parts.items()})
    save_file(out, os.path.join(dst, "model.safetensors"))
    return want


# ---- llmcompressor, compressed-tensors ----
def weights(bits, strategy, group=None, symmetric=True, kind="int", **kw):
    return dict(num_bits=bits, type=kind, strategy=strategy,
                group_size=group, symmetric=symmetric, dynamic=False, **kw)


CT = {
    "W4A16": "W4A16", "W4A16_ASYM": "W4A16_ASYM", "W8A16": "W8A16",
    "W8A8": "W8A8", "FP8_DYNAMIC": "FP8_DYNAMIC",
    "FP8_BLOCK": "FP8_BLOCK", "NVFP4A16": "NVFP4A16", "MXFP4A16": "MXFP4A16",
    "int4-channel": weights(4, "channel"), "int4-g32": weights(4, "group", 32),
    "int4-g32-asym": weights(4, "group", 32, False),
    "int8-g128": weights(8, "group", 128), "int8-g64-asym": weights(8, "group", 64, False),
    "int8-channel-asym": weights(8, "channel", None, False),
    "fp8-tensor": weights(8, "tensor", kind="float"),
}


def nvfp4(parts, group):
    """Their decompress() in its own two steps, in f32: it would round to bf16 between them."""
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    from compressed_tensors.quantization.lifecycle.forward import dequantize
    packed = parts["weight_packed"]
    x = unpack_fp4_from_uint8(packed, packed.shape[0], 2 * packed.shape[1], dtype=torch.float32)
    return dequantize(x, parts["weight_scale"].float(), args=group.weights,
                      global_scale=parts["weight_global_scale"], dtype=torch.float32)


def run_ct(name, src, tmp):
    from llmcompressor import oneshot
    from llmcompressor.modifiers.quantization import QuantizationModifier
    dst, scheme = os.path.join(tmp, name), CT[name]
    if isinstance(scheme, str):
        recipe = QuantizationModifier(targets="Linear", scheme=scheme, ignore=["lm_head"])
    else:
        recipe = QuantizationModifier(
            config_groups={"group_0": dict(targets=["Linear"], weights=scheme)}, ignore=["lm_head"])
    m = AutoModelForCausalLM.from_pretrained(src, dtype=torch.bfloat16)
    oneshot(model=m, recipe=recipe)
    m.save_pretrained(dst, save_compressed=True)
    compare("llmcompressor " + name, src, dst, decompressed(src, dst), tmp)


def decompressed(src, dst):
    """What compressed-tensors makes of a folder."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationConfig
    q = QuantizationConfig.model_validate(
        json.load(open(os.path.join(dst, "config.json")))["quantization_config"])
    group = q.config_groups["group_0"]
    reader = BaseCompressor.get_value_from_registry(group.format or q.format)
    t, want = tensors(dst), {}
    for module in matrices(src):
        parts = {n[len(module) + 1:]: x for n, x in t.items() if n.startswith(module + ".")}
        for n, x in parts.items():  # scales in f32, so that the products are
            if n.endswith("scale") and x.dtype in (torch.bfloat16, torch.float16):
                parts[n] = x.float()
        want[module] = nvfp4(parts, group) if "weight_global_scale" in parts else reader.decompress(
            parts, group)["weight"]
    return want


# ---- GPTQ ----
def round_groups(w, bits, group, symmetric):
    """Scales and zero points [rows, groups] by largest and smallest value."""
    x = w.reshape(w.shape[0], -1, group)
    top = 2 ** bits - 1
    if symmetric:
        s = x.abs().amax(-1) * 2 / top
        return s.half(), torch.full_like(s, (top + 1) // 2)
    hi, lo = x.amax(-1).clamp(min=0), x.amin(-1).clamp(max=0)
    s = ((hi - lo) / top).half()
    return s, torch.round(-lo / s.float()).clamp(1, top)


GPTQ = {"gptqmodel v2": (4, 128, True, False), "gptqmodel v2 g32 asym": (4, 32, False, False),
        "gptqmodel v2 order": (4, 64, False, True),
        "gptqmodel v2 int8": (8, 128, True, False),
        "auto-gptq v1": (4, 128, True, False), "auto-gptq v1 order": (4, 32, True, True),
        "auto-gptq v1 int8": (8, 64, True, False)}


def auto_gptq():
    """One file alone: the package's front does not go with a transformers of today."""
    where = importlib.util.find_spec("auto_gptq").submodule_search_locations[0]
    spec = importlib.util.spec_from_file_location(
        "qlinear", os.path.join(where, "nn_modules", "qlinear", "qlinear_cuda.py"))
    m = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(m)
    return m.QuantLinear


def run_gptq(name, src, tmp):
    bits, group, symmetric, order = GPTQ[name]
    v2 = "v2" in name
    if v2:
        from gptqmodel.nn_modules.qlinear.torch import TorchLinear
    else:
        QuantLinear = auto_gptq()

    def make(module, w):
        rows, cols = w.shape
        idx = torch.arange(cols) // group
        if order:
            idx = idx[torch.randperm(cols, generator=torch.Generator().manual_seed(cols))]
        s, z = round_groups(w[:, torch.argsort(idx, stable=True)], bits, group, symmetric)
        lin = torch.nn.Linear(cols, rows, bias=False)
        lin.weight.data = torch.clamp(torch.round(w / s.float()[:, idx]) + z[:, idx],
                                      0, 2 ** bits - 1).sub(z[:, idx]) * s.float()[:, idx]
        if v2:
            q = TorchLinear(bits=bits, group_size=group,
                            sym=symmetric, desc_act=order, in_features=cols, out_features=rows)
            q.pack_original(lin, s.float(), z.float(), idx.int())
            q.eval()
            q.scales = q.scales.float()  # products in f32
            w2 = q.dequantize_weight().T.float()
        else:
            q = QuantLinear(bits, group, cols, rows, False)
            q.pack(lin, s.float(), z.float(), idx.int())
            q.scales = q.scales.float()
            # its own unpacking stands in forward(): the product with the identity is the weight
            q.kernel_switch_threshold = False
            w2 = q(torch.eye(cols)).T.float()
        return dict(qweight=q.qweight, qzeros=q.qzeros, scales=q.scales.half(), g_idx=idx.int()), w2

    dst = os.path.join(tmp, name.replace(" ", "_"))
    quant = dict(quant_method="gptq", bits=bits, group_size=group,
                 sym=symmetric, desc_act=order, checkpoint_format="gptq_v2" if v2 else "gptq")
    compare(name, src, dst, with_tensors(src, dst, quant, make), tmp)


# ---- AWQ ----
AWQ = {"autoawq": 128, "autoawq g64": 64, "autoawq g32": 32}


def run_awq(name, src, tmp):
    from awq.modules.linear.gemm import WQLinear_GEMM
    from awq.utils.packing_utils import dequantize_gemm
    group = AWQ[name]

    def make(module, w):
        s, z = round_groups(w, 4, group, False)
        lin = torch.nn.Linear(w.shape[1], w.shape[0], bias=False)
        lin.weight.data = torch.clamp(torch.round(w / s.float().repeat_interleave(group, 1))
                                      + z.repeat_interleave(group, 1), 0, 15)
        lin.weight.data = (lin.weight.data
                           - z.repeat_interleave(group, 1)) * s.float().repeat_interleave(group, 1)
        q = WQLinear_GEMM.from_linear(lin, 4, group,
                                      scales=s.float().T.contiguous(), zeros=z.T.contiguous())
        return dict(qweight=q.qweight, qzeros=q.qzeros, scales=q.scales), dequantize_gemm(
            q.qweight, q.qzeros, q.scales.float(), 4, group).T

    dst = os.path.join(tmp, name.replace(" ", "_"))
    quant = dict(quant_method="awq", bits=4, group_size=group,
                 zero_point=True, version="gemm", modules_to_not_convert=None)
    compare(name, src, dst, with_tensors(src, dst, quant, make), tmp)


# ---- modelopt ----
MODELOPT = {"modelopt NVFP4": "NVFP4_DEFAULT_CFG", "modelopt FP8": "FP8_DEFAULT_CFG"}


def run_modelopt(name, src, tmp):
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_hf_checkpoint
    dst = os.path.join(tmp, name.replace(" ", "_"))
    m = AutoModelForCausalLM.from_pretrained(src, dtype=torch.bfloat16)
    mtq.quantize(m, getattr(mtq, MODELOPT[name]), lambda x: x(torch.tensor([IDS])))
    export_hf_checkpoint(m, export_dir=dst)
    t, want = tensors(dst), {}
    for module in matrices(src):
        w = t[module + ".weight"]
        if "NVFP4" in name:
            from modelopt.torch.quantization.qtensor import NVFP4QTensor
            q = NVFP4QTensor(torch.Size((w.shape[0], w.shape[1] * 2)), torch.float32, w)
            want[module] = q.dequantize(torch.float32, scale=t[module + ".weight_scale"],
                                        double_scale=t[module + ".weight_scale_2"],
                                        block_sizes={-1: 16})
        else:
            from modelopt.torch.quantization.qtensor import FP8QTensor
            q = FP8QTensor(w.shape, torch.float32, w)
            want[module] = q.dequantize(torch.float32,
                                        scale=t[module + ".weight_scale"].float(), block_sizes=None)
    compare(name, src, dst, want, tmp)


# ---- DeepSeek's blocks of 128 x 128, by transformers ----
class Quantizer:
    class quantization_config:
        weight_block_size = (128, 128)
        scale_fmt = "float"


def fp8_blocks(w, scale):
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize
    out = Fp8Dequantize(Quantizer).convert({"weight": [w], "weight_scale_inv": [scale]},
                                           full_layer_name="w.weight")
    return next(iter(out.values()))


def run_fp8(name, src, tmp):
    from transformers.integrations.finegrained_fp8 import Fp8Quantize

    def make(module, w):
        key = module + ".weight"
        q = Fp8Quantize(Quantizer).convert({key: w})
        return dict(weight=q[key], weight_scale_inv=q[key + "_scale_inv"]), fp8_blocks(
            q[key], q[key + "_scale_inv"])

    dst = os.path.join(tmp, "fp8")
    quant = dict(quant_method="fp8", fmt="e4m3", activation_scheme="dynamic",
                 weight_block_size=[128, 128])
    compare(name, src, dst, with_tensors(src, dst, quant, make), tmp)


# ---- what sluice quantize writes, as others read it ----
OURS = {"sluice int8": "int8", "sluice int4": "int4", "sluice nvfp4 (NVFP4)": "nvfp4",
        "sluice mxfp4": "mxfp4", "sluice fp8": "fp8", "sluice awq": "awq"}


def run_ours(name, src, tmp):
    kind, dst = OURS[name], os.path.join(tmp, "ours")
    sluice("quantize", src, dst, "--weights", kind,
           "--head", "bf16", "--embed", "bf16", "--plain", "--force")
    if kind not in ("fp8", "awq"):
        return compare(name, src, dst, decompressed(src, dst), tmp)
    t, want = tensors(dst), {}
    for module in matrices(src):
        if kind == "fp8":
            want[module] = fp8_blocks(t[module + ".weight"], t[module + ".weight_scale_inv"])
        else:
            from awq.utils.packing_utils import dequantize_gemm
            want[module] = dequantize_gemm(t[module + ".qweight"], t[module + ".qzeros"],
                                           t[module + ".scales"].float(), 4, 128).T
    compare(name, src, dst, want, tmp)


AWQ_BAR = 2e-2  # the tool's products are in f16


def run_awq_transformers(name, src, tmp):
    """What transformers itself makes of an AWQ folder of ours, some matrices left as they were."""
    from transformers import AwqConfig
    dst = os.path.join(tmp, "ours")
    sluice("quantize", src, dst, "--weights", "awq",
           "--group", name.split("g")[-1], "--head", "bf16", "--embed", "bf16",
           "--keep", "layers.1.self_attn.v_proj", "--force")
    q = json.load(open(os.path.join(dst, "config.json")))["quantization_config"]
    how = AwqConfig(bits=q["bits"], group_size=q["group_size"],
                    zero_point=q["zero_point"], backend="torch_awq",
                    # a backend that compiles nothing
                    modules_to_not_convert=q["modules_to_not_convert"])
    m = AutoModelForCausalLM.from_pretrained(dst, dtype=torch.float32, attn_implementation="eager",
                                             device_map="cpu", quantization_config=how).eval()
    n = sum("Awq" in type(x).__name__ for x in m.modules())
    with torch.no_grad():
        z = m(torch.tensor([IDS])).logits[0].float().numpy()
    d = float(np.abs(ours(dst) - z).max() / z.std())
    tell(name, n == len(matrices(src)) - 1 and d <= AWQ_BAR,
         f"{n} AWQ matrices in transformers, logits {d:.1e} of the deviation")


def main():
    only = sys.argv[2:]
    rows = [(n, run_ct, "llmcompressor")
            for n in CT] + [(n, run_gptq, n.split()[0].replace("-", "_")) for n in GPTQ] + \
        [(n, run_awq, "awq") for n in AWQ] + [(n, run_modelopt, "modelopt") for n in MODELOPT] + [
            ("transformers fp8", run_fp8, "transformers")] + \
        [(n, run_ours, "awq" if k == "awq" else "compressed_tensors") for n, k in OURS.items()] + \
        [(f"transformers reads sluice awq g{g}", run_awq_transformers, "gptqmodel")
         for g in (128, 32)]
    skipped = set()
    with tempfile.TemporaryDirectory() as tmp:
        src = source(os.path.join(tmp, "src"))
        for name, fn, package in rows:
            if only and not any(name.startswith(o) for o in only):
                continue
            if not importlib.util.find_spec(package):
                skipped.add(package)
                continue
            try:
                fn(name, src, tmp)
            except Exception as e:
                if os.environ.get("TRACE"):
                    raise
                tell(name, False, f"{type(e).__name__}: {str(e)[:300]}")
            for d in os.listdir(tmp):
                if d != "src" and os.path.isdir(os.path.join(tmp, d)):
                    shutil.rmtree(os.path.join(tmp, d))
    for p in sorted(skipped):
        print(f"skipped: no package {p}")
    print(f"third: {good} good, {bad} bad")
    sys.exit(bad > 0 or good == 0)


if __name__ == "__main__":
    main()
