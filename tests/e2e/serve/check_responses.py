# SPDX-License-Identifier: Apache-2.0
"""/v1/responses (A7): the object, the events in order, tools as items, going on from a stored one."""
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
    need("message", m["type"] == "message" and m["role"] == "assistant" and m["status"] == "completed" and
         m["content"][0]["type"] == "output_text" and m["content"][0]["annotations"] == [], m)
    text = m["content"][0]["text"]
    need("same as chat", text == s.post("/v1/chat/completions", chat(max_tokens=24))[1]["choices"][0][
        "message"]["content"])
    u = r["usage"]
    need("usage", u["total_tokens"] == u["input_tokens"] + u["output_tokens"] > 0 and
         "cached_tokens" in u["input_tokens_details"] and "reasoning_tokens" in u["output_tokens_details"], u)
    status, r = s.post(URL, ask(max_output_tokens=2))
    need("incomplete", r["status"] == "incomplete" and
         r["incomplete_details"] == {"reason": "max_output_tokens"}, r)
    status, r = s.post(URL, ask([{"role": "user", "content": [{"type": "input_text", "text":
                                                               "What is 17 + 25?"}]}]))
    need("items", r["output"][0]["content"][0]["text"] == text, r)
    status, r = s.post(URL, ask(include=["message.output_text.logprobs"], top_logprobs=2))
    lp = r["output"][0]["content"][0]["logprobs"]
    need("logprobs", len(lp) > 3 and len(lp[0]["top_logprobs"]) == 2, lp)
    return text


def stream(s, text):
    status, ev = events(s, ask())
    names = [n for n, _ in ev]
    need("names are types", all(n == d["type"] for n, d in ev))
    need("numbers rise by one", [d["sequence_number"] for _, d in ev] == list(range(len(ev))))
    need("order", names[:4] == ["response.created", "response.in_progress", "response.output_item.added",
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
    need("failed stream", ev[-1][0] == "response.failed" and ev[-1][1]["response"]["error"]["message"], ev[-1])


def stored(s):
    status, one = s.post(URL, ask("My name is Anna."))
    status, got, data = s.get(f"{URL}/{one['id']}")
    need("get", status == 200 and json.loads(data) == one)
    status, two = s.post(URL, ask("What is 2 + 3?", previous_response_id=one["id"], instructions="Be brief."))
    need("previous", status == 200 and two["previous_response_id"] == one["id"], two)
    first = one["output"][0]["content"][0]["text"]
    status, flat = s.post(URL, ask([{"role": "user", "content": "My name is Anna."},
                                    {"role": "assistant", "content": first},
                                    {"role": "user", "content": "What is 2 + 3?"}], instructions="Be brief."))
    need("previous is the history", two["output"][0]["content"] == flat["output"][0]["content"] and
         two["usage"]["input_tokens"] == flat["usage"]["input_tokens"], (two["usage"], flat["usage"]))
    status, off = s.post(URL, ask(store=False))
    need("not stored", s.get(f"{URL}/{off['id']}")[0] == 404)
    need("delete", s.call("DELETE", f"{URL}/{one['id']}")[0] == 200 and s.get(f"{URL}/{one['id']}")[0] == 404)
    return two["id"]


def input_items(s):
    """Items as they came, with ids, in pages; behind previous_response_id the whole way there; no answer of its own among them."""
    def page(rid, query=""):
        status, _, data = s.get(f"{URL}/{rid}/input_items{query}")
        return status, json.loads(data)
    one = s.post(URL, ask("My name is Anna."))[1]
    status, r = page(one["id"])
    need("a text is a message", status == 200 and set(r) == {"object", "data", "first_id", "last_id", "has_more"} and r["object"] == "list" and
         r["has_more"] is False and len(r["data"]) == 1, r)
    m = r["data"][0]
    need("message of it", m["type"] == "message" and m["role"] == "user" and m["content"] == [{"type": "input_text", "text": "My name is Anna."}] and
         m["id"].startswith("msg_") and r["first_id"] == r["last_id"] == m["id"], m)
    sent = [{"role": "assistant", "content": "Hm?"}, {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "sunny", "id": "fco_mine"},
            {"role": "user", "content": [{"type": "input_text", "text": "And?"}]}]
    two = s.post(URL, ask(sent, previous_response_id=one["id"]))[1]
    status, r = page(two["id"], "?order=asc")
    d = r["data"]
    need("all the way", status == 200 and d[0] == m and d[1] == one["output"][0] and
         [x["type"] for x in d] == ["message", "message", "message", "function_call", "function_call_output", "message"], r)
    need("items as they were sent", d[2]["content"] == [{"type": "output_text", "text": "Hm?", "annotations": []}] and
         (d[3]["call_id"], d[3]["name"], d[3]["arguments"]) == ("c1", "f", "{}") and d[4]["id"] == "fco_mine" and d[4]["output"] == "sunny" and
         d[5]["content"] == sent[3]["content"] and len({x["id"] for x in d}) == 6, d)
    need("newest first", page(two["id"])[1]["data"] == d[::-1] == page(two["id"], "?order=desc")[1]["data"])
    for order, want in (("asc", d), ("desc", d[::-1])):
        got, query = [], f"?order={order}&limit=4"
        for _ in range(2):
            r = page(two["id"], query)[1]
            need("edges", r["first_id"] == r["data"][0]["id"] and r["last_id"] == r["data"][-1]["id"], r)
            got += r["data"]
            query = f"?order={order}&limit=4&after={r['last_id']}"
        need(f"pages {order}", got == want and r["has_more"] is False and len(r["data"]) == 2, got)
        r = page(two["id"], query)[1]
        need(f"behind the last {order}", r == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}, r)
    need("more", page(two["id"], "?limit=5")[1]["has_more"] is True)
    for field in ("limit=0", "limit=101", "limit=x", "limit=", "limit=99999999999999999999", "order=up", "after=nothing"):
        status, r = page(two["id"], "?" + field)
        need(f"input_items {field}", status == 400 and r["error"]["param"] == field.split("=")[0], r)
    off = s.post(URL, ask(store=False))[1]
    for rid in (off["id"], "resp_nothing", "", "a/b"):
        status, r = page(rid)
        need(f"input_items of {rid}", status == 404 and not error_of(json.dumps(r)), r)
    need("another method", s.call("POST", f"{URL}/{two['id']}/input_items", b"{}")[0] in (404, 405))
    return two["id"]


def old_file(path):
    """A file of a version that kept no items: what it holds is found and gone on from."""
    with sqlite3.connect(path) as c:
        c.execute("CREATE TABLE response(id TEXT PRIMARY KEY, key TEXT NOT NULL, at INTEGER NOT NULL, body BLOB NOT NULL, history BLOB NOT NULL)")
        c.execute("INSERT INTO response VALUES('resp_old', '', 1, '{\"id\":\"resp_old\"}', '{\"role\":\"user\",\"content\":\"Hi\"}')")
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
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
    status, r = s.post(URL, ask("What is the weather in Rome?", tools=[tool]))
    need("tools", status == 200 and r["tools"] == [tool], r)
    status, r = s.post(URL, ask([
        {"role": "user", "content": "What is the weather in Rome?"},
        {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{\"city\":\"Rome\"}"},
        {"type": "function_call", "call_id": "c2", "name": "get_weather", "arguments": "{\"city\":\"Oslo\"}"},
        {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "rain"}]}],
        tools=[tool]))
    need("tool results", status == 200, r)


