# SPDX-License-Identifier: Apache-2.0
"""/v1/responses (A7): the object, the events in order, tools as items, going on from a stored
one."""
import json
import os
import sqlite3

from serve import Server, chat, error_of, key_line
import e2e

T = e2e.Tally("serve: responses")
URL = "/v1/responses"


def need(name, cond, what=""):
    T.check(name, None if cond else (str(what) or "not so"))


def ask(text="What is 17 + 25?", **more):
    return {"input": text, "temperature": 0, "max_output_tokens": 24, **more}


def events(s, body):
    """[(event name, data)]"""
    status, head, data = s.call("POST", URL, dict(body, stream=True))
    out = []
    for block in data.decode().split("\n\n"):
        lines = block.split("\n")
        if len(lines) == 2 and lines[0].startswith("event: "):
            out.append((lines[0][7:], json.loads(lines[1][6:])))
    return status, out


def shape(s):
    status, r = s.post(URL, ask())
    need("status", status == 200 and r["object"] == "response" and r["status"] == "completed" and
         r["error"] is None and r["incomplete_details"] is None, r)
    m = r["output"][0]
    need("message", m["type"] == "message" and m["role"] == "assistant"
         and m["status"] == "completed" and
         m["content"][0]["type"] == "output_text" and m["content"][0]["annotations"] == [], m)
    text = m["content"][0]["text"]
    need("same as chat", text == s.post("/v1/chat/completions",
                                        chat(max_tokens=24))[1]["choices"][0][
        "message"]["content"])
    u = r["usage"]
    need("usage", u["total_tokens"] == u["input_tokens"] + u["output_tokens"] > 0 and
         set(u["input_tokens_details"]) == {"cached_tokens", "cache_write_tokens"}
         and "reasoning_tokens" in u["output_tokens_details"], u)
    status, r = s.post(URL, ask(max_output_tokens=2))
    need("incomplete", r["status"] == "incomplete" and
         r["incomplete_details"] == {"reason": "max_output_tokens"}, r)
    status, r = s.post(URL, ask([{"role": "user", "content": [{"type": "input_text", "text":
                                                               "What is 17 + 25?"}]}]))
    need("items", r["output"][0]["content"][0]["text"] == text, r)
    status, r = s.post(URL, ask(include=["message.output_text.logprobs"], top_logprobs=2))
    lp = r["output"][0]["content"][0]["logprobs"]
    need("logprobs", len(lp) > 3 and len(lp[0]["top_logprobs"]) == 2, lp)
    for inc, good in (("reasoning.encrypted_content", True), ("web_search_call.results", True),
                      ("message.input_image.image_url", True), ("mcp_call.of_tomorrow", True),
                      ("message.output_text.logprob", False), ("logprobs", False),
                      ("bogus.results", False), (5, False), ("", False)):
        status, r = s.post(URL, ask(include=[inc], max_output_tokens=1))
        need(f"include {inc}", status == 200 if good else
             status == 400 and r["error"]["param"] == "include", r)
    return text


def stream(s, text):
    status, ev = events(s, ask())
    names = [n for n, _ in ev]
    need("names are types", all(n == d["type"] for n, d in ev))
    need("numbers rise by one", [d["sequence_number"] for _, d in ev] == list(range(len(ev))))
    need("order", names[:4] == ["response.created",
                                "response.in_progress", "response.output_item.added",
                                "response.content_part.added"] and
         names[-4:] == ["response.output_text.done", "response.content_part.done",
                        "response.output_item.done", "response.completed"], names)
    deltas = [d["delta"] for n, d in ev if n == "response.output_text.delta"]
    last = ev[-1][1]["response"]
    need("deltas are the whole", "".join(deltas) == text == last["output"][0]["content"][0]["text"])
    need("only deltas between", set(names[4:-4]) == {"response.output_text.delta"}, set(names))
    need("one id", len({d["item_id"] for _, d in ev if "item_id" in d}) == 1 and
         last["output"][0]["id"] == ev[4][1]["item_id"])
    need("begins unfinished", ev[0][1]["response"]["status"] == "in_progress" and
         ev[0][1]["response"]["usage"] is None)
    status, ev = events(s, ask(max_output_tokens=2))
    need("incomplete stream", ev[-1][0] == "response.incomplete")
    status, ev = events(s, ask(timeout_ms=1, max_output_tokens=2000, ignore_eos=True))
    need("failed stream", ev[-1][0] == "response.failed"
         and ev[-1][1]["response"]["error"]["message"], ev[-1])


