"""The same verbs, awaited. The only module of the core that knows asyncio.

Each call runs the synchronous verb on a thread, so coroutines share the store's group commit. A call that is
cancelled still finishes: the cancellation is delivered after the outcome is known, and carries it, so that nobody has
to guess whether an append landed.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, Self, TypeVar

from onrecord import machine
from onrecord.session import effects
from onrecord.session.following import POLL_SECONDS, Follower
from onrecord.session.handle import Session
from onrecord.session.records import Records
from onrecord.session.turns import Turn, told

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterator

    from onrecord.log.events import Event
    from onrecord.log.head import Head
    from onrecord.log.items import Item
    from onrecord.session.copying import Copied
    from onrecord.session.retention import Policy, Swept
    from onrecord.views.fold import Whole

    P = ParamSpec("P")
    R = TypeVar("R")
    S = TypeVar("S")

PAGE = 100
"""How many events an asynchronous reader fetches at a time."""
THREADS = 64
"""How many calls of one process wait for a store at the same time."""

_threads = ThreadPoolExecutor(THREADS, "onrecord")


def _renew_threads() -> None:
    global _threads  # noqa: PLW0603 - one pool per process, and a fork makes a new process
    _threads = ThreadPoolExecutor(THREADS, "onrecord")


machine.after_fork(_renew_threads)


class Outcome(NamedTuple):
    """How a call ended whose caller was cancelled: the cancellation carries it, see `outcome_of`."""

    result: Any
    error: BaseException | None

    @property
    def landed(self) -> bool:
        """Whether what was asked for is on record."""
        return self.error is None


def outcome_of(cancelled: asyncio.CancelledError) -> Outcome | None:
    """The outcome of the call that was cancelled; None if it was no call of ours, or had not begun."""
    # A class of its own would not pass through asyncio.timeout, which asks for exactly CancelledError.
    told = cancelled.args[0] if cancelled.args else None
    return told if isinstance(told, Outcome) else None


async def settled(call: Callable[[], R]) -> R:
    """Run a blocking call to its end, come what may, and return its outcome."""
    return await _finished(asyncio.get_running_loop().run_in_executor(_threads, call))


async def _finished(future: asyncio.Future[R]) -> R:
    """The outcome of what has begun; whoever is cancelled meanwhile is told it together with the cancellation."""
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError:  # cancelled again: the outcome is still worth a moment
                continue
        if future.cancelled():
            raise
        error = future.exception()
        raise asyncio.CancelledError(Outcome(None if error else future.result(), error)) from None


def _awaited(
    verb: Callable[Concatenate[S, P], R],
) -> Callable[Concatenate[_Wrapper, P], Coroutine[Any, Any, R]]:
    async def call(self: _Wrapper, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await settled(partial(verb, self.sync, *args, **kwargs))

    call.__name__, call.__doc__ = verb.__name__, verb.__doc__
    return call


async def _paged(found: Iterator[R]) -> AsyncIterator[R]:
    """What a synchronous reader finds, fetched a page at a time."""
    while page := await settled(lambda: list(islice(found, PAGE))):
        for one in page:
            yield one


class _Wrapper:
    """Holds the synchronous object whose verbs are awaited."""

    sync: Any


class AsyncTurn(_Wrapper):
    """A turn whose steps are awaited. Leaving its `async with` block commits it; an exception aborts it."""

    def __init__(self, begin: Callable[[], Turn]) -> None:
        self._begin = begin

    async def __aenter__(self) -> Self:
        self.sync: Turn = await settled(self._begin)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: object) -> None:
        await settled(partial(self.sync.__exit__, kind, problem, trace))

    @property
    def position(self) -> int:
        """Where the turn was begun."""
        return self.sync.position

    @property
    def base(self) -> int:
        """The committed position it builds on."""
        return self.sync.base

    @property
    def answered(self) -> bool:
        """Whether this very request has a committed answer already: use `answer`, call no model."""
        return self.sync.answered

    @property
    def answer(self) -> list[Item] | None:
        """The items of that answer."""
        return self.sync.answer

    add = _awaited(Turn.add)
    system = _awaited(Turn.system)
    user = _awaited(Turn.user)
    assistant = _awaited(Turn.assistant)
    tool = _awaited(Turn.tool)
    decide = _awaited(Turn.decide)
    use = _awaited(Turn.use)
    commit = _awaited(Turn.commit)
    abort = _awaited(Turn.abort)


class AsyncSession(_Wrapper):
    """A session whose verbs are awaited."""

    def __init__(self, sync: Session) -> None:
        self.sync: Session = sync

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_problem: object) -> None:
        await self.leave()

    @property
    def id(self) -> str:
        """The session's id."""
        return self.sync.id

    @property
    def name(self) -> str:
        """The session's present name."""
        return self.sync.name

    @property
    def status(self) -> str:
        """Where the session stands in its lifecycle."""
        return self.sync.status

    @property
    def head(self) -> Head:
        """Where the log stands, as far as this handle has read."""
        return self.sync.head

    async def join(self, **options: Any) -> Self:
        """Take this agent's lane: a new run begins."""
        await settled(partial(self.sync.join, **options))
        return self

    def turn(self, **options: Any) -> AsyncTurn:
        """Begin a turn; use it with `async with`."""
        return AsyncTurn(partial(self.sync.turn, **options))

    async def events(
        self, after: int = 0, upto: int | None = None, kinds: Collection[str] | None = None
    ) -> AsyncIterator[Event]:
        """The log, in order."""
        async for event in _paged(self.sync.events(after, upto, kinds)):
            yield event

    async def follow(
        self, after: int = 0, upto: int | None = None, kinds: Collection[str] | None = None
    ) -> AsyncIterator[Event]:
        """The log, in order, and then what is appended, as it comes."""
        # A look lasts a moment and the wait between two is a coroutine's: a follower occupies no thread.
        follower = Follower(self.sync, after, upto, kinds)
        while True:
            async for event in _paged(follower.look()):
                yield event
            if follower.done:
                return
            await asyncio.sleep(POLL_SECONDS)

    async def refresh(self) -> Self:
        """Fold in what others appended."""
        await settled(self.sync.refresh)
        return self

    async def views(self) -> Whole:
        """Everything the log means at its newest position."""
        return await settled(lambda: self.sync.views)

    async def once(self, key: str, fn: Callable[[], Awaitable[Any]], *, rerun_unknown: bool = False) -> Any:
        """The recorded result under this key; if there is none, await `fn` and record what it returns."""
        return await _finished(asyncio.ensure_future(self._once(key, fn, rerun_unknown=rerun_unknown)))

    async def _once(self, key: str, fn: Callable[[], Awaitable[Any]], *, rerun_unknown: bool) -> Any:
        # No thread waits for `fn`: it may need one itself.
        name = getattr(fn, "__name__", "")
        done, result = await settled(partial(effects.prepare, self.sync, key, name, rerun_unknown=rerun_unknown))
        if done:
            return result
        try:
            made = await fn()
        except Exception as problem:
            await settled(partial(effects.settle, self.sync, key, error=told(problem)))
            raise
        return await settled(partial(effects.conclude, self.sync, key, made))

    leave = _awaited(Session.leave)
    append = _awaited(Session.append)
    record = _awaited(Session.record)
    record_turn = _awaited(Session.record_turn)
    start_effect = _awaited(Session.start_effect)
    settle_effect = _awaited(Session.settle_effect)
    unknown_effects = _awaited(Session.unknown_effects)
    use = _awaited(Session.use)
    pause = _awaited(Session.pause)
    resume = _awaited(Session.resume)
    close = _awaited(Session.close)
    archive = _awaited(Session.archive)
    rename = _awaited(Session.rename)
    hold = _awaited(Session.hold)
    release = _awaited(Session.release)
    set_objective = _awaited(Session.set_objective)
    set_title = _awaited(Session.set_title)
    set_next_action = _awaited(Session.set_next_action)
    set_reproduction = _awaited(Session.set_reproduction)
    set_scratch = _awaited(Session.set_scratch)
    set_budget = _awaited(Session.set_budget)
    decide = _awaited(Session.decide)
    state = _awaited(Session.state)
    relabel = _awaited(Session.relabel)
    challenge = _awaited(Session.challenge)
    choose_profile = _awaited(Session.choose_profile)
    completion = _awaited(Session.completion)
    correct_attempt = _awaited(Session.correct_attempt)
    empty_section = _awaited(Session.empty_section)
    enter_phase = _awaited(Session.enter_phase)
    finish_phase = _awaited(Session.finish_phase)
    foreseen_failure = _awaited(Session.foreseen_failure)
    gate = _awaited(Session.gate)
    arrive = _awaited(Session.arrive)
    depart = _awaited(Session.depart)
    go_on = _awaited(Session.go_on)
    interrupted = _awaited(Session.interrupted)
    locate = _awaited(Session.locate)
    used_tool = _awaited(Session.used_tool)
    wait = _awaited(Session.wait)
    judge_feature = _awaited(Session.judge_feature)
    list_feature = _awaited(Session.list_feature)
    log_work = _awaited(Session.log_work)
    override = _awaited(Session.override)
    pursue = _awaited(Session.pursue)
    reach = _awaited(Session.reach)
    recall = _awaited(Session.recall)
    record_evidence = _awaited(Session.record_evidence)
    settle_attempt = _awaited(Session.settle_attempt)
    start_attempt = _awaited(Session.start_attempt)
    start_work = _awaited(Session.start_work)
    uphold = _awaited(Session.uphold)
    write_section = _awaited(Session.write_section)
    lane = _awaited(Session.lane)
    note = _awaited(Session.note)
    brief = _awaited(Session.brief)
    event = _awaited(Session.event)
    transcript = _awaited(Session.transcript)
    context = _awaited(Session.context)
    at = _awaited(Session.at)
    diff = _awaited(Session.diff)
    verify = _awaited(Session.verify)
    checkpoint = _awaited(Session.checkpoint)
    compact = _awaited(Session.compact)
    erase = _awaited(Session.erase)

    async def fork(self, name: str, at: int | None = None, *, agent: str | None = None) -> AsyncSession:
        """A new session whose history up to `at` is this one's."""
        return AsyncSession(await settled(partial(self.sync.fork, name, at, agent=agent)))


