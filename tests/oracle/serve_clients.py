# SPDX-License-Identifier: Apache-2.0
"""Other people's clients against `sluice serve`: the openai SDK (sync, async, streams, tools,
parse, responses, embeddings, retries), langchain-openai, litellm. By hand: needs those packages.

    $(tests/oracle/clients.sh) tests/oracle/serve_clients.py build
"""
import asyncio
import http.server
import json
import os
import sys
import threading

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is fetched

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e", "serve"))
from serve import Server  # noqa: E402
import e2e  # noqa: E402
import openai  # noqa: E402
from pydantic import BaseModel  # noqa: E402

T = e2e.Tally("serve: clients")
USER = [{"role": "user", "content": "What is 17 + 25?"}]
TOOL = {"type": "function",
        "function": {"name": "get_weather", "description": "Weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
WEATHER = [{"role": "user", "content": "What is the weather in Rome?"}]


def scenario(fn):
    def run(*args):
        try:
            fn(*args)
            T.check(fn.__name__, None)
        except Exception as e:  # noqa: BLE001
            T.check(fn.__name__, f"{type(e).__name__}: {str(e)[:300]}")
    return run


@scenario
def models(c):
    assert [m.id for m in c.models.list()] == ["demo"]


@scenario
def chat(c):
    r = c.chat.completions.create(model="demo", messages=USER,
                                  temperature=0, max_completion_tokens=24)
    assert r.choices[0].message.content and r.choices[
        0].finish_reason == "stop" and r.usage.total_tokens > 10


@scenario
def chat_stream(c):
    r = c.chat.completions.create(model="demo", messages=USER, temperature=0, stream=True,
                                  stream_options={"include_usage": True})
    parts = list(r)
    text = "".join(p.choices[0].delta.content or "" for p in parts if p.choices)
    whole = c.chat.completions.create(model="demo", messages=USER, temperature=0)
    assert text == whole.choices[0].message.content and parts[
        -1].usage.total_tokens == whole.usage.total_tokens


@scenario
def chat_many(c):
    r = c.chat.completions.create(model="demo", messages=USER,
                                  n=3, seed=1, logprobs=True, top_logprobs=5,
                                  max_tokens=10, stop=["zzz"], logit_bias={"5": -100}, user="x")
    assert len(r.choices) == 3 and len(r.choices[0].logprobs.content[0].top_logprobs) == 5


@scenario
def tools(c):
    r = c.chat.completions.create(model="demo", messages=WEATHER, tools=[TOOL], temperature=0)
    call = r.choices[0].message.tool_calls[0]
    assert r.choices[0].finish_reason == "tool_calls" and json.loads(
        call.function.arguments) == {"city": "Rome"}
    more = WEATHER + [r.choices[0].message,
                      {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    r = c.chat.completions.create(model="demo", messages=more,
                                  tools=[TOOL], temperature=0, max_tokens=40)
    assert r.choices[0].message.content


@scenario
def tools_stream(c):
    with c.chat.completions.stream(model="demo", messages=WEATHER,
                                   tools=[TOOL], temperature=0) as s:
        for _ in s:
            pass
        r = s.get_final_completion()
    assert r.choices[0].message.tool_calls[0].function.name == "get_weather"


class Person(BaseModel):
    name: str
    age: int


@scenario
def parse(c):
    r = c.chat.completions.parse(model="demo",
                                 messages=[{"role": "user", "content": "A person as JSON"}],
                                 response_format=Person, temperature=0, max_tokens=200)
    assert isinstance(r.choices[0].message.parsed, Person)


@scenario
def completions(c):
    r = c.completions.create(model="demo", prompt=["Once upon", "The cat"],
                             max_tokens=8, temperature=0, logprobs=2)
    assert len(r.choices) == 2 and len(r.choices[0].logprobs.tokens) == 8
    s = c.completions.create(model="demo", prompt="Once upon",
                             max_tokens=8, temperature=0, stream=True)
    assert "".join(p.choices[0].text for p in s) == r.choices[0].text


@scenario
def responses(c):
    r = c.responses.create(model="demo", input="What is 17 + 25?", temperature=0)
    assert r.output_text and r.status == "completed"
    two = c.responses.create(model="demo", input="And 2 + 3?",
                             previous_response_id=r.id, temperature=0)
    assert two.previous_response_id == r.id and c.responses.retrieve(
        r.id).output_text == r.output_text
    with c.responses.stream(model="demo", input="What is 17 + 25?", temperature=0) as s:
        kinds = [e.type for e in s]
        assert s.get_final_response().output_text == r.output_text and kinds[
            -1] == "response.completed"
    c.responses.delete(r.id)
    t = c.responses.create(model="demo", input="What is the weather in Rome?", temperature=0,
                           tools=[{"type": "function", **TOOL["function"]}])
    assert t.output[0].type == "function_call" and json.loads(
        t.output[0].arguments) == {"city": "Rome"}


@scenario
def input_items(c):
    one = c.responses.create(model="demo", input="My name is Anna.", temperature=0)
    two = c.responses.create(model="demo", input="And mine?",
                             previous_response_id=one.id, temperature=0)
    got = list(c.responses.input_items.list(two.id, order="asc", limit=1))  # which turns the pages
    assert [(i.type, i.role) for i in got] == [("message", "user"),
                                               ("message", "assistant"), ("message", "user")], got
    assert got[0].content[0].text == "My name is Anna." and got[1].id == one.output[0].id


@scenario
def embeddings(c):
    r = c.embeddings.create(model="demo", input=["a cat", "a dog"])
    assert len(r.data) == 2 and abs(sum(x * x for x in r.data[0].embedding) - 1) < 1e-3
    again = c.embeddings.create(model="demo", input="a cat", dimensions=len(r.data[0].embedding))
    assert again.data[0].embedding == r.data[0].embedding


def killed():
    """Row H16: a server that is killed in the middle of a stream is an error for its client."""
    for i in range(20):
        with Server("--alias", "demo") as s:
            c = openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="x", max_retries=0)
            r = c.chat.completions.create(model="demo", messages=USER, max_tokens=1800,
                                          stream=True, extra_body={"ignore_eos": True})
            try:
                for k, _ in enumerate(r):
                    if k == 2 + 5 * i:
                        s.proc.kill()
                T.check(f"killed {i}", "a clean end")
            except Exception as e:  # noqa: BLE001
                T.check(f"killed {i}", None if k >= 2 + 5 * i else f"too early: {e}")
            s.proc.wait()


@scenario
def errors(c):
    for kind, body in [(openai.BadRequestError, {"temperature": 9}),
                       (openai.NotFoundError, {"model": "x"}),
                       (openai.BadRequestError, {"messages": []})]:
        try:
            c.chat.completions.create(**{"model": "demo", "messages": USER, **body})
            raise AssertionError(f"{body}: no error")
        except kind as e:
            assert e.body["message"] and e.request_id


@scenario
def poison_once(port):
    """A request that fails for good arrives once; one that may work later arrives again."""
    seen = []

    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.append(json.loads(body).get("timeout_ms"))
            import http.client
            up = http.client.HTTPConnection("127.0.0.1", port)
            up.request("POST", self.path, body, {"Content-Type": "application/json"})
            r = up.getresponse()
            data = r.read()
            self.send_response(r.status)
            for k, v in r.getheaders():
                if k.lower() not in ("connection", "transfer-encoding"):
                    self.send_header(k, v)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *a):
            pass

    srv = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=srv.serve_forever, daemon=True).start()
    c = openai.OpenAI(base_url=f"http://127.0.0.1:{srv.server_port}/v1", api_key="x")
    for more in ({"timeout_ms": 1, "ignore_eos": True},
                 {"top_k": "x"}, {"prompt_token_ids": [99999]}):
        seen.clear()
        try:
            c.chat.completions.create(model="demo", messages=USER, max_tokens=2000, extra_body=more)
        except openai.APIError:
            pass
        assert len(seen) == 1, (more, seen)
    srv.shutdown()


@scenario
def sixty_four(base):
    async def go():
        c = openai.AsyncOpenAI(base_url=base, api_key="x", max_retries=0)

        async def one(i):
            s = await c.chat.completions.create(model="demo", messages=[
                {"role": "user", "content": f"What is {i} + 25?"}],
                                                temperature=0, max_tokens=32, stream=True)
            return "".join([p.choices[0].delta.content or "" async for p in s])
        return await asyncio.gather(*(one(i) for i in range(64)))
    out = asyncio.run(go())
    assert len(out) == 64 and all(out)


@scenario
def langchain(base):
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings
    m = ChatOpenAI(base_url=base, api_key="x", model="demo", temperature=0)
    text = m.invoke("What is 17 + 25?").content
    assert text and "".join(p.content for p in m.stream("What is 17 + 25?")) == text
    r = m.bind_tools([TOOL]).invoke("What is the weather in Rome?")
    assert r.tool_calls[0]["args"] == {"city": "Rome"}
    assert len(m.batch(["Hi", "Hello"])) == 2
    e = OpenAIEmbeddings(base_url=base, api_key="x", model="demo", check_embedding_ctx_length=False)
    assert len(e.embed_documents(["a", "b"])) == 2


@scenario
def lite(base):
    import litellm
    r = litellm.completion(model="openai/demo", api_base=base,
                           api_key="x", messages=USER, temperature=0)
    assert r.choices[0].message.content
    s = litellm.completion(model="openai/demo", api_base=base,
                           api_key="x", messages=USER, temperature=0, stream=True)
    assert "".join(p.choices[0].delta.content or "" for p in s) == r.choices[0].message.content


with Server("--alias", "demo") as server:
    url = f"http://127.0.0.1:{server.port}/v1"
    client = openai.OpenAI(base_url=url, api_key="x")
    for part in (models, chat, chat_stream, chat_many,
                 tools, tools_stream, parse, completions, responses, input_items,
                 embeddings, errors):
        part(client)
    poison_once(server.port)
    for part in (sixty_four, langchain, lite):
        part(url)
killed()
T.exit()
