# SPDX-License-Identifier: Apache-2.0
"""A small real byte-level BPE for each pre-tokenizer family, as tokenizer.json and as GGUF keys."""
import base64
import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers as pre
from tokenizers import trainers

TEXT = """\
The model reads a prompt and writes the answer, one token at a time. 12 apples and 345 pears
cost 1999 cents in 2024. It's what we'll see when they've come; I'm sure you'd agree.
def add(a, b):\n    return a + b\n\nfor (int i = 0; i < 10; ++i) { sum += x[i]; }\n
Größe, naïve, café, señor, Ελλάδα, Москва, 北京是中国的首都。東京タワー。 The answer is in the
table below: name, value, unit. the there then than that this these those and an are as at
user assistant system tool call result function name arguments content message role JSON
""" * 3
S = r"\s+(?!\S)|\s+"
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
        r"\s*[\r\n]+|" + S)
LLAMA3 = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
DS3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^" "\r\n" r"\p{L}\p{P}\p{S}]?"
       r"[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[" "\r\n" r"]*|\s*[" "\r\n" r"]+|" + S)
# The letters that the deepseek-llm rule names (most scripts with case, no others).
DSL_LETTERS = ("A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-"
               "ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-"
               "ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃")
DSL = [r"[" "\r\n" r"]", r"\s?[" + DSL_LETTERS + "]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$",
       r"[一-龥ࠀ-一가-퟿]+"]
CHATML = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
          "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
TURNS = ("{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}{{ m['content'] }}"
         "{% elif m['role'] == 'user' %}{{ '<｜User｜>' + m['content'] }}"
         "{% else %}{{ '<｜Assistant｜>' + m['content'] + eos_token }}{% endif %}{% endfor %}"
         "{% if add_generation_prompt %}{{ '<｜Assistant｜>' }}{% endif %}")


def split(p):
    return pre.Split(Regex(p), "isolated")


def byte_level(use_regex=False):
    return pre.ByteLevel(add_prefix_space=False, use_regex=use_regex)


FAMILY = {
    "gpt-2": lambda: byte_level(True),
    "smollm": lambda: pre.Sequence([pre.Digits(individual_digits=True), byte_level(True)]),
    "llama-bpe": lambda: pre.Sequence([split(LLAMA3), byte_level()]),
    "qwen2": lambda: pre.Sequence([split(QWEN), byte_level()]),
    "deepseek-v3": lambda: pre.Sequence([split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"),
                                         split(DS3), byte_level()]),
    "deepseek-llm": lambda: pre.Sequence([split(p) for p in DSL]
                                         + [pre.Digits(individual_digits=True), byte_level()]),
}


# Gemma 4's: words of code points, spaces as U+2581, bytes for what has no word.
GEMMA_FIRST = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
GEMMA_MORE = ["<|tool>", "<tool|>", "<|tool_call>", "<tool_call|>", "<|tool_response>",
              "<tool_response|>", '<|"|>', "<|think|>", "<|channel>", "<channel|>", "<|turn>",
              "<turn|>"]
# those that are text for who reads an answer
GEMMA_SEEN = ["<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|tool_response>",
              "<tool_response|>", '<|"|>']
GEMMA = ("{{ bos_token }}{% for m in messages %}{{ '<|turn>' + ('model' if m['role'] == 'assistant'"
         " else m['role']) + '\n' + m['content'] | trim + '<turn|>\n' }}{% endfor %}"
         "{% if add_generation_prompt %}{{ '<|turn>model\n' }}{% endif %}")


def make_gemma():
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Replace(" ", "▁")
    t.pre_tokenizer = pre.Split(" ", "merged_with_previous")
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                   decoders.Fuse()])
    byte = [f"<0x{i:02X}>" for i in range(256)]
    # 480 of 512: pairs of words beside the letters
    t.train_from_iterator(TEXT.split("\n") + ["\n\n", "\n"] * 30 + ["  ", "    "] * 20,
                          trainers.BpeTrainer(vocab_size=480, show_progress=False,
                                              special_tokens=GEMMA_FIRST + GEMMA_MORE + byte))
    d = json.loads(t.to_str())
    d["added_tokens"] = [dict(a, normalized=False) for a in d["added_tokens"]
                         if not a["content"].startswith("<0x")]
    added = [(x, True) for x in GEMMA_FIRST + GEMMA_MORE]
    return Tokenizer.from_str(json.dumps(d)), added, GEMMA, "<bos>", "<eos>"


