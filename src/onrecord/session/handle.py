"""Session: the handle on one session. A verb builds events, appends them durably and folds just those into its views.

What a verb returns was on disk before it returned. Views are caches of the log: `refresh` reads what others appended.
Threads may share a handle; no lock is held while a store persists. Verbs that belong together are a chapter
(`session.attempts`, `session.findings`); a chapter is imported when it is first used, so a command that records one
fact loads what one fact needs.
"""

from __future__ import annotations

import time
from _thread import RLock

from onrecord import machine
from onrecord.errors import EventNotFound, LeaseLost, OnrecordError, SessionErased, StoreError, TooLarge, TurnConflict
from onrecord.lean_typing import TYPE_CHECKING, Any, Self, overload
from onrecord.log.codec import BATCH_LIMIT, SealOnRead, check_because, encode_plain, event_of, is_simple, open_records
from onrecord.log.events import Draft, Event
from onrecord.log.head import LIVE, Head, refuse_work
from onrecord.log.names import check_name
from onrecord.log.store import LEASE_SECONDS, Lease, Store
from onrecord.session.funnel import funnel_of
from onrecord.session.inherited import forget_inherited, refuse_inherited
from onrecord.session.kept_views import KeptViews
from onrecord.session.single import sealed
from onrecord.views.fold import Whole

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from onrecord.log.item_values import Item
    from onrecord.log.store import Receipt
    from onrecord.log.verify import Report
    from onrecord.session.agents import AgentVerbs
    from onrecord.session.attempts import AttemptVerbs
    from onrecord.session.budget import BudgetVerbs
    from onrecord.session.compaction import Coverage
    from onrecord.session.effects import EffectVerbs
    from onrecord.session.evidence import EvidenceVerbs
    from onrecord.session.facts import FactVerbs
    from onrecord.session.findings import FindingVerbs
    from onrecord.session.gating import GateVerbs
    from onrecord.session.log_access import LogVerbs
    from onrecord.session.moment import Moment
    from onrecord.session.phases import PhaseVerbs
    from onrecord.session.tools import P, R, Tool
    from onrecord.session.turns import Turn
    from onrecord.views.context import Context
    from onrecord.views.dialects import Messages
    from onrecord.views.transcript import Transcript
    from onrecord.views.values import Change, Checkpoint, Counter, Json, Lane, Message, ModelUsage

    Clock = Callable[[], float]

READ_PAGE = 500
"""How many events one read of a long log fetches."""
DEFAULT_ACTOR = "human"
_TURN_VERBS: list[tuple[Callable[..., Turn], Callable[..., Event]]] = []


def _turn_verbs() -> tuple[Callable[..., Turn], Callable[..., Event]]:
    """Begins a turn, and records a whole one; imported once: here even a repeated import costs time."""
    if not _TURN_VERBS:
        from onrecord.session.turns import begin, record

        _TURN_VERBS.append((begin, record))
    return _TURN_VERBS[0]