def stored(s):
    status, one = s.post(URL, ask("My name is Anna."))
    status, got, data = s.get(f"{URL}/{one['id']}")
    need("get", status == 200 and json.loads(data) == one)
    status, two = s.post(URL, ask("What is 2 + 3?",
                                  previous_response_id=one["id"], instructions="Be brief."))
    need("previous", status == 200 and two["previous_response_id"] == one["id"], two)
    first = one["output"][0]["content"][0]["text"]
    status, flat = s.post(URL, ask([{"role": "user", "content": "My name is Anna."},
                                    {"role": "assistant", "content": first},
                                    {"role": "user", "content": "What is 2 + 3?"}],
                                   instructions="Be brief."))
    need("previous is the history", two["output"][0]["content"] == flat["output"][0]["content"] and
         two["usage"]["input_tokens"] == flat["usage"]["input_tokens"],
         (two["usage"], flat["usage"]))
    status, off = s.post(URL, ask(store=False))
    need("not stored", s.get(f"{URL}/{off['id']}")[0] == 404)
    need("delete", s.call("DELETE", f"{URL}/{one['id']}")[0] == 200
         and s.get(f"{URL}/{one['id']}")[0] == 404)
    return two["id"]


def input_items(s):
    """Items as they came, with ids, in pages; after previous_response_id the whole way there; no
    answer of its own among them."""
    def page(rid, query=""):
        status, _, data = s.get(f"{URL}/{rid}/input_items{query}")
        return status, json.loads(data)
    one = s.post(URL, ask("My name is Anna."))[1]
    status, r = page(one["id"])
    need("a text is a message", status == 200 and set(r)
         == {"object", "data", "first_id", "last_id", "has_more"} and r["object"] == "list" and
         r["has_more"] is False and len(r["data"]) == 1, r)
    m = r["data"][0]
    need("message of it", m["type"] == "message" and m["role"] == "user"
         and m["content"] == [{"type": "input_text", "text": "My name is Anna."}] and
         m["id"].startswith("msg_") and r["first_id"] == r["last_id"] == m["id"], m)
    sent = [{"role": "assistant", "content": "Hm?"},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "sunny", "id": "fco_mine"},
            {"role": "user", "content": [{"type": "input_text", "text": "And?"}]}]
    two = s.post(URL, ask(sent, previous_response_id=one["id"]))[1]
    status, r = page(two["id"], "?order=asc")
    d = r["data"]
    need("all the way", status == 200 and d[0] == m and d[1] == one["output"][0] and
         [x["type"] for x in d] == ["message", "message", "message",
                                    "function_call", "function_call_output", "message"], r)
    need("items as they were sent",
         d[2]["content"] == [{"type": "output_text", "text": "Hm?", "annotations": []}] and
         (d[3]["call_id"], d[3]["name"], d[3]["arguments"]) == ("c1", "f", "{}")
         and d[4]["id"] == "fco_mine" and d[4]["output"] == "sunny" and
         d[5]["content"] == sent[3]["content"] and len({x["id"] for x in d}) == 6, d)
    need("newest first",
         page(two["id"])[1]["data"] == d[::-1] == page(two["id"], "?order=desc")[1]["data"])
    for order, want in (("asc", d), ("desc", d[::-1])):
        got, query = [], f"?order={order}&limit=4"
        for _ in range(2):
            r = page(two["id"], query)[1]
            need("edges", r["first_id"] == r["data"][0]["id"]
                 and r["last_id"] == r["data"][-1]["id"], r)
            got += r["data"]
            query = f"?order={order}&limit=4&after={r['last_id']}"
        need(f"pages {order}", got == want and r["has_more"] is False and len(r["data"]) == 2, got)
        r = page(two["id"], query)[1]
        need(f"after the last {order}", r == {"object": "list", "data": [], "first_id": None,
                                               "last_id": None, "has_more": False}, r)
    need("more", page(two["id"], "?limit=5")[1]["has_more"] is True)
    for field in ("limit=0", "limit=101", "limit=x",
                  "limit=", "limit=99999999999999999999", "order=up", "after=nothing"):
        status, r = page(two["id"], "?" + field)
        need(f"input_items {field}", status == 400 and r["error"]["param"] == field.split("=")[0],
             r)
    off = s.post(URL, ask(store=False))[1]
    for rid in (off["id"], "resp_nothing", "", "a/b"):
        status, r = page(rid)
        need(f"input_items of {rid}", status == 404 and not error_of(json.dumps(r)), r)
    need("another method", s.call("POST", f"{URL}/{two['id']}/input_items", b"{}")[0] in (404, 405))
    return two["id"]


