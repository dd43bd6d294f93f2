# SPDX-License-Identifier: Apache-2.0
"""Codex's requests, through the openai SDK, against `sluice serve`: its tools and items, several
turns, free-form calls, functions of MCP servers
(namespaces). By hand: needs the package openai.

    $(tests/oracle/clients.sh) tests/oracle/serve_codex.py build
"""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e", "serve"))
from serve import Server  # noqa: E402
import e2e  # noqa: E402
import openai  # noqa: E402

T = e2e.Tally("serve: Codex's requests")
ALL = []


def function(name, **args):
    return {"type": "function", "name": name, "description": f"The tool {name}",
            "strict": False, "parameters": {
        "type": "object", "properties": args, "required": list(args)[:1],
        "additionalProperties": False}}


STRING = {"type": "string"}
LARK = ('start: begin hunk+ end\nbegin: "*** Begin Patch" LF\nend: "*** End Patch" LF?\nhunk: /.+/ '
        'LF\n%import common.LF')
TOOLS = [
    function("exec_command", cmd=STRING, workdir=STRING, yield_time_ms={"type": "number"}),
    function("update_plan", plan={"type": "array", "items":
                                      {"type": "object", "properties": {"step": STRING, "status": {
        "type": "string", "enum": ["pending", "in_progress", "completed"]}}, "required":
                                           ["step", "status"], "additionalProperties": False}}),
    {"type": "custom", "name": "apply_patch", "description": "Edit files by a patch",
     "format": {"type": "grammar", "syntax": "lark", "definition": LARK}},
    {"type": "web_search", "external_web_access": False, "search_content_types": ["text"]},
    {"type": "image_generation", "output_format": "png"},
    {"type": "tool_search", "execution": "client", "description": "Search for tools",
     "parameters": {"type": "object", "properties": {"query": STRING}}},
    {"type": "namespace", "name": "mcp__weather", "description": "Weather",
     "tools": [function("get_weather", city=STRING), function("get_forecast", city=STRING)]},
]
USER = {"type": "message", "role": "user",
        "content": [{"type": "input_text", "text": "What is the weather in Rome?"}]}
BASE = {"model": "demo", "instructions": "You are a coding agent.",
        "tools": TOOLS, "tool_choice": "auto", "parallel_tool_calls": False, "store": False,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "medium", "summary": "auto"},
        "prompt_cache_key": "0199-abc", "service_tier": "priority",
        "text": {"verbosity": "low"}, "extra_body": {"client_metadata": {
            "x-codex-installation-id": "1"}}, "temperature": 0, "max_output_tokens": 96}
FRONT = [{"type": "message", "role": "developer",
          "content": [{"type": "input_text", "text":
                           "<permissions instructions>\nread only\n</permissions instructions>"}]},
         {"type": "message", "role": "user",
          "content": [{"type": "input_text",
                       "text": "<environment_context>\n<cwd>/home</cwd>\n</environment_context>"}]}]


def scenario(fn):
    def run(c):
        try:
            fn(c)
            T.check(fn.__name__, None)
        except Exception as e:  # noqa: BLE001
            T.check(fn.__name__, f"{type(e).__name__}: {str(e)[:300]}")
    ALL.append(run)
    return run


def turn(c, items, **more):
    """One request as Codex makes it: a stream, of which the finished items and the end are read."""
    done, last = [], None
    for e in c.responses.create(input=FRONT + items, stream=True, **{**BASE, **more}):
        if e.type == "response.output_item.done":
            done.append(e.item)
        last = e
    assert last.type in ("response.completed", "response.incomplete"), last
    assert [i.id for i in last.response.output] == [
        i.id for i in done] and last.response.usage.total_tokens > 0
    return done


def back(item):
    """An item as it is sent again."""
    return {k: v for k, v in item.model_dump(exclude_none=True).items()
            if k not in ("id", "status")}


@scenario
def a_turn(c):
    assert turn(c, [USER])


@scenario
def a_function(c):
    out = turn(c, [USER], tool_choice={"type": "function", "name": "exec_command"})
    call = out[-1]
    assert call.type == "function_call" and call.name == "exec_command" and "cmd" in json.loads(
        call.arguments)
    assert turn(c, [USER, back(call),
                    {"type": "function_call_output", "call_id": call.call_id, "output": "exit 0"}])


@scenario
def a_function_of_a_namespace(c):
    out = turn(c, [USER],
               tool_choice={"type": "function", "name": "get_weather", "namespace": "mcp__weather"})
    call = out[-1]
    assert (call.type, call.name, call.namespace) == ("function_call",
                                                      "get_weather", "mcp__weather")
    assert turn(c, [USER, back(call), {"type": "function_call_output", "call_id": call.call_id,
                                       "output": [{"type": "input_text", "text": "20 C"}]}])


