# SPDX-License-Identifier: Apache-2.0
"""gpt-oss' channels through every route: reasoning, answers, calls and results, whole and streamed,
from a checkpoint of that family that says them by heart (harmony_model.py).

check_harmony.py BUILD"""
import json
import tempfile

from serve import Server
import e2e
import harmony_model
from harmony_model import ANSWER, ARGS, REASON

T = e2e.Tally("serve: harmony")
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
PARAMS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
          "required": ["a", "b"], "additionalProperties": False}
ASK = [{"role": "user", "content": "What is 3 + 4?"}]


def need(name, cond, what=""):
    T.check(name, None if cond else (str(what) or "not so"))


# ---- chat completions ----

TOOL = {"type": "function", "function": {"name": "add", "parameters": PARAMS}}


def chat(messages=None, **more):
    return {"messages": messages or ASK, "temperature": 0, "max_tokens": 64, **more}


def is_call(c):
    f = c["function"]
    return c["type"] == "function" and f["name"] == "add" and json.loads(f["arguments"]) == ARGS


def chat_streamed(s, body):
    """What a stream adds up to, as a message; its finish reason; whether reasoning came first."""
    status, events, _ = s.stream(CHAT, body)
    m, why, order = {"content": "", "reasoning_content": "", "tool_calls": []}, None, []
    for e in events[:-1] if status == 200 else []:
        choice = e["choices"][0] if e["choices"] else {"delta": {}, "finish_reason": None}
        d, why = choice["delta"], choice["finish_reason"] or why
        for k in ("content", "reasoning_content"):
            if d.get(k):
                m[k] += d[k]
                order.append(k)
        for t in d.get("tool_calls", []):
            order.append("tool_calls")
            if t["index"] == len(m["tool_calls"]):
                empty = {"name": "", "arguments": ""}
                m["tool_calls"].append({"type": t["type"], "function": empty})
            for k, v in t["function"].items():
                m["tool_calls"][t["index"]]["function"][k] += v
    return m, why, list(dict.fromkeys(order))


def completions(s):
    status, r = s.post(CHAT, chat())
    c = r["choices"][0]
    m = c["message"]
    need("answer", status == 200 and m["content"] == ANSWER and m["reasoning_content"] == REASON and
         c["finish_reason"] == "stop" and not m.get("tool_calls"), r)
    need("reasoning is counted",
         0 < r["usage"]["completion_tokens_details"]["reasoning_tokens"] <
         r["usage"]["completion_tokens"], r["usage"])
    m, why, order = chat_streamed(s, chat())
    need("answer streamed", m["content"] == ANSWER and m["reasoning_content"] == REASON and
         why == "stop" and order == ["reasoning_content", "content"], (m, why, order))
    for choice in (None, "auto", "required", {"type": "function", "function": {"name": "add"}}):
        body = chat(tools=[TOOL], **({"tool_choice": choice} if choice else {}))
        status, r = s.post(CHAT, body)
        c = r["choices"][0]
        m = c["message"]
        need(f"call {choice}", status == 200 and c["finish_reason"] == "tool_calls" and
             [is_call(x) for x in m["tool_calls"]] == [True] and not m["content"] and
             m["reasoning_content"] == REASON, r)
        m, why, order = chat_streamed(s, body)
        need(f"call streamed {choice}", [is_call(x) for x in m["tool_calls"]] == [True] and
             why == "tool_calls" and order == ["reasoning_content", "tool_calls"], (m, why, order))
    for keep in (True, False):
        past = {"role": "assistant", "content": None, "tool_calls": r["choices"][0]["message"][
            "tool_calls"], **({"reasoning_content": REASON} if keep else {})}
        result = {"role": "tool", "tool_call_id": past["tool_calls"][0]["id"], "content": "7"}
        status, back = s.post(CHAT, chat(ASK + [past, result], tools=[TOOL]))
        m = back["choices"][0]["message"]
        # the model reasons again where the prompt has none of it
        need(f"after a result, reasoning kept {keep}", status == 200 and m["content"] == ANSWER and
             not m.get("tool_calls") and (m.get("reasoning_content") or "") == ("" if keep else
                                                                               REASON), back)
    status, r = s.post(CHAT, chat(tools=[TOOL], tool_choice="none"))
    need("no call is read where none may be", not r["choices"][0]["message"].get("tool_calls"), r)


# ---- responses ----

R_TOOL = {"type": "function", "name": "add", "parameters": PARAMS, "strict": True}


def items(r):
    """[(type, what it says)]"""
    out = []
    for x in r["output"]:
        if x["type"] == "message":
            out.append(("message", x["content"][0]["text"]))
        elif x["type"] == "reasoning":
            out.append(("reasoning", "".join(t["text"] for t in x.get("content") or x["summary"])))
        else:
            out.append((x["type"], (x["name"], json.loads(x["arguments"]))))
    return out


