"""A session in memory: its rollout, its running turn, and the steps of a turn that run on threads."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from onrecord.errors import (
    AssemblyFailed,
    BadReply,
    InvalidInput,
    LeaseLost,
    LogMoved,
    PayloadErased,
    SessionNotFound,
    TokenizationFailed,
    TrajectoryMoved,
)
from onrecord.rollout.ended import refuse_retired
from onrecord.rollout.hooks import hook
from onrecord.rollout.matching import canonical
from onrecord.rollout.recording import POLICY_AGENT, read_lane, share_rollout
from onrecord.rollout.server.completions import is_text, text_turn
from onrecord.rollout.server.messages import arguments_of
from onrecord.rollout.turns import ChatRequest, Reply
from onrecord.views.lanes import ROLLBACK_LIMIT

if TYPE_CHECKING:
    import asyncio
    from array import array
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from onrecord.log.head import Head
    from onrecord.rollout.lane import Frozen, Lane
    from onrecord.rollout.recording import Intent, Rollout
    from onrecord.rollout.server.streaming import Flow
    from onrecord.rollout.server.upstream import Refusal
    from onrecord.rollout.trajectory import LinearTrajectory, Policy, Prepared
    from onrecord.rollout.turns import Span, Tokenizer, TurnRecord
    from onrecord.session.handle import Session
    from onrecord.session.session_store import SessionStore

T = TypeVar("T")
_NOT_THE_TURN = ("messages", "tools", "stream", "stream_options")
"""Fields that do not identify a turn: a retry may ask for a stream even if the first request did not."""


def key_of(chat: dict[str, Any]) -> str:
    """What identifies a running request: the same one again joins its turn."""
    return canonical({name: value for name, value in chat.items() if not name.startswith("stream")})


WARY_TURNS = 8
"""How long a proxy that lost the lease of a session expects to lose it again, in turns of that session."""


class Begun(NamedTuple):
    """A turn with its intent on record."""

    prepared: Prepared
    prompt_ids: array[int]
    intent: Intent
    unfinished: Reply | None
    """What the aborted try of this same turn had sampled."""
    decode: Callable[[Sequence[int]], str] | None = None
    """Turns ids into text, if the tokenizer can."""
    responses: AbstractSet[str] = frozenset()
    """The ids of the answers on record; some engines give several answers the same id."""
    root: str = ""
    """The session that this one branched from, and so on, or itself: they share a prefix, and so an engine."""


def answered(lines: Iterable[LinearTrajectory], response: str) -> list[dict[str, Any]] | None:
    """The messages up to the answer with this id; None if there is none, an error if it could be several."""
    found: list[list[dict[str, Any]]] = []
    for line in lines:
        for anchor, record in zip(line.anchors, line.records, strict=False):
            messages = line.messages[:anchor]
            if record.response_id == response and messages not in found:
                found.append(messages)
    if len(found) > 1:
        raise InvalidInput(
            f"{len(found)} answers on record have the id {response!r:.100}: the engine gave it to each of them",
            hint="send the conversation itself, without previous_response_id",
        )
    return found[0] if found else None


class Live:
    """One session in memory; its first turn takes the lease. Its methods block, and run on threads, one at a time."""

    def __init__(
        self, rollout: Rollout, tokenizer: Tokenizer, lease_seconds: float, root: str, text_policy: Policy
    ) -> None:
        self.id = rollout.session.id
        self._root = root
        self._policies = {False: rollout.trajectory.policy, True: text_policy}
        """What chat turns and text turns may do."""
        self.rollout = rollout
        self.tokenizer = tokenizer
        self.lease_seconds = lease_seconds
        self.turn: asyncio.Task[str | Refusal] | None = None
        """The running turn; only the event loop uses this field."""
        self.flow: Flow | None = None
        """What that turn has said so far, if its engine streams."""
        self.asked: dict[str, Any] | None = None
        """The request of that turn."""
        self._asked_key: str | None = None
        """Its key, once it was needed: a turn that runs alone needs none."""
        self.users = 0
        """How many requests are using it."""
        self.has_open_turn = False
        """Whether a turn began here and its end is not on record."""
        self._lock = Lock()
        self._responses: set[str] = set()
        self._looked_at = 0
        """How many turns there were when their answers were added to these ids."""
        self._wary = 0
        """For how many turns to look first whether the lease is still ours: to lose it costs a refused step."""

    @property
    def holder(self) -> dict[str, object]:
        """The holder of its lease: this handle."""
        lease = self.rollout.session.lease
        return lease.holder if lease else {}

    @property
    def is_idle(self) -> bool:
        """Whether no request uses it."""
        return self.turn is None and not self.users

    def asks(self, key: str) -> bool:
        """Whether the running turn has the request with this key."""
        if self.asked is None:
            return False
        if self._asked_key is None:
            self._asked_key = key_of(self.asked)
        return self._asked_key == key

    def take(self, turn: asyncio.Task[str | Refusal], asked: dict[str, Any], flow: Flow | None) -> None:
        """A turn runs from now on."""
        self.turn, self.asked, self.flow, self._asked_key = turn, asked, flow, None

    def begin(self, request: dict[str, Any], *, takeover: bool = False, resample: bool = False) -> Begun | str:
        """Prepare a turn and record its intent; or return the recorded answer.

        Another proxy may have had the lease in the meantime. So a request is refused, and a recorded answer returned,
        only while the lease is still ours. If it is not, the lease is acquired again and the request judged again;
        between two turns of the other proxy, and in a session that no proxy has had, the intent takes it.
        """
        with self._lock:
            for look in (True,) if self._wary or self.rollout.session.lease is None else (False, True):
                try:
                    joining = self._joining() if look else None
                    return self._begin(request, resample=resample, joining=joining)
                except (LeaseLost, LogMoved):
                    self._wary = WARY_TURNS
            self.rollout.regain(takeover=takeover, lease_seconds=self.lease_seconds)
            return self._begin(request, resample=resample)

    def _joining(self) -> float | None:
        """For how many seconds the next intent takes the lease; None if it is ours, `LeaseLost` if it cannot."""
        self._wary = max(0, self._wary - 1)
        if not self.rollout.is_overtaken():
            return None
        if self.rollout.lane.run:
            self._wary = WARY_TURNS
        if not self.rollout.may_join():
            raise LeaseLost("another proxy has this session")
        return self.lease_seconds

    def _begin(self, request: dict[str, Any], *, resample: bool, joining: float | None = None) -> Begun | str:
        options = {name: value for name, value in request.items() if name not in _NOT_THE_TURN}
        asked = ChatRequest(request["messages"], request.get("tools"), options, resample=resample)
        model = str(request.get("model") or "")
        try:
            prepared = self._prepare(asked, request)
        except (InvalidInput, TokenizationFailed, TrajectoryMoved):
            self._must_be_current()
            raise
        if prepared.answer is not None:
            self._must_be_current()
            return prepared.answer
        unfinished, decode = self._unfinished(prepared), _decoder(self.tokenizer)
        intent = self.rollout.intend(prepared, model=model, joining=joining)
        self.has_open_turn = True
        return Begun(prepared, prepared.prompt_ids, intent, unfinished, decode, self._known_responses(), self._root)

    def _known_responses(self) -> AbstractSet[str]:
        """The ids of the answers on record, and perhaps of some that were replaced: a turn looks at the last ones."""
        records = self.rollout.trajectory.records
        first = max(0, min(self._looked_at, len(records)) - ROLLBACK_LIMIT)
        self._responses.update(record.response_id for record in records[first:])
        self._looked_at = len(records)
        return self._responses

    def _prepare(self, asked: ChatRequest, request: dict[str, Any]) -> Prepared:
        trajectory, text = self.rollout.trajectory, "prompt" in request
        if is_text(trajectory) not in (None, text):
            has, wants = ("text", "chat") if is_text(trajectory) else ("chat", "text")
            raise InvalidInput(f"this session has {has} turns; it cannot have {wants} turns too")
        trajectory.policy = self._policies[text]
        if text:
            with hook("tokenizer", TokenizationFailed):
                asked, tokenizer = text_turn(trajectory, self.tokenizer, request, asked)
            return self.rollout.prepare(asked, tokenizer)
        return self.rollout.prepare(asked, self.tokenizer)

    def _must_be_current(self) -> None:
        if not self.rollout.is_current:
            raise LeaseLost("another proxy has had this session in the meantime")

    def _stepped(self, step: Callable[[], T]) -> T:
        """Run a step that needs the lease, on all that is on record; if the lease is not ours, acquire it first."""
        with self._lock:
            if self.rollout.is_current:
                with suppress(LeaseLost):
                    return step()
            self.rollout.regain(lease_seconds=self.lease_seconds)
            return step()

    def _unfinished(self, prepared: Prepared) -> Reply | None:
        record = self.rollout.trajectory.provisional
        if record is None or (record.base, record.fingerprint) != (prepared.base, prepared.fingerprint):
            return None
        if (record.keep, record.prompt) != (prepared.keep, prepared.tail):
            return None  # the engine had rendered a different prompt
        return Reply(
            record.message, list(record.output), list(record.logprobs), record.finish,
            weight_versions=record.weight_versions, abort_cause=record.cause, response_id=record.response_id,
        )  # fmt: skip

    def arguments(self) -> dict[str, list[str]]:
        """The arguments of the recorded calls, by the id of the call."""
        with self._lock:
            return arguments_of(self.rollout.trajectory.messages)

    def conversation(self, response: str) -> list[dict[str, Any]]:
        """The messages up to the recorded answer with this id."""
        with self._lock:
            for _look in range(2):
                found = answered([self.rollout.trajectory], response)
                if found is not None:
                    return found
                self.rollout.refresh()  # another proxy may have answered it
        raise InvalidInput(f"this session has no response {response!r:.100}")

    def commit(self, intent: Intent, reply: Reply) -> None:
        """Record a reply as committed."""
        with self._ending():
            self.rollout.end(intent, reply)

    def abort(self, intent: Intent, reply: Reply) -> None:
        """Record an aborted reply as provisional."""
        with self._ending():
            self.rollout.abort(intent, reply)

    def stream(self, intent: Intent, ids: Sequence[int], logprobs: Sequence[float], weights: Sequence[Span]) -> None:
        """Record what the engine has streamed since the last time."""
        with self._lock:
            self.rollout.stream(intent, ids, logprobs, weights)

    def fail(self, intent: Intent, reason: str) -> None:
        """Record that the engine failed."""
        with self._ending():
            self.rollout.fail(intent, reason)

    def withdraw(self, intent: Intent, reason: str) -> None:
        """Withdraw an intent."""
        with self._ending():
            self.rollout.withdraw(intent, reason)

    @contextmanager
    def _ending(self) -> Iterator[None]:
        with self._lock:
            yield
            self.has_open_turn = False

    def fold(self) -> None:
        """Fold what was recorded last. Steps return before that: until the next one there is time for it."""
        with self._lock:
            self.rollout.session.head, self.rollout.lane  # noqa: B018  # reading them folds

    def renew(self, seconds: float) -> None:
        """Renew the lease for so many seconds from now."""
        with self._lock:
            self.rollout.renew(seconds)

    @contextmanager
    def seen(self) -> Iterator[Lane]:
        """Its lane with all that is on record; nothing changes it meanwhile."""
        with self._lock:
            self.rollout.session.refresh()
            yield self.rollout.refresh().lane

    def describe(self, *, tokens: bool) -> dict[str, Any]:
        """What is on record, as JSON."""
        with self._lock:
            self.rollout.session.refresh()  # another proxy may have continued it
            lane = self.rollout.refresh().lane
            if lane.retired is not None:
                refuse_retired(self.rollout.session)
            return describe(self.rollout.session, lane, tokens=tokens)

    def samples(self, options: dict[str, Any], *, empty: bool = False) -> dict[str, Any]:
        """Freeze the samples and return them: the same bytes at every read. With `empty`, there may be none."""
        frozen = self._stepped(partial(self._freeze, options, empty=empty))
        with self._lock:
            self.rollout.refresh()  # a reward may have come from another process
            made = self.rollout.samples() if self.rollout.lane.standing() else []
        return {
            "session_id": self.id,
            "digest": frozen.digest,
            "samples": [
                sample.about()
                | {name: getattr(sample, name).tolist() for name in ("tokens", "loss_mask", "logprobs", "provenance")}
                for sample in made
            ],
        }

    def _freeze(self, options: dict[str, Any], *, empty: bool) -> Frozen:
        """Freeze the samples, unless they could not be delivered: a frozen session accepts no more turns."""
        for record in self.rollout.lane.standing():
            if not np.isfinite(np.frombuffer(record.logprobs, np.float32)).all():
                raise AssemblyFailed(
                    "a recorded logprob is not finite, which JSON cannot carry", hint="export the session to a file"
                )
        return self.rollout.freeze(empty=empty, **options)

    def acknowledge(self, digest: str) -> None:
        """Record that the trainer has the samples, and retire the session."""

        def both() -> None:
            self.rollout.acknowledge(digest)
            self.rollout.retire("handed over")

        self._stepped(both)

    def delete(self) -> None:
        """Retire the session without samples; its record is kept, and its id is never reused."""
        self._stepped(lambda: self.rollout.retire("deleted", unacknowledged=True))

    def leave(self) -> None:
        """Release the lease."""
        with self._lock:
            self.rollout.leave()


def _decoder(tokenizer: Tokenizer) -> Callable[[Sequence[int]], str] | None:
    """What turns ids into text, if the tokenizer can. A turn whose ids it cannot decode fails."""
    text_of = getattr(tokenizer, "text_of", None)
    if text_of is None:
        return None

    def decode(ids: Sequence[int]) -> str:
        with hook("tokenizer", BadReply):
            return str(text_of(ids))

    return decode


def load(
    records: SessionStore,
    id: str,
    tokenizer: Tokenizer,
    policy: Policy,
    *,
    lease_seconds: float,
    text_policy: Policy | None = None,
    takeover: bool = False,
    at_once: bool = False,
) -> Live:
    """Load a session from its log; with `takeover`, or `at_once`, acquire the lease of its lane too.

    `text_policy` is for turns without messages, if it is another one.
    """
    rollout = share_rollout(records, id, policy=policy)
    if takeover or at_once:
        rollout.regain(takeover=takeover, lease_seconds=lease_seconds)
    return Live(rollout, tokenizer, lease_seconds, _root_of(records, rollout.session.head), text_policy or policy)


def _root_of(records: SessionStore, head: Head) -> str:
    """The session from which this one branched, and so on."""
    while parent := head.parent:
        try:
            head = records.head(parent)
        except SessionNotFound:
            return parent
    return head.session


def is_acknowledged(records: SessionStore, id: str, digest: str) -> bool:
    """Whether the trainer has acknowledged these samples; their session is retired since."""
    try:
        lane = read_lane(records.get(id, agent=POLICY_AGENT))
    except PayloadErased:
        return False
    return bool(lane.acknowledged and lane.frozen and lane.frozen.digest == digest)


def describe(session: Session, lane: Lane, *, tokens: bool) -> dict[str, Any]:
    """A session's record: its turns, which one is provisional, and its metadata."""
    trajectory = lane.trajectory
    return {
        "session_id": session.id,
        "name": session.name,
        "metadata": session.views.facts.metadata,
        "head": trajectory.head,
        "discarded": {"turns": len(lane.discarded), "tokens": sum(lane.discarded)},
        "turn_under_way": lane.open is not None,
        "tokens_so_far": 0 if lane.open is None else lane.open.streamed,
        "frozen": None if lane.frozen is None else lane.frozen.digest,
        "messages": trajectory.messages,
        "records": [
            _about(record, provisional=record is trajectory.provisional, tokens=tokens) for record in trajectory.records
        ],
    }


def read(session: Session, agent: str, policy: Policy, *, tokens: bool) -> dict[str, Any]:
    """The same for a session that is not in memory, from its log and without taking its lease."""
    return describe(session, read_lane(session, agent, policy), tokens=tokens)


def _about(record: TurnRecord, *, provisional: bool, tokens: bool) -> dict[str, Any]:
    about = {
        "status": record.status,
        "finish": record.finish,
        "provisional": provisional,
        "base": record.base,
        "prompt_tokens": record.keep + len(record.prompt),
        "completion_tokens": len(record.output),
        "cause": record.cause,
        "weight_versions": [list(span) for span in record.weight_versions],
        "response_id": record.response_id,
        "message": record.message,
    }
    if tokens:
        about |= {
            "keep": record.keep,
            "prompt_ids": list(record.prompt),
            "output_ids": list(record.output),
            "logprobs": list(record.logprobs),
        }
    return about
