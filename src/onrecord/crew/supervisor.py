"""The supervisor: looks at everybody, asks `judging` what to do, and does it. It may die at any moment.

What it knows is on record or can be seen (is the process there?). So a supervisor that comes back finds the agents that
survived, leaves them alone, and goes on; two at once are kept apart by a lease on the lane it works in.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord import machine
from onrecord.crew.judging import DEGRADED, END, START, Step, judge
from onrecord.crew.wanted import Wanted
from onrecord.log.codec import open_records

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.crew.places import Places, Spawn
    from onrecord.crew.runtime_files import RuntimeFiles
    from onrecord.crew.team_file import Member
    from onrecord.session.handle import Session

LANE = "supervisor"
"""The agent a supervisor joins a session as: there is one of it."""
LOOK_SECONDS = 0.5
"""How often it looks."""
SETTLING_SECONDS = 20.0
"""How long a started agent may take until it is on record; until then it is not started again."""


class Ways(NamedTuple):
    """What a supervisor is given by its caller: it knows no vendor and no terminal."""

    spawn: Callable[[Member, str], Spawn]
    """The command line of an agent, to begin anew or to go on."""
    end_rest: Callable[[str], list[int]]
    """End everything that came from one start, by its token; what there was."""
    tell: Callable[[str], None]
    """A line for the person at the terminal."""


class Supervisor:
    """Keeps the agents of one session's team running."""

    def __init__(self, session: Session, places: Places, files: RuntimeFiles, ways: Ways) -> None:
        self.session = session
        self.places = places
        self.files = files
        self.ways = ways
        self.wanted = Wanted()
        self.steps: dict[str, Step] = {}
        self._position = 0
        self._ended: dict[str, float] = {}
        self._started: dict[str, float] = {}
        self._written: Any = None

    def look(self, now: float) -> dict[str, Step]:
        """Everybody's state and the step it calls for; changes nothing."""
        self._read()
        members = self.wanted.members()
        self.steps = {}
        for name in [*members, *(name for name in self.wanted.agents if name not in members)]:
            alive = self.alive(name)
            if alive:
                self._ended.pop(name, None)
            elif self.wanted.agent(name)["joined"] or name in self._started:
                self._ended.setdefault(name, now)
            seen = self.wanted.seen(members.get(name), name, alive=alive, ended_at=self._ended.get(name, 0.0))
            if name in members or alive:
                self.steps[name] = judge(seen, now)
        return self.steps

    def act(self, now: float) -> None:
        """Do what the last look calls for."""
        members = self.wanted.members()
        for name, step in self.steps.items():
            if step.do == END:
                self.ways.tell(f"{name} is ended: {step.why}")
                self.end(name)
            elif step.do == START and now - self._started.get(name, 0.0) > self._patience(name):
                self.ways.tell(f"{name} is started ({step.mode}){': ' + step.why if step.why else ''}")
                self._started[name] = now
                self.places.start(self.ways.spawn(members[name], step.mode))

    def _patience(self, name: str) -> float:
        """A start that is not on record yet is waited for, unless its process is gone already."""
        on_record = self.wanted.agent(name)["starts"][-1:] or [0.0]
        return 0.0 if on_record[0] >= self._started.get(name, 0.0) or not self.alive(name) else SETTLING_SECONDS

    def alive(self, name: str) -> bool:
        """Whether an agent's process is there: in its place, or the one that is on record."""
        if self.places.pid(name) is not None:
            return True
        one = self.wanted.agent(name)
        process = one["process"]
        return one["left"] is None and isinstance(process, dict) and not machine.is_gone(process)

    def end(self, name: str) -> list[int]:
        """End an agent with everything it started, wherever that ran off to; what was left of it."""
        one = self.wanted.agent(name)
        process = one["process"] if self.alive(name) else None
        self.places.end(name)
        if isinstance(process, dict) and not machine.is_gone(process):
            from onrecord.crew.places import end_group

            end_group(int(process["pid"]))
        return self.ways.end_rest(one["spawn"]) if one["spawn"] else []

    def end_all(self) -> dict[str, list[int]]:
        """End everybody."""
        self._read()
        left = {name: self.end(name) for name in self.wanted.agents if name != LANE}
        for name in self._started:
            self.places.end(name)
        self.places.close()
        return left

    def run(self, stopped: Callable[[], bool], changed: Callable[[dict[str, Step]], None]) -> str:
        """Supervise until told to stop, or until the team is dismissed or done; why it ended."""
        before: dict[str, str] = {}
        while not stopped():
            now = self.session.clock()
            steps = self.look(now)
            self.write_files()
            states = {name: step.state for name, step in steps.items()}
            if states != before:
                changed(steps)
                before = states
            if self.wanted.dismissed:
                self.end_all()
                return "dismissed"
            self.act(now)
            if steps and all(step.state in _OVER for step in steps.values()):
                return "done"
            self.session.renew()
            time.sleep(LOOK_SECONDS)
        return "stopped"

    def write_files(self) -> None:
        """Bring the runtime folder up to date, where something changed."""
        rows = self.rows()
        if rows != self._written:
            self.files.write(self.session.name, rows)
            self._written = rows

    def rows(self) -> dict[str, dict[str, Any]]:
        """Everybody, as other tools and people look at it."""
        roster = self.session.views.roster.agents
        found = {}
        for name, member in self.wanted.members().items():
            one, known = self.wanted.agent(name), roster.get(name, {})
            links = known.get("links") or []
            step = self.steps.get(name)
            found[name] = {
                "command": " ".join(member.command), "session_name": f"{self.session.name}/{name}",
                "session_id": links[-1]["id"] if links else None, "vendor": known.get("vendor"),
                "spawned_at": one["starts"][-1] if one["starts"] else None, "restarts": max(0, len(one["starts"]) - 1),
                "state": step.state if step else None, "why": step.why if step else "",
                "waits": (known.get("waits") or {}).get("message"), "group": member.group,
            }  # fmt: skip
        return found

    def _read(self) -> None:
        """Fold in what was appended since."""
        records = self.session.store.read(
            self.session.id, after=self._position, kinds=Wanted.KINDS, bodies=Wanted.KINDS
        )  # fmt: skip
        for event in open_records(records):
            self.wanted.apply(event)
            self._position = event.position


_OVER = frozenset({"finished", "stopped", DEGRADED})
