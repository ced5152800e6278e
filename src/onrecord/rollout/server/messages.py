"""Anthropic's protocol in front of the same turns: its requests become chat requests, answers become its messages.

The record has chat messages, whichever protocol a client speaks. Nothing is lost between them: text, thinking, tool
calls and results. A client sends the input of a call as JSON; the record has the text that the model wrote, so known
calls get their recorded text back.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from onrecord.errors import InvalidInput
from onrecord.rollout.engines import is_standard, load_json
from onrecord.rollout.requests import list_of_objects
from onrecord.rollout.server.answers import event, hint_of, problem_of, to_json, whole_stream
from onrecord.rollout.server.blocks import CALL, TEXT, THINKING, Blocks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from starlette.responses import Response

    from onrecord.errors import OnrecordError

_OWN = ("system", "messages", "tools", "tool_choice", "stop_sequences", "metadata", "thinking", "service_tier")
"""Fields that are translated, or that mean nothing to an engine; all others go to it as they are."""
_STOPS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "abort": "refusal"}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_ERRORS = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
           413: "request_too_large", 503: "overloaded_error"}  # fmt: skip


def to_chat(asked: Mapping[str, Any], known: Mapping[str, list[str]]) -> dict[str, Any]:
    """The chat request of a request for a message. `known` are the arguments of recorded calls, by their id."""
    if not isinstance(asked.get("messages"), list):
        raise InvalidInput("a request for a message needs a list of messages")
    chat = {name: value for name, value in asked.items() if name not in _OWN}
    messages: list[dict[str, Any]] = []
    left = {id: texts[:] for id, texts in known.items()}
    if asked.get("system"):
        messages.append({"role": "system", "content": _text(asked["system"])})
    for message in asked["messages"]:
        if not isinstance(message, dict) or message.get("role") not in ("user", "assistant"):
            raise InvalidInput("a message needs the role user or assistant")
        blocks = message.get("content")
        if isinstance(blocks, str):
            messages.append({"role": message["role"], "content": blocks})
        elif not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
            raise InvalidInput("the content of a message must be text or a list of blocks")
        elif message["role"] == "assistant":
            messages.append(_assistant(blocks, left))
        else:
            messages += _user(blocks)
    chat["messages"] = messages
    if asked.get("tools"):
        chat["tools"] = [_tool(tool) for tool in list_of_objects(asked["tools"], "tools")]
    if asked.get("tool_choice") is not None:
        chat |= _choice(asked["tool_choice"])
    if asked.get("stop_sequences"):
        chat["stop"] = asked["stop_sequences"]
    return chat


def _choice(choice: Any) -> dict[str, Any]:
    """Which tools the model may call, and whether it may call several at once."""
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind != "tool" and (not isinstance(kind, str) or kind not in _CHOICES):
        raise InvalidInput(
            "tool_choice must be an object with a type: auto, any, tool or none", hint='like {"type": "auto"}'
        )
    named = {"type": "function", "function": {"name": choice.get("name")}}
    chosen = {"tool_choice": named if kind == "tool" else _CHOICES[kind]}
    return chosen | ({"parallel_tool_calls": False} if choice.get("disable_parallel_tool_use") else {})


def arguments_of(messages: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The arguments of all calls in recorded messages, by the id of the call: some engines use an id again."""
    found: dict[str, list[str]] = {}
    for message in messages:
        for call in message.get("tool_calls") or []:
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict) and isinstance(function.get("arguments"), str):
                found.setdefault(str(call.get("id")), []).append(function["arguments"])
    return found


def respond(answer: str, request: Mapping[str, Any]) -> Response:
    """A recorded answer as a message, or as a stream of events if the client asked for one."""
    if request.get("stream"):
        return whole_stream(answer, lambda said: MessageEvents(request, said["id"], said["created"]))
    return JSONResponse(_message(json.loads(answer)))


def refused(status: int, error: OnrecordError, headers: Mapping[str, str]) -> JSONResponse:
    """A refusal in the form that clients of this protocol expect."""
    return JSONResponse({"type": "error", "error": _about(status, error)}, status, headers=dict(headers))


def in_form(path: str, refusal: JSONResponse) -> JSONResponse:
    """A refusal of the proxy, in the form of this protocol if the path is its route."""
    if not path.endswith("/v1/messages"):
        return refusal
    said = json.loads(bytes(refusal.body))["error"]
    kind = _ERRORS.get(refusal.status_code, "api_error")
    about = {"type": kind, **{name: said[name] for name in ("message", "code", "hint")}}
    kept = {name: value for name, value in refusal.headers.items() if name not in ("content-length", "content-type")}
    return JSONResponse({"type": "error", "error": about}, refusal.status_code, headers=kept)


def _about(status: int, error: OnrecordError) -> dict[str, Any]:
    kind, hint = _ERRORS.get(status, "api_error"), hint_of(error)
    return {"type": kind, "message": error.message, "code": error.code, "hint": hint}


