"""Tokens: a tokenizer for trajectories, built from a Hugging Face tokenizer and its chat template.

A whole conversation is rendered once, for the first prompt. After that only new messages are tokenized, and follow the
ids that were really sampled. Many templates render earlier turns differently once messages follow: they strip thinking,
or move tools. So `suffix` never renders them. It renders the new messages after a short dummy turn, and takes what the
template writes behind that turn; `repair` then leaves out the end of the turn if it was sampled.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from copy import copy
from typing import TYPE_CHECKING, Any

from onrecord.errors import InvalidInput, TokenizationFailed
from onrecord.rollout.matching import canonical
from onrecord.rollout.requests import DOCUMENTS, check_arguments
from onrecord.rollout.templates import ChatTemplate
from onrecord.rollout.turns import Joint, Tokenized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from onrecord.errors import OnrecordError
    from onrecord.rollout.matching import Message

    Tools = Sequence[Mapping[str, Any]] | None

_MARK = "onrecord7c1e9d"
"""The text of the dummy turn: what the template writes after it ends the turn. No escape changes it."""
_SHOWN = "onrecord52d8f0n{}x"
"""The text in place of a new message, to see whether the template shows it."""
_QUESTION = {"role": "user", "content": "?"}
DEFAULT, TOOL_USE = "default", "tool_use"
_NAMES = (DEFAULT, TOOL_USE)
OVERLAP_LIMIT = 8
"""How many ids at the end of a sampled turn may be the template's end of a turn."""


