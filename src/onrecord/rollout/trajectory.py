"""The trajectory: the token-level view of one lane, and the three steps it can make.

`prepare` looks and changes nothing. `update_pretokenized_state` commits a reply. `append_provisional_record` keeps an
aborted one at the tail, outside everything that is committed: the next commit supersedes it, and if none comes it
stands as the honest last turn.

Each turn is kept as what it adds, so that memory grows with the tokens and never with the square of the turns. Ids at
a committed turn are the ids of its base, cut to `keep`, followed by its prompt and its output. Integers in, integers
out: the tokenizer is given, and nothing here knows an engine, a clock or a file.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.errors import InvalidInput, TokenMismatch, TrajectoryMoved
from onrecord.log.codec import as_read, encode_payload
from onrecord.rollout.matching import STRICT, Matching, as_stored, canonical
from onrecord.rollout.turns import (
    ABORT,
    ABORTED,
    ERROR,
    INCOMPLETE,
    INFRA,
    INJECTED,
    REPAIRED,
    STATUS_OF,
    TEMPLATE,
    Record,
    floats,
    integers,
    spans,
)
from onrecord.views.lanes import ROLLBACK_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onrecord.rollout.matching import Matcher, Message
    from onrecord.rollout.turns import Reply, Request, Span, Tokenized, Tokenizer

REPAIR_WINDOW = 64
"""How many of the last stored ids a boundary repair is shown."""
TRIM_LIMIT = 64
"""The most trailing ids that `max_trim_tokens` may allow to be replaced."""
_CHUNK = 4_096


class Policy(NamedTuple):
    """What a trajectory accepts."""

    matcher: str | Matcher = STRICT
    max_rollback: int = 1
    """How many generated turns a request may discard (all of them when it is exactly the first prompt again)."""
    appended_roles: frozenset[str] = frozenset({"system", "developer", "user", "tool"})
    """Who may speak after a generated turn. Only the first prompt may have an assistant speak who is not here."""
    max_trim_tokens: int = 0
    """How many trailing ids on record a new sequence may replace, where a template renders the end of a turn anew."""

    def checked(self) -> Policy:
        """This policy if it is within bounds."""
        if not 0 <= self.max_rollback <= ROLLBACK_LIMIT:
            raise InvalidInput(f"max_rollback is 0 to {ROLLBACK_LIMIT}, not {self.max_rollback}")
        if not 0 <= self.max_trim_tokens <= TRIM_LIMIT:
            raise InvalidInput(f"max_trim_tokens is 0 to {TRIM_LIMIT}, not {self.max_trim_tokens}")
        return self


@dataclass(slots=True)
class Prepared:
    """A request that fits the trajectory, as prompt ids. Good for one step, on this version."""

    expected_version: int
    base: int
    """How many committed turns it builds on."""
    kept_messages: int
    appended: list[dict[str, Any]]
    """The messages after those, in the spelling that will be stored."""
    keep: int
    tail: array[int]
    """What follows the first `keep` ids of the base."""
    origins: tuple[Span, ...]
    fingerprint: str
    answer: str | None = None
    """The answer this very request got before, when nothing was built upon it: return it and call no engine."""
    _stored: Sequence[Record] = ()

    @property
    def prompt_ids(self) -> array[int]:
        """The whole prompt: the stored ids and what is new."""
        ids = sequence(self._stored, self.keep)
        ids.extend(self.tail)
        return ids

    @property
    def prompt_length(self) -> int:
        """How many ids the whole prompt has."""
        return self.keep + len(self.tail)


class LinearTrajectory:
    """Messages, committed turns and the provisional tail of one lane."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = (policy or Policy()).checked()
        self.messages: list[dict[str, Any]] = []
        self.version = 0
        self.provisional: Record | None = None
        """The last aborted turn since the last commit."""
        self.failure: Record | None = None
        """The last turn since then that got no reply at all: its engine failed or its process died."""
        self._committed: list[Record] = []
        self._anchors: list[int] = []
        self._answer: str | None = None
        self._matching = Matching(self.policy.matcher)

    # What it is

    @property
    def num_assistant(self) -> int:
        """How many generated turns are committed."""
        return len(self._committed)

    @property
    def last(self) -> Record | None:
        """The last committed turn: what a request may say it comes after."""
        return self._committed[-1] if self._committed else None

    @property
    def token_ids(self) -> array[int]:
        """The ids at the last committed turn."""
        return sequence(self._committed)

    @property
    def records(self) -> list[Record]:
        """The committed turns, and the provisional one if there is one."""
        return [*self._committed, *([self.provisional] if self.provisional else [])]

    @property
    def anchors(self) -> list[int]:
        """How many messages there are at each committed turn."""
        return self._anchors[:]

    @property
    def head(self) -> dict[str, object]:
        """Where it stands, in few words."""
        return {
            "version": self.version,
            "num_assistant": self.num_assistant,
            "messages": len(self.messages),
            "tokens": self.length,
            "provisional": self.provisional is not None,
        }

    @property
    def length(self) -> int:
        """How many ids there are at the last committed turn."""
        return self._committed[-1].length if self._committed else 0

    def standing(self) -> list[Record]:
        """The turns as they would be handed over now: what was given up last stands on the turns it was built on."""
        last = self.provisional or self.failure
        return [*self._committed[: last.base], last] if last else self._committed[:]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LinearTrajectory) and self._state() == other._state()

    __hash__ = None  # type: ignore[assignment]  # it changes

    def _state(self) -> tuple[object, ...]:
        return (
            self.policy, self.version, self.messages, self._anchors, self._committed, self.provisional, self.failure,
            self._answer,
        )  # fmt: skip

    # Prepare

    def prepare(self, request: Request, tokenizer: Tokenizer) -> Prepared:
        """The prompt ids of a request, or one clear error; nothing changes either way."""
        given, start = request.messages, self._messages_at(request.after)
        same = self._matching.length(given, start)
        if not given or not all(isinstance(message, dict) for message in given[same:]):
            raise InvalidInput("a prompt needs at least one message, and every message must be a JSON object")
        matched = start + same
        base = bisect_right(self._anchors, matched)
        kept = self._anchors[base - 1] if base else 0
        self._check_appended(base, given[kept - start :])
        # On a match the stored spelling wins.
        appended = [*self.messages[kept:matched], *map(as_stored, given[same:])]
        fingerprint = _fingerprint(appended, request)
        answer = self._lost_answer(base, fingerprint)
        if answer is None:
            self._check_rollback(base, matched, start + len(given))
        records = self._committed[:base]
        if base == 0:
            keep, tail, origins = 0, *_marked(tokenizer.prompt(appended, request.tools))
        else:
            keep, tail, origins = self._joined(records, kept, appended, request, tokenizer)
        return Prepared(
            self.version, base, kept, appended, keep, tail, origins, fingerprint, answer, records
        )  # fmt: skip

    def _messages_at(self, turn: Record | None) -> int:
        """How many messages there are at a committed turn; `TrajectoryMoved` if it is not one of this trajectory.

        It must be the very record: an equal one may follow other turns than those that are committed here.
        """
        if turn is None:
            return 0
        if not any(turn is one for one in self._committed[turn.base : turn.base + 1]):
            raise TrajectoryMoved(
                f"the turn that this request follows, number {turn.base + 1}, is not committed here",
                head=self.head,
            )
        return self._anchors[turn.base]

    def _check_rollback(self, base: int, matched: int, asked: int) -> None:
        """Refuse a request that agrees with too little of what there is."""
        discarded = len(self._anchors) - base
        first_prompt_again = bool(self._anchors) and matched == asked == self._anchors[0] - 1
        if discarded > self.policy.max_rollback and not first_prompt_again:
            raise InvalidInput(
                f"this request agrees with the first {matched} of {len(self.messages)} messages and would discard "
                f"{discarded} generated turns; {self.policy.max_rollback} may be discarded",
                hint="send the conversation as it was answered, or exactly the first prompt to start over",
                matched=matched,
                discarded=discarded,
            )

    def _check_appended(self, base: int, appended: Sequence[Message]) -> None:
        if not appended:
            raise InvalidInput("the last message is already an answer; there is nothing to answer")
        for message in appended:
            role = message.get("role")
            if not isinstance(role, str):
                raise InvalidInput(f"a message has a role, not {role!r:.80}")
            if base and role not in self.policy.appended_roles:
                raise InvalidInput(
                    f"a message of role {role!r:.80} cannot follow a generated turn",
                    hint=f"allowed: {', '.join(sorted(self.policy.appended_roles))}",
                )

    def _joined(
        self,
        records: Sequence[Record],
        kept: int,
        appended: Sequence[Message],
        request: Request,
        tokenizer: Tokenizer,
    ) -> tuple[int, array[int], tuple[Span, ...]]:
        """The suffix of a request, joined to the ids of the turns it builds on."""
        suffix, origins = _marked(tokenizer.suffix(self.messages[:kept], appended, request.tools))
        joint = tokenizer.repair(_last_ids(records, REPAIR_WINDOW), suffix)
        length = records[-1].length
        if not 0 <= joint.drop <= min(self.policy.max_trim_tokens, length):
            raise TokenMismatch(
                f"the boundary repair wants to leave out {joint.drop} stored ids; "
                f"{self.policy.max_trim_tokens} may be replaced",
                index=length - joint.drop,
            )
        between = integers(joint.ids, "the ids of a repair")
        tail = between + suffix
        return length - joint.drop, tail, spans(((REPAIRED, len(between)), *origins), len(tail), "origins")

    def _lost_answer(self, base: int, fingerprint: str) -> str | None:
        """The answer to the last committed turn, if this is the request it answered and nothing was built upon it."""
        last = self.last
        if last is None or self._answer is None or (last.base, last.fingerprint) != (base, fingerprint):
            return None
        attempt = self.provisional or self.failure
        return None if attempt and attempt.base == self.num_assistant else self._answer

    # Commit

    def update_pretokenized_state(self, prepared: Prepared, reply: Reply) -> Record:
        """Commit a reply: messages, ids, anchor and record advance together, and what was provisional is superseded."""
        record = self.committed_record(prepared, reply)
        self.advance(record, prepared.kept_messages, prepared.appended, reply.response)
        return record

    def committed_record(self, prepared: Prepared, reply: Reply) -> Record:
        """The record a reply would be committed as; every check is made here and nothing changes."""
        self.check_version(prepared.expected_version)
        if reply.finish not in STATUS_OF or reply.finish in (ABORT, ERROR):
            raise InvalidInput(
                f"a reply that ended with {reply.finish!r} is not committed",
                hint="record an abort with append_provisional_record",
            )
        if reply.message is None:
            raise InvalidInput("a reply has a message")
        return _record(prepared, reply, self.policy.max_trim_tokens)

    def advance(self, record: Record, kept_messages: int, appended: Iterable[dict[str, Any]], answer: str) -> None:
        """Take a checked record in: the one step by which anything becomes committed, live or replayed."""
        message = record.message or {}
        del self._committed[record.base :], self._anchors[record.base :]
        new = [*appended, message]
        self.messages[kept_messages:] = new
        self._matching.replace(kept_messages, new)
        self._drop_provisional_records()
        self._committed.append(record)
        self._anchors.append(len(self.messages))
        self._answer = answer or canonical(message)
        self.version += 1

    # Turns that are given up

    def provisional_record(self, prepared: Prepared, reply: Reply) -> Record:
        """The record of an aborted reply, checked; nothing changes."""
        self.check_version(prepared.expected_version)
        if reply.finish != ABORT:
            raise InvalidInput(f"a reply that ended with {reply.finish!r} is not provisional")
        return _record(prepared, reply, self.policy.max_trim_tokens)

    def append_provisional_record(self, record: Record) -> None:
        """Keep an aborted turn at the tail, in place of an earlier one; nothing that is committed moves."""
        if record.status != ABORTED or not 0 <= record.base <= self.num_assistant:
            raise InvalidInput(f"a provisional record is ABORTED and builds on a committed turn, not {record.status}")
        self._drop_provisional_records()
        self.provisional = record
        self.version += 1

    def note_failure(self, record: Record) -> None:
        """Remember a turn that got no reply. The view stays where it was: version, records and all."""
        if record.status not in (INFRA, INCOMPLETE) or not 0 <= record.base <= self.num_assistant:
            raise InvalidInput(f"a failure is INFRA or INCOMPLETE, not {record.status}")
        self.failure = record

    def failed_record(self, prepared: Prepared, status: str, cause: str) -> Record:
        """The record of a turn that got no reply."""
        self.check_version(prepared.expected_version)
        return Record(
            prepared.base, prepared.keep, prepared.tail, array("i"), array("f"), status, "", cause, prepared.origins,
            fingerprint=prepared.fingerprint,
        )  # fmt: skip

    def _drop_provisional_records(self) -> None:
        """Discard everything past the committed count, from this view; the log keeps all of it."""
        self.provisional = self.failure = None

    def check_version(self, expected: int) -> None:
        """`TrajectoryMoved`, with the head, unless this is the present version."""
        if expected != self.version:
            raise TrajectoryMoved(
                f"the trajectory is at version {self.version}; this was prepared on version {expected}",
                head=self.head,
                expected=expected,
            )


