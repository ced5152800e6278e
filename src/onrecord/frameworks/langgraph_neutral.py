"""What messages of LangChain say as neutral items, and messages that say what other writers added to the session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord.frameworks.requiring import required
from onrecord.log.items import make_item, make_result
from onrecord.views.parts import openai_content, text_of

with required("langgraph", "langgraph langchain_core", "1.2"):
    from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

    from onrecord.frameworks.others import Said
    from onrecord.log.item_values import Item, ToolCall

_MEDIA_PARTS = ("image", "image_url", "input_image", "audio", "input_audio", "video", "file", "media")
"""Parts of a message that are images or files, in the forms that LangChain passes on."""


def neutral(message: BaseMessage) -> list[Item]:
    """What a message says, as neutral items."""
    text = _said(message.content)
    if isinstance(message, RemoveMessage):
        return []
    if isinstance(message, ToolMessage):
        return [make_result(message.tool_call_id, text, failed=message.status == "error")]
    if isinstance(message, AIMessage):
        calls: list[ToolCall] = [
            {"id": str(call["id"] or number), "name": call["name"], "arguments": call["args"]}
            for number, call in enumerate(message.tool_calls)
        ]
        return [make_item("assistant", text, calls)]
    role = {"human": "user", "system": "system"}.get(message.type.lower().replace("messagechunk", ""), "assistant")
    return [{"role": role, "content": text}]


def _said(content: Any) -> Any:
    """A content as text, or as parts if it has images or files."""
    if not isinstance(content, list):
        return content
    parts = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
    if any(part.get("type") in _MEDIA_PARTS for part in parts):
        return [part for part in parts if part.get("type") in (*_MEDIA_PARTS, "text")]
    return "\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))


def from_neutral(turn: Said) -> list[BaseMessage]:
    """Messages of LangChain that say the same as a turn of another writer; their ids say which one they repeat."""
    made: list[BaseMessage] = []
    for number, item in enumerate(turn.items):
        if item.get("thinking"):
            continue
        id_, text = turn.copy_id(number), text_of(item.get("content"))
        if item["role"] == "tool":
            status: Any = "error" if item.get("error") else "success"
            made.append(ToolMessage(text, tool_call_id=item["call"], status=status, id=id_))
        elif item["role"] == "assistant":
            calls = [
                {"id": call["id"], "name": call["name"], "args": _as_dict(call.get("arguments")), "type": "tool_call"}
                for call in item.get("tool_calls") or ()
            ]
            made.append(AIMessage(text, tool_calls=calls, id=id_))
        elif item["role"] == "user":
            made.append(HumanMessage(openai_content(item.get("content")) or "", id=id_))
        else:
            made.append(SystemMessage(text, id=id_))
    return made


def _as_dict(arguments: Any) -> dict[str, Any]:
    return arguments if isinstance(arguments, dict) else {"arguments": arguments}