def old_file(path):
    """A file of a version that kept no items: what it holds is found and gone on from."""
    with sqlite3.connect(path) as c:
        c.execute("CREATE TABLE response(id TEXT PRIMARY KEY, key TEXT NOT NULL, at INTEGER NOT "
                  "NULL, body BLOB NOT NULL, history BLOB NOT NULL)")
        c.execute("INSERT INTO response VALUES('resp_old', '', 1, '{\"id\":\"resp_old\"}', "
                  "'{\"role\":\"user\",\"content\":\"Hi\"}')")
    with Server("--db", path) as s:
        need("old one", json.loads(s.get(f"{URL}/resp_old")[2]) == {"id": "resp_old"})
        status, _, data = s.get(f"{URL}/resp_old/input_items")
        need("old one: no items", status == 404 and b"older version" in data, data)
        status, r = s.post(URL, ask("And?", previous_response_id="resp_old"))
        items = json.loads(s.get(f"{URL}/{r['id']}/input_items")[2])
        need("old one: going on", status == 200 and len(items["data"]) == 1, items)
    with Server("--db", path) as s:
        need("old file again", json.loads(s.get(f"{URL}/{r['id']}/input_items")[2]) == items)


def tools(s):
    tool = {"type": "function", "name": "get_weather", "description": "Weather of a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                           "required": ["city"]}}
    status, r = s.post(URL, ask("What is the weather in Rome?", tools=[tool]))
    need("tools", status == 200 and r["tools"] == [tool], r)
    status, r = s.post(URL, ask([
        {"role": "user", "content": "What is the weather in Rome?"},
        {"type": "function_call", "call_id": "c1",
         "name": "get_weather", "arguments": "{\"city\":\"Rome\"}"},
        {"type": "function_call", "call_id": "c2",
         "name": "get_weather", "arguments": "{\"city\":\"Oslo\"}"},
        {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
        {"type": "function_call_output", "call_id": "c2",
         "output": [{"type": "input_text", "text": "rain"}]}],
        tools=[tool]))
    need("tool results", status == 200, r)


FUNC = {"type": "function", "name": "shell", "strict": False, "description": "Run", "parameters": {
    "type": "object", "properties": {"command": {"type": "string"}},
    "required": ["command"], "additionalProperties": False}}
PATCH = {"type": "custom", "name": "apply_patch", "description": "Patch files",
         "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"x\""}}
SPACE = {"type": "namespace", "name": "mcp__demo", "description": "d", "tools": [
    {"type": "function", "name": "get_weather", "description": "Weather of a city", "strict": False,
     "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                    "required": ["city"]}}, dict(PATCH, name="note")]}
FOREIGN = [{"type": "web_search", "external_web_access": True}, {"type": "web_search_preview"},
           {"type": "local_shell"}, {"type": "shell"}, {"type": "apply_patch"},
           {"type": "image_generation", "output_format": "png"},
           {"type": "code_interpreter", "container": {"type": "auto"}},
           {"type": "file_search", "vector_store_ids": []},
           {"type": "mcp", "server_label": "x", "server_url": "http://127.0.0.1:9"},
           {"type": "computer_use_preview"}, {"type": "of_tomorrow", "name": "x"},
           {"type": "tool_search"}, {"type": "tool_search", "execution": "server",
                                     "parameters": {"type": "object", "properties": {}}},
           {"type": "namespace", "name": "n", "tools": []}]


def chat_tokens(s, messages, tools=None):
    """What the same conversation is in chat's form."""
    return s.post("/tokenize",
                  {"messages": messages, **({"tools": tools} if tools else {})})[1]["count"]


def function(name, of):
    return {"type": "function", "function": {
        "name": name, **{k: of[k] for k in ("description", "parameters", "strict") if k in of}}}


def tokens(s, items, **more):
    status, r = s.post(URL, ask(items, max_output_tokens=1, **more))
    return r["usage"]["input_tokens"] if status == 200 else r


def other_tools(s):
    """Tools that are no functions: left out, free-form calls, functions of namespaces."""
    plain = tokens(s, "What is 17 + 25?", tools=[FUNC])
    for t in FOREIGN:
        status, r = s.post(URL, dict(ask(tools=[FUNC, t], parallel_tool_calls=False, store=False,
                                         include=["reasoning.encrypted_content"],
                                         client_metadata={"x": "y"},
                                         reasoning={"effort": "medium", "summary": "auto"},
                                         prompt_cache_key="k", service_tier="auto"),
                                     text={"verbosity": "low"}))
        need(f"{t['type']} beside a function",
             status == 200 and r["tools"] == [FUNC, t] and r["usage"]["input_tokens"] == plain, r)
    let_in = {"authorization": "SECRET-A", "headers": {"X-Key": "SECRET-B"}}
    status, r = s.post(URL, ask(tools=[FUNC, dict(FOREIGN[8], **let_in)]))
    _, ev = events(s, ask(tools=[FUNC, dict(FOREIGN[8], **let_in)], max_output_tokens=2))
    need("secrets of an MCP server are not given back", status == 200 and
         r["tools"] == [FUNC, FOREIGN[8]] and "SECRET" not in
         str(ev) + str(s.get(f"{URL}/{r['id']}")[2]), r)
    status, r = s.post(URL, ask(tools=FOREIGN + [FUNC], tool_choice="required"))
    need("required: of what is left", [o.get("name") for o in r["output"]] == ["shell"], r)
    for choice in ("auto", "none", {"type": "web_search"},
                   {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]}):
        status, r = s.post(URL, ask(tools=[FOREIGN[0]], tool_choice=choice))
        need(f"nothing is left, {choice}", status == 200 and r["output"][0]["type"] == "message", r)
    for choice in ("required", {"type": "allowed_tools",
                                "mode": "required", "tools": [{"type": "web_search"}]}):
        status, r = s.post(URL, ask(tools=[FOREIGN[0]], tool_choice=choice))
        need(f"required and nothing left, {choice}",
             status == 400 and r["error"]["param"] == "tool_choice", r)
    for choice in ({"type": "web_serach"}, {"type": "any"}):
        status, r = s.post(URL, ask(tools=[FUNC, PATCH, SPACE], tool_choice=choice))
        need(f"no tool of that kind, {choice}",
             status == 400 and r["error"]["param"] == "tool_choice.type", r)
    lark = PATCH["format"]
    for form, word in (("x", ""), ({"type": "lark"}, ".type"), ({"type": "text"}, None),
                       ({**lark, "syntax": "ebnf"}, ".syntax"), ({**lark, "syntax": "regex"}, None),
                       ({**lark, "definition": 5}, ".definition")):
        status, r = s.post(URL, ask(tools=[FUNC, dict(PATCH, format=form)]))
        need(f"a free-form tool's format {form}", status == 200 if word is None else
             status == 400 and r["error"]["param"] == "tools[1].format" + word, r)
    for choice, want in (({"type": "custom", "name": "apply_patch"},
                          ("custom_tool_call", "apply_patch", None)),
                         ({"type": "function", "name": "get_weather", "namespace": "mcp__demo"},
                          ("function_call", "get_weather", "mcp__demo")),
                         ({"type": "function", "name": "mcp__demo__get_weather"},
                          ("function_call", "get_weather", "mcp__demo")),
                         ({"type": "custom", "name": "note", "namespace": "mcp__demo"},
                          ("custom_tool_call", "note", "mcp__demo")),
                         ({"type": "allowed_tools", "mode": "required", "tools":
                               [{"type": "function", "name": "shell"}, {"type": "web_search"}]},
                          ("function_call", "shell", None))):
        body = ask("What is the weather in Oslo?", tools=[FUNC, FOREIGN[0], PATCH, SPACE],
                   tool_choice=choice, parallel_tool_calls=False)
        status, r = s.post(URL, body)
        o = r["output"][0] if status == 200 else r
        need(f"call by {choice}",
             (o.get("type"), o.get("name"), o.get("namespace")) == want and o["call_id"], r)
        status, ev = events(s, body)
        added = [d["item"] for n, d in ev if n == "response.output_item.added"]
        done = [d["item"] for n, d in ev if n == "response.output_item.done"]
        kind, key = ("custom_tool_call_input", "input") if o.get(
            "type") == "custom_tool_call" else ("function_call_arguments", "arguments")
        text = "".join(d["delta"] for n, d in ev if n == f"response.{kind}.delta")
        need(f"stream of {choice}", added and added[0].get("namespace") == want[2]
             and added[0][key] == "" and text == done[0][key] == o[key] and
             [d[key] for n, d in ev if n == f"response.{kind}.done"] == [text], ev)
    search = {"type": "tool_search", "execution": "client",
              "description": "Find tools", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}},
        "required": ["city"], "additionalProperties": False}}
    body = ask("What is the weather in Oslo?", tools=[search],
               tool_choice="required", parallel_tool_calls=False)
    o = s.post(URL, body)[1]["output"][0]
    done = [d["item"] for n, d in events(s, body)[1] if n == "response.output_item.done"]
    need("a search of the client's", o["type"] == "tool_search_call"
         and o["execution"] == "client" and set(o["arguments"]) == {"city"} and
         done[0]["arguments"] == o["arguments"] and "name" not in o, (o, done))
    need("a search and what it found", s.post(URL, ask([{"role": "user", "content": "Hi"}, o, {
        "type": "tool_search_output", "call_id": o["call_id"],
        "execution": "client", "tools": [SPACE]}], tools=[search]))[0] == 200)
    status, r = s.post(URL, ask("What is the weather in Oslo?",
                                tools=[SPACE], tool_choice="required", parallel_tool_calls=False))
    o = r["output"][0]
    need("a call goes back",
         s.post(URL, ask([{"role": "user", "content": "What is the weather in Oslo?"}, o, {
        "type": "function_call_output", "call_id": o["call_id"], "output": "20 C"}],
                         tools=[SPACE]))[0] == 200, o)
    flat = [function("mcp__demo__get_weather", SPACE["tools"][0])]
    only = dict(SPACE, tools=SPACE["tools"][:1])
    need("names of a namespace",
         tokens(s, "Hi", tools=[only]) == chat_tokens(s, [{"role": "user", "content": "Hi"}], flat))
    need("functions is no namespace", tokens(s, "Hi", tools=[dict(only, name="functions")])
         == tokens(s, "Hi", tools=only["tools"]))
    need("one that ends in __",
         tokens(s, "Hi", tools=[dict(only, name="mcp__demo__")]) == tokens(s, "Hi", tools=[only]))


