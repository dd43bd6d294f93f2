# SPDX-License-Identifier: Apache-2.0
"""Conversations and the templates they meet: tools and calls where a template knows none, content
that is null, messages that are continued, thinking."""
import json
import os
import subprocess
import tempfile

from serve import Server, chat
import e2e

T = e2e.Tally("serve: turns")
CHAT, APPLY = "/v1/chat/completions", "/apply-template"
TOOL = {"type": "function",
        "function": {"name": "get_weather", "description": "of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 8}},
    "required": ["city"], "additionalProperties": False}}}
CALL = {"id": "a", "type": "function",
        "function": {"name": "get_weather", "arguments": "{\"city\": \"Oslo\"}"}}
SECOND = {"id": "b", "type": "function", "function": {"name": "other", "arguments": "{}"}}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "rain"}
ASK = [{"role": "user", "content": "Weather in Oslo?"}]
HEAD = "{% for m in messages %}"
TAIL = "{% endfor %}{% if add_generation_prompt %}{{ '[assistant]' }}{% endif %}"
ADDS = HEAD + "{{ '[' + m['role'] + ']' + m['content'] + ';' }}" + TAIL
PRINTS = ("{% if tools %}<{{ tools | tojson }}>{% endif %}" + HEAD
          + "[{{ m.role }}]{{ m.content }}{% if m.tool_calls %}!{{ m.tool_calls[0].function.name }}"
          "{% if m.tool_calls | length > 1 %}{{ raise_exception('one call at once') }}{% endif %}"
          "{% endif %};" + TAIL)
NULLS = ("{% if tools %}<{{ tools | tojson }}>{% endif %}" + HEAD
         + "[{{ m.role }}]{% if m.content is none %}NULL{% else %}{{ m.content | trim }}{% endif %}"
         ";" + TAIL)
NO_SYSTEM = (HEAD + "{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
             "{{ '[' + m.role + ']' + m.content + ';' }}" + TAIL)
EFFORT = HEAD + "{{ m.content }}" + "{% endfor %}{{ reasoning_effort }}"
ALWAYS = HEAD + "{{ m.content }}{% endfor %}{% if add_generation_prompt %}<think>\n{% endif %}"


def need(name, cond, what=""):
    T.check(name, None if cond else (what or "not so"))


class Templates:
    """A folder with the demo model, and servers of it with one template and another."""
    def __init__(self, where):
        self.dir = os.path.join(where, "m")
        subprocess.run([e2e.sluice(), "quantize", "demo", self.dir, "--weights", "bf16", "-q"],
                       check=True, capture_output=True)
        self.file = os.path.join(self.dir, "tokenizer_config.json")

    def serve(self, template, *args):
        with open(self.file, encoding="utf-8") as f:
            c = json.load(f)
        c["chat_template"] = template
        with open(self.file, "w", encoding="utf-8") as f:
            json.dump(c, f)
        return Server("-m", self.dir, *args)


def prompt(s, messages, **more):
    status, r = s.post(APPLY, {"messages": messages, **more})
    return r["prompt"] if status == 200 else f"{status} {r['error']['message']}"


def adds(s):
    """A template that adds texts, and knows neither tools nor calls nor results."""
    need("said at the start", any(b"knows no tools" in ln for ln in s.log), s.log)
    for content in ({"content": None}, {}, {"content": ""}):
        got = prompt(s, ASK + [{"role": "assistant", **content, "tool_calls": [CALL]}, RESULT])
        need(f"a call {content}", got == '[user]Weather in Oslo?;[assistant]{"name": '
                                         '"get_weather", "arguments": {"city": "Oslo"}};'
             "[user]Result of get_weather:\nrain;[assistant]", got)
    got = prompt(s, ASK + [{"role": "assistant", "content": "I look.", "tool_calls": [
        CALL, SECOND]}, RESULT, {**RESULT, "tool_call_id": "b", "content": "7"}, ASK[0]])
    need("two calls", '[assistant]I look.\n\n[{"name": "get_weather", "arguments": {"city": '
                      '"Oslo"}}, {"name": "other", "arguments": {}}];'
         "[user]Result of get_weather:\nrain\n\nResult of other:\n7;[user]Weather" in got, got)
    got = prompt(s, ASK + [{"role": "assistant", "content": None, "function_call": {
        "name": "f", "arguments": "{\"a\":1}"}}, {"role": "function", "name": "f", "content": "7"}])
    need("an older call", got.endswith('[assistant]{"name": "f", "arguments": '
                                       '{"a":1}};[user]Result of f:\n7;[assistant]'), got)
    for m in ([{"role": "system", "content": "Be kind."}] + ASK, ASK):
        got = prompt(s, m, tools=[TOOL])
        need(f"tools told {len(m)}", got.count('"name":"get_weather"') == 1
             and got.count("[system]") == 1 and "[user]Weather in Oslo?;" in got and
             ("[system]Be kind.\n\nYou can call" in got) == (len(m) == 2), got)
        need("none: not told", "get_weather" not in prompt(s, m, tools=[TOOL], tool_choice="none"))
    need("one call at most",
         "several" not in prompt(s, ASK, tools=[TOOL], parallel_tool_calls=False))
    for more in ({"tool_choice": "required"},
                 {"tool_choice": {"type": "function", "function": {"name": "get_weather"}}}):
        r = s.post(CHAT, {"messages": ASK, "tools": [TOOL], "max_tokens": 60,
                          "seed": 1, "parallel_tool_calls": False, **more})[1]["choices"][0]
        c = r["message"].get("tool_calls", [{}])
        need(f"a forced call {more}", len(c) == 1 and c[0]["function"]["name"] == "get_weather"
             and set(json.loads(c[0]["function"]["arguments"])) == {"city"}, r)
    for role in ("system", "user", "assistant"):
        for content in ({}, {"content": None}, {"content": []}):
            got = prompt(s, [{"role": role, **content}] + ASK)
            need(f"no content: {role} {content}", got.startswith(f"[{role}];[user]"), got)


