"""OpenAI's Responses protocol in front of the same turns: its items become chat messages, answers become its items.

Items that follow one another in the assistant's name (reasoning, text, calls) are one message of the record. With
`previous_response_id`, a request has only what is new; the conversation before it comes from the record.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from onrecord.errors import InvalidInput
from onrecord.rollout.requests import list_of_objects
from onrecord.rollout.server.answers import event, problem_of, to_json, whole_stream
from onrecord.rollout.server.blocks import CALL, TEXT, Blocks
from onrecord.rollout.streams import rest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from onrecord.errors import OnrecordError

PREFIX = "resp_"
"""Before the id of an answer, it is the id of a response."""
_OWN = (
    "input", "instructions", "tools", "tool_choice", "max_output_tokens", "previous_response_id", "text", "reasoning",
    "store", "include", "metadata", "truncation", "user", "service_tier", "background", "conversation",
    "prompt_cache_key", "safety_identifier", "max_tool_calls", "stream_options", "prompt_cache_retention",
)  # fmt: skip
"""Fields that are translated, or that mean nothing to an engine; all others go to it as they are."""
_REFUSED = {
    "background": "a turn is answered while the client waits",
    "conversation": "the session is the conversation",
}
_SHOWN = ("temperature", "top_p", "max_output_tokens", "instructions", "previous_response_id")
_PARTS = ("input_text", "output_text", "text", "refusal", "reasoning_text", "summary_text")


def to_chat(asked: Mapping[str, Any], recorded: Callable[[str], Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """The chat request of a request for a response. `recorded` returns the conversation up to a recorded answer."""
    for name, why in _REFUSED.items():
        if asked.get(name):
            raise InvalidInput(f"{name} is not supported here: {why}")
    chat = {name: value for name, value in asked.items() if name not in _OWN}
    messages: list[Mapping[str, Any]] = []
    previous = asked.get("previous_response_id")
    if asked.get("instructions"):
        messages.append({"role": "system", "content": _text(asked["instructions"])})
    if previous is not None:
        known = recorded(str(previous).removeprefix(PREFIX))
        if messages and list(known[:1]) != messages:
            raise InvalidInput(
                "the instructions of a rollout cannot change: they are in its first prompt",
                hint="send the same instructions, or none",
            )
        messages = list(known)
    chat["messages"] = [*messages, *_messages(asked.get("input"))]
    if asked.get("tools"):
        chat["tools"] = [_tool(tool) for tool in list_of_objects(asked["tools"], "tools")]
    choice = asked.get("tool_choice")
    if choice is not None:
        named = isinstance(choice, dict) and choice.get("type") == "function"
        chat["tool_choice"] = {"type": "function", "function": {"name": choice.get("name")}} if named else choice
    if asked.get("max_output_tokens") is not None:
        chat["max_completion_tokens"] = asked["max_output_tokens"]
    chat |= _response_format(asked.get("text")) | _effort(asked.get("reasoning"))
    return chat


def _response_format(text: Any) -> dict[str, Any]:
    form = text.get("format") if isinstance(text, dict) else None
    if not isinstance(form, dict) or form.get("type") in (None, "text"):
        return {}
    schema = {name: value for name, value in form.items() if name != "type"}
    kind = form["type"]
    return {"response_format": {"type": kind, **({"json_schema": schema} if kind == "json_schema" else {})}}


def _effort(reasoning: Any) -> dict[str, Any]:
    effort = reasoning.get("effort") if isinstance(reasoning, dict) else None
    return {"reasoning_effort": effort} if effort else {}


def _messages(given: Any) -> list[dict[str, Any]]:
    """Items as messages."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if not isinstance(given, list) or not all(isinstance(item, dict) for item in given):
        raise InvalidInput("the input of a response must be text or a list of items")
    messages: list[dict[str, Any]] = []
    said: dict[str, Any] | None = None
    """The assistant's message that the next item may belong to."""
    for item in given:
        kind = item.get("type", "message")
        if kind == "function_call_output":
            said = None
            output = {"role": "tool", "tool_call_id": item.get("call_id"), "content": _text(item.get("output", ""))}
            messages.append(output)
        elif kind == "message" and item.get("role") != "assistant":
            said = None
            messages.append({"role": _role(item), "content": _text(item.get("content", ""))})
        elif kind in ("message", "reasoning", "function_call"):
            if said is None:
                said = {"role": "assistant", "content": None}
                messages.append(said)
            _add(said, kind, item)
        else:
            raise InvalidInput(f"an item of type {kind!r:.40} cannot be part of a rollout")
    return messages


def _role(item: Mapping[str, Any]) -> str:
    if item.get("role") not in ("user", "system", "developer"):
        raise InvalidInput("a message needs the role user, system, developer or assistant")
    return str(item["role"])


def _add(said: dict[str, Any], kind: str, item: Mapping[str, Any]) -> None:
    if kind == "message":
        said["content"] = (said["content"] or "") + _text(item.get("content", ""))
    elif kind == "reasoning":
        thought = _text(item.get("content") or item.get("summary") or "")
        if thought:
            said["reasoning_content"] = said.get("reasoning_content", "") + thought
    else:
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        said.setdefault("tool_calls", []).append({"id": item.get("call_id"), "type": "function", "function": function})


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts: list[Any] = content if isinstance(content, list) else [None]
    for part in parts:
        if not isinstance(part, dict) or part.get("type") not in _PARTS:
            raise InvalidInput("the parts of an item must be text", hint="images have no token ids to record")
    return "".join(str(part.get("text") or part.get("refusal") or "") for part in parts)