def events_of(s, path, body):
    """[(name, data)] of a stream of named events"""
    _, _, data = s.call("POST", path, dict(body, stream=True))
    out = []
    for block in data.decode().split("\n\n"):
        line = dict(x.split(": ", 1) for x in block.split("\n") if ": " in x)
        if "event" in line:
            out.append((line["event"], json.loads(line["data"])))
    return out


def responses(s):
    body = {"input": "What is 3 + 4?", "temperature": 0, "max_output_tokens": 64}
    call = ("function_call", ("add", ARGS))
    for more, want in (({}, ("message", ANSWER)), ({"tools": [R_TOOL]}, call),
                       ({"tools": [R_TOOL], "tool_choice": "required"}, call)):
        status, r = s.post(RESPONSES, {**body, **more})
        need(f"response {want[0]} {more.get('tool_choice')}", status == 200 and
             r["status"] == "completed" and items(r) == [("reasoning", REASON), want], r)
        ev = events_of(s, RESPONSES, {**body, **more})
        need(f"response streamed {want[0]} {more.get('tool_choice')}",
             ev and ev[-1][0] == "response.completed" and
             items(ev[-1][1]["response"]) == items(r), ev)
        kind = "response.output_text.delta" if want[0] == "message" else \
            "response.function_call_arguments.delta"
        text = "".join(d["delta"] for n, d in ev if n == kind)
        need(f"response deltas {want[0]} {more.get('tool_choice')}",
             (text == want[1]) if want[0] == "message" else json.loads(text) == ARGS, ev)
    status, r = s.post(RESPONSES, {**body, "tools": [R_TOOL]})
    made = [x for x in r["output"] if x["type"] == "function_call"][0]
    result = {"type": "function_call_output", "call_id": made["call_id"], "output": "7"}
    status, back = s.post(RESPONSES, {**body, "tools": [R_TOOL], "input": [result],
                                      "previous_response_id": r["id"]})
    need("response after a result", status == 200 and items(back)[-1] == ("message", ANSWER), back)


# ---- messages ----

M_TOOL = {"name": "add", "input_schema": PARAMS}


def blocks(m):
    return [(b["type"], b.get("text") or b.get("thinking") or b.get("input")) for b in m["content"]]


def added_up(events):
    """The message that a stream's events add up to."""
    m, text = None, {}
    for name, d in events:
        if name == "message_start":
            m = d["message"]
        elif name == "content_block_start":
            m["content"].append(dict(d["content_block"]))
        elif name == "content_block_delta":
            b, x = m["content"][d["index"]], d["delta"]
            if x["type"] == "input_json_delta":
                text[d["index"]] = text.get(d["index"], "") + x["partial_json"]
            elif x["type"] in ("text_delta", "thinking_delta"):
                k = x["type"][:-6]
                b[k] = b.get(k, "") + x[k]
        elif name == "message_delta":
            m["stop_reason"] = d["delta"]["stop_reason"]
    for i, t in text.items():
        m["content"][i]["input"] = json.loads(t)
    return m


def messages(s):
    body = {"messages": ASK, "max_tokens": 64, "temperature": 0}
    think = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    for more, want, why in (({}, ("text", ANSWER), "end_turn"),
                            ({"tools": [M_TOOL]}, ("tool_use", ARGS), "tool_use"),
                            ({"tools": [M_TOOL], "tool_choice": {"type": "any"}},
                             ("tool_use", ARGS), "tool_use")):
        for asked in (False, True):  # its template has no switch: it reasons anyway
            name = f"message {want[0]} {'tool_choice' in more} thinking {asked}"
            full = {**body, **more, **(think if asked else {})}
            status, m = s.post(MESSAGES, full)
            need(name, status == 200 and m["stop_reason"] == why and
                 blocks(m) == [("thinking", REASON), want], m)
            sum_ = added_up(events_of(s, MESSAGES, full))
            need(name + " streamed", sum_ and blocks(sum_) == blocks(m) and
                 sum_["stop_reason"] == why, sum_)
    use = s.post(MESSAGES, {**body, "tools": [M_TOOL]})[1]["content"][-1]
    result = {"type": "tool_result", "tool_use_id": use["id"], "content": "7"}
    status, m = s.post(MESSAGES, {**body, "tools": [M_TOOL], "messages": ASK + [
        {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]})
    need("message after a result", status == 200 and m["stop_reason"] == "end_turn" and
         blocks(m)[-1] == ("text", ANSWER), m)


def effort(s):
    for given, want in (("low", "low"), ("high", "high"), (None, "medium")):
        more = {"reasoning_effort": given} if given else {}
        status, r = s.post("/apply-template", {"messages": ASK, **more})
        need(f"effort {given}", status == 200 and f"Reasoning: {want}\n" in r["prompt"], r)


with tempfile.TemporaryDirectory() as tmp:
    folder = harmony_model.make(f"{tmp}/harmony", e2e.tiny())
    with Server(model=folder) as server:
        for part in (completions, responses, messages, effort):
            part(server)
        need("exit", server.stop() == 0)
T.exit()
