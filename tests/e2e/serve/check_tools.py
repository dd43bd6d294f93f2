# SPDX-License-Identifier: Apache-2.0
"""Forced and strict calls, forms after reasoning, the cache of grammars: rows T7 to T9 as clients
see them.

check_tools.py BUILD [--full]: --full takes the numbers of the reliability table (10 000
schemas)."""
import json
import random
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

from serve import Server, chat, error_of, rss
import e2e

FULL = "--full" in sys.argv
T = e2e.Tally("serve: tools")
CHAT = "/v1/chat/completions"


def need(name, cond, what=""):
    T.check(name, None if cond else (what or "not so"))


def each(n_seed, one):
    """one(seed), some at a time: answers are the same in company, and steps of several cost less"""
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(one, range(n_seed)))


def tool(name, params=None, **more):
    f = {"name": name, "description": "d", **more}
    if params is not None:
        f["parameters"] = params
    return {"type": "function", "function": f}


def obj(**props):
    return {"type": "object", "properties": props,
            "required": list(props), "additionalProperties": False}


CITY = obj(city={"type": "string", "maxLength": 12}, unit={"enum": ["C", "F"]})
ADD = obj(a={"type": "integer", "minimum": 0, "maximum": 99}, b={"type": "integer"})
TREE = {"type": "object", "properties": {"v": {"type": "boolean"}, "kids": {
    "type": "array", "items": {"$ref": "#"}, "maxItems": 1}},
        "required": ["v"], "additionalProperties": False}
TOOLS = [tool("get_weather", CITY), tool("add", ADD, strict=True),
         tool("a-tree.x", TREE, strict=True), tool("nothing")]


def tree_ok(v):
    return isinstance(v, dict) and set(v) <= {"v", "kids"} and isinstance(v.get("v"), bool) and \
        len(v.get("kids", [])) <= 1 and all(tree_ok(k) for k in v.get("kids", []))


OK = {
    "get_weather": lambda v: set(v) == {"city", "unit"}
    and isinstance(v["city"], str) and len(v["city"]) <= 12 and
    v["unit"] in ("C", "F"),
    "add": lambda v: set(v) == {"a", "b"} and all(type(x) is int for x in v.values())
    and 0 <= v["a"] <= 99,
    "a-tree.x": tree_ok, "nothing": lambda v: v == {}}


def calls_of(message):
    return [(c["function"]["name"], c["function"]["arguments"])
            for c in message.get("tool_calls", [])]


def call_ok(name, args, allowed):
    try:
        return name in allowed and OK[name](json.loads(args))
    except ValueError:
        return False


CHOICES = [("required", list(OK)), ({"type": "function", "function": {"name": "add"}}, ["add"]),
           ({"type": "function", "function": {"name": "a-tree.x"}}, ["a-tree.x"]),
           ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [
               {"type": "function", "function": {"name": "nothing"}},
               {"type": "function", "function": {"name": "get_weather"}}]}},
            ["nothing", "get_weather"])]


def forced(s, family, n_seed):
    """Whatever is drawn: calls only, of the tools that are allowed, with arguments of their
    schema."""
    for choice, allowed in CHOICES:
        def one(seed):
            one = seed % 2 == 0
            body = chat(f"Go {seed}", tools=TOOLS,
                        tool_choice=choice, parallel_tool_calls=not one, temperature=1.3,
                        seed=seed, max_tokens=160, chat_template_kwargs={"thinking": seed % 3 == 2})
            status, r = s.post(CHAT, body)
            name = f"{family} {str(choice)[:40]} {seed}"
            if status != 200:
                T.check(name, f"{status} {r}")
                return
            c = r["choices"][0]
            calls = calls_of(c["message"])
            if c["finish_reason"] == "length":  # all but the last are whole
                need(name, all(call_ok(n, a, allowed) for n, a in calls[:-1])
                     and all(n in OK for n, a in calls), r)
                return
            need(name, c["finish_reason"] == "tool_calls"
                 and c["message"]["content"] is None and calls and
                 (len(calls) == 1 or not one) and all(call_ok(n, a, allowed) for n, a in calls), r)
            if seed % 4 == 0:
                streamed(s, name, body, c)
        each(n_seed, one)