def items(s):
    """Items of Codex and of other conversations: read, or accepted and left out."""
    user = {"role": "user", "content": "Hi"}

    def call(name, args):
        return {"role": "assistant", "content": None,
                "tool_calls": [{"id": "c", "type": "function",
                                "function": {"name": name, "arguments": json.dumps(args)}}]}
    tool = {"role": "tool", "tool_call_id": "c", "content": "done"}
    out = {"call_id": "c", "output": "done"}
    action = {"type": "exec", "command": ["ls", "-l"], "env": {}}
    for name, mine, chat in (
            ("custom_tool_call", [{"type": "custom_tool_call", "call_id": "c",
                                   "name": "apply_patch", "input": "*** Begin\n\"x\""},
                                  {"type": "custom_tool_call_output", **out}],
             [call("apply_patch", {"input": "*** Begin\n\"x\""}), tool]),
            ("function_call of a namespace",
             [{"type": "function_call", "call_id": "c",
               "name": "get_weather", "namespace": "mcp__demo", "arguments": "{\"city\":\"Oslo\"}"},
                                              {"type": "function_call_output", "call_id": "c",
                                               "output": [{"type": "input_text", "text": "done"}]}],
             [call("mcp__demo__get_weather", {"city": "Oslo"}), tool]),
            ("local_shell_call",
             [{"type": "local_shell_call", "call_id": "c", "status": "completed", "action": action},
                                  {"type": "local_shell_call_output", **out}],
             [call("local_shell", action), tool]),
            ("output as an object",
             [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                                     {"type": "function_call_output", "call_id": "c",
                                      "output": {"content": "done", "success": False}}],
             [call("f", {}), tool]),
            ("agent_message",
             [{"type": "agent_message", "content": [{"type": "input_text", "text": "Hi"}, {
                     "type": "encrypted_content", "encrypted_content": "x"}]}], [user])):
        got, want = tokens(s, [user] + mine), chat_tokens(s, [user] + chat)
        need(f"item {name}", got == want, (got, want))
    plain = tokens(s, [user])
    for it in ([{"type": "reasoning", "id": "rs_1",
                 "summary": [{"type": "summary_text", "text": "x"}], "encrypted_content": "x"}],
               [{"type": "web_search_call", "id": "ws_1",
                 "status": "completed", "action": {"type": "search", "query": "x"}}],
               [{"type": "compaction", "encrypted_content": "x"}], [{"type": "context_compaction"}],
               [{"type": "image_generation_call", "id": "i", "result": ""}],
               [{"type": "additional_tools", "role": "developer", "tools": []}],
               [{"type": "item_reference", "id": "rs_gone"}],
               [{"type": "mcp_list_tools", "id": "m", "server_label": "x", "tools": []}],
               [{"type": "program", "id": "p", "call_id": "c", "code": "x", "fingerprint": "f"},
                {"type": "program_output", "id": "q", "call_id": "c", "result": "y",
                 "status": "completed"}],
               [{"type": "file_search_call"}, {"type": "code_interpreter_call"}]):
        need(f"item {it[0]['type']}", tokens(s, [user] + it) == plain)
    more = {"type": "additional_tools", "role": "developer", "tools": [SPACE, FOREIGN[0]]}
    need("tools of an item", tokens(s, [user, more]) == tokens(s, [user], tools=[SPACE]) > plain)
    need("tools told twice",
         tokens(s, [user, more], tools=[SPACE]) == tokens(s, [user], tools=[SPACE]))
    found = [{"type": "tool_search_call", "call_id": "c",
              "execution": "client", "arguments": {"query": "weather"}},
             {"type": "tool_search_output", "call_id": "c",
              "status": "completed", "execution": "client", "tools": [SPACE]}]
    status, r = s.post(URL, ask([user] + found + [user], tools=[
        FUNC], tool_choice={"type": "function", "name": "get_weather", "namespace": "mcp__demo"}))
    need("tools that were found", status == 200 and r["output"][0].get("namespace") == "mcp__demo",
         r)
    need("system messages in front are one", tokens(s, [{"role": "developer", "content": [
        {"type": "input_text", "text": "b"}]}, {"role": "system", "content": "c"}, user],
                                                    instructions="a")
         == chat_tokens(s, [{"role": "system", "content": "a\n\nb\n\nc"}, user]))