def _tool(tool: Any) -> dict[str, Any]:
    if not isinstance(tool, dict) or tool.get("type") != "function" or not isinstance(tool.get("name"), str):
        raise InvalidInput("a tool must be a function with a name", hint="an engine has no tools of its own")
    kept = {name: tool[name] for name in ("name", "description", "parameters") if tool.get(name) is not None}
    return {"type": "function", "function": kept}


# Answers


def respond(answer: str, asked: Mapping[str, Any]) -> Response:
    """A recorded answer as a response."""
    if asked.get("stream"):
        return whole_stream(answer, lambda said: ResponseEvents(asked, said["id"], said["created"]))
    return Response(to_json(_response(json.loads(answer), asked)).encode(), media_type="application/json")


def _response(said: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    collected = ResponseEvents(asked, said["id"], said["created"])
    for delta in rest(said["choices"][0]["message"], {}):
        collected.take(delta)
    collected.finish()
    return collected.response(said)


class ResponseEvents(Blocks):
    """A turn as the events of OpenAI's Responses protocol."""

    def __init__(self, asked: Mapping[str, Any], id: str, created: int) -> None:
        super().__init__()
        self._asked = asked
        self._answer, self._created = id, created
        self._events = -1
        self._items: list[dict[str, Any]] = []

    def begin(self) -> bytes:
        """A response that has said nothing yet."""
        empty = self.response(None)
        return self._event("response.created", response=empty) + self._event("response.in_progress", response=empty)

    def end(self, answer: str, left: list[dict[str, Any]]) -> bytes:
        """The rest, and the whole response."""
        said = json.loads(answer)
        made = b"".join(map(self.take, left)) + self.finish()
        whole = self.response(said)
        return made + self._event(f"response.{whole['status']}", response=whole)

    def error(self, error: OnrecordError) -> bytes:
        """What clients of this protocol raise."""
        about = json.loads(bytes(problem_of(error).body))["error"]
        return self._event("error", code=about["code"], message=about["message"], param=None)

    def opened(self) -> bytes:
        """An item begins."""
        made = self._event("response.output_item.added", output_index=self.index, item=self._item("in_progress"))
        if self.kind != CALL:
            part = self._part("")
            made += self._event("response.content_part.added", **self._at(), content_index=0, part=part)
        return made

    def added(self, text: str) -> bytes:
        """Its text grows."""
        return self._event(f"response.{self._what()}.delta", **self._at(), **self._place(), delta=text)

    def closed(self) -> bytes:
        """It is whole."""
        name = "arguments" if self.kind == CALL else "text"
        extra = {"name": self.call["name"]} if self.kind == CALL else {}
        made = self._event(f"response.{self._what()}.done", **self._at(), **self._place(), **{name: self.text}, **extra)
        if self.kind != CALL:
            part = self._part(self.text)
            made += self._event("response.content_part.done", **self._at(), content_index=0, part=part)
        item = self._item("completed")
        self._items.append(item)
        return made + self._event("response.output_item.done", output_index=self.index, item=item)

    def _what(self) -> str:
        return {CALL: "function_call_arguments", TEXT: "output_text"}.get(self.kind, "reasoning_text")

    def _at(self) -> dict[str, Any]:
        return {"item_id": self._item_id(), "output_index": self.index}

    def _place(self) -> dict[str, Any]:
        place: dict[str, Any] = {} if self.kind == CALL else {"content_index": 0}
        return place | ({"logprobs": []} if self.kind == TEXT else {})

    def _item_id(self) -> str:
        prefix = {CALL: "fc", TEXT: "msg"}.get(self.kind, "rs")
        return f"{prefix}_{self._answer}_{self.index}"

    def _part(self, text: str) -> dict[str, Any]:
        if self.kind == TEXT:
            return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        return {"type": "reasoning_text", "text": text}

    def _item(self, status: str) -> dict[str, Any]:
        item: dict[str, Any] = {"id": self._item_id(), "status": status}
        if self.kind == CALL:
            called = {"call_id": self.call["id"], "name": self.call["name"], "arguments": self.text}
            return item | {"type": "function_call", **called}
        content = [self._part(self.text)] if status == "completed" else []
        if self.kind == TEXT:
            return item | {"type": "message", "role": "assistant", "content": content}
        return item | {"type": "reasoning", "summary": [], "content": content}

    def response(self, said: Mapping[str, Any] | None) -> dict[str, Any]:
        """The response so far; with the answer, the whole one."""
        asked, usage = self._asked, (said or {}).get("usage")
        finish = said["choices"][0]["finish_reason"] if said else None
        status = {None: "in_progress", "length": "incomplete", "abort": "cancelled"}.get(finish, "completed")
        return {
            "id": PREFIX + self._answer, "object": "response", "created_at": self._created, "status": status,
            "model": asked.get("model"), "output": list(self._items), "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if finish == "length" else None,
            **{name: asked.get(name) for name in _SHOWN},
            "tools": asked.get("tools") or [], "tool_choice": asked.get("tool_choice") or "auto",
            "parallel_tool_calls": asked.get("parallel_tool_calls", True), "metadata": asked.get("metadata") or {},
            "text": asked.get("text") or {"format": {"type": "text"}}, "store": True, "truncation": "disabled",
            "usage": usage and {
                "input_tokens": usage["prompt_tokens"], "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": usage["completion_tokens"], "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage["total_tokens"],
            },
        }  # fmt: skip

    def _event(self, kind: str, **about: Any) -> bytes:
        self._events += 1
        return event({"type": kind, "sequence_number": self._events, **about}, kind)
