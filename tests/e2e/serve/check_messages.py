# SPDX-License-Identifier: Apache-2.0
"""/v1/messages and count_tokens: the Messages API of Anthropic, as its SDK and Claude Code use it.
What the prompt is is told by comparing token counts with those of the same conversation in chat's
form."""
import json
import os
import re
import signal
import time

from serve import Server, key_line
import e2e

T = e2e.Tally("serve: messages")
URL, COUNT = "/v1/messages", "/v1/messages/count_tokens"
HEAD = {"anthropic-version": "2023-06-01", "x-api-key": "none"}
USER = [{"role": "user", "content": "What is 17 + 25?"}]
RAIN = [{"role": "user", "content": "What is the weather in Oslo?"}]
CITY = {"type": "object", "properties": {"city": {"type": "string"}},
        "required": ["city"], "additionalProperties": False}
TOOL = {"name": "get_weather", "description": "Weather of a city", "input_schema": CITY}
FUNC = {"type": "function",
        "function": {"name": "get_weather", "description": "Weather of a city", "parameters": CITY}}
TYPES = {400: "invalid_request_error", 401: "authentication_error",
         403: "permission_error", 404: "not_found_error", 405: "invalid_request_error",
         413: "request_too_large", 429: "rate_limit_error",
         504: "timeout_error", 529: "overloaded_error"}


def need(name, cond, what=""):
    T.check(name, None if cond else (str(what) or "not so"))


def ask(messages=None, **more):
    return {"model": "demo", "max_tokens": 48, "temperature": 0,
            "messages": messages or USER, **more}


def post(s, body, path=URL, head=None):
    status, h, data = s.call("POST", path, body, {**HEAD, **(head or {})})
    return status, json.loads(data), h


def events(s, body):
    """[(event name, data)]"""
    status, head, data = s.call("POST", URL, dict(body, stream=True), HEAD)
    out = []
    for block in data.decode().split("\n\n"):
        lines = [ln for ln in block.split("\n") if not ln.startswith(":")]
        if len(lines) == 2 and lines[0].startswith("event: "):
            out.append((lines[0][7:], json.loads(lines[1][6:])))
        elif lines != [""]:
            need("an event has a name and data", not lines, block)
    return out


def refused(s, name, status, body, word, path=URL, head=None):
    """An error of Anthropic's form whose message holds word."""
    got, r, h = post(s, body, path, head)
    good = got == status and set(r) == {"type", "error", "request_id"} and r[
        "type"] == "error" and set(r["error"]) == {"type", "message"} and \
        r["error"]["type"] == TYPES[status] and word in r[
            "error"]["message"] and h.get("request-id") == r["request_id"]
    need(name, good, f"{got} {r}")


def gather(ev):
    """The message that a stream of events makes, and what is wrong with their order."""
    names = [n for n, _ in ev if n != "ping"]
    if [n for n, d in ev if n != d["type"]]:
        return None, "an event's name is not its type"
    if names[:1] != ["message_start"] or names[-2:] != ["message_delta", "message_stop"]:
        return None, f"order: {names}"
    m, at = dict(ev[0][1]["message"]), None
    for n, d in ev[1:]:
        if n == "content_block_start":
            if at is not None or d["index"] != len(m["content"]):
                return None, f"a block begins in another: {d}"
            at, b = d["index"], dict(d["content_block"], json="")
            m["content"] = m["content"] + [b]
        elif n == "content_block_delta":
            if d["index"] != at:
                return None, f"a delta of no open block: {d}"
            k = d["delta"]
            key = {"text_delta": "text", "thinking_delta": "thinking",
                   "signature_delta": "signature", "input_json_delta": "partial_json"}[k["type"]]
            b["json" if key == "partial_json" else key] += k[key]
        elif n == "content_block_stop":
            if b["type"] == "tool_use":
                b["input"] = json.loads(b["json"])
            del b["json"]
            at = None
        elif n == "message_delta":
            m.update(d["delta"], usage=d["usage"])
    return m, None


