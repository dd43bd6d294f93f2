# SPDX-License-Identifier: Apache-2.0
"""Tokens of answers as clients see them: every token of the text has log probabilities and no other
has, control tokens are no text, times are never negative."""
from serve import Server, chat
import e2e

T = e2e.Tally("serve: tokens")
CHAT, TEXT, RESP = "/v1/chat/completions", "/v1/completions", "/v1/responses"
Q = "What is 17 + 5?"
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "d", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}


def need(name, cond, what=""):
    T.check(name, None if cond else (what or "not so"))


def joined(entries):
    return b"".join(bytes(e["bytes"]) for e in entries).decode("utf-8", "replace")


def of_chat(s, body, stream):
    """(text, entries of logprobs)"""
    body = {**chat(Q), "logprobs": True, "top_logprobs": 2, **body}
    if not stream:
        c = s.post(CHAT, body)[1]["choices"][0]
        return c["message"]["content"] or "", c["logprobs"]["content"]
    ev = [e["choices"][0] for e in s.stream(CHAT, body)[1][:-1]]
    return "".join(e["delta"].get("content") or "" for e in ev), [
        x for e in ev for x in (e["logprobs"] or {"content": []})["content"]]


def of_responses(s, body, stream):
    body = {"input": Q, "temperature": 0, "include": ["message.output_text.logprobs"],
            "top_logprobs": 1, **body}
    if not stream:
        p = s.post(RESP, body)[1]["output"][-1]["content"][0]
        return p["text"], p["logprobs"]
    ev = s.stream(RESP, body)[1]
    done = [e for e in ev if e["type"] == "response.output_text.done"][-1]
    parts = [x for e in ev if e["type"] == "response.output_text.delta" for x in e["logprobs"]]
    need("responses: deltas have the logprobs of the whole",
         parts == done["logprobs"], (len(parts), len(done["logprobs"])))
    return done["text"], done["logprobs"]


def of_text(s, body, stream):
    """(text, tokens); the place of each token is checked."""
    body = {"prompt": Q, "temperature": 0, "max_tokens": 30, "logprobs": 1, **body}
    got = [e["choices"][0]
           for e in s.stream(TEXT, body)[1][:-1]] if stream else s.post(TEXT, body)[1]["choices"]
    text = "".join(c["text"] for c in got)
    lp = {k: [x for c in got for x in c["logprobs"][k]] for k in got[0]["logprobs"]}
    need("completions: lists of one length", len({len(v) for v in lp.values()}) == 1, lp)
    for tok, at in zip(lp["tokens"], lp["text_offset"]):
        need("completions: a token's place", tok.startswith(("bytes:", "token_id:"))
             or text[at:at + len(tok)] == tok[:len(text) - at], (tok, at, text))
    return text, lp["tokens"]


SCHEMA = {"type": "object", "properties": {"a": {"enum": ["x", "yy"]}, "b": {"type": "boolean"}},
          "required": ["a", "b"], "additionalProperties": False}


