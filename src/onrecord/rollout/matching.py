"""Matching: whether a message of a request equals the stored one, even if it is spelled differently.

A matcher is one of the names below, or a callable that takes both messages and returns a bool. On a match the stored
message is used, so a loose matcher only widens what counts as the same conversation.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from decimal import Decimal, InvalidOperation
from hashlib import sha256
from operator import eq
from typing import TYPE_CHECKING, Any

from onrecord.errors import InvalidInput
from onrecord.rollout.hooks import hook

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Message = Mapping[str, Any]
    Matcher = Callable[[Message, Message], bool]
    Key = tuple[Any, ...]

STRICT, LOOSE_REASONING = "strict", "loose_reasoning"
LOOSE_TOOL_CALL, ROLE_CONTENT_ONLY = "loose_tool_call", "role_content_only"
MATCHERS = (STRICT, LOOSE_REASONING, LOOSE_TOOL_CALL, ROLE_CONTENT_ONLY)
"""From the narrowest to the widest. All but `strict` forgive a client that returns a message generated with reasoning
without it, or with less white space around its text: most agents do one or the other. A message generated without
reasoning may come back trimmed with `role_content_only` only; there, `loose_reasoning` is the same as `strict`."""
_NO_ARGUMENTS = "no arguments"
NO_TOOLS = "none"


class Matching:
    """The stored messages, and a check whether a request begins with them.

    Comparing costs almost nothing if a message is spelled as stored. For other spellings, the matcher's key of a stored
    message is computed once.
    """

    def __init__(self, matcher: str | Matcher = STRICT) -> None:
        if not callable(matcher) and matcher not in MATCHERS:
            raise InvalidInput(f"a matcher must be a callable or one of {', '.join(MATCHERS)}, not {matcher!r}")
        self._matcher = matcher
        self._stored: list[Message] = []
        self._inexact: list[int] = []
        """The indexes, in order, of messages for which `==` alone is not exact."""
        self._keys: list[Key | None] = []

    def replace(self, start: int, messages: Sequence[Message]) -> None:
        """Replace all messages from `start` with these."""
        self._stored[start:] = messages
        del self._inexact[bisect_left(self._inexact, start) :]
        self._inexact += [index for index, message in enumerate(messages, start) if not _is_exact(message)]
        self._keys[start:] = [None] * len(messages)

    def length(self, given: Sequence[Message], start: int = 0) -> int:
        """How many messages at the beginning of a request equal the stored ones from `start`."""
        stored = self._stored[start:] if start else self._stored
        shared = min(len(stored), len(given))
        equal: list[bool] = [False] * shared
        if not callable(self._matcher):
            # Most of a request repeats the last one. This comparison needs no Python step per message, and only
            # compares pointers if the messages are the stored objects themselves.
            inexact = self._inexact[bisect_left(self._inexact, start) : bisect_left(self._inexact, start + shared)]
            if stored[:shared] == given[:shared] and not inexact:
                return shared
            equal = list(map(eq, stored, given))
            for index in inexact:
                equal[index - start] = False
        for index in range(equal.index(False) if False in equal else shared, shared):
            if not equal[index] and not self._same(start + index, given[index]):
                return index
        return shared

    def _same(self, index: int, given: Message) -> bool:
        stored = self._stored[index]
        if not isinstance(given, dict):
            return False
        if callable(self._matcher):
            # It gets copies: whatever it does to them, the record stays.
            with hook("matcher", InvalidInput):
                verdict = self._matcher(as_stored(stored), as_stored(given))
            if verdict is not True and verdict is not False:
                raise InvalidInput(f"a matcher must return a bool, not {type(verdict).__name__}")
            return verdict
        if same_json(stored, given):
            return True
        key = self._keys[index]
        if key is None:
            key = self._keys[index] = _KEYS[self._matcher](stored)
        try:
            if self._matcher != STRICT and _reasoning(stored):
                return _forgiven(stored, given, _KEYS[self._matcher])
            return key == _KEYS[self._matcher](given)
        except RecursionError:
            return False  # brackets a thousand deep, spelled differently: not worth comparing


def _forgiven(stored: Message, given: Message, key: Callable[[Message], Key]) -> bool:
    """Whether a message that was generated with reasoning came back, perhaps without it or trimmed."""
    returned = _reasoning(given)
    same = returned is None or _trimmed(returned) == _trimmed(_reasoning(stored))
    return (same or key is _widest_key) and key(_bare(stored)) == key(_bare(given))


def _bare(message: Message) -> Message:
    """A message without its reasoning, and without white space around its text."""
    kept = {name: value for name, value in message.items() if name not in ("reasoning_content", "reasoning")}
    content = kept.get("content")
    return kept | {"content": content.strip()} if isinstance(content, str) else kept


def _trimmed(text: str | None) -> str | None:
    value = json.loads(text) if text is not None else None
    return value.strip() if isinstance(value, str) else text


def difference(stored: Message, given: Message) -> str:
    """The first field in which a request's message differs from the stored one."""
    parts: tuple[tuple[str, Callable[[Message], Any]], ...] = (
        ("role", lambda message: message.get("role")),
        ("content", lambda message: _filled(message.get("content"))),
        ("reasoning_content", _reasoning),
        ("tool_calls", lambda message: canonical([_without_index(call) for call in _calls(message)])),
    )
    return next((name for name, part in parts if part(stored) != part(given)), "spelling")


