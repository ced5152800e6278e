"""Turns: begin, items as they arrive, then commit or abort. Each step is durable before the next one starts."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Self

from onrecord.errors import (
    BudgetExhausted,
    IdReused,
    IllegalTransition,
    InvalidInput,
    OnrecordError,
    PayloadErased,
    TooLarge,
    TurnConflict,
)
from onrecord.log.codec import encode_payload, open_record
from onrecord.log.head import PAUSED
from onrecord.log.items import ITEMS_LIMIT, make_item, make_result, plain_item, to_items
from onrecord.session.budget import raised, usage_of
from onrecord.session.chapter import told
from onrecord.session.loop import Earlier, Loop, is_finished, named, unfinished
from onrecord.session.pricing import with_cost
from onrecord.session.reading import recent_items
from onrecord.views.lanes import ROLLBACK_LIMIT
from onrecord.views.progress import stuck

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onrecord.log.events import Draft, Event
    from onrecord.log.item_values import Item
    from onrecord.session.handle import Session
    from onrecord.views.context import Context
    from onrecord.views.values import Json, Lane, Message, ModelUsage, ToolCall

WHOLE_TURN_LIMIT = 32 * 1024
"""A recorded turn up to this many bytes is one event; a larger one is its parts, in one commit."""
TURN_LIMIT = 9_000
"""The most items of an open turn: a turn that continues it begins with all of them, in one append."""


class Turn(Loop):
    """An open turn. Leaving its `with` block commits it; an exception aborts it and is recorded."""

    def __init__(
        self, session: Session, begun: Event | None, base: int, answer: list[Item] | None = None,
        *, items: Iterable[Item] = (), first: int = 0,
    ) -> None:  # fmt: skip
        self.session = session
        self.base = base
        self.position = begun.position if begun else 0
        self.committed: Event | None = None
        self.aborted: Event | None = None
        self.answer = answer
        """The items of the committed answer, when this request was answered before and only the reply was lost."""
        self.items: list[Item] = list(items if answer is None else answer)
        """What was said in this turn so far; of a request that was answered before, all that was said."""
        self._first = first
        self.resumed = first if begun and self.items else 0
        """Where the turn began that this one continues; 0 if it is a new one."""
        self.uses = 0
        """How many calls of a model are recorded in this turn."""
        self.spoken = 0
        """How many messages of the assistant were added to this turn."""
        self._last = self.position
        self._opening: Context | None = None
        self._run = begun.run if begun else None
        self._calls = {call["id"] for item in self.items for call in item.get("tool_calls") or ()}
        if begun:
            session._open_turn = self

    @property
    def is_open(self) -> bool:
        """Whether items can be added: it has no end, and its handle still has the lease with which it began."""
        return self.answer is None and self.committed is None and self.aborted is None and not self._is_cut_off

    @property
    def _is_cut_off(self) -> bool:
        """Whether the log ended this turn with its run: the handle has no lease any more, or took another one since."""
        return self._run is not None and self.session.run != self._run

    @property
    def answered(self) -> bool:
        """Whether this very request has a committed answer already: use `answer`, call no model."""
        return self.answer is not None

    def __repr__(self) -> str:
        state = (
            "open" if self.is_open else "answered" if self.answered else "committed" if self.committed
            else "aborted" if self.aborted else "cut off"
        )  # fmt: skip
        return f"<Turn of {self.session.agent!r} in session {self.session.name!r}, {state}, items: {len(self.items)}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type[BaseException] | None, problem: BaseException | None, _trace: object) -> None:
        if self.answered or self.committed or self.aborted or (problem and self._is_cut_off):
            return
        if problem is None:
            self.commit()
            return
        try:
            self.abort(told(problem))
        except OnrecordError as failure:
            # The turn reads as interrupted then. The caller must see the first error.
            problem.add_note(f"onrecord could not record that the turn was aborted: {failure}")

    def add(self, message: Message, *, format: str | None = None) -> Event:
        """Add a message: an item in neutral form, or a partner's message, kept word for word."""
        self.must_be_open()
        session = self.session
        item = plain_item(message, format)
        if len(self.items) >= TURN_LIMIT and not self.calls:  # results of calls that were made have room
            self.must_have_room()
        if item is not None:
            draft = session._draft("item.added", {"item": item}, plain=True)
            return self._took(session._append_drafts(draft, fenced=True)[0], [item])
        items = to_items(message, format)
        drafts = [session._draft("item.added", {"item": item}) for item in items]
        return self._took(session._append_drafts(*drafts, fenced=True)[-1], items)

    def _took(self, event: Event, items: list[Item]) -> Event:
        self.items += items
        self._calls.update(call["id"] for item in items for call in item.get("tool_calls") or ())
        self.spoken += any(item["role"] == "assistant" for item in items)
        self._last = event.position
        return event

    def system(self, content: Json) -> Event:
        """Add what the system says."""
        return self.add({"role": "system", "content": content}, format="neutral")

    def user(self, content: Json) -> Event:
        """Add what the user says."""
        return self.add({"role": "user", "content": content}, format="neutral")

    def assistant(self, content: Json, *, tool_calls: Sequence[ToolCall] | None = None) -> Event:
        """Add what the assistant says and the tools it calls."""
        return self.add(make_item("assistant", content, list(tool_calls or ())), format="neutral")

    def tool(self, call: str, content: Json, *, error: bool = False) -> Event:
        """Add the result of a tool call of this turn."""
        if isinstance(call, str) and call not in self._calls:
            self.must_be_open()
            open_ = ", ".join(repr(one["id"]) for one in self.calls) or "none"
            raise InvalidInput(f"no tool call of this turn has the id {call!r:.100}", hint=f"without result: {open_}")
        return self.add(make_result(call, content, failed=error), format="neutral")

    def decide(self, text: str, *, why: str | None = None) -> Event:
        """Record a decision that comes from the last item: it is a fact, whatever becomes of the turn."""
        return self.session.decide(text, why=why, because=self._last or None)

    def record_usage(
        self, model: str, *, input_tokens: int = 0, output_tokens: int = 0, cost: float | None = None, **parts: int
    ) -> Event:
        """Record what a model call of this turn used; it counts even if the turn is aborted.

        `parts` as in `session.budget.record_usage`.
        """
        draft = self._usage_draft(model, input_tokens=input_tokens, output_tokens=output_tokens, cost=cost, **parts)
        event = self.session._append_drafts(draft)[0]
        self.uses += 1
        return event

    def _usage_draft(
        self, model: str, *, input_tokens: int = 0, output_tokens: int = 0, cost: float | None = None, **parts: int
    ) -> Draft:
        used = with_cost(self.session, usage_of(model, input_tokens, output_tokens, cost, **parts))
        further = {"steps": 1} if self.uses else {}  # the turn itself counts as the first one
        return self.session._draft("usage.recorded", {**used, **further})

    def commit(self) -> Event:
        """Make the turn count. It supersedes what was provisional in this lane."""
        self.must_be_open()
        session = self.session
        draft = session._draft("turn.committed", {}, because=self.position, plain=True)
        self.committed = session._append_drafts(draft, fenced=True)[0]
        return self.committed

    def abort(self, reason: str, *, partial: Iterable[Message] = ()) -> Event:
        """Abort the turn, with what had arrived of it. It stays visible until the next commit supersedes it."""
        self.must_be_open()
        session = self.session
        items = [item for message in partial for item in to_items(message)]
        drafts = [session._draft("item.added", {"item": item}) for item in items]
        drafts.append(session._draft("turn.aborted", {"reason": str(reason)}, because=self.position))
        self.aborted = session._append_drafts(*drafts, fenced=True)[-1]
        return self.aborted

    def must_be_open(self) -> None:
        """Raise if nothing can be added."""
        if self.is_open:
            return
        if self.answered:
            raise TurnConflict("this turn already has its answer; nothing can be added", hint="use turn.answer")
        if self.committed:
            raise TurnConflict("this turn is already committed", hint="session.turn() begins the next one")
        if self.aborted:
            raise TurnConflict("this turn is already aborted", hint="session.turn(resume=True) continues it")
        raise TurnConflict(
            "this turn ended when its handle gave up the lease: it left, or the session was paused or closed",
            hint="session.turn(resume=True) continues it",
        )

    def must_have_room(self) -> None:
        """Raise if the turn has as many items as a turn may have."""
        if len(self.items) >= TURN_LIMIT:
            raise TooLarge(f"a turn has up to {TURN_LIMIT:,} items", hint="turn.commit(), and continue in another one")

    def _stop(self, reason: str, limit: str) -> None:
        """Abort this turn and pause the session, in one durable step."""
        interruption = self.session._draft("interruption.recorded", {"cause": reason, "limit": limit})
        try:
            events = _stop(self.session, "session.paused", reason, interruption, aborting=reason)
        except IllegalTransition:  # another agent of the session met the limit first
            self.abort(reason)
            return
        self.aborted = next((event for event in events if event.kind == "turn.aborted"), None)


