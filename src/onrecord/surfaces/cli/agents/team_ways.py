"""What a team's supervisor is given: the command line of each agent, where it runs, and which processes are its own."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from onrecord import machine
from onrecord.agents import processes
from onrecord.agents.waiting import GO_ON
from onrecord.agents.wrapping import AGENT_VARIABLE, SESSION_VARIABLE
from onrecord.connect import PROJECT_VARIABLE, STORE_VARIABLE
from onrecord.crew.judging import FRESH
from onrecord.crew.places import Processes, Spawn
from onrecord.crew.runtime_files import RuntimeFiles
from onrecord.crew.supervisor import Supervisor, Ways
from onrecord.crew.team_file import filled
from onrecord.crew.worktrees import directory_of, root_of, runtime_of
from onrecord.vendors.port import vendor, vendor_of
from onrecord.vendors.processes import family
from onrecord.work.project import worktree_for

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onrecord.crew.panes import Panes
    from onrecord.crew.places import Places
    from onrecord.crew.team_file import Member, Team
    from onrecord.crew.wanted import Wanted
    from onrecord.session.handle import Session

MEMBER_VARIABLE = "ONRECORD_MEMBER"
"""Carried by everything that was started for an agent of a team: session and agent."""
PLAIN = "__team-member"
"""The verb that runs a program we know nothing of."""
LOOK_SECONDS = 0.2
"""How old a look at all processes may be, in seconds."""
SCREEN_SECONDS = 2.0
"""How often an agent's screen is read for a question, in seconds."""
_OWN = (SESSION_VARIABLE, AGENT_VARIABLE, processes.SPAWN_VARIABLE, "TMUX", "TMUX_PANE")
"""Whose agent the person at the terminal is, is not what the team's agents are."""


