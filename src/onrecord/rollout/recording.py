"""Recording: a rollout on a session. Each step is durable before it is answered, and folded as a restart folds it.

    rollout = open_rollout(records, "task-17")
    prepared = rollout.prepare(request, tokenizer)      # looks, changes nothing
    intent = rollout.intend(prepared)                   # on disk before the engine is called
    rollout.commit(intent, reply)                       # or abort(intent, reply), or fail(intent, why)

One thread at a time uses a `Rollout`. Between processes the lane's lease decides: after another one took it, every step
here raises `LeaseLost` and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.errors import (
    Conflict,
    InvalidInput,
    SessionClosed,
    SessionFrozen,
    SessionNotFound,
    SessionRetired,
    TurnConflict,
)
from onrecord.log.names import is_ulid
from onrecord.log.store import LEASE_SECONDS
from onrecord.rollout.lane import LANE_KINDS, Lane, item_of, output_payload, prompt_payload
from onrecord.session.turns import refuse_exhausted, stop, usage_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onrecord.log.events import Draft, Event
    from onrecord.rollout.lane import Frozen
    from onrecord.rollout.samples import Sample
    from onrecord.rollout.trajectory import LinearTrajectory, Policy, Prepared
    from onrecord.rollout.turns import Record, Reply, Request, Tokenizer
    from onrecord.session.handle import Session
    from onrecord.session.records import Records

POLICY_AGENT = "policy"
"""The lane of a rollout where nobody names another."""
REASON_LIMIT = 2_000
"""How much of the reason of a failure is recorded, in characters."""


class Intent(NamedTuple):
    """A turn that is on record as begun: what it was prepared as, and the id its further events derive from."""

    prepared: Prepared
    id: str
    position: int
    model: str


def read_lane(session: Session, agent: str = POLICY_AGENT, policy: Policy | None = None) -> Lane:
    """The lane as it stands in the log, read in pages; takes no lease."""
    return Lane(agent, policy).fold(session.events(kinds=LANE_KINDS))


def open_rollout(
    records: Records,
    name: str,
    *,
    agent: str = POLICY_AGENT,
    policy: Policy | None = None,
    metadata: dict[str, Any] | None = None,
    create: bool = True,
    takeover: bool = False,
    lease_seconds: float = LEASE_SECONDS,
) -> Rollout:
    """Open a rollout for work: a new one, or the one of this name or id exactly as its last process left it.

    `SessionRetired` when it is over, for good; `SessionNotFound` when there is none and it is not to be made.
    """
    known = _known(records, name)
    if known is not None:
        refuse_retired(records.get(known, agent=agent))
    elif not create:
        raise SessionNotFound(f"there is no rollout {name!r:.100}")
    session = records.open(
        known or name, agent=agent, metadata=metadata, takeover=takeover, lease_seconds=lease_seconds
    )
    return Rollout(session, policy)


def refuse_retired(session: Session) -> None:
    """`SessionRetired` if this rollout was retired."""
    for event in session.events(kinds=("rollout.retired", "session.forked")):
        if event.kind == "rollout.retired" and event.session == session.id:
            raise _retired(session, str((event.data or {}).get("reason", "")))


def _known(records: Records, name: str) -> str | None:
    """The id of the session that has exactly this name or id: a beginning could be another rollout's."""
    if is_ulid(name.upper()):
        return records.store.head(name.upper()).session
    found = records.store.heads(project=records.project, name=name, limit=1)
    return found[0].session if found else None


def _retired(session: Session, reason: str) -> SessionRetired:
    return SessionRetired(f"rollout {session.name!r} was retired{f': {reason}' if reason else ''}")