@scenario
def a_free_form_call(c):
    parts = []
    for e in c.responses.create(input=FRONT + [USER], stream=True, **{
            **BASE, "tool_choice": {"type": "custom", "name": "apply_patch"}}):
        if e.type == "response.custom_tool_call_input.delta":
            parts.append(e.delta)
        if e.type == "response.custom_tool_call_input.done":
            assert e.input == "".join(parts)
        if e.type == "response.output_item.done":
            call = e.item
    assert call.type == "custom_tool_call" and call.name == "apply_patch" and call.input == "".join(
        parts)
    assert turn(c, [USER, back(call),
                    {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "Done"}])


@scenario
def a_search_for_tools(c):
    out = turn(c, [USER], tools=[TOOLS[5]], tool_choice="required")
    call = out[-1]
    assert (call.type == "tool_search_call" and call.execution == "client"
            and "query" in call.arguments)
    found = {"type": "tool_search_output", "call_id": call.call_id,
             "status": "completed", "execution": "client", "tools": [TOOLS[-1]]}
    out = turn(c, [USER, back(call), found], tools=[TOOLS[5]], tool_choice={
        "type": "function", "name": "get_forecast", "namespace": "mcp__weather"})
    assert (out[-1].name, out[-1].namespace) == ("get_forecast", "mcp__weather")


@scenario
def whole_as_streamed(c):
    for choice in ("auto", "required", {"type": "custom", "name": "apply_patch"}):
        r = c.responses.create(input=FRONT + [USER], **{**BASE, "tool_choice": choice})
        assert [(i.type, getattr(i, "name", None)) for i in r.output] == [
            (i.type, getattr(i, "name", None)) for i in turn(c, [USER], tool_choice=choice)]


@scenario
def a_long_history(c):
    items = [USER, {"type": "reasoning", "summary": [{"type": "summary_text", "text": "x"}],
                    "content": None, "encrypted_content": "gAAAA"},
             {"type": "function_call", "name": "get_weather",
              "namespace": "mcp__weather", "arguments": "{\"city\":\"Rome\"}", "call_id": "c1"},
             {"type": "function_call_output", "call_id": "c1", "output": "20 C"},
             {"type": "custom_tool_call", "status": "completed",
              "call_id": "c2", "name": "apply_patch", "input": "*** Begin Patch\n*** End Patch"},
             {"type": "custom_tool_call_output", "call_id": "c2", "output": "Done"},
             {"type": "local_shell_call", "call_id": "c3",
              "status": "completed", "action": {"type": "exec", "command": ["ls"], "env": {}}},
             {"type": "function_call_output", "call_id": "c3", "output": "a b"},
             {"type": "web_search_call", "status": "completed",
              "action": {"type": "search", "query": "x"}},
             {"type": "tool_search_call", "call_id": "c4",
              "status": "completed", "execution": "client", "arguments": {"query": "weather"}},
             {"type": "tool_search_output", "call_id": "c4",
              "status": "completed", "execution": "client", "tools": [TOOLS[-1]]},
             {"type": "message", "role": "assistant",
              "content": [{"type": "output_text", "text": "Done."}]},
             {"type": "compaction", "encrypted_content": "gAAAA"},
             {"type": "message", "role": "developer",
              "content": [{"type": "input_text", "text": "x"}]}, USER]
    assert turn(c, items)


@scenario
def output_schema(c):
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}},
              "required": ["ok"], "additionalProperties": False}
    out = turn(c, [USER], tools=[], text={"verbosity": "low", "format": {
        "type": "json_schema", "strict": True, "name": "codex_output_schema", "schema": schema}})
    assert isinstance(json.loads(out[-1].content[0].text)["ok"], bool)


@scenario
def stored_and_referenced(c):
    a = c.responses.create(**{**BASE, "input": "My name is Anna.", "store": True, "tools": []})
    b = c.responses.create(**{**BASE, "input": [{"type": "item_reference", "id": a.output[-1].id},
                                                USER], "tools": []})
    d = c.responses.create(**{**BASE, "input": [USER], "previous_response_id": a.id, "tools": []})
    assert b.output and d.output


@scenario
def helper_stream(c):
    with c.responses.stream(input=FRONT + [USER],
                            **{k: v for k, v in BASE.items() if k != "service_tier"}) as s:
        for _ in s:
            pass
        assert s.get_final_response().status in ("completed", "incomplete")


with Server("--alias", "demo") as server:
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1",
                           api_key="none", max_retries=0)
    for one in ALL:
        one(client)
T.exit()
