"""Streams of engines: chunks as they come, added up to the same reply that the engine would have sent as a whole.

    chunk ──> `Gathered.add` ──> a delta for the client, ids and logprobs for the record
    the end ──> `Gathered.body` ──> `engines.read_reply`, which makes all its checks

What a client has received cannot be taken back. So text that may still become something else is held: `certain` is the
part of a text that stays as it is, whatever follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.errors import BadReply, UpstreamFailed
from onrecord.rollout.engines import COMPLETIONS, VLLM

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STREAMING_DIALECTS = (VLLM, *COMPLETIONS)
"""The dialects whose engines return ids and logprobs in every chunk. SGLang's chat endpoint does not."""
CALL_MARK = "<tool_call>"
_SPLIT = "\ufffd"
_ADDED_UP = ("delta", "text", "logprobs", "token_ids", "finish_reason", "index")
TEXTS = ("reasoning_content", "reasoning", "content")
"""The fields of a message that are text, in the order in which models write them."""


class Piece(NamedTuple):
    """What one chunk adds."""

    delta: dict[str, Any]
    ids: list[int]
    logprobs: list[float]
    """As many as ids; none of both if the chunk does not name them."""


def streamed_request(body: Mapping[str, Any]) -> dict[str, Any]:
    """The same request to an engine, for chunks instead of a whole reply."""
    return {**body, "stream": True, "stream_options": {"include_usage": True}}


class Gathered:
    """The chunks of one reply so far."""

    def __init__(self) -> None:
        self.id = ""
        self._top: dict[str, Any] = {}
        self._choice: dict[str, Any] = {}
        self._message: dict[str, Any] = {"role": "assistant", "content": None}
        self._text: str | None = None
        self._ids: list[Any] | None = None
        """None until a chunk names ids: a reply without them must not look like an empty one."""
        self._content: list[Any] = []
        self._tokens: list[Any] = []
        self._scores: list[Any] = []

    @property
    def is_whole(self) -> bool:
        """Whether the engine said how the generation ended."""
        return self._choice.get("finish_reason") is not None

    def add(self, chunk: Any) -> Piece:
        """Add a chunk. An engine that reports an error instead has failed."""
        if not isinstance(chunk, dict):
            raise BadReply("a chunk of the engine's stream is not a JSON object")
        if chunk.get("error"):
            said = chunk["error"].get("message") if isinstance(chunk["error"], dict) else chunk["error"]
            raise UpstreamFailed(f"the engine failed during the reply: {said!s:.300}")
        self._top |= {name: value for name, value in chunk.items() if value is not None and name != "choices"}
        self.id = str(self._top.get("id") or "")
        choices = chunk.get("choices")
        if not choices:  # the last chunk may have the usage alone
            return Piece({}, [], [])
        if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
            raise BadReply("a chunk of the engine's stream must have at most one choice")
        choice = choices[0]
        self._choice |= {name: value for name, value in choice.items() if name not in _ADDED_UP and value is not None}
        if choice.get("finish_reason") is not None:
            self._choice["finish_reason"] = choice["finish_reason"]
        return Piece(self._said(choice), *self._sampled(choice))

    def _said(self, choice: dict[str, Any]) -> dict[str, Any]:
        if isinstance(choice.get("text"), str):
            self._text = (self._text or "") + choice["text"]
            return {"content": choice["text"]} if choice["text"] else {}
        delta = choice.get("delta")
        given = {name: value for name, value in delta.items() if value} if isinstance(delta, dict) else {}
        given.pop("role", None)
        for name in TEXTS:
            if not isinstance(given.get(name, ""), str):
                raise BadReply(f"the {name} of a chunk is not text")
        add_delta(self._message, given)
        return given

    def _sampled(self, choice: dict[str, Any]) -> tuple[list[int], list[float]]:
        ids, listed = choice.get("token_ids") or [], choice.get("logprobs")
        listed = listed if isinstance(listed, dict) else {}
        content = listed.get("content")
        if isinstance(content, list):
            self._content += content
            scores: list[Any] = [row.get("logprob") if isinstance(row, dict) else None for row in content]
        else:
            scores, tokens = listed.get("token_logprobs") or [], listed.get("tokens") or []
            if not isinstance(scores, list) or not isinstance(tokens, list):
                raise BadReply("the logprobs of a chunk are not a list")
            self._tokens += tokens
            self._scores += scores
        if not isinstance(ids, list):
            raise BadReply("the ids of a chunk are not a list")
        if choice.get("token_ids") is not None:
            self._ids = self._ids if self._ids is not None else []
            self._ids += ids
        return (ids, scores) if len(ids) == len(scores) else ([], [])

    def body(self) -> dict[str, Any]:
        """The reply as the engine would have sent it as a whole."""
        if not self.is_whole:
            raise UpstreamFailed("the engine's stream ended before the reply did")
        choice = {"index": 0, "token_ids": self._ids, **self._choice}
        if self._text is None:
            choice |= {"message": self._message, "logprobs": {"content": self._content}}
        else:
            choice |= {"text": self._text, "logprobs": {"tokens": self._tokens, "token_logprobs": self._scores}}
        if self._ids is None and not self._content and not self._tokens:
            choice["logprobs"] = None
        return {**self._top, "choices": [choice]}


