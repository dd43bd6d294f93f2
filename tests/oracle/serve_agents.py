# SPDX-License-Identifier: Apache-2.0
"""Other people's agents against `sluice serve`, two turns with a tool: the second turn sends the
call and its result back. Each client runs with the model that is given (SmolLM2: its template adds
strings and knows no tools), or demo. By hand; a client that is not there is said and counts as bad,
but for llama_index beside openai 3, which it does not know.

    $(tests/oracle/clients.sh 2) tests/oracle/serve_agents.py build [MODEL.gguf]
    $(tests/oracle/clients.sh 3) tests/oracle/serve_agents.py build [MODEL.gguf]
"""
import asyncio
import json
import os
import sys

os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e", "serve"))
from serve import Server  # noqa: E402
import e2e  # noqa: E402
import openai  # noqa: E402

T = e2e.Tally("serve: agents")
FUNCTION = {"name": "get_weather", "description": "Weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 8}},
    "required": ["city"], "additionalProperties": False}}
TOOL = {"type": "function", "function": FUNCTION}
ASK = "What is the weather in Rome?"


def client(fn):
    def run(base):
        try:
            fn(base)
            T.check(fn.__name__, None)
        except Exception as e:  # noqa: BLE001
            T.check(fn.__name__, f"{type(e).__name__}: {str(e)[:400]}")
    return run


def first(base):
    """One forced call, whatever the model would do."""
    c = openai.OpenAI(base_url=base, api_key="x", max_retries=0)
    r = c.chat.completions.create(model="m", messages=[{"role": "user", "content": ASK}],
                                  tools=[TOOL], tool_choice="required",
                                  parallel_tool_calls=False, temperature=0, max_tokens=80)
    return c, r.choices[0].message


@client
def openai_chat(base):
    c, m = first(base)
    assert m.content is None and len(m.tool_calls) == 1 and json.loads(
        m.tool_calls[0].function.arguments), m
    messages = [{"role": "user", "content": ASK}, m, {
        "role": "tool", "tool_call_id": m.tool_calls[0].id, "content": "sunny, 20 degrees"}]
    r = c.chat.completions.create(model="m", messages=messages,
                                  tools=[TOOL], temperature=0, max_tokens=20)
    two = r.choices[0].message
    assert two.content or two.tool_calls, r  # a small model may call again
    s = c.chat.completions.create(model="m", messages=messages,
                                  tools=[TOOL], temperature=0, max_tokens=20, stream=True)
    assert "".join(p.choices[0].delta.content or "" for p in s) == (two.content or "")


@client
def openai_responses(base):
    c = openai.OpenAI(base_url=base, api_key="x", max_retries=0)
    r = c.responses.create(model="m", input=ASK, tools=[{"type": "function", **FUNCTION}],
                           tool_choice="required", parallel_tool_calls=False,
                           temperature=0, max_output_tokens=80)
    call = next(o for o in r.output if o.type == "function_call")
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    again = [{"role": "user", "content": ASK}] + r.output + [result]
    for more in ({"input": again}, {"input": [result], "previous_response_id": r.id}):
        two = c.responses.create(model="m", tools=[{"type": "function", **FUNCTION}],
                                 max_output_tokens=20, temperature=0, **more)
        assert two.status in ("completed", "incomplete"), two


@client
def langchain(base):
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI
    for responses in (False, True):
        m = ChatOpenAI(base_url=base, api_key="x", model="m",
                       temperature=0, max_tokens=80, max_retries=0, use_responses_api=responses)
        one = m.bind_tools([TOOL], tool_choice="any", parallel_tool_calls=False).invoke(ASK)
        assert one.tool_calls and one.tool_calls[0]["name"] == "get_weather", one
        two = m.bind_tools([TOOL]).invoke(
            [HumanMessage(ASK), one, ToolMessage("sunny", tool_call_id=one.tool_calls[0]["id"])])
        assert two.content is not None


