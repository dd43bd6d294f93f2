# SPDX-License-Identifier: Apache-2.0
"""A gpt_oss checkpoint that says by heart what a model of that family says: reasoning, then an
answer, or a call where the prompt has tools. For checks of Harmony's channels through the server.

Its embeddings are one dimension for each word of the script, its head is the table of what follows
what. Layer 1 looks at all tokens alike (queries and keys are 0), so what it sums up is how often
three words have been there; each of them rules out some words: after the first word of reasoning
it does not reason again, with tools it calls instead of answering, after a result it answers.
Experts add 0."""
import json
import os
import struct

D, HEAD, E, F = 64, 32, 4, 32
END = ["<|return|>", "<|call|>"]
SPECIAL = ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>"] + END
NEXT = {  # word: what follows it, the likeliest first
    "assistant": ["<|channel|>"],
    "<|channel|>": ["analysis", "final", "commentary"],
    "analysis": ["<|message|>"], "final": ["<|message|>"], "json": ["<|message|>"],
    "<|message|>": ["Hmm,", "The sum", '{"a": 3,'],
    "Hmm,": [" a sum."], " a sum.": ["<|end|>"], "<|end|>": ["<|start|>"],
    "<|start|>": ["assistant"],
    "The sum": [" is 7."], " is 7.": ["<|return|>"],
    "commentary": [" to=functions.add "], " to=functions.add ": ["<|constrain|>"],
    "<|constrain|>": ["json"], '{"a": 3,': [' "b": 4}'], ' "b": 4}': ["<|call|>"]}
STATE = {  # word that was there: what it does to others
    "Hmm,": {"analysis": -1, "Hmm,": -1},
    "namespace": {"final": -1, "The sum": -1},
    " to=assistant": {"final": 1, "The sum": 1, "commentary": -1, '{"a": 3,': -1}}
WORDS = list(dict.fromkeys(SPECIAL + list(NEXT) + [w for to in NEXT.values() for w in to] +
                           list(STATE)))
REASON, ANSWER, ARGS = "Hmm, a sum.", "The sum is 7.", {"a": 3, "b": 4}

TEMPLATE = """<|start|>system<|message|>Reasoning: {{ reasoning_effort or 'medium' }}
Valid channels: analysis, commentary, final.<|end|>
{%- if tools %}<|start|>developer<|message|>namespace functions {
{%- for t in tools %}
type {{ t.function.name }} = (_: {{ t.function.parameters | tojson }}) => any;
{%- endfor %}
}<|end|>{% endif %}
{%- for m in messages %}
{%- if m.role == 'assistant' and m.tool_calls %}
{%- if m.thinking %}<|start|>assistant<|channel|>analysis<|message|>
{{- m.thinking }}<|end|>{% endif %}
{%- set f = m.tool_calls[0].function %}<|start|>assistant<|channel|>commentary to=functions.
{{- f.name }} <|constrain|>json<|message|>{{ f.arguments | tojson }}<|call|>
{%- elif m.role == 'assistant' %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>
{%- elif m.role == 'tool' %}<|start|>functions.add to=assistant<|channel|>commentary<|message|>
{{- m.content }}<|end|>
{%- else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|start|>assistant{% endif %}"""


def bf16(values):
    raw = struct.pack(f"<{len(values)}f", *values)
    return b"".join(raw[i + 2:i + 4] for i in range(0, len(raw), 4))


class Tensors:
    def __init__(self):
        self.head, self.body = {}, b""

    def put(self, name, dtype, shape, raw):
        self.head[name] = dict(dtype=dtype, shape=shape,
                               data_offsets=[len(self.body), len(self.body) + len(raw)])
        self.body += raw

    def matrix(self, name, rows, cols, at=None, fill=0.0):
        """at: {(row, column): value}; the others are fill. rows 0: a vector."""
        x = [fill] * (max(rows, 1) * cols)
        for (i, k), v in (at or {}).items():
            x[i * cols + k] = v
        self.put(name, "BF16", [rows, cols] if rows else [cols], bf16(x))

    def write(self, path):
        text = json.dumps(self.head).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text + self.body)