def sequence(records: Sequence[Record], keep: int | None = None) -> array[int]:
    """The ids after these turns, all or the first `keep`."""
    ids: array[int] = array("i", (0,)) * max([record.length for record in records], default=0)
    with memoryview(ids) as room:
        for record in records:
            middle = record.keep + len(record.prompt)
            room[record.keep : middle] = record.prompt
            room[middle : middle + len(record.output)] = record.output
    del ids[(records[-1].length if records else 0) if keep is None else keep :]
    return ids


def _last_ids(records: Sequence[Record], count: int) -> array[int]:
    """The last ids after these turns, without putting all of them together."""
    first = len(records)
    below = 0
    while first and below < count:
        first -= 1
        below = records[-1].length - records[first].keep
    # From a turn in the middle on, `keep` counts ids that are not here: shift by what stands before it. No turn after
    # it keeps less than that, or the search above would have gone on.
    start = records[first].keep if first < len(records) else 0
    ids: array[int] = array("i")
    for record in records[first:]:
        del ids[record.keep - start :]
        ids.extend(record.prompt)
        ids.extend(record.output)
    return ids[-count:]


def _marked(tokenized: Tokenized) -> tuple[array[int], tuple[Span, ...]]:
    ids = integers(tokenized.ids, "the ids of a tokenizer")
    marked: list[Span] = []
    end = 0
    for start, stop in tokenized.injected:
        if not end <= start <= stop <= len(ids):
            raise InvalidInput(f"injected spans lie in order within {len(ids)} ids; one is {(start, stop)}")
        marked += [(TEMPLATE, start - end), (INJECTED, stop - start)]
        end = stop
    return ids, spans([*marked, (TEMPLATE, len(ids) - end)], len(ids), "origins")