@client
def pydantic_ai(base):
    from pydantic_ai.messages import (ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart,
                                      UserPromptPart)
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.tools import ToolDefinition
    provider = OpenAIProvider(base_url=base, api_key="x")
    tool = ToolDefinition(name="get_weather", description="Weather of a city",
                          parameters_json_schema=FUNCTION["parameters"])

    async def turn(model, forced, history):
        return await model.request(history, {"temperature": 0,
                                             "max_tokens": 80, "parallel_tool_calls": False},
                                   ModelRequestParameters(function_tools=[tool],
                                                          allow_text_output=not forced))

    async def go():
        for kind in (OpenAIChatModel, OpenAIResponsesModel):
            model = kind("m", provider=provider)
            ask = ModelRequest(parts=[UserPromptPart(content=ASK)])
            one = await turn(model, True, [ask])
            call = next(p for p in one.parts if isinstance(p, ToolCallPart))
            assert isinstance(one, ModelResponse) and call.tool_name == "get_weather", one
            two = await turn(model, False, [ask, one, ModelRequest(parts=[
                ToolReturnPart(tool_name="get_weather",
                               content="sunny", tool_call_id=call.tool_call_id)])])
            assert two.parts, two
    asyncio.run(go())


@client
def openai_agents(base):
    from agents import (Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel,
                        Runner, function_tool)

    @function_tool
    def get_weather(city: str) -> str:
        """Weather of a city."""
        return "sunny in " + city

    async def go():
        for kind in (OpenAIChatCompletionsModel, OpenAIResponsesModel):
            c = openai.AsyncOpenAI(base_url=base, api_key="x", max_retries=0)
            more = {"instructions": "Help.", "tools": [get_weather], "model": kind("m", c)}
            caller = Agent(name="a", tool_use_behavior="stop_on_first_tool",
                           model_settings=ModelSettings(
                tool_choice="required", temperature=0, max_tokens=80, parallel_tool_calls=False),
                           **more)
            items = (await Runner.run(caller, ASK, max_turns=2)).to_input_list()
            assert any(i.get("type") == "function_call_output" for i in items), items
            # what is asked for is words: a small model would call for ever
            answerer = Agent(name="b", model_settings=ModelSettings(
                tool_choice="none", temperature=0, max_tokens=40), **more)
            two = await Runner.run(answerer, items + [{"role": "user", "content": "And in Oslo?"}],
                                   max_turns=2)
            assert two.final_output, two
    asyncio.run(go())


@client
def llama_index(base):
    from llama_index.core.base.llms.types import ChatMessage, MessageRole
    from llama_index.llms.openai_like import OpenAILike
    m = OpenAILike(model="m", api_base=base, api_key="x", is_chat_model=True,
                   is_function_calling_model=True, temperature=0, max_tokens=80, max_retries=0)
    ask = ChatMessage(role=MessageRole.USER, content=ASK)
    one = m.chat([ask], tools=[TOOL], tool_choice="required", parallel_tool_calls=False)
    calls = one.message.additional_kwargs["tool_calls"]
    assert calls, one
    result = ChatMessage(role=MessageRole.TOOL, content="sunny",
                         additional_kwargs={"tool_call_id": calls[0].id, "name": "get_weather"})
    two = m.chat([ask, one.message, result], tools=[TOOL]).message
    assert two.content or two.additional_kwargs.get("tool_calls"), two
    assert "".join(p.delta or "" for p in m.stream_chat([ask, one.message, result],
                                                        tools=[TOOL])) == (two.content or "")


model = sys.argv[2:] and ["-m", sys.argv[2]] or []
with Server("--alias", "m", *model) as server:
    parts = [openai_chat, openai_responses, langchain, pydantic_ai, openai_agents]
    if int(openai.__version__.split(".")[0]) < 3:
        parts.append(llama_index)
    for part in parts:
        part(f"http://127.0.0.1:{server.port}/v1")
T.exit()