def begin(
    session: Session, *, request: Json, base: int | None, rollback: int, id: str | None, resume: bool = False
) -> Turn:
    """Begin a turn; everything is checked before anything is written."""
    if not isinstance(resume, bool):
        raise InvalidInput(
            f"resume is True or False, not {resume!r:.60}", hint=f"session.turn(id={resume!r}, resume=True)"
        )
    fingerprint = None if request is None else sha256(encode_payload(request)).hexdigest()
    session._take_up()
    session._start_turning(-1)
    try:
        return _begin(session, fingerprint, base, rollback, id, resume=resume)
    finally:
        session._stop_turning(-1)


def _begin(
    session: Session, fingerprint: str | None, base: int | None, rollback: int, id: str | None, *, resume: bool
) -> Turn:
    again = named(session, id) if resume and id is not None else None
    if again is not None and again.committed:
        return Turn(session, None, _own_lane(session)["last_commit"], again.items)
    end = session._lane_end
    earlier = again or (unfinished(session) if resume and id is None else Earlier([], 0))
    if not end.known or end.open or fingerprint is not None or base not in (None, end.last_commit):
        answer = _check_beginning(session, fingerprint, base, rollback, finished=is_finished(earlier.items))
        if answer is not None:
            return answer
    base = end.last_commit if base is None else base
    data: dict[str, Json] = {"base": base, "turn": end.turns + 1}
    if fingerprint:
        data["fingerprint"] = fingerprint
    items, first = earlier.items, earlier.first
    data |= {"resumes": first} if first else {}
    drafts = [session._draft("turn.begun", data, id=None if again else id)]
    drafts += [session._draft("item.added", {"item": item}) for item in items]
    try:
        begun = session._append_drafts(*drafts, fenced=True)[0]
    except IdReused as problem:
        if resume:
            raise  # it is the id of another event
        hint = f"session.turn(id={id!r}, resume=True) continues it, or has its answer; a new request needs a new id"
        raise IdReused(f"{id!r} is on record already", hint=hint) from problem
    return Turn(session, begun, base, items=items, first=first)


