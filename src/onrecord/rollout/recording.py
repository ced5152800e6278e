"""Recording: a rollout on a session. Each step is durable before it returns, and folds exactly as after a restart.

    rollout = open_rollout(records, "task-17")
    prepared = rollout.prepare(request, tokenizer)      # only reads
    intent = rollout.intend(prepared)                   # on disk before the engine is called
    rollout.commit(intent, reply)                       # or abort(intent, reply), or fail(intent, why)

Use a `Rollout` from one thread at a time. Between processes the lane's lease decides: once another process has taken
it, every step here raises `LeaseLost` and changes nothing.
"""

from __future__ import annotations

from contextlib import suppress
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack

from onrecord.errors import (
    Conflict,
    DamagedLog,
    IdReused,
    InvalidInput,
    SessionClosed,
    SessionNotFound,
    TurnConflict,
)
from onrecord.log.head import refuse_ended
from onrecord.log.names import check_name, is_ulid
from onrecord.log.store import LEASE_SECONDS
from onrecord.rollout.ended import refuse_frozen, refuse_retired, retired
from onrecord.rollout.lane import LANE_KINDS, REWARD, Lane, item_of, output_payload, partial_payload, prompt_payload
from onrecord.rollout.matching import arguments_digest
from onrecord.session.budget import usage_of
from onrecord.session.turns import refuse_exhausted, stop

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onrecord.log.events import Draft, Event
    from onrecord.rollout.lane import Frozen
    from onrecord.rollout.samples import Sample
    from onrecord.rollout.trajectory import LinearTrajectory, Policy, Prepared
    from onrecord.rollout.turns import ChatRequest, Reply, Span, Tokenizer, TurnRecord
    from onrecord.session.handle import Session
    from onrecord.session.session_store import SessionStore
    from onrecord.views.values import Json

POLICY_AGENT = "policy"
"""The default lane of a rollout."""
REASON_LIMIT = 2_000
"""The longest recorded reason of a failure, in characters."""


class SampleOptions(TypedDict, total=False):
    """How samples are made; `samples.assemble` explains the options."""

    merge: bool
    max_seq_len: int | None
    past_length: bool


SAMPLE_OPTIONS = tuple(SampleOptions.__annotations__)


class Intent(NamedTuple):
    """A turn that is on record as begun: its prepared request, and the id from which its later event ids derive."""

    prepared: Prepared
    id: str
    position: int
    model: str


def read_lane(session: Session, agent: str = POLICY_AGENT, policy: Policy | None = None) -> Lane:
    """The lane from the log, read in pages; takes no lease."""
    return Lane(agent, policy).fold(session.events(kinds=LANE_KINDS))


def open_rollout(
    records: SessionStore,
    name: str,
    *,
    agent: str = POLICY_AGENT,
    policy: Policy | None = None,
    metadata: Mapping[str, Json] | None = None,
    create: bool = True,
    takeover: bool = False,
    lease_seconds: float = LEASE_SECONDS,
) -> Rollout:
    """Open a rollout for work: a new one, or the one with this name or id, exactly as its last process left it.

    Raises `SessionRetired` if it was retired, and `SessionNotFound` if it does not exist and `create` is false.
    """
    known = _known(records, name)
    if known is None and not create:
        raise SessionNotFound(f"there is no rollout {name!r:.100}")
    if known is not None:
        refuse_retired(records.get(known, agent=agent))
    session = records.open(
        known or name, agent=agent, metadata=metadata, takeover=takeover, lease_seconds=lease_seconds
    )
    return Rollout(session, policy)


def share_rollout(records: SessionStore, name: str, *, policy: Policy | None = None) -> Rollout:
    """A rollout for a shared holder, without its lease: the first intent takes it (`may_join`), or `regain` does.

    Shared holders let each other take the lease between turns, as proxies behind a load balancer do.
    """
    known = _known(records, name)
    if known is None:
        raise SessionNotFound(f"there is no rollout {name!r:.100}")
    session = records.get(known, agent=POLICY_AGENT)
    refuse_retired(session)
    refuse_ended(session.head)
    return Rollout(session, policy)


