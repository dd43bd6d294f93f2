# SPDX-License-Identifier: Apache-2.0
"""The anthropic SDK against `sluice serve`: sync, async, streams, tools, thinking, structured
output, counting, errors, and requests with all that Claude Code puts into them. By hand: needs the
package anthropic.

    $(tests/oracle/clients.sh) tests/oracle/serve_messages.py build
"""
import asyncio
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e", "serve"))
from serve import Server, key_line  # noqa: E402
import e2e  # noqa: E402
import anthropic  # noqa: E402
from pydantic import BaseModel  # noqa: E402

T = e2e.Tally("serve: the anthropic SDK")
USER = [{"role": "user", "content": "What is 17 + 25?"}]
RAIN = [{"role": "user", "content": "What is the weather in Rome?"}]
TOOL = {"name": "get_weather", "description": "Weather of a city",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}},
                         "required": ["city"]}}
GREEDY = {"temperature": 0}  # which the SDK has no name for since its version 2
BASE = {"model": "demo", "max_tokens": 64, "extra_body": GREEDY}
ALL = []


def scenario(fn):
    def run(*args):
        try:
            r = fn(*args)
            if asyncio.iscoroutine(r):
                asyncio.run(r)
            T.check(fn.__name__, None)
        except Exception as e:  # noqa: BLE001
            T.check(fn.__name__, f"{type(e).__name__}: {str(e)[:300]}")
    ALL.append(run)
    return run


def ask(c, messages=None, **more):
    return c.messages.create(messages=messages or USER, **{**BASE, **more})


@scenario
def create(c, a):
    m = ask(c)
    assert m.type == "message" and m.role == "assistant" and m.content[
        0].type == "text" and m.content[0].text
    assert (m.stop_reason == "end_turn" and m.stop_sequence is None and m.usage.input_tokens > 5
            and m.usage.output_tokens > 3)
    assert m._request_id, "the SDK reads the header request-id"


@scenario
def stream_helper(c, a):
    whole = ask(c).content[0].text
    with c.messages.stream(messages=USER, **BASE) as s:
        text = "".join(s.text_stream)
        m = s.get_final_message()
    assert text == whole == m.content[0].text and m.stop_reason == "end_turn" and s.request_id
    with c.messages.stream(messages=USER, **BASE) as s:
        assert s.get_final_text() == whole


@scenario
def stream_raw(c, a):
    kinds = [e.type for e in ask(c, stream=True)]
    assert kinds[0] == "message_start" and kinds[-2:] == [
        "message_delta", "message_stop"] and "content_block_delta" in kinds


@scenario
async def asynchronous(c, a):
    want = ask(c).content[0].text
    got = await asyncio.gather(*(a.messages.create(messages=USER, **BASE) for _ in range(8)))
    assert all(m.content[0].text == want for m in got)


@scenario
async def asynchronous_stream(c, a):
    want = ask(c).content[0].text
    async with a.messages.stream(messages=USER, **BASE) as s:
        text = "".join([t async for t in s.text_stream])
        assert text == want == (await s.get_final_message()).content[0].text


@scenario
def system_in_both_forms(c, a):
    one = ask(c, system="Be brief.")
    two = ask(c, system=[{"type": "text", "text": "Be brief.",
                          "cache_control": {"type": "ephemeral", "ttl": "1h"}}])
    assert one.content == two.content
    assert sum((two.usage.input_tokens, two.usage.cache_read_input_tokens,
                two.usage.cache_creation_input_tokens)) == \
        one.usage.input_tokens + one.usage.cache_read_input_tokens


