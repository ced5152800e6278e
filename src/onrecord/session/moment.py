"""Moments: the session as it was at a position, what changed between two of them, forks, contexts and verification."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onrecord import machine
from onrecord.errors import EventNotFound, InvalidInput
from onrecord.log import head as heads
from onrecord.log.codec import open_records
from onrecord.log.keyed import Keyed
from onrecord.log.names import check_name, make_ulid
from onrecord.log.verify import HeadFold, Problem, Report, Verifier
from onrecord.session.effects import with_results
from onrecord.session.reading import recent, recent_turns
from onrecord.views.context import Context, assemble, cost_of
from onrecord.views.diff import changes
from onrecord.views.fold import BODIES, Whole, fold_whole
from onrecord.views.note import brief, is_unwritten, note
from onrecord.views.transcript import TURN_KINDS, Transcript

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.log.events import Record
    from onrecord.log.head import Head
    from onrecord.log.item_values import Item
    from onrecord.log.store import Store
    from onrecord.session.handle import Session
    from onrecord.views.happenings import Recent
    from onrecord.views.transcript import Turn
    from onrecord.views.values import Change, Checkpoint, Lane

VERIFY_PAGE = 2_000
"""How many events verification reads at a time."""


class Moment:
    """A session as it was after one event. Read-only: nothing can be added to the past."""

    def __init__(self, session: Session, views: Whole) -> None:
        self._session = session
        self.views = views

    @property
    def position(self) -> int:
        """The last event that counts here."""
        return self.views.position

    @property
    def status(self) -> str:
        """The session's status then."""
        return self.views.head.status

    def transcript(self, agent: str | None = None) -> Transcript:
        """The turns as they were."""
        return self._session.transcript(agent, upto=self.position)

    def brief(self) -> str:
        """The brief as it was."""
        return brief(self.views, recent=self._recent())

    def note(self) -> str:
        """The note as it was."""
        return note(self.views, self._recent())

    def _recent(self) -> Recent | None:
        return recent(self._session, self.position) if is_unwritten(self.views) else None


def at(session: Session, position: int) -> Moment:
    """The session after the event at `position`."""
    head = session.store.head(session.id)
    if not 1 <= position <= head.position:
        raise EventNotFound(f"session {head.name!r} has positions 1 to {head.position}, not {position}", name=head.name)
    return Moment(session, fold_whole(head, session.store.read(session.id, upto=position, bodies=BODIES)))


def diff(session: Session, before: int, after: int) -> list[Change]:
    """What changed in meaning from one position to another."""
    if before > after:
        raise InvalidInput(f"position {before} comes after {after}", hint="give the earlier position first")
    old, new = at(session, before), at(session, after)
    running = [lane["open"]["position"] - 1 for lane in old.views.lanes.lanes.values() if lane["open"]]
    recent = session.store.read(session.id, after=min([before, *running]), upto=after, kinds=TURN_KINDS)
    turns = [turn for turn in Transcript().fold(open_records(recent)) if turn.ended > before]
    return changes(old.views, new.views, turns)