def check_chain(session: Session) -> None:
    """Refuse to make samples from a log that is not exactly what was written."""
    report = session.verify()
    if report.problems:
        first = report.problems[0]
        raise DamagedLog(
            f"the log of {session.name!r} is damaged at position {first.position}: {first.detail}",
            position=first.position,
        )


def _known(records: SessionStore, name: str) -> str | None:
    """The id of the session with exactly this name or id: a prefix could belong to another rollout."""
    if is_ulid(name.upper()):
        return records.head(name.upper()).session
    found = records.named(name)
    return found.session if found else None


class Rollout:
    """One session's lane as a trajectory, and the steps that record it. The session holds the lane's lease."""

    def __init__(self, session: Session, policy: Policy | None = None) -> None:
        self.session, self._log = session, session.log
        self._lane = read_lane(session, session.agent, policy)
        self._fresh: list[Event] = []
        """What this handle recorded and has not folded yet: a step is durable, and returns, before it is folded."""

    def __repr__(self) -> str:
        return f"<Rollout {self.session.name!r} {self.trajectory.head}>"

    @property
    def lane(self) -> Lane:
        """The fold of all that this handle has recorded or read."""
        if self._fresh:
            self._lane.fold(self._fresh)
            self._fresh = []
        return self._lane

    @property
    def trajectory(self) -> LinearTrajectory:
        """Messages, committed turns, provisional tail."""
        return self.lane.trajectory

    def refresh(self) -> Rollout:
        """Fold new events from the log, for instance after an append with an unknown outcome."""
        self.lane.fold(self.session.events(after=self.lane.position, kinds=LANE_KINDS))
        return self

    @property
    def is_current(self) -> bool:
        """Whether this handle still has the lease it acquired; if not, its view may be older than the log."""
        held = self.session.lease
        return held is not None and any(
            (lease.lane, lease.epoch) == (held.lane, held.epoch) for lease in self._log.leases()
        )

    def is_overtaken(self) -> bool:
        """Whether the log says that another one has the lane, or none ever had; folds what is new.

        A handle that lost the lane needs that anyway. A lease that was taken a moment ago may not be on record yet: the
        next step is then refused.
        """
        return self._read_on().run != self.session.run

    def _read_on(self) -> Lane:
        """The lane with all that is on record: one read, for the session's views too."""
        self._catch_up()
        return self.lane.fold(self._log.read_on())

    def may_join(self) -> bool:
        """Once `is_overtaken`: whether the lane has no holder yet, or a shared one between turns, as of what was read.

        Then the next intent may take the lease (`joining`): behind a load balancer every other turn does.
        """
        self.session.lease = self.session.run = None  # there is nothing to release
        return self.lane.open is None and (self.lane.shared or not self.lane.run)

    def regain(self, *, takeover: bool = False, lease_seconds: float = LEASE_SECONDS) -> Rollout:
        """Acquire the lease as a shared holder, also from one that has no turn running; folds what is new."""
        if self.is_current:
            self.session.leave()
        if self._read_on().retired is not None:
            raise retired(self.session, self.lane.retired or "")
        free = self.may_join() and self.lane.shared
        self._keep(self._log.join(takeover=takeover or free, seconds=lease_seconds, shared=True))
        return self

    # Turns

    def prepare(self, request: ChatRequest, tokenizer: Tokenizer) -> Prepared:
        """The prompt ids of a request on this trajectory; nothing changes."""
        self._catch_up()
        self._refuse_ended()
        return self.trajectory.prepare(request, tokenizer)

    def intend(self, prepared: Prepared, *, model: str = "", joining: float | None = None) -> Intent:
        """Record the intent of a turn before the engine is called: base, fingerprint, messages, prompt ids.

        `joining`: for how many seconds to take the lease in the same step, if `may_join`; `LogMoved` if another one has
        recorded something since, and then nothing is recorded.
        """
        self._catch_up()
        self._refuse_ended()
        self.trajectory.check_version(prepared.expected_version)
        if prepared.answer is not None:
            raise TurnConflict("this request already has an answer; no turn begins", hint="use prepared.answer")
        if self.lane.open is not None:
            raise TurnConflict(
                f"a turn of this rollout has been running since position {self.lane.open.position}",
                hint="wait until it ends, then prepare again",
            )
        log, commits = self._log, self.lane.commits
        refuse_exhausted(self.session)
        base = commits[prepared.base - 1] if prepared.base else 0
        about: dict[str, Any] = {"base": base, "turn": self.lane.turns + 1, "fingerprint": prepared.fingerprint}
        about |= {"tools": prepared.tools} if prepared.tools else {}
        about |= {"template": dict(prepared.template)} if prepared.template else {}
        about["arguments"] = arguments_digest(prepared.template)
        begun = log.draft("turn.begun", about)
        drafts = [begun]
        drafts += [
            log.draft("item.added", {"item": item_of(message)}, id=f"{begun.id}/{number}")
            for number, message in enumerate(prepared.appended, 1)
        ]
        drafts.append(log.draft("tokens.recorded", prompt_payload(prepared), id=f"{begun.id}/prompt"))
        first = self._append(drafts, joining)[0]
        return Intent(prepared, begun.id, first.position, model)

    def commit(self, intent: Intent, reply: Reply) -> TurnRecord:
        """Commit a reply. A second call after an unknown outcome does not commit it twice."""
        self.end(intent, reply)
        return self.trajectory.records[-1]

    def end(self, intent: Intent, reply: Reply) -> None:
        """The same for a caller that has an answer to send first: what was committed is folded with the next read."""
        record = self.trajectory.committed_record(intent.prepared, reply)
        self._end(intent, record, reply, "turn.committed", {})

    def abort(self, intent: Intent, reply: Reply, *, reason: str = "") -> TurnRecord:
        """Keep an aborted reply as the provisional tail."""
        record = self.trajectory.provisional_record(intent.prepared, reply)
        self._end(intent, record, reply, "turn.aborted", {"reason": (reason or record.cause)[:REASON_LIMIT]})
        return self.trajectory.records[-1]

    def stream(
        self, intent: Intent, ids: Sequence[int], logprobs: Sequence[float], weights: Sequence[Span] = ()
    ) -> None:
        """Record what the engine has streamed since the last call, before the reply is whole.

        `commit` and `abort` get the whole reply and repeat it. If neither comes, this is the provisional tail.
        """
        self._must_be_open(intent)
        number = len(self.lane.open.partial) if self.lane.open else 0
        data = partial_payload(ids, logprobs, weights)
        self._append([self._draft(intent, "tokens.recorded", data, f"partial/{number}")])

    def fail(self, intent: Intent, reason: str) -> None:
        """Record that the engine, or the connection to it, failed; the trajectory does not change."""
        self._must_be_open(intent)
        data = {"reason": reason[:REASON_LIMIT], "failed": True}
        self._append([self._draft(intent, "turn.aborted", data, "end")])

    def withdraw(self, intent: Intent, reason: str) -> None:
        """Withdraw an intent, for instance because the engine refused the request.

        No turn was aborted, so the samples end as if the request had never been made.
        """
        self._must_be_open(intent)
        data = {"reason": reason[:REASON_LIMIT], "withdrawn": True}
        self._append([self._draft(intent, "turn.aborted", data, "end")])

    def _end(self, intent: Intent, record: TurnRecord, reply: Reply, kind: str, data: dict[str, Any]) -> None:
        self._must_be_open(intent)
        drafts = []
        if record.message is not None:
            drafts.append(self._draft(intent, "item.added", {"item": item_of(record.message)}, "reply"))
        drafts.append(self._draft(intent, "tokens.recorded", output_payload(intent.prepared, record, reply), "output"))
        # An aborted turn used its tokens too.
        used = usage_of(intent.model or None, record.keep + len(record.prompt), len(record.output))
        drafts.append(self._draft(intent, "usage.recorded", used, "usage"))
        drafts.append(self._draft(intent, kind, data, "end"))
        self._append(drafts)

    def _draft(self, intent: Intent, kind: str, data: Any, part: str) -> Draft:
        """An event with an id derived from the turn's, so that a repeated step is the same step."""
        return self._log.draft(kind, data, id=f"{intent.id}/{part}", because=intent.position)

    def _append(self, drafts: Sequence[Draft], joining: float | None = None) -> list[Event]:
        try:
            if joining is None:
                events = self._log.append(*drafts, fenced=True)
            else:
                events = self._log.join(*drafts, takeover=self.lane.shared, seconds=joining, shared=True)
        except SessionClosed:
            if self.refresh().lane.retired is not None:
                raise retired(self.session, self.lane.retired or "") from None
            raise
        self._keep(events)
        return events[-len(drafts) :]

    def _keep(self, events: list[Event]) -> None:
        """Keep what was recorded until the lane is read."""
        last = self._fresh[-1].position if self._fresh else self._lane.position
        if events[0].position > last + 1:
            self.refresh()  # another process recorded something in between, a reward for instance
        self._fresh += events

    def _catch_up(self) -> None:
        """Fold new events: a pause ends a turn, and a process without the lease may retire a rollout."""
        self._log.catch_up()
        if self.session.head.position > self.lane.position:
            self.refresh()
            self.lane.position = max(self.lane.position, self.session.head.position)

    def _must_be_open(self, intent: Intent) -> None:
        if self.lane.open is None or self.lane.open.id != intent.id:
            raise TurnConflict(f"the turn that began at position {intent.position} is no longer open")

    def _refuse_ended(self) -> None:
        if self.lane.retired is not None:
            raise retired(self.session, self.lane.retired)
        refuse_frozen(self.session.name, self.lane)

    # Samples

    def freeze(self, *, empty: bool = False, **options: Unpack[SampleOptions]) -> Frozen:
        """Freeze the samples for the trainer: from now on every reader gets the same bytes.

        Options are `merge`, `max_seq_len` and `past_length` of `samples.assemble`, and are recorded. Freezing again
        changes nothing. With `empty`, a line of a tree is frozen without a turn too: it accepts none from now on.
        """
        if not options.keys() <= set(SAMPLE_OPTIONS):
            known = ", ".join(SAMPLE_OPTIONS)
            raise InvalidInput(f"the options of samples are {known}, not {', '.join(sorted(options))}")
        if self.lane.retired is not None:
            raise retired(self.session, self.lane.retired)
        if self.lane.frozen is None:
            if self.lane.open is not None:
                raise TurnConflict(
                    "a turn of this rollout is running", hint="wait until it ends, or record its failure"
                )
            from onrecord.rollout.samples import digest_of

            check_chain(self.session)
            made = [] if empty and not self.lane.standing() else _assembled(self.session, self.lane, **options)
            data = {"digest": digest_of(made), "options": options, "count": len(made)}
            self._append([self._log.draft("samples.frozen", data)])
        return self._frozen()

    def samples(self) -> list[Sample]:
        """The frozen samples, computed from the log: the same bytes for every reader, until the rollout is retired."""
        self._frozen()
        check_chain(self.session)
        return lane_samples(self.session, self.lane)

    def acknowledge(self, digest: str) -> None:
        """Record that the trainer has the samples with this digest. Acknowledging again changes nothing."""
        frozen = self._frozen()
        if digest != frozen.digest:
            raise Conflict(f"the frozen samples have the digest {frozen.digest}, not {digest!r:.100}")
        if not self.lane.acknowledged:
            self._append([self._log.draft("samples.acknowledged", {"digest": digest}, because=frozen.position)])

    def retire(self, reason: str = "", *, unacknowledged: bool = False) -> None:
        """End the rollout for good; its record is kept. `unacknowledged=True` allows it without an acknowledgement."""
        if self.lane.retired is not None:
            return
        if not self.lane.acknowledged and not unacknowledged:
            raise Conflict(
                f"the samples of rollout {self.session.name!r} are not acknowledged",
                hint="acknowledge their digest first, or retire it with unacknowledged=True to give it up",
            )
        data = {"reason": reason, "acknowledged": bool(self.lane.acknowledged)}
        stop(self.session, "session.closed", reason, self._log.draft("rollout.retired", data))
        self.refresh()

    def reward(self, reward: float, *, turn: int | None = None, name: str = REWARD) -> bool:
        """Record a reward of the whole rollout, or of a committed turn (0 is the first); false if it is on record.

        It needs no lease, and may come after the samples were frozen. Another value under the same name is a conflict.
        """
        self.session.refresh()
        self.refresh()
        return record_reward(self.session, self.lane, reward, turn=turn, name=name)

    def branch(self, name: str, *, turns: int | None = None) -> Session:
        """A new session that shares the first committed turns of this rollout (all by default)."""
        self.session.refresh()
        return branch(self.session, self.refresh().lane, name, turns)

    def renew(self, seconds: float = LEASE_SECONDS) -> None:
        """Renew the lease during a long generation; every step renews it too."""
        self.session.renew(seconds)

    def leave(self) -> None:
        """Release the lease, so that another process can continue."""
        self.session.leave()

    def _frozen(self) -> Frozen:
        if self.lane.retired is not None:
            raise retired(self.session, self.lane.retired)
        if self.lane.frozen is None:
            raise Conflict(f"the samples of rollout {self.session.name!r} are not frozen", hint="freeze them first")
        return self.lane.frozen


