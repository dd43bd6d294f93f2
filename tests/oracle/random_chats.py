# SPDX-License-Identifier: Apache-2.0
"""Conversations at random, from a seed: everything that clients send and templates look at, in good
and in bad order."""
import random

from chats import ADD, HTML, KOELN, TOOLS, UNI, call

TEXTS = ["", " ", "\n", "Hello", "Grüße, 毕老师！", UNI,
         HTML, "a\n\nb\n", "  padded  ", "x" * 300, "<think>\nhm\n</think>\n\nyes",
         "</think>no", "<think>open", "<tool_call>{}</tool_call>",
         "[INST] x [/INST]", "0", "None", "null", "{\"a\": 1}", "\"quoted\"",
         "/no_think", "/think go", "line\r\nline",
         "tab\tq", "'", "\\n", "{{ x }}", "<|channel|>final", "[THINK]t[/THINK]r"]
ARGS = [{}, {"city": "Köln", "days": 2}, {"a": 1, "b": 2.5},
        {"n": None, "t": True, "f": False}, {"list": [1, "x", None, {"k": []}]},
        {"s": "a \"b\" <c> & 'd'\nnew"}, {"deep": {"er": {"est": [[], {}]}}},
        {"big": 123456789012345678, "neg": -0.5, "e": 1e-7},
        '{"city": "Bonn"}', "{}", "", "not json", "[1]", '{"a": "ü"}', None]
SCHEMAS = [
    {"type": "object", "properties": {}},
    {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
    {"type": "object", "properties": {
        "path": {"type": ["string", "null"], "description": "Where\nit is", "default": None},
        "kind": {"enum": ["a", "b"], "type": "string"},
        "n": {"type": "integer", "minimum": 0, "maximum": 9},
        "list": {"type": "array", "items": {"type": "number"}},
        "one": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "o": {"type": "object", "properties":
                  {"x": {"type": "boolean", "description": "<x> & \"y\""}}, "required": ["x"]}},
        "required": ["path", "o"], "additionalProperties": False},
    {"type": "object", "$defs": {"P": {"type": "object", "properties": {"z": {"type": "string"}}}},
     "properties": {"p": {"$ref": "#/$defs/P"}, "const": {"const": 3}, "any": {}}},
    {"type": "object", "properties": {"m": {"type": "object", "additionalProperties": {
        "type": "array", "items": {"type": "array", "items": {"type": "string"}}}},
                                      "u": {"oneOf": [{"type": "null"}, {
                                          "type": "string", "format": "date"}]}, "nested": {
                                          "type": "array",
                                          "items": {"type": "object",
                                                    "properties": {"i": {"type": "integer"}}}}}},
    None,
]


def tool(r, i):
    f = {"name": r.choice(["get_weather", "add", "search.web", "run-it", "x" * 40, "naïve"])
         + (str(i) if i else "")}
    if r.random() < .8:
        f["description"] = r.choice(["Adds", "", "Two\nlines", "It's <b>bold</b> & \"so\"", "毕"])
    p = r.choice(SCHEMAS)
    if p is not None or r.random() < .3:
        f["parameters"] = p
    if r.random() < .2:
        f["strict"] = True
    if r.random() < .15:
        f["return"] = {"type": "string", "description": "what"}
    return {"type": "function", "function": f}


def content(r):
    k = r.random()
    if k < .72:
        return r.choice(TEXTS)
    if k < .82:
        return None
    parts = [r.choice([{"type": "text", "text": r.choice(TEXTS)},
                       {"type": "text", "text": r.choice(TEXTS)},
                       {"type": "image"}, {"type": "image_url", "image_url": {"url": "data:,"}},
                       {"type": "thinking", "thinking": "mm"},
                       {"type": "text"}, "bare"])
             for _ in range(r.randrange(4))]
    return parts


def calls(r):
    out = []
    for i in range(r.choice([0, 1, 1, 1, 2, 3])):
        c = r.choice([KOELN, ADD, call(r.choice(["f", "get_weather", "a.b"]), r.choice(ARGS),
                                       r.choice(["call_0", "abcdefghi", "functions.f:0", ""]))])
        c = dict(c, function=dict(c["function"]))
        if r.random() < .1:
            c.pop("id")
        if r.random() < .1:
            c = c["function"]
        out.append(c)
    return out


def message(r, role):
    m = {"role": role}
    if r.random() < .97:
        m["content"] = content(r)
    if role == "assistant":
        if r.random() < .4:
            m["tool_calls"] = calls(r) if r.random() < .95 else None
        for key in ("reasoning_content", "reasoning", "thinking"):
            if r.random() < .25:
                m[key] = r.choice(TEXTS + [None])
        if r.random() < .05:
            m["prefix"] = True
    if role == "tool":
        if r.random() < .8:
            m["tool_call_id"] = r.choice(["call_0", "call_1", "abcdefghi", "functions.f:0"])
        if r.random() < .6:
            m["name"] = r.choice(["get_weather", "add", "f"])
    if r.random() < .04:
        m["name"] = "Ann"
    return m


KWARGS = {"enable_thinking": [True, False], "thinking": [True, False],
          "reasoning_effort": ["low", "medium", "high", "none", None],
          "preserve_thinking": [True, False], "clear_thinking": [True, False],
          "date_string": ["26 Jul 2024"], "tools_in_user_message": [True, False],
          "custom_tools": [TOOLS, None], "builtin_tools": [["code_interpreter"], [
              "browser", "python"]], "xml_tools": [TOOLS], "python_tools": [TOOLS],
          "documents": [[{"title": "T", "text": "body"}],
                        [{"title": "A & B", "contents": "c", "doc_id": 3}], []],
          "model_identity": ["You are X."],
          "thinking_budget": [0, 512, -1], "add_vision_id": [True],
          "keep_past_thinking": [True, False], "thinking_mode": ["on", "off", "thinking", "chat"],
          "today": ["2026-01-02"], "citations": [True],
          "available_tools": [TOOLS], "enable_tools": [True], "strip_reasoning": [True],
          "drop_thinking": [True, False], "language": ["en"],
          "controls": [{"length": "short"}], "mode": ["think"]}


def one(seed):
    """(name, messages, options of the rendering)"""
    r = random.Random(seed)
    out, opts = [], {}
    if r.random() < .5:
        out.append(message(r, r.choice(["system", "system", "system", "developer"])))
    if r.random() < .55:  # in order, as clients do it
        for _ in range(r.randrange(1, 5)):
            out.append(message(r, "user"))
            if r.random() < .8:
                a = message(r, "assistant")
                out.append(a)
                for _ in a.get("tool_calls") or []:
                    out.append(message(r, "tool"))
        if r.random() < .6:
            out.append(message(r, "user"))
    else:
        for _ in range(r.randrange(7)):
            out.append(message(r, r.choice(["user", "user", "assistant", "assistant", "tool",
                                            "system", "developer", "ipython", "function", "odd"])))
    tame = r.random() < .5  # plain texts only: most templates get through these
    for m in out:
        if tame and not isinstance(m.get("content"), str):
            m["content"] = r.choice(TEXTS)
    if r.random() < .5:
        opts["tools"] = [tool(r, i)
                         for i in range(r.choice([1, 1, 2, 3]))] if r.random() < .95 else []
    if r.random() < .3:
        opts["noprompt"] = True
    if r.random() < .5:
        opts["kwargs"] = {k: r.choice(KWARGS[k])
                          for k in r.sample(sorted(KWARGS), r.choice([1, 2, 4]))}
    return f"random_{seed}", out, opts
