# SPDX-License-Identifier: Apache-2.0
"""Row A1: every body and every event against the types of the openai package, which are made from
OpenAI's specification: strictly (no text for a number), and with no member that neither they nor
docs/api.md know. By hand: needs openai 2 or 3.

    $(tests/oracle/clients.sh 2) tests/oracle/serve_shapes.py build
    $(tests/oracle/clients.sh 3) tests/oracle/serve_shapes.py build
"""
import json
import os
import random
import sys
import typing

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e", "serve"))
from serve import Server  # noqa: E402
import e2e  # noqa: E402
import pydantic  # noqa: E402
from openai.types import Completion, CreateEmbeddingResponse, Model  # noqa: E402
from openai.types.chat import ChatCompletion, ChatCompletionChunk  # noqa: E402
from openai.types.responses import Response, ResponseItemList, ResponseStreamEvent  # noqa: E402

T = e2e.Tally("serve: shapes")
OURS = {"timings", "reasoning_content", "reasoning", "token_ids",
        "prompt_token_ids", "max_model_len", "meta", "store", "bytes"}
# version 2 of the package wants a name in these, version 3 knows none
NAMED = b'"type":"response.function_call_arguments.done"'
# where OpenAI's own answers are not what the types say
BUT = {("choices", "finish_reason"),  # completions: null until a stream's last chunk
       # completions: null for the first token of an echo
       ("choices", "logprobs", "token_logprobs"), ("choices", "logprobs", "top_logprobs")}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {
    "type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
                                                                       "additionalProperties":
        False}}}
EVENT = {t: cls for cls in typing.get_args(typing.get_args(ResponseStreamEvent)[0])
         for t in typing.get_args(cls.model_fields["type"].annotation)}
N = 0


def unknown(v, found):
    """Names of members that a parsed value's type does not have."""
    if isinstance(v, pydantic.BaseModel):
        found |= set(v.model_extra or {})
        for name in type(v).model_fields:
            unknown(getattr(v, name, None), found)
    elif isinstance(v, (list, tuple)):
        for x in v:
            unknown(x, found)
    elif isinstance(v, dict):
        for x in v.values():
            unknown(x, found)
    return found


def places(kind, error):
    """The names on the way to an error; of nulls in completions and of members that are not
    there."""
    if error["type"] != "missing" and (error.get("input") is not None or kind is not Completion):
        return set()
    return {tuple(x for x in error["loc"] if isinstance(x, str))}


def take(name, kind, text):
    global N
    N += 1
    try:
        more = unknown(pydantic.TypeAdapter(kind).validate_json(text, strict=True), set()) - OURS
        data = text if isinstance(text, bytes) else text.encode()
        more -= {"name"} if NAMED in data else set()
        T.check(name, f"members that no document has: {sorted(more)}" if more else None)
    except pydantic.ValidationError as e:
        bad = [x for x in e.errors() if not places(kind, x) & BUT]
        T.check(name, f"{bad[0]['loc']} {bad[0]['msg']} {text[:300]}" if bad else None)


def ask(s, name, path, body, kind, event):
    status, _, data = s.call("POST", path, body)
    if status != 200:
        T.check(name, f"{status} {data[:200]}")
    elif not body.get("stream"):
        take(name, kind, data)
    else:
        for line in data.split(b"\n"):
            if line.startswith(b"data: {"):
                take(f"{name} streamed", event or EVENT[json.loads(line[6:])["type"]], line[6:])


def chats(s, rng, n):
    for k in range(n):
        body = {"messages": [{"role": "user", "content": f"What is {k} + 25?"}],
                "temperature": rng.choice((0, 1)), "seed": k, "max_tokens": rng.randint(1, 20),
                "n": rng.choice((1, 1, 3)), "stream": rng.random() < 0.2}
        if rng.random() < 0.4:
            body["tools"] = [TOOL]
            body["tool_choice"] = rng.choice(("auto", "none", "required"))
        if rng.random() < 0.4:
            body.update(logprobs=True, top_logprobs=rng.choice((0, 3, 20)))
        if rng.random() < 0.2:
            body["response_format"] = {"type": "json_object"}
        if rng.random() < 0.3:
            body["chat_template_kwargs"] = {"thinking": True}
        if rng.random() < 0.2:
            body["return_token_ids"] = True
        if body["stream"] and rng.random() < 0.5:
            body["stream_options"] = {"include_usage": True}
        ask(s, f"chat {k}", "/v1/chat/completions", body, ChatCompletion, ChatCompletionChunk)


def texts(s, rng, n):
    for k in range(n):
        body = {"prompt": rng.choice(("Once", ["Once", "Twice"], [5, 6, 7])),
                "max_tokens": rng.randint(1, 12), "seed": k, "n": rng.choice((1, 2)),
                "echo": rng.random() < 0.2, "stream": rng.random() < 0.2}
        if rng.random() < 0.5:
            body["logprobs"] = rng.choice((0, 1, 5))
            body["n"] = 1 if body["echo"] else body["n"]
        ask(s, f"text {k}", "/v1/completions", body, Completion, Completion)


def responses(s, rng, n):
    last = None
    for k in range(n):
        body = {"input": f"What is {k} + 3?", "max_output_tokens": rng.randint(1, 40),
                "temperature": rng.choice((0, 0.7)), "stream": rng.random() < 0.2}
        if rng.random() < 0.4:
            body["tools"] = [dict(TOOL["function"], type="function", strict=True)]
            body["tool_choice"] = rng.choice(("auto", "none", "required"))
        if rng.random() < 0.3:
            body["include"] = ["message.output_text.logprobs"]
            body["top_logprobs"] = 2
        if last and rng.random() < 0.3:
            body["previous_response_id"] = last
        if rng.random() < 0.3:
            body.update(instructions="Be brief.", metadata={"a": "b"}, reasoning={"effort": "low"})
        ask(s, f"responses {k}", "/v1/responses", body, Response, None)
        if not body["stream"]:
            last = json.loads(s.call("POST", "/v1/responses", body)[2])["id"]
            take(f"stored {k}", Response, s.get(f"/v1/responses/{last}")[2])
            take(f"input_items {k}", ResponseItemList,
                 s.get(f"/v1/responses/{last}/input_items")[2])


with Server() as server:
    dice = random.Random(1)
    chats(server, dice, 400)
    texts(server, dice, 150)
    responses(server, dice, 100)
    for k in range(20):
        ask(server, f"embeddings {k}", "/v1/embeddings",
            {"input": ["a"] * (k + 1), "encoding_format": "float"}, CreateEmbeddingResponse, None)
    for model in json.loads(server.get("/v1/models")[2])["data"]:
        take("model", Model, json.dumps(model))
    print(f"{N} bodies and events")
    T.check("enough", None if N >= 500 else N)
T.exit()