def streamed(s, name, body, c):
    _, ev, _ = s.stream(CHAT, body)
    args, names, text, why = {}, {}, "", []
    for e in ev[:-1]:
        d = e["choices"][0]["delta"]
        text += d.get("content") or ""
        why.append(e["choices"][0]["finish_reason"])
        for t in d.get("tool_calls", []):
            args[t["index"]] = args.get(t["index"], "") + t["function"].get("arguments", "")
            names[t["index"]] = names.get(t["index"], "") + t["function"].get("name", "")
    got = [(names[i], args[i]) for i in sorted(args)]
    need(f"{name} streamed", got == calls_of(c["message"])
         and text == "" and why[-1] == c["finish_reason"], ev)


def strict(s, family, n_seed):
    """auto with strict tools: words, or calls; the arguments of strict ones by their schema."""
    def one(seed):
        status, r = s.post(CHAT, chat("What is 3 + 4?",
                                      tools=TOOLS, temperature=1.2, seed=seed, max_tokens=120))
        c = r["choices"][0]
        done = calls_of(c["message"])[:None if c["finish_reason"] != "length" else -1]
        need(f"{family} strict {seed}", status == 200 and all(
            n in OK and (n in ("get_weather", "nothing") or call_ok(n, a, [n])) for n, a in done),
             r)
    each(n_seed, one)
    form = {"type": "json_schema",
            "json_schema": {"name": "x", "schema": obj(n={"type": "integer"})}}
    def one(seed):
        status, r = s.post(CHAT, chat("What is 3 + 4?",
                                      tools=TOOLS, temperature=1.2, seed=seed, max_tokens=120,
                                      response_format=form,
                                      chat_template_kwargs={"thinking": seed % 2 == 1}))
        c = r["choices"][0]
        if c["finish_reason"] == "length":
            return
        text, calls = c["message"]["content"], calls_of(c["message"])
        need(f"{family} form or calls {seed}",
             status == 200 and (calls or set(json.loads(text)) == {"n"}), r)
    each(n_seed, one)


def loose(s, family):
    """Parameters that say nothing: arguments are an object all the same."""
    for i, params in enumerate(({}, {"description": "any"})):
        def one(seed):
            status, r = s.post(CHAT, chat("Go", tools=[tool("f", params)], tool_choice="required",
                                          parallel_tool_calls=False, temperature=1.5,
                                          seed=seed, max_tokens=60))
            c = r["choices"][0]
            need(f"{family} loose {i} {seed}",
                 status == 200 and (c["finish_reason"] == "length" or [
                isinstance(json.loads(a), dict) for _, a in calls_of(c["message"])] == [True]), r)
        each(4, one)


def reasoning(s):
    """A model that thinks before its answer: the form begins after the reasoning."""
    forms = [({"response_format": {"type": "json_object"}},
              lambda t: isinstance(json.loads(t), dict)),
             ({"structured_outputs": {"choice": ["red\n", "b\"l\\ue"]}},
              lambda t: t in ("red\n", "b\"l\\ue")),
             ({"guided_regex": "[0-9]{3}\\.[a-c\"]"}, lambda t: len(t) == 5),
             ({"guided_grammar": "root ::= x \"!\"\nx ::= \"yes\" | \"no\""},
              lambda t: t in ("yes!", "no!"))]
    for fields, ok in forms:
        def one(seed):
            status, r = s.post(CHAT,
                               chat("What is 3 + 4?", seed=seed, temperature=1, max_tokens=300,
                                          chat_template_kwargs={"thinking": True}, **fields))
            c = r["choices"][0] if status == 200 else None
            need(f"{fields} after reasoning {seed}", c and (c["finish_reason"] == "length" or
                 (ok(c["message"]["content"]) and c["message"]["reasoning_content"])), r)
        each(6, one)


