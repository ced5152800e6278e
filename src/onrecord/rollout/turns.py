"""The values of a trajectory: requests, replies, turn records, and the tokenizer protocol."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from onrecord.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onrecord.rollout.matching import Message

STOP, TOOL_CALLS, LENGTH, ABORT, ERROR = "stop", "tool_calls", "length", "abort", "error"
COMPLETED, TRUNCATED, ABORTED, INCOMPLETE, INFRA = "COMPLETED", "TRUNCATED", "ABORTED", "INCOMPLETE", "INFRA"
STATUS_OF = {STOP: COMPLETED, TOOL_CALLS: COMPLETED, LENGTH: TRUNCATED, ABORT: ABORTED, ERROR: INFRA}
"""The status of a turn, by how its generation ended. INCOMPLETE: its process died before the end was recorded."""

TEMPLATE, INJECTED, REPAIRED, SAMPLED = "template", "injected", "repaired", "sampled"
ORIGINS = (TEMPLATE, INJECTED, REPAIRED, SAMPLED)
"""Where an id comes from: rendered from the request, rendered from an assistant message that the client wrote, inserted
where two renderings meet, or sampled from the policy. The origins are numbered 0 to 3 in this order."""

Span = tuple[str, int]
"""A mark and the number of ids that it covers."""


class ChatRequest(NamedTuple):
    """A client's chat request."""

    messages: Sequence[Message]
    """The whole conversation; with `after`, only the messages that follow that turn."""
    tools: Sequence[Mapping[str, Any]] | None = None
    options: Mapping[str, Any] = {}
    """Everything else that identifies the request: model, sampling parameters. Only the fingerprint uses it."""
    after: TurnRecord | None = None
    """The committed turn that `messages` follow: what `commit` returned, or `trajectory.last`. The messages before it
    come from the record and are not repeated, so only the new messages cost anything."""
    resample: bool = False
    """Generate again even if the answer to this request is on record; the new answer replaces it."""


class Reply(NamedTuple):
    """An engine's answer, in one form for all engines."""

    message: Message | None
    """The assistant's message as the client will see it; None if an abort left none."""
    output_ids: Sequence[int]
    logprobs: Sequence[float]
    finish: str
    """stop, tool_calls, length, abort or error."""
    prompt_ids: Sequence[int] | None = None
    """The prompt as the engine saw it; None if it used the prepared ids."""
    weight_versions: Sequence[Span] = ()
    """Which weights sampled the output ids, in order: (version, number of ids)."""
    abort_cause: str = ""
    response_id: str = ""
    response: str = ""
    """The response body for the client: after a lost reply, the retry gets exactly these characters."""
    side_payloads: Mapping[str, Any] = {}
    """Other data that belongs to the ids, as JSON: routed experts, for instance."""
    stop_word: str = ""
    """The stop word of the request that ended the generation, if the engine names it."""


class Tokenized(NamedTuple):
    """Messages as ids."""

    ids: Sequence[int]
    injected: Sequence[tuple[int, int]] = ()
    """(start, end) of ids that render text which the client wrote in the assistant's name."""


class Joint(NamedTuple):
    """How stored ids and a new suffix are joined: drop the last `drop` stored ids, insert `ids` between them.

    `skip` leaves out the first ids of the suffix, because the stored ids already end with them.
    """

    drop: int = 0
    ids: Sequence[int] = ()
    skip: int = 0


class Tokenizer(Protocol):
    """Turns messages into ids. `prepare` takes one; its methods must be pure functions.

    It may also have `with_arguments(arguments)`, which returns a tokenizer for the `chat_template_kwargs` of a request,
    and `text_of(ids)`, which returns the text of sampled ids.
    """

    def prompt(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None) -> Tokenized:
        """The ids of the whole first prompt, up to where the assistant's turn begins."""

    def suffix(
        self, before: Sequence[Message], appended: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None
    ) -> Tokenized:
        """The ids that `appended` adds after the reply that ends `before`, up to the next assistant turn."""

    def repair(self, tail: Sequence[int], suffix: Sequence[int]) -> Joint:
        """How to join the last stored ids (`tail` has at most REPAIR_WINDOW of them) and the suffix."""


@dataclass(slots=True)
class TurnRecord:
    """One generated turn, as a delta to the turns it builds on."""

    base: int
    """How many committed turns it builds on."""
    keep: int
    """How many ids of that base remain before its prompt."""
    prompt: array[int]
    """The ids between those and the output."""
    output: array[int]
    logprobs: array[float]
    status: str
    finish: str = ""
    cause: str = ""
    origins: tuple[Span, ...] = ()
    """Where the ids of `prompt` come from."""
    weight_versions: tuple[Span, ...] = ()
    fingerprint: str = ""
    message: dict[str, Any] | None = None
    response_id: str = ""
    side_payloads: dict[str, Any] = field(default_factory=dict)
    tools: str = ""
    """What identifies the tools of its request; empty in logs of earlier versions."""
    template: str = ""
    """What identifies what its request gave to the template; empty in logs of earlier versions."""
    length: int = field(init=False, compare=False, repr=False)
    """How many ids the sequence has with this turn; read for every turn whenever ids are assembled."""

    def __post_init__(self) -> None:
        self.length = self.keep + len(self.prompt) + len(self.output)


def integers(values: Sequence[int], what: str) -> array[int]:
    """Ids as an array of int32, or one clear error."""
    if isinstance(values, array) and values.typecode == "i":
        ids = values
    else:
        try:
            ids = _packed("i", values)
        except (TypeError, OverflowError):
            raise InvalidInput(f"{what} must be integers from 0 to 2,147,483,647") from None
    least = min(values if isinstance(values, list) else ids, default=0)  # reading an array makes each integer again
    if least < 0:
        raise InvalidInput(f"{what} must not be negative, but one is {least}")
    return ids


def floats(values: Sequence[float], what: str) -> array[float]:
    """Numbers as an array of float32, or one clear error. A number that float32 cannot hold is refused too."""
    try:
        kept = values if isinstance(values, array) and values.typecode == "f" else _packed("f", values)
    except (TypeError, OverflowError):
        raise InvalidInput(f"{what} must be numbers") from None
    if not isfinite(sum(kept)) and not all(map(isfinite, kept)):
        index = next(index for index, value in enumerate(kept) if not isfinite(value))
        raise InvalidInput(f"{what} must be finite numbers of float32, but number {index} is {values[index]!r:.40}")
    return kept


def _packed(typecode: str, values: Sequence[Any]) -> array[Any]:
    """Values as an array; for it, true would be a number."""
    if bool in set(map(type, values)):
        raise TypeError
    return array(typecode, values)


def spans(marked: Sequence[Span], count: int, what: str) -> tuple[Span, ...]:
    """Marks that cover `count` ids; adjacent spans with the same mark are merged. An empty list is valid."""
    joined: list[Span] = []
    for mark, length in marked:
        if not isinstance(length, int) or isinstance(length, bool) or length < 0:
            raise InvalidInput(f"{what} must be pairs of a mark and a count, not {(mark, length)!r:.100}")
        if joined and joined[-1][0] == str(mark):
            joined[-1] = (joined[-1][0], joined[-1][1] + length)
        elif length:
            joined.append((str(mark), length))
    if joined and sum(length for _mark, length in joined) != count:
        raise InvalidInput(f"{what} cover {sum(length for _, length in joined):,} of {count:,} ids")
    return tuple(joined)
