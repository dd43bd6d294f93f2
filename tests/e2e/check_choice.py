#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which of a model's chat templates is taken: with and without tools, from every place that holds
some, and --chat-template.

  check_choice.py [BUILD]
"""
import json
import os
import shutil
import sys

import e2e
import ggufkeys
from badgguf import STR

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "serve"))

TOOLS = [{"type": "function", "function": {"name": "f", "description": "",
                                           "parameters": {"type": "object", "properties": {}}}}]
T = "T{{tools|length}}"


def entry(name, template):
    return {"name": name, "template": template}


# name, chat_template of tokenizer_config.json, further files, what comes without and with tools
# (None: an error with these words)
FOLDERS = [
    ("one", "D", {}, "D", "D"),
    ("list", [entry("default", "D"), entry("tool_use", T), entry("rag", "R")], {}, "D", "T1"),
    ("list, tool_use first", [entry("tool_use", T), entry("default", "D")], {}, "D", "T1"),
    ("list, a name twice", [entry("default", "X"), entry("tool_use", "Y"),
                            entry("default", "D"), entry("tool_use", T)], {}, "D", "T1"),
    ("mapping", {"default": "D", "tool_use": T}, {}, "D", "T1"),
    ("only default named", [entry("default", "D"), entry("rag", "R")], {}, "D", "D"),
    ("no default", [entry("tool_use", T), entry("rag", "R")],
     {}, ("tool_use", "rag", "none is the default"), "T1"),
    ("jinja", None, {"chat_template.jinja": "J"}, "J", "J"),
    ("jinja beats config", [entry("default", "D"), entry("tool_use", T)],
     {"chat_template.jinja": "J"}, "J", "J"),
    ("jinja and folder", "D",
     {"chat_template.jinja": "J", "additional_chat_templates/tool_use.jinja": T,
                               "additional_chat_templates/rag.jinja": "R",
      "additional_chat_templates/note.txt": "{% bad"}, "J", "T1"),
    ("folder's default", None, {"chat_template.jinja": "J",
                                "additional_chat_templates/default.jinja": "D"}, "D", "D"),
    ("folder beats config", [entry("default", "D"), entry("tool_use", "X")],
     {"additional_chat_templates/tool_use.jinja": T}, "D", "T1"),
    ("config beats processor", "D", {"chat_template.json": json.dumps({"chat_template": "P"})},
     "D", "D"),
    ("processor alone", None, {"chat_template.json": json.dumps({"chat_template": "P"})}, "P", "P"),
    ("none", None, {}, ("has no chat template",), ("has no chat template",)),
    ("a bad one for tools", [entry("default", "D"), entry("tool_use", "{% import x %}")],
     {}, ("tool_use", "line 1"), ("tool_use", "line 1")),
]


class Check:
    def __init__(self, tmp):
        self.exe, self.tally, self.tmp = e2e.sluice(), e2e.Tally("choice of templates"), tmp
        self.m, self.t = tmp + "/m.json", tmp + "/t.json"
        json.dump([{"role": "user", "content": "hi"}], open(self.m, "w"))
        json.dump(TOOLS, open(self.t, "w"))

    def rendered(self, name, model, plain, tools, *more):
        for what, want, args in (("without", plain, ()), ("with", tools, ("--tools", self.t))):
            code, out, err = e2e.run([self.exe, "template",
                                      "-m", model, "--messages", self.m, *args, *more])
            if isinstance(want, str):
                bad = (code or out.decode() != want) and f"{code} {out!r} {err!r}, not {want!r}"
            else:
                bad = e2e.one_line_failure(code, err) or (
                    not all(w in err for w in want) and f"{err!r} lacks {want}")
            self.tally.check(f"{name} {what} tools", bad)

    def folder(self, name, template, files):
        d = f"{self.tmp}/{name}"
        os.makedirs(d + "/additional_chat_templates")
        shutil.copy(e2e.tiny() + "/qwen3/tokenizer.json", d)
        config = json.load(open(e2e.tiny() + "/qwen3/tokenizer_config.json"))
        config.pop("chat_template", None)
        if template is not None:
            config["chat_template"] = template
        json.dump(config, open(d + "/tokenizer_config.json", "w"))
        for f, text in files.items():
            open(f"{d}/{f}", "w").write(text)
        return d

    def gguf(self):
        src, key = e2e.tiny() + "/qwen3.gguf", "tokenizer.chat_template"
        for name, keys, plain, tools in (
                ("gguf two", {key: (STR, "D"), key + ".tool_use": (STR, T),
                              key + ".rag": (STR, "R")}, "D", "T1"),
                ("gguf one", {key: (STR, "D"), key + ".rag": (STR, "R")}, "D", "D"),
                ("gguf no default", {key: None, key + ".tool_use": (STR, T)},
                 ("tool_use", "none is the default"), "T1"),
                ("gguf none", {key: None}, ("has no chat template",), ("has no chat template",))):
            self.rendered(name, ggufkeys.write(src, f"{self.tmp}/{name}.gguf", keys), plain, tools)

    def own(self):
        """--chat-template takes the place of all of them, in every command that renders; its faults
        are named with its file."""
        d = self.folder("own", [entry("default", "D"), entry("tool_use", T)], {})
        for name, text in (("mine", "M{{ messages[0].content }}{{ eos_token }}\n"),
                           ("bom", "\ufeffB"), ("bad", "a\n{% import x %}")):
            open(f"{self.tmp}/{name}.jinja", "w", encoding="utf-8").write(text)
        mine, bad = self.tmp + "/mine.jinja", self.tmp + "/bad.jinja"
        eos = json.load(open(d + "/tokenizer_config.json"))["eos_token"]
        self.rendered("mine", d, "Mhi" + eos, "Mhi" + eos, "--chat-template", mine)
        self.rendered("bom", d, "B", "B", "--chat-template", self.tmp + "/bom.jinja")
        self.rendered("bad", d, ("bad.jinja", "line 2"),
                      ("bad.jinja", "line 2"), "--chat-template", bad)
        self.rendered("absent", d, ("nothing.jinja",),
                      ("nothing.jinja",), "--chat-template", self.tmp + "/nothing.jinja")
        code, _, err = e2e.run([self.exe, "template",
                                "--template", mine, "--chat-template", mine, "--messages", self.m])
        self.tally.check("both options", code != 2 and f"exit {code}: {err}")
        model, ids = e2e.tiny() + "/qwen3", []
        open(mine, "w").write("M{{ messages[0].content }}")
        for args in (("--chat", "-p", "hello"), ("-p", "Mhello")):
            own = ["--chat-template", mine] if "--chat" in args else []
            code, out, err = e2e.run([self.exe, "run", "-m", model,
                                      "--json", "-q", "-n", "4", *own, *args])
            ids.append(code or {k: json.loads(out)[k] for k in ("prompt_tokens", "tokens")})
        self.tally.check("run", ids[0] != ids[1] and f"{ids}")
        code, _, err = e2e.run([self.exe, "chat", "-m", model, "--chat-template", bad], stdin=b"")
        self.tally.check("chat",
                         e2e.one_line_failure(code, err) or ("bad.jinja" not in err and err))

    def served(self):
        import serve
        model = ggufkeys.write(e2e.tiny() + "/qwen3.gguf", self.tmp + "/served.gguf",
                               {"tokenizer.chat_template": (STR, "D"),
                                "tokenizer.chat_template.tool_use": (STR, T)})
        open(self.tmp + "/own.jinja", "w").write("O")
        body = {"messages": [{"role": "user", "content": "hi"}]}
        for name, args, want in (("serve", (), ["D", "T1"]), (
                "serve --chat-template", ("--chat-template", self.tmp + "/own.jinja"), ["O", "O"])):
            with serve.Server("-m", model, *args) as s:
                got = [s.post("/apply-template", dict(body, **k))[1].get("prompt")
                       for k in ({}, {"tools": TOOLS})]
            self.tally.check(name, got != want and f"{got}, not {want}")


def main():
    with e2e.scratch() as tmp:
        c = Check(tmp)
        for name, template, files, plain, tools in FOLDERS:
            c.rendered(name, c.folder(name, template, files), plain, tools)
        c.gguf()
        c.own()
        c.served()
    c.tally.exit()


if __name__ == "__main__":
    main()
