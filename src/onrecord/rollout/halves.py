"""Halves: an aborted reply and the reply that continued it, as one.

The engine parses each half alone: it trims both, and does not know in the second what began in the first. So the text
comes from the ids of both, decoded together, wherever the engine's own fields agree with it. The ids need no such care.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.errors import BadReply
from onrecord.rollout.engines import name_of, parsed, with_calls
from onrecord.rollout.turns import STOP, TOOL_CALLS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from onrecord.rollout.engines import Parse
    from onrecord.rollout.turns import Reply, Span

_SPLIT = "\ufffd"
"""What decoders write for bytes that are not a whole character."""
_EDGE = " \t\r\n" + _SPLIT
"""What the end of a half may have more or less than the engine's text of it."""
_THOUGHT_BEGINS, _THOUGHT_ENDS = "<think>", "</think>"


class _Texts(NamedTuple):
    """The text of ids, as the tokenizer decodes them."""

    first: str
    then: str
    whole: str


def joined(
    first: Reply,
    then: Reply,
    decode: Callable[[Sequence[int]], str] | None = None,
    parse: Parse | None = None,
    sent: Sequence[int] = (),
) -> Reply:
    """Two replies as one: the second continued from the prompt and the ids of the first.

    `decode` turns ids into text. Without it, a character whose bytes are in both replies is lost. `sent` is the prompt
    that the first got, if the engine does not return it.
    """
    output_ids = [*first.output_ids, *then.output_ids]
    heard, said, parse = first.message or {}, then.message or {}, parse or with_calls
    prompt_ids, done = then.prompt_ids, list(first.output_ids)
    if prompt_ids is not None:
        before = len(prompt_ids) - len(done)
        if list(prompt_ids[before:]) != done:
            raise BadReply("the engine did not continue from the ids it got")
        prompt_ids = prompt_ids[:before]
    texts = decode and _Texts(decode(first.output_ids), decode(then.output_ids), decode(output_ids))
    name = partial(name_of, sent if prompt_ids is None else prompt_ids, output_ids)
    message = _decoded(heard, said, texts, parse, name) if texts else None
    if message is None:
        message = _side_by_side(heard, said, texts)
        if not message.get("tool_calls") and isinstance(message.get("content"), str):
            message = parsed(message, parse, name)  # the engine saw each half of a call, and neither parses alone
    return then._replace(
        message=message,
        prompt_ids=prompt_ids,
        output_ids=output_ids,
        logprobs=[*first.logprobs, *then.logprobs],
        finish=TOOL_CALLS if message.get("tool_calls") and then.finish == STOP else then.finish,
        weight_versions=_versions(first, then),
        side_payloads={},  # each half covers only its own tokens: better none than one that is too short
    )


def _decoded(
    heard: Mapping[str, Any], said: Mapping[str, Any], texts: _Texts, parse: Parse, name: Callable[[], str]
) -> dict[str, Any] | None:
    """The message that the whole text means; None if the engine took more out of it than thinking, calls and space."""
    thinking, calls = _thinking(heard, said), _calls(heard, said)
    thought, ends, text = texts.whole.partition(_THOUGHT_ENDS) if thinking else ("", "", texts.whole)
    if thinking and not ends:
        return None
    before, after = str(heard.get("content") or ""), _answer(str(said.get("content") or ""), thinking)
    if calls or (before, after) != (texts.first, texts.then):
        last = _answer(texts.then, thinking).strip(_EDGE)
        if not last.startswith(after.strip(_EDGE)):
            return None
        if not thinking and not texts.first.strip(_EDGE).startswith(before.strip(_EDGE)):
            return None
        left_out = "" if calls else last[len(after.strip(_EDGE)) :]  # a stop word, for instance
        heard_first = before or ("" if thinking else texts.first)  # an engine may return nothing of half a character
        opening = heard_first if heard_first.strip() else after
        text = text.strip().removesuffix(left_out).rstrip()
        text = opening[: len(opening) - len(opening.lstrip())] + text + after[len(after.rstrip()) :]
    found = parsed({"role": "assistant", "content": text}, parse, name) if text else {"content": None}
    if len(found.get("tool_calls") or []) < len(calls):
        return None
    message = {"role": "assistant", **said, **found}
    return message | {thinking: thought.strip().removeprefix(_THOUGHT_BEGINS).strip()} if thinking else message


def _answer(text: str, thinking: str) -> str:
    """A half's text without the thinking at its beginning."""
    return text.partition(_THOUGHT_ENDS)[2].lstrip() if thinking and _THOUGHT_ENDS in text else text


def _thinking(*halves: Mapping[str, Any]) -> str:
    """The field in which this engine returns thinking; empty if it returned none."""
    return next((name for name in ("reasoning_content", "reasoning") for half in halves if half.get(name)), "")


def _calls(*halves: Mapping[str, Any]) -> list[Any]:
    return [call for half in halves for call in half.get("tool_calls") or []]


def _side_by_side(heard: Mapping[str, Any], said: Mapping[str, Any], texts: _Texts | None) -> dict[str, Any]:
    """The fields of both halves, one after the other."""
    message = {"role": "assistant", **said}
    for name in ("content", "reasoning_content", "reasoning"):
        parts = [part for part in (heard.get(name), said.get(name)) if isinstance(part, str)]
        if parts:
            message[name] = "".join(parts)
    if texts is not None:
        message |= _mended(heard, said, texts)
    calls = _calls(heard, said)
    return message | {"tool_calls": calls} if calls else message


def _mended(heard: Mapping[str, Any], said: Mapping[str, Any], texts: _Texts) -> dict[str, str]:
    """The field in which two halves meet, with what the ids have between them: space, a character that was split."""
    before, after = texts.first.rstrip(_EDGE), texts.then.lstrip(_EDGE)
    name = "content" if heard.get("content") else _thinking(heard) or "content"
    ends, begins = (str(half.get(name) or "") for half in (heard, said))
    meet = ends and begins and before.endswith(ends.rstrip(_EDGE)) and after.startswith(begins.lstrip(_EDGE))
    if not meet or not (texts.whole.startswith(before) and texts.whole.endswith(after)):
        return {}
    middle = texts.whole[len(before) : len(texts.whole) - len(after)]
    return {name: ends.rstrip(_EDGE) + middle + begins.lstrip(_EDGE)}


def _versions(*halves: Reply) -> list[Span]:
    """The weights that sampled each half; if the engine names them for one half only, the other's name is empty."""
    if not any(half.weight_versions for half in halves):
        return []
    return [span for half in halves for span in half.weight_versions or (("", len(half.output_ids)),)]