def _check_beginning(
    session: Session, fingerprint: str | None, base: int | None, rollback: int, *, finished: bool
) -> Turn | None:
    """Check that a turn can begin at the end of the lane; if this request was answered before, return that turn.

    A turn that is `finished` has its answer, and its process died before the commit: that costs nothing more.
    """
    lane = _own_lane(session)
    if lane["open"]:
        since = lane["open"]["position"]
        raise TurnConflict(
            f"turn {lane['open']['turn']} of {session.agent!r} is still open, since position {since}",
            hint="commit or abort it first",
        )
    base = lane["last_commit"] if base is None else base
    answer = _lost_answer(session, lane, base, fingerprint)
    if answer is not None:
        return Turn(session, None, base, answer)
    _check_base(lane, base, rollback)
    if not finished:
        refuse_exhausted(session)
    return None


def record(
    session: Session, messages: Iterable[Message], *, usage: ModelUsage | None, format: str | None, id: str | None
) -> Event:
    """Record a whole turn in one durable step."""
    items, plain = [], True
    for message in messages:
        item = plain_item(message, format)
        if item is not None:
            items.append(item)
        else:
            items += to_items(message, format)
            plain = False
    if not 1 <= len(items) <= ITEMS_LIMIT:
        raise InvalidInput(f"a turn must have 1 to {ITEMS_LIMIT:,} items, not {len(items):,}")
    if id is None or session.store.find(session.id, id) is None:
        session._take_up()
        session._start_turning(1)
        try:
            end = session._lane_end
            if not end.known or end.open:
                _make_ready(session)
            return _append_whole(session, items, usage, id, plain=plain)
        finally:
            session._stop_turning(1)
    session.acquire()  # it is already on record, and this call only returns its position: no limit applies
    return _append_whole(session, items, usage, id, plain=plain)


def _append_whole(
    session: Session, items: list[Item], usage: ModelUsage | None, id: str | None, *, plain: bool
) -> Event:
    drafts = [session._draft("turn.recorded", {"items": items}, id=id, plain=plain)]
    if len(drafts[0].payload) > WHOLE_TURN_LIMIT:
        # A retry must record the same content under the same ids, so nothing here depends on the state of the lane.
        drafts = [session._draft("turn.begun", {}, id=id)]
        drafts += [
            session._draft("item.added", {"item": item}, id=_part(id, number)) for number, item in enumerate(items, 1)
        ]
        drafts.append(session._draft("turn.committed", {}, id=_part(id, "committed")))
    count = len(drafts)
    if usage is not None:
        drafts.append(session._draft("usage.recorded", _usage_of(session, usage, id), id=_part(id, "usage")))
    return session._append_drafts(*drafts, fenced=True)[count - 1]


