"""The members of one session's team, seen from this process: their commands, hosts, processes and screens."""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from onrecord import machine
from onrecord.agents import processes
from onrecord.agents.observing import Present, present_turn
from onrecord.agents.waiting import CONTINUE
from onrecord.crew.hosts import ProcessHost, Spawn
from onrecord.crew.next_step import FRESH, IDLE, NEEDS_PERSON, WORKING
from onrecord.crew.team_file import filled
from onrecord.crew.worktrees import directory_of, root_of, runtime_of
from onrecord.environment import (
    AGENT_VARIABLE,
    FAILURE_VARIABLE,
    MEMBER_VARIABLE,
    PROJECT_VARIABLE,
    SESSION_VARIABLE,
    SPAWN_VARIABLE,
    STORE_VARIABLE,
)
from onrecord.vendors.endings import cause_of
from onrecord.vendors.port import ABORTED, ENDS_WITH_TIME, FAILED, vendor, vendor_of
from onrecord.vendors.processes import family
from onrecord.work.project import project_at, worktree_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onrecord.crew.hosts import Host
    from onrecord.crew.panes import TmuxHost
    from onrecord.crew.team_file import Member, Team
    from onrecord.crew.team_view import TeamView
    from onrecord.session.handle import Session
    from onrecord.vendors.port import Turn, Vendor
    from onrecord.views.values import Agent

PLAIN = "__team-member"
"""The verb that runs a program that no vendor module supports."""
LOOK_SECONDS = 0.2
"""For how long a list of all processes is used again, in seconds."""
SCREEN_SECONDS = 2.0
"""How often an agent's screen is read for a question, in seconds."""
LIMIT_LINES = 2
"""How many lines of a screen say what a limit is and when it ends."""
FRAMES = " \t\u2502\u2503|"
_OWN = (SESSION_VARIABLE, AGENT_VARIABLE, SPAWN_VARIABLE, "TMUX", "TMUX_PANE")
"""These name the person's own agent or session; the team's agents must not inherit them."""