def references(s):
    one = s.post(URL, ask("My name is Anna."))[1]
    kept = json.loads(s.get(f"{URL}/{one['id']}/input_items")[2])["data"][0]["id"]
    answer = one["output"][0]
    body = [{"type": "item_reference", "id": kept},
            {"type": "item_reference", "id": answer["id"]}, {"role": "user", "content": "And?"}]
    status, r = s.post(URL, ask(body))
    whole = s.post(URL, ask([{"role": "user", "content": "My name is Anna."}, {
        "role": "assistant", "content": answer["content"][0]["text"]}, body[2]]))[1]
    need("references", status == 200 and r["output"][0]["content"] == whole["output"][0]["content"]
         and
         r["usage"]["input_tokens"] == whole["usage"]["input_tokens"], (r, whole))
    need("items of references", [x["id"] for x in json.loads(
        s.get(f"{URL}/{r['id']}/input_items?order=asc")[2])["data"]][:2] == [kept, answer["id"]])
    status, r = s.post(URL, ask("What is the weather in Oslo?",
                                tools=[PATCH], tool_choice="required", parallel_tool_calls=False))
    call = r["output"][0]
    status, r = s.post(URL, ask([{"type": "custom_tool_call_output", "call_id": call["call_id"],
                                  "output": "ok"}], previous_response_id=r["id"], tools=[PATCH]))
    need("going on after a free-form call", status == 200, r)