class Session(KeptViews):
    """One session: a log, the views folded from it, and the verbs that append to it."""

    def __init__(self, store: Store, id: str, *, agent: str = DEFAULT_ACTOR, clock: Clock = time.time) -> None:
        super().__init__(store, id)
        self.agent = check_name(agent, "agent")
        self.clock = clock
        self.funnel = funnel_of(store)
        self.lease: Lease | None = None
        self.run: int | None = None
        self._joining = RLock()
        self._owners: dict[str, object] = {}
        """The objects whose methods are tools of this handle, by the name of the tool."""
        self._turning = 0
        """How many threads record whole turns at this moment; -1 while one begins a turn."""

    def __repr__(self) -> str:
        return f"<Session {self.name!r} {self.status} at {self._whole.position}, agent {self.agent!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_problem: object) -> None:
        self.leave()

    @property
    def name(self) -> str:
        """The session's present name."""
        return self._whole.head.name

    @property
    def status(self) -> str:
        """The session's status: open, paused, closed, archived or erased."""
        return self._whole.head.status

    @property
    def head(self) -> Head:
        """Position, hash and status of the log, as far as this handle has read."""
        return self._whole.head

    @property
    def views(self) -> Whole:
        """Everything the log means at its newest position."""
        return self.refresh()._whole

    def _end_of_lane(self) -> Lane:
        """The lane of this handle's agent, as far as it has read: the next turn is checked against it."""
        with self._lock:
            whole = self._whole
            self._lane_end.ask(whole, self.agent)
            return whole.lanes.lane(self.agent)

    def note(self) -> str:
        """The note for the agent that continues the work, as Markdown."""
        from onrecord.session.unwritten import unwritten
        from onrecord.views.note import note

        with self._lock:
            return note(self.views, unwritten(self), machine.is_gone)

    def brief(self, *, happened: bool = True) -> str:
        """The first 2 KB of the note, readable on their own; without `happened`, of what was written down only."""
        from onrecord.session.unwritten import unwritten
        from onrecord.views.note import brief

        with self._lock:
            return brief(self.views, machine.is_gone, unwritten(self) if happened else None)

    # Chapters: each is a small class in its own module

    @property
    def agents(self) -> AgentVerbs:
        """Runs of agents, their vendor conversations, tools and interruptions."""
        from onrecord.session.agents import AgentVerbs

        return AgentVerbs(self)

    @property
    def attempts(self) -> AttemptVerbs:
        """Runs of commands on record, and what they teach."""
        from onrecord.session.attempts import AttemptVerbs

        return AttemptVerbs(self)

    @property
    def budget(self) -> BudgetVerbs:
        """Limits, usage of models, and what is left."""
        from onrecord.session.budget import BudgetVerbs

        return BudgetVerbs(self)

    @property
    def effects(self) -> EffectVerbs:
        """Side effects with both ends recorded by hand; `once` does both."""
        from onrecord.session.effects import EffectVerbs

        return EffectVerbs(self)

    @property
    def evidence(self) -> EvidenceVerbs:
        """Something inspectable that findings and features rest on."""
        from onrecord.session.evidence import EvidenceVerbs

        return EvidenceVerbs(self)

    @property
    def facts(self) -> FactVerbs:
        """Objective, title, next action, reproduction, scratch values."""
        from onrecord.session.facts import FactVerbs

        return FactVerbs(self)

    @property
    def findings(self) -> FindingVerbs:
        """Claims with a label that evidence has earned."""
        from onrecord.session.findings import FindingVerbs

        return FindingVerbs(self)

    @property
    def gate(self) -> GateVerbs:
        """Verdicts on tool calls, and overrides."""
        from onrecord.session.gating import GateVerbs

        return GateVerbs(self)

    @property
    def log(self) -> LogVerbs:
        """The log itself: single events, the newest first, headers only, holds, erasure, leases."""
        from onrecord.session.log_access import LogVerbs

        return LogVerbs(self)

    @property
    def phases(self) -> PhaseVerbs:
        """The profile, its phases and sections, the work log, the feature list."""
        from onrecord.session.phases import PhaseVerbs

        return PhaseVerbs(self)

    # Appending

    def _draft(
        self, kind: str, data: Any, *, id: str | None = None, because: int | None = None, plain: bool = False,
        encode: Callable[[Any], bytes] = encode_plain,
    ) -> Draft:  # fmt: skip
        """Seal an event of this handle's agent and run; `plain` and `encode` as in `codec.seal`."""
        run = self._newest_run() if self.run is None else self.run
        return sealed(kind, data, id, int(self.clock() * 1e6), self.agent, run, because, plain, encode)

    def _append_drafts(self, *drafts: Draft, expect: int | None = None, fenced: bool = False) -> list[Event]:
        """Append drafts in one durable step. `fenced` ones need this agent's lane."""
        if len(drafts) > BATCH_LIMIT:
            raise TooLarge(
                f"one append takes up to {BATCH_LIMIT:,} events, not {len(drafts):,}", hint="split it into several"
            )
        lease = self.lease if fenced else None
        if fenced and lease is None:
            raise LeaseLost(
                f"this handle does not have the lease of lane {self.agent!r}", hint="session.acquire() takes the lease"
            )
        return self._append(drafts, lease, expect)

    def _append(
        self, drafts: Sequence[Draft], lease: Lease | None, expect: int | None = None,
        append: Callable[[Sequence[Draft]], list[Receipt]] | None = None,
    ) -> list[Event]:  # fmt: skip
        """Append without secrets, and add the events to the views; `append` does it in another way than the store's."""
        if lease is not None:
            refuse_inherited(lease)
        notices: list[Draft] = []
        if type(drafts) is not SealOnRead:  # that one was looked at before it was made
            drafts, notices = self.funnel.passed(drafts, lambda: self._whole.head.project)
            if notices:
                drafts = [*drafts, *notices]
        try:
            if append is None:
                receipts = self.store.append(self.id, drafts, expect=expect, lease=lease)
            else:
                receipts = append(drafts)
            events = []
            for draft, (position, run, digest, new) in zip(drafts, receipts, strict=True):
                events.append(event_of(draft, self.id, position, run, digest) if new else self.log.event(position))
            self._absorb(drafts, events)
        except BaseException as problem:
            if not isinstance(problem, OnrecordError) or isinstance(problem, StoreError):
                self._fall_behind()  # it may be on record all the same: the next turn must read it
            raise
        return events[: -len(notices)] if notices else events

    def _record(self, kind: str, data: Any, *, id: str | None = None, because: int | None = None) -> Event:
        if because is not None:
            self._refuse_unknown(because)
        run = self._newest_run() if self.run is None else self.run
        fields = (kind, data, id, int(self.clock() * 1e6), self.agent, run, because)
        late = is_simple(data) and self.funnel.is_clean(kind, data)
        event = self._append(SealOnRead(lambda: sealed(*fields)) if late else (sealed(*fields),), None)[0]
        if self._behind and kind.startswith("session."):
            self.refresh()  # `status` and `name` come from this handle's views, which must include its own step
        return event

    def _refuse_unknown(self, because: int) -> None:
        if type(because) is not int:
            check_because(because)
        if because > self.head.position:
            self.refresh()
        if not 0 < because <= self.head.position:
            raise EventNotFound(f"`because` names position {because}, and there is no event there", name=self.name)

    def acquire(
        self, /, *, takeover: bool = False, seconds: float = LEASE_SECONDS, expect: int | None = None, **about: object
    ) -> Self:
        """Take the lease on this agent's lane: a new run begins. Turns of an earlier holder are refused.

        With `expect`, the log must still be at that position (`LogMoved`).
        """
        with self._joining:  # threads that share this handle are one holder
            forget_inherited(self)
            if self.lease is None:
                from onrecord.session.joining import join

                join(self, self.refresh().head, expect=expect, takeover=takeover, seconds=seconds, about=about)
        return self

    def renew(self, seconds: float = LEASE_SECONDS) -> None:
        """Extend the lease, if there is one; `LeaseLost` if another process has it. Only silent minutes need this."""
        if self.lease is not None:  # every fenced append renews it too
            self.lease = self.store.renew(self.lease, seconds)

    def _take_up(self) -> None:
        """Make sure that this handle has the lease; refuse first if the lifecycle allows no work."""
        if self.lease is None:
            refuse_work(self.refresh().head)
            self.acquire()

    def _start_turning(self, share: int) -> None:
        """Keep threads of this handle out of each other's turns: one begins (-1), or some record whole turns (1)."""
        with self._lock:
            if self._turning < 0 or (share < 0 and self._turning):
                raise TurnConflict("another thread is recording a turn of this lane", hint="try again")
            self._turning += share

    def _stop_turning(self, share: int) -> None:
        """The other end of `_start_turning`."""
        with self._lock:
            self._turning -= share

    def leave(self) -> None:
        """Release the lease. The session stays as it is; `close` ends it."""
        forget_inherited(self)
        if self.lease is not None:
            try:
                self._append_drafts(self._draft("agent.left", {}), fenced=True)
            except (LeaseLost, SessionErased):
                pass  # another process has the lane, or the key of the session is destroyed: nothing can be recorded
            finally:
                self.store.release(self.lease)
                self.lease = self.run = None

    # Turns, effects, decisions

    def turn(
        self, *, request: Json = None, base: int | None = None, rollback: int = 0, id: str | None = None,
        resume: bool = False,
    ) -> Turn:  # fmt: skip
        """Begin a turn: its intent is durable before the model is called. Use it as a context manager.

        `base` is the committed position the caller builds on; with `request`, a retry after a lost reply is `answered`.
        `rollback` is how many committed turns an earlier base may discard. `resume` continues the last turn if it was
        aborted or its process died; with `id`, the turn of this id, which is `answered` once it is committed.
        """
        begin, _record = _turn_verbs()
        return begin(self, request=request, base=base, rollback=rollback, id=id, resume=resume)

    def record_turn(
        self, items: Iterable[Message], *, usage: ModelUsage | None = None, format: str | None = None,
        id: str | None = None,
    ) -> Event:  # fmt: skip
        """Record a whole turn at once: one durable commit. Items are neutral, or messages of a partner."""
        _begin, record = _turn_verbs()
        return record(self, items, usage=usage, format=format, id=id)

    def once(self, key: str, fn: Callable[[], Json], *, rerun_unknown: bool = False, arguments: Json = None) -> Json:
        """The recorded result under this key; if there is none, run `fn` and record what it returns."""
        from onrecord.session import effects

        return effects.once(self, key, fn, rerun_unknown=rerun_unknown, arguments=arguments)

    @overload
    def tool(
        self, fn: Callable[P, R], /, *, name: str = "", safe_to_repeat: bool = False, timeout: float | None = None
    ) -> Tool[P, R]: ...

    @overload
    def tool(
        self, fn: None = None, /, *, name: str = "", safe_to_repeat: bool = False, timeout: float | None = None
    ) -> Callable[[Callable[P, R]], Tool[P, R]]: ...

    def tool(
        self, fn: Callable[..., Json] | None = None, /, *, name: str = "", safe_to_repeat: bool = False,
        timeout: float | None = None,
    ) -> Callable[..., Json]:  # fmt: skip
        """A function as a tool: each call is recorded before and after, and runs once. Also a decorator."""
        from onrecord.session import tools

        return tools.tool(self, fn, name=name, safe_to_repeat=safe_to_repeat, timeout=timeout)

    def decide(self, text: str, *, why: str | None = None, because: int | None = None, id: str | None = None) -> Event:
        """Record a decision; `because` is the position it came from."""
        from onrecord.session.chapter import checked_text
        from onrecord.views.facts import TEXT_LIMIT

        data = {"text": checked_text(text, "a decision", TEXT_LIMIT), "why": why}
        return self._record("decision.made", data, because=because, id=id)

    # Lifecycle

    def pause(self, reason: str = "") -> Event:
        """Stop for now and release the lease; no process stays behind."""
        from onrecord.session import turns

        return turns.stop(self, "session.paused", reason)

    def resume(self, reason: str = "", *, reopen: bool = False) -> Event:
        """Continue after a pause; with `reopen`, after a close."""
        return self._record("session.resumed", {"reason": reason} | ({"reopen": True} if reopen else {}))

    def close(self, reason: str = "", *, anyway: str | None = None, note_owed: bool = False) -> Event:
        """End the session and keep its log; with a profile, the work log ends with what is pending.

        A session with a profile (or any that has findings or attempts, with `note_owed`) is not closed with only a
        summary; `anyway`, a reason, closes it and is recorded.
        """
        from onrecord.session import turns
        from onrecord.session.phases import refuse_summary

        phases = self.views.phases
        if (phases.profile or note_owed) and self.status in LIVE:
            refuse_summary(self, anyway)
        last = {"text": self.phases.completion(), "phase": phases.current(), "mark": "end"}
        first = [self._draft("worklog.written", last)] if phases.profile and self.status in LIVE else []
        return turns.stop(self, "session.closed", reason, *first)

    def archive(self, reason: str = "") -> Event:
        """Archive a closed session: lists leave it out."""
        return self._record("session.archived", {"reason": reason})

    def rename(self, name: str, *, project: str | None = None, place: str = "") -> Event:
        """Give the session another name, also one in another project (and its directory); id and history stay."""
        moved = {} if project is None else {"project": project, "from": self.head.project}
        moved |= {"place": place} if place else {}
        return self._record("session.renamed", {"name": check_name(name), "was": self.name, **moved})

    # Reading

    def events(self, after: int = 0, upto: int | None = None, kinds: Collection[str] | None = None) -> Iterator[Event]:
        """The log, in order: position, id, kind, at, by, run, data, hash."""
        page = None
        while page is None or len(page) == READ_PAGE:  # a shorter one was the last
            page = self.store.read(self.id, after=after, upto=upto, kinds=kinds, limit=READ_PAGE)
            yield from open_records(page)
            after = page[-1].position if page else after

    def follow(self, after: int = 0, upto: int | None = None, kinds: Collection[str] | None = None) -> Iterator[Event]:
        """The log, in order, and then new events as they are appended; it ends at `upto`, or never."""
        from onrecord.session.following import follow

        return follow(self, after, upto, kinds)

    def transcript(self, agent: str | None = None, *, upto: int | None = None) -> Transcript:
        """Turns and their items, of all agents or of one; `.provisional` has those that are not committed."""
        from onrecord.views.transcript import SHARED_KINDS, TURN_KINDS, Transcript

        records = self.store.read(self.id, upto=upto, kinds=TURN_KINDS)
        mine = (r for r in records if agent is None or r.by == agent or r.kind in SHARED_KINDS)
        return Transcript(agent).fold(open_records(mine))

    def context(self, tokens: int = 8_000, *, count: Counter = None) -> Context:
        """What a model should see now: brief, summary, recent turns, within a token budget."""
        from onrecord.session import loop, moment

        return moment.context(self, tokens=loop.checked_tokens(tokens), count=loop.counter_of(count))

    def messages(
        self, format: str = "neutral", *, tokens: int = 100_000, count: Counter = None, system: str = ""
    ) -> Messages:
        """What to send to a model now, as in `Turn.messages`. A handle without an agent reads the only one there is."""
        from onrecord.session import loop

        return loop.messages(self, format, tokens=tokens, count=count, system=system)

    def at(self, position: int) -> Moment:
        """The session as it was after an event."""
        from onrecord.session import moment

        return moment.at(self, position)

    def diff(self, before: int, after: int | None = None) -> list[Change]:
        """What changed in meaning between two positions."""
        from onrecord.session import moment

        return moment.diff(self, before, self.views.position if after is None else after)

    def verify(self, checkpoint: Checkpoint | None = None, *, progress: Callable[[int], None] | None = None) -> Report:
        """Re-derive the hash chain from what the store returns, and compare it with a checkpoint kept elsewhere.

        `progress` is called regularly with the number of events done.
        """
        from onrecord.session import moment

        return moment.verify(self, checkpoint, progress)

    def fork(self, name: str, at: int | None = None, *, agent: str | None = None) -> Session:
        """A new session that shares this one's history up to `at`; nothing is copied."""
        from onrecord.session import moment

        new = moment.fork(self, name, self.views.position if at is None else at)
        return Session(self.store, new, agent=agent or self.agent, clock=self.clock)

    def compact(
        self, summarise: str | Callable[[list[Item]], str], *, upto: int | None = None,
        extract: Callable[[list[Item]], Iterable[str]] | None = None, afresh: bool = False,
    ) -> Coverage:  # fmt: skip
        """Replace the transcript so far by a summary in contexts; facts and events stay.

        `summarise` gets the last summary and the turns after it, or all turns if `afresh`. `extract` may return
        decisions worth keeping as facts; they are recorded in the same durable step.
        """
        from onrecord.session import compaction

        return compaction.compact(self, summarise, upto=upto, extract=extract, afresh=afresh)
