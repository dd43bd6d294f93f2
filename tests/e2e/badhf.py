# SPDX-License-Identifier: Apache-2.0
"""Bad Hugging Face folders (docs/reliability.md F4, F5, F8, F9): each kind is {file name: bytes}.

structure() yields what no reader may accept, meaning() what is well formed but cannot be run.
"""
import json
import random
import struct

D, FF, H, V, L = 32, 48, 2, 300, 1


def config(**kw):
    c = dict(architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=V, hidden_size=D,
             intermediate_size=FF, num_hidden_layers=L, num_attention_heads=H,
             num_key_value_heads=1, rms_norm_eps=1e-5, rope_theta=10000.0,
             max_position_embeddings=64, tie_word_embeddings=False, hidden_act="silu",
             torch_dtype="float32", bos_token_id=0, eos_token_id=1)
    c.update(kw)
    return {k: v for k, v in c.items() if v != "DROP"}


def tensors():
    r = random.Random(4)

    def mat(rows, cols):
        return [[rows, cols], struct.pack(f"<{rows * cols}f", *(r.gauss(0, cols**-0.5)
                                                                for _ in range(rows * cols)))]

    def ones(n):
        return [[n], struct.pack(f"<{n}f", *([1.0] * n))]
    t = {"model.embed_tokens.weight": mat(V, D), "model.norm.weight": ones(D),
         "lm_head.weight": mat(V, D)}
    for i in range(L):
        p = f"model.layers.{i}."
        t[p + "input_layernorm.weight"] = ones(D)
        t[p + "post_attention_layernorm.weight"] = ones(D)
        t[p + "self_attn.q_proj.weight"] = mat(D, D)
        t[p + "self_attn.k_proj.weight"] = mat(D // H, D)
        t[p + "self_attn.v_proj.weight"] = mat(D // H, D)
        t[p + "self_attn.o_proj.weight"] = mat(D, D)
        t[p + "mlp.gate_proj.weight"] = mat(FF, D)
        t[p + "mlp.up_proj.weight"] = mat(FF, D)
        t[p + "mlp.down_proj.weight"] = mat(D, FF)
    return t


def entries(t):
    head, at = {}, 0
    for n, (shape, data) in t.items():
        head[n] = dict(dtype="F32", shape=shape, data_offsets=[at, at + len(data)])
        at += len(data)
    return head, b"".join(d for _, d in t.values())


def pack(head, data, n=None):
    h = head if isinstance(head, bytes) else json.dumps(head).encode()
    return struct.pack("<Q", len(h) if n is None else n) + h + data


def folder(st=None, cfg=None, **more):
    f = {"config.json": cfg if isinstance(cfg, bytes) else json.dumps(cfg or config()).encode(),
         "model.safetensors": st if st is not None else pack(*entries(tensors()))}
    f.update(more)
    return {k: v for k, v in f.items() if v is not None}


def edited(fn):
    """A file whose header was changed by fn(header)."""
    head, data = entries(tensors())
    fn(head)
    return folder(pack(head, data))


NAME = "model.norm.weight"


def put(field, v):
    return edited(lambda x: x[NAME].__setitem__(field, v))


def structure():
    head, data = entries(tensors())
    size = len(data)
    yield "empty", folder(b"")
    yield "seven_bytes", folder(b"\1\0\0\0\0\0\0")
    for n in (2**63, 2**64 - 1, 2**40, 0, 1):
        yield f"length_{n:x}", folder(pack(head, data, n))
    h = json.dumps(head).encode()
    yield "length_one_less", folder(pack(head, data, len(h) - 1))
    yield "length_past_end", folder(pack(h, b"", len(h) + 1))
    yield "header_text", folder(pack(b"hello world", data))
    yield "header_array", folder(pack(b"[1, 2]", data))
    yield "header_cut", folder(pack(h[:-5], data))
    yield "header_bad_utf8", folder(pack(h.replace(b"model.norm", b"model.\xff\xfem"), data))
    yield "header_nul", folder(pack(h.replace(b"model.norm", b"model\\u0000norm"), data))
    yield "header_two_objects", folder(pack(h + h, data))
    yield "header_deep", folder(pack(b'{"a":' * 60000 + b"1" + b"}" * 60000, data))
    key = b'"' + NAME.encode() + b'"'
    yield "name_twice", folder(pack(h[:-1] + b", " + key + b": " + json.dumps(
        head[NAME]).encode() + b"}", data))

    for field in ("dtype", "shape", "data_offsets"):
        yield "no_" + field, edited(lambda x, f=field: x[NAME].pop(f))
        for v in (None, 7, "x", {}, [[]], True):
            if (field, v) != ("dtype", "x"):  # of a tensor that may not be needed
                yield f"{field}_{json.dumps(v)}", put(field, v)
    yield "shape_negative", put("shape", [-32])
    yield "shape_float", put("shape", [32.5])
    yield "shape_huge", put("shape", [2**62, 2**62])
    yield "shape_past_int", put("shape", [10**30])
    yield "shape_zero", put("shape", [0])
    yield "shape_other_size", put("shape", [31])
    b, e = head[NAME]["data_offsets"]
    yield "offsets_one", put("data_offsets", [b])
    yield "offsets_three", put("data_offsets", [b, e, e])
    yield "offsets_reversed", put("data_offsets", [e, b])
    yield "offsets_negative", put("data_offsets", [-128, 0])
    yield "offsets_past_end", put("data_offsets", [size - 64, size + 64])
    yield "offsets_huge", put("data_offsets", [2**63, 2**63 + 128])
    yield "offsets_overlap", put("data_offsets", [b - 128, e - 128])
    yield "offsets_hole", put("data_offsets", [b + 4, e + 4])
    yield "entry_number", edited(lambda x: x.__setitem__(NAME, 3))
    yield "metadata_array", edited(lambda x: x.__setitem__("__metadata__", [1]))
    yield "data_cut", folder(pack(head, data[:-1]))
    yield "data_missing", folder(pack(head, b""))
    yield "data_trailing", folder(pack(head, data + b"\0" * 64))

    def index(m):
        return json.dumps(dict(metadata=dict(total_size=size), weight_map=m)).encode()
    st = pack(head, data)
    for name, target in (("missing_shard", "model-00009.safetensors"),
                         ("parent", "../x.safetensors"),
                         ("absolute", "/etc/passwd"), ("folder", "."), ("nul", "a\0b"),
                         ("empty_name", ""), ("sub", "sub/../../x.safetensors"),
                         ("other_kind", "config.json"), ("long", "x" * 5000)):
        m = dict.fromkeys(head, target)
        yield "index_" + name, folder(st, **{"model.safetensors": None, "a.safetensors": st,
                                             "model.safetensors.index.json": index(m)})
    for name, text in (("text", b"nope"), ("array", b"[]"), ("no_map", b"{}"),
                       ("map_array", b'{"weight_map": [1]}'),
                       ("map_numbers", b'{"weight_map": {"a": 1}}')):
        yield "index_" + name, folder(st, **{"model.safetensors": None, "a.safetensors": st,
                                             "model.safetensors.index.json": text})
    for name, text in (("text", b"nope"), ("array", b"[1]"), ("cut", b'{"model_type": "lla'),
                       ("empty", b""), ("deep", b"[" * 100000), ("utf8", b'{"a": "\xff"}')):
        yield "config_" + name, folder(cfg=text)


def meaning():
    yield "dtype_unknown", put("dtype", "Q7")
    yield "dtype_lower", put("dtype", "f32")
    yield "shape_300_dims", put("shape", [1] * 300 + [32])
    yield "no_weights", folder(**{"model.safetensors": None})
    yield "only_bin", folder(**{"model.safetensors": None, "pytorch_model.bin": b"\x80\x02"})
    yield "model_type_missing", folder(cfg=config(model_type="DROP", architectures="DROP"))
    yield "model_type_unknown", folder(cfg=config(model_type="frobnicate",
                                                  architectures=["Frob"]))
    yield "model_type_number", folder(cfg=config(model_type=5))
    for k in ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
              "intermediate_size", "vocab_size", "max_position_embeddings"):
        for v in (0, -1, 2**31, 2**32 - 1, 2**63 - 1, 10**30, 1.5, "32", None, [32], True):
            if k in ("num_key_value_heads", "max_position_embeddings") and v is None:
                continue  # null is the default
            if k == "max_position_embeddings" and type(v) is int and v > 0:
                continue  # only large
            yield f"{k}_{json.dumps(v)}", folder(cfg=config(**{k: v}))
    for k in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"):
        yield "no_" + k, folder(cfg=config(**{k: "DROP"}))
    yield "heads_not_dividing", folder(cfg=config(num_attention_heads=5))
    yield "head_dim_odd", folder(cfg=config(head_dim=7))
    for v in (-1e-5, "x", 1e300, []):
        yield f"eps_{v}", folder(cfg=config(rms_norm_eps=v))
    for v in (0, -1.0, "x", 1e400):
        yield f"theta_{v}", folder(cfg=json.dumps(config(rope_theta=v)).replace(
            "Infinity", "1e999").encode())
    yield "rope_kind_unknown", folder(cfg=config(rope_scaling=dict(rope_type="spiral", factor=2)))
    yield "rope_no_factor", folder(cfg=config(rope_scaling=dict(rope_type="linear")))
    yield "rope_factor_zero", folder(cfg=config(rope_scaling=dict(type="linear", factor=0)))
    yield "rope_array", folder(cfg=config(rope_scaling=[1]))
    yield "activation_unknown", folder(cfg=config(hidden_act="frob"))
    yield "quant_unknown", folder(cfg=config(quantization_config=dict(quant_method="frob")))
    for name in ("model.embed_tokens.weight", "model.norm.weight",
                 "model.layers.0.self_attn.k_proj.weight", "lm_head.weight"):
        t = tensors()
        del t[name]
        yield "missing_" + name, folder(pack(*entries(t)))
        t = tensors()
        if len(t[name][0]) == 2:
            t[name][0].reverse()
            yield "turned_" + name, folder(pack(*entries(t)))
        t = tensors()
        t[name] = [t[name][0][:-1] + [t[name][0][-1] // 2], t[name][1][:len(t[name][1]) // 2]]
        yield "half_" + name, folder(pack(*entries(t)))
        head, data = entries(tensors())
        head[name]["dtype"] = "I32"
        yield "integers_" + name, folder(pack(head, data))
    moe = dict(architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", head_dim=16,
               num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
               decoder_sparse_step=1, mlp_only_layers=[], norm_topk_prob=True)
    for k, v in (("num_experts", 0), ("num_experts", -4), ("num_experts", 2**40),
                 ("num_experts_per_tok", 0), ("num_experts_per_tok", 5),
                 ("moe_intermediate_size", 0), ("decoder_sparse_step", 0),
                 ("mlp_only_layers", 3), ("mlp_only_layers", ["x"])):
        yield f"moe_{k}_{v}", folder(cfg=config(**dict(moe, **{k: v})))
    ds = dict(architectures=["DeepseekV3ForCausalLM"], model_type="deepseek_v3", kv_lora_rank=16,
              q_lora_rank=None, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16,
              n_routed_experts=8, n_shared_experts=1, num_experts_per_tok=2, n_group=2,
              topk_group=1, first_k_dense_replace=1, moe_intermediate_size=16,
              norm_topk_prob=True, routed_scaling_factor=1.0, scoring_func="sigmoid",
              topk_method="noaux_tc")
    for k, v in (("kv_lora_rank", 0), ("qk_rope_head_dim", 7), ("qk_rope_head_dim", 0),
                 ("v_head_dim", -8), ("n_group", 3), ("n_group", 0), ("topk_group", 3),
                 ("topk_group", 0), ("n_routed_experts", 2**31), ("first_k_dense_replace", -1),
                 ("scoring_func", "tanh"), ("topk_method", "random"),
                 ("routed_scaling_factor", "x"),
                 ("num_nextn_predict_layers", 2**31), ("q_lora_rank", -3)):
        yield f"ds_{k}_{v}", folder(cfg=config(**dict(ds, **{k: v})))
    head, data = entries(tensors())
    name = "model.layers.0.mlp.up_proj.weight"
    fp8 = config(quantization_config=dict(quant_method="fp8", fmt="e4m3",
                                          weight_block_size=[128, 128]))
    t = tensors()
    t[name] = [[FF, D], b"\x38" * (FF * D)]
    head, data = entries(t)
    head[name]["dtype"] = "F8_E4M3"
    yield "fp8_no_scale", folder(pack(head, data), fp8)
    t[name + "_scale_inv"] = [[2, 2], struct.pack("<4f", 1, 1, 1, 1)]
    head, data = entries(t)
    head[name]["dtype"] = "F8_E4M3"
    yield "fp8_scale_shape", folder(pack(head, data), fp8)