def _usage_of(session: Session, usage: ModelUsage, id: str | None) -> ModelUsage:
    """What a whole turn used. A retry has the cost on record: the price may be another one by now."""
    used, key = usage_of(**usage), _part(id, "usage")
    known = session.store.find(session.id, key) if key and used["cost"] is None else None
    if known is None:
        return with_cost(session, used)
    return {**used, "cost": (open_record(known).data or {}).get("cost")}


def _make_ready(session: Session) -> None:
    """Check that a whole turn fits at the end of the lane."""
    lane = _own_lane(session)
    if lane["open"]:
        raise TurnConflict(
            f"turn {lane['open']['turn']} of {session.agent!r} is still open", hint="commit or abort it first"
        )
    refuse_exhausted(session)


def _own_lane(session: Session) -> Lane:
    """The lane this handle has the lease on. Only the holder adds turns to it, so what the handle knows is current."""
    if session._behind:
        session.refresh()
    return session._end_of_lane()


def _part(id: str | None, what: object) -> str | None:
    """The id of one event of a turn, if the caller chose an id for the turn."""
    return None if id is None else f"{id}/{what}"


def stop(session: Session, kind: str, reason: str, *first: Draft) -> Event:
    """Pause or end a session, with the turn and the presence of this handle, in one durable step."""
    return _stop(session, kind, reason, *first)[-1]


def _stop(session: Session, kind: str, reason: str, *first: Draft, aborting: str = "") -> list[Event]:
    drafts = list(first)
    held = session.lease
    if held is not None:
        lane = session.agents.lane()
        if lane["open"]:
            drafts.append(session._draft("turn.aborted", {"reason": aborting or f"session {kind.partition('.')[2]}"}))
        drafts.append(session._draft("agent.left", {}))
    drafts.append(session._draft(kind, {"reason": reason}))
    events = session._append_drafts(*drafts, fenced=held is not None)
    if held is not None:
        session.store.release(held)
        session.lease = session.run = None
    session.refresh()
    return events


def _lost_answer(session: Session, lane: Lane, base: int, fingerprint: str | None) -> list[Item] | None:
    """The committed answer to this very request on this very base, if nothing was built upon it."""
    last = lane["commits"][-1] if lane["commits"] else None
    if not last or fingerprint is None or (last["base"], last["fingerprint"]) != (base, fingerprint):
        return None
    turns = session.transcript(session.agent).committed
    turn = next(turn for turn in reversed(turns) if turn.ended == last["position"])
    if turn.erased:
        raise PayloadErased(
            f"the answer to this turn, at position {turn.ended}, was erased",
            hint="repeat the call with another base, or without one",
        )
    return turn.items


def _check_base(lane: Lane, base: int, rollback: int) -> None:
    if base == lane["last_commit"]:
        return
    if not 0 <= rollback <= ROLLBACK_LIMIT:
        raise InvalidInput(f"a retry may discard 0 to {ROLLBACK_LIMIT} committed turns, not {rollback}")
    bases = {commit["base"] for commit in lane["commits"]} | {commit["position"] for commit in lane["commits"]}
    discarded = sum(commit["position"] > base for commit in lane["commits"])
    if base not in bases or discarded > rollback:
        raise TurnConflict(
            f"the lane's last commit is at position {lane['last_commit']}; this turn is based on position {base}",
            hint=f"build on {lane['last_commit']}, or allow it with rollback={discarded}" if base in bases else None,
            last_commit=lane["last_commit"],
        )


def refuse_exhausted(session: Session) -> None:
    """Stop a session that has used up its budget; `session` has just read the whole log."""
    if session._whole.spend.budget:
        _check_budget(session)


def _check_budget(session: Session) -> None:
    whole = session.views
    now = int(session.clock() * 1e6)
    out = whole.spend.exhausted(now)
    repeats = whole.spend.budget.get("repeats")
    if out:
        reason, limit = f"budget: {out.used:g} of {out.allowed:g} {out.limit} used", out.limit
    elif repeats and (found := stuck(recent_items(session), int(repeats))):
        reason, limit = f"no progress: {found}", "repeats"
    else:
        return
    if whole.head.status != PAUSED:
        stop(
            session,
            "session.paused",
            reason,
            session._draft("interruption.recorded", {"cause": reason, "limit": limit}),
        )
    raise BudgetExhausted(
        f"session {session.name!r} is paused: {reason}",
        hint=f"{raised(session, whole.spend.spent(now), limit)}, then session.resume(); or close the session",
        limit=limit,
        spent=whole.spend.spent(now),
        name=session.name,
    )