def bad(s):
    for name, body, param in [
            ("no input", {}, "input"), ("input number", {"input": 5}, "input"),
            ("empty list", {"input": []}, "input"),
            ("item", {"input": ["x"]}, "input[0]"),
            ("item type", {"input": [{"type": "computer"}]}, "input[0]"),
            ("item reference", {"input": [{"type": "item_reference", "id": "x"}]}, "input[0].id"),
            ("item reference without id", {"input": [{"type": "item_reference"}]}, "input[0].id"),
            ("nothing to read", {"input": [{"type": "compaction", "encrypted_content": "x"}]},
             "input"),
            ("call's name", ask([{"type": "custom_tool_call", "call_id": "c", "name": 5}]),
             "input[0].name"),
            ("call's input", ask([{"type": "custom_tool_call",
                                   "call_id": "c", "name": "x", "input": 5}]), "input[0].input"),
            ("call's arguments", ask([{"type": "function_call", "call_id": "c",
                                       "name": "x", "arguments": 5}]), "input[0].arguments"),
            ("call's namespace", ask([{"type": "function_call", "call_id": "c",
                                       "name": "x", "namespace": 5}]), "input[0].namespace"),
            ("call's id", ask([{"type": "function_call", "call_id": 5, "name": "x"}]),
             "input[0].call_id"),
            ("tools of an item", ask([{"type": "additional_tools", "tools": 5},
                                      {"role": "user", "content": "x"}]), "input[0].tools"),
            ("tool of an item", ask([{"type": "additional_tools", "tools": [{"type": "function"}]},
                                     {"role": "user", "content": "x"}]), "input[0].tools[0].name"),
            ("tool without type", ask(tools=[{"name": "x"}]), "tools[0].type"),
            ("tool's name", ask(tools=[FUNC, dict(FUNC, name=5)]), "tools[1].name"),
            ("tool's description", ask(tools=[dict(PATCH, description=5)]), "tools[0].description"),
            ("tool's format", ask(tools=[dict(PATCH, format=5)]), "tools[0].format"),
            ("tool's parameters", ask(tools=[dict(FUNC, parameters="x")]), "tools[0].parameters"),
            ("tool's strict", ask(tools=[dict(FUNC, strict="x")]), "tools[0].strict"),
            ("namespace's name", ask(tools=[dict(SPACE, name=5)]), "tools[0].name"),
            ("namespace's tools", ask(tools=[dict(SPACE, tools={})]), "tools[0].tools"),
            ("function of a namespace", ask(tools=[
                FOREIGN[0], dict(SPACE, tools=[dict(FUNC, name="")])]), "tools[1].tools[0].name"),
            ("schema of a namespace",
             ask(tools=[FOREIGN[0], dict(SPACE, tools=[dict(FUNC, strict=True, parameters={
                 "type": "object", "properties": {"a": {"type": "hat"}}})])]),
             "tools[1].tools[0].parameters"),
            ("choice of no tool", ask(tools=[FUNC], tool_choice={"type": "function", "name": "x"}),
             "tool_choice"),
            ("choice's name", ask(tools=[FUNC], tool_choice={"type": "function", "name": 5}),
             "tool_choice.name"),
            ("choice without type", ask(tools=[FUNC], tool_choice={"name": "shell"}),
             "tool_choice.type"),
            ("allowed tool", ask(tools=[FUNC], tool_choice={"type": "allowed_tools", "mode": "auto",
                                                            "tools": [5]}), "tool_choice.tools[0]"),
            ("client_metadata", ask(client_metadata=5), "client_metadata"),
            ("verbosity", dict(ask(), text={"verbosity": 5}), "text.verbosity"),
            ("summary", ask(reasoning={"summary": 5}), "reasoning.summary"),
            ("service_tier", ask(service_tier=5), "service_tier"),
            ("prompt_cache_key", ask(prompt_cache_key=5), "prompt_cache_key"),
            ("include", ask(include="x"), "include"),
            ("place after instructions", ask([{"role": "user", "content": "x"}, {
                "role": "user", "content": 5}], instructions="y"), "input[1].content"),
            ("place after calls", ask([{"type": "function_call", "call_id": k,
                                         "name": "f", "arguments": "{}"} for k in "ab"] +
                                       [{"role": "robot", "content": "x"}]), "input[2].role"),
            ("output", ask([{"type": "function_call_output", "call_id": "a", "output": 5}]),
             "input[0].output"),
            ("instructions", ask(instructions=5), "instructions"),
            ("effort", ask(reasoning={"effort": 5}), "reasoning.effort"),
            ("role", ask([{"role": "x", "content": "y"}]), "input[0].role"),
            ("image", ask([{"role": "user", "content":
                                [{"type": "input_image", "image_url": "http://127.0.0.1:9"}]}]),
             "input[0].content"),
            ("previous", ask(previous_response_id="resp_nothing"), "previous_response_id"),
            ("conversation", ask(conversation="c"), "conversation"),
            ("background", ask(background=True), "background"),
            ("truncation", ask(truncation="auto"), "truncation"),
            ("tool", ask(tools=[5]), "tools[0]"),
            ("prompt", ask(prompt={"id": "x"}), "prompt"),
            ("max", ask(max_output_tokens=0), "max_output_tokens"),
            ("temperature", ask(temperature=3), "temperature"), ("top_p", ask(top_p=-1), "top_p"),
            ("stream", ask(stream="x"), "stream")]:
        got, head, data = s.call("POST", URL, body)
        T.check(name, (None if got == 400 else f"status {got}: {data[:200]!r}") or error_of(data) or
                (None if json.loads(data)["error"]["param"] == param else data.decode()))
    need("no such id", s.get(f"{URL}/resp_x")[0] == 404 and s.get(f"{URL}/")[0] == 405)
    need("odd id", s.get(f"{URL}/..%2f..%2fetc")[0] == 404)