def spelling_hint(stored: Message, given: Message) -> str:
    """What helps if a generated message came back in another spelling."""
    forgiven = _widest_key(stored) == _widest_key(given)
    also = f", or use the matcher {ROLE_CONTENT_ONLY}" if forgiven else ""
    return f"send the assistant's message as it was answered{also}"


def _is_exact(value: Any) -> bool:
    """Whether `==` alone is exact for this value: it has no number, so no 1 that equals 1.0 and true."""
    if isinstance(value, dict):
        return all(map(_is_exact, value.values()))
    if isinstance(value, list):
        return all(map(_is_exact, value))
    return value is None or isinstance(value, str)


def as_stored(message: Message) -> dict[str, Any]:
    """A private copy. Its fields are sorted; inside them the order is the client's.

    A template may render the inside of a message, arguments of a call for instance, so their order is part of the
    prompt: it must be the same for the first request, a retry and a process that restarts.
    """
    try:
        return {name: _copied(message[name]) for name in sorted(message, key=str)}
    except RecursionError:
        raise InvalidInput("a message is nested too deeply") from None


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copied(part) for name, part in value.items()}
    return [_copied(part) for part in value] if isinstance(value, list | tuple) else value


def same_json(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON; unlike `==`, 1, 1.0 and true are three different things."""
    if type(one) is not type(other):
        return False
    if type(one) is dict:
        return len(one) == len(other) and all(
            name in other and same_json(value, other[name]) for name, value in one.items()
        )
    if type(one) is list:
        return len(one) == len(other) and all(map(same_json, one, other))
    return bool(one == other)


def canonical(value: Any) -> str:
    """One text for every spelling of the same JSON value."""
    try:
        return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as problem:
        raise InvalidInput(f"a message must be JSON: {problem}") from None


def tools_digest(tools: Sequence[Mapping[str, Any]] | None) -> str:
    """What identifies the tools of a request."""
    return sha256(canonical(list(tools)).encode()).hexdigest()[:16] if tools else NO_TOOLS


def arguments_digest(arguments: Mapping[str, Any]) -> str:
    """What identifies what a request gives to the template."""
    return tools_digest([dict(arguments)]) if arguments else NO_TOOLS


def refuse_changes(known: tuple[str, str], given: tuple[str, str]) -> None:
    """Refuse other tools, or other arguments of the template, than those of the turns on record; "" is unknown."""
    reasons = (
        "this request names other tools than the turns before it, and the model would not see them",
        "this request has other chat_template_kwargs, reasoning_effort or documents than the turns on record",
    )
    for was, now, reason in zip(known, given, reasons, strict=True):
        if was and was != now:
            raise InvalidInput(reason, hint="send the same ones in every request, or start another session")


def _strict_key(message: Message) -> Key:
    calls = [_without_index(call) for call in _calls(message)]
    return (*_role_content_key(message), _reasoning(message), canonical(calls))


def _loose_key(message: Message) -> Key:
    calls = []
    for call in map(_without_index, _calls(message)):
        rest = call
        function = call.get("function") if isinstance(call, dict) else None
        arguments: Any = None
        if isinstance(function, dict):
            arguments = _meaning(function.get("arguments"))
            rest = call | {"function": {name: value for name, value in function.items() if name != "arguments"}}
        calls.append((canonical(rest), arguments))
    return (*_role_content_key(message), _reasoning(message), tuple(calls))


def _role_content_key(message: Message) -> Key:
    return message.get("role"), _filled(message.get("content"))


def _widest_key(message: Message) -> Key:
    """Role and content, without white space around what the assistant said."""
    return _role_content_key(_bare(message) if message.get("role") == "assistant" else message)


_KEYS: dict[str, Callable[[Message], Key]] = {
    STRICT: _strict_key,
    LOOSE_REASONING: _strict_key,
    LOOSE_TOOL_CALL: _loose_key,
    ROLE_CONTENT_ONLY: _widest_key,
}


def _filled(value: Any) -> str | None:
    """A value as text that can be compared; None, "" and [] all count as empty."""
    return None if value is None or value in ("", []) else canonical(value)


def _reasoning(message: Message) -> str | None:
    return _filled(message.get("reasoning_content") or message.get("reasoning"))


def _calls(message: Message) -> list[Any]:
    calls = message.get("tool_calls")
    return calls if isinstance(calls, list) else [calls] if calls else []


def _without_index(call: Any) -> Any:
    return {name: value for name, value in call.items() if name != "index"} if isinstance(call, dict) else call


def _meaning(arguments: Any) -> Any:
    """The meaning of arguments, whatever their spelling; text that is not JSON means itself.

    A call without arguments is spelled as nothing, as null and as an empty object, all of them as text or as JSON.
    """
    if arguments is None or arguments == {} or (isinstance(arguments, str) and arguments.strip() in ("", "null", "{}")):
        return _NO_ARGUMENTS
    text = arguments if isinstance(arguments, str) else canonical(arguments)
    try:
        return _read(text)
    except (ValueError, RecursionError):
        return "text", text


def _read(text: str) -> Any:
    value = json.loads(
        text, object_pairs_hook=_object, parse_int=_integer, parse_float=_number, parse_constant=_constant
    )
    return _tagged(value)


def _tagged(value: Any) -> Any:
    """A value that equals only values of the same type."""
    if isinstance(value, list):
        return "list", tuple(_tagged(part) for part in value)
    return value if isinstance(value, tuple) else (type(value).__name__, value)


def _object(pairs: list[tuple[str, Any]]) -> Any:
    # The sort is stable: a name that occurs twice keeps both values, in their order.
    return "object", tuple((name, _tagged(value)) for name, value in sorted(pairs, key=lambda pair: pair[0]))


def _integer(literal: str) -> Any:
    return "integer", literal


def _constant(literal: str) -> Any:
    return "constant", literal


def _number(literal: str) -> Any:
    """A number with all its digits: nothing is rounded, nothing overflows to infinity."""
    try:
        sign, digits, exponent = Decimal(literal).as_tuple()
    except InvalidOperation:
        return "number", literal
    if not any(digits):
        return "number", (sign, (0,), 0)
    while digits[-1] == 0 and isinstance(exponent, int):
        digits, exponent = digits[:-1], exponent + 1
    return "number", (sign, digits, exponent)