class Crew:
    """One session's team, as this process can reach it."""

    def __init__(self, session: Session, team: Team, *, headless: bool, tell: object = None, yes: bool = False) -> None:
        self.session = session
        self.team = team
        self.headless = headless or all(member.headless for member in team.members())
        self.yes = yes
        self.here = worktree_for(session.head.project, os.curdir)
        self.folder = runtime_of(team, self.here)
        self.processes = Processes(self.folder / "logs" / session.id)
        self._panes: Panes | None = None
        self._marked: tuple[float, list[tuple[int, dict[str, str]]]] = (0.0, [])
        self._screens: dict[str, tuple[float, str]] = {}
        ways = Ways(
            self.spawn, self.place, self.wrappers, self.belonging, self.asks, tell if callable(tell) else _silent
        )
        self.files = RuntimeFiles(self.folder)
        self.supervisor = Supervisor(session, ways, self.files)

    # Where agents run

    def panes(self) -> Panes:
        """The team's tmux; a clear error where there is none."""
        if self._panes is None:
            from onrecord.crew.panes import Panes

            self._panes = Panes(self.session.id, self.session.name, self.folder)
        return self._panes

    def place(self, member: Member | None) -> Places:
        """Where an agent runs."""
        return self.processes if self.headless or (member is not None and member.headless) else self.panes()

    def close(self) -> None:
        """Nobody is to run any more."""
        if not self.headless:
            self.panes().close()

    # What they run

    def spawn(self, member: Member, mode: str, wanted: Wanted) -> Spawn:
        """The command line of an agent: our own wrapper around its program."""
        cwd = directory_of(wanted.team or self.team, member, self.here, self.folder)
        command = [sys.executable, "-m", "onrecord", *self._words(member, mode, wanted, self._prompt(member, cwd))]
        layout = next((one.layout for one in self.team.groups if one.id == member.group), "windows")
        return Spawn(member.id, command, self._environment(member), cwd, layout, member.group)

    def _words(self, member: Member, mode: str, wanted: Wanted, prompt: str) -> list[str]:
        name = vendor_of(member.command[0])
        if name is None:
            return [PLAIN, self.session.id, member.id, *member.command]
        lone = wanted.is_headless(member)
        own = ["--agent", member.id, *(f"--argument={word}" for word in member.command[1:])]
        if mode == FRESH:
            asked = [f"--prompt={prompt}"] if lone else [f"--opening={prompt}"] if prompt else []
            return ["start", name, "--session", self.session.id, *own, *asked]
        goes_on = ["--wait"] if wanted.stopped_at_limit(member.id) else [f"--prompt={GO_ON}"]
        anew = [f"--opening={prompt}"] if prompt else []
        return ["resume", self.session.id, *own, *anew, *(goes_on if lone else []), *(["--yes"] if self.yes else [])]

    def _prompt(self, member: Member, cwd: str) -> str:
        known = {
            "agent": member.id, "session": self.session.name, "project": self.session.head.project,
            "team": self.team.name, "directory": cwd,
        }  # fmt: skip
        return filled(member.prompt, self.team.variables | known)

    def _environment(self, member: Member) -> dict[str, str]:
        env = {name: value for name, value in os.environ.items() if name not in _OWN}
        env |= {STORE_VARIABLE: self.session.store.url, PROJECT_VARIABLE: self.session.head.project}
        env |= member.environment
        env[MEMBER_VARIABLE] = self._mark(member.id)
        if os.sep in member.command[0]:  # the wrapper looks for the program by name
            found = Path(root_of(self.team, self.here), member.command[0]).parent
            env["PATH"] = f"{found}{os.pathsep}{env.get('PATH', os.defpath)}"
        return env

    # Which processes are theirs

    def _mark(self, agent: str) -> str:
        return f"{self.session.id}/{agent}"

    def wrappers(self, agent: str) -> list[int]:
        """The living processes that wrap an agent: what carries its mark, but not the token that agents are given."""
        at, found = self._marked
        if time.monotonic() - at > LOOK_SECONDS:  # everybody is asked for in turn
            found = [(pid, processes.environment_of(pid)) for pid in processes.processes()]
            found = [(pid, env) for pid, env in found if MEMBER_VARIABLE in env and processes.SPAWN_VARIABLE not in env]
            self._marked = (time.monotonic(), found)
        mark = self._mark(agent)
        return [pid for pid, env in found if env[MEMBER_VARIABLE] == mark and machine.started(pid) is not None]

    def belonging(self, agents: Iterable[str], heads: Iterable[int]) -> list[int]:
        """Every living process of agents: by mark, by the token of their last start, and as descendants."""
        agents = list(agents)
        marks = {self._mark(agent) for agent in agents}
        tokens = {self.supervisor.wanted.agent(agent)["spawn"] for agent in agents} - {None}
        found = {pid for head in heads for pid in family(head) if machine.started(pid) is not None}
        for pid in processes.processes():
            env = processes.environment_of(pid)
            carries = env.get(MEMBER_VARIABLE) in marks or env.get(processes.SPAWN_VARIABLE) in tokens
            if carries and machine.started(pid) is not None:
                found.add(pid)
        return sorted(found - {os.getpid()})

    # What they ask

    def asks(self, member: Member) -> str:
        """The line of an agent's screen that asks for a permission."""
        name = vendor_of(member.command[0])
        if name is None or self.headless or member.headless:
            return ""
        at, known = self._screens.get(member.id, (0.0, ""))
        if time.monotonic() - at > SCREEN_SECONDS:
            lines = self.panes().screen(member.id).splitlines()
            patterns = [re.compile(one) for one in vendor(name).prompt_patterns]
            known = next((line.strip() for line in lines if any(one.search(line) for one in patterns)), "")
            self._screens[member.id] = (time.monotonic(), known)
        return known


def warnings_of(team: Team, *, headless: bool) -> list[str]:
    """What a person should know of the team's command lines before they run."""
    found = []
    for member in team.members():
        name = vendor_of(member.command[0])
        if name is not None:
            found += [f"{member.id}: {one}" for one in vendor(name).warnings(member.command, dict(os.environ))]
            continue
        found.append(
            f"{member.id}: {member.command[0]} is not a known agent; it is run as it is, and cannot be resumed"
        )
        if member.prompt:
            found.append(f"{member.id}: its prompt is ignored, because onrecord does not know how to pass it")
        if not headless and shutil.which(member.command[0]) is None:
            found.append(f"{member.id}: there is no program {member.command[0]!r} on PATH")
    return found


def _silent(_line: str) -> None:
    """Nobody listens."""
