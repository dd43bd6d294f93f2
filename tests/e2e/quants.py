# SPDX-License-Identifier: Apache-2.0
"""Tiny quantised Hugging Face folders, one per format and architecture, made from a seed: codes are
random bytes, so nothing has to be quantised and nothing has to be stored in the repository but the
logits (tests/data/quants.json, made by tests/oracle/make_quants.py, which reads the folders with
numpy code of its own). Every expert takes part in every token: rounding of activations can not turn
over a route, so what differs is the format's doing. Needs nothing but python3's own library.

build(name) -> {file name: bytes}; name is FORMAT.ARCH.
"""
import json
import math
import random
import struct
import zlib

V, D, F, E = 128, 256, 128, 4


def qwen():
    return dict(architectures=["Qwen3MoeForCausalLM"],
                model_type="qwen3_moe", vocab_size=V, hidden_act="silu", rms_norm_eps=1e-6,
                max_position_embeddings=512, tie_word_embeddings=False,
                bos_token_id=0, eos_token_id=1, hidden_size=D,
                intermediate_size=256, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=2, head_dim=64,
                attention_bias=False, rope_theta=10000.0,
                rope_scaling=None, decoder_sparse_step=1, moe_intermediate_size=F,
                num_experts_per_tok=E, num_experts=E,
                norm_topk_prob=True, mlp_only_layers=[1], sliding_window=None,
                use_sliding_window=False, torch_dtype="bfloat16")


def deepseek():
    return dict(architectures=["DeepseekV3ForCausalLM"],
                model_type="deepseek_v3", vocab_size=V, hidden_act="silu", rms_norm_eps=1e-6,
                max_position_embeddings=512, tie_word_embeddings=False,
                bos_token_id=0, eos_token_id=1, hidden_size=D,
                intermediate_size=256, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=4, attention_bias=False,
                n_shared_experts=1, n_routed_experts=E,
                num_experts_per_tok=E, moe_intermediate_size=F, routed_scaling_factor=1.5,
                kv_lora_rank=128, q_lora_rank=128,
                qk_rope_head_dim=16, v_head_dim=32, qk_nope_head_dim=32, topk_method="noaux_tc",
                n_group=2, topk_group=2, scoring_func="sigmoid",
                first_k_dense_replace=1, moe_layer_freq=1, norm_topk_prob=True,
                num_nextn_predict_layers=1, rope_theta=10000,
                rope_scaling=None, torch_dtype="bfloat16")


def deepseek_v2():
    """The form without a low rank for q, softmax routing, no MTP layer."""
    c = dict(deepseek(), architectures=["DeepseekV2ForCausalLM"],
             model_type="deepseek_v2", q_lora_rank=None, topk_method="greedy",
             scoring_func="softmax", n_group=1, topk_group=1,
             norm_topk_prob=False, routed_scaling_factor=1.0, num_nextn_predict_layers=0)
    return c


def deepseek_v32():
    """With an indexer, which sees most of the positions."""
    return dict(deepseek(), architectures=["DeepseekV32ForCausalLM"], model_type="deepseek_v32",
                index_n_heads=8, index_head_dim=32, index_topk=12)


def dense(model_type, arch, **kw):
    c = dict(architectures=[arch], model_type=model_type,
             vocab_size=V, hidden_act="silu", rms_norm_eps=1e-6, max_position_embeddings=512,
             tie_word_embeddings=False, bos_token_id=0,
             eos_token_id=1, hidden_size=D, intermediate_size=256, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2,
             head_dim=64, attention_bias=False, rope_theta=10000.0, rope_scaling=None,
             torch_dtype="bfloat16")
    return lambda: dict(c, **kw)