def layer(t, i):
    p = f"model.layers.{i}."
    dim = {w: k for k, w in enumerate(WORDS)}
    seen = {(k, dim[w]): 1.0 for k, w in enumerate(STATE)} if i else {}
    told = {(D - 1 - k, k): 1000.0 for k in range(len(STATE))} if i else {}
    for n in ("input_layernorm", "post_attention_layernorm"):
        t.matrix(p + n + ".weight", 0, D, fill=1.0)
    for n, rows, at in (("q", 4 * HEAD, {}), ("k", 2 * HEAD, {}), ("v", 2 * HEAD, seen)):
        t.matrix(f"{p}self_attn.{n}_proj.weight", rows, D, at)
        t.matrix(f"{p}self_attn.{n}_proj.bias", 0, rows)
    t.matrix(p + "self_attn.o_proj.weight", D, 4 * HEAD, told)
    t.matrix(p + "self_attn.o_proj.bias", 0, D)
    t.matrix(p + "self_attn.sinks", 0, 4, fill=-30.0)
    t.matrix(p + "mlp.router.weight", E, D)
    t.matrix(p + "mlp.router.bias", 0, E)
    for n, rows, cols in (("gate_up_proj", 2 * F, D), ("down_proj", D, F)):
        x = p + "mlp.experts." + n
        t.put(x + "_blocks", "U8", [E, rows, cols // 32, 16], bytes(E * rows * cols // 2))
        t.put(x + "_scales", "U8", [E, rows, cols // 32], bytes([127]) * (E * rows * cols // 32))
        t.matrix(x + "_bias", E, rows)


def make(path, tiny):
    """The folder at path; tiny: that of the tiny checkpoints, for a tokenizer."""
    os.makedirs(path)
    with open(f"{tiny}/gpt_oss/tokenizer.json", encoding="utf-8") as f:
        tok = json.load(f)
    n0 = len(tok["model"]["vocab"])
    ids = {w: n0 + i for i, w in enumerate(WORDS)}
    tok["added_tokens"] = [x for x in tok["added_tokens"] if x["id"] < n0] + [
        dict(id=ids[w], content=w, single_word=False, lstrip=False, rstrip=False,
             normalized=False, special=w in SPECIAL) for w in WORDS]
    n_vocab = n0 + len(WORDS)
    config = dict(
        architectures=["GptOssForCausalLM"], model_type="gpt_oss", vocab_size=n_vocab,
        hidden_size=D, intermediate_size=F, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=HEAD, num_local_experts=E, num_experts_per_tok=2,
        sliding_window=16, layer_types=["sliding_attention", "full_attention"], hidden_act="silu",
        swiglu_limit=7.0, rms_norm_eps=1e-5, rope_theta=150000, max_position_embeddings=4096,
        rope_scaling=dict(rope_type="yarn", factor=32.0, beta_fast=32.0, beta_slow=1.0,
                          truncate=False, original_max_position_embeddings=128),
        attention_bias=True, tie_word_embeddings=False, eos_token_id=ids["<|return|>"],
        quantization_config=dict(quant_method="mxfp4", modules_to_not_convert=[
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens",
            "lm_head"]))
    t = Tensors()
    dim = {w: k for k, w in enumerate(WORDS)}
    t.matrix("model.embed_tokens.weight", n_vocab, D, {(ids[w], dim[w]): 1.0 for w in WORDS})
    head = {(ids[to], dim[w]): 20.0 * (1.0, 0.8, 0.7)[i]
            for w, row in NEXT.items() for i, to in enumerate(row)}
    for k, row in enumerate(STATE.values()):
        head.update({(ids[w], D - 1 - k): 20.0 * v for w, v in row.items()})
    t.matrix("lm_head.weight", n_vocab, D, head)
    t.matrix("model.norm.weight", 0, D, fill=1.0)
    for i in range(2):
        layer(t, i)
    t.write(path + "/model.safetensors")
    for name, x in (("config", config), ("tokenizer", tok),
                    ("generation_config", dict(eos_token_id=[ids[w] for w in END])),
                    ("tokenizer_config", dict(tokenizer_class="PreTrainedTokenizerFast",
                                              eos_token="<|return|>", chat_template=TEMPLATE))):
        with open(f"{path}/{name}.json", "w", encoding="utf-8") as f:
            json.dump(x, f, ensure_ascii=False)
    return path
