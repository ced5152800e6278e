"""One run of an agent's program, wrapped: recorded before it starts, watched while it runs, classified when it ends.

This process has the lease on the run's lane meanwhile. The conversation is linked as soon as its id is known (chosen
before the start, else named by the stream, a lock file or the agent's hook, never guessed from age), and is mirrored.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord import machine
from onrecord.agents import processes
from onrecord.agents.mirroring import location_of, mirror, standing
from onrecord.agents.observing import REPORTED, SCREEN, Follower, record_stop, undone
from onrecord.agents.printing import Printer
from onrecord.agents.running import run_headless, run_on_terminal
from onrecord.agents.surroundings import survey
from onrecord.environment import AGENT_VARIABLE, FAILURE_VARIABLE, HEADLESS_VARIABLE, SESSION_VARIABLE, SPAWN_VARIABLE
from onrecord.errors import BudgetExhausted, LeaseLost, OnrecordError
from onrecord.log.names import make_ulid
from onrecord.vendors.hooks import CLEARED, STARTUP
from onrecord.vendors.port import (
    BUDGET,
    CRASH,
    ENDS_WITH_TIME,
    FAILED,
    FINISHED,
    IDLE,
    KILLED,
    UNKNOWN,
    USER,
    Interruption,
)
from onrecord.vendors.progress import left

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from onrecord.agents.running import Ran
    from onrecord.log.events import Event
    from onrecord.session.handle import Session
    from onrecord.vendors.port import Launch, Location, Mark, Turn, Vendor

LOOK_SECONDS = 1.0
"""How often a run's lock files, and what its hooks recorded, are checked."""
EAGER_SECONDS = 20.0
"""For so long they are checked at every tick until the conversation is known: a run may be short."""
MIRROR_SECONDS = 0.75
"""How often a running agent's transcript is mirrored."""
MIRROR_AT_MOST = 1.0
"""How long one mirroring may take: the agent's output waits meanwhile."""
RENEW_SECONDS = 60.0
PROMPT_PREFIX = "prompt/"
VIA = "wrapper"
"""The source of a recorded location: this process, not a hook of the agent."""
_SIGINT = 2
_GLIMPSE = 65_536


class Wrapped(NamedTuple):
    """What a run needs besides its launch."""

    session: Session
    of: Vendor
    env: Mapping[str, str]
    """The complete environment it will run in."""
    show: bool = True
    """Whether a headless agent's output is passed on."""
    raw: bool = False
    """Whether that is the JSON stream itself and not the text that the program prints without one."""
    waits: bool = False
    """Whether an agent on a terminal is ended at a limit that ends with time, because its command waits for that."""
    person: str = ""
    """Who starts it."""
    notify: Callable[[], None] = lambda: None
    """Called when a stop was recorded while the agent is still on its terminal."""


class Ask(NamedTuple):
    """What an agent is asked to do."""

    prompt: str = ""
    headless: bool = False
    extra: Sequence[str] = ()
    """The user's own arguments for the vendor's program."""
    only_extra: bool = False
    """Whether a resume uses only these arguments, and not those on record."""
    id: str | None = None
    """The idempotency key of the prompt, if it must not be issued twice."""
    anew: str = ""
    """What a new conversation is asked instead, if the old one is not restored."""
    now: bool = False
    """It is resumed now, also if there is no limit to wait for and nothing to say."""
    as_of: int | None = None
    """The position up to which the log was read to decide this. If the agent ran since, the decision is void."""


class Outcome(NamedTuple):
    """How a run ended."""

    status: int
    why: Interruption
    vendor_id: str | None
    """The conversation it had at the end, if that became known."""
    came_up: str | None
    """The first conversation that was seen; at a resume it must be the expected one."""
    grew: bool
    """The file of the expected conversation has grown."""
    rewritten: bool
    """The vendor replaced the transcript."""
    interruption: Event | None
    orphans: list[int]
    """Processes left over by a killed agent; they were ended."""
    problems: list[str]
    """What could not be recorded while it ran."""

    @property
    def finished(self) -> bool:
        """Whether it finished its task; a run that was interrupted did not."""
        return self.why.cause == FINISHED


def token() -> str:
    """A name for one start of one agent."""
    return machine.entropy(16).hex()