class TemplateTokenizer:
    """A `tokenizer.json` of Hugging Face's `tokenizers` with the chat template of its configuration."""

    def __init__(
        self,
        tokenizer_json: str,
        chat_template: str | Mapping[str, str],
        special: dict[str, str] | None = None,
        *,
        stops: Sequence[int] = (),
        replace_stop: bool = False,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        """Of several templates with names, `tool_use` renders conversations with tools, and `default` the others.

        `stops` are ids with which a model ends its turn, besides the one that the template writes.

        Such an id stays on record as it was sampled; with `replace_stop`, the template's takes its place, for which the
        policy needs `max_trim_tokens` of at least 1. `now` is the clock of templates that write the date.
        """
        try:
            from tokenizers import Tokenizer as Encoder

            named = {DEFAULT: chat_template} if isinstance(chat_template, str) else chat_template
            self._templates = {name: ChatTemplate(text, now) for name, text in named.items() if name in _NAMES}
        except ImportError as problem:
            raise InvalidInput(
                f"the tokenizer needs a package that is not installed: {problem.name}",
                hint='pip install "onrecord[rollout]"',
            ) from None
        try:
            self._encoder = Encoder.from_str(tokenizer_json)
        except Exception as problem:  # noqa: BLE001  # the library raises plain Exception for a file it cannot read
            raise InvalidInput(f"cannot read the tokenizer: {problem}", hint="a tokenizer.json is needed") from None
        self._special = {id for id, token in self._encoder.get_added_tokens_decoder().items() if token.special}
        self.arguments: dict[str, Any] = dict(special or {})
        """What the template gets besides messages and tools."""
        end = self._encoder.token_to_id((special or {}).get("eos_token", ""))
        self._stops = {*stops, *([] if end is None else [end])}
        self._replace_stop = replace_stop
        self._endings: dict[str, tuple[int | None, bool]] = {}

    def with_arguments(self, arguments: Any) -> TemplateTokenizer:
        """The same tokenizer with `chat_template_kwargs` of a request, its `reasoning_effort` and its `documents`."""
        other = copy(self)
        other.arguments = self.arguments | check_arguments(arguments)
        return other

    def prompt(self, messages: Sequence[Message], tools: Tools = None) -> Tokenized:
        """The ids of the whole first prompt, up to where the assistant's turn begins."""
        text = self._text(messages, tools, ready=True)
        return self._tokenized(text, self._injected(text, messages, tools))

    def suffix(self, before: Sequence[Message], appended: Sequence[Message], tools: Tools = None) -> Tokenized:
        """The ids that the template adds after the reply that ends `before`: the end of that turn, then `appended`.

        The tools are in the first prompt; a template would repeat them here.
        """
        refused: OnrecordError | None = None
        for dummy in _dummies(before[-1].get("tool_calls") if before else None):
            try:
                rest = self._rest(dummy, appended, tools)
            except (InvalidInput, TokenizationFailed) as problem:
                refused = problem if refused is None or dummy.get("tool_calls") else refused
                continue
            if rest is not None:
                self._check_shown(dummy, appended, tools)
                return self._tokenized(rest[self._body(rest) if dummy.get("tool_calls") else 0 :], [])
        raise refused or _no_answers()

    def repair(self, tail: Sequence[int], suffix: Sequence[int]) -> Joint:
        """Leave out the end of the turn if it was sampled."""
        most = min(OVERLAP_LIMIT, len(suffix), len(tail))
        last, first = list(tail[len(tail) - most :]), list(suffix[:most])
        for length in range(most, 0, -1):
            if last[most - length :] == first[:length]:
                return Joint(skip=length)
        if most and last[-1] in self._stops:
            end, closes = self._ending()
            if closes and first[0] == end:
                # The model ended its turn with another id than the template would.
                return Joint(drop=1) if self._replace_stop else Joint(skip=1)
        return Joint()

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """The ids of plain text, without the template; `special` adds what the model expects at the beginning."""
        return list(self._encoder.encode(text, add_special_tokens=special).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids."""
        return str(self._encoder.decode(list(ids), skip_special_tokens=False))

    def text_of(self, ids: Sequence[int]) -> str:
        """The text of sampled ids as a client gets it, without special tokens."""
        return str(self._encoder.decode(list(ids), skip_special_tokens=True))

    def _tokenized(self, text: str, injected: list[tuple[int, int]]) -> Tokenized:
        encoded = self._encoder.encode(text, add_special_tokens=False)
        starts = [start for start, _end in encoded.offsets] if injected else []  # most texts need no offsets
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

    def _text(self, messages: Sequence[Message], tools: Tools, *, ready: bool, shown: bool = True) -> str:
        """What the template for these tools writes; unless they are `shown`, it gets none, and no documents."""
        templates = self._templates
        first, other = (TOOL_USE, DEFAULT) if tools else (DEFAULT, TOOL_USE)
        template = templates.get(first) or templates[other]
        arguments = self.arguments if shown else {**self.arguments, DOCUMENTS: None}
        return template.render(messages, tools if shown else None, arguments, ready=ready)

    def _rest(self, dummy: Message, appended: Sequence[Message], tools: Tools) -> str | None:
        """What the template writes after the mark of a dummy turn; None if it does not write the mark."""
        text = self._text([_QUESTION, dummy, *appended], tools, ready=True, shown=False)
        _before, mark, rest = text.partition(_MARK)
        return rest if mark else None

    def _check_shown(self, dummy: Message, appended: Sequence[Message], tools: Tools) -> None:
        """Refuse a message that the template leaves out of the suffix: the model would never see it.

        Templates drop roles that they do not know, and move system messages to the beginning of the conversation. What
        the client writes in the assistant's name is not checked: a template may write its calls in place of its text.
        """
        marked = [
            message if message.get("role") == "assistant" else {**message, "content": _SHOWN.format(number)}
            for number, message in enumerate(appended)
        ]
        rest = self._rest(dummy, marked, tools) or ""
        for number, message in enumerate(marked):
            if message.get("role") != "assistant" and _SHOWN.format(number) not in rest:
                raise InvalidInput(
                    f"the chat template leaves out a message of role {message.get('role')!r:.80} that follows a "
                    "generated turn, and the model would not see it",
                    hint="send its text in a message of role 'user'",
                )

    def _body(self, rest: str) -> int:
        """Where the rest of a dummy call ends and the end of the turn begins."""
        encoded = self._encoder.encode(rest, add_special_tokens=False)
        ends = [at for at, id in enumerate(encoded.ids) if id in self._special]
        return int(encoded.offsets[ends[0]][0]) if ends else 0

    def _ending(self) -> tuple[int | None, bool]:
        key = canonical(self.arguments)
        if key not in self._endings:
            self._endings.clear()  # sessions rarely differ in their arguments
            self._endings[key] = self._find_ending()
        return self._endings[key]

    def _find_ending(self) -> tuple[int | None, bool]:
        """The first id after the assistant's text, and whether it closes the turn or begins the next message."""
        turn = [_QUESTION, _dummy(None)]
        ids = []
        for messages in ([*turn, _QUESTION], turn):
            _before, mark, rest = self._text(messages, None, ready=False).partition(_MARK)
            if not mark:
                raise _no_answers()
            ids.append(next(iter(self._tokenized(rest, []).ids), None))
        # The last turn of a conversation may end with another id, but it ends with one only if turns have an end.
        return ids[0], ids[1] is not None and (ids[0] == ids[1] or ids[1] in self._stops)


def _no_answers() -> TokenizationFailed:
    """An error that no client can avoid: the template was chosen by who serves it."""
    return TokenizationFailed("the chat template does not render the assistant's messages", unusable_template=True)


def _dummies(calls: Any) -> Iterator[dict[str, Any]]:
    """Turns like one with these calls, the most similar first.

    Some templates refuse several calls in one turn, some show only the first, and some show none.
    """
    if isinstance(calls, list):
        for some in (calls, calls[:1])[: len(calls)]:
            yield _dummy(some)
    yield _dummy(None)


def _dummy(calls: Any) -> dict[str, Any]:
    """A turn of the assistant that ends with the mark: in its text, or in the arguments of its last call."""
    if not isinstance(calls, list) or not calls:
        return {"role": "assistant", "content": _MARK}
    made = []
    for number, call in enumerate(calls, 1):
        function = call.get("function") if isinstance(call, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        arguments = {"a": _MARK} if number == len(calls) else {}
        about = {key: value for key, value in call.items() if key != "function"} if isinstance(call, dict) else {}
        made.append({"type": "function", **about, "function": {"name": name or "f", "arguments": arguments}})
    return {"role": "assistant", "content": "", "tool_calls": made}


def read_config(text: str, template: str | None = None) -> tuple[str | dict[str, str], dict[str, str]]:
    """Chat template and special tokens of a `tokenizer_config.json`; `template` is one from a separate file.

    A configuration may have several templates, by name. As in Transformers, every token with a name is special.
    """
    try:
        config = json.loads(text)
    except ValueError as problem:
        raise InvalidInput(f"the tokenizer's configuration is not JSON: {problem}") from None
    if not isinstance(config, dict):
        raise InvalidInput("the tokenizer's configuration is not a JSON object")
    found = config.get("chat_template") if template is None else template
    if isinstance(found, list):
        listed = {entry.get("name"): entry.get("template") for entry in found if isinstance(entry, dict)}
        found = {name: listed[name] for name in _NAMES if isinstance(listed.get(name), str)}
    if not found or not isinstance(found, str | dict):
        raise InvalidInput("the tokenizer has no chat template", hint="set chat_template in tokenizer_config.json")
    extra = config.get("extra_special_tokens")
    named = {name: token for name, token in config.items() if name.endswith("_token")}
    special = {}
    for name, value in (named | (extra if isinstance(extra, dict) else {})).items():
        token = value.get("content") if isinstance(value, dict) else value
        if isinstance(token, str):
            special[name] = token
    return found, special


def read_stops(text: str) -> list[int]:
    """The ids with which a model ends its turn, from its `generation_config.json`."""
    try:
        found = json.loads(text)
    except ValueError as problem:
        raise InvalidInput(f"generation_config.json is not JSON: {problem}") from None
    ids = found.get("eos_token_id") if isinstance(found, dict) else None
    return [id for id in (ids if isinstance(ids, list) else [ids]) if type(id) is int]