class Rollout:
    """One session's lane as a trajectory, and the steps that put it on record. The session holds the lane's lease."""

    def __init__(self, session: Session, policy: Policy | None = None) -> None:
        self.session = session
        self.lane = read_lane(session, session.agent, policy)

    def __repr__(self) -> str:
        return f"<Rollout {self.session.name!r} {self.trajectory.head}>"

    @property
    def trajectory(self) -> LinearTrajectory:
        """Messages, committed turns, provisional tail."""
        return self.lane.trajectory

    def refresh(self) -> Rollout:
        """Fold in what is on record and not known here yet, for instance after an append whose outcome was unknown."""
        self.lane.fold(self.session.events(after=self.lane.position, kinds=LANE_KINDS))
        return self

    # Turns

    def prepare(self, request: Request, tokenizer: Tokenizer) -> Prepared:
        """The prompt ids of a request on this trajectory; nothing changes."""
        self._catch_up()
        self._refuse_ended()
        return self.trajectory.prepare(request, tokenizer)

    def intend(self, prepared: Prepared, *, model: str = "") -> Intent:
        """Put the intent of a turn on record before the engine is called: base, fingerprint, messages, prompt ids."""
        self._catch_up()
        self._refuse_ended()
        self.trajectory.check_version(prepared.expected_version)
        if prepared.answer is not None:
            raise TurnConflict("this prompt was already answered", hint="use that answer")
        if self.lane.open is not None:
            raise TurnConflict(
                f"a turn of this rollout has been open since position {self.lane.open.position}",
                hint="wait until it ends, then prepare again",
            )
        session, commits = self.session, self.lane.commits
        refuse_exhausted(session)
        base = commits[prepared.base - 1] if prepared.base else 0
        about = {"base": base, "turn": self.lane.turns + 1, "fingerprint": prepared.fingerprint}
        begun = session.draft("turn.begun", about)
        drafts = [begun]
        drafts += [
            session.draft("item.added", {"item": item_of(message)}, id=f"{begun.id}/{number}")
            for number, message in enumerate(prepared.appended, 1)
        ]
        drafts.append(session.draft("tokens.recorded", prompt_payload(prepared), id=f"{begun.id}/prompt"))
        first = self._append(drafts)[0]
        return Intent(prepared, begun.id, first.position, model)

    def commit(self, intent: Intent, reply: Reply) -> Record:
        """Commit a reply. Calling it again after a doubtful outcome commits it once."""
        record = self.trajectory.committed_record(intent.prepared, reply)
        self._end(intent, record, reply, "turn.committed", {})
        return self.trajectory.records[-1]

    def abort(self, intent: Intent, reply: Reply, *, reason: str = "") -> Record:
        """Keep an aborted reply as the provisional tail."""
        record = self.trajectory.provisional_record(intent.prepared, reply)
        self._end(intent, record, reply, "turn.aborted", {"reason": (reason or record.cause)[:REASON_LIMIT]})
        return self.trajectory.records[-1]

    def fail(self, intent: Intent, reason: str) -> None:
        """Put on record that the engine or the way to it failed; the trajectory stays where it was."""
        self._must_be_open(intent)
        data = {"reason": reason[:REASON_LIMIT], "failed": True}
        self._append([self._draft(intent, "turn.aborted", data, "end")])

    def withdraw(self, intent: Intent, reason: str) -> None:
        """Take an intent back that came to nothing, for instance because the engine refused the request as it is.

        No turn was given up, so none stands at the end of the samples: it is as if it had never been asked for.
        """
        self._must_be_open(intent)
        data = {"reason": reason[:REASON_LIMIT], "withdrawn": True}
        self._append([self._draft(intent, "turn.aborted", data, "end")])

    def _end(self, intent: Intent, record: Record, reply: Reply, kind: str, data: dict[str, Any]) -> None:
        self._must_be_open(intent)
        drafts = []
        if record.message is not None:
            drafts.append(self._draft(intent, "item.added", {"item": item_of(record.message)}, "reply"))
        drafts.append(self._draft(intent, "tokens.recorded", output_payload(intent.prepared, record, reply), "output"))
        # What an aborted turn used is used all the same.
        used = usage_of(intent.model or None, record.keep + len(record.prompt), len(record.output))
        drafts.append(self._draft(intent, "usage.recorded", used, "usage"))
        drafts.append(self._draft(intent, kind, data, "end"))
        self._append(drafts)

    def _draft(self, intent: Intent, kind: str, data: Any, part: str) -> Draft:
        """An event whose id follows from the turn's, so that a repeated step is the same step."""
        return self.session.draft(kind, data, id=f"{intent.id}/{part}", because=intent.position)

    def _append(self, drafts: Sequence[Draft]) -> list[Event]:
        try:
            events = self.session.append(*drafts, fenced=True)
        except SessionClosed:
            if self.refresh().lane.retired is not None:
                raise _retired(self.session, self.lane.retired or "") from None
            raise
        self.lane.fold(events)
        return events

    def _catch_up(self) -> None:
        """Know what the session knows: a pause ends a turn, and whoever retires a rollout need not hold its lane."""
        if self.session.behind:
            self.session.refresh()
        if self.session.head.position > self.lane.position:
            self.refresh()
            self.lane.position = max(self.lane.position, self.session.head.position)

    def _must_be_open(self, intent: Intent) -> None:
        if self.lane.open is None or self.lane.open.id != intent.id:
            raise TurnConflict(f"the turn begun at position {intent.position} is no longer open")

    def _refuse_ended(self) -> None:
        if self.lane.retired is not None:
            raise _retired(self.session, self.lane.retired)
        if self.lane.frozen is not None:
            raise SessionFrozen(f"the samples of rollout {self.session.name!r} are frozen; it accepts no more turns")

    # Hand-off

    def freeze(self, **options: Any) -> Frozen:
        """Fix the samples for the trainer: from here on every reader gets the same bytes.

        Options are `merge` and `max_seq_len` of `samples.assemble`, and are recorded. Freezing again changes nothing.
        """
        if not options.keys() <= {"merge", "max_seq_len"}:
            raise InvalidInput(f"samples are made with merge and max_seq_len, not {', '.join(sorted(options))}")
        if self.lane.retired is not None:
            raise _retired(self.session, self.lane.retired)
        if self.lane.frozen is None:
            if self.lane.open is not None:
                raise TurnConflict(
                    "a turn of this rollout is still open", hint="wait until it ends, or record its failure"
                )
            from onrecord.rollout.samples import assemble, digest_of

            made = assemble(self.lane.standing(), session=self.session.id, **options)
            data = {"digest": digest_of(made), "options": options, "count": len(made)}
            self._append([self.session.draft("samples.frozen", data)])
        return self._frozen()

    def samples(self) -> list[Sample]:
        """The frozen samples, made from the log again: the same bytes for every reader, until they are retired."""
        self._frozen()
        return lane_samples(self.session, self.lane)

    def acknowledge(self, digest: str) -> None:
        """The trainer has the samples of this digest, durably. Acknowledging again changes nothing."""
        frozen = self._frozen()
        if digest != frozen.digest:
            raise Conflict(f"the frozen samples have the digest {frozen.digest}, not {digest!r:.100}")
        if not self.lane.acknowledged:
            self._append([self.session.draft("samples.acknowledged", {"digest": digest}, because=frozen.position)])

    def retire(self, reason: str = "", *, unacknowledged: bool = False) -> None:
        """End the rollout for good; its record is kept. Without an acknowledgement only if that is said."""
        if self.lane.retired is not None:
            return
        if not self.lane.acknowledged and not unacknowledged:
            raise Conflict(
                f"nobody has acknowledged the samples of rollout {self.session.name!r}",
                hint="acknowledge their digest first, or retire it with unacknowledged=True to discard it",
            )
        data = {"reason": reason, "acknowledged": bool(self.lane.acknowledged)}
        stop(self.session, "session.closed", reason, self.session.draft("rollout.retired", data))
        self.refresh()

    def renew(self, seconds: float = LEASE_SECONDS) -> None:
        """Keep the lane through a long generation; every step renews it too."""
        if self.session.lease is not None:
            self.session.lease = self.session.store.renew(self.session.lease, seconds)

    def leave(self) -> None:
        """Give the lane back, for another process to go on with."""
        self.session.leave()

    def _frozen(self) -> Frozen:
        if self.lane.retired is not None:
            raise _retired(self.session, self.lane.retired)
        if self.lane.frozen is None:
            raise Conflict(f"the samples of rollout {self.session.name!r} are not frozen", hint="freeze them first")
        return self.lane.frozen


def lane_samples(session: Session, lane: Lane, **options: Any) -> list[Sample]:
    """The samples of a lane as it stands on record: the frozen ones if it was frozen, whatever the options say then."""
    from onrecord.rollout.samples import assemble, check_digest

    if lane.frozen is None:
        return assemble(lane.standing(), session=session.id, **options)
    made = assemble(lane.standing(), session=session.id, **lane.frozen.options)
    check_digest(made, lane.frozen.digest)
    return made