def responses(s):
    tools = [{"type": "function", "name": "add", "parameters": ADD, "strict": True}]
    for choice in ("required", {"type": "function", "name": "add"},
                   {"type": "allowed_tools", "mode": "required",
                    "tools": [{"type": "function", "name": "add"}]}):
        status, r = s.post("/v1/responses",
                           {"input": "Add 3 and 4", "tools": tools, "tool_choice": choice,
                                             "parallel_tool_calls": False,
                            "max_output_tokens": 120})
        need(f"responses {choice}",
             status == 200 and [o["type"] for o in r["output"]] == ["function_call"] and
             call_ok(r["output"][0]["name"], r["output"][0]["arguments"], ["add"]), r)


def refused(s):
    def one(name, word, param, **more):
        got, _, data = s.call("POST", CHAT, chat("x", **more))
        problem = None if got == 400 else f"status {got}: {data[:200]!r}"
        problem = problem or error_of(data)
        if not problem:
            e = json.loads(data)["error"]
            problem = None if word in e["message"] and e["param"] == param else f"{e}"
        T.check(name, problem)

    unique = obj(s={"type": "array", "uniqueItems": True})  # no mask holds it
    bad = [tool("ok", ADD), tool("f", unique)]
    status, _ = s.post(CHAT, chat("x", tools=bad, max_tokens=2, tool_choice="required"))
    need("not strict: held as far as it can be", status == 200)
    one("a tool that is no schema", "#/type", "tools[1].function.parameters",
        tools=[TOOLS[1], tool("f", {"type": "text"})], tool_choice="required")
    one("a strict schema", "#/properties/s/uniqueItems",
        "tools[1].function.parameters", tools=[TOOLS[1], tool("f", unique, strict=True)])
    one("parameters that are no schema", "must be an object", "tools[0].function.parameters",
        tools=[tool("f", [1])], tool_choice="required")
    status, _ = s.post(CHAT, chat("x", tools=bad, max_tokens=2))
    need("auto", status == 200)
    status, _ = s.post(CHAT, chat("x", tools=bad, max_tokens=2,
                                  tool_choice={"type": "function", "function": {"name": "ok"}}))
    need("named", status == 200)
    one("mode", "auto or required", "tool_choice.mode", tools=TOOLS,
        tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "x", "tools": TOOLS}})
    one("no tools", "at least one", "tool_choice.tools", tools=TOOLS,
        tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}})
    one("foreign tool", "names no function", "tool_choice", tools=TOOLS,
        tool_choice={"type": "allowed_tools",
                     "allowed_tools": {"mode": "auto", "tools": [tool("other")]}})
    one("name of two lines", "line ends", "tools[0].function.name",
        tools=[tool("a\nb", ADD)], tool_choice="required")
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": unique, "strict": True}}
    one("form beside forced calls", "#/properties/s/uniqueItems",
        "response_format", tools=TOOLS, response_format=form)
    del form["json_schema"]["strict"]
    status, _ = s.post(CHAT, chat("x", response_format=form, max_tokens=2))
    need("a form that is not strict", status == 200)


def written(s):
    """Bytes that the server had written to disks."""
    with open(f"/proc/{s.proc.pid}/io") as f:
        return next(int(ln.split()[1]) for ln in f if ln.startswith("write_bytes"))


