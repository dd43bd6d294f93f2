# SPDX-License-Identifier: Apache-2.0
"""Conversations for the template checks: (name, messages, options of the rendering)."""

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather",
        "description": "Weather of a place, today & tomorrow's <b>forecast</b>",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "City, e.g. \"Köln\""},
            "days": {"type": "integer", "enum": [1, 2, 3]},
            "units": {"type": ["string", "null"], "default": None}},
            "required": ["city"]}}},
    {"type": "function", "function": {
        "name": "add", "description": "Adds", "parameters": {
            "type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
            "required": ["a", "b"]}}},
]


def u(t):
    return {"role": "user", "content": t}


def a(t, **kw):
    return dict({"role": "assistant", "content": t}, **kw)


def s(t):
    return {"role": "system", "content": t}


def call(name, args, cid="call_0"):
    return {"id": cid, "type": "function", "function": {"name": name, "arguments": args}}


def tool(t, cid="call_0", name="get_weather"):
    return {"role": "tool", "content": t, "tool_call_id": cid, "name": name}


KOELN = call("get_weather", {"city": "Köln", "days": 2})
ADD = call("add", {"a": 1, "b": 2.5}, "call_1")
UNI = "Grüße, 毕老师！ ½ – “q” 👩‍👩‍👧‍👦 \u0301 שלום\u200b\tTab\r\nCRLF"
HTML = "a < b && c > 'd' \"e\" {{ not jinja }} {% if %} {# no #} \\n <|im_end|> </think> <｜User｜>"

CHATS = [
    ("one", [u("Hello")], {}),
    ("one_noprompt", [u("Hello")], dict(noprompt=True)),
    ("system", [s("Be brief."), u("Hi there")], {}),
    ("turns", [u("1+1?"), a("2"), u("2+2?")], {}),
    ("turns_end", [s("S"), u("1+1?"), a("2"), u("2+2?"), a("4")], dict(noprompt=True)),
    ("turns_end_prompt", [u("x"), a("y")], {}),
    ("unicode", [s(UNI), u(UNI), a(UNI), u("…")], {}),
    ("html", [s(HTML), u(HTML), a(HTML), u(HTML)], {}),
    ("spaces", [s("  \n sys \n\n"), u("  lead and trail  \n"), a("\n\n answer \n"), u("\n")], {}),
    ("empty", [u("")], {}),
    ("empty_all", [s(""), u(""), a(""), u("x")], {}),
    ("tools", [u("Weather in Köln?")], dict(tools=True)),
    ("tools_system", [s("Use tools."), u("Weather?")], dict(tools=True)),
    ("call", [u("Weather?"), a("", tool_calls=[KOELN]), tool("{\"temp\": 21}")],
     dict(tools=True)),
    ("call_none", [u("Weather?"), a(None, tool_calls=[KOELN]), tool("rain")], dict(tools=True)),
    ("call_text", [u("Weather?"), a("Let me look.", tool_calls=[KOELN]), tool("sunny & hot"),
                   a("It is sunny."), u("Thanks")], dict(tools=True)),
    ("calls_two", [u("Both"), a("", tool_calls=[KOELN, ADD]), tool("sun"),
                   tool("3.5", "call_1", "add")], dict(tools=True)),
    ("calls_two_then", [s("S"), u("Both"), a("", tool_calls=[KOELN, ADD]), tool("sun"),
                        tool("3.5", "call_1", "add"), a("Sun and 3.5"), u("And?")],
     dict(tools=True)),
    ("call_string", [u("W?"), a("", tool_calls=[call("get_weather", '{"city": "Bonn"}')]),
                     tool("fog")], dict(tools=True)),
    ("call_twice", [u("W?"), a("", tool_calls=[KOELN]), tool("fog"), a("", tool_calls=[ADD]),
                    tool("4", "call_1", "add")], dict(tools=True)),
    ("think_inline", [u("Q"), a("<think>\nhmm\n</think>\n\nA1"), u("Q2"),
                      a("<think>no</think>A2")], {}),
    ("think_field", [u("Q"), a("A1", reasoning_content="because"), u("Q2"),
                     a("A2", reasoning_content="so\nthen")], dict(noprompt=True)),
    ("think_off", [u("Q")], dict(kwargs=dict(enable_thinking=False, thinking=False))),
    ("think_on", [s("S"), u("Q"), a("A"), u("Q2")],
     dict(kwargs=dict(enable_thinking=True, thinking=True))),
    ("think_call", [u("W?"), a("", reasoning_content="need weather", tool_calls=[KOELN]),
                    tool("fog")], dict(tools=True, kwargs=dict(enable_thinking=True))),
    ("parts", [u([{"type": "text", "text": "part one "}, {"type": "text", "text": "two"}])], {}),
    ("two_systems", [s("one"), s("two"), u("x")], {}),
    ("late_system", [u("x"), s("late"), u("y")], {}),
    ("two_users", [u("x"), u("y")], {}),
    ("assistant_first", [a("hi"), u("x")], {}),
    ("long", [m for i in range(12) for m in (u(f"question {i}"), a(f"answer {i}"))] + [u("end")],
     {}),
]
