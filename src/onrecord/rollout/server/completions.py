"""Text completions in front of the same turns: a prompt without messages, as text or as token ids.

A client of this protocol sends everything so far again: its prompt, the text it got, and what follows. On record, what
it got are the sampled ids. So a prompt is compared with the recorded turns, as text or id by id, and only what follows
them is tokenized. No chat template is used. A session has either text turns or chat turns.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from onrecord.errors import InvalidInput
from onrecord.rollout.ids import first_difference, sequence
from onrecord.rollout.server.answers import event, problem_of, to_json, whole_stream
from onrecord.rollout.turns import ChatRequest, Joint, Tokenized, integers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onrecord.errors import OnrecordError
    from onrecord.rollout.streams import Piece
    from onrecord.rollout.trajectory import LinearTrajectory
    from onrecord.rollout.turns import Tokenizer, TurnRecord

FORM, TEXT_FORM = "form", "text"
"""The field of a recorded message that says that it is a prompt without a template."""
OVERLAP_LIMIT = 8
"""How many ids at the end of a turn a client may repeat as text, if the tokenizer cannot say what their text is."""
_UNUSED = ("logprobs", "echo", "suffix", "best_of")


def to_chat(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The chat request of a text completion; `prompt` in it says that it is one."""
    prompt = asked.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if not prompt or not isinstance(prompt, str | list):
        raise InvalidInput("a completion needs a prompt: text, or a list of token ids")
    if isinstance(prompt, list):
        if not all(type(id) is int for id in prompt):
            raise InvalidInput("a completion has one prompt", hint="send one request for each prompt")
        integers(prompt, "the ids of a prompt")
    for name, allowed in (("echo", (None, False)), ("suffix", (None, "")), ("best_of", (None, 1))):
        if asked.get(name) not in allowed:
            raise InvalidInput(f"{name} is not supported here: a turn has one answer, and only that is returned")
    chat = {name: value for name, value in asked.items() if name not in _UNUSED}
    wants = asked.get("logprobs")
    text = prompt if isinstance(prompt, str) else ""
    return {
        **chat, "prompt": prompt, "messages": [{"role": "user", "content": text}],
        "logprobs": wants is not None and wants is not False,
    }  # fmt: skip


def is_text(trajectory: LinearTrajectory) -> bool | None:
    """Whether the recorded turns are text turns; None if there are none."""
    return trajectory.messages[0].get(FORM) == TEXT_FORM if trajectory.messages else None


def text_turn(
    trajectory: LinearTrajectory, tokenizer: Tokenizer, request: Mapping[str, Any], asked: ChatRequest
) -> tuple[ChatRequest, Tokenizer]:
    """The request as what follows the recorded turns, and a tokenizer for it."""
    prompt = request["prompt"]
    if isinstance(prompt, str):
        after, start = _after_text(trajectory, prompt)
        text = prompt[start:]
        encode = getattr(tokenizer, "encode", None)
        if encode is None:
            raise InvalidInput("this proxy's tokenizer cannot tokenize plain text", hint="send the prompt as token ids")
        special = after is None and request.get("add_special_tokens", True) is not False
        hidden = None if after is None else _hidden(tokenizer, after)
        overlap = OVERLAP_LIMIT if hidden is None else 0
        ids = encode(text[_repeated(text, hidden or "", request.get("stop")) :], special=special)
    else:
        after = _after_ids(trajectory, prompt)
        ids, overlap = prompt[after.length if after else 0 :], 0
        decode = getattr(tokenizer, "decode", None)
        text = decode(ids) if decode else ""
    message = {"role": "user", "content": text, FORM: TEXT_FORM}
    return asked._replace(messages=[message], after=after), _Given(ids, overlap)


def _hidden(tokenizer: Tokenizer, turn: TurnRecord) -> str | None:
    """The text of sampled ids that the client did not get: a stop word, the end of the turn. None: it is unknown."""
    shown = str((turn.message or {}).get("content") or "")
    decoders = [getattr(tokenizer, name, None) for name in ("decode", "text_of")]
    texts = [str(decode(turn.output)) for decode in decoders if decode]
    return next((text[len(shown) :] for text in texts if text.startswith(shown)), None)


def _repeated(text: str, hidden: str, stops: Any) -> int:
    """How many characters at the beginning of a text repeat what is hidden: all of it, or the stop word it begins with.

    An engine cuts its text off where the stop word begins, in the middle of an id or before it. The engine has read
    those ids, and would read the word twice.
    """
    words = [stops] if isinstance(stops, str) else stops if isinstance(stops, list) else []
    known = [hidden, *(word for word in words if isinstance(word, str) and hidden.startswith(word))]
    return max((len(word) for word in known if text.startswith(word)), default=0)