def add_delta(message: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """Add a delta to a message: text is appended, calls are filled in by their index, other fields are replaced."""
    for name, value in delta.items():
        if name == "tool_calls" and isinstance(value, list):
            _add_calls(message.setdefault("tool_calls", []), value)
        elif name in TEXTS and isinstance(value, str):
            message[name] = (message.get(name) or "") + value
        else:
            message[name] = value


def _add_calls(calls: list[dict[str, Any]], given: Sequence[Any]) -> None:
    for call in given:
        if not isinstance(call, dict):
            raise BadReply("a tool call in a chunk is not an object")
        index = call.get("index", len(calls))
        if type(index) is not int or not 0 <= index <= len(calls):
            raise BadReply(f"a tool call in a chunk has the index {index!r:.40}")
        if index == len(calls):
            calls.append({"type": "function", "function": {"arguments": ""}})
        known, function = calls[index], call.get("function")
        known |= {name: value for name, value in call.items() if name not in ("function", "index") and value}
        if isinstance(function, dict):
            arguments = function.get("arguments") or ""
            if not isinstance(arguments, str):
                raise BadReply("the arguments of a tool call in a chunk are not text")
            known["function"]["arguments"] += arguments
            if function.get("name"):
                known["function"]["name"] = function["name"]


def certain(text: str, *, parsed: bool, own_parser: bool = False) -> str:
    """The part of a message's text that stays as it is, whatever the engine says next.

    `parsed`: calls in the text are cut out at the end, by our parser or by the user's own, which may change anything.
    """
    if parsed and own_parser:
        return ""
    if parsed:
        text = text.partition(CALL_MARK)[0]
        begun = next((n for n in range(min(len(text), len(CALL_MARK)), 0, -1) if text.endswith(CALL_MARK[:n])), 0)
        text = text[: len(text) - begun].rstrip()
    return text.rstrip(_SPLIT)  # a character whose bytes are not all there


def is_split(text: str) -> bool:
    """Whether decoded ids end inside a character, as far as one can see."""
    return text.endswith(_SPLIT)


def as_sent(message: dict[str, Any], sent: Mapping[str, Any]) -> dict[str, Any]:
    """The whole message, spelled as its client has begun to receive it.

    Only white space before the text may differ, which a parser strips; anything else is refused.
    """
    spelled = dict(message)
    for name in TEXTS:
        had, has = str(sent.get(name) or ""), str(message.get(name) or "")
        lead = had[: len(had) - len(had.lstrip())]
        if has.startswith(had):
            continue
        if not (lead + has).startswith(had):
            raise BadReply(f"the {name} of the whole reply differs from that of its chunks")
        spelled[name] = lead + has
    return spelled


def rest(message: Mapping[str, Any], sent: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The deltas that a client which has received `sent` still needs for the whole message."""
    deltas: list[dict[str, Any]] = []
    for name in (*TEXTS, *(name for name in message if name not in (*TEXTS, "role", "tool_calls"))):
        value, had = message.get(name), sent.get(name)
        if isinstance(value, str) and value[len(had or "") :]:
            deltas.append({name: value[len(had or "") :]})
        elif value and not isinstance(value, str) and value != had:
            deltas.append({name: value})
    calls = sent.get("tool_calls") or []
    for index, call in enumerate(message.get("tool_calls") or []):
        if index < len(calls):
            function = call["function"]["arguments"][len(calls[index]["function"]["arguments"]) :]
            if function:
                deltas.append({"tool_calls": [{"index": index, "function": {"arguments": function}}]})
        else:
            deltas.append({"tool_calls": [{**call, "index": index}]})
    return deltas