# every format for these
ARCH = {"qwen3_moe": qwen, "deepseek_v3": deepseek}
# and these for SOME of them
MORE = {"deepseek_v2": deepseek_v2, "deepseek_v32": deepseek_v32,
        "llama": dense("llama", "LlamaForCausalLM", mlp_bias=False),
        "qwen2": dense("qwen2", "Qwen2ForCausalLM", use_sliding_window=False),
        "qwen3": dense("qwen3", "Qwen3ForCausalLM", use_sliding_window=False)}
SOME = ("awq", "gptq", "ct_int4", "ct_w8a8", "ct_nvfp4", "fp8")


def modules(c):
    """(matrices [(module, rows, cols, gain)], vectors [(name, n, mean, std)], float matrices
    [(name, rows, cols, gain)])"""
    d, wide, heads = c["hidden_size"], c["intermediate_size"], c["num_attention_heads"]
    experts = c.get("n_routed_experts") or c.get("num_experts") or 0
    mats, vecs, plain = [], [("model.norm.weight", d, 1, .1)], []
    plain += [("model.embed_tokens.weight", c["vocab_size"], d, d**.5),
              ("lm_head.weight", c["vocab_size"], d, 2.5)]

    def mlp(p, n):
        mats.extend([(p + "gate_proj", n, d, 1.5),
                     (p + "up_proj", n, d, 1.5), (p + "down_proj", d, n, 1.5)])

    def mla(a):
        low, r = c["q_lora_rank"], c["kv_lora_rank"]
        qk, out = heads * (c["qk_nope_head_dim"] + c["qk_rope_head_dim"]), heads * c["v_head_dim"]
        mats.extend(([(a + "q_a_proj", low, d, 1), (a + "q_b_proj", qk, low, 2)]
                     if low else [(a + "q_proj", qk, d, 2)]) +
                    [(a + "kv_a_proj_with_mqa", r + c["qk_rope_head_dim"], d, 1.5),
                     (a + "kv_b_proj", heads * (c["qk_nope_head_dim"] + c["v_head_dim"]), r, 1.5),
                     (a + "o_proj", d, out, 1)])
        vecs.extend(([(a + "q_a_layernorm.weight", low, 1, .1)] if low else [])
                    + [(a + "kv_a_layernorm.weight", r, 1, .1)])
        if "index_topk" in c:
            a, n = a + "indexer.", c["index_head_dim"]
            mats.extend([(a + "wq_b", c["index_n_heads"] * n, low, 1), (a + "wk", n, d, 1)])
            vecs.extend([(a + "k_norm.weight", n, 1, .1), (a + "k_norm.bias", n, 0, .2)])
            plain.append((a + "weights_proj.weight", c["index_n_heads"], d, 1))

    def gqa(a):
        q, kv = heads * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]
        mats.extend([(a + "q_proj", q, d, 2), (a + "k_proj", kv, d, 1.5),
                     (a + "v_proj", kv, d, 1), (a + "o_proj", d, q, 1)])
        if "qwen3" in c["model_type"]:
            vecs.extend([(a + "q_norm.weight", c["head_dim"], 1.5, .1),
                         (a + "k_norm.weight", c["head_dim"], 1.2, .1)])
        if c["model_type"] == "qwen2":
            vecs.extend([(a + n + "_proj.bias", r, 0, .5) for n,
                         r in (("q", q), ("k", kv), ("v", kv))])

    def layer(i, dense):
        p = f"model.layers.{i}."
        vecs.extend([(p + "input_layernorm.weight", d, 1, .1),
                     (p + "post_attention_layernorm.weight", d, 1, .1)])
        (mla if "kv_lora_rank" in c else gqa)(p + "self_attn.")
        if dense:
            mlp(p + "mlp.", wide)
            return
        plain.append((p + "mlp.gate.weight", experts, d, 2.0))
        for e in range(experts):
            mlp(f"{p}mlp.experts.{e}.", c["moe_intermediate_size"])
        if "kv_lora_rank" in c:
            if c["topk_method"] == "noaux_tc":
                vecs.append((p + "mlp.gate.e_score_correction_bias", experts, 0, .1))
            mlp(p + "mlp.shared_experts.", c["moe_intermediate_size"] * c["n_shared_experts"])

    n_layer = c["num_hidden_layers"]
    for i in range(n_layer):
        layer(i, i < c["first_k_dense_replace"] if "kv_lora_rank" in c
              else not experts or i in c["mlp_only_layers"])
    if c.get("num_nextn_predict_layers"):
        layer(n_layer, False)
        p = f"model.layers.{n_layer}."
        vecs.extend([(p + n, d, 1, .1)
                     for n in ("enorm.weight", "hnorm.weight", "shared_head.norm.weight")])
        plain.append((p + "eh_proj.weight", d, 2 * d, 1))
    return mats, vecs, plain