def environment(base: Mapping[str, str], session: Session, spawn: str) -> dict[str, str]:
    """The environment that names session and agent for an agent's hooks and commands."""
    env = {**base, SESSION_VARIABLE: session.id, AGENT_VARIABLE: session.agent, SPAWN_VARIABLE: spawn}
    for name in (FAILURE_VARIABLE, HEADLESS_VARIABLE):  # these are of the command around it, not of the agent
        env.pop(name, None)
    return env


def record_prompt(session: Session, ask: Ask, **about: Any) -> int | None:
    """Record an agent's prompt before it is sent; returns its position, if there is a prompt."""
    if not ask.prompt:
        return None
    session.facts.title_by_prompt(ask.prompt)
    id_ = ask.id or PROMPT_PREFIX + make_ulid(int(session.clock() * 1e3), machine.entropy(10))
    return session.log.record("payload.kept", {"prompt": ask.prompt, "agent": session.agent, **about}, id=id_).position


def wrap(
    run: Wrapped, launch: Launch, *, vendor_id: str | None, resumed: bool = False, headless: bool = False,
    prompted: int | None = None,
) -> Outcome:  # fmt: skip
    """Run it to its end. The session must be joined; `prompted` is the position of its prompt in the log.

    With `resumed` it must come up with exactly the conversation `vendor_id`; if not, it is ended at once.
    """
    watch = _Watch(run, launch, vendor_id, resumed=resumed, prompted=prompted, seen=not headless)
    whole = {**run.env, **launch.env, **({HEADLESS_VARIABLE: "1"} if headless else {})}
    if headless:
        printer = Printer(run.of) if launch.streams and not run.raw else None
        ran = run_headless(launch, whole, watch, show=run.show, printer=printer)
    else:
        ran = run_on_terminal(launch, whole, watch)
    watch.finish()
    why = _judge(run.of, ran, watch)
    orphans = processes.end_spawned(run.env[SPAWN_VARIABLE]) if why.cause not in (FINISHED, UNKNOWN) else []
    event = watch.stop
    if event is None and why.cause != FINISHED:
        event = watch.recording(lambda: _interrupt(run, watch, why, status=ran.status))
    return Outcome(
        ran.status, why, watch.current, watch.came_up, watch.grew(), watch.rewritten, event, orphans, watch.problems
    )


def _judge(of: Vendor, ran: Ran, watch: _Watch) -> Interruption:
    """Why it stopped. If this process stopped it, the vendor's output does not matter."""
    if watch.wrong:
        return Interruption(CRASH, f"another conversation came up: {watch.came_up}")
    if watch.why is not None:
        return watch.why  # a limit explains why a person, or this process, ended it
    if watch.spent and ran.ended_by_us and not ran.stopped_by:
        return Interruption(BUDGET, watch.spent)
    if ran.stopped_by:
        return Interruption(USER if ran.stopped_by == _SIGINT else KILLED, f"stopped by signal {ran.stopped_by}")
    why = of.classify(ran.lines, ran.status)
    undone = left(watch.turn, time.time()) if ran.status == 0 and why.cause == FINISHED else None
    if undone is not None:
        return undone
    if why.cause == FINISHED and ran.status:
        return why._replace(cause=KILLED if ran.status < 0 else CRASH)  # interrupted, not finished
    return why


def _interrupt(run: Wrapped, watch: _Watch, why: Interruption, **about: Any) -> Event:
    return record_stop(run.session, why, watch.undone(), vendor=run.of.name, vendor_id=watch.current, **about)


