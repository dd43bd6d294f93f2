# SPDX-License-Identifier: Apache-2.0
"""Row A5: tools, json_schema, n and logprobs through the openai package, each way whole and as a
stream. By hand: needs openai, jsonschema.

    $(tests/oracle/clients.sh) tests/oracle/serve_scenarios.py build
"""
import itertools
import json
import math
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e", "serve"))
from serve import Server  # noqa: E402
import e2e  # noqa: E402
import jsonschema  # noqa: E402
import openai  # noqa: E402

T = e2e.Tally("serve: scenarios")
N = 0


def tool(name, props, required=None, strict=False):
    f = {"name": name, "description": name.replace("_", " "), "parameters": {
        "type": "object", "properties": props, "required": required
        if required is not None else list(props), "additionalProperties": False}}
    return {"type": "function", "function": dict(f, strict=True) if strict else f}


CITY = tool("get_weather", {"city": {"type": "string", "maxLength": 20}}, strict=True)
ADD = tool("add", {"a": {"type": "integer"}, "b": {"type": "integer"}}, strict=True)
MODE = tool("set_mode", {"mode": {"enum": ["on", "off"]}, "level": {"type": "number"}}, strict=True)
NONE = tool("stop_all", {}, strict=True)
WEATHER = [{"role": "user", "content": "What is the weather in Rome?"}]
SUM = [{"role": "user", "content": "What is 17 + 25?"}]
SCHEMAS = {
    "object": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {
        "type": "integer"}}, "required": ["name", "age"]},
    "enum": {"type": "object", "properties": {"c": {"enum": ["red", "green", 3, None]}},
             "required": ["c"]},
    "array": {"type": "object", "properties": {"v": {"type": "array", "items": {
        "type": "integer"}, "minItems": 1, "maxItems": 3}}, "required": ["v"]},
    "nested": {"type": "object", "properties": {"a": {"type": "object", "properties": {
        "b": {"type": "boolean"}}, "required": ["b"]}}, "required": ["a"]},
    "any": {"type": "object", "properties": {
        "x": {"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 4}]}}, "required": ["x"]},
    "ref": {"type": "object", "properties": {"p": {"$ref": "#/$defs/q"}},
            "required": ["p"], "$defs": {"q": {"const": "yes"}}},
    "pattern": {"type": "object", "properties": {
        "id": {"type": "string", "pattern": "^[a-f]{3}[0-9]{2}$"}}, "required": ["id"]},
    "date": {"type": "object", "properties": {"d": {"type": "string", "format": "date"}},
             "required": ["d"]},
    "range": {"type": "object", "properties":
                  {"n": {"type": "integer", "minimum": 3, "maximum": 17}}, "required": ["n"]},
}


def scenario(name, fn, *args):
    global N
    N += 1
    try:
        fn(*args)
        T.check(name, None)
    except Exception as e:  # noqa: BLE001
        T.check(name, f"{type(e).__name__}: {str(e)[:300]}")


def calls_of(c, stream, **more):
    """([(id, name, arguments)], finish_reason, text)"""
    if not stream:
        ch = c.chat.completions.create(model="demo", **more).choices[0]
        return [(t.id, t.function.name, t.function.arguments)
                for t in ch.message.tool_calls or []], ch.finish_reason, ch.message.content
    by, end, text = {}, None, ""
    for p in c.chat.completions.create(model="demo", stream=True, **more):
        for ch in p.choices:
            end = ch.finish_reason or end
            text += ch.delta.content or ""
            for t in ch.delta.tool_calls or []:
                row = by.setdefault(t.index, ["", "", ""])
                row[0] = row[0] or t.id
                row[1] += t.function.name or ""
                row[2] += t.function.arguments or ""
    return [tuple(by[i]) for i in sorted(by)], end, text or None


def check_calls(c, stream, tools, choice, messages, parallel, least):
    calls, end, text = calls_of(c, stream, messages=messages, tools=tools,
                                tool_choice=choice, parallel_tool_calls=parallel, temperature=0,
                                max_tokens=200)
    by_name = {t["function"]["name"]: t["function"]["parameters"] for t in tools}
    assert len(calls) >= least, (calls, text)
    assert parallel or len(calls) <= 1, calls
    assert len({i for i, _, _ in calls}) == len(calls) and all(i for i, _, _ in calls), calls
    for _, name, args in calls:
        jsonschema.validate(json.loads(args), by_name[name])
        if isinstance(choice, dict):
            assert name == choice["function"]["name"], name
    assert (end == "tool_calls") == bool(calls), (end, calls)
    if choice == "none":
        assert not calls and text


def check_schema(c, stream, schema, strict):
    kw = dict(model="demo", messages=[{"role": "user", "content": "Answer in JSON"}],
              temperature=0, max_tokens=300,
              response_format={"type": "json_schema",
                               "json_schema": {"name": "x", "strict": strict, "schema": schema}})
    if stream:
        text = "".join(p.choices[0].delta.content or ""
                       for p in c.chat.completions.create(stream=True, **kw) if p.choices)
    else:
        r = c.chat.completions.create(**kw)
        assert r.choices[0].message.refusal is None
        text = r.choices[0].message.content
    jsonschema.validate(json.loads(text), schema, format_checker=jsonschema.FormatChecker())


def check_logprobs(c, stream, n, top):
    kw = dict(model="demo", messages=SUM, n=n, seed=5,
              temperature=0.8, logprobs=True, top_logprobs=top, max_tokens=12)
    text, got = [""] * n, [[] for _ in range(n)]
    if stream:
        for p in c.chat.completions.create(stream=True, **kw):
            for ch in p.choices:
                text[ch.index] += ch.delta.content or ""
                got[ch.index] += ch.logprobs.content if ch.logprobs else []
    else:
        for ch in c.chat.completions.create(**kw).choices:
            text[ch.index], got[ch.index] = ch.message.content, ch.logprobs.content
    for s, lp in zip(text, got):
        assert lp, "no logprobs"
        for e in lp:
            assert e.logprob <= 0 and bytes(e.bytes).decode(errors="replace") == e.token
            assert len(e.top_logprobs) == top and sum(math.exp(t.logprob)
                                                      for t in e.top_logprobs) <= 1 + 1e-4
            assert [t.logprob for t in e.top_logprobs] == sorted(
                (t.logprob for t in e.top_logprobs), reverse=True)
        assert b"".join(bytes(e.bytes)
                        for e in lp).decode(errors="replace").startswith(s[:1]) or not s


def check_text_logprobs(c, n, k, echo):
    r = c.completions.create(model="demo", prompt="Once upon a time",
                             n=n, logprobs=k, echo=echo, max_tokens=6, seed=3, temperature=0.7)
    assert len(r.choices) == n
    for ch in r.choices:
        lp = ch.logprobs
        assert len(lp.tokens) == len(lp.token_logprobs) == len(
            lp.text_offset) == len(lp.top_logprobs)
        assert "".join(lp.tokens) == ch.text and lp.text_offset == sorted(lp.text_offset)
        assert (lp.token_logprobs[0] is None) == echo and all(v <= 0 for v in lp.token_logprobs[1:])


def check_responses(c, stream, choice):
    kw = dict(model="demo", input=WEATHER, temperature=0, max_output_tokens=200, tool_choice=choice,
              tools=[{"type": "function", **t["function"]} for t in (CITY, ADD)])
    if stream:
        with c.responses.stream(**kw) as s:
            seq = [e.sequence_number for e in s]
            r = s.get_final_response()
        assert seq == sorted(set(seq))
    else:
        r = c.responses.create(**kw)
    calls = [o for o in r.output if o.type == "function_call"]
    assert (not calls) == (choice == "none"), r.output
    for o in calls:
        jsonschema.validate(json.loads(o.arguments),
                            {"get_weather": CITY, "add": ADD}[o.name]["function"]["parameters"])


def check_refused(c, body):
    try:
        c.chat.completions.create(**{"model": "demo", "messages": SUM, **body})
    except openai.BadRequestError as e:
        assert e.body["message"]
        return
    raise AssertionError("no error")


with Server("--alias", "demo") as server:
    cl = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="x", max_retries=0)
    for stream in (False, True):
        way = "stream" if stream else "whole"
        for (name, choice, least), parallel in itertools.product([
                ("auto", "auto", 0), ("none", "none", 0), ("required", "required", 1),
                ("named", {"type": "function", "function": {"name": "add"}}, 1),
                ("allowed by name", {"type": "function", "function": {"name": "set_mode"}}, 1)],
                (True, False)):
            scenario(f"tools {name} parallel {parallel} {way}",
                     check_calls, cl, stream, [CITY, ADD, MODE], choice, WEATHER, parallel, least)
        scenario(f"a tool without arguments {way}",
                 check_calls, cl, stream, [NONE], "required", SUM, False, 1)
        for (name, schema), strict in itertools.product(SCHEMAS.items(), (True, False)):
            if strict:
                schema = dict(schema, additionalProperties=False)
            scenario(f"schema {name} strict {strict} {way}",
                     check_schema, cl, stream, schema, strict)
        for n, top in ((1, 0), (1, 20), (3, 2), (8, 1)):
            scenario(f"n {n} top {top} {way}", check_logprobs, cl, stream, n, top)
        for choice in ("auto", "none", "required"):
            scenario(f"responses {choice} {way}", check_responses, cl, stream, choice)
    for n, k, echo in ((1, 0, False), (1, 5, True), (2, 3, False), (3, 0, False)):
        scenario(f"completions n {n} logprobs {k} echo {echo}", check_text_logprobs, cl, n, k, echo)
    for name, body in {"n 0": {"n": 0}, "n 129": {"n": 129}, "top without logprobs":
                           {"top_logprobs": 2}, "top 21": {"logprobs": True, "top_logprobs": 21},
                       "required without tools": {"tool_choice": "required"},
                       "a named tool that is not there": {
                           "tools": [ADD],
                           "tool_choice": {"type": "function", "function": {"name": "x"}}},
                       "format without a schema": {"response_format": {"type": "json_schema"}},
                       "schema of an unknown type":
                           {"response_format": {"type": "json_schema", "json_schema": {
                                   "name": "x", "schema": {"type": "x"}}}}}.items():
        scenario(f"refused: {name}", check_refused, cl, body)
    print(f"{N} scenarios")
    T.check("enough scenarios", None if N >= 60 else N)
T.exit()