def bf16(v):
    """Cut off, not rounded: any bf16 will do."""
    return b"".join(struct.pack("<f", x)[2:] for x in v)


def f16(v):
    return struct.pack(f"<{len(v)}e", *v)


def f32(v):
    return struct.pack(f"<{len(v)}f", *v)


SCALE = {"BF16": bf16, "F16": f16, "F32": f32}
STD4, STD8, STD_E2M1 = 4.6, 74.0, 2.93
# exponents 5 .. 9, no NaN
E4M3 = bytes((b & 0x87) | (5 + (b >> 3 & 15) % 5) << 3 for b in range(256))
POS_E4M3 = bytes(0x30 | b & 15 for b in range(256))  # 0.5 .. 1.9
NEAR8 = bytes((7 + (b & 1)) | (7 + (b >> 1 & 1)) << 4 for b in range(256))
NEAR7 = bytes((6 + (b & 1)) | (6 + (b >> 1 & 1)) << 4 for b in range(256))
NEAR128 = bytes(124 + b % 8 for b in range(256))
NEAR0 = bytes((b % 8 - 4) & 255 for b in range(256))
INT4 = bytes((b % 16 - 8) & 255 for b in range(256))


class Maker:
    def __init__(self, name):
        self.r = random.Random(zlib.crc32(name.encode()))
        self.t = {}
        self.kind = {}  # ModelSlim's types

    def put(self, name, dtype, shape, data):
        size = {"I64": 8, "I32": 4, "F32": 4, "BF16": 2, "F16": 2, "I16": 2}.get(dtype, 1)
        n = size
        for s in shape:
            n *= s
        assert n == len(data), (name, dtype, shape, len(data))
        self.t[name] = (dtype, list(shape), data)

    def some(self, n, table=None):
        b = self.r.randbytes(n)
        return b.translate(table) if table else b

    def around(self, n, mean):
        """n numbers within a third of mean."""
        return [mean * (0.7 + 0.6 * self.r.random()) for _ in range(n)]

    def scales(self, name, dtype, shape, mean):
        n = 1
        for s in shape:
            n *= s
        self.put(name, dtype, shape, SCALE[dtype](self.around(n, mean)))

    def file(self):
        head, at = {}, 0
        for n, (dtype, shape, data) in self.t.items():
            head[n] = dict(dtype=dtype, shape=shape, data_offsets=[at, at + len(data)])
            at += len(data)
        h = json.dumps(head).encode()
        h += b" " * (-len(h) % 8)
        return struct.pack("<Q", len(h)) + h + b"".join(t[2] for t in self.t.values())