class _Watch:
    """Watches an agent run: which conversation it has, and what is added to it."""

    def __init__(
        self, run: Wrapped, launch: Launch, vendor_id: str | None, *, resumed: bool, prompted: int | None = None,
        seen: bool = False,
    ) -> None:  # fmt: skip
        self.run = run
        self.launch = launch
        self.expected = vendor_id if resumed else None
        self.current = vendor_id
        self._had = [vendor_id] if vendor_id else []
        """The conversations of this run, in order: ids rotate, and the last messages of each are mirrored too."""
        self.came_up: str | None = None
        self.wrong = False
        self.spent = ""
        """Which limit of the budget is used up."""
        self.rewritten = False
        self._verified = False
        self.problems: list[str] = []
        self._pid = 0
        self._began = self._looked = self._mirrored = self._renewed = time.monotonic()
        self._since = run.session.views.position
        self._location: Location | None = None
        self._mark: Mark | None = None
        self.stop: Event | None = None
        """The stop that is on record while the agent is still on its terminal; None when it works again."""
        self.why: Interruption | None = None
        self._prompted = prompted
        self._on_terminal = seen
        self._follower: tuple[str, Follower] | None = None
        self._stopped_turn: Turn | None = None
        if self.expected is not None:
            self._note_beginning(self.expected)

    def _note_beginning(self, vendor_id: str) -> None:
        """The length of the conversation before the run; it is mirrored first, so that nothing can be lost."""
        run = self.run
        link = run.session.views.roster.link(run.of.name, vendor_id)
        self._location = location_of(link, run.env) if link else None
        if self._location is not None:
            self.recording(lambda: mirror(run.session, run.of.name, vendor_id, run.env, location=self._location))
            self._mark = standing(run.session, run.of.name, vendor_id).mark

    # What the runner reports

    def started(self, pid: int) -> None:
        """Its process was started: recorded with its conversation, so that no second writer is started."""
        self._pid = pid
        if self.current:
            self._locate(self.current, process=machine.identity_of(pid))

    def line(self, text: str) -> None:
        """An id in the stream."""
        seen = self.run.of.stream_id(text)
        if seen:
            self._see(seen)

    def tick(self) -> bool:
        """Check lock files and what the hooks recorded; mirror; renew the lease; each in its own interval."""
        now = time.monotonic()
        eager = self.came_up is None and now - self._began < EAGER_SECONDS
        if eager or now - self._looked >= LOOK_SECONDS:
            self._looked = now
            self.recording(self._look)
            self.recording(self._verify)
            self.recording(self._check_budget)
            self.recording(self._observe)
        if now - self._mirrored >= MIRROR_SECONDS:
            self.recording(lambda: self._mirror(MIRROR_AT_MOST))
            self._mirrored = time.monotonic()
        if now - self._renewed >= RENEW_SECONDS:
            self._renewed = now
            self.recording(self._renew)
        return self.wrong or bool(self.spent) or self._is_over()

    def _check_budget(self) -> None:
        """End the run when a limit is used up; another process may have raised it."""
        session = self.run.session
        if session.views.spend.budget:
            try:
                session.refresh().budget.check()
            except BudgetExhausted as out:
                self.spent = out.message

    # What its transcript shows, on a terminal

    @property
    def turn(self) -> Turn | None:
        """The present turn, as far as it was read."""
        return self._follower[1].turn if self._follower else None

    def _follow(self) -> Follower | None:
        if not self._on_terminal or not self.current or not self.run.of.shows_turns:
            return None
        if self._follower is None or self._follower[0] != self.current:
            vendor_id = self.current
            mark = self._mark if vendor_id == self.expected else None
            self._follower = vendor_id, Follower(self.run.of, lambda: self._found(vendor_id), mark)
        return self._follower[1]

    def _found(self, vendor_id: str) -> Location | None:
        link = self.run.session.views.roster.link(self.run.of.name, vendor_id)
        return location_of(link, self.run.env) if link else None

    def _observe(self, *, over: bool = False) -> None:
        """Record a limit as soon as the vendor wrote it, and that the agent works again after it."""
        follower = self._follow()
        if follower is None:
            return
        turn, why = follower.look(), follower.stopped(self.run.session.clock(), over=over)
        if why is not None and turn != self._stopped_turn:
            self._stopped_turn, self.why = turn, why
            self.stop = _interrupt(self.run, self, why)
            self.run.notify()
        elif self._works_again(turn):
            self.stop = self.why = self._stopped_turn = None
            self.run.session.agents.record_going_on()

    def _works_again(self, turn: Turn | None) -> bool:
        changed = self.stop is not None and turn is not None and turn != self._stopped_turn
        return changed and turn is not None and turn.state != FAILED and not turn.error

    def _is_over(self) -> bool:
        """Whether the command that started it waits for the end of the limit that stopped it."""
        return self.run.waits and self.why is not None and self.why.cause in ENDS_WITH_TIME

    def undone(self) -> dict[str, Any]:
        """What a stop left undone."""
        if not self._on_terminal:
            return {"prompt": self._prompted}
        return undone(self.run.session, self.turn, self._prompted)

    def _verify(self) -> None:
        """Record that a resumed conversation is verified as soon as it is, not only when the run has ended."""
        if self._verified or self.expected is None or not self.expected == self.came_up == self.current:
            return
        if self.grew():
            self._verified = True
            self._locate(self.expected, verified=True)

    def _look(self) -> None:
        run = self.run
        seen = run.of.locate(self._pid, {**run.env, **self.launch.env})
        if seen:
            self._see(seen)
        self._hear_hooks()

    def _hear_hooks(self) -> None:
        """The conversations that hooks of this very run recorded, and a limit that its screen or its hook showed."""
        session = self.run.session
        for event in session.events(after=self._since, kinds=("agent.located", "interruption.recorded")):
            self._since = event.position
            about = event.data or {}
            if event.by == session.agent and about.get("via") in (SCREEN, REPORTED):
                self.stop, self._stopped_turn = event, self.turn
                self.why = Interruption(str(about["cause"]), str(about["message"]), about["resets_at"])
            elif event.by == session.agent and about.get("via") == "hook" and about.get("vendor") == self.run.of.name:
                self._see(str(about["vendor_id"]), linked=True)

    def _see(self, seen: str, *, linked: bool = False) -> None:
        if self.came_up is None:
            self.came_up = seen
            self.wrong = self.expected is not None and seen != self.expected
            if self.wrong:
                return
        if seen != self.current and not linked:
            about: dict[str, Any] = {"process": machine.identity_of(self._pid)} if self._pid else {}
            about |= {"reason": CLEARED if self.current else STARTUP, "via": VIA, **survey(self.launch.cwd)}
            self._locate(seen, cwd=self.launch.cwd, home=self._home(), **about)
        self.current = seen
        if seen not in self._had:
            self._had.append(seen)

    def _home(self) -> str:
        return str(self.run.of.home({**self.run.env, **self.launch.env}))

    # What is recorded

    def recording(self, act: Callable[[], Any]) -> Any:
        """A failure to record never ends the agent; it is reported when the agent has ended."""
        try:
            return act()
        except (OnrecordError, OSError) as problem:
            if str(problem) not in self.problems:
                self.problems.append(str(problem))
            return None

    def _locate(self, vendor_id: str, **about: Any) -> None:
        self.recording(lambda: self.run.session.agents.locate(self.run.of.name, vendor_id, **about))

    def _mirror(self, seconds: float | None) -> None:
        for vendor_id in self._had:
            done = mirror(self.run.session, self.run.of.name, vendor_id, self.run.env, seconds=seconds)
            self.rewritten = self.rewritten or (done.rewritten and vendor_id == self.expected)
            turn = self.turn
            if done.records and turn is not None and turn.state == IDLE:
                # Its hook looked for a question before the vendor had written the answer.
                self.run.notify()

    def _renew(self) -> None:
        session = self.run.session
        try:
            session.renew()
        except LeaseLost:
            session.lease = None
            raise

    def finish(self) -> None:
        """After its end: mirror the rest, and record the revision of the worktree."""
        self.recording(self._hear_hooks)
        self.recording(lambda: self._observe(over=True))
        self.recording(lambda: self._mirror(None))
        if self.current:
            about = self.recording(lambda: self._where(self.current or "")) or {}
            self._locate(self.current, **about, **survey(self.launch.cwd))

    def _where(self, vendor_id: str) -> dict[str, str]:
        link = self.run.session.views.roster.link(self.run.of.name, vendor_id)
        location = location_of(link, self.run.env) if link else None
        return {"transcript": location.path} if location else {}

    def grew(self) -> bool:
        """Whether the file of the expected conversation has grown since the run began."""
        if self._location is None or self.rewritten or not Path(self._location.path).exists():
            return False
        try:
            chunk = self.run.of.read(self._location, self._mark, limit=_GLIMPSE)
        except OnrecordError:
            return False
        return bool(chunk.entries) and not chunk.rewritten