def prints(s):
    """Null content is not written as a word."""
    got = prompt(s, ASK + [{"role": "assistant", "content": None, "tool_calls": [CALL]}, RESULT],
                 tools=[TOOL])
    need("no None", "[assistant]!get_weather;[tool]rain;" in got
         and "None" not in got and got.startswith("<["), got)
    got = prompt(s, [{"role": "user", "content": "None of it"},
                     {"role": "assistant", "tool_calls": [CALL]}, RESULT])
    need("a user's None stays", "[user]None of it;[assistant]!get_weather" in got, got)
    for said in ({"content": "I look."}, {"content": None}, {}):
        got = prompt(s, ASK + [{"role": "assistant", **said, "tool_calls": [CALL, SECOND]},
                               {**RESULT, "tool_call_id": "b", "content": "7"}, RESULT, ASK[0]])
        need(f"where only one call may be, each is one {said}", got.endswith(
            f"[assistant]{said.get('content') or ''}!get_weather;[tool]rain;[assistant]!other;"
            "[tool]7;[user]Weather in Oslo?;[assistant]"), got)


def nulls(s):
    got = prompt(s, ASK + [{"role": "assistant", "content": None, "tool_calls": [CALL]}, RESULT])
    need("null where it is asked for", "[assistant]NULL;" in got, got)
    got = prompt(s, ASK + [{"role": "assistant", "content": "It is  "}],
                 continue_final_message=True)
    need("trimmed as the template trims", got.endswith("[assistant]It is"), got)


def no_system(s):
    got = prompt(s, ASK, tools=[TOOL])
    need("told to the user", got.startswith("[user]You can call")
         and got.endswith("\n\nWeather in Oslo?;[assistant]"), got)


