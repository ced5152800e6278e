"""Tokens: from messages to ids and back, by a protocol, and its implementation for Hugging Face tokenizers.

Whole conversations are rendered once, for the first prompt. After that only what is new is tokenized, and put behind
the ids that were really sampled: `suffix` is what the template says after a known beginning, and `repair` closes the
turn that was sampled the way the template would have. Where a template says something else about the beginning once
more messages follow, there is no such suffix, and that is an error (`TokenizationFailed`), never a guess.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from onrecord.errors import InvalidInput, TokenizationFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    Message = dict[str, Any]

_MARK = "\u241fonrecord\u241f"
"""A text no template writes by itself: what follows it is how the template ends a turn."""


class Tokenizer(Protocol):
    """What a rollout needs from a tokenizer. Integers out; nothing is remembered between calls."""

    def render(self, messages: Sequence[Message], *, tools: list[Any] | None = None) -> list[int]:
        """The ids of a whole prompt, ready for the assistant to go on."""

    def suffix(self, known: Sequence[Message], new: Sequence[Message], *, tools: list[Any] | None = None) -> list[int]:
        """The ids that follow `known`, which ends with a generated turn, when `new` messages are added to it."""

    def repair(self, ids: Sequence[int]) -> list[int]:
        """The ids that are missing behind a generated turn until it ends as the template ends it."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens included."""


class TemplateTokenizer:
    """A `tokenizer.json` of Hugging Face's `tokenizers` with the chat template of its configuration."""

    def __init__(self, tokenizer_json: str, chat_template: str, special: dict[str, str] | None = None) -> None:
        try:
            from jinja2 import TemplateError
            from jinja2.ext import loopcontrols
            from jinja2.sandbox import ImmutableSandboxedEnvironment
            from tokenizers import Tokenizer as Encoder
        except ImportError as problem:
            raise InvalidInput(
                f"tokenizers need a package that is not installed: {problem.name}",
                hint='pip install "onrecord[rollout]"',
            ) from None
        try:
            self._encoder = Encoder.from_str(tokenizer_json)
        except Exception as problem:  # noqa: BLE001  # the library raises plain Exception for a file it cannot read
            raise InvalidInput(f"the tokenizer cannot be read: {problem}", hint="it is a tokenizer.json") from None
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        self._special = special or {}
        self._template_error = TemplateError
        try:
            self._template = environment.from_string(chat_template)
        except TemplateError as problem:
            raise InvalidInput(f"the chat template cannot be read: {problem}", hint="it is a Jinja template") from None
        self._closing = lru_cache(maxsize=1)(self._find_closing)

    def render(self, messages: Sequence[Message], *, tools: list[Any] | None = None) -> list[int]:
        """The ids of a whole prompt."""
        return self._encode(self._text(messages, tools, ready=True))

    def suffix(self, known: Sequence[Message], new: Sequence[Message], *, tools: list[Any] | None = None) -> list[int]:
        """The ids the template adds for `new`."""
        before = self._text(known, tools, ready=False)
        after = self._text([*known, *new], tools, ready=True)
        if not after.startswith(before):
            place = next(
                (at for at, (old, now) in enumerate(zip(before, after, strict=False)) if old != now), len(after)
            )
            raise TokenizationFailed(
                f"the chat template rewrites what was said before, from character {place} on: "
                f"{before[place : place + 40]!r} becomes {after[place : place + 40]!r}",
                hint="use a template whose earlier turns stay as they are when messages are added",
                first_mismatch=place,
            )
        return self._encode(after[len(before) :])

    def repair(self, ids: Sequence[int]) -> list[int]:
        """The rest of the turn's end: what was sampled of it is not repeated."""
        closing = self._closing()
        for there in range(min(len(closing), len(ids)), -1, -1):
            if list(ids[len(ids) - there :]) == closing[:there]:
                return closing[there:]
        raise AssertionError("nothing is always the beginning of the end")

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids."""
        return str(self._encoder.decode(list(ids), skip_special_tokens=False))

    def _encode(self, text: str) -> list[int]:
        return list(self._encoder.encode(text, add_special_tokens=False).ids)

    def _text(self, messages: Sequence[Message], tools: list[Any] | None, *, ready: bool) -> str:
        plain = [_plain(message) for message in messages]
        try:
            return str(self._template.render(messages=plain, tools=tools, add_generation_prompt=ready, **self._special))
        except (self._template_error, TypeError, ValueError, ArithmeticError, LookupError) as problem:
            raise TokenizationFailed(f"the chat template does not take these messages: {problem}") from None

    def _find_closing(self) -> list[int]:
        turn = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _MARK}]
        _before, mark, closing = self._text(turn, None, ready=False).rpartition(_MARK)
        if not mark:
            raise TokenizationFailed("the chat template does not show what an assistant says")
        return self._encode(closing)


def read_config(text: str, template: str | None = None) -> tuple[str, dict[str, str]]:
    """Chat template and special tokens of a `tokenizer_config.json`; `template` is one that is kept beside it."""
    try:
        config = json.loads(text)
    except ValueError as problem:
        raise InvalidInput(f"the tokenizer's configuration is no JSON: {problem}") from None
    if not isinstance(config, dict):
        raise InvalidInput("the tokenizer's configuration is no JSON object")
    found = config.get("chat_template") if template is None else template
    if isinstance(found, list):
        named = {entry.get("name"): entry.get("template") for entry in found if isinstance(entry, dict)}
        found = named.get("default")
    if not isinstance(found, str):
        raise InvalidInput("the tokenizer has no chat template", hint="chat_template in tokenizer_config.json")
    special = {}
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        token = config.get(name)
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str):
            special[name] = token
    return found, special


def _plain(message: Message) -> Message:
    """A message as templates expect it: its text as text, the arguments of calls as objects."""
    content = message.get("content")
    if content is None:
        content = ""
    elif isinstance(content, list):
        if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in content):
            raise InvalidInput("a message's parts are text here", hint="images and audio have no token ids to record")
        content = "".join(part["text"] for part in content)
    elif not isinstance(content, str):
        raise InvalidInput("a message's content is text")
    calls = message.get("tool_calls")
    if not calls:
        return {**message, "content": content}
    if not isinstance(calls, list):
        raise InvalidInput("tool_calls is a list")
    return {**message, "content": content, "tool_calls": [_plain_call(call) for call in calls]}


def _plain_call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    arguments = function.get("arguments") if isinstance(function, dict) else None
    if not isinstance(function, dict) or not isinstance(arguments, str):
        return call
    try:
        parsed = json.loads(arguments)
    except ValueError:
        return call
    return {**call, "function": {**function, "arguments": parsed}} if isinstance(parsed, dict) else call


def _to_json(value: Any, indent: int | None = None) -> str:
    # Jinja's own filter escapes for HTML; a prompt wants the characters themselves.
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise InvalidInput(f"the chat template refuses these messages: {message}")