def branch(session: Session, lane: Lane, name: str, turns: int | None = None) -> Session:
    """A new rollout that shares the first `turns` committed turns of this one (all if None); nothing is copied.

    Frozen samples have no new branches: they would replace what a trainer may have.
    It has its own requests, samples and rewards: an edit deep in the history, a compacted context or one of several
    answers to the same prompt is a branch, and each branch is a sample of its own.
    """
    count = len(lane.commits) if turns is None else turns
    if type(count) is not int or not 0 <= count <= len(lane.commits):
        raise InvalidInput(f"the rollout has {len(lane.commits)} committed turns, not {turns!r:.80}")
    refuse_frozen(session.name, lane)
    new = session.fork(name, lane.commits[count - 1] if count else 1, agent=lane.agent)
    # Who freezes a tree freezes a line first and then looks for its branches. If the line is frozen by now, that look
    # may have come before this branch.
    lane.fold(session.events(after=lane.position, kinds=LANE_KINDS))
    if lane.frozen is not None:
        Rollout(new).retire("it was branched from frozen samples", unacknowledged=True)
    refuse_frozen(session.name, lane)
    return new


def lane_samples(session: Session, lane: Lane, **options: Unpack[SampleOptions]) -> list[Sample]:
    """The samples of a lane. If it was frozen, these are the frozen ones, and `options` are ignored."""
    from onrecord.rollout.samples import check_digest

    if lane.frozen is None:
        return _assembled(session, lane, **options)
    made = _assembled(session, lane, **lane.frozen.options)
    check_digest(made, lane.frozen.digest)
    return made