def fork(session: Session, name: str, position: int) -> str:
    """Make a session that shares this one's history up to `position`; return its id."""
    check_name(name)
    past = at(session, position).views.head
    data = {"name": name, "parent": {"session": past.session, "position": position, "hash": past.hash.hex()}}
    draft = session._draft("session.forked", data, because=position)._replace(run=past.run)
    new = make_ulid(draft.at // 1000, machine.entropy(10))
    here = session.store.head(session.id)
    # Its parent is the session that the position belongs to: in a fork that may be an ancestor.
    session.store.create(heads.forked(past._replace(project=here.project), new, name), [draft])
    return new


def context(
    session: Session,
    *,
    tokens: int,
    count: Callable[[str], int],
    bare: bool | None = False,
    kept: Context | None = None,
    resumed: bool = False,
    dialect: str = "neutral",
) -> Context:
    """Brief, the last summary, the turns after it, as many as fit; and the open turn of this handle.

    `bare` leaves the brief out; None: if it says nothing. `kept` is an earlier context of the same turn: its brief
    is used again, so that every call of the turn begins with the same words. `resumed`: the open turn has what the
    provisional ones said. Items count as they are sent in `dialect`.
    """
    views = session.views
    lane = views.lanes.lane(session.agent)
    running = _running(session, lane)
    summary, covered = None, 0
    if lane["compacted"]:
        data = session.log.event(lane["compacted"]).data
        if data is not None:
            summary, covered = data["summary"], data["upto"]
    if bare is None:
        bare = not (
            views.facts.objective or views.effects.unfinished or (lane["provisional"] and not resumed)
        ) and is_unwritten(views)
    if kept is not None and kept.summary == summary:
        head, made_at = kept.brief, kept.brief_at
        bare = kept.bare
    else:
        head = "" if bare else brief(views, inside=session.agent if running is not None else "")
        made_at = views.position
    known = count(head) + (count(summary) if summary else 0)

    def enough(turns: list[Turn]) -> bool:
        return known + sum(cost_of(turn.items, count=count, dialect=dialect) for turn in turns) > tokens

    turns, complete = recent_turns(session, enough, after=covered, upto=views.position)
    if running is not None and lane["open"]:  # a turn from an earlier base does not see what it would discard
        base, begun = lane["open"]["base"], lane["open"]["position"]
        discarded = {commit["position"] for commit in lane["commits"] if commit["position"] > base}
        turns = [turn for turn in turns if turn.begun < begun and turn.ended not in discarded]
        if not base and lane["last_commit"]:
            turns = []  # starting over discards more commits than are listed
    turns = with_results(session, turns)
    committed = lane["committed"]
    if len(turns) > committed:  # mirrored turns are not counted in the views
        committed = len(turns) if complete and not covered else len(session.transcript(session.agent))
    return assemble(
        head, summary, turns, tokens=tokens, count=count, position=views.position, committed=committed,
        running=running, bare=bare, brief_at=made_at, dialect=dialect,
    )  # fmt: skip


def _running(session: Session, lane: Lane) -> list[Item] | None:
    """The items of the turn that this handle has open; None if it has none."""
    begun = lane["open"]
    if begun is None or session.lease is None or begun["run"] != session.run:
        return None
    records = session.store.read(session.id, after=begun["position"] - 1, kinds=("turn.begun", "item.added"))
    mine = (record for record in records if record.by == session.agent)
    turns = Transcript(session.agent).fold(open_records(mine)).provisional
    return next((turn.items for turn in reversed(turns) if turn.begun == begun["position"]), None)


def verify(session: Session, checkpoint: Checkpoint | None, progress: Callable[[int], None] | None = None) -> Report:
    """Re-derive the chain of the session, its inherited history included."""
    from onrecord.session.derived import Rederived

    verifier, fold, after = Verifier(session.id), HeadFold(), 0
    derived, kept, locked = None, None, _is_locked(session)
    while True:
        head = session.store.head(session.id)
        derived, begun = derived or Rederived(session, head), after
        while page := _page(session, after, head.position, locked=locked):
            verifier.feed(page, locked=locked)
            if not verifier.problems:
                fold.feed(page)
                derived.feed(page)
            after = page[-1].position
            if progress is not None:
                progress(after)
            if checkpoint and page[0].position <= checkpoint["position"] <= after:
                kept = next((r.hash.hex() for r in page if r.position == checkpoint["position"]), None)
        if head.parent is not None:
            excuse_inherited(session.store, head, verifier)
        excuse_shredded(session.store, head, verifier)
        if not verifier.unexplained() or after == begun:
            break  # if not, another process erased while this one read: its event is further on
    report = verifier.finish(head.position, head.hash)
    if report.ok and (disagreement := fold.disagreement(head)):
        report.problems.append(Problem(head.position, "head", disagreement))
    if report.ok:
        report.problems.extend(derived.read_again())
    problem = _against(checkpoint, session, head, kept) if checkpoint is not None else None
    return report._replace(problems=[*report.problems, problem]) if problem else report


def _page(session: Session, after: int, upto: int, *, locked: bool) -> list[Record]:
    """The next events to verify; without their payloads where a key is not here, except for what was erased."""
    bodies = ("payload.erased", "session.forked") if locked else None
    return session.store.read(session.id, after=after, upto=upto, limit=VERIFY_PAGE, bodies=bodies)


def _is_locked(session: Session) -> bool:
    """Whether the key of the session, or of one that it was forked from, is neither here nor destroyed."""
    store, of = session.store, session.id
    while isinstance(store, Keyed) and of:
        if store.key_id(of) is not None and store.key_state(of) not in ("present", "destroyed"):
            return True
        of = store.head(of).parent or ""
    return False


def excuse_shredded(store: Store, head: Head, verifier: Verifier) -> None:
    """Note whose keys were destroyed: in an older copy of a store no event says that its payloads were erased."""
    upto = head.position
    while isinstance(store, Keyed):
        if store.key_id(head.session) is not None and store.key_state(head.session) == "destroyed":
            verifier.shredded(head.forked_at + 1, upto)
        if head.parent is None:
            return
        upto = min(upto, head.forked_at)
        head = store.head(head.parent)


def excuse_inherited(store: Store, head: Head, verifier: Verifier) -> None:
    """Note what ancestors erased: they record it in their own logs, perhaps after the fork was made."""
    upto = head.forked_at
    while head.parent is not None:
        upto = min(upto, head.forked_at)
        for record in store.read(head.parent, after=head.forked_at, kinds=["payload.erased"]):
            verifier.excuse(record, upto)
        head = store.head(head.parent)


def _against(checkpoint: Checkpoint, session: Session, head: Head, kept: str | None) -> Problem | None:
    position = checkpoint["position"]
    if checkpoint.get("session") != session.id:
        return Problem(position, "checkpoint", f"the checkpoint is of session {checkpoint.get('session')}")
    if position > head.position:
        return Problem(
            position, "checkpoint", f"the log ends at {head.position}: events were cut off since the checkpoint"
        )
    if kept != checkpoint["hash"]:
        return Problem(position, "checkpoint", "this position has another event now: the log was rolled back")
    return None