def constrained(s):
    for form in ({"structured_outputs": {"choice": ["A", "B"]}},
                 {"guided_choice": ["hello world"]}, {"guided_regex": "[0-9]{4}"},
                 {"structured_outputs": {"choice": ["\u4f60\u597d \U0001f600",
                                                    "caf\u00e9 \u4f60"]}}, {"json_schema": SCHEMA}):
        for stream in (False, True):
            text, entries = of_chat(s, {**form, "max_tokens": 60}, stream)
            need(f"chat {form} {stream}", joined(entries) == text != "", (text, joined(entries)))
            text, tokens = of_text(s, {**form, "max_tokens": 60}, stream)
            need(f"completions {form} {stream}", text and ("".join(
                tokens) == text or any(t.startswith("bytes:") for t in tokens)), (text, tokens))
    for stream in (False, True):
        fmt = {"text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}}
        text, entries = of_responses(s, fmt, stream)
        need(f"responses schema {stream}", joined(entries) == text != "", (text, joined(entries)))
        text, entries = of_responses(s, {}, stream)
        need(f"responses free {stream}", joined(entries) == text != "", (text, joined(entries)))


def stopped(s):
    """Tokens of a stop string have no entries; one that is in the text by a part is there whole."""
    whole = of_chat(s, {"max_tokens": 30}, False)[0]
    for stop in (whole[3:6], whole[-3:], whole[-1:], " = ", "never there"):
        for stream in (False, True):
            text, entries = of_chat(s, {"max_tokens": 30, "stop": [stop]}, stream)
            got = joined(entries)
            need(f"stop {stop!r} {stream}",
                 text == whole.split(stop)[0] and got.startswith(text) and
                 not joined(entries[:-1]).startswith(text) or not text and not entries, (text, got))
            text, tokens = of_text(s, {"stop": [stop]}, stream)
            need(f"completions stop {stop!r} {stream}", "".join(tokens).startswith(text)
                 and (not tokens or len("".join(tokens[:-1])) < len(text)), (text, tokens))
    for n in (1, 3):
        text, entries = of_chat(s, {"max_tokens": n}, True)
        need(f"length {n}", len(entries) == n and joined(entries) == text, (text, entries))
    text, entries = of_chat(s, {"max_tokens": 30}, False)
    need("the end token has no entry", joined(entries) == text)
    ids = s.post("/tokenize", {"prompt": whole})[1]["tokens"]
    text, entries = of_chat(s, {"max_tokens": 30, "stop_token_ids": ids[-1:]}, True)
    need("nor has a stop token", joined(entries) == text, (text, joined(entries)))


def control(s):
    """Control tokens are no text, in no part of an answer, but have their entries."""
    for token in (0, 1, 2):
        bias = {"logit_bias": {str(token): 100}, "ignore_eos": True, "max_tokens": 4}
        for more in ({}, {"tools": [TOOL]}, {"chat_template_kwargs": {"thinking": True}}):
            for stream in (False, True):
                text, entries = of_chat(s, {**bias, **more}, stream)
                need(f"chat token {token} {list(more)} {stream}",
                     text == "" and len(entries) == 4, (text, entries))
        m = s.post(CHAT, {**chat(Q), **bias,
                          "chat_template_kwargs": {"thinking": True}})[1]["choices"][0]["message"]
        need(f"reasoning token {token}", not m.get("reasoning_content"), m)
        need(f"completions token {token}", of_text(s, bias, False)[0] == "")
        shown = s.post(CHAT, {**chat(Q), **bias,
                              "skip_special_tokens": False})[1]["choices"][0]["message"]["content"]
        need(f"shown token {token}", shown.count("<\uff5c") == 4, shown)
    plain = s.post(CHAT, chat(Q, max_tokens=40))[1]["choices"][0]["message"]["content"]
    for stream in (False, True):
        text = of_chat(s, {"ignore_eos": True, "max_tokens": 60}, stream)[0]
        need(f"after an end {stream}", text.startswith(plain) and len(text) > len(plain)
             and "<\uff5cend" not in text and "<\uff5cbegin" not in text, text)
    r = s.post(RESP, {"input": Q, "temperature": 0, "ignore_eos": True,
                      "max_output_tokens": 60})[1]["output"][-1]["content"][0]["text"]
    need("responses after an end", r.startswith(plain) and "<\uff5cend" not in r, r)


def sampled_calls(s):
    """Whatever is drawn: no control token in any part of an answer, streamed and whole alike."""
    for seed in range(6):
        body = chat("What is the weather in Rome?",
                    tools=[TOOL], temperature=1.5, seed=seed, max_tokens=50, ignore_eos=True,
                    logit_bias={"0": 5, "1": 5, "2": 5},
                    chat_template_kwargs={"thinking": seed % 2 == 0})
        m = s.post(CHAT, body)[1]["choices"][0]["message"]
        d = [e["choices"][0]["delta"] for e in s.stream(CHAT, body)[1][:-1]]
        for key in ("content", "reasoning_content"):
            need(f"seed {seed} {key}", "".join(x.get(key) or "" for x in d) == (m.get(key) or ""),
                 (d, m))
        args = "".join(c["function"].get("arguments", "")
                       for x in d for c in x.get("tool_calls", []))
        need(f"seed {seed} arguments",
             args == "".join(c["function"]["arguments"] for c in m.get("tool_calls", [])))
        need(f"seed {seed} clean",
             not any(t in str(m) for t in ("begin\u2581of", "end\u2581of", "\u2581pad")), m)


def times(s):
    """No time is negative, and a prompt's time is the prompt's."""
    def sums():
        return [s.metric(f"vllm:{n}_seconds_sum")
                for n in ("request_prefill_time", "request_decode_time", "time_to_first_token")]
    before = sums()
    for body in ({"echo": True, "logprobs": 1, "max_tokens": 0},
                 {"echo": True, "logprobs": 1, "max_tokens": 1}, {"max_tokens": 1}):
        t = s.post(TEXT, {"prompt": Q * 20, "cache_salt": str(body), **body})[1]["timings"]
        need(f"times {body}", all(v >= 0 for v in t.values()) and t["prefill_ms"] > 0, t)
        if body["max_tokens"] == 0:
            need("none of it is decoding",
                 t["decode_ms"] == 0 and t["prefill_tps"] > 0 and t["decode_tps"] == 0, t)
            rose = [b - a for a, b in zip(before, sums())]
            need("metrics: a prompt's time",
                 rose[0] > 0 and rose[2] > 0 and 0 <= rose[1] < rose[0] / 2, rose)


with Server() as s:
    constrained(s)
    stopped(s)
    control(s)
    sampled_calls(s)
    times(s)
T.exit()
