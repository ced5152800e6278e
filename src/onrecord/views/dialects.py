"""Dialects: a well-formed transcript as the messages that a model API expects.

A message that came in the same dialect goes back word for word, thoughts and signatures included.
"""

from __future__ import annotations

import json
from binascii import Error, a2b_base64
from itertools import islice
from typing import TYPE_CHECKING, Any

from onrecord.errors import InvalidInput
from onrecord.log.items import is_open_call, to_items, without_verbatim
from onrecord.log.partners import OWN_CALLS, OWN_RESULTS, told_of
from onrecord.views.call_ids import with_unique_ids
from onrecord.views.parts import (
    anthropic_content,
    gemini_content,
    is_image,
    openai_content,
    parts_of,
    plain_base64,
    responses_content,
    text_of,
)
from onrecord.views.transcript import well_formed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from onrecord.log.item_values import Item, Json, ToolCall

APART = ("anthropic", "gemini")
"""Dialects in which the system's text is no message: see `Messages.system`."""
GOES_ON = "[the conversation continues]"
"""The first message of a user, if an API insists on one and none is on record."""


class Messages(list["Json"]):
    """What to send to a model: a list of messages in the form that its API takes, and what belongs beside it."""

    def __init__(self, messages: Iterable[Json] = (), system: str = "") -> None:
        super().__init__(messages)
        self.system = system
        """The system's text, in the formats that take it apart from the messages; else it is the first message."""
        self.tokens = 0
        """How many tokens this is, by the counter that was used."""
        self.left_out = 0
        """How many committed turns are missing here: a summary covers them, or they did not fit."""
        self.left_out_steps = 0
        """How many older steps of the open turn did not fit."""
        self.position = 0
        """The position of the log that this was made from."""

    @property
    def messages(self) -> list[Json]:
        """The messages themselves, as a plain list."""
        return list(self)


def to_messages(items: Iterable[Item], dialect: str) -> list[Json]:
    """Messages in a dialect, or the items themselves (`neutral`), always well formed."""
    whole = well_formed(items)
    if dialect == "neutral":
        return with_unique_ids(whole, dialect)
    if not isinstance(dialect, str) or dialect not in _MAKERS:
        raise InvalidInput(f"unknown message format {dialect!r}", hint=f"use neutral, {', '.join(_MAKERS)}")
    return with_unique_ids(_MAKERS[dialect]([item for item in whole if not item.get("thinking")]), dialect)


def to_prompt(items: Iterable[Item], dialect: str) -> Messages:
    """The same as what an API accepts as a request: the system's text apart where it must be, nothing empty."""
    whole = list(items)
    if dialect == "neutral":
        return Messages(to_messages(whole, dialect))
    whole = [item for item in whole if _is_sent(item, dialect)]
    if dialect not in APART:
        return Messages(to_messages(whole, dialect))
    system = "\n\n".join(text_of(item.get("content")) for item in whole if item["role"] == "system")
    made = to_messages([item for item in whole if item["role"] != "system"], dialect)
    made = _accepted(made) if dialect == "anthropic" else made
    if made and made[0]["role"] != "user":
        first = {"content": GOES_ON} if dialect == "anthropic" else {"parts": [{"text": GOES_ON}]}
        made = [{"role": "user", **first}, *made]
    return Messages(made, system)


def _is_sent(item: Item, dialect: str) -> bool:
    """Whether an item says anything that this API takes: all of it may be thoughts of another vendor's model."""
    if item.get("tool_calls") or item["role"] == "tool":
        return True
    content, kept = item.get("content"), item.get("verbatim")
    if kept and kept.get("format") == dialect:
        return bool(content) or _says_more(kept["message"], dialect)
    if not content:
        return False
    return bool(anthropic_content(content) if dialect == "anthropic" else parts_of(content))