class AsyncRecords(_Wrapper):
    """The sessions of a store, awaited."""

    def __init__(self, sync: Records) -> None:
        self.sync: Records = sync

    async def open(self, name: str, **options: Any) -> AsyncSession:
        """Open a session for work."""
        return AsyncSession(await settled(partial(self.sync.open, name, **options)))

    async def get(self, name: str, **options: Any) -> AsyncSession:
        """The session of this name or id, without taking a lane."""
        return AsyncSession(await settled(partial(self.sync.get, name, **options)))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_problem: object) -> None:
        await self.close()

    async def create(self, name: str, **options: Any) -> AsyncSession:
        """Make a new session."""
        return AsyncSession(await settled(partial(self.sync.create, name, **options)))

    async def child(self, parent: AsyncSession, name: str, **options: Any) -> AsyncSession:
        """A session under another one, with a slice of what is left of its budget."""
        return AsyncSession(await settled(partial(self.sync.child, parent.sync, name, **options)))

    async def copy(self, name: str, to: AsyncRecords, **options: Any) -> list[Copied]:
        """Copy a session to another store, or add what is new to the copy that is there."""
        return await settled(partial(self.sync.copy, name, to.sync, **options))

    async def sweep(self, policy: Policy | None = None, *, dry_run: bool = False) -> AsyncIterator[Swept]:
        """Apply the retention policy to every session of the store."""
        async for swept in _paged(self.sync.sweep(policy, dry_run=dry_run)):
            yield swept

    find = _awaited(Records.find)
    sessions = _awaited(Records.sessions)
    search = _awaited(Records.search)
    close = _awaited(Records.close)


def over(records: Records) -> AsyncRecords:
    """The awaited form of `connect()`'s result: `aio.over(onrecord.connect())`."""
    return AsyncRecords(records)
