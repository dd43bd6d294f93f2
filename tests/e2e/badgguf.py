# SPDX-License-Identifier: Apache-2.0
"""A GGUF writer that can be told to lie, and the table of bad GGUF files (docs/reliability.md F2,
F6, F8, F9).

kinds() yields (name, bytes, also_inspect): also_inspect is false where the file is well formed and
only cannot be run, so `inspect` may accept it.
"""
import math
import random
import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
FMT = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q",
       I64: "q", F64: "d"}
D, FF, H, V, L = 32, 48, 2, 300, 2


def string(s):
    b = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(b)) + b


def value(t, v):
    if t == STR:
        return string(v)
    if t == ARR:
        et, items = v
        return struct.pack("<IQ", et, len(items)) + b"".join(value(et, x) for x in items)
    return struct.pack("<" + FMT[t], v)


class Gguf:
    """keys: [name, type, value]; tensors: [name, dims (ne), type, data]. Everything may be
    overridden."""

    def __init__(self):
        r = random.Random(3)
        self.magic, self.version, self.align = b"GGUF", 3, 32
        self.n_tensor = self.n_kv = None
        self.raw_kv = {}      # index -> bytes instead of the encoded pair
        self.raw_info = {}    # index -> bytes instead of the tensor info
        self.offset = {}      # index -> offset written
        self.cut = None
        p = "llama."
        toks = [f"t{i}" for i in range(V)]
        toks[10] = "t1t2"
        self.keys = [
            ["general.architecture", STR, "llama"], [p + "block_count", U32, L],
            [p + "context_length", U32, 64], [p + "embedding_length", U32, D],
            [p + "feed_forward_length", U32, FF], [p + "attention.head_count", U32, H],
            [p + "attention.head_count_kv", U32, 1],
            [p + "attention.layer_norm_rms_epsilon", F32, 1e-5],
            [p + "rope.freq_base", F32, 10000.0], [p + "rope.dimension_count", U32, D // H],
            [p + "vocab_size", U32, V], ["tokenizer.ggml.model", STR, "gpt2"],
            ["tokenizer.ggml.pre", STR, "gpt-2"], ["tokenizer.ggml.tokens", ARR, (STR, toks)],
            ["tokenizer.ggml.token_type", ARR, (I32, [1] * V)],
            ["tokenizer.ggml.merges", ARR, (STR, ["t1 t2"])],
            ["tokenizer.ggml.bos_token_id", U32, 0], ["tokenizer.ggml.eos_token_id", U32, 1]]

        def mat(rows, cols):
            return struct.pack(f"<{rows * cols}f", *(r.gauss(0, cols**-0.5)
                                                     for _ in range(rows * cols)))

        def ones(n):
            return struct.pack(f"<{n}f", *([1.0] * n))
        self.tensors = [["token_embd.weight", [D, V], 0, mat(V, D)],
                        ["output_norm.weight", [D], 0, ones(D)],
                        ["output.weight", [D, V], 0, mat(V, D)]]
        for i in range(L):
            b = f"blk.{i}."
            self.tensors += [[b + "attn_norm.weight", [D], 0, ones(D)],
                             [b + "attn_q.weight", [D, D], 0, mat(D, D)],
                             [b + "attn_k.weight", [D, D // H], 0, mat(D // H, D)],
                             [b + "attn_v.weight", [D, D // H], 0, mat(D // H, D)],
                             [b + "attn_output.weight", [D, D], 0, mat(D, D)],
                             [b + "ffn_norm.weight", [D], 0, ones(D)],
                             [b + "ffn_gate.weight", [D, FF], 0, mat(FF, D)],
                             [b + "ffn_up.weight", [D, FF], 0, mat(FF, D)],
                             [b + "ffn_down.weight", [FF, D], 0, mat(D, FF)]]

    def key(self, name, t=None, v=None, drop=False):
        k = next(i for i, x in enumerate(self.keys) if x[0] == name)
        if drop:
            del self.keys[k]
        else:
            self.keys[k] = [name, self.keys[k][1] if t is None else t, v]
        return self

    def add(self, name, t, v):
        self.keys.append([name, t, v])
        return self

    def tensor(self, name):
        return next(x for x in self.tensors if x[0] == name)

    def header(self):
        """(bytes up to the end of the tensor infos, end of each field)"""
        out, marks = bytearray(self.magic), [4]

        def put(b):
            out.extend(b)
            marks.append(len(out))
        put(struct.pack("<I", self.version))
        put(struct.pack("<Q", len(self.tensors) if self.n_tensor is None else self.n_tensor))
        put(struct.pack("<Q", len(self.keys) if self.n_kv is None else self.n_kv))
        for i, (k, t, v) in enumerate(self.keys):
            put(self.raw_kv.get(i) or string(k) + struct.pack("<I", t) + value(t, v))
        at = 0
        for i, (n, dims, t, data) in enumerate(self.tensors):
            info = string(n) + struct.pack("<I", len(dims))
            info += b"".join(struct.pack("<Q", d) for d in dims)
            info += struct.pack("<IQ", t, self.offset.get(i, at))
            put(self.raw_info.get(i) or info)
            at += -(-len(data) // 32) * 32
        return bytes(out), marks

    def bytes(self):
        out = bytearray(self.header()[0])
        out += b"\0" * (-len(out) % 32)
        for t in self.tensors:
            out += t[3] + b"\0" * (-len(t[3]) % 32)
        return bytes(out if self.cut is None else out[:self.cut])


def info(name, n_dims, dims, t, off):
    return (string(name) + struct.pack("<I", n_dims)
            + b"".join(struct.pack("<Q", d & (2**64 - 1)) for d in dims)
            + struct.pack("<IQ", t, off & (2**64 - 1)))


def kv(key, t, payload):
    return string(key) + struct.pack("<I", t) + payload


def structure():
    """Files that no reader may accept."""
    def make(**kw):
        g = Gguf()
        for k, v in kw.items():
            setattr(g, k, v)
        return g.bytes()
    good = Gguf().bytes()
    yield "empty", b""
    yield "one_byte", b"G"
    yield "magic_only", b"GGUF"
    yield "magic_wrong", make(magic=b"GGML")
    yield "magic_reversed", make(magic=b"FUGG")
    yield "text_file", b"This is not a model.\n" * 50
    for v in (0, 1, 4, 0x03000000, 0xffffffff):
        yield f"version_{v}", make(version=v)
    for n in (2**60, 2**63, 2**64 - 1):
        yield f"n_tensor_{n:x}", make(n_tensor=n)
        yield f"n_kv_{n:x}", make(n_kv=n)
    yield "n_tensor_one_more", make(n_tensor=len(Gguf().tensors) + 1)
    yield "n_kv_one_more", make(n_kv=len(Gguf().keys) + 1)
    yield "n_kv_one_less", make(n_kv=len(Gguf().keys) - 1)
    one = struct.pack("<I", 1)
    yield "key_length_huge", make(raw_kv={2: struct.pack("<Q", 2**63) + b"abc"})
    yield "key_length_past_end", make(raw_kv={2: struct.pack("<Q", len(good) + 1) + b"abc"})
    yield "key_empty", make(raw_kv={2: kv("", U32, one)})
    yield "key_nul", make(raw_kv={2: kv(b"a\0b", U32, one)})
    yield "key_bad_utf8", make(raw_kv={2: kv(b"a\xff\xfe", U32, one)})
    yield "key_twice", make(raw_kv={2: kv("llama.block_count", U32, one)})
    for t in (13, 255, 2**32 - 1):
        yield f"value_type_{t}", make(raw_kv={2: kv("x", t, one)})
    yield "string_huge", make(raw_kv={2: kv("x", STR, struct.pack("<Q", 2**62))})
    yield "array_huge", make(raw_kv={2: kv("x", ARR, struct.pack("<IQ", U8, 2**61))})
    yield "array_u64_overflow", make(raw_kv={2: kv("x", ARR, struct.pack("<IQ", U64, 2**61 + 1))})
    yield "array_of_type_99", make(raw_kv={2: kv("x", ARR, struct.pack("<IQ", 99, 1) + one)})
    yield "array_strings_short", make(raw_kv={2: kv("x", ARR, struct.pack("<IQ", STR, 2**40))})
    deep = struct.pack("<IQ", ARR, 1) * 20000
    yield "array_nested", make(raw_kv={2: kv("x", ARR, deep)})
    for v in (0, 3, 1 << 31):
        g = Gguf()
        yield f"alignment_{v}", g.add("general.alignment", U32, v).bytes()
    yield "alignment_string", Gguf().add("general.alignment", STR, "32").bytes()
    n = "output_norm.weight"
    yield "tensor_twice", make(raw_info={2: info(n, 1, [D], 0, 0)})
    yield "tensor_name_empty", make(raw_info={1: info("", 1, [D], 0, 0)})
    yield "tensor_name_huge", make(raw_info={1: struct.pack("<Q", 2**62) + b"x"})
    yield "tensor_name_long", make(raw_info={1: info("n" * 70000, 1, [D], 0, 0)})
    for d in (5, 17, 2**32 - 1):
        yield f"n_dims_{d}", make(raw_info={1: info(n, d, [D], 0, 0)})
    yield "dim_huge", make(raw_info={1: info(n, 1, [2**63], 0, 0)})
    yield "dim_max", make(raw_info={1: info(n, 1, [2**64 - 1], 0, 0)})
    yield "dims_overflow", make(raw_info={1: info(n, 2, [2**32, 2**32], 0, 0)})
    yield "dims_overflow4", make(raw_info={1: info(n, 4, [2**17] * 4, 0, 0)})
    for t in (4, 5, 31, 36, 43, 99, 139, 202, 2**32 - 1):
        yield f"tensor_type_{t}", make(raw_info={1: info(n, 1, [D], t, 0)})
    yield "row_not_blocks", make(raw_info={1: info(n, 1, [D - 1], 2, 0)})
    yield "row_not_superblocks", make(raw_info={1: info(n, 1, [D], 12, 0)})
    yield "offset_past_end", make(offset={1: 1 << 40})
    yield "offset_overflow", make(offset={1: 2**64 - 32})
    yield "offset_unaligned", make(offset={1: 4})
    yield "offset_overlap", make(offset={1: 32})
    yield "data_short_one_byte", make(cut=len(good) - 33)
    yield "data_missing", Gguf().header()[0]


def meaning():
    """Well-formed files that cannot be run."""
    p = "llama."
    yield "arch_missing", Gguf().key("general.architecture", drop=True).bytes()
    yield "arch_unknown", Gguf().key("general.architecture", STR, "frobnicate").bytes()
    yield "arch_number", Gguf().key("general.architecture", U32, 7).bytes()
    yield "arch_empty", Gguf().key("general.architecture", STR, "").bytes()
    for k in ("block_count", "embedding_length", "attention.head_count",
              "attention.layer_norm_rms_epsilon"):
        yield "no_" + k, Gguf().key(p + k, drop=True).bytes()
    for k in ("block_count", "context_length", "embedding_length", "feed_forward_length",
              "attention.head_count", "attention.head_count_kv", "rope.dimension_count"):
        for v in (0, 2**31, 2**32 - 1):
            if k != "context_length" or not v:  # only large
                yield f"{k}_{v}", Gguf().key(p + k, U32, v).bytes()
        yield f"{k}_minus", Gguf().key(p + k, I32, -1).bytes()
        yield f"{k}_text", Gguf().key(p + k, STR, "32").bytes()
        if k != "context_length":
            yield f"{k}_huge", Gguf().key(p + k, U64, 2**63).bytes()
    yield "head_count_odd", Gguf().key(p + "attention.head_count", U32, 5).bytes()
    yield "head_kv_not_dividing", Gguf().key(p + "attention.head_count_kv", U32, 3).bytes()
    for k in ("attention.layer_norm_rms_epsilon", "rope.freq_base"):
        for v in (math.nan, math.inf, -1.0):
            yield f"{k}_{v}", Gguf().key(p + k, F32, v).bytes()
    yield "rope_base_zero", Gguf().key(p + "rope.freq_base", F32, 0.0).bytes()
    yield "rope_scaling_unknown", Gguf().add(p + "rope.scaling.type", STR, "spiral").bytes()
    yield "rope_factor_nan", Gguf().add(p + "rope.scaling.type", STR, "yarn").add(
        p + "rope.scaling.factor", F32, math.nan).bytes()
    for name in ("token_embd.weight", "output_norm.weight", "blk.1.attn_k.weight",
                 "blk.0.ffn_down.weight", "blk.1.ffn_norm.weight"):
        g = Gguf()
        g.tensors.remove(g.tensor(name))
        yield "missing_" + name, g.bytes()
        g = Gguf()
        t = g.tensor(name)
        if len(t[1]) == 2:
            t[1].reverse()
            if t[1][0] != t[1][1]:
                yield "transposed_" + name, g.bytes()
        g = Gguf()
        t = g.tensor(name)
        t[1][-1] -= 1
        t[3] = t[3][:len(t[3]) // (t[1][-1] + 1) * t[1][-1]]
        yield "short_" + name, g.bytes()
        g = Gguf()
        t = g.tensor(name)
        t[1].append(2)
        t[3] *= 2
        yield "one_dim_more_" + name, g.bytes()
        g = Gguf()
        t = g.tensor(name)
        t[2] = 26  # I32
        yield "integers_" + name, g.bytes()
    g = Gguf()
    yield "split_part_missing", g.add("split.no", U16, 0).add("split.count", U16, 2).add(
        "split.tensors.count", I32, 40).bytes()
    g = Gguf()
    yield "split_no_past_count", g.add("split.no", U16, 9).add("split.count", U16, 2).bytes()


def text():
    """The model runs from ids, but its tokenizer is broken: tokenize must say so."""
    k = "tokenizer.ggml."
    yield "tok_model_unknown", Gguf().key(k + "model", STR, "frob").bytes()
    yield "tok_pre_unknown", Gguf().key(k + "pre", STR, "nobody-knows").bytes()
    yield "tok_tokens_numbers", Gguf().key(k + "tokens", ARR, (I32, [1] * V)).bytes()
    yield "tok_merge_no_space", Gguf().key(k + "merges", ARR, (STR, ["t1"])).bytes()
    yield "tok_merge_unknown", Gguf().key(k + "merges", ARR, (STR, ["zz yy"])).bytes()
    yield "tok_types_short", Gguf().key(k + "token_type", ARR, (I32, [1] * (V - 1))).bytes()
    yield "tok_types_text", Gguf().key(k + "token_type", ARR, (STR, ["1"] * V)).bytes()
    yield "tok_bos_past_end", Gguf().key(k + "bos_token_id", U32, V + 7).bytes()
    yield "tok_eos_text", Gguf().key(k + "eos_token_id", STR, "1").bytes()
    yield "tok_tokens_none", Gguf().key(k + "tokens", ARR, (STR, [])).bytes()
    yield "tok_template_broken", Gguf().add("tokenizer.chat_template", STR,
                                            "{% for x in %}").bytes()
