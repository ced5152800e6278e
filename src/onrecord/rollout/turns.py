"""What goes into a trajectory and what stands in it: requests, replies, records, and the tokenizer it is given."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from math import isnan
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from onrecord.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onrecord.rollout.matching import Message

STOP, TOOL_CALLS, LENGTH, ABORT, ERROR = "stop", "tool_calls", "length", "abort", "error"
COMPLETED, TRUNCATED, ABORTED, INCOMPLETE, INFRA = "COMPLETED", "TRUNCATED", "ABORTED", "INCOMPLETE", "INFRA"
STATUS_OF = {STOP: COMPLETED, TOOL_CALLS: COMPLETED, LENGTH: TRUNCATED, ABORT: ABORTED, ERROR: INFRA}
"""What a turn is worth, by how its generation ended. INCOMPLETE is a turn whose process died before anybody knew."""

TEMPLATE, INJECTED, REPAIRED, SAMPLED = "template", "injected", "repaired", "sampled"
ORIGINS = (TEMPLATE, INJECTED, REPAIRED, SAMPLED)
"""Where an id comes from: rendered from the request, rendered from an assistant's message that the client wrote, put in
where two renderings meet, or drawn from the policy. In this order they are numbered 0 to 3."""

Span = tuple[str, int]
"""A mark and how many ids it holds for."""


class ChatRequest(NamedTuple):
    """What a client asks for."""

    messages: Sequence[Message]
    """The whole conversation; or what comes after a turn, when `after` says which."""
    tools: Sequence[Mapping[str, Any]] | None = None
    options: Mapping[str, Any] = {}
    """Whatever else makes it this request: model, sampling parameters. Part of the fingerprint, and not looked at."""
    after: TurnRecord | None = None
    """The committed turn that `messages` follow: what `commit` returned, or `trajectory.last`. All before it is taken
    as it is on record and need not be repeated, so such a request costs what is new in it."""


class Reply(NamedTuple):
    """What an engine answered, whichever engine it was."""

    message: Message | None
    """The assistant's message as the client will see it; None when an abort left none."""
    output_ids: Sequence[int]
    logprobs: Sequence[float]
    finish: str
    """stop, tool_calls, length, abort or error."""
    prompt_ids: Sequence[int] | None = None
    """The prompt as the engine saw it; None when it took the prepared ids."""
    weight_versions: Sequence[Span] = ()
    """Which weights drew the output ids, in order: (version, how many ids)."""
    abort_cause: str = ""
    response_id: str = ""
    response: str = ""
    """The body that is acknowledged to the client: a retry whose reply was lost gets these very characters."""
    side_payloads: Mapping[str, Any] = {}
    """What else belongs to the ids, as JSON: routed experts, for instance."""


class Tokenized(NamedTuple):
    """Messages as ids."""

    ids: Sequence[int]
    injected: Sequence[tuple[int, int]] = ()
    """(start, end) of ids that render what the client wrote in the assistant's name."""


class Joint(NamedTuple):
    """How stored ids and a new suffix are joined: leave out the last `drop` stored ids, put `ids` between."""

    drop: int = 0
    ids: Sequence[int] = ()


class Tokenizer(Protocol):
    """How messages become ids. Given to `prepare`; must be a function of its arguments."""

    def prompt(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None) -> Tokenized:
        """The whole first prompt, ready for the assistant to speak."""

    def suffix(
        self, before: Sequence[Message], appended: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None
    ) -> Tokenized:
        """What `appended` adds after the reply that ends `before`, ready for the assistant to speak again."""

    def repair(self, tail: Sequence[int], suffix: Sequence[int]) -> Joint:
        """How the last stored ids (`tail` shows at most REPAIR_WINDOW of them) and the suffix are joined."""


@dataclass(slots=True)
class TurnRecord:
    """One generated turn, as what it adds to the turns it builds on."""

    base: int
    """How many committed turns it builds on."""
    keep: int
    """How many ids of that base go on to stand before its prompt."""
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
    length: int = field(init=False, compare=False, repr=False)
    """How many ids the sequence has with this turn. Asked for every turn whenever ids are put together."""

    def __post_init__(self) -> None:
        self.length = self.keep + len(self.prompt) + len(self.output)


def integers(values: Sequence[int], what: str) -> array[int]:
    """Ids as they are kept, or one clear error."""
    if isinstance(values, array) and values.typecode == "i":
        ids = values
    else:
        try:
            ids = array("i", values)
        except (TypeError, OverflowError):
            raise InvalidInput(f"{what} are integers from 0 to 2,147,483,647") from None
    if ids and min(ids) < 0:
        raise InvalidInput(f"{what} are integers from 0 up; one is {min(ids)}")
    return ids


def floats(values: Sequence[float], what: str) -> array[float]:
    """Numbers as they are kept (single precision), or one clear error."""
    try:
        kept = values if isinstance(values, array) and values.typecode == "f" else array("f", values)
    except (TypeError, OverflowError):
        raise InvalidInput(f"{what} are numbers") from None
    if isnan(sum(kept)) and any(map(isnan, kept)):
        raise InvalidInput(f"{what} are numbers; one is NaN")
    return kept


def spans(marked: Sequence[Span], count: int, what: str) -> tuple[Span, ...]:
    """Marks that cover `count` ids, neighbours with the same mark joined; none at all is fine."""
    joined: list[Span] = []
    for mark, length in marked:
        if not isinstance(length, int) or isinstance(length, bool) or length < 0:
            raise InvalidInput(f"{what} are pairs of a mark and a count, not {(mark, length)!r:.100}")
        if joined and joined[-1][0] == str(mark):
            joined[-1] = (joined[-1][0], joined[-1][1] + length)
        elif length:
            joined.append((str(mark), length))
    if joined and sum(length for _mark, length in joined) != count:
        raise InvalidInput(f"{what} cover {sum(length for _, length in joined):,} ids of {count:,}")
    return tuple(joined)