def _says_more(message: dict[str, Any], dialect: str) -> bool:
    """Whether a vendor's own message has more than text and thoughts: an image, say, or the call of a hosted tool."""
    if dialect == "openai":
        return bool(message.get("audio"))
    if dialect == "openai-responses":
        return any(part.get("type", "message") not in ("message", "reasoning") for part in _output(message))
    spoken = [part for part in message.get("parts") or () if isinstance(part, dict) and not part.get("thought")]
    return any(value for part in spoken for name, value in part.items() if name not in _NO_WORDS)


_NO_WORDS = ("text", "thought", "thought_signature", "thoughtSignature")


def _messages(
    items: list[Item], dialect: str, make: Callable[[Item], dict[str, Any]]
) -> list[tuple[dict[str, Any], bool]]:
    """Messages, and whether each is the partner's own message, kept because all of its items are still together."""
    messages = []
    index = 0
    while index < len(items):
        verbatim = items[index].get("verbatim")
        spans = verbatim.get("spans", 1) if verbatim and verbatim.get("format") == dialect else 0
        if verbatim and spans and _still_together(items[index : index + spans], verbatim["message"], dialect):
            messages.append((verbatim["message"], True))
            index += spans
        else:
            messages.append((make(items[index]), False))
            index += 1
    return messages


def _still_together(group: list[Item], message: object, dialect: str) -> bool:
    return _became(group, message, dialect, former=False) or _became(group, message, dialect, former=True)


def _became(group: list[Item], message: object, dialect: str, *, former: bool) -> bool:
    try:
        made = to_items(message, dialect, former=former)
    except InvalidInput:
        return False
    return [without_verbatim(item) for item in group] == [without_verbatim(item) for item in made]


def _openai(items: list[Item]) -> list[dict[str, Any]]:
    return [_with_audio(message) for message, _kept in _messages(items, "openai", _openai_message)]


def _with_audio(message: dict[str, Any]) -> dict[str, Any]:
    """An answer that was spoken goes back by its id: the API takes no more of it than that."""
    audio = message.get("audio")
    return {**message, "audio": {"id": audio["id"]}} if isinstance(audio, dict) and audio.get("id") else message


