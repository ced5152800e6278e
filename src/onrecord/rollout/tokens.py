"""Tokens: a tokenizer for trajectories, built from a Hugging Face tokenizer and its chat template.

A whole conversation is rendered once, for the first prompt. After that only new messages are tokenized, and follow the
ids that were really sampled: `suffix` is what the template adds after a known beginning, and `repair` closes the
sampled turn as the template would have closed it. If a template renders the beginning differently once more messages
follow, there is no such suffix: that is an error (`TokenizationFailed`), never a guess.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

from onrecord.errors import InvalidInput, TokenizationFailed
from onrecord.rollout.turns import Joint, Tokenized

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onrecord.rollout.matching import Message

    Tools = Sequence[Mapping[str, Any]] | None

_MARK = "\u241fonrecord\u241f"
"""A text that no template contains: the text after it is the template's end of a turn."""


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
                f"the tokenizer needs a package that is not installed: {problem.name}",
                hint='pip install "onrecord[rollout]"',
            ) from None
        try:
            self._encoder = Encoder.from_str(tokenizer_json)
        except Exception as problem:  # noqa: BLE001  # the library raises plain Exception for a file it cannot read
            raise InvalidInput(f"cannot read the tokenizer: {problem}", hint="a tokenizer.json is needed") from None
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        self._special = special or {}
        self._template_error = TemplateError
        try:
            self._template = environment.from_string(chat_template)
        except TemplateError as problem:
            raise InvalidInput(f"cannot read the chat template: {problem}", hint="a Jinja template is needed") from None
        self._closing = lru_cache(maxsize=1)(self._find_closing)

    def prompt(self, messages: Sequence[Message], tools: Tools = None) -> Tokenized:
        """The ids of the whole first prompt, up to where the assistant's turn begins."""
        text = self._text(messages, tools, ready=True)
        return self._tokenized(text, self._injected(text, messages, tools))

    def suffix(self, before: Sequence[Message], appended: Sequence[Message], tools: Tools = None) -> Tokenized:
        """The ids that the template adds for `appended` after a conversation that ends with a generated turn."""
        known = self._text(before, tools, ready=False)
        whole = self._text([*before, *appended], tools, ready=True)
        if not whole.startswith(known):
            start = next(
                (at for at, (old, new) in enumerate(zip(known, whole, strict=False)) if old != new), len(whole)
            )
            raise TokenizationFailed(
                f"the chat template rewrites earlier turns from character {start}: "
                f"{known[start : start + 40]!r} becomes {whole[start : start + 40]!r}",
                hint="use a template that leaves earlier turns unchanged when messages are added",
                first_mismatch=start,
            )
        return self._tokenized(whole[len(known) :], [])

    def repair(self, tail: Sequence[int], suffix: Sequence[int]) -> Joint:
        """The rest of the template's end of a turn, without the part that was sampled."""
        closing = self._closing()
        there = next(
            length
            for length in range(min(len(closing), len(tail)), -1, -1)
            if list(tail[len(tail) - length :]) == closing[:length]
        )
        return Joint(0, closing[there:])

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids."""
        return str(self._encoder.decode(list(ids), skip_special_tokens=False))

    def text_of(self, ids: Sequence[int]) -> str:
        """The text of sampled ids as a client gets it, without special tokens."""
        return str(self._encoder.decode(list(ids), skip_special_tokens=True))

    def _tokenized(self, text: str, injected: list[tuple[int, int]]) -> Tokenized:
        encoded = self._encoder.encode(text, add_special_tokens=False)
        starts = [start for start, _end in encoded.offsets]
        return Tokenized(
            encoded.ids, [(bisect_left(starts, begin), bisect_left(starts, end)) for begin, end in injected]
        )

    def _injected(self, text: str, messages: Sequence[Message], tools: Tools) -> list[tuple[int, int]]:
        """Where in a prompt's text the client writes in the assistant's name, as far as the template shows it."""
        found = []
        for index, message in enumerate(messages):
            if message.get("role") == "assistant":
                before = self._text(messages[:index], tools, ready=True)
                after = self._text(messages[: index + 1], tools, ready=False)
                if text.startswith(after) and after.startswith(before):
                    found.append((len(before), len(after)))
        return found

    def _text(self, messages: Sequence[Message], tools: Tools, *, ready: bool) -> str:
        plain = [_plain(message) for message in messages]
        try:
            return str(self._template.render(messages=plain, tools=tools, add_generation_prompt=ready, **self._special))
        except (self._template_error, TypeError, ValueError, ArithmeticError, LookupError) as problem:
            raise TokenizationFailed(f"the chat template cannot render these messages: {problem}") from None

    def _find_closing(self) -> list[int]:
        turn = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _MARK}]
        _before, mark, closing = self._text(turn, None, ready=False).rpartition(_MARK)
        if not mark:
            raise TokenizationFailed("the chat template does not render the assistant's messages")
        return list(self._tokenized(closing, []).ids)


def read_config(text: str, template: str | None = None) -> tuple[str, dict[str, str]]:
    """Chat template and special tokens of a `tokenizer_config.json`; `template` is one from a separate file."""
    try:
        config = json.loads(text)
    except ValueError as problem:
        raise InvalidInput(f"the tokenizer's configuration is not JSON: {problem}") from None
    if not isinstance(config, dict):
        raise InvalidInput("the tokenizer's configuration is not a JSON object")
    found = config.get("chat_template") if template is None else template
    if isinstance(found, list):
        named = {entry.get("name"): entry.get("template") for entry in found if isinstance(entry, dict)}
        found = named.get("default")
    if not isinstance(found, str):
        raise InvalidInput("the tokenizer has no chat template", hint="set chat_template in tokenizer_config.json")
    special = {}
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        token = config.get(name)
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str):
            special[name] = token
    return found, special


def _plain(message: Message) -> dict[str, Any]:
    """A message as templates expect it: its text as text, the arguments of calls as objects."""
    content = message.get("content")
    if content is None:
        content = ""
    elif isinstance(content, list):
        if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in content):
            raise InvalidInput(
                "the parts of a message must be text", hint="images and audio have no token ids to record"
            )
        content = "".join(part["text"] for part in content)
    elif not isinstance(content, str):
        raise InvalidInput("the content of a message must be text")
    calls = message.get("tool_calls")
    if not calls:
        return {**message, "content": content}
    if not isinstance(calls, list):
        raise InvalidInput("tool_calls must be a list")
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
    # Jinja's own filter escapes for HTML; a prompt needs the characters themselves.
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise InvalidInput(f"the chat template refuses these messages: {message}")