def cache(s, n):
    """T8: many schemas, each once, do not make the server grow; the same one is found again."""
    form = {"type": "json_schema",
            "json_schema": {"name": "x", "schema": obj(k={"enum": ["a", "b"]})}}
    hits = s.metric("sluice:grammar_cache_hits_total")
    for _ in range(5):
        s.post(CHAT, chat(response_format=form))
    need("found again", s.metric("sluice:grammar_cache_hits_total") == hits + 4)
    before, disk, rng, codes = rss(s), written(s), random.Random(1), []

    def some(k):
        for i in range(k, n, 4):
            props = {f"p{i}_{j}": {"type": rng.choice(["string", "integer", "boolean"])}
                     for j in range(1 + i % 12)}
            codes.append(s.post(CHAT, chat("x", max_tokens=2, response_format={
                "type": "json_schema", "json_schema": {"name": "x", "schema": obj(**props)}}))[0])

    th = [threading.Thread(target=some, args=(k,)) for k in range(4)]
    for t in th:
        t.start()
    for t in th:
        t.join()
    grown, held = rss(s) - before, s.metric("sluice:grammar_cache_bytes")
    print(f"{n} schemas: {grown} KiB more, {held / 1024:.0f} KiB in "
          f"{s.metric('sluice:grammar_cache_entries'):.0f} entries")
    need("all answered", codes == [200] * n, set(codes))
    need("nothing on disk", written(s) == disk, written(s) - disk)
    # they keep freed memory
    plain = not any(x in sys.argv[1] for x in ("asan", "tsan")) if len(sys.argv) > 1 else True
    need("bounded", (grown <= 64 << 10 or not plain) and held <= 32 << 20, (grown, held))


def text_forms(s, family):
    """Families that write a tag for each argument: texts as they are, everything else as JSON."""
    params = {"type": "object", "required": ["s", "n", "list", "e"],
              "additionalProperties": False, "$defs": {
        "i": {"type": "integer"}}, "properties": {
        "s": {"type": "string"}, "n": {"$ref": "#/$defs/i"},
        "list": {"type": "array", "items": {"$ref": "#/$defs/i"}, "maxItems": 2},
        "e": {"enum": ["1", "two"]}, "flag": {"type": "boolean"}}}
    def one(seed):
        status, r = s.post(CHAT, chat("Go", tools=[tool("f", params)],
                                      tool_choice="required", parallel_tool_calls=False,
                                      temperature=1.5, seed=seed, max_tokens=200))
        c = r["choices"][0]
        ok = status == 200 and (c["finish_reason"] == "length" or len(calls_of(c["message"])) == 1)
        for _, text in calls_of(c["message"]) if ok and c["finish_reason"] != "length" else []:
            v = json.loads(text)
            ok = ok and set(v) - {"flag"} == {"s", "n", "list", "e"} and type(v["s"]) is str and \
                type(v["n"]) is int and all(type(x) is int
                                            for x in v["list"]) and v["e"] in ("1", "two") and \
                type(v.get("flag", True)) is bool
        need(f"{family} texts and JSON {seed}", ok, r)
    each(6, one)
    # what pydantic makes of enums and of what may be None
    color = {"$ref": "#/$defs/color"}
    params = {"type": "object", "required": ["c", "oc", "on", "u", "of"],
              "additionalProperties": False, "$defs": {
        "color": {"enum": ["red", "green"], "type": "string"}}, "properties": {
        "c": color, "oc": {"anyOf": [color, {"type": "null"}], "default": None},
        "on": {"type": ["string", "null"], "maxLength": 2}, "u": {"allOf": [color], "title": "U"},
        "of": {"anyOf": [{"type": "null"}, {"type": "string", "minLength": 1, "maxLength": 6}]}}}
    two = {"red", "green"}
    def one(seed):
        status, r = s.post(CHAT, chat("Go", tools=[tool("f", params, strict=True)],
                                      tool_choice="required", parallel_tool_calls=False,
                                      temperature=1.5, seed=seed, max_tokens=200))
        c = r["choices"][0] if status == 200 else {"finish_reason": "none"}
        ok = c["finish_reason"] in ("length", "tool_calls")
        for _, text in calls_of(c["message"]) if c["finish_reason"] == "tool_calls" else []:
            v = json.loads(text)
            ok = ok and v["c"] in two and v["u"] in two and v["oc"] in two | {None} and \
                len(v["on"] or "") <= 2 and (v["of"] is None or 1 <= len(v["of"]) <= 6)
        need(f"{family} texts or null {seed}", ok, r)
    each(6, one)
    for props, word in (({"s": {"type": "string", "pattern": "a+"}}, "pattern"),
                        ({"s": {"anyOf": [{"type": "string", "maxLength": 1},
                                          {"type": "string", "minLength": 3}]}}, "several forms"),
                        ({"s": {"type": "string", "not": {"const": "a"}}}, "not can not"),
                        ({"s": {}}, "string or not")):
        got, _, data = s.call("POST", CHAT, chat("x", tools=[tool("f", obj(**props), strict=True)],
                                                 tool_choice="required"))
        need(f"{family} strict {word}", got == 400 and word.encode() in data, data)


