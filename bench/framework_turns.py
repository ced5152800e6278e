"""The turns of the workload as `bench/frameworks.py` gives them to each framework, and what it takes to decode them.

A function that ends in `_decoding` returns a call that does what the framework itself does to have its objects, with
any store: the least that a resume takes. One that ends in `_encoding` returns a call for each turn, which does what the
framework itself does to save it, with any store: the least that a save takes without a disk.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Turn = list[dict[str, Any]]


def as_it_is(turn: Turn) -> Turn:
    """A turn of the workload."""
    return turn


def responses_items(turn: Turn) -> list[Any]:
    """A turn as items of openai-agents."""
    user, assistant, result = turn
    call = assistant["tool_calls"][0]
    return [
        {"role": "user", "content": user["content"]},
        {"role": "assistant", "content": assistant["content"]},
        {
            "type": "function_call",
            "call_id": call["id"],
            "name": call["name"],
            "arguments": json.dumps(call["arguments"]),
        },
        {"type": "function_call_output", "call_id": call["id"], "output": result["content"]},
    ]


def adk_events(turn: Turn) -> list[Any]:
    """A turn as events of ADK."""
    from google.adk.events.event import Event
    from google.genai import types

    user, assistant, result = turn
    call = assistant["tool_calls"][0]
    parts = (
        ("user", [types.Part(text=user["content"])]),
        ("a", [
            types.Part(text=assistant["content"]),
            types.Part(function_call=types.FunctionCall(id=call["id"], name=call["name"], args=call["arguments"])),
        ]),
        ("a", [types.Part(function_response=types.FunctionResponse(
            id=call["id"], name=call["name"], response={"result": result["content"]}))]),
    )  # fmt: skip
    return [Event(author=author, content=types.Content(role="user", parts=made)) for author, made in parts]


def strands_messages(turn: Turn) -> list[Any]:
    """A turn as messages of Strands."""
    user, assistant, result = turn
    call = assistant["tool_calls"][0]
    use = {"toolUseId": call["id"], "name": call["name"], "input": call["arguments"]}
    answer = {"toolUseId": call["id"], "status": "success", "content": [{"text": result["content"]}]}
    return [
        {"role": "user", "content": [{"text": user["content"]}]},
        {"role": "assistant", "content": [{"text": assistant["content"]}, {"toolUse": use}]},
        {"role": "user", "content": [{"toolResult": answer}]},
    ]


def pydantic_messages(turn: Turn) -> list[Any]:
    """A turn as messages of pydantic-ai, of a run of its own."""
    from pydantic_ai import messages as of

    user, assistant, result = turn
    run = str(time.time_ns())
    call = assistant["tool_calls"][0]
    asked = of.ToolCallPart(call["name"], call["arguments"], tool_call_id=call["id"])
    return [
        of.ModelRequest(parts=[of.UserPromptPart(user["content"])], run_id=run),
        of.ModelResponse(parts=[of.TextPart(assistant["content"]), asked], run_id=run),
        of.ModelRequest(
            parts=[of.ToolReturnPart(call["name"], result["content"], tool_call_id=call["id"])], run_id=run
        ),
    ]


def history_messages(turn: Turn) -> list[Any]:
    """A turn as messages of agent-framework."""
    from agent_framework import Content, Message

    user, assistant, result = turn
    call = assistant["tool_calls"][0]
    asked = Content.from_function_call(call["id"], call["name"], arguments=call["arguments"])
    told = Content.from_function_result(call["id"], result=result["content"])
    return [
        Message("user", [user["content"]]), Message("assistant", [assistant["content"], asked]),
        Message("tool", [told]),
    ]  # fmt: skip


def claude_entries(turn: Turn) -> list[Any]:
    """A turn as entries of Claude's transcript."""

    def entry(role: str, content: Any) -> dict[str, Any]:
        return {"type": role, "uuid": str(time.time_ns()), "message": {"role": role, "content": content}}

    user, assistant, result = turn
    call = assistant["tool_calls"][0]
    use = {"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["arguments"]}
    told = {"type": "tool_result", "tool_use_id": call["id"], "content": result["content"]}
    said = entry("assistant", [{"type": "text", "text": assistant["content"]}, use])
    return [entry("user", user["content"]), said, entry("user", [told])]


def mcp_message(turn: Turn) -> Any:
    """A turn in one message of MCP."""
    from mcp_types import JSONRPCNotification

    params = {"level": "info", "data": turn}
    return JSONRPCNotification(jsonrpc="2.0", method="notifications/message", params=params)


def langgraph_decoding(stock: list[Turn]) -> Callable[[], object]:
    """The messages of a state, from the bytes that LangGraph's own codec makes of them."""
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    codec = JsonPlusSerializer()
    state: list[Any] = []
    for number, (user, assistant, result) in enumerate(stock):
        call = assistant["tool_calls"][0]
        calls: list[Any] = [{"id": call["id"], "name": call["name"], "args": call["arguments"]}]
        state += [
            HumanMessage(user["content"], id=f"user-{number}"),
            AIMessage(assistant["content"], id=f"ai-{number}", tool_calls=calls),
            ToolMessage(result["content"], tool_call_id=call["id"], id=f"tool-{number}"),
        ]
    kept = codec.dumps_typed(state)
    return lambda: codec.loads_typed(kept)


def adk_decoding(stock: list[Turn]) -> Callable[[], object]:
    """Events from their JSON."""
    from google.adk.events.event import Event

    kept = [event.model_dump_json(exclude_none=True) for turn in stock for event in adk_events(turn)]
    return lambda: [Event.model_validate_json(line) for line in kept]


def pydantic_decoding(stock: list[Turn]) -> Callable[[], object]:
    """Messages from their JSON."""
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    kept = ModelMessagesTypeAdapter.dump_json([message for turn in stock for message in pydantic_messages(turn)])
    return lambda: ModelMessagesTypeAdapter.validate_json(kept)


def history_decoding(stock: list[Turn]) -> Callable[[], object]:
    """Messages from their dicts."""
    from agent_framework import Message

    kept = [message.to_dict() for turn in stock for message in history_messages(turn)]
    return lambda: [Message.from_dict(one) for one in kept]


def pydantic_encoding() -> Callable[[Any], Awaitable[object]]:
    """A save in memory, by the framework's own class, and the new messages as JSON."""
    from pydantic_ai.conversation import Conversation
    from pydantic_ai.conversation_store import InMemoryConversationStore
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    conversations, conversation = InMemoryConversationStore(), Conversation(conversation_id="s")

    async def write(messages: list[Any]) -> None:
        conversation.messages += messages
        await conversations.save(conversation)
        ModelMessagesTypeAdapter.dump_json(messages)

    return write


def steps_encoding() -> Callable[[Any], Awaitable[object]]:
    """The messages of a snapshot as JSON: all of the run."""
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    said: list[Any] = []

    async def write(messages: list[Any]) -> None:
        said.extend(messages)
        ModelMessagesTypeAdapter.dump_json(said)

    return write


def history_encoding() -> Callable[[Any], Awaitable[object]]:
    """The new messages as dicts."""

    async def write(messages: list[Any]) -> None:
        for message in messages:
            message.to_dict()

    return write


def pydantic_text(messages: list[Any]) -> str:
    """Messages of pydantic-ai as JSON."""
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    return str(ModelMessagesTypeAdapter.dump_json(messages), "utf-8")


def history_text(messages: list[Any]) -> str:
    """Messages of agent-framework as JSON."""
    return json.dumps([message.to_dict() for message in messages])