def _after_text(trajectory: LinearTrajectory, prompt: str) -> tuple[TurnRecord | None, int]:
    """The last turn whose text the prompt repeats, and how much of the prompt that is."""
    anchors, found, at = trajectory.anchors, (0, 0), 0
    for index, message in enumerate(trajectory.messages, 1):
        text = str(message.get("content") or "")
        if not prompt.startswith(text, at):
            break
        at += len(text)
        if index in anchors:
            found = (anchors.index(index) + 1, at)
    turns, length = found
    return (trajectory.records[turns - 1] if turns else None), length


def _after_ids(trajectory: LinearTrajectory, prompt: Sequence[int]) -> TurnRecord | None:
    """The last turn whose ids the prompt repeats."""
    records, given = trajectory.records[: trajectory.num_assistant], integers(prompt, "the ids of a prompt")
    while records:
        ids = sequence(records)
        same = first_difference(ids, given)
        if same == len(ids):
            return records[-1]
        records = [record for record in records[:-1] if record.length <= same]
    return None


class _Given:
    """A tokenizer for one request whose ids are known."""

    def __init__(self, ids: Sequence[int], overlap: int) -> None:
        self._ids = ids
        self._overlap = overlap

    def prompt(self, _messages: object, _tools: object) -> Tokenized:
        """The ids of the first prompt."""
        return Tokenized(self._ids)

    def suffix(self, _before: object, _appended: object, _tools: object) -> Tokenized:
        """The ids after the recorded ones."""
        return Tokenized(self._ids)

    def repair(self, tail: Sequence[int], suffix: Sequence[int]) -> Joint:
        """Leave out what the client repeats of the end of the last turn."""
        for length in range(min(self._overlap, len(suffix), len(tail)), 0, -1):
            if list(tail[len(tail) - length :]) == list(suffix[:length]):
                return Joint(skip=length)
        return Joint()


# Answers


def respond(answer: str, asked: Mapping[str, Any]) -> Response:
    """A recorded answer as a completion."""
    if asked.get("stream"):
        return whole_stream(answer, lambda said: TextChunks(asked, said["id"], said["created"]))
    said = json.loads(answer)
    choice = said["choices"][0]
    body = _head(said["id"], said["created"], asked) | {
        "choices": [_choice(str(choice["message"].get("content") or ""), choice.get("logprobs"), _finish(choice))],
        "usage": said["usage"],
    }
    return Response(to_json(body).encode(), media_type="application/json")


def _head(id: str, created: int, asked: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": id, "object": "text_completion", "created": created, "model": asked.get("model")}


def _finish(choice: Mapping[str, Any]) -> str:
    return "stop" if choice["finish_reason"] == "tool_calls" else str(choice["finish_reason"])


def _choice(text: str, scored: Any, finish: str | None) -> dict[str, Any]:
    rows = scored["content"] if scored else []
    listed = {
        "tokens": [row["token"] for row in rows], "token_logprobs": [row["logprob"] for row in rows],
        "top_logprobs": None, "text_offset": [],
    }  # fmt: skip
    return {"index": 0, "text": text, "logprobs": listed if scored else None, "finish_reason": finish}


class TextChunks:
    """A turn as the chunks of OpenAI's completions."""

    def __init__(self, asked: Mapping[str, Any], id: str, created: int) -> None:
        options = asked.get("stream_options")
        self._usage = isinstance(options, dict) and bool(options.get("include_usage"))
        self._head = _head(id, created, asked)

    def begin(self) -> bytes:
        """Nothing: the first chunk has text."""
        return b""

    def piece(self, piece: Piece) -> bytes:
        """More text."""
        text = piece.delta.get("content")
        return self._chunk(_choice(text, None, None)) if text else b""

    def end(self, answer: str, left: list[dict[str, Any]]) -> bytes:
        """The rest of the text, the logprobs of all of it, and how it ended."""
        said = json.loads(answer)
        choice = said["choices"][0]
        text = "".join(str(delta.get("content") or "") for delta in left)
        made = self._chunk(_choice(text, choice.get("logprobs"), _finish(choice)))
        if self._usage:
            made += event({**self._head, "choices": [], "usage": said["usage"]})
        return made + b"data: [DONE]\n\n"

    def error(self, error: OnrecordError) -> bytes:
        """What clients of this protocol raise."""
        return event(json.loads(bytes(problem_of(error).body)))

    def _chunk(self, choice: dict[str, Any]) -> bytes:
        return event({**self._head, "choices": [choice], **({"usage": None} if self._usage else {})})
