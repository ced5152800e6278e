"""A session in memory: its rollout, the one turn that may be under way, and what a turn's steps need on a thread."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.rollout.recording import open_rollout, read_lane
from onrecord.rollout.turns import Reply, Request

if TYPE_CHECKING:
    import asyncio
    from array import array

    from onrecord.rollout.lane import Lane
    from onrecord.rollout.recording import Intent, Rollout
    from onrecord.rollout.server.upstream import Refusal
    from onrecord.rollout.trajectory import Policy, Prepared
    from onrecord.rollout.turns import Record, Tokenizer
    from onrecord.session.handle import Session
    from onrecord.session.session_store import SessionStore

_NOT_THE_TURN = ("messages", "tools", "stream", "stream_options")
"""How a client wants its answer is not part of what it asks for: a retry may ask for a stream this time."""


class Begun(NamedTuple):
    """A turn whose intent is on record."""

    prepared: Prepared
    prompt_ids: array[int]
    intent: Intent
    unfinished: Reply | None
    """What an earlier try of this very turn had sampled when it was aborted."""


class Live:
    """One session, held by this proxy. Its methods block, and run on threads, one at a time."""

    def __init__(self, rollout: Rollout, tokenizer: Tokenizer) -> None:
        self.id = rollout.session.id
        self.rollout = rollout
        self.tokenizer = tokenizer
        self.holder = rollout.session.lease.holder if rollout.session.lease else {}
        self.turn: asyncio.Task[str | Refusal] | None = None
        """The turn under way; only the event loop looks at it."""
        self.asked: object = None
        """What that turn was asked for."""
        self.users = 0
        """How many requests are busy with it."""
        self._lock = Lock()

    @property
    def is_idle(self) -> bool:
        """Whether nobody is busy with it."""
        return self.turn is None and not self.users

    @property
    def has_open_turn(self) -> bool:
        """Whether an intent is on record whose end is not."""
        return self.rollout.lane.open is not None

    def begin(self, request: dict[str, Any]) -> Begun | str:
        """Prepare a turn and put its intent on record; or give the answer that is there already."""
        options = {name: value for name, value in request.items() if name not in _NOT_THE_TURN}
        asked = Request(request["messages"], request.get("tools"), options)
        with self._lock:
            prepared = self.rollout.prepare(asked, self.tokenizer)
            if prepared.answer is not None:
                return prepared.answer
            intent = self.rollout.intend(prepared, model=str(request.get("model") or ""))
            return Begun(prepared, prepared.prompt_ids, intent, self._unfinished(prepared))

    def _unfinished(self, prepared: Prepared) -> Reply | None:
        record = self.rollout.trajectory.provisional
        if record is None or (record.base, record.fingerprint) != (prepared.base, prepared.fingerprint):
            return None
        if (record.keep, record.prompt) != (prepared.keep, prepared.tail):
            return None  # the engine had rendered another prompt than this one
        return Reply(
            record.message, list(record.output), list(record.logprobs), record.finish,
            weight_versions=record.weight_versions, abort_cause=record.cause, response_id=record.response_id,
        )  # fmt: skip

    def commit(self, intent: Intent, reply: Reply) -> None:
        """Put a reply on record: from here on it counts."""
        with self._lock:
            self.rollout.commit(intent, reply)

    def abort(self, intent: Intent, reply: Reply) -> None:
        """Put an aborted reply on record, as provisional."""
        with self._lock:
            self.rollout.abort(intent, reply)

    def fail(self, intent: Intent, reason: str) -> None:
        """Put on record that the engine failed."""
        with self._lock:
            self.rollout.fail(intent, reason)

    def withdraw(self, intent: Intent, reason: str) -> None:
        """Take an intent back that came to nothing."""
        with self._lock:
            self.rollout.withdraw(intent, reason)

    def renew(self, seconds: float) -> None:
        """Keep the lane for so long from now on."""
        with self._lock:
            self.rollout.renew(seconds)

    def describe(self, *, tokens: bool) -> dict[str, Any]:
        """What is on record, for whoever asks."""
        with self._lock:
            return describe(self.rollout.session, self.rollout.lane, tokens=tokens)

    def samples(self, options: dict[str, Any]) -> dict[str, Any]:
        """Freeze the samples, and give them out: the same bytes however often they are read."""
        with self._lock:
            frozen = self.rollout.freeze(**options)
            made = self.rollout.samples()
        return {
            "session_id": self.id,
            "digest": frozen.digest,
            "samples": [
                sample.about()
                | {name: getattr(sample, name).tolist() for name in ("tokens", "loss_mask", "logprobs", "provenance")}
                for sample in made
            ],
        }

    def acknowledge(self, digest: str) -> None:
        """The trainer has the samples: the session is over."""
        with self._lock:
            self.rollout.acknowledge(digest)
            self.rollout.retire("handed over")

    def delete(self) -> None:
        """Give the session up; its record is kept, and its id never comes back."""
        with self._lock:
            self.rollout.retire("deleted", unacknowledged=True)

    def leave(self) -> None:
        """Give the lane back."""
        with self._lock:
            self.rollout.leave()


def load(
    records: SessionStore,
    id: str,
    tokenizer: Tokenizer,
    policy: Policy,
    *,
    lease_seconds: float,
    takeover: bool = False,
) -> Live:
    """Bring a session in from its log, and take its lane."""
    rollout = open_rollout(records, id, policy=policy, create=False, takeover=takeover, lease_seconds=lease_seconds)
    return Live(rollout, tokenizer)


def describe(session: Session, lane: Lane, *, tokens: bool) -> dict[str, Any]:
    """A session's record: its turns, what is provisional among them, and its metadata."""
    trajectory = lane.trajectory
    return {
        "session_id": session.id,
        "name": session.name,
        "metadata": session.views.facts.metadata,
        "head": trajectory.head,
        "turn_under_way": lane.open is not None,
        "frozen": None if lane.frozen is None else lane.frozen.digest,
        "messages": trajectory.messages,
        "records": [
            _about(record, provisional=record is trajectory.provisional, tokens=tokens) for record in trajectory.records
        ],
    }


def read(session: Session, agent: str, policy: Policy, *, tokens: bool) -> dict[str, Any]:
    """The same of a session that is not in memory, from its log; its lane stays with whoever has it."""
    return describe(session, read_lane(session, agent, policy), tokens=tokens)


def _about(record: Record, *, provisional: bool, tokens: bool) -> dict[str, Any]:
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
