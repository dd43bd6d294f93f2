#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Expected outputs of tests/e2e/cli that an oracle can give: greedy tokens by transformers, ids by
`tokenizers`.

  make_cli.py TINY       writes tests/e2e/cli/{run,tok}_*.sh and .stdout.exact
"""
import json
import os
import sys
import tempfile

import torch
from tokenizers import Tokenizer

import tiny_hf
from tiny_specs import SPECS

CLI = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e", "cli")
N_TOKEN = 312
PICK = ("python3 -c 'import json,sys; j = json.load(sys.stdin); "
        "print(j[\"prompt_tokens\"], j[\"tokens\"], j[\"finish_reason\"])'")


def case(name, script, out):
    with open(f"{CLI}/{name}.sh", "w", encoding="utf-8") as f:
        f.write("# SPDX-License-Identifier: Apache-2.0\n" + script + "\n")
    with open(f"{CLI}/{name}.stdout.exact", "w", encoding="utf-8") as f:
        f.write(out)


def greedy(name, spec, ids, n):
    with tempfile.TemporaryDirectory() as tmp:
        w = tiny_hf.weights(name, spec)
        if spec.get("fp8"):
            w = tiny_hf.write_folder(tmp + "/fp8", spec, w)
        model = tiny_hf.reference(spec, w, tmp + "/hf", [ids])[2]
        out, gap = list(ids), 1e9
        with torch.no_grad():
            for _ in range(n):
                z = model(torch.tensor([out])).logits[0, -1]
                z[N_TOKEN:] = -1e30  # ids that the tokenizer does not have are never made
                top = z.topk(2).values
                gap = min(gap, float(top[0] - top[1]))
                out.append(int(z.argmax()))
    assert gap > 5e-4, (name, gap)
    return out[len(ids):]


def main():
    tiny = sys.argv[1]
    os.makedirs(CLI, exist_ok=True)
    ids = [7, 44, 190, 3, 251, 77, 18, 205, 120]
    for name, spec in SPECS.items():
        toks = greedy(name, spec, ids, 16)
        models = [name] + ([name + ".gguf"] if "plain" in spec["gguf"] else [])
        script = "\n".join(
            f"$SLUICE run -m $TINY/{m} --ids {','.join(map(str, ids))} -n 16 --acts f32 "
            "--ignore-eos "
            f"--json | {PICK}" for m in models)
        case("run_" + name, script, f"{len(ids)} {toks} length\n" * len(models))
    text = "It's 2024: 東京 and <｜User｜>naïve <think>x</think> <|im_start|>\n\n  end"
    for name in ("llama3", "smollm", "qwen3", "deepseek_v3", "deepseek_v2", "llama2"):
        t = Tokenizer.from_file(f"{tiny}/{name}/tokenizer.json")
        enc = t.encode(text, add_special_tokens=False).ids
        bos = 0 if name.startswith("deepseek") else 1
        q = text.replace("'", "'\\''").replace("\n", "\\n")
        script = "\n".join(
            f"printf '{q}' | $SLUICE tokenize -m $TINY/{m} {flags}"
            for m in (name, name + ".gguf") for flags in ("--special", "--special --bos"))
        script += (f"\necho '{json.dumps(enc)}' | $SLUICE tokenize -m $TINY/{name} --decode "
                   "--special")
        a = json.dumps(enc, separators=(",", ":"))
        b = json.dumps([bos] + enc, separators=(",", ":"))
        case("tok_" + name, script, f"{a}\n{b}\n" * 2 + text)


if __name__ == "__main__":
    main()