def _assembled(session: Session, lane: Lane, **options: Unpack[SampleOptions]) -> list[Sample]:
    from onrecord.rollout.samples import of_lane

    return of_lane(lane, session.id, session.views.facts.metadata, **options)


def record_reward(session: Session, lane: Lane, reward: float, *, turn: int | None = None, name: str = REWARD) -> bool:
    """Record a reward exactly once; false if it was on record already."""
    if lane.retired is not None:
        raise retired(session, lane.retired)
    if isinstance(reward, bool) or not isinstance(reward, int | float) or not _is_finite(reward):
        raise InvalidInput(f"a reward must be a finite number, not {reward!r:.80}")
    if turn is not None and (type(turn) is not int or not 0 <= turn < len(lane.commits)):
        has = f"turns 0 to {len(lane.commits) - 1}" if lane.commits else "no committed turn"
        raise InvalidInput(f"the rollout has {has}, so it cannot reward turn {turn!r:.80}")
    check_name(name, "reward")
    reward, position = float(reward), 0 if turn is None else lane.commits[turn]
    is_new = (position, name) not in lane.rewards
    if is_new:
        data = {"agent": lane.agent, "name": name, "reward": reward} | ({"turn": position} if position else {})
        # With the session's own id: a branch inherits the ids of the log that it shares.
        id = f"reward/{session.id}/{lane.agent}/{position}/{name}"
        with suppress(IdReused):  # another process recorded a different one a moment ago
            session.log.append(session.log.draft("reward.recorded", data, id=id))
        lane.fold(session.events(after=lane.position, kinds=LANE_KINDS))
    if (known := lane.rewards[position, name]) != reward:
        was, now = (str(one).removesuffix(".0") for one in (known, reward))  # with all their digits
        raise Conflict(
            f"the {name} of {'the rollout' if turn is None else f'turn {turn}'} is {was} on record, not {now}",
            hint="a reward is recorded once; record another one under another name",
        )
    return is_new


def _is_finite(number: float) -> bool:
    try:
        return isfinite(number)
    except OverflowError:  # an integer that no float can hold
        return False