with e2e.scratch() as tmp:
    db, keys = os.path.join(tmp, "state.db"), os.path.join(tmp, "keys")
    with Server("--db", db) as server:
        probe = server.get(f"{URL}/resp_x")[2]
        if b"without SQLite" in probe:
            T.check("built without SQLite", None)
            T.exit()
        stream(server, shape(server))
        kept = stored(server)
        listed = input_items(server)
        tools(server)
        other_tools(server)
        items(server)
        references(server)
        bad(server)
        need("exit", server.stop() == 0)
    with open(keys, "w") as f:
        f.write(key_line("anna", "a") + key_line("ben", "b"))
    with Server("--db", db, "--api-key-file", keys) as server:
        anna, ben = {"Authorization": "Bearer a"}, {"Authorization": "Bearer b"}
        need("another's is not found", server.get(f"{URL}/{kept}", anna)[0] == 404
             and server.get(f"{URL}/{listed}/input_items", anna)[0] == 404)
        status, mine = server.post(URL, ask(), anna)
        need("mine", server.get(f"{URL}/{mine['id']}", anna)[0] == 200 and
             server.get(f"{URL}/{mine['id']}", ben)[0] == 404)
        need("going on from another's",
             server.post(URL, ask(previous_response_id=mine["id"]), ben)[0] == 400)
        need("exit with keys", server.stop() == 0)
    old_file(os.path.join(tmp, "old.db"))
    with Server("--db", db) as server:
        need("after a restart: items",
             len(json.loads(server.get(f"{URL}/{listed}/input_items")[2])["data"]) == 6)
        need("after a restart", server.get(f"{URL}/{kept}")[0] == 200)
    with sqlite3.connect(db) as c:
        row = c.execute(
            "SELECT key, requests, prompt_tokens, completion_tokens FROM usage").fetchall()
    need("usage by key", row and row[0][0] == "anna"
         and row[0][1] == 1 and row[0][2] > 5 and row[0][3] > 2, row)
T.exit()