# ---- one function per way to store a matrix ----
def awq(m, name, rows, cols, gain, size=128, dtype="F16"):
    g = cols // size
    m.put(name + ".qweight", "I32", [cols, rows // 8], m.some(cols * rows // 2))
    m.put(name + ".qzeros", "I32", [g, rows // 8], m.some(g * rows // 2, NEAR8))
    m.scales(name + ".scales", dtype, [g, rows], gain / cols**.5 / STD4)


def gptq(m, name, rows, cols, gain, size=128, bits=4, sym=True, order=False, v2=False):
    g = max(cols // size, 1)
    mid = {(4, False): 0x77, (4, True): 0x88, (8, False): 0x7f, (8, True): 0x80}[bits, v2]
    zeros = bytes([mid]) * (g * rows * bits
                            // 8) if sym else m.some(g * rows * bits // 8, NEAR8 if v2 else NEAR7)
    m.put(name + ".qweight", "I32", [cols * bits // 32, rows], m.some(cols * rows * bits // 8))
    m.put(name + ".qzeros", "I32", [g, rows * bits // 32], zeros)
    m.scales(name + ".scales", "F16", [g, rows], gain / cols**.5 / (STD4 if bits == 4 else STD8))
    idx = [k // size for k in range(cols)]
    if order:
        m.r.shuffle(idx)
    m.put(name + ".g_idx", "I32", [cols], struct.pack(f"<{cols}i", *idx))


def ct_pack(m, name, rows, cols, gain, bits=4, size=128, sym=True, dtype="BF16", order=False):
    g, words = cols // size if size > 0 else 1, (cols * bits + 31) // 32
    m.put(name + ".weight_packed", "I32", [rows, words], m.some(rows * words * 4))
    m.put(name + ".weight_shape", "I64", [2], struct.pack("<2q", rows, cols))
    m.scales(name + ".weight_scale", dtype, [rows, g],
             gain / cols**.5 / (STD4 if bits == 4 else STD8))
    if not sym:
        words = (rows * bits + 31) // 32
        m.put(name + ".weight_zero_point", "I32", [words, g],
              m.some(words * 4 * g, NEAR8 if bits == 4 else NEAR128))
    if order:
        idx = [k // size for k in range(cols)]
        m.r.shuffle(idx)
        m.put(name + ".weight_g_idx", "I32", [cols], struct.pack(f"<{cols}i", *idx))


def ct_int8(m, name, rows, cols, gain, sym=True, dtype="F32", table=None, std=STD8):
    m.put(name + ".weight", "I8", [rows, cols], m.some(rows * cols, table))
    m.scales(name + ".weight_scale", dtype, [rows, 1], gain / cols**.5 / std)
    if not sym:
        m.put(name + ".weight_zero_point", "I8", [rows, 1], m.some(rows, NEAR0))


def ct_w4(m, name, rows, cols, gain):
    ct_int8(m, name, rows, cols, gain, True, "BF16", INT4, STD4)


def fp8(m, name, rows, cols, gain, shape, dtype="F32", tail="_scale"):
    m.put(name + ".weight", "F8_E4M3", [rows, cols], m.some(rows * cols, E4M3))
    if dtype == "F8_E8M0":
        n = shape[0] * shape[1]
        m.put(name + ".weight" + tail, dtype, shape,
              bytes(121 + m.r.randrange(2) for _ in range(n)))
    elif dtype == "F32 ue8m0":
        n = shape[0] * shape[1]
        m.put(name + ".weight" + tail, "F32", shape,
              f32([2.0**-(4 + m.r.randrange(2)) for _ in range(n)]))
    else:
        m.scales(name + ".weight" + tail, dtype, shape, gain / cols**.5 / 1.9)


def fp8_block(m, name, rows, cols, gain, dtype="F32", tail="_scale_inv"):
    fp8(m, name, rows, cols, gain, [(rows + 127) // 128, (cols + 127) // 128], dtype, tail)


def fp8_chan(m, name, rows, cols, gain):
    fp8(m, name, rows, cols, gain, [rows, 1], "BF16")


def fp8_tensor(m, name, rows, cols, gain):
    fp8(m, name, rows, cols, gain, [1] if "down" in name else [])


def nvfp4(m, name, rows, cols, gain, modelopt):
    mean = gain / cols**.5 / STD_E2M1 / 1.1
    m.put(name + (".weight" if modelopt else ".weight_packed"),
          "U8", [rows, cols // 2], m.some(rows * cols // 2))
    m.put(name + ".weight_scale", "F8_E4M3", [rows, cols // 16],
          m.some(rows * cols // 16, POS_E4M3))
    if modelopt:
        m.put(name + ".weight_scale_2", "F32", [], f32(m.around(1, mean)))
        m.put(name + ".input_scale", "F32", [], f32([0.01]))
    else:
        m.put(name + ".weight_global_scale", "F32", [1], f32(m.around(1, 1 / mean)))


def mxfp4(m, name, rows, cols, gain):
    e = 127 + round(math.log2(gain / cols**.5 / STD_E2M1))
    m.put(name + ".weight_packed", "U8", [rows, cols // 2], m.some(rows * cols // 2))
    m.put(name + ".weight_scale", "U8", [rows, cols // 32],
          bytes(e - m.r.randrange(2) for _ in range(rows * cols // 32)))


# ---- ModelSlim: the type of a tensor is what the writer says it is ----
def ms_w8(m, name, rows, cols, gain, kind="W8A8_DYNAMIC"):
    m.kind[name + ".weight"] = kind
    m.put(name + ".weight", "I8", [rows, cols], m.some(rows * cols))
    m.scales(name + ".weight_scale", "BF16" if "gate" in name else "F32",
             [rows, 1], gain / cols**.5 / STD8)
    m.put(name + ".weight_offset", "F32", [rows, 1], bytes(4 * rows))


def ms_static(m, name, rows, cols, gain, bits64=False, bias=False, kind="W8A8"):
    m.kind[name + ".weight"] = kind
    data, s_in, off = m.some(rows * cols), f32(m.around(1, .02)), m.r.randrange(-20, 20)
    scale = struct.unpack("<f", s_in)[0]
    m.put(name + ".weight", "I8", [rows, cols], data)
    deq = f32(m.around(rows, gain / cols**.5 / STD8 * scale))
    m.put(name + ".input_scale", "F32", [1], s_in)
    m.put(name + ".input_offset", "BF16", [1], bf16([off]))
    q = [-off * sum(b - 256 if b > 127 else b for b in data[r * cols:r * cols + cols])
         for r in range(rows)]
    if bias:
        q = [x + m.r.randrange(-3000, 3000) for x in q]
    m.put(name + ".quant_bias", "I32", [rows], struct.pack(f"<{rows}i", *q))
    if bits64:
        m.put(name + ".deq_scale", "I64", [rows],
              b"".join(deq[4 * i:4 * i + 4] + bytes(4) for i in range(rows)))
    else:
        m.put(name + ".deq_scale", "F32", [rows], deq)


def ms_mix(m, name, rows, cols, gain):
    ms_static(m, name, rows, cols, gain, kind="W8A8_MIX")
    m.scales(name + ".weight_scale", "F32", [rows, 1], gain / cols**.5 / STD8)
    m.put(name + ".weight_offset", "F32", [rows, 1], bytes(4 * rows))


def ms_w4(m, name, rows, cols, gain, packed, size=0):
    """packed: two rows in a byte (vllm-ascend's version 1.0.0), else one int4 a byte; size > 0: a
    second scale for groups (MindIE)."""
    m.kind[name + ".weight"] = "W4A8_DYNAMIC"
    if packed:
        m.put(name + ".weight", "I8", [rows // 2, cols], m.some(rows * cols // 2))
        m.scales(name + ".scale_bias", "F32", [rows, 16 if "down" in name else 1], 1)
    else:
        m.put(name + ".weight", "I8", [rows, cols], m.some(rows * cols, INT4))
    m.scales(name + ".weight_scale", "F32", [rows, 1], gain / cols**.5 / STD4)
    m.put(name + ".weight_offset", "F32", [rows, 1], bytes(4 * rows))
    if size:
        m.scales(name + ".weight_scale_second", "F32", [rows, cols // size], 1)
        m.put(name + ".weight_offset_second", "F32",
              [rows, cols // size], bytes(4 * rows * cols // size))


def ms_recipe(m, name, rows, cols, gain, experts, attn=ms_static):
    """Like the published recipes: attention W8A8 but kv_b FLOAT, dense and shared feed-forward
    W8A8_DYNAMIC, experts as told."""
    if "kv_b_proj" in name:
        bf16_matrix(m, name, rows, cols, gain)
    elif "self_attn" in name:
        attn(m, name, rows, cols, gain)
    elif ".experts." in name and "layers.2." not in name:
        experts(m, name, rows, cols, gain)
    else:
        ms_w8(m, name, rows, cols, gain)


def mixed(m, name, rows, cols, gain):
    if "self_attn" in name:
        ct_int8(m, name, rows, cols, gain, dtype="BF16")
    elif "down_proj" in name:
        fp8_chan(m, name, rows, cols, gain)
    else:
        ct_pack(m, name, rows, cols, gain)


def bf16_matrix(m, name, rows, cols, gain):
    m.put(name + ".weight", "BF16", [rows, cols],
          bf16([m.r.gauss(0, gain / cols**.5) for _ in range(rows * cols)]))


# ---- configurations ----
def ct_config(format, bits, strategy, size=None, sym=True, type="int", targets=("Linear",), **kw):
    w = dict(num_bits=bits, type=type, strategy=strategy,
             symmetric=sym, group_size=size, actorder=None, dynamic=False,
             block_structure=None, observer="minmax")
    w.update(kw)
    g = dict(targets=list(targets), weights=w, input_activations=None,
             output_activations=None, format=format)
    return dict(quant_method="compressed-tensors",
                format=format, config_groups=dict(group_0=g), kv_cache_scheme=None,
                ignore=["lm_head", "re:.*mlp\\.gate$", "re:.*eh_proj"],
                quantization_status="compressed")


def mixed_config():
    a = ct_config("int-quantized", 8, "channel", targets=["re:.*self_attn\\..*"])
    b = ct_config("pack-quantized", 4, "group", 128)["config_groups"]["group_0"]
    c = ct_config("float-quantized", 8, "channel",
                  type="float", targets=["re:.*down_proj"])["config_groups"]["group_0"]
    a["config_groups"].update(group_1=b, group_2=c)
    a["format"] = "mixed-precision"
    a["ignore"] = ["lm_head", "re:.*mlp\\.gate$", "re:.*eh_proj", "model.layers.0.self_attn.o_proj"]
    return a


def awq_config(size=128):
    return dict(quant_method="awq", bits=4, group_size=size,
                zero_point=True, version="gemm", modules_to_not_convert=None)


def gptq_config(bits=4, size=128, sym=True, desc_act=False, form="gptq"):
    return dict(quant_method="gptq", bits=bits, group_size=size,
                sym=sym, desc_act=desc_act, checkpoint_format=form, damp_percent=0.01)


def fp8_config(**kw):
    return dict(dict(quant_method="fp8", fmt="e4m3",
                     activation_scheme="dynamic", weight_block_size=[128, 128]), **kw)


MODELOPT = dict(producer=dict(name="modelopt", version="0.29.0"),
                quantization=dict(quant_algo="NVFP4", kv_cache_quant_algo="FP8", group_size=16,
                                  exclude_modules=["lm_head",
                                                   "*self_attn.kv_b_proj", "model.layers.2*"]))


def only(keep, fn):
    """fn, but plain bf16 for the modules that keep(name) says."""
    return lambda m, n, r, c, g: (bf16_matrix if keep(n) else fn)(m, n, r, c, g)


def f(fn, **kw):
    return lambda m, n, r, c, g: fn(m, n, r, c, g, **kw)


# What a quantiser may leave: a matrix of attention, one of an MLP, one expert of a layer (or of an
# MTP layer).
SOME_PLAIN = ["lm_head", "model.layers.0.self_attn.o_proj",
              "model.layers.1.mlp.down_proj", "model.layers.0.mlp.experts.2.down_proj",
              "model.layers.1.mlp.experts.0.gate_proj", "model.layers.2.mlp.experts.3.up_proj"]

# name: (quantization_config or None, matrix writer, further files)
FORMATS = {
    "awq": (awq_config(), awq, {}),
    "awq_g64": (awq_config(64), f(awq, size=64), {}),
    "awq_some": (dict(awq_config(64), modules_to_not_convert=SOME_PLAIN),
                 only(lambda n: n in SOME_PLAIN, f(awq, size=64)), {}),
    "gptq": (gptq_config(), gptq, {}),
    "gptq_asym": (gptq_config(sym=False, size=32), f(gptq, sym=False, size=32), {}),
    "gptq_order": (gptq_config(desc_act=True, form="gptq_v2"), f(gptq, order=True, v2=True), {}),
    "gptq_int8": (None, f(gptq, bits=8), {"quantize_config.json": gptq_config(8)}),
    "ct_int4": (ct_config("pack-quantized", 4, "group", 128), ct_pack, {}),
    "ct_int4_asym": (ct_config("pack-quantized", 4, "group", 128, False),
                     f(ct_pack, sym=False), {}),
    "ct_int4_g32": (ct_config("pack-quantized", 4, "group", 32), f(ct_pack, size=32), {}),
    "ct_int4_asym_g32": (ct_config("pack-quantized", 4, "group", 32, False),
                         f(ct_pack, size=32, sym=False), {}),
    "ct_int4_chan": (ct_config("pack-quantized", 4, "channel"),
                     f(ct_pack, size=-1, dtype="F32"), {}),
    "ct_int4_order": (ct_config("pack-quantized", 4, "group", 64, actorder="group"),
                      f(ct_pack, size=64, order=True), {}),
    "ct_int8": (ct_config("pack-quantized", 8, "group", 128), f(ct_pack, bits=8), {}),
    "ct_int8_chan": (ct_config("pack-quantized", 8, "channel"), f(ct_pack, bits=8, size=-1), {}),
    "ct_int8_asym": (ct_config("pack-quantized", 8, "group", 128, False),
                     f(ct_pack, bits=8, sym=False), {}),
    "ct_int8_g32": (ct_config("pack-quantized", 8, "group", 32), f(ct_pack, bits=8, size=32), {}),
    "ct_w8a8": (ct_config("int-quantized", 8, "channel"), ct_int8, {}),
    "ct_w8a8_asym": (ct_config("int-quantized", 8, "channel", sym=False),
                     f(ct_int8, sym=False, dtype="BF16"), {}),
    "ct_w4a8": (ct_config("int-quantized", 4, "channel"), ct_w4, {}),
    "ct_fp8_chan": (ct_config("float-quantized", 8, "channel", type="float"), fp8_chan, {}),
    "ct_fp8_tensor": (ct_config("naive-quantized", 8, "tensor", type="float"), fp8_tensor, {}),
    "ct_fp8_block": (ct_config("float-quantized", 8,
                               "block", type="float", block_structure=[128, 128]),
                     f(fp8_block, dtype="BF16", tail="_scale"), {}),
    "ct_nvfp4": (ct_config("nvfp4-pack-quantized", 4, "tensor_group", 16, type="float"),
                 f(nvfp4, modelopt=False), {}),
    "ct_mxfp4": (ct_config("mxfp4-pack-quantized", 4, "group", 32, type="float"), mxfp4, {}),
    "ct_mixed": (mixed_config(), only(lambda n: n == "model.layers.0.self_attn.o_proj", mixed), {}),
    "modelopt_nvfp4": (None, only(lambda n: "kv_b" in n or "layers.2." in n,
                                  f(nvfp4, modelopt=True)), {"hf_quant_config.json": MODELOPT}),
    "modelopt_nvfp4_config": (dict(quant_method="modelopt",
                                   quant_algo="NVFP4", group_size=16, ignore=["lm_head"]),
                              f(nvfp4, modelopt=True), {}),
    "modelopt_fp8": (dict(quant_method="modelopt", quant_algo="FP8", ignore=["lm_head"]),
                     fp8_tensor, {}),
    "ascend_w8a8": (None, f(ms_recipe, experts=ms_w8), "w8a8"),
    "ascend_w8a8_bits": (None, f(ms_recipe, experts=ms_w8,
                                 attn=lambda *a: ms_static(*a, bits64=True)), "w8a8"),
    "ascend_w8a8_bias": (None, f(ms_recipe, experts=ms_w8,
                                 attn=lambda *a: ms_static(*a, bias=True)), "w8a8"),
    "ascend_w8a8_mix": (None, f(ms_recipe, experts=ms_w8, attn=ms_mix), "w8a8_mix"),
    "ascend_w4a8": (None, f(ms_recipe, experts=f(ms_w4, packed=True)), "w4a8_dynamic"),
    "ascend_w4a8_old": (None, f(ms_recipe, experts=f(ms_w4, packed=False)), "w4a8_dynamic"),
    "ascend_w4a8_second": (None, f(ms_recipe, experts=f(ms_w4, packed=False, size=128)),
                           "w4a8_dynamic"),
    "fp8": (fp8_config(), fp8_block, {}),
    "fp8_ue8m0": (fp8_config(scale_fmt="ue8m0"), f(fp8_block, dtype="F32 ue8m0"), {}),
    "fp8_e8m0": (fp8_config(scale_fmt="ue8m0"), f(fp8_block, dtype="F8_E8M0"), {}),
    "fp8_tensor": (dict(quant_method="fp8", activation_scheme="static"), fp8_tensor, {}),
}


def build(name, edit=None):
    """edit(tensors, config, files): a change before the files are written."""
    fmt, arch = name.split(".")
    quant, writer, files = FORMATS[fmt]
    c = (ARCH | MORE)[arch]()
    if quant:
        c["quantization_config"] = quant
    return build_of(name, c, writer, files, edit)


def build_of(name, c, writer, files, edit=None):
    """A folder of configuration c whose matrices writer(maker, module, rows, columns, gain) stores;
    the codes come from the name."""
    m = Maker(name)
    mats, vecs, plain = modules(c)
    for n, rows, cols, gain in mats:
        writer(m, n, rows, cols, gain)
    for n, rows, cols, gain in plain:
        bf16_matrix(m, n.removesuffix(".weight"), rows, cols, gain)
    for n, k, mean, std in vecs:
        m.put(n, "F32" if "e_score" in n else "BF16",
              [k], (f32 if "e_score" in n else bf16)([m.r.gauss(mean, std) for _ in range(k)]))
    weights = "model.safetensors"
    if isinstance(files, str):  # ModelSlim's file names
        d = dict({n: m.kind.get(n, "FLOAT") for n in m.t},
                 model_quant_type=files.upper(), version="1.0.0", group_size=0)
        files, weights = {f"quant_model_description_{files}.json":
                              d}, "quant_model_weight.safetensors"
    files = json.loads(json.dumps(files))
    c = json.loads(json.dumps(c))
    if edit:
        edit(m.t, c, files)
    out = {"config.json": json.dumps(c, indent=1).encode(), weights: m.file()}
    out.update({n: json.dumps(v).encode() for n, v in files.items()})
    return out


def names():
    """Every format for two architectures, SOME for the others; a bias only where the architecture
    has a place for it."""
    return [f"{fmt}.{arch}" for fmt in FORMATS for arch in ARCH | (MORE if fmt in SOME else {})
            if (fmt, arch) != ("ascend_w8a8_bias", "deepseek_v3")]