def same(s, name, body, less=()):
    """The stream of a request adds up to its whole answer."""
    status, whole, _ = post(s, body)
    m, bad = gather(events(s, body))
    if bad or status != 200:
        need(name, False, bad or whole)
        return whole
    for k in [m, whole]:
        for b in k["content"]:
            b.pop("id", None)
    keys = ("type", "role", "model", "content", "stop_reason", "stop_sequence")
    need(name, all(m[k] == whole[k] for k in keys)
         and m["usage"]["output_tokens"] == whole["usage"]["output_tokens"], (m, whole))
    return whole


def shape(s):
    status, m, h = post(s, ask())
    chat = s.post("/v1/chat/completions", {"messages": USER, "max_tokens": 48,
                                           "temperature": 0})[1]["choices"][0]["message"]["content"]
    need("message", status == 200 and m["type"] == "message"
         and m["role"] == "assistant" and m["id"].startswith("msg_") and m["model"] == "demo" and
         m["stop_reason"] == "end_turn" and m["stop_sequence"] is None
         and h["request-id"] == h["x-request-id"], m)
    need("as chat answers", m["content"] == [{"type": "text", "text": chat}], (m, chat))
    u = m["usage"]
    need("usage", u["input_tokens"] > 0 and u["output_tokens"] > 0
         and u["cache_creation_input_tokens"] == 0 and u["service_tier"] == "standard", u)
    ev = events(s, ask())
    need("first events", [n for n, _ in ev[:3]] == ["message_start", "ping", "content_block_start"],
         ev[:3])
    start, of_delta = ev[0][1]["message"], ev[-2][1]["usage"]
    need("usage of the end", {k: v for k, v in u.items() if k not in (
        "cache_creation", "service_tier")} == of_delta and "cache_creation" in start["usage"],
         (u, of_delta))
    need("begins empty", start["content"] == [] and start["stop_reason"] is None
         and start["usage"]["input_tokens"] > 0, start)
    same(s, "stream of a text", ask())
    same(s, "stream that is cut", ask(max_tokens=2))
    need("max_tokens", post(s, ask(max_tokens=2))[1]["stop_reason"] == "max_tokens")
    m = post(s, ask(max_tokens=16777216, ignore_eos=True, seed=1))[1]
    need("the context is full", m.get("stop_reason") == "model_context_window_exceeded", m)
    m = post(s, ask(ignore_eos=True))[1]
    need("no control tokens", m["usage"]["output_tokens"] == 48
         and "\uff5c" not in m["content"][0]["text"], m)
    m = post(s, ask(max_tokens=0))[1]
    need("max_tokens 0", m.get("content") == [] and m["stop_reason"] == "max_tokens"
         and m["usage"]["output_tokens"] == 0, m)
    for stop, which in ((["zz", "+ 25"], "+ 25"), (["5"], "5"), (["nowhere"], None)):
        m = same(s, f"stream with stop_sequences {stop}", ask(stop_sequences=stop))
        need(f"stop_sequences {stop}", m["stop_sequence"] == which
             and m["stop_reason"] == ("stop_sequence" if which else "end_turn") and
             (not which or which not in m["content"][0]["text"]), m)
    form = {"type": "json_schema", "schema": {"type": "object", "properties": {
        "n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}}
    for k in ({"output_config": {"format": form, "effort": "low"}}, {"output_format": form}):
        m = same(s, f"stream of {list(k)}", ask(**k))
        need(f"{list(k)}", isinstance(json.loads(m["content"][0]["text"])["n"], int), m)
    m = post(s, ask(context_management={"edits": []}))[1]
    need("context_management", m.get("context_management") == {"applied_edits": []}, m)
    status, m, h = post(s, ask([{**USER[0], "name": "ben", "id": None}]))
    need("members of a message", status == 200 and h["x-sluice-ignored"] == "messages.name", h)
    status, _, h = post(s, ask(output_config={"task_budget": {"type": "tokens", "total": 9000}}))
    need("task_budget", status == 200 and h["x-sluice-ignored"] == "output_config.task_budget", h)


def threads(s):
    """The SDK's tool runner asks for a thread, and goes on without one after this error."""
    status, r, _ = post(s, ask(thread={"type": "create"}))
    need("thread", status == 400 and r["error"]["details"] == {
        "error_code": "thread_unsupported_request", "unsupported": ["thread"]}, r)
    need("no other error has details", "details" not in post(s, ask(top_k="x"))[1]["error"])
    need("no thread", post(s, ask(thread=None))[0] == 200)


def thinking(s):
    for k in ({"type": "enabled", "budget_tokens": 1024}, {"type": "adaptive"}):
        m = same(s, f"stream with thinking {k}", ask(thinking=k, max_tokens=100))
        need(f"thinking {k}", [b["type"] for b in m["content"]] == ["thinking", "text"]
             and len(m["content"][0]["signature"]) > 20 and
             m["content"][0]["thinking"]
             and m["usage"]["output_tokens_details"]["thinking_tokens"] > 0, m)
    for k in ({}, {"thinking": {"type": "disabled"}}):
        m = post(s, ask(**k))[1]
        need(f"no thinking with {k}", [b["type"] for b in m["content"]] == ["text"], m)
    m = same(s, "stream with display omitted",
             ask(thinking={"type": "adaptive", "display": "omitted"}, max_tokens=100))
    need("display omitted", m["content"][0]["thinking"] == ""
         and m["content"][0]["signature"] and m["content"][1]["text"], m)


def tools(s):
    for choice in ({"type": "auto"}, {"type": "any"}, {"type": "tool", "name": "get_weather"},
                   {"type": "any", "disable_parallel_tool_use": True}):
        m = same(s, f"stream with {choice}", ask(RAIN, tools=[TOOL], tool_choice=choice))
        b = m["content"][-1]
        need(f"tool_choice {choice}", m["stop_reason"] == "tool_use"
             and b["type"] == "tool_use" and b["name"] == "get_weather" and
             set(b["input"]) == {"city"}, m)
    m = post(s, ask(RAIN, tools=[TOOL], tool_choice={"type": "any"}))[1]
    need("id", m["content"][-1]["id"].startswith("toolu_"), m)
    m = post(s, ask(RAIN, tools=[TOOL], tool_choice={"type": "none"}))[1]
    need("tool_choice none", m["stop_reason"] != "tool_use" and m["content"][0]["type"] == "text",
         m)
    cut = post(s, ask(RAIN, tools=[TOOL], tool_choice={"type": "any"}, max_tokens=9))[1]
    need("a call that is cut",
         cut["stop_reason"] == "max_tokens" and isinstance(cut["content"][-1]["input"], dict), cut)
    server = [{"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
              {"type": "code_execution_20250825", "name": "code_execution"},
              {"type": "mcp_toolset", "mcp_server_name": "x"},
              {"type": "tool_search_tool_bm25", "name": "t"},
              {"type": "advisor_20260301", "name": "advisor", "model": "m"},
              {"type": "computer_20250124", "name": "computer",
               "display_width_px": 9, "display_height_px": 9}]
    m = same(s, "stream with server tools",
             ask(RAIN, tools=server + [TOOL], tool_choice={"type": "any"}))
    need("server tools are left out", m["content"][-1]["name"] == "get_weather", m)
    m = post(s, ask(tools=server, tool_choice={"type": "auto"}))[1]
    need("nothing but server tools", m["content"] == post(s, ask())[1]["content"], m)
    m = post(s, ask(RAIN, tools=server + [TOOL],
                    tool_choice={"type": "tool", "name": "web_search"}))[1]
    need("a forced server tool counts as auto", m["type"] == "message", m)
    refused(s, "any without a tool", 400, ask(tools=server, tool_choice={"type": "any"}),
            "tool_choice.type")
    refused(s, "a tool that is not there", 400,
            ask(tools=[TOOL], tool_choice={"type": "tool", "name": "x"}), "tool_choice.name")
    for t in ({"type": "bash_20250124", "name": "bash"},
              {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
              {"type": "memory_20250818", "name": "memory"}):
        m = post(s, ask(tools=[t], tool_choice={"type": "tool", "name": t["name"]},
                        max_tokens=60))[1]
        need(f"{t['type']} is a function", m["content"][-1].get("name") == t["name"], m)


def call(i):
    return {"id": i, "type": "function",
            "function": {"name": "get_weather", "arguments": "{\"city\": \"Oslo\"}"}}


def counts(s):
    """(name, Anthropic's form, chat's form)"""
    use = {"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"city": "Oslo"}}
    tool = {"role": "tool", "tool_call_id": "t1", "content": "20 C"}
    user, mark = USER[0], {"cache_control": {"type": "ephemeral"}}
    remind = {"role": "user", "content": "Hi\n<system-reminder>\nBe brief.\n</system-reminder>"}

    def u(*blocks):
        return {"role": "user", "content": list(blocks)}

    def t(text, **k):
        return {"type": "text", "text": text, **k}
    rows = [
        ("text", {"messages": USER}, {"messages": USER}),
        ("a block", {"messages": [u(t(user["content"], **mark))]}, {"messages": USER}),
        ("blocks", {"messages": [u(t("a"), t("b"))]},
         {"messages": [{"role": "user", "content": "a\nb"}]}),
        ("system", {"messages": USER, "system": "Be brief."},
         {"messages": [{"role": "system", "content": "Be brief."}, user]}),
        ("system blocks", {"messages": USER, "system": [t("a", **mark), t("b")]},
         {"messages": [{"role": "system", "content": "a\nb"}, user]}),
        ("billing header", {"messages": USER, "system":
                                [t("x-anthropic-billing-header: cc_version=2; cch=1;"), t("b")]},
         {"messages": [{"role": "system", "content": "b"}, user]}),
        ("system message in front",
         {"messages": [{"role": "system", "content": "b"}, user], "system": "a"},
         {"messages": [{"role": "system", "content": "a\nb"}, user]}),
        ("system message later", {"messages": [{"role": "user", "content": "Hi"}, {
            "role": "system", "content": [t("Be brief.")]}]}, {"messages": [remind]}),
        ("turns are joined", {"messages": [u(t("a")), {"role": "user", "content": "b"}]},
         {"messages": [{"role": "user", "content": "a\nb"}]}),
        ("tools", {"messages": RAIN, "tools": [TOOL]}, {"messages": RAIN, "tools": [FUNC]}),
        ("tools, none to be called",
         {"messages": RAIN, "tools": [TOOL], "tool_choice": {"type": "none"}}, {"messages": RAIN}),
        ("a call and its result", {"messages": RAIN + [{"role": "assistant", "content": [use]}, u(
            {"type": "tool_result", "tool_use_id": "t1", "content": "20 C"})],
                                   "tools": [TOOL]},
         {"messages": RAIN + [{"role": "assistant", "content": None, "tool_calls": [call("t1")]},
                              tool], "tools": [FUNC]}),
        ("result in blocks, and a text",
         {"messages": RAIN + [{"role": "assistant", "content": [t("Let me see."), use]}, u(
            {"type": "tool_result", "tool_use_id": "t1",
             "content": [t("20"), t("C")], "is_error": False}, t("So?"))], "tools": [TOOL]},
         {"messages": RAIN + [{"role": "assistant", "content": "Let me see.",
                               "tool_calls": [call("t1")]}, dict(tool, content="20\nC"),
                              {"role": "user", "content": "So?"}], "tools": [FUNC]}),
        ("is_error", {"messages": RAIN + [{"role": "assistant", "content": [use]}, u(
            {"type": "tool_result", "tool_use_id": "t1", "content": "no", "is_error": True})],
                      "tools": [TOOL]},
         {"messages": RAIN + [{"role": "assistant", "content": None, "tool_calls": [call("t1")]},
                              dict(tool, content="Error: no")], "tools": [FUNC]}),
        ("thoughts and what servers did", {"messages": USER + [{"role": "assistant", "content": [
            {"type": "redacted_thinking", "data": "x"},
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
            {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
            {"type": "mcp_tool_listing", "mcp_server_name": "m", "tools": []},
            {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}}, t("42")]},
                                                               user]},
         {"messages": USER + [{"role": "assistant", "content": "42"}, user]}),
        ("documents", {"messages": [u({"type": "document", "title": "T", "source": {
            "type": "text", "media_type": "text/plain", "data": "d"}},
                                      {"type": "search_result",
                                       "title": "R", "source": "s", "content": [t("c")]})]},
         {"messages": [{"role": "user", "content": "T\nd\nR\ns\nc"}]}),
    ]
    for name, mine, chat in rows:
        status, r, _ = post(s, {"model": "demo", **mine}, COUNT)
        want = s.post("/tokenize", chat)[1]
        need(f"count: {name}", status == 200 and set(r) == {"input_tokens"}
             and r["input_tokens"] == want.get("count"), (r, want))
    think = {"messages": RAIN + [{"role": "assistant", "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "s"}, use]},
                                 u({"type": "tool_result", "tool_use_id": "t1"})], "tools": [TOOL]}
    status, m, _ = post(s, ask(**think))
    need("thoughts come back", status == 200, m)


def cache(s):
    body = ask(system=[{"type": "text", "text": "Count the wheels of the lorries. " * 12}])
    total = post(s, {k: v for k, v in body.items() if k in ("model", "messages", "system")},
                 COUNT)[1]["input_tokens"]
    body["system"][0]["cache_control"] = {"type": "ephemeral", "ttl": "1h"}
    seen = []
    for _ in range(2):
        u = post(s, body)[1]["usage"]
        seen.append(u)
        need("parts of the prompt", u["input_tokens"]
             + u["cache_read_input_tokens"] + u["cache_creation_input_tokens"] == total, (u, total))
    need("made", seen[0]["cache_creation_input_tokens"] > total // 2
         and seen[0]["cache_read_input_tokens"] == 0, seen)
    need("read", seen[1]["cache_read_input_tokens"] == seen[0]["cache_creation_input_tokens"]
         and seen[1]["cache_creation_input_tokens"] == 0, seen)
    ev = events(s, body)
    need("read, in a stream", ev[0][1]["message"]["usage"]["cache_read_input_tokens"]
         == seen[1]["cache_read_input_tokens"] ==
         ev[-2][1]["usage"]["cache_read_input_tokens"], (ev[0], ev[-2]))


def hostile(s):
    """Every field with a value of another type is a 400 that names it."""
    odd = {"string": "x", "number": 5, "list": [5], "object": {"x": 5}, "bool": True}
    takes = {"model": "string", "messages": "list", "system": "string list",
             "max_tokens": "number", "stream": "bool", "temperature": "number", "top_p": "number",
             "top_k": "number", "stop_sequences": "list", "tools": "list",
             "tool_choice": "object", "thinking": "object", "output_config": "object",
             "output_format": "object", "cache_control": "object",
             "metadata": "object", "service_tier": "string", "container": "string object",
             "context_management": "object", "mcp_servers": "list",
             "diagnostics": "object", "betas": "list", "inference_geo": "string", "speed": "string",
             "user_profile_id": "string", "seed": "number",
             "min_p": "number", "min_tokens": "number", "ignore_eos": "bool", "priority": "number",
             "timeout_ms": "number", "cache_salt": "string", "chat_template_kwargs": "object"}
    for field, kinds in takes.items():
        for kind, v in odd.items():
            if kind not in kinds.split():
                refused(s, f"{field} a {kind}", 400, ask(**{field: v}), field + ":")
    text, use = {"type": "text", "text": "x"}, {"type": "tool_use",
                                                "id": "t", "name": "n", "input": {}}
    think, res = {"type": "thinking", "thinking": "x",
                  "signature": "s"}, {"type": "tool_result", "tool_use_id": "t"}
    for block, role, path in ((text, "user", "text"),
                              (dict(text, cache_control={}), "user", "cache_control"),
                              (use, "assistant", "id"), (use, "assistant", "name"),
                              (use, "assistant", "input"), (think, "assistant", "thinking"),
                              (think, "assistant", "signature"), (res, "user", "tool_use_id"),
                              (dict(res, content="x"), "user", "content"),
                              (dict(res, is_error=True), "user", "is_error"),
                              (dict(res, type=1), "user", "type"),
                              (dict(text, type="video"), "user", "type"),
                              (dict(text, type=5), "assistant", "type"),
                              ({"type": "redacted_thinking", "data": "x"}, "assistant", "data"),
                              ({"type": "document", "source": {"type": "text", "data": "x"}},
                               "user", "source")):
        for v in (5, [5]):
            bad = dict(block, **{path: v}) if path != "type" else block
            refused(s, f"{block['type']}.{path} is {v}", 400, ask(
                USER + [{"role": role, "content": [text, bad]}]), f"messages[1].content[1].{path}")
    for name, body, word in [
            ("no max_tokens", {"messages": USER}, "max_tokens"),
            ("no messages", {"max_tokens": 5}, "messages"),
            ("no message", {"max_tokens": 5, "messages": []}, "messages"),
            ("a message", ask([5]), "messages[0]"),
            ("a role", ask([{"role": "tool", "content": "x"}]), "messages[0].role"),
            ("no content", ask([{"role": "user"}]), "messages[0].content"),
            ("content", ask([{"role": "user", "content": 5}]), "messages[0].content"),
            ("a block", ask([{"role": "user", "content": [5]}]), "messages[0].content[0]"),
            ("an empty block", ask([{"role": "user", "content": [{}]}]),
             "messages[0].content[0].type"),
            ("a call of the user's", ask([{"role": "user", "content": [use]}]),
             "messages[0].content[0].type"),
            ("an image", ask([{"role": "user", "content": [{"type": "image", "source": {
                "type": "base64", "media_type": "image/png", "data": "x"}}]}]), "image"),
            ("an image of a tool", ask([{"role": "user", "content": [dict(res, content=[
                {"type": "image", "source": {}}])]}]), "messages[0].content[0].content[0]"),
            ("a PDF", ask([{"role": "user", "content": [{"type": "document", "source": {
                "type": "base64", "data": "x"}}]}]), "messages[0].content[0].source.type"),
            ("system block", ask(system=[5]), "system[0]"),
            ("system image", ask(system=[{"type": "image"}]), "system[0]"),
            ("stop text", ask(stop_sequences=["a", 5]), "stop_sequences[1]"),
            ("empty stop", ask(stop_sequences=[""]), "stop_sequences[0]"),
            ("17 stops", ask(stop_sequences=["a"] * 17), "stop_sequences"),
            ("tool", ask(tools=[5]), "tools[0]"),
            ("tool name", ask(tools=[TOOL, dict(TOOL, name=5)]), "tools[1].name"),
            ("no name", ask(tools=[{"input_schema": {}}]), "tools[0].name"),
            ("no schema", ask(tools=[{"name": "x"}]), "tools[0].input_schema"),
            ("schema", ask(tools=[dict(TOOL, input_schema="x")]), "tools[0].input_schema"),
            ("description", ask(tools=[dict(TOOL, description=5)]), "tools[0].description"),
            ("strict", ask(tools=[dict(TOOL, strict="x")]), "tools[0].strict"),
            ("tool type", ask(tools=[dict(TOOL, type=5)]), "tools[0].type"),
            ("a tool of OpenAI's form", ask(tools=[{"type": "function", "function": FUNC}]),
             "tools[0].type"),
            ("a tool that nobody knows", ask(tools=[{"type": "web_serach", "name": "x"}]),
             "tools[0].type"),
            ("tool mark", ask(tools=[dict(TOOL, cache_control="x")]), "tools[0].cache_control"),
            ("refused schema", ask(tools=[{"type": "web_search_20250305", "name": "w"},
                                          dict(TOOL, strict=True,
                                               input_schema={"type": "object", "properties": {
                                                   "a": {"type": "hat"}}})]),
             "tools[1].input_schema"),
            ("choice", ask(tools=[TOOL], tool_choice={"type": "x"}), "tool_choice.type"),
            ("choice name", ask(tools=[TOOL], tool_choice={"type": "tool", "name": 5}),
             "tool_choice.name"),
            ("parallel",
             ask(tools=[TOOL], tool_choice={"type": "auto", "disable_parallel_tool_use": 5}),
             "tool_choice.disable_parallel_tool_use"),
            ("thinking type", ask(thinking={"type": "x"}), "thinking.type"), ("budget", ask(
                thinking={"type": "enabled", "budget_tokens": "x"}), "thinking.budget_tokens"),
            ("compaction", ask(compaction={"type": "x"}), "compaction"),
            ("display", ask(thinking={"type": "adaptive", "display": 5}), "thinking.display"),
            ("no such member", ask(thinking={"type": "adaptive", "effort": "x"}),
             "thinking.effort"),
            ("no such output", ask(output_config={"schema": {"x": 1}}), "output_config.schema"),
            ("no such effort", ask(output_config={"effort": "huge"}), "output_config.effort"),
            ("format", ask(output_config={"format": 5}), "output_config.format"),
            ("format type", ask(output_config={"format": {"type": "x"}}),
             "output_config.format.type"), ("no schema", ask(
                 output_config={"format": {"type": "json_schema"}}), "output_config.format.schema"),
            ("bad schema", ask(output_config={"format": {
                "type": "json_schema", "schema": {"type": "hat"}}}), "output_config.format"),
            ("effort", ask(output_config={"effort": 5}), "output_config.effort"),
            ("user_id", ask(metadata={"user_id": 5}), "metadata.user_id"),
            ("temperature", ask(temperature=3), "temperature"),
            ("max_tokens", ask(max_tokens=-1), "max_tokens"), ("a list", [], "object")]:
        refused(s, name, 400, body, word)
        if "max_tokens" not in name and name != "bad schema" and name != "refused schema":
            refused(s, f"count: {name}", 400, body, word, COUNT)
    for i in range(0, 40, 7):  # cut anywhere
        status, r, _ = post(s, json.dumps(ask(tools=[TOOL])).encode()[:-1 - i])
        need("cut JSON", status == 400 and r["error"]["type"] == "invalid_request_error"
             and "line 1" in r["error"]["message"], r)


def errors(s):
    refused(s, "a model", 404, ask(model="claude-x"), "claude-x")
    refused(s, "too long", 400, ask([{"role": "user", "content": "word " * 9000}]),
            "prompt is too long")
    for n in (3000, 8000, 200000):  # the first number is exact up to eight times the context
        long = [{"role": "user", "content": "word " * n}]
        _, r, _ = post(s, {"model": "demo", "messages": long}, COUNT)
        text = post(s, ask(long))[1]["error"]["message"]
        m = re.fullmatch(r"prompt is too long: (more than )?(\d+) tokens > 2048 maximum", text)
        need(f"what is too long, {n}", m and (int(m[2]) == r["input_tokens"] and not m[1]
                                              if r["input_tokens"] <= 16384 else
                                              m[1] and 2048 < int(m[2]) < r["input_tokens"]),
             (text, r))
    for n in (3000, 9000, 100000):  # any length is counted, also more bytes than the context has
        long = [{"role": "user", "content": "word " * n}]
        status, r, _ = post(s, {"model": "demo", "messages": long}, COUNT)
        ids = s.post("/tokenize", {"messages": long})
        need(f"a count of {n} words", status == 200 and n < r["input_tokens"] < 2 * n + 50
             and ids[1]["count"] == r["input_tokens"] == len(ids[1]["tokens"]), (r, ids[0]))
    refused(s, "too large to count", 413, {"model": "x" * (9 << 20)}, "", COUNT)
    refused(s, "too large", 413, {"model": "x" * (9 << 20)}, "")
    refused(s, "time is over", 504, ask(timeout_ms=1, ignore_eos=True, max_tokens=2000), "time")
    refused(s, "no such path", 404, {}, "path", URL + "/batches")
    refused(s, "a Host", 403, ask(), "host", head={"Host": "stranger.example"})
    status, head, data = s.call("GET", URL, None, HEAD)
    need("another method", status == 405 and json.loads(data)["error"]["type"]
         == "invalid_request_error" and head["allow"] == "POST", data)
    ev = events(s, ask(timeout_ms=1, ignore_eos=True, max_tokens=2000))
    need("error event", ev[-1][0] == "error" and ev[-1][1]["error"]["type"] == "timeout_error"
         and ev[-1][1]["request_id"], ev[-1])
    status, _, data = s.get("/v1/models", HEAD)
    m = json.loads(data)
    need("models", status == 200 and m["has_more"] is False
         and m["first_id"] == m["data"][0]["id"] == "demo" and m["data"][0]["type"] == "model" and
         m["data"][0]["created_at"].endswith("Z") and m["data"][0]["display_name"], m)
    need("one model", json.loads(s.get("/v1/models/demo", HEAD)[2])["type"] == "model")
    need("no model",
         json.loads(s.get("/v1/models/x", HEAD)[2])["error"]["type"] == "not_found_error")
    need("models of OpenAI's form", json.loads(s.get("/v1/models")[2])["object"] == "list")
    need("a query in the path", post(s, ask(max_tokens=2), URL + "?beta=true")[0] == 200)


def keys(tmp):
    path = os.path.join(tmp, "keys")
    with open(path, "w") as f:
        f.write(key_line("anna", "sk-ant-anna") + key_line("ben", "sk-ant-ben", "requests=1"))
    with Server("--alias", "demo", "--api-key-file", path) as s:
        refused(s, "no key", 401, ask(), "key")
        need("x-api-key", post(s, ask(max_tokens=2), head={"x-api-key": "sk-ant-anna"})[0] == 200)
        need("Bearer", post(s, ask(max_tokens=2),
                            head={"Authorization": "Bearer sk-ant-anna"})[0] == 200)
        need("first of ben's",
             post(s, ask(max_tokens=2), head={"x-api-key": "sk-ant-ben"})[0] == 200)
        refused(s, "second of ben's", 429, ask(), "limit", head={"x-api-key": "sk-ant-ben"})
        need("counting is no request", post(s, ask(), COUNT, {"x-api-key": "sk-ant-ben"})[0] == 200)


def leaving():
    """A server that is full, and one that goes down while answers run: eight, one after the other,
    which take seconds."""
    long = dict(ask(ignore_eos=True, max_tokens=1500), stream=True)
    with Server("--alias", "demo", "--max-batch", "1", "--max-queue", "7") as s:
        held, full = [], None
        while not full and len(held) < 200:
            held += [s.open(long, URL) for _ in range(8)]
            full = next((x for x in (post(s, ask(max_tokens=1)) for _ in range(2)) if x[0] != 200),
                        None)
        need("full", full and full[0] == 429 and full[1]["error"]["type"] == "rate_limit_error"
             and int(full[2]["retry-after"]) >= 1, full)
        s.proc.send_signal(signal.SIGTERM)
        t0 = time.time()
        while s.get("/ready")[0] != 503 and time.time() - t0 < 5:
            pass
        status, r, h = post(s, ask(max_tokens=1))
        need("going down", status == 529 and r["error"]["type"] == "overloaded_error"
             and int(h["retry-after"]) >= 1, (status, r))
        for k in held:
            k.close()


with e2e.scratch() as tmp:
    with Server("--alias", "demo") as server:
        cache(server)
        shape(server)
        threads(server)
        thinking(server)
        tools(server)
        counts(server)
        hostile(server)
        errors(server)
        need("exit", server.stop() == 0)
    keys(tmp)
leaving()
T.exit()