@scenario
def tools_two_turns(c, a):
    m = ask(c, RAIN, tools=[TOOL])
    use = m.content[-1]
    assert (m.stop_reason == "tool_use" and use.type == "tool_use" and use.name == "get_weather"
            and use.input["city"])
    again = ask(c, RAIN + [m.to_param(), {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": use.id, "content": "20 C, sunny"}]}],
                tools=[TOOL])
    assert again.content and again.stop_reason in ("end_turn", "tool_use", "max_tokens")


@scenario
def tools_streamed(c, a):
    whole = ask(c, RAIN, tools=[TOOL], tool_choice={"type": "any"})
    parts = []
    with c.messages.stream(messages=RAIN, tools=[TOOL], tool_choice={"type": "any"}, **BASE) as s:
        for e in s:
            if e.type == "input_json":
                parts.append(e.partial_json)
        m = s.get_final_message()
    assert json.loads("".join(parts)) == m.content[
        -1].input == whole.content[-1].input and m.stop_reason == "tool_use"


@scenario
def tool_by_name(c, a):
    m = ask(c, tools=[TOOL, dict(TOOL, name="other")],
            tool_choice={"type": "tool", "name": "other", "disable_parallel_tool_use": True})
    assert [b.name for b in m.content if b.type == "tool_use"] == ["other"]


@scenario
def tool_runner(c, a):
    seen = []

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """Weather of a city

        Args:
            city: its name
        """
        seen.append(city)
        return "20 C, sunny"
    runner = c.beta.messages.tool_runner(messages=RAIN,
                                         tools=[get_weather], max_iterations=3, **BASE)
    last = None
    for last in runner:
        pass
    assert last is not None and seen


@scenario
def server_tools(c, a):
    m = ask(c, RAIN, tools=[{"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
                            {"type": "bash_20250124", "name": "bash"},
                            {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
                            TOOL])
    assert m.content


@scenario
def stop_sequences(c, a):
    m = ask(c, stop_sequences=["+ 25"])
    assert (m.stop_reason == "stop_sequence" and m.stop_sequence == "+ 25"
            and "+ 25" not in m.content[0].text)


@scenario
def thinking_streamed_and_sent_back(c, a):
    with c.messages.stream(messages=USER, thinking={"type": "enabled", "budget_tokens": 1024},
                           **{**BASE, "max_tokens": 2000}) as s:
        kinds = [e.type for e in s]
        m = s.get_final_message()
    assert m.content[0].type == "thinking" and m.content[
        0].thinking and m.content[0].signature and m.content[1].type == "text"
    assert "thinking" in kinds and "signature" in kinds
    assert ask(c, USER + [m.to_param()] + USER, thinking={"type": "adaptive"}).content


@scenario
def structured_output(c, a):
    class Sum(BaseModel):
        n: int
    m = c.messages.parse(messages=USER, output_format=Sum, **BASE)
    assert isinstance(m.parsed_output.n, int)


@scenario
def counting(c, a):
    n = c.messages.count_tokens(model="demo", messages=USER,
                                system="Be brief.", tools=[TOOL]).input_tokens
    u = ask(c, system="Be brief.", tools=[TOOL]).usage
    assert n == u.input_tokens + u.cache_read_input_tokens + u.cache_creation_input_tokens


@scenario
def prompt_cache(c, a):
    long = [{"type": "text", "text": "Count the wheels of the lorries on the bridge. " * 20,
             "cache_control": {"type": "ephemeral"}}]
    first, second = ask(c, system=long).usage, ask(c, system=long).usage
    assert (first.cache_creation_input_tokens > 100
            and second.cache_read_input_tokens == first.cache_creation_input_tokens)


@scenario
def prefill(c, a):
    whole = ask(c).content[0].text
    m = ask(c, USER + [{"role": "assistant", "content": whole[:4]}])
    assert whole[:4] + m.content[0].text == whole, (whole, m.content[0].text)


@scenario
def models(c, a):
    assert [m.id for m in c.models.list()] == ["demo"] and c.models.retrieve("demo").display_name


@scenario
def errors(c, a):
    for kind, more in ((anthropic.NotFoundError, {"model": "claude-x"}),
                       (anthropic.BadRequestError, {"max_tokens": -1}),
                       (anthropic.BadRequestError,
                        {"messages": [{"role": "user", "content": "word " * 9000}]})):
        try:
            ask(c, **{"messages": USER, **more})
            raise AssertionError(f"{more} was taken")
        except kind as e:
            assert e.body["type"] == "error" and e.body["error"]["message"] and e.request_id


@scenario
def error_in_a_stream(c, a):
    try:
        with c.messages.stream(messages=USER, **{**BASE, "max_tokens": 2000, "extra_body":
                                                     {"timeout_ms": 1, "ignore_eos": True}}) as s:
            s.until_done()
        raise AssertionError("no error came")
    except anthropic.APIStatusError as e:
        assert "timeout_error" in str(e)


@scenario
def as_claude_code(c, a):
    """What it sends with every request, as far as it touches a server."""
    m = c.beta.messages.create(
        model="demo", max_tokens=200, messages=[{"role": "user", "content": [
            {"type": "text", "text": "<system-reminder>\nToday is Monday.\n</system-reminder>"},
            {"type": "text", "text": "What is 17 + 25?", "cache_control": {"type": "ephemeral"}}]},
                                                {"role": "system", "content": "Agents: none."}],
        system=[{"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=12345;"},
                {"type": "text", "text": "You are a coding agent.",
                 "cache_control": {"type": "ephemeral"}}],
        tools=[dict(TOOL, cache_control={"type": "ephemeral"}, eager_input_streaming=True)],
        metadata={"user_id": "u"},
        thinking={"type": "adaptive"},
        betas=["claude-code-20250219", "interleaved-thinking-2025-05-14"],
        extra_body={"context_management":
                        {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
                    "output_config": {"effort": "high"}})
    assert m.content and m.usage.output_tokens


@scenario
def several_turns(c, a):
    messages = []
    for q in ("My name is Anna.", "What is 2 + 3?", "And 4 + 4?"):
        messages.append({"role": "user", "content": q})
        messages.append(ask(c, messages).to_param())
    assert len(messages) == 6


def keys(tmp):
    path = os.path.join(tmp, "keys")
    with open(path, "w") as f:
        f.write(key_line("anna", "sk-ant-anna"))
    with Server("--alias", "demo", "--api-key-file", path) as s:
        url = f"http://127.0.0.1:{s.port}"
        try:
            ask(anthropic.Anthropic(base_url=url, api_key="wrong", max_retries=0))
            T.check("a wrong key", "was taken")
        except anthropic.AuthenticationError:
            T.check("a wrong key", None)
        T.check("api_key", None if ask(
            anthropic.Anthropic(base_url=url, api_key="sk-ant-anna")).content else "nothing")
        T.check("auth_token", None if ask(anthropic.Anthropic(
            base_url=url, auth_token="sk-ant-anna", api_key=None)).content else "nothing")


with e2e.scratch() as tmp:
    with Server("--alias", "demo") as server:
        url = f"http://127.0.0.1:{server.port}"
        how = {"base_url": url, "api_key": "none", "max_retries": 0}
        for one in ALL:  # an async client is of one event loop
            one(anthropic.Anthropic(**how), anthropic.AsyncAnthropic(**how))
    keys(tmp)
T.exit()