def _record(prepared: Prepared, reply: Reply, max_trim: int) -> Record:
    """A reply as what it adds to its base, with every length and id checked."""
    output = integers(reply.output_ids, "output ids")
    logprobs = floats(reply.logprobs, "logprobs")
    if len(output) != len(logprobs):
        raise InvalidInput(f"a reply has {len(output)} output ids and {len(logprobs)} logprobs")
    keep, prompt, origins = prepared.keep, prepared.tail, prepared.origins
    if reply.prompt_ids is not None:
        keep, prompt, origins = _as_seen(prepared, reply.prompt_ids, max_trim)
    if not isinstance(reply.message, dict | None):
        raise InvalidInput(f"a reply's message is a JSON object, not {type(reply.message).__name__}")
    message = None if reply.message is None else as_stored(reply.message)
    side = as_read([message, dict(reply.side_payloads)])[1]
    return Record(
        prepared.base, keep, prompt, output, logprobs, STATUS_OF[reply.finish], reply.finish, str(reply.abort_cause),
        origins, spans(reply.weight_versions, len(output), "weight versions"), prepared.fingerprint,
        message, str(reply.response_id), side,
    )  # fmt: skip


def _as_seen(prepared: Prepared, prompt_ids: Sequence[int], max_trim: int) -> tuple[int, array[int], tuple[Span, ...]]:
    """What an engine that rendered the prompt itself made of it, if it goes on from what is stored."""
    expected = prepared.prompt_ids
    try:
        seen = prompt_ids if isinstance(prompt_ids, array) and prompt_ids.typecode == "i" else array("i", prompt_ids)
    except (TypeError, OverflowError):
        raise InvalidInput("prompt ids are integers from 0 to 2,147,483,647") from None
    if seen == expected:
        return prepared.keep, prepared.tail, prepared.origins
    stored = sequence(prepared._stored)  # noqa: SLF001 - its own module
    keep = _first_difference(stored, seen)
    if len(stored) - keep > max_trim:
        raise TokenMismatch(
            f"the engine's prompt leaves the stored ids at index {keep} of {len(stored)}: "
            f"{seen[keep] if keep < len(seen) else 'the end'} stands where {stored[keep]} was; "
            f"{max_trim} trailing ids may be replaced",
            index=keep,
        )
    prompt = integers(seen[keep:], "prompt ids")
    replaced = min(len(stored) - keep, len(prompt))
    return keep, prompt, spans(((REPAIRED, replaced), (TEMPLATE, len(prompt) - replaced)), len(prompt), "origins")


def _first_difference(one: array[int], other: array[int]) -> int:
    """The first index where two lists of ids differ; the shorter one's length when it begins the other."""
    shared = min(len(one), len(other))
    for start in range(0, shared, _CHUNK):
        stop = min(start + _CHUNK, shared)
        if one[start:stop] != other[start:stop]:
            return next(index for index in range(start, stop) if one[index] != other[index])
    return shared


def _fingerprint(appended: Sequence[Message], request: Request) -> str:
    """What makes a request this one, given its base."""
    tools = None if request.tools is None else list(request.tools)
    asked = {"messages": appended, "tools": tools, "options": dict(request.options)}
    return sha256(encode_payload(asked)).hexdigest()
