"""The trajectory: the token-level view of one lane, and its three steps.

`prepare` only reads. `update_pretokenized_state` commits a reply. `append_provisional_record` keeps an aborted reply at
the tail, outside the committed state: the next commit supersedes it, and without one it remains the honest last turn.

Each turn is stored as a delta, so memory grows with the tokens and not with the square of the turns. The ids at a
committed turn are the ids of its base, cut to `keep`, followed by its prompt and its output. Integers in, integers out:
the caller supplies the tokenizer, and this module knows no engine, clock or file.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.errors import InvalidInput, TokenizationFailed, TokenMismatch, TrajectoryMoved
from onrecord.log.codec import as_read, encode_payload
from onrecord.rollout.discarding import BRANCHES_HINT, Discarding, refuse_repeated
from onrecord.rollout.hooks import hook
from onrecord.rollout.ids import first_difference, last_ids, marked, sequence, without
from onrecord.rollout.matching import (
    LOOSE_REASONING,
    Matching,
    arguments_digest,
    as_stored,
    canonical,
    difference,
    refuse_changes,
    spelling_hint,
    tools_digest,
)
from onrecord.rollout.requests import template_arguments, without_documents
from onrecord.rollout.turns import (
    ABORT,
    ABORTED,
    ERROR,
    INCOMPLETE,
    INFRA,
    REPAIRED,
    STATUS_OF,
    TEMPLATE,
    TRUNCATED,
    TurnRecord,
    floats,
    integers,
    spans,
)
from onrecord.views.lanes import ROLLBACK_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from onrecord.rollout.matching import Matcher, Message
    from onrecord.rollout.turns import ChatRequest, Reply, Span, Tokenizer

REPAIR_WINDOW = 64
"""How many of the last stored ids a boundary repair gets."""
TRIM_LIMIT = 64
"""The most trailing ids that `max_trim_tokens` may allow to be replaced."""


class Policy(NamedTuple):
    """What a trajectory accepts."""

    matcher: str | Matcher = LOOSE_REASONING
    max_rollback: int = 1
    """How many generated turns a request may discard (all of them if it is exactly the first prompt again)."""
    appended_roles: frozenset[str] = frozenset({"system", "developer", "user", "tool"})
    """The roles allowed after a generated turn. Other roles, such as assistant, may occur only in the first prompt."""
    max_trim_tokens: int = 0
    """How many trailing stored ids a new sequence may replace, if a template renders the end of a turn differently."""

    refuse_after_length: bool = False
    """Whether to refuse a request that follows a turn which ran out of tokens."""
    new_tools: bool = False
    """Whether a request may name other tools, or other arguments of the template, than the turns before it.

    The model sees only the first tools; arguments change what is rendered from then on.
    """

    def checked(self) -> Policy:
        """This policy, or an error if a value is out of bounds."""
        if not 0 <= self.max_rollback <= ROLLBACK_LIMIT:
            raise InvalidInput(f"max_rollback must be 0 to {ROLLBACK_LIMIT}, not {self.max_rollback}")
        if not 0 <= self.max_trim_tokens <= TRIM_LIMIT:
            raise InvalidInput(f"max_trim_tokens must be 0 to {TRIM_LIMIT}, not {self.max_trim_tokens}")
        Matching(self.matcher)  # refuses an unknown name
        return self


@dataclass(slots=True)
class Prepared:
    """A request that continues the trajectory, as prompt ids. Valid for one step, on this version."""

    expected_version: int
    base: int
    """How many committed turns it builds on."""
    kept_messages: int
    appended: list[dict[str, Any]]
    """The messages after those, as they will be stored."""
    keep: int
    tail: array[int]
    """The ids after the first `keep` ids of the base."""
    origins: tuple[Span, ...]
    fingerprint: str
    answer: str | None = None
    """The recorded answer to this request, if nothing was built on it: return it and call no engine."""
    tools: str = ""
    template: Mapping[str, Any] = field(default_factory=dict)
    """What the request gives to the template: `chat_template_kwargs`, `reasoning_effort`, `documents`."""
    discards: int = 0
    """How many sampled ids of committed turns its commit will discard."""
    _stored: Sequence[TurnRecord] = ()
    _prompt: array[int] | None = field(default=None, compare=False, repr=False)

    @property
    def prompt_ids(self) -> array[int]:
        """The whole prompt: the stored ids and the new ones. It is not to be changed."""
        if self._prompt is None:
            ids = sequence(self._stored, self.keep)
            ids.extend(self.tail)
            self._prompt = ids
        return self._prompt

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
        self.provisional: TurnRecord | None = None
        """The last turn since the last commit that was sampled in part: aborted, or cut off while it was streamed."""
        self.failure: TurnRecord | None = None
        """The last turn since then that got no reply at all: its engine failed or its process died."""
        self.discarded_turns = 0
        self.discarded_tokens = 0
        """How many sampled ids were committed and then replaced because a request discarded their turns."""
        self._committed: list[TurnRecord] = []
        self._anchors: list[int] = []
        self._answer: str | None = None
        self._matching = Matching(self.policy.matcher)

    # What it is

    @property
    def num_assistant(self) -> int:
        """How many generated turns are committed."""
        return len(self._committed)

    @property
    def last(self) -> TurnRecord | None:
        """The last committed turn; a request may name it as `after`."""
        return self._committed[-1] if self._committed else None

    @property
    def token_ids(self) -> array[int]:
        """The ids at the last committed turn."""
        return sequence(self._committed)

    @property
    def records(self) -> list[TurnRecord]:
        """The committed turns, then the provisional one, if any."""
        return [*self._committed, *([self.provisional] if self.provisional else [])]

    @property
    def anchors(self) -> list[int]:
        """How many messages there are at each committed turn."""
        return self._anchors[:]

    @property
    def head(self) -> dict[str, object]:
        """A short summary."""
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

    def standing(self, running: TurnRecord | None = None) -> list[TurnRecord]:
        """The turns as samples would be made from them now: the last aborted or failed turn follows its base.

        If it has no token, it replaces no committed turn: that one is still the answer. `running` is a turn that has
        not ended.
        """
        last = running or self.provisional or self.failure
        if last is None or (not last.output and last.base < self.num_assistant):
            return self._committed[:]
        return [*self._committed[: last.base], last]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LinearTrajectory) and self._state() == other._state()

    __hash__ = None  # type: ignore[assignment]  # it changes

    def _state(self) -> tuple[object, ...]:
        return (
            self.policy, self.version, self.messages, self._anchors, self._committed, self.provisional, self.failure,
            self._answer, self.discarded_turns, self.discarded_tokens,
        )  # fmt: skip

    # Prepare

    def prepare(self, request: ChatRequest, tokenizer: Tokenizer) -> Prepared:
        """The prompt ids of a request, or one clear error; nothing changes either way."""
        given, start = request.messages, self._messages_at(request.after)
        same = self._matching.length(given, start)
        if not given or not all(isinstance(message, dict) for message in given[same:]):
            raise InvalidInput("a request needs at least one message, and every message must be a JSON object")
        matched = start + same
        base = bisect_right(self._anchors, matched)
        kept = self._anchors[base - 1] if base else 0
        self._check_appended(base, kept, given[kept - start :])
        # On a match, the stored message is used.
        appended = [*self.messages[kept:matched], *map(as_stored, given[same:])]
        given_to, tools = template_arguments(request.options), tools_digest(request.tools)
        tokenizer, template = bound(tokenizer, given_to) if given_to else tokenizer, without_documents(given_to)
        fingerprint = _fingerprint(appended, request)
        answer = None if request.resample else self._lost_answer(base, fingerprint)
        if answer is None:
            self._check_rollback(base, matched, start + len(given))
            if base < len(self._anchors):
                refuse_repeated(self._discarding(base, matched), given[same:])
            if base and not self.policy.new_tools:
                last = self._committed[base - 1]
                refuse_changes((last.tools, last.template), (tools, arguments_digest(template)))
            self._check_length(base)
        records = self._committed[:base]
        if base == 0:
            with hook("tokenizer", TokenizationFailed):
                keep, tail, origins = 0, *marked(tokenizer.prompt(appended, request.tools))
        else:
            keep, tail, origins = self._joined(records, kept, appended, request, tokenizer)
        return Prepared(
            self.version, base, kept, appended, keep, tail, origins, fingerprint, answer,
            tools, template, 0 if answer is not None else self._sampled(base), records,
        )  # fmt: skip

    def shared(self, given: Sequence[Message]) -> tuple[int, int]:
        """How many messages of a request equal the stored ones, and how many generated turns are among them."""
        matched = self._matching.length(given)
        return matched, bisect_right(self._anchors, matched)

    def _sampled(self, base: int) -> int:
        """How many ids were sampled in the committed turns from `base` on."""
        return sum(len(record.output) for record in self._committed[base:])

    def _messages_at(self, turn: TurnRecord | None) -> int:
        """How many messages there are at a committed turn; `TrajectoryMoved` if this trajectory does not have it.

        It must be the same object: an equal record may follow other turns than those committed here.
        """
        if turn is None:
            return 0
        if not any(turn is one for one in self._committed[turn.base : turn.base + 1]):
            raise TrajectoryMoved(
                f"turn {turn.base + 1}, which this request follows, is not (or no longer) committed here",
                head=self.head,
            )
        return self._anchors[turn.base]

    def _check_rollback(self, base: int, matched: int, asked: int) -> None:
        """Refuse a request that would discard too many turns."""
        discarded = len(self._anchors) - base
        first_prompt_again = bool(self._anchors) and matched == asked == self._anchors[0] - 1
        if discarded > self.policy.max_rollback and not first_prompt_again:
            raise InvalidInput(
                f"this request matches the first {matched} of {len(self.messages)} messages and would discard "
                f"{discarded} generated turns; at most {self.policy.max_rollback} may be discarded",
                hint="send the conversation as it was answered, or exactly the first prompt to start over, or raise "
                f"max_rollback; {BRANCHES_HINT}",
                matched=matched,
                discarded=discarded,
            )

    def _discarding(self, base: int, matched: int) -> Discarding:
        generated = [anchor - 1 for anchor in self._anchors[base:]]
        return Discarding(self.messages, self._matching, matched, generated, self._sampled(base))

    def _check_length(self, base: int) -> None:
        if self.policy.refuse_after_length and base and self._committed[base - 1].status == TRUNCATED:
            raise InvalidInput(
                "the turn before this request ran out of tokens, and this rollout does not continue after such a turn",
                hint="raise max_tokens, or allow turns after it",
            )

    def _check_appended(self, base: int, kept: int, appended: Sequence[Message]) -> None:
        if not appended:
            raise InvalidInput("the last message of the request is a recorded answer; there is nothing to answer")
        for index, message in enumerate(appended, kept):
            role = message.get("role")
            if not isinstance(role, str):
                raise InvalidInput(f"a message needs a role, not {role!r:.80}")
            if base and role == "assistant" and index + 1 in self._anchors[base:]:
                raise InvalidInput(
                    f"message {index} is a generated turn, but not as it was answered: "
                    f"it differs in {difference(self.messages[index], message)}",
                    hint=spelling_hint(self.messages[index], message),
                    matched=index,
                )
            if base and role not in self.policy.appended_roles:
                raise InvalidInput(
                    f"a message of role {role!r:.80} cannot follow a generated turn",
                    hint=f"allowed roles: {', '.join(sorted(self.policy.appended_roles))}",
                )

    def _joined(
        self,
        records: Sequence[TurnRecord],
        kept: int,
        appended: Sequence[Message],
        request: ChatRequest,
        tokenizer: Tokenizer,
    ) -> tuple[int, array[int], tuple[Span, ...]]:
        """The suffix of a request, joined to the ids of the turns it builds on."""
        with hook("tokenizer", TokenizationFailed):
            suffix, origins = marked(tokenizer.suffix(self.messages[:kept], appended, request.tools))
            joint = tokenizer.repair(last_ids(records, REPAIR_WINDOW), suffix)
        length = records[-1].length
        if not 0 <= joint.drop <= min(self.policy.max_trim_tokens, length):
            raise TokenMismatch(
                f"the boundary repair would drop {joint.drop} stored ids; "
                f"at most {self.policy.max_trim_tokens} may be replaced",
                index=length - joint.drop,
            )
        if not 0 <= joint.skip <= len(suffix):
            raise TokenMismatch(f"the boundary repair would skip {joint.skip} of {len(suffix)} new ids", index=length)
        between = integers(joint.ids, "the ids of a repair")
        tail = between + suffix[joint.skip :]
        left = without(origins, joint.skip)
        return length - joint.drop, tail, spans(((REPAIRED, len(between)), *left), len(tail), "origins")

    def _lost_answer(self, base: int, fingerprint: str) -> str | None:
        """The answer to the last committed turn, if this request is the same and nothing was built on the answer."""
        last = self.last
        if last is None or self._answer is None or (last.base, last.fingerprint) != (base, fingerprint):
            return None
        later = self.provisional or self.failure
        return None if later and later.base == self.num_assistant else self._answer

    # Commit

    def update_pretokenized_state(self, prepared: Prepared, reply: Reply) -> TurnRecord:
        """Commit a reply: messages, ids, anchor and record advance together, and the provisional turn is superseded."""
        record = self.committed_record(prepared, reply)
        self.advance(record, prepared.kept_messages, prepared.appended, reply.response)
        return record

    def committed_record(self, prepared: Prepared, reply: Reply) -> TurnRecord:
        """The record that a commit of this reply would add. Makes every check and changes nothing."""
        self.check_version(prepared.expected_version)
        if reply.finish not in STATUS_OF or reply.finish in (ABORT, ERROR):
            raise InvalidInput(
                f"a reply that ended with {reply.finish!r} cannot be committed",
                hint="keep an abort with append_provisional_record",
            )
        if reply.message is None:
            raise InvalidInput("a reply needs a message")
        return _record(prepared, reply, self.policy.max_trim_tokens)

    def advance(self, record: TurnRecord, kept_messages: int, appended: Iterable[dict[str, Any]], answer: str) -> None:
        """Add a checked record: the only step that commits anything, live or replayed."""
        message = record.message or {}
        self.discarded_turns += len(self._committed) - record.base
        self.discarded_tokens += self._sampled(record.base)
        del self._committed[record.base :], self._anchors[record.base :]
        new = [*appended, message]
        self.messages[kept_messages:] = new
        self._matching.replace(kept_messages, new)
        self._drop_provisional_records()
        self._committed.append(record)
        self._anchors.append(len(self.messages))
        self._answer = answer or canonical(message)
        self.version += 1

    # Aborted and failed turns

    def provisional_record(self, prepared: Prepared, reply: Reply) -> TurnRecord:
        """The record of an aborted reply, checked; nothing changes."""
        self.check_version(prepared.expected_version)
        if reply.finish != ABORT:
            raise InvalidInput(f"a reply that ended with {reply.finish!r} cannot be provisional")
        return _record(prepared, reply, self.policy.max_trim_tokens)

    def append_provisional_record(self, record: TurnRecord) -> None:
        """Keep an aborted turn at the tail and replace an earlier one; committed state does not change."""
        if record.status != ABORTED or not 0 <= record.base <= self.num_assistant:
            raise InvalidInput(f"a provisional record must be ABORTED, on a committed turn, not {record.status}")
        self._drop_provisional_records()
        self.provisional = record
        self.version += 1

    def note_failure(self, record: TurnRecord) -> None:
        """Remember a turn that got no whole reply. What was streamed of it is the provisional tail.

        The version does not change.
        """
        if record.status not in (INFRA, INCOMPLETE) or not 0 <= record.base <= self.num_assistant:
            raise InvalidInput(f"a failure must be INFRA or INCOMPLETE, not {record.status}")
        if record.output:
            self.provisional = record
        else:
            self.failure = record

    def failed_record(self, prepared: Prepared, status: str, cause: str) -> TurnRecord:
        """The record of a turn that got no reply."""
        self.check_version(prepared.expected_version)
        return TurnRecord(
            prepared.base, prepared.keep, prepared.tail, array("i"), array("f"), status, "", cause, prepared.origins,
            fingerprint=prepared.fingerprint, tools=prepared.tools, template=arguments_digest(prepared.template),
        )  # fmt: skip

    def _drop_provisional_records(self) -> None:
        """Discard everything after the committed turns from this view; the log keeps it."""
        self.provisional = self.failure = None

    def check_version(self, expected: int) -> None:
        """Raise `TrajectoryMoved`, with the head, unless this is the present version."""
        if expected != self.version:
            raise TrajectoryMoved(
                f"the trajectory is at version {self.version}, but this was prepared on version {expected}",
                head=self.head,
                expected=expected,
            )


def _record(prepared: Prepared, reply: Reply, max_trim: int) -> TurnRecord:
    """A reply as a delta to its base, with every length and id checked."""
    output = integers(reply.output_ids, "output ids")
    logprobs = floats(reply.logprobs, "logprobs")
    if len(output) != len(logprobs):
        raise InvalidInput(f"a reply has {len(output)} output ids and {len(logprobs)} logprobs")
    keep, prompt, origins = prepared.keep, prepared.tail, prepared.origins
    if reply.prompt_ids is not None:
        keep, prompt, origins = _as_seen(prepared, reply.prompt_ids, max_trim)
    if not isinstance(reply.message, dict | None):
        raise InvalidInput(f"a reply's message must be a JSON object, not {type(reply.message).__name__}")
    message = None if reply.message is None else as_stored(reply.message)
    side = as_read([message, dict(reply.side_payloads)])[1]
    return TurnRecord(
        prepared.base, keep, prompt, output, logprobs, STATUS_OF[reply.finish], reply.finish, str(reply.abort_cause),
        origins, spans(reply.weight_versions, len(output), "weight versions"), prepared.fingerprint,
        message, str(reply.response_id), side, prepared.tools, arguments_digest(prepared.template),
    )  # fmt: skip


def _as_seen(prepared: Prepared, prompt_ids: Sequence[int], max_trim: int) -> tuple[int, array[int], tuple[Span, ...]]:
    """The prompt of an engine that rendered it itself, if it continues the stored ids."""
    expected = prepared.prompt_ids
    seen = integers(prompt_ids, "prompt ids")
    if seen == expected:
        return prepared.keep, prepared.tail, prepared.origins
    stored = sequence(prepared._stored)  # noqa: SLF001 - its own module
    keep = first_difference(stored, seen)
    if len(stored) - keep > max_trim:
        raise TokenMismatch(
            f"the engine's prompt differs from the stored ids at index {keep} of {len(stored)}: "
            f"found {seen[keep] if keep < len(seen) else 'the end'}, expected {stored[keep]}; "
            f"at most {max_trim} trailing ids may be replaced",
            index=keep,
        )
    prompt = seen[keep:]
    replaced = min(len(stored) - keep, len(prompt))
    return keep, prompt, spans(((REPAIRED, replaced), (TEMPLATE, len(prompt) - replaced)), len(prompt), "origins")


def bound(tokenizer: Tokenizer, arguments: Any) -> Tokenizer:
    """The tokenizer for what a request gives to the template."""
    bind = getattr(tokenizer, "with_arguments", None)
    if bind is None:
        named = ", ".join(arguments)
        raise InvalidInput(f"this tokenizer takes no arguments of the template: {named}", hint="leave them out")
    with hook("tokenizer", TokenizationFailed):
        chosen: Tokenizer = bind(arguments)
    return chosen


def _fingerprint(appended: Sequence[Message], request: ChatRequest) -> str:
    """What identifies a request, given its base."""
    tools = None if request.tools is None else list(request.tools)
    asked = {"messages": appended, "tools": tools, "options": dict(request.options)}
    return sha256(encode_payload(asked)).hexdigest()
