"""Chat templates: Jinja with the functions that templates of Hugging Face models expect.

The same as in Transformers: `tojson` with its arguments and without HTML escapes, `strftime_now`, `raise_exception`,
`{% generation %}` and loop controls, in a sandbox.
"""

from __future__ import annotations

import json
from itertools import product
from typing import TYPE_CHECKING, Any, NoReturn

from onrecord.errors import InvalidInput, TokenizationFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from onrecord.rollout.matching import Message

_THINKING = ("reasoning_content", "thinking", "reasoning")
"""The names of thinking in messages: clients send one of them, and templates read the first or the second."""
_NO_CONTENT: tuple[dict[str, Any], ...] = ({}, {"content": None}, {"content": ""})
"""What a message without content has in its place, in the order in which it is tried."""
_FAILURES = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError)


class ChatTemplate:
    """A chat template that turns messages into text."""

    def __init__(self, text: str, now: Callable[[], datetime] | None = None) -> None:
        from jinja2 import TemplateError, nodes
        from jinja2.ext import Extension, loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        class Generation(Extension):
            """The tag `{% generation %}`: training code marks the assistant's text with it; here it has no effect."""

            tags = {"generation"}  # noqa: RUF012  # Jinja's own type is an instance attribute

            def parse(self, parser: Any) -> Any:
                """The body of the tag."""
                line = next(parser.stream).lineno
                body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
                return nodes.Scope(body).set_lineno(line)

        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        if now is not None:
            environment.globals["strftime_now"] = lambda form: now().strftime(form)
        self._failures = (TemplateError, *_FAILURES)
        try:
            self._template = environment.from_string(text)
        except TemplateError as problem:
            raise InvalidInput(f"cannot read the chat template: {problem}", hint="a Jinja template is needed") from None

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None,
        arguments: Mapping[str, Any],
        *,
        ready: bool,
    ) -> str:
        """The text of messages; `ready` adds the beginning of the assistant's next turn.

        Most templates write the arguments of a call as JSON and need an object; some add them to their text as they
        are, and get the text. Most can do without the content of a call; others get a null or empty one.
        """
        given = {"tools": tools, "documents": None, "add_generation_prompt": ready, **arguments}
        problem: Exception | None = None
        plain = list(map(_plain, messages))
        for filled, spelled in product(_NO_CONTENT, (_with_objects, _with_text)):
            try:
                return str(
                    self._template.render(messages=[spelled({**filled, **message}) for message in plain], **given)
                )
            except self._failures as found:
                problem = problem or found
                if not any(message.get("tool_calls") or "content" not in message for message in plain):
                    break
        raise TokenizationFailed(
            f"the chat template cannot render these messages: {problem}",
            hint="look at their roles, and at the fields of tools and tool_calls",
        )


def _plain(message: Message) -> dict[str, Any]:
    """A message as templates expect it: without empty fields, with its content as text, with all names of thinking."""
    kept = {name: value for name, value in message.items() if value is not None}
    content = kept.get("content")
    if isinstance(content, list):
        if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in content):
            raise InvalidInput(
                "the parts of a message must be text", hint="images and audio have no token ids to record"
            )
        kept["content"] = "".join(part["text"] for part in content)
    elif content is not None and not isinstance(content, str):
        raise InvalidInput("the content of a message must be text")
    calls = message.get("tool_calls")
    if calls and not isinstance(calls, list):
        raise InvalidInput("tool_calls must be a list")
    thinking = next((kept[name] for name in _THINKING if name in kept), None)
    return kept if thinking is None else {"thinking": thinking, **kept, "reasoning_content": thinking}


def _with_objects(message: dict[str, Any]) -> dict[str, Any]:
    return _with_arguments(message, str, _parsed)


def _with_text(message: dict[str, Any]) -> dict[str, Any]:
    return _with_arguments(message, dict, _to_json)


def _with_arguments(message: dict[str, Any], kind: type, change: Callable[[Any], Any]) -> dict[str, Any]:
    calls = message.get("tool_calls")
    return {**message, "tool_calls": [_changed(call, kind, change) for call in calls]} if calls else message


def _changed(call: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    arguments = function.get("arguments") if isinstance(function, dict) else None
    if not isinstance(function, dict) or not isinstance(arguments, kind):
        return call
    return {**call, "function": {**function, "arguments": change(arguments)}}


def _parsed(arguments: str) -> Any:
    try:
        parsed = json.loads(arguments)
    except ValueError:
        return arguments
    return parsed if isinstance(parsed, dict) else arguments


def _to_json(
    value: Any,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002  # templates may pass it by position
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002  # as above
) -> str:
    # Jinja's own filter escapes for HTML; a prompt needs the characters themselves.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> NoReturn:
    raise InvalidInput(f"the chat template refuses these messages: {message}")
