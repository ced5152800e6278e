"""Running a team: form it, supervise it here or in a process of its own, and stop it. What the commands call."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord import machine
from onrecord.crew.members import Members
from onrecord.crew.next_step import FINISHED, LIMITED, RUNS
from onrecord.crew.supervisor import Supervisor
from onrecord.crew.team_file import CREW
from onrecord.crew.team_view import TeamView
from onrecord.errors import InvalidInput, LeaseHeld, NotFound
from onrecord.machine.signals import NotedSignals
from onrecord.vendors.port import vendor_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.crew.team_file import Member, Team
    from onrecord.log.store import Lease
    from onrecord.session.handle import Session

SETTLING_SECONDS = 120.0
"""How long a detached start waits until it is known how the start of every agent ended."""
STOP_SECONDS = 60.0
"""How long a supervisor has to end its team before the stopping process does it."""
DISMISSED, DONE, STOPPED = "dismissed", "done", "stopped"
"""Why supervising ended: the team was stopped, no agent is left to supervise, or this process was asked to stop."""
_LOOK = 0.2


class Stopped(NamedTuple):
    """The processes that had to be ended to stop a team."""

    killed: list[int]
    """Processes that did not end when they were asked to."""
    left: list[int]
    """Processes that are still running."""


class Crew:
    """One session's team. The session must be opened as the agent CREW."""

    def __init__(
        self, session: Session, team: Team, *, headless: bool, tell: Callable[[str], None], yes: bool = False
    ) -> None:
        self.session = session
        self.team = team
        self.members = Members(session, team, headless=headless, yes=yes)
        self.supervisor = Supervisor(self.members, tell)

    @classmethod
    def on_record(cls, session: Session, *, headless: bool, tell: Callable[[str], None], yes: bool = False) -> Crew:
        """The team that the session has on record; `NotFound` if it has none."""
        known = TeamView()
        for event in session.events(kinds=("team.formed", "team.scaled", "team.dismissed")):
            if event.session == session.id:
                known.apply(event)
        if known.team is None:
            raise NotFound(
                f"no team is on record in {session.name}", hint="form one from a team file", step="form_team"
            )
        return cls(session, known.team, headless=known.headless or headless, tell=tell, yes=yes)

    def member(self, agent: str) -> Member:
        """The member of this name."""
        known = {member.id: member for member in self.team.members()}
        if agent not in known:
            raise NotFound(f"the team of {self.session.name} has no agent {agent!r:.80}", hint=", ".join(known))
        return known[agent]

    # Forming

    def check_hosts(self) -> None:
        """Raise if tmux is needed and missing, before anything is on record."""
        for member in self.team.members():
            self.members.host(member)

    def take_lane(self) -> None:
        """Take the supervisor's lane; `LeaseHeld` names the process that supervises already."""
        try:
            self.session.acquire()
        except LeaseHeld as held:
            who = f"process {held.holder.get('pid')} on {held.holder.get('host')}"
            raise LeaseHeld(
                f"{who} supervises the team of {self.session.name}",
                hint="it carries out changes of the team",
                step="team_status",
                name=self.session.name,
                holder=held.holder,
            ) from None

    def form(self, *, headless: bool) -> None:
        """Record the team as it is wanted now. The lane must be taken."""
        data = {"team": self.team.as_data(), "headless": headless}
        self.session.log.append(self.session.log.draft("team.formed", data), fenced=True)

    def form_if_changed(self, *, headless: bool) -> None:
        """Record the team unless exactly this one is on record and was not dismissed."""
        self.supervisor.read()
        known, wanted = self.supervisor.view, (self.team.as_data(), headless)
        if known.team is None or known.dismissed or (known.team.as_data(), known.headless) != wanted:
            self.form(headless=headless)

    # Supervising

    def supervise(self, changed: Callable[[dict[str, dict[str, Any]]], None]) -> str:
        """Supervise until a signal arrives, or until the team is dismissed or done; why it ended."""
        with suppress(OSError):  # the supervisor reports what cannot be written there
            self.supervisor.files.prepare()
        self.take_lane()
        try:
            with NotedSignals((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)) as stops:
                why = self.supervisor.run(lambda: bool(stops.signal), changed)
            self.supervisor.look(self.session.clock())
            changed(self.supervisor.rows())
            if why == DISMISSED:
                self.members.close()
        finally:
            self.session.leave()
        return why

    def has_finished(self) -> bool:
        """Whether every agent finished its work."""
        return all(step.state == FINISHED for step in self.supervisor.steps.values())

    def detach(self) -> bool:
        """Start the supervisor in a process of its own and wait until it is known how it began; False if it failed."""
        with suppress(OSError):
            self.supervisor.files.prepare()
        session, members = self.session, self.members
        session.leave()
        log = members.processes.log(CREW)
        log.parent.mkdir(parents=True, exist_ok=True)
        words = [*machine.own_program(), "team", "up", "--session", session.id, "--store", session.log.url]
        words += ["--project", session.head.project, *(["--yes"] if members.yes else [])]
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            child = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True, cwd=members.here
            )
        finally:
            os.close(file)
        deadline = time.monotonic() + SETTLING_SECONDS
        while time.monotonic() < deadline and child.poll() is None and not self._is_settled():
            time.sleep(_LOOK)
        return child.poll() in (None, 0)

    def _is_settled(self) -> bool:
        """Whether it is known of every agent how its start ended."""
        self.supervisor.look(self.session.clock())
        return all(
            row["how"] if self.was_asked_for(name) else row["state"] in (*RUNS, LIMITED)
            for name, row in self.supervisor.rows().items()
        )

    def was_asked_for(self, agent: str) -> bool:
        """Whether an agent was started since the team was last formed."""
        view = self.supervisor.view
        return bool(view.agent(agent)["spawned"] > view.formed)

    # Stopping

    def is_foreign(self) -> bool:
        """Whether the team came from another store, and was not formed here since."""
        self.supervisor.read()
        return self.supervisor.is_foreign()

    def stop(self) -> Stopped:
        """Dismiss the team: its supervisor ends it, or this process does."""
        session, supervisor = self.session, self.supervisor
        foreign = self.is_foreign()
        session.log.record("team.dismissed", {})
        if foreign:
            return Stopped([], [])  # it never ran here; its record names no file and no process of this machine
        deadline = time.monotonic() + STOP_SECONDS
        while supervising(session) is not None and time.monotonic() < deadline:
            time.sleep(_LOOK)
        session.acquire(takeover=True)
        try:
            killed = supervisor.end_all()
            self.members.close()
            supervisor.look(session.clock())
            supervisor.write_files(supervisor.rows())
        finally:
            session.leave()
        started = [name for name, one in supervisor.view.agents.items() if one["spawned"]]
        return Stopped(killed, supervisor.belonging(started))


def supervising(session: Session) -> Lease | None:
    """The lease of the process that supervises the session's team."""
    return next((one for one in session.log.leases() if one.lane == CREW and not machine.is_gone(one.holder)), None)


def refuse_idle(team: Team, *, headless: bool) -> None:
    """An agent without a terminal and without a prompt would have nothing to do."""
    for member in team.members():
        if (headless or member.headless) and not member.prompt and vendor_of(member.command[0]):
            raise InvalidInput(f"{member.id} runs without a terminal and has no prompt", hint="give it a prompt")