def continued(s):
    """continue_final_message, with the demo model's own template."""
    head = [{"role": "user", "content": "What is 17 + 5?"}]
    for text in ("17 + 5 =", "17 + 5 = ", " x\n\n",
                 "", "a <b", "<\uff5cend\u2581of\u2581sentence\uff5c>"):
        for parts in (text, [{"type": "text", "text": text}]):
            got = prompt(s, head + [{"role": "assistant", "content": parts}],
                         continue_final_message=True)
            need(f"prompt {text!r}", got.endswith("<\uff5cAssistant\uff5c></think>" + text), got)
    last = head + [{"role": "assistant", "content": "17 + 5 ="}]
    need("without: the turn is closed", "sentence\uff5c>" in prompt(s, last)[-30:], prompt(s, last))
    for more in ({}, {"tools": [TOOL]}, {"add_generation_prompt": False}):
        body = chat(messages=last, continue_final_message=True, max_tokens=20, **more)
        r = s.post(CHAT, body)[1]["choices"][0]
        need(f"goes on {list(more)}",
             r["message"]["content"].startswith(" 22") and "reasoning" not in r["message"], r)
        ev = s.stream(CHAT, body)[1]
        got = "".join(e["choices"][0]["delta"].get("content") or "" for e in ev[:-1])
        need(f"stream {list(more)}", got == r["message"]["content"], (got, r))
    r = s.post(CHAT, chat(messages=head + [{"role": "assistant", "content": "<think>I add"}],
                          continue_final_message=True, max_tokens=8))[1]["choices"][0]["message"]
    need("reasoning goes on", r["reasoning_content"] == r["reasoning"] and not r["content"], r)
    begun = ("<\uff5ctool\u2581calls\u2581begin\uff5c><\uff5ctool\u2581call\u2581begin\uff5c>"
             "get_weather<\uff5ctool\u2581sep\uff5c>{\"city\": \"Os")
    body = chat(messages=ASK + [{"role": "assistant", "content": begun}],
                continue_final_message=True, tools=[TOOL], max_tokens=12)
    c = s.post(CHAT, body)[1]["choices"][0]["message"]["tool_calls"]
    d = [x for e in s.stream(CHAT, body)[1][:-1]
         for x in e["choices"][0]["delta"].get("tool_calls", [])]
    need("a call goes on", c[0]["function"]["name"] == "get_weather"
         and c[0]["function"]["arguments"].startswith("{\"city\": \"Os") and
         "".join(x["function"]["arguments"] for x in d) == c[0]["function"]["arguments"], (c, d))
    for name, m, more in (("both", last, {"add_generation_prompt": True}), ("user last", head, {}),
                          ("calls last",
                           ASK + [{"role": "assistant", "content": "x", "tool_calls": [CALL]}], {}),
                          ("ids", last, {"prompt_token_ids": [5, 6]}), ("nothing", [], {})):
        status, r = s.post(CHAT, {"messages": m, "continue_final_message": True, **more})
        need(f"400: {name}",
             status == 400 and r["error"]["param"] in ("continue_final_message", "messages"), r)


def thinks(s, more):
    status, head, data = s.call("POST", CHAT, chat("What is 17 + 5?", max_tokens=40, **more))
    r = json.loads(data)
    return status if status != 200 else head.get("x-sluice-ignored") or bool(
        r["choices"][0]["message"].get("reasoning_content"))


SWITCH = [({"thinking": {"type": "enabled"}}, True), ({"thinking": {"type": "disabled"}}, False),
          ({"thinking": True}, True), ({"enable_thinking": True}, True),
          ({"enable_thinking": False}, False),
          ({"chat_template_kwargs": {"enable_thinking": True}}, True),
          ({"chat_template_kwargs": {"thinking": False}}, False),
          ({"reasoning": {"enabled": True}}, True)]


def thinking(s):
    """The demo model's template has a switch."""
    for more, want in SWITCH + [({"reasoning_effort": e}, e != "none")
                                for e in ("none", "minimal", "low", "high")] + [
            ({}, False), ({"thinking": {"type": "auto"}}, False),
            ({"reasoning_effort": "high", "enable_thinking": False}, False),
            ({"thinking": {"type": "on"}}, 400), ({"thinking": 1}, 400), ({"thinking": {
                "type": "enabled", "budget_tokens": 9}}, 400), ({"reasoning_effort": "very"}, 400),
            ({"thinking": {"type": "enabled"}, "enable_thinking": False}, 400),
            ({"chat_template_kwargs": {"no_such": 1}}, 400)]:
        need(f"switch {more}", thinks(s, more) == want, thinks(s, more))
    for more, want in (({"enable_thinking": True}, True), (
            {"thinking": {"type": "disabled"}}, False), ({"reasoning": {"effort": "low"}}, True)):
        r = s.post("/v1/responses", {"input": "What is 17 + 5?",
                                     "temperature": 0, "max_output_tokens": 40, **more})[1]
        need(f"responses {more}", any(o["type"] == "reasoning" for o in r["output"]) == want, r)


def no_switch(s, always):
    """What the template does anyway is accepted, the opposite refused; an effort is said to be
    ignored."""
    for more, want in SWITCH:
        got = thinks(s, more)
        need(f"no switch {always} {more}", (got == 400) == (want != always), got)
    need("effort is said to be ignored",
         thinks(s, {"reasoning_effort": "high"}) == "reasoning_effort")
    need("effort none", (thinks(s, {"reasoning_effort": "none"}) == 400) == always)


with tempfile.TemporaryDirectory() as d:
    t = Templates(d)
    for template, run in ((ADDS, adds), (PRINTS, prints), (NULLS, nulls),
                          (NO_SYSTEM, no_system), (ALWAYS, lambda s: no_switch(s, True))):
        with t.serve(template) as s:
            run(s)
            if template == ADDS:
                no_switch(s, False)
    with t.serve(EFFORT) as s:
        need("an effort for the template", prompt(s, ASK, reasoning_effort="low").endswith("low")
             and prompt(s, ASK, reasoning_effort="mine").endswith("mine"))
with Server() as s:
    continued(s)
    thinking(s)
T.exit()