def _openai_message(item: Item) -> dict[str, Any]:
    if item["role"] == "tool":
        return {"role": "tool", "tool_call_id": item["call"], "content": text_of(item.get("content"))}
    calls = item.get("tool_calls")
    content = item.get("content") if item["role"] == "user" else _texts(item.get("content"))
    message: dict[str, Any] = {"role": item["role"], "content": openai_content(content)}
    if calls:
        message["tool_calls"] = [
            {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": _json(call)}}
            for call in calls
        ]
    elif message["content"] is None:
        message["content"] = ""
    return message


def _texts(content: object) -> Any:
    """A content of someone who cannot send images."""
    return content if content is None or isinstance(content, str) else text_of(content)


def _json(call: ToolCall) -> str:
    arguments = _arguments(call)
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _arguments(call: ToolCall) -> Json:
    """The arguments of a call; a model that needs none may write nothing, or null."""
    arguments = call.get("arguments")
    return {} if arguments is None or (isinstance(arguments, str) and not arguments.strip()) else arguments


def _responses(items: list[Item]) -> list[dict[str, Any]]:
    groups = [
        (_output(message), None if kept else message.get("result"))
        for message, kept in _messages(items, "openai-responses", _responses_message)
    ]
    made: list[dict[str, Any]] = []
    kinds: dict[str, str] = {}
    """Which kind of call has an id; "" if the call is not sent."""
    asked: set[str] = set()
    decided = {one.get("approval_request_id") for group, _result in groups for one in group}
    for number, (parts, result) in enumerate(groups):
        if result is None:
            made += _answered(groups, number, kinds, asked, decided)
        elif kinds.get(result["call"]) != "":
            made.append(_result_of(kinds.get(result["call"]), parts[0], failed=result.get("error", False)))
    return made


def _output(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts of a response; one part may be a message by itself."""
    return message["output"] if isinstance(message.get("output"), list) and "type" not in message else [message]


_Group = tuple[list[dict[str, Any]], "Item | None"]
"""Parts of a response; and a tool's result, if they were made of one."""


def _answered(
    groups: list[_Group], number: int, kinds: dict[str, str], asked: set[str], decided: set[Any]
) -> list[dict[str, Any]]:
    """Parts without calls that have no result: the API refuses those, and thoughts before a part that is missing."""
    parts, _result = groups[number]
    made: list[dict[str, Any]] = []
    without: list[dict[str, Any]] = []
    for part in parts:
        kind, id_ = part.get("type"), part.get("call_id", "")
        sent: dict[str, Any] | None = part
        if kind in ("function_call", "custom_tool_call", *OWN_CALLS):
            kinds[id_] = str(kind)
        if kind in OWN_CALLS:
            answer = _answer_to(id_, groups, number)
            if kind == "computer_call" and answer != _OWN:
                kinds[id_] = "function_call" if answer == _TEXT else ""
                sent = _as_function_call(part) if answer == _TEXT else None
            elif not answer:
                without.append(_result_of(str(kind), {"call_id": id_, "output": _NO_RESULT}, failed=True))
        elif kind == "mcp_approval_request":
            asked.add(part.get("id", ""))
            if part.get("id") not in decided:
                sent = {"type": "message", "role": "assistant", "content": told_of(part)}
        elif kind == "mcp_approval_response" and part.get("approval_request_id") not in asked:
            sent = {"type": "message", "role": "user", "content": told_of(part)}
        elif kind == "function_call_output":
            sent = _result_of(kinds.get(id_), part, failed=False)
        if sent is not part:
            while made and made[-1].get("type") == "reasoning" and kind != "function_call_output":
                made.pop()
        made += [sent] if sent else []
    return made + without


_NO_RESULT = "[no result on record: it may have started; its outcome is unknown]"


_OWN, _TEXT, _SYNTHESISED = "own", "text", "synthesised"


def _answer_to(id_: str, groups: list[_Group], number: int) -> str:
    """What answers a call of one of OpenAI's own tools: a part of its own type, a result in text, or nothing."""
    for group, result in islice(groups, number, None):
        if result is not None and result["call"] == id_:
            return _SYNTHESISED if result.get("synthesised") else _TEXT
        if any(part.get("type") in OWN_RESULTS and id_ in (part.get("call_id"), part.get("id")) for part in group):
            return _OWN
        if any(part.get("type") == "function_call_output" and part.get("call_id") == id_ for part in group):
            return _TEXT
    return ""


def _as_function_call(part: dict[str, Any]) -> dict[str, Any]:
    """A call whose result is text, which has no place in the result of its own type."""
    (item,) = to_items(part, "openai-responses")
    made: dict[str, Any] = _responses_message({"role": "assistant", "tool_calls": item["tool_calls"]})["output"][0]
    return made


def _result_of(kind: str | None, part: dict[str, Any], *, failed: bool) -> dict[str, Any]:
    """A result in the type that belongs to the kind of its call."""
    call, text = part.get("call_id"), text_of(part.get("output"))
    if kind == "custom_tool_call":
        return {**part, "type": "custom_tool_call_output"}
    if kind == "shell_call":
        said = {"stdout": "", "stderr": text} if failed else {"stdout": text, "stderr": ""}
        outcome = {"type": "exit", "exit_code": int(failed)}
        return {"type": "shell_call_output", "call_id": call, "output": [{**said, "outcome": outcome}]}
    if kind == "local_shell_call":  # its SDK names the call `id`, its documentation `call_id`
        return {"type": "local_shell_call_output", "id": call, "call_id": call, "output": text}
    if kind == "apply_patch_call":
        status = "failed" if failed else "completed"
        return {"type": "apply_patch_call_output", "call_id": call, "status": status, "output": text}
    return part


def _responses_message(item: Item) -> dict[str, Any]:
    if item["role"] == "tool":
        content = item.get("content")
        shows = isinstance(content, list) and any(isinstance(part, dict) and is_image(part) for part in content)
        said = responses_content(content, "tool") if shows else text_of(content)
        return {"output": [{"type": "function_call_output", "call_id": item["call"], "output": said}], "result": item}
    calls = item.get("tool_calls") or ()
    parts: list[dict[str, Any]] = []
    if item.get("content") or not calls:
        content = responses_content(item.get("content"), item["role"])
        parts.append({"type": "message", "role": item["role"], "content": content})
    parts += [
        {"type": "function_call", "call_id": call["id"], "name": call["name"], "arguments": _json(call)}
        for call in calls
    ]
    return {"output": parts}


def _anthropic(items: list[Item]) -> list[dict[str, Any]]:
    return _merge(_messages(items, "anthropic", _anthropic_message))


def _accepted(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages without what Anthropic refuses: empty text, and calls of its own tools without their results.

    Such a call stays while its step is open: its result is yet to come, and a program that it runs may call tools.
    """
    blocks = [_dicts(message["content"]) for message in messages]
    every = [part for group in blocks for part in group]
    known = {part.get("tool_use_id") for part in every} & {part.get("id") for part in every if is_open_call(part)}
    roles = [_speaker(message) for message in messages]
    asked = max((number for number, role in enumerate(roles) if role == "user"), default=-1)
    last = max((number for number, role in enumerate(roles) if role == "assistant"), default=-1)
    programs = {_caller(part) for part in every} - {None}
    made: list[tuple[dict[str, Any], bool]] = []
    is_gap = False
    for number, message in enumerate(messages):
        content = message["content"]
        if isinstance(content, list) and content:
            pending = programs | {part.get("id") for part in blocks[number] if number == last}
            content = [part for part in content if _fits(part, known, pending if number > asked else set())]
            if not content:
                is_gap = True
                continue
        made.append(({"role": message["role"], "content": content}, not is_gap))  # only there, two may become one
        is_gap = False
    return _merge(made)


def _fits(part: Any, known: set[Any], pending: set[Any]) -> bool:
    """Whether Anthropic takes a block; `known` are its own tools' calls with results, `pending` may be without one."""
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text":
        return bool(str(part.get("text") or "").strip())
    if kind is not None and is_open_call(part):
        return part.get("id") in known or part.get("id") in pending
    return not str(kind).endswith("_tool_result") or part.get("tool_use_id") in known


def _caller(part: dict[str, Any]) -> Any:
    """The call of a program that made this call."""
    caller = part.get("caller")
    return caller.get("tool_id") if isinstance(caller, dict) else None


def _speaker(message: dict[str, Any]) -> str:
    """Who speaks in a message: assistant, user, or tools, whose results a message of the user's carries."""
    blocks = _dicts(message["content"])
    is_result = bool(blocks) and all(part.get("type") == "tool_result" for part in blocks)
    return "tool" if is_result else str(message["role"])


def _dicts(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _anthropic_message(item: Item) -> dict[str, Any]:
    content = item.get("content")
    if item["role"] == "tool":
        said = content if isinstance(content, str) else anthropic_content(content)
        result: dict[str, Any] = {"type": "tool_result", "tool_use_id": item["call"], "content": said}
        if item.get("error"):
            result["is_error"] = True
        return {"role": "user", "content": [result]}
    if not item.get("tool_calls"):
        return {"role": item["role"], "content": content if isinstance(content, str) else anthropic_content(content)}
    parts = anthropic_content(content)
    for call in item["tool_calls"]:
        parts.append({"type": "tool_use", "id": call["id"], "name": call["name"], "input": _object(call)})
    return {"role": item["role"], "content": parts}


def _object(call: ToolCall) -> dict[str, Any]:
    arguments = _arguments(call)
    return arguments if isinstance(arguments, dict) else {"arguments": arguments}


def _merge(messages: list[tuple[dict[str, Any], bool]]) -> list[dict[str, Any]]:
    """Results of one assistant message belong in one user message, together with what the user said then."""
    merged: list[tuple[dict[str, Any], bool]] = []
    for message, kept in messages:
        before, before_kept = merged[-1] if merged else ({"role": ""}, False)
        if before["role"] == message["role"] == "user" and _has_results(before) and not (kept and before_kept):
            merged[-1] = {"role": "user", "content": [*before["content"], *_blocks(message["content"])]}, False
        else:
            merged.append((message, kept))
    return [message for message, _kept in merged]


def _has_results(message: dict[str, Any]) -> bool:
    return isinstance(message["content"], list) and any(
        part.get("type") == "tool_result" for part in message["content"]
    )


def _blocks(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _gemini(items: list[Item]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    items = _in_order_of_calls(items)
    names = _names_of_results(items)
    for message, kept in _messages(items, "gemini", lambda item: _gemini_message(item, names.get(id(item), "tool"))):
        content = _with_bytes(message) if kept else message
        if made and made[-1]["role"] == content["role"]:
            made[-1] = {"role": content["role"], "parts": [*made[-1]["parts"], *content["parts"]]}
        else:
            made.append(content)
    return made


def _in_order_of_calls(items: list[Item]) -> list[Item]:
    """Results in the order of their calls: for calls without ids, only the order says which result is whose."""
    ordered: list[tuple[int, int, Item]] = []
    group, places = 0, dict[str, int]()
    for item in items:
        if item["role"] == "tool":
            ordered.append((group, places.get(item["call"], 0), item))
            continue
        group += 1
        places = {call["id"]: place for place, call in enumerate(item.get("tool_calls") or (), 1)}
        ordered.append((group, 0, item))
    return [item for _group, _place, item in sorted(ordered, key=lambda one: one[:2])]


def _names_of_results(items: list[Item]) -> dict[int, str]:
    """The name of the tool by the identity of a result: ids of calls repeat, so the last call before it counts."""
    calls: dict[str, str] = {}
    names: dict[int, str] = {}
    for item in items:
        calls |= {call["id"]: call["name"] for call in item.get("tool_calls") or ()}
        if item["role"] == "tool" and item["call"] in calls:
            names[id(item)] = calls[item["call"]]
    return names


def _gemini_message(item: Item, name: str) -> dict[str, Any]:
    content = item.get("content")
    if item["role"] == "tool":
        said = {"error" if item.get("error") else "output": text_of(content)}
        return {"role": "user", "parts": [{"function_response": {"id": item["call"], "name": name, "response": said}}]}
    parts = gemini_content(content)
    for call in item.get("tool_calls") or ():
        parts.append({"function_call": {"id": call["id"], "name": call["name"], "args": _object(call)}})
    role = "model" if item["role"] == "assistant" else item["role"]
    return {"role": role, "parts": parts or [{"text": " "}]}


def _with_bytes(message: dict[str, Any]) -> dict[str, Any]:
    """A content as the SDK takes it: a log keeps bytes as base64 text."""
    parts = []
    for part in message.get("parts") or ():
        signature = part.get("thought_signature")
        parts.append({**part, "thought_signature": _bytes(signature)} if isinstance(signature, str) else part)
    return {"role": message.get("role", "model"), "parts": parts}


def _bytes(text: str) -> bytes:
    try:
        return a2b_base64(plain_base64(text))
    except (Error, ValueError):
        return text.encode()


_MAKERS: dict[str, Callable[[list[Item]], list[dict[str, Any]]]] = {
    "openai": _openai, "openai-responses": _responses, "anthropic": _anthropic, "gemini": _gemini,
}  # fmt: skip