def make(family):
    """(Tokenizer, [(text, special)] of its added tokens, template, bos, eos)"""
    if family == "gemma4":
        return make_gemma()
    ds = family.startswith("deepseek")
    first = (["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"] if ds
             else ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    t = Tokenizer(models.BPE())
    if family == "qwen2":
        t.normalizer = normalizers.NFC()
    t.pre_tokenizer = FAMILY[family]()
    t.decoder = decoders.ByteLevel()
    tr = trainers.BpeTrainer(vocab_size=308, special_tokens=first, show_progress=False,
                             initial_alphabet=pre.ByteLevel.alphabet())
    t.train_from_iterator(TEXT.split("\n"), tr)
    more = (["<｜User｜>", "<｜Assistant｜>", "<think>", "</think>"] if ds
            else ["<tool_call>", "</tool_call>", "<think>", "</think>"])
    t.add_special_tokens([AddedToken(x, special=True, normalized=False) for x in first])
    t.add_tokens([AddedToken(x, special=False, normalized=False) for x in more])
    added = [(x, True) for x in first] + [(x, False) for x in more]
    bos, eos = (first[0], first[1]) if ds else (first[1], first[2])
    return t, added, TURNS if ds else CHATML, bos, eos


# Kimi's: the words' ranks in base64, and the names of tokens that follow them.
KIMI_TOKENS = ["[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>",
               "<|im_assistant|>", "<|start_header_id|>",
               "<|end_header_id|>", "[EOT]", "<|im_system|>", "<|tool_calls_section_begin|>",
               "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>",
               "<|tool_call_end|>", "<|im_middle|>", "<think>", "</think>"]
KIMI_WORDS = 320
KIMI = ("{% for m in messages %}{% if m['role'] == 'user' %}<|im_user|>user<|im_middle|>"
        "{% elif m['role'] == 'assistant' %}<|im_assistant|>assistant<|im_middle|><think></think>"
        "{% else %}<|im_system|>{{ m['role'] }}<|im_middle|>{% endif %}{{ m['content'] }}<|im_end|>"
        "{% endfor %}{% if add_generation_prompt %}<|im_assistant|>assistant<|im_middle|>"
        "{% endif %}")


def kimi_words():
    """Words by rank: the bytes, then what is joined first."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre.Sequence([split(LLAMA3), byte_level()])
    t.train_from_iterator(TEXT.split("\n"), trainers.BpeTrainer(
        vocab_size=KIMI_WORDS, show_progress=False, initial_alphabet=pre.ByteLevel.alphabet()))
    byte = {c: b for b,
            c in zip(sorted(range(256), key=lambda b: (not (33 <= b <= 126 or 161 <= b <= 172
                                                                        or b >= 174), b)),
                                 [chr(b) for b in range(256)
                                  if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
                                 + [chr(256 + i) for i in range(68)])}
    merges = json.loads(t.to_str())["model"]["merges"]
    pairs = [m if isinstance(m, list) else m.split(" ") for m in merges]
    return [bytes([b]) for b in range(256)] + [bytes(byte[c] for c in a + b) for a, b in pairs]


def write_kimi(path):
    with open(path + "/tiktoken.model", "w") as f:
        for i, w in enumerate(kimi_words()):
            f.write(f"{base64.b64encode(w).decode()} {i}\n")
    cfg = dict(tokenizer_class="TikTokenTokenizer", bos_token="[BOS]", eos_token="[EOS]",
               auto_map={"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]},
               clean_up_tokenization_spaces=False, model_max_length=1024, chat_template=KIMI,
               additional_special_tokens=KIMI_TOKENS[2:5],
               added_tokens_decoder={str(KIMI_WORDS + i): dict(
                   content=t, lstrip=False, normalized=False, rstrip=False, single_word=False,
                   special=not t.endswith("think>")) for i, t in enumerate(KIMI_TOKENS)})
    with open(path + "/tokenizer_config.json", "w", encoding="utf-8") as f:
        json.dump(cfg, f, ensure_ascii=False, indent=1)


def write_folder(path, family):
    if family == "kimi-k2":
        return write_kimi(path)
    t, added, template, bos, eos = make(family)
    with open(path + "/tokenizer.json", "w", encoding="utf-8") as f:
        json.dump(json.loads(t.to_str()), f, ensure_ascii=False, separators=(",", ":"))
    cfg = dict(tokenizer_class="PreTrainedTokenizerFast", bos_token=bos, eos_token=eos,
               pad_token=added[2][0] if family.startswith("deepseek") else added[0][0],
               add_bos_token=family.startswith(("deepseek", "gemma")),
               clean_up_tokenization_spaces=False,
               model_max_length=1024, chat_template=template)
    with open(path + "/tokenizer_config.json", "w", encoding="utf-8") as f:
        json.dump(cfg, f, ensure_ascii=False, indent=1)


def gguf_keys(family, n_vocab):
    """A function that adds the tokenizer to a GGUFWriter."""
    t, added, template, bos, eos = make(family)
    model = json.loads(t.to_str())["model"]
    special = dict(added)
    vocab = t.get_vocab()
    by_id = {i: s for s, i in vocab.items()}
    toks, types = [], []
    for i in range(n_vocab):
        s = by_id.get(i)
        toks.append(s if s is not None else f"[PAD{i}]")
        types.append(5 if s is None else 1 if s not in special else 3 if special[s] else 4)
        if family == "gemma4" and s is not None:
            types[-1] = (6 if s.startswith("<0x") else 2 if s == "<unk>"
                         else 4 if s in GEMMA_SEEN else types[-1])

    def add(wr):
        wr.add_tokenizer_model("gemma4" if family == "gemma4" else "gpt2")
        if family != "gemma4":
            wr.add_tokenizer_pre(family)
        wr.add_token_list(toks)
        wr.add_token_types(types)
        if family == "gemma4":
            wr.add_token_scores([-1000.0] * len(toks))  # which nobody reads beside merges
            wr.add_unk_token_id(vocab["<unk>"])
            wr.add_pad_token_id(vocab["<pad>"])
            wr.add_add_space_prefix(False)
        wr.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in model["merges"]])
        wr.add_bos_token_id(vocab[bos])
        wr.add_eos_token_id(vocab[eos])
        wr.add_add_bos_token(family.startswith(("deepseek", "gemma")))
        wr.add_chat_template(template)
    return add