HARMONY = """{{ reasoning_effort }};{% for m in messages %}{% if m.role == 'assistant' %}
<|start|>assistant{% if m.thinking %}
<|channel|>analysis<|message|>{{ m.thinking }}<|end|>{% endif %}{% if 'tool_calls' in m %}
 to=functions.{{ m.tool_calls[0].function.name }}
<|channel|>commentary<|message|>{{ m.tool_calls[0].function.arguments|tojson }}<|call|>{% endif %}
<|message|>{{ m.content }}
<|end|>{% else %}{{ m.content }}{% endif %};{% endfor %}{% if tools %}tools{% endif %}"""


def harmony(s):
    """Histories as its templates want them: reasoning before a call as thinking, that of an answer
    that is over not at all, one text beside a call, three efforts."""
    call = {"id": "a", "type": "function", "function": {"name": "nothing", "arguments": '{"a": 1}'}}
    past = [{"role": "user", "content": "u"},
            {"role": "assistant", "content": "w", "reasoning_content": "r", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": "t"},
            {"role": "assistant", "content": "c", "reasoning_content": "q"}]
    for effort, want in (("low", "low"), ("minimal", "low"), ("medium", "medium"), ("max", "high")):
        status, r = s.post("/apply-template",
                           {"messages": past, "tools": TOOLS, "reasoning_effort": effort})
        text = (r.get("prompt") or "").replace("\n", "")
        need(f"harmony's history {effort}", status == 200 and text == want + ";u;<|start|>assistant"
             "<|channel|>analysis<|message|>rw<|end|> "
             "to=functions.nothing<|channel|>commentary<|message|>"
             '{"a": 1}<|call|><|message|><|end|>;t;'
             "<|start|>assistant<|message|>c<|end|>;tools", r)
    status, r = s.post(CHAT, chat("Go", tools=TOOLS,
                                  tool_choice="required", seed=1, temperature=1.3, max_tokens=300))
    need("harmony by its template", status == 200 and r["choices"][0]["message"]["content"] is None,
         r)


GEMMA = """{%- macro value(v) -%}
{%- if v is none -%}null{%- elif v is string -%}<|"|>{{ v }}<|"|>
{%- elif v is boolean -%}{{ 'true' if v else 'false' }}
{%- elif v is mapping -%}{{ '{' }}
{%- set ns = namespace(some=false) -%}
{%- for k, x in v | dictsort -%}
{%- if ns.some %},{% endif -%}{%- set ns.some = true -%}{{ k }}:{{ value(x) }}
{%- endfor -%}{{ '}' }}
{%- elif v is sequence -%}[{%- for x in v -%}{{ value(x) }}{{ ',' if not loop.last }}{%- endfor -%}]
{%- else -%}{{ v }}{%- endif -%}
{%- endmacro -%}
{%- macro plain(text) -%}
{%- set ns = namespace(out='') -%}
{%- for part in text.split('<channel|>') -%}
{%- set ns.out = ns.out + (part.split('<|channel>')[0] if '<|channel>' in part else part) -%}
{%- endfor -%}{{ ns.out | trim }}
{%- endmacro -%}
{{ bos_token }}
{%- set ns = namespace(before=none) -%}
{%- set first = messages[0]['role'] in ['system', 'developer'] -%}
{%- if enable_thinking | default(false) or tools or first -%}
{{- '<|turn>system\n' -}}
{%- if enable_thinking is defined and enable_thinking -%}{{- '<|think|>\n' -}}{%- endif -%}
{%- if first -%}
{{ messages[0]['content'] | trim }}
{%- set loop_messages = messages[1:] -%}
{%- else -%}{%- set loop_messages = messages -%}{%- endif -%}
{%- for t in tools or [] -%}
<|tool>declaration:{{ t['function']['name'] }}{type:<|"|>
{{- t['function'].get('parameters', {}).get('type', 'object') | upper }}<|"|>}<tool|>
{%- endfor -%}{{- '<turn|>\n' -}}
{%- else -%}{%- set loop_messages = messages -%}{%- endif -%}
{%- for m in loop_messages -%}
{%- set role = 'model' if m['role'] == 'assistant' else m['role'] -%}
{%- if m['role'] == 'tool' -%}
<|tool_response>response:{{ m.get('name') or ns.before }}{value:{{ value(m['content']) }}
{{- '}<tool_response|>' -}}
{%- else -%}
{%- if ns.before is none or role != 'model' -%}{{- '<|turn>' + role + '\n' -}}{%- endif -%}
{%- set ns.before = none -%}
{%- if m.get('reasoning_content') and m.get('tool_calls') -%}
{{- '<|channel>thought\n' + m['reasoning_content'] + '\n<channel|>' -}}
{%- endif -%}
{%- if m['content'] is string -%}
{{ plain(m['content']) if role == 'model' else m['content'] | trim }}
{%- endif -%}
{%- for c in m['tool_calls'] or [] -%}
<|tool_call>call:{{ c['function']['name'] }}{{ value(c['function']['arguments']) }}<tool_call|>
{%- set ns.before = c['function']['name'] -%}
{%- endfor -%}
{%- if not m.get('tool_calls') -%}{{- '<turn|>\n' -}}{%- endif -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt and ns.before is none -%}{{- '<|turn>model\n' -}}
{%- if not enable_thinking | default(false) -%}{{- '<|channel>thought\n<channel|>' -}}{%- endif -%}
{%- endif -%}
"""


def gemma(s):
    """Gemma 4: what a template of its constructs makes of a history, and forced calls, whose
    arguments become JSON."""
    args = {"city": "a \"b\"", "n": 2, "l": [1.5, {"k": None}], "b": True}
    past = [{"role": "system", "content": " s "}, {"role": "user", "content": "u"},
            {"role": "assistant", "content": "w", "reasoning_content": "r", "tool_calls": [
                {"id": "a", "type": "function", "function": {
                    "name": "get_weather", "arguments": json.dumps(args)}}]},
            {"role": "tool", "tool_call_id": "a", "content": "t"},
            {"role": "assistant", "content": "<|channel>thought\nx<channel|>c"},
            {"role": "user", "content": "v"}]
    tools = [t for t in TOOLS if not t["function"].get("strict")]
    names = [t["function"]["name"] for t in tools]
    for on in (True, False):
        status, r = s.post("/apply-template",
                           {"messages": past, "tools": tools, "enable_thinking": on})
        text = r.get("prompt") or ""
        need(f"gemma: history, thinking {on}", status == 200 and
             '<|turn>user\nu<turn|>\n<|turn>model\n<|channel>thought\nr\n<channel|>w<|tool_call>'
             'call:get_weather{b:true,city:<|"|>a "b"<|"|>,l:[1.5,{k:null}],n:2}<tool_call|>'
             '<|tool_response>response:get_weather{value:<|"|>t<|"|>}<tool_response|>c<turn|>\n'
             "<|turn>user\nv<turn|>\n<|turn>model\n" in text and
             ("<|think|>\ns" in text) == on and
             text.endswith("model\n" if on else "thought\n<channel|>"), r)
        def one(seed):
            status, r = s.post(CHAT, chat("Go", tools=tools, tool_choice="required", seed=seed,
                                          temperature=1.3, max_tokens=300, enable_thinking=on))
            c = r["choices"][0] if status == 200 else {"finish_reason": "none"}
            need(f"gemma: forced {on} {seed}", c["finish_reason"] == "length" or
                 (c["finish_reason"] == "tool_calls" and all(
                     isinstance(json.loads(a), dict) and n in names
                     for n, a in calls_of(c["message"]))), r)
        each(4, one)
    tool = {"type": "function", "function": {"name": "f", "strict": True, "parameters": {
        "type": "object", "properties": {}, "additionalProperties": False, "required": []}}}
    status, r = s.post(CHAT, chat("Go", tools=[tool]))
    need("gemma: strict", status == 400 and "tools[0].function.strict" in r["error"]["message"], r)


def coder(s, name):
    """Qwen's newer form by the real templates: what they make of a history, calls in it, and the
    prompt's end with thinking on and off."""
    past = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "w", "tool_calls": [
        {"id": "a", "type": "function", "function": {
            "name": "get_weather", "arguments": '{"city": "a\\nb", "n": 2, "l": [1, {"k": "v"}]}'}},
        {"id": "b", "type": "function", "function": {"name": "nothing", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "a", "content": "t"},
        {"role": "tool", "tool_call_id": "b", "content": "z"}]
    want = ("<tool_call>\n<function=get_weather>\n<parameter=city>\na\nb\n</parameter>\n"
            "<parameter=n>\n2\n</parameter>\n<parameter=l>\n[1, {\"k\": \"v\"}]\n</parameter>\n"
            "</function>\n</tool_call>\n<tool_call>\n<function=nothing>\n</function>\n</tool_call>"
            "<|im_end|>\n<|im_start|>user\n")
    thinks = name == "qwen3.5"
    for on, end in ((True, "<think>\n"), (False, "<think>\n\n</think>\n\n")):
        more = {"enable_thinking": on} if thinks else {}
        status, r = s.post("/apply-template", {"messages": past, "tools": TOOLS, **more})
        need(f"{name}: history, thinking {on}", status == 200 and want in r["prompt"] and
             r["prompt"].endswith("<|im_start|>assistant\n" + (end if thinks else "")), r)
        def one(seed):
            status, r = s.post(CHAT, chat("Go", tools=TOOLS, tool_choice="required", seed=seed,
                                          temperature=1.3, max_tokens=300, **more))
            c = r["choices"][0] if status == 200 else {"finish_reason": "none"}
            need(f"{name}: forced by its template {on} {seed}", c["finish_reason"] == "length" or
                 (c["finish_reason"] == "tool_calls" and all(
                     call_ok(n, a, list(OK)) for n, a in calls_of(c["message"]))), r)
        each(4, one)


for fam in ("auto", "hermes", "llama3", "json", "glm45", "minimax_m2", "minimax_m3",
            "qwen3_coder", "deepseek_v32", "kimi_k2", "harmony"):
    with Server("--tool-parser", fam) as server:
        forced(server, fam, 100 if FULL else 6)
        strict(server, fam, 200 if FULL else 6)
        loose(server, fam)
        if fam in ("glm45", "minimax_m2", "minimax_m3", "qwen3_coder", "deepseek_v32"):
            text_forms(server, fam)
        if fam == "auto":
            for part in (reasoning, responses, refused):
                part(server)
            cache(server, 10000 if FULL else 400)
        need("exit", server.stop() == 0)
with tempfile.TemporaryDirectory() as tmp:
    with open(f"{tmp}/t.jinja", "w") as f:
        f.write(HARMONY)
    with Server("--chat-template", f"{tmp}/t.jinja") as server:
        harmony(server)
with tempfile.TemporaryDirectory() as tmp:
    with open(f"{tmp}/t.jinja", "w") as f:
        f.write(GEMMA)
    with Server("--chat-template", f"{tmp}/t.jinja") as server:
        gemma(server)
for tmpl in ("qwen3.5", "qwen3-coder"):
    with Server("--chat-template", f"{e2e.DATA}/templates/{tmpl}.jinja") as server:
        coder(server, tmpl)
with Server("--tool-parser", "none") as server:
    got = server.call("POST", CHAT, chat(tools=TOOLS, tool_choice="required"))
    need("no parser", got[0] == 400 and b"--tool-parser none" in got[2], got)
T.exit()