class Members:
    """Starts members of a team, and finds and watches their processes."""

    def __init__(self, session: Session, team: Team, *, headless: bool, yes: bool = False) -> None:
        self.session = session
        self.team = team
        self.headless = headless or all(member.headless for member in team.members())
        self.yes = yes
        """Whether a resume may change the user's files without asking."""
        self.here = worktree_for(session, os.curdir)
        self.folder = runtime_of(team, self.here)
        self.processes = ProcessHost(self.folder / "logs" / session.id)
        self._tmux: TmuxHost | None = None
        self._marked: tuple[float, list[tuple[int, dict[str, str]]]] = (0.0, [])
        self._screens: dict[str, tuple[float, list[str]]] = {}
        self._turns: dict[str, tuple[float, Turn | None]] = {}
        self._present: dict[str, Present] = {}

    # Where they run

    def tmux(self) -> TmuxHost:
        """The team's tmux; a clear error if it is not installed."""
        if self._tmux is None:
            from onrecord.crew.panes import TmuxHost

            self._tmux = TmuxHost(self.session.id, self.session.name, self.folder)
        return self._tmux

    def host(self, member: Member | None) -> Host:
        """Where an agent runs."""
        return self.processes if self.headless or (member is not None and member.headless) else self.tmux()

    def close(self) -> None:
        """End the team's tmux, after its agents have ended."""
        if not self.headless:
            self.tmux().close()

    def failure_file(self, agent: str) -> Path:
        """The file in which the command that runs an agent writes why it could not."""
        return self.processes.folder / f"{agent}.failure.json"

    # What they run

    def spawn(self, member: Member, mode: str, view: TeamView) -> Spawn:
        """The command line of an agent: our own command around its program."""
        cwd = directory_of(view.team or self.team, member, self.here, self.folder)
        command = [*machine.own_program(), *self._words(member, mode, view, self._prompt(member, cwd))]
        layout = next((one.layout for one in self.team.groups if one.id == member.group), "windows")
        return Spawn(member.id, command, self._environment(member), cwd, layout, member.group)

    def _words(self, member: Member, mode: str, view: TeamView, prompt: str) -> list[str]:
        name = vendor_of(member.command[0])
        if name is None:
            return [PLAIN, self.session.id, member.id, *member.command]
        headless = view.is_headless(member)
        own = ["--agent", member.id, *(f"--argument={word}" for word in member.command[1:])]
        unasked = "--yes" if self.yes else "--no-input"  # no person may be there, and an agent must not wait for one
        if mode == FRESH:
            asked = [f"--prompt={prompt}"] if headless else [f"--opening={prompt}"] if prompt else []
            wait = [] if headless else ["--wait"]
            return ["start", name, "--session", self.session.id, *own, *asked, *wait, unasked]
        fallback = [f"--opening={prompt}"] if prompt else []
        return [
            "resume", self.session.id, "--fresh-arguments", *own, "--policy=allow", *fallback,
            *self._proceed(member, view, headless=headless), unasked,
        ]  # fmt: skip

    def _proceed(self, member: Member, view: TeamView, *, headless: bool) -> list[str]:
        """What a resumed agent gets: after a limit its prompt again, after a crash the order to continue, else nothing.

        On a terminal it gets that order only if its turn was in progress. Its transcript shows that, so the order comes
        exactly once, also if this process dies.
        """
        if view.stopped_at_limit(member.id):
            return ["--wait"]
        if headless:
            return [f"--prompt={CONTINUE}"]
        turn = present_turn(self.session, member.id, os.environ)
        return ["--wait", f"--say={CONTINUE if turn is not None and turn.state == WORKING else ''}"]

    def _prompt(self, member: Member, cwd: str) -> str:
        known = {
            "agent": member.id, "session": self.session.name, "project": project_at(self.here).root,
            "team": self.team.name, "directory": cwd,
        }  # fmt: skip
        return filled(member.prompt, self.team.variables | known)

    def _environment(self, member: Member) -> dict[str, str]:
        env = {name: value for name, value in os.environ.items() if name not in _OWN}
        env |= {STORE_VARIABLE: self.session.log.url, PROJECT_VARIABLE: self.session.head.project}
        env |= member.environment
        env |= {MEMBER_VARIABLE: self._mark(member.id), FAILURE_VARIABLE: str(self.failure_file(member.id).absolute())}
        if os.sep in member.command[0]:  # the wrapper looks for the program by name
            found = Path(root_of(self.team, self.here), member.command[0]).parent
            env["PATH"] = f"{found}{os.pathsep}{env.get('PATH', os.defpath)}"
        return env

    # Which processes are theirs

    def _mark(self, agent: str) -> str:
        return f"{self.session.id}/{agent}"

    def wrappers(self, agent: str) -> list[int]:
        """The living commands of ours around an agent: they carry its mark, but not the token that agents are given."""
        at, found = self._marked
        if time.monotonic() - at > LOOK_SECONDS:  # this is asked for every agent in turn
            found = [(pid, processes.environment_of(pid)) for pid in processes.processes()]
            found = [(pid, env) for pid, env in found if MEMBER_VARIABLE in env and SPAWN_VARIABLE not in env]
            self._marked = (time.monotonic(), found)
        mark = self._mark(agent)
        return [pid for pid, env in found if env[MEMBER_VARIABLE] == mark and machine.started(pid) is not None]

    def belonging(self, agents: Iterable[str], tokens: Iterable[str], heads: Iterable[int]) -> list[int]:
        """Every living process of these agents: by mark, by the tokens of their starts, and as descendants of heads."""
        marks, wanted = {self._mark(agent) for agent in agents}, set(tokens)
        found = {pid for head in heads for pid in family(head) if machine.started(pid) is not None}
        for pid in processes.processes():
            env = processes.environment_of(pid)
            carries = env.get(MEMBER_VARIABLE) in marks or env.get(SPAWN_VARIABLE) in wanted
            if carries and machine.started(pid) is not None:
                found.add(pid)
        return sorted(found - {os.getpid()})

    # What they do and ask

    def doing(self, member: Member | None, known: Agent | None) -> tuple[str, str]:
        """What an agent whose program runs is doing, and why it needs a person if it does."""
        if member is None or self.headless or member.headless or vendor_of(member.command[0]) is None:
            return WORKING, ""
        turn = self.present_turn(member.id)
        asks, waits = self.question(member), known["waits"] if known else None
        if asks or (waits and (turn is None or turn.state != IDLE)):
            return NEEDS_PERSON, ""  # what it asks is in the roster
        if turn is not None and turn.state == FAILED and cause_of(turn.error) not in ENDS_WITH_TIME:
            return NEEDS_PERSON, turn.error.splitlines()[-1] if turn.error else "its turn failed"
        waits_for_prompt = turn.state in (IDLE, ABORTED) if turn is not None else not member.prompt
        return (IDLE if waits_for_prompt else WORKING), ""

    def question(self, member: Member) -> str:
        """The line of an agent's screen that asks for a permission; "" when there is none."""
        name = vendor_of(member.command[0])
        if name is None or self.headless or member.headless:
            return ""
        return asked_on(self._screen(member.id), vendor(name))

    def limit(self, member: Member) -> str:
        """What an agent's screen says about a limit that its transcript does not mention; "" when there is none."""
        name = vendor_of(member.command[0])
        patterns = [re.compile(one) for one in vendor(name).limit_patterns] if name else []
        if not patterns or self.headless or member.headless:
            return ""
        lines = self._screen(member.id)
        first = next((at for at, line in enumerate(lines) if any(one.search(line) for one in patterns)), None)
        return "" if first is None else " ".join(lines[first : first + LIMIT_LINES])

    def present_turn(self, agent: str) -> Turn | None:
        """What an agent's transcript shows, read at most every few seconds."""
        at, turn = self._turns.get(agent, (0.0, None))
        if time.monotonic() - at > SCREEN_SECONDS:
            turn = self._present.setdefault(agent, Present(self.session, agent, os.environ)).look()
            self._turns[agent] = (time.monotonic(), turn)
        return turn

    def _screen(self, agent: str) -> list[str]:
        """The lines of its screen without frames, read at most every few seconds."""
        at, lines = self._screens.get(agent, (0.0, []))
        if time.monotonic() - at > SCREEN_SECONDS:
            lines = [line.strip(FRAMES) for line in self.tmux().screen(agent).splitlines()]
            self._screens[agent] = (time.monotonic(), lines)
        return lines


def asked_on(lines: Sequence[str], of: Vendor) -> str:
    """The line of a screen that asks a person something.

    One above the place for a prompt is a remnant: a program that draws again, as when a person attaches with a narrower
    terminal, leaves what it drew before.
    """
    found = ""
    for line in lines:
        if any(re.search(one, line) for one in of.ready_patterns):
            found = ""
        elif not found and any(re.search(one, line) for one in of.prompt_patterns):
            found = line
    return found


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