def bad(s):
    for name, body, param in [
            ("no input", {}, "input"), ("input number", {"input": 5}, "input"), ("empty list", {"input": []}, "input"),
            ("item", {"input": ["x"]}, "input[0]"), ("item type", {"input": [{"type": "computer"}]}, "input[0]"),
            ("item reference", {"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
            ("place behind instructions", ask([{"role": "user", "content": "x"}, {"role": "user", "content": 5}], instructions="y"), "input[1].content"),
            ("place behind calls", ask([{"type": "function_call", "call_id": k, "name": "f", "arguments": "{}"} for k in "ab"] +
                                       [{"role": "robot", "content": "x"}]), "input[2].role"),
            ("output", ask([{"type": "function_call_output", "call_id": "a", "output": 5}]), "input[0].output"),
            ("instructions", ask(instructions=5), "instructions"), ("effort", ask(reasoning={"effort": 5}), "reasoning.effort"),
            ("role", ask([{"role": "x", "content": "y"}]), "input[0].role"),
            ("image", ask([{"role": "user", "content": [{"type": "input_image", "image_url": "http://127.0.0.1:9"}]}]),
             "input[0].content"),
            ("previous", ask(previous_response_id="resp_nothing"), "previous_response_id"),
            ("conversation", ask(conversation="c"), "conversation"), ("background", ask(background=True), "background"),
            ("truncation", ask(truncation="auto"), "truncation"),
            ("tool", ask(tools=[{"type": "web_search"}]), "tools[0].type"),
            ("prompt", ask(prompt={"id": "x"}), "prompt"), ("max", ask(max_output_tokens=0), "max_output_tokens"),
            ("temperature", ask(temperature=3), "temperature"), ("top_p", ask(top_p=-1), "top_p"),
            ("stream", ask(stream="x"), "stream")]:
        got, head, data = s.call("POST", URL, body)
        T.check(name, (None if got == 400 else f"status {got}: {data[:200]!r}") or error_of(data) or
                (None if json.loads(data)["error"]["param"] == param else data.decode()))
    need("no such id", s.get(f"{URL}/resp_x")[0] == 404 and s.get(f"{URL}/")[0] == 404)
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
        bad(server)
        need("exit", server.stop() == 0)
    with open(keys, "w") as f:
        f.write(key_line("anna", "a") + key_line("ben", "b"))
    with Server("--db", db, "--api-key-file", keys) as server:
        anna, ben = {"Authorization": "Bearer a"}, {"Authorization": "Bearer b"}
        need("another's is not found", server.get(f"{URL}/{kept}", anna)[0] == 404 and server.get(f"{URL}/{listed}/input_items", anna)[0] == 404)
        status, mine = server.post(URL, ask(), anna)
        need("mine", server.get(f"{URL}/{mine['id']}", anna)[0] == 200 and
             server.get(f"{URL}/{mine['id']}", ben)[0] == 404)
        need("going on from another's", server.post(URL, ask(previous_response_id=mine["id"]), ben)[0] == 400)
        need("exit with keys", server.stop() == 0)
    old_file(os.path.join(tmp, "old.db"))
    with Server("--db", db) as server:
        need("after a restart: items", len(json.loads(server.get(f"{URL}/{listed}/input_items")[2])["data"]) == 6)
        need("after a restart", server.get(f"{URL}/{kept}")[0] == 200)
    with sqlite3.connect(db) as c:
        row = c.execute("SELECT key, requests, prompt_tokens, completion_tokens FROM usage").fetchall()
    need("usage by key", row and row[0][0] == "anna" and row[0][1] == 1 and row[0][2] > 5 and row[0][3] > 2, row)
T.exit()