def _message(answer: dict[str, Any]) -> dict[str, Any]:
    choice, usage = answer["choices"][0], answer["usage"]
    said = choice["message"]
    content: list[dict[str, Any]] = []
    thought = said.get("reasoning_content") or said.get("reasoning")
    if thought:
        content.append({"type": "thinking", "thinking": thought, "signature": ""})
    if said.get("content"):
        content.append({"type": "text", "text": said["content"]})
    for call in said.get("tool_calls") or []:
        function = call["function"]
        content.append({
            "type": "tool_use", "id": call.get("id"), "name": function["name"],
            "input": _input(function.get("arguments")),
        })  # fmt: skip
    reason, word = _STOPS.get(choice["finish_reason"], "end_turn"), choice.get("stop_reason")
    stopped = reason == "end_turn" and bool(word)
    return {
        "id": answer["id"], "type": "message", "role": "assistant", "model": answer["model"], "content": content,
        "stop_reason": "stop_sequence" if stopped else reason, "stop_sequence": word if stopped else None,
        "usage": {"input_tokens": usage["prompt_tokens"], "output_tokens": usage["completion_tokens"]},
    }  # fmt: skip


class MessageEvents(Blocks):
    """A turn as the events of Anthropic's protocol."""

    def __init__(self, asked: Mapping[str, Any], id: str, _created: int) -> None:
        super().__init__()
        self._message: dict[str, Any] = {
            "id": id,
            "type": "message",
            "role": "assistant",
            "model": asked.get("model"),
            "content": [],
        }

    def begin(self) -> bytes:
        """A message that has said nothing yet. What it uses is known at its end."""
        usage = {"input_tokens": 0, "output_tokens": 0}
        begun = {**self._message, "stop_reason": None, "stop_sequence": None, "usage": usage}
        return _event("message_start", message=begun)

    def end(self, answer: str, left: list[dict[str, Any]]) -> bytes:
        """The rest, why it ended, and what it used."""
        said = _message(json.loads(answer))
        made = b"".join(map(self.take, left)) + self.finish()
        ended = {name: said[name] for name in ("stop_reason", "stop_sequence")}
        return made + _event("message_delta", delta=ended, usage=said["usage"]) + _event("message_stop")

    def error(self, error: OnrecordError) -> bytes:
        """What clients of this protocol raise."""
        return _event("error", error=_about(problem_of(error).status_code, error))

    def opened(self) -> bytes:
        """A block begins."""
        empty: dict[str, Any] = {"type": "text", "text": ""}
        if self.kind == THINKING:
            empty = {"type": "thinking", "thinking": "", "signature": ""}
        elif self.kind == CALL:
            empty = {"type": "tool_use", "id": self.call["id"], "name": self.call["name"], "input": {}}
        return _event("content_block_start", index=self.index, content_block=empty)

    def added(self, text: str) -> bytes:
        """Its text grows. Arguments are sent when they are whole: those that are not JSON get another form."""
        if self.kind == CALL:
            return b""
        name = "text" if self.kind == TEXT else "thinking"
        return self._delta({"type": f"{name}_delta", name: text})

    def closed(self) -> bytes:
        """It is whole."""
        made = b""
        if self.kind == CALL:
            made = self._delta({"type": "input_json_delta", "partial_json": to_json(_input(self.text))})
        return made + _event("content_block_stop", index=self.index)

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return _event("content_block_delta", index=self.index, delta=delta)


def _event(kind: str, **about: Any) -> bytes:
    return event({"type": kind, **about}, kind)


def _assistant(blocks: Sequence[Mapping[str, Any]], left: Mapping[str, list[str]]) -> dict[str, Any]:
    text = "".join(_part(block, "text") for block in blocks if block.get("type") == "text")
    thought = "".join(_part(block, "thinking") for block in blocks if block.get("type") == "thinking")
    calls = []
    for block in blocks:
        if block.get("type") == "tool_use":
            function = {"name": block.get("name"), "arguments": _arguments(block, left.get(str(block.get("id")), []))}
            calls.append({"id": block.get("id"), "type": "function", "function": function})
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    message |= {"reasoning_content": thought} if thought else {}
    return message | ({"tool_calls": calls} if calls else {})


def _arguments(block: Mapping[str, Any], recorded: list[str]) -> str:
    """The text of a call's arguments: as recorded, if that means the same. Each is used once, in order."""
    given = block.get("input")
    for at, text in enumerate(recorded):
        if _input(text) == given:
            return recorded.pop(at) if recorded[1:] else text
    return json.dumps(given or {}, ensure_ascii=False)


def _user(blocks: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Results of tools, each a message of its own, then the text."""
    for block in blocks:
        if block.get("type") == "tool_result":
            content = block.get("content")
            yield {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": _text(content or "")}
    said = [_part(block, "text") for block in blocks if block.get("type") != "tool_result"]
    if said:
        yield {"role": "user", "content": "".join(said)}


def _text(content: Any) -> str:
    """Text, or blocks of text, as text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise InvalidInput("content must be text or a list of blocks")
    return "".join(_part(block, "text") for block in content)


def _part(block: Any, name: str) -> str:
    value = block.get(name) if isinstance(block, dict) else None
    if not isinstance(value, str):
        raise InvalidInput("the blocks of a message must be text", hint="images have no token ids to record")
    return value


def _tool(tool: Any) -> dict[str, Any]:
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
        raise InvalidInput("a tool needs a name")
    function = {"name": tool["name"], "description": tool.get("description"), "parameters": tool.get("input_schema")}
    return {"type": "function", "function": {name: value for name, value in function.items() if value is not None}}


def _input(arguments: Any) -> Any:
    """The input of a call; arguments that are not JSON, or that not all clients can read, are text under one name."""
    if not isinstance(arguments, str):
        return arguments if isinstance(arguments, dict) else {}
    try:
        parsed = load_json((arguments or "{}").encode())
    except ValueError:
        return {"arguments": arguments}
    return parsed if isinstance(parsed, dict) and is_standard(parsed) else {"arguments": arguments}
