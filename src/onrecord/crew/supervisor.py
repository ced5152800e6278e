"""The supervisor: looks at everybody, asks `judging` what to do, and does it. It may die at any moment.

What it knows is on record or can be seen (is the process there?). So a supervisor that comes back finds the agents that
survived, leaves them alone, and goes on. Two at once are kept apart by a lease on the lane it works in; every start is
recorded under that lease first, so that one that lost it starts nobody.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord import machine
from onrecord.crew.ending import end
from onrecord.crew.judging import END, OVER, START, WAITING, Step, judge
from onrecord.crew.team_file import CREW
from onrecord.crew.wanted import Wanted
from onrecord.errors import InvalidInput, OnrecordError
from onrecord.log.codec import open_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from onrecord.crew.places import Places, Spawn
    from onrecord.crew.runtime_files import RuntimeFiles
    from onrecord.crew.team_file import Member
    from onrecord.session.handle import Session

LOOK_SECONDS = 0.5
"""How often it looks, in seconds."""
RENEW_SECONDS = 60.0
"""How often it renews its lease, in seconds."""
REASON_LIMIT = 300
"""How much is told of why an agent did not come up, in characters."""


class Ways(NamedTuple):
    """What a supervisor is given by its caller: it knows no vendor and no terminal."""

    spawn: Callable[[Member, str, Wanted], Spawn]
    """The command line of an agent, to begin anew or to go on."""
    place: Callable[[Member | None], Places]
    """Where an agent runs."""
    wrappers: Callable[[str], list[int]]
    """The living processes that wrap an agent, however they came to be."""
    belonging: Callable[[Iterable[str], Iterable[int]], list[int]]
    """Every living process of these agents, descendants of these processes included."""
    asks: Callable[[Member], str]
    """What an agent's screen asks of a person, where that can be told; else nothing."""
    tell: Callable[[str], None]
    """A line for the person at the terminal."""


class Supervisor:
    """Keeps the agents of one session's team running."""

    def __init__(self, session: Session, ways: Ways, files: RuntimeFiles | None = None) -> None:
        self.session = session
        self.files = files
        self.ways = ways
        self.wanted = Wanted()
        self.steps: dict[str, Step] = {}
        self._position = 0
        self._seen_alive: set[str] = set()
        self._gone: dict[str, float] = {}
        self._asking: dict[str, str] = {}
        self._renewed = time.monotonic()
        self._trouble = ""

    def look(self, now: float) -> dict[str, Step]:
        """Everybody's state and the step it calls for; changes nothing."""
        self.read()
        members = self.wanted.members()
        self.steps = {}
        for name in [*members, *(name for name in self.wanted.agents if name not in members and name != CREW)]:
            alive = self.alive(name, members.get(name))
            if alive:
                self._seen_alive.add(name)
                self._gone.pop(name, None)
            elif name in self._seen_alive:
                self._gone.setdefault(name, now)
            seen = self.wanted.seen(name, members.get(name), alive=alive, gone_at=self._gone.get(name, 0.0))
            if name in members or (alive and self.wanted.agent(name)["spawned"]):
                self.steps[name] = judge(seen, now)
        return self.steps

    def alive(self, name: str, member: Member | None = None) -> bool:
        """Whether an agent's wrapper is there: in its place, on record, or found by what it carries."""
        if self.ways.place(member).pid(name) is not None:
            return True
        one = self.wanted.agent(name)
        if not one["spawned"]:
            return False
        if one["left"] is None and one["joined"] > one["spawned"] and _is_there(one["process"]):
            return True
        return bool(self.ways.wrappers(name))

    def act(self) -> None:
        """Do what the last look calls for."""
        members = self.wanted.members()
        leaving = {name: step for name, step in self.steps.items() if step.do == END}
        for name, step in leaving.items():
            self.ways.tell(f"{name} is ended: {step.why}")
        self.end(list(leaving))
        for name, step in self.steps.items():
            if step.do == START:
                self._start(members[name], step)

    def _start(self, member: Member, step: Step) -> None:
        """What is left of its last run is ended first; on record before it happens, and only while the lane is ours."""
        self.end([member.id])
        about = {"agent": member.id, "mode": step.mode, "why": step.why}
        try:
            spawn = self.ways.spawn(member, step.mode, self.wanted)
        except (OnrecordError, OSError) as problem:  # its directory is gone, git refuses: it counts like a crash
            spawn, about["refused"] = None, str(problem)[:REASON_LIMIT]
        self.session.log.append(self.session.log.draft("agent.spawned", about), fenced=True)
        self._seen_alive.add(member.id)
        self._gone.pop(member.id, None)
        if spawn is not None:
            self.ways.tell(f"{member.id} is started ({step.mode}){': ' + step.why if step.why else ''}")
            self.ways.place(member).start(spawn)

    def end(self, names: list[str]) -> list[int]:
        """End agents with everything they started, wherever that ran off to; what had to be killed."""
        if not names:
            return []
        members = self.wanted.members()
        heads = {pid for name in names for pid in self._heads(name, members.get(name))}
        killed = end(heads, lambda: self.ways.belonging(names, heads))
        for name in names:
            self.ways.place(members.get(name)).clear(name)
        return killed

    def _heads(self, name: str, member: Member | None) -> list[int]:
        one = self.wanted.agent(name)
        found = [*self.ways.wrappers(name), self.ways.place(member).pid(name) or 0]
        if _is_there(one["process"]) and one["joined"] > one["spawned"] > 0:
            found.append(int(one["process"]["pid"]))
        return [pid for pid in found if pid]

    def end_all(self) -> list[int]:
        """End everybody who was ever started here."""
        self.read()
        return self.end([name for name, one in self.wanted.agents.items() if one["spawned"]])

    def run(self, stopped: Callable[[], bool], changed: Callable[[dict[str, dict[str, Any]]], None]) -> str:
        """Supervise until told to stop, or until the team is dismissed or done; why it ended."""
        before: Any = None
        while not stopped():
            now = self.session.clock()
            steps = self.look(now)
            if self.wanted.dismissed:
                self.end_all()
                self.look(now)
                self.write_files(self.rows())
                return "dismissed"
            self._notice()
            self.act()
            rows = self.rows()
            self.write_files(rows)
            if rows != before:
                changed(rows)
                before = rows
            if steps and all(step.state in OVER and step.do != END for step in steps.values()):
                return "done"
            self._renew()
            time.sleep(LOOK_SECONDS)
        return "stopped"

    def _renew(self) -> None:
        lease = self.session.lease
        if lease is not None and time.monotonic() - self._renewed > RENEW_SECONDS:
            self.session.lease = self.session.store.renew(lease)
            self._renewed = time.monotonic()

    def _notice(self) -> None:
        """Put on record what a screen asks of a person, and that it does not ask any more."""
        for name, member in self.wanted.members().items():
            step = self.steps.get(name)
            asks = self.ways.asks(member) if step is not None and step.state == "running" else ""
            if asks != self._asking.get(name, ""):
                self._asking[name] = asks
                kind, about = ("attention.needed", {"message": asks}) if asks else ("attention.given", {})
                self.session.log.append(self.session.log.draft(kind, about)._replace(by=name))
                if asks:
                    self.ways.tell(f"{name} needs a person: {asks}")

    def write_files(self, rows: dict[str, dict[str, Any]]) -> None:
        """Bring the runtime folder up to date. Trouble there is told, once, and ends nobody."""
        if self.files is None:
            return
        try:
            for line in self.files.write(self.session.name, rows):
                self.ways.tell(line)
            self._trouble = ""
        except InvalidInput as problem:
            if str(problem) != self._trouble:
                self._trouble = str(problem)
                self.ways.tell(f"the runtime files are not up to date: {problem}")

    def rows(self) -> dict[str, dict[str, Any]]:
        """Everybody, as other tools and people look at it."""
        roster = self.session.refresh().views.roster.agents
        found = {}
        for name, member in self.wanted.members().items():
            one, known = self.wanted.agent(name), roster.get(name)
            links, waits = (known["links"], known["waits"]) if known else ([], None)
            step = self.steps.get(name) or Step("", "")
            found[name] = {
                "command": " ".join(member.command), "session_name": f"{self.session.name}:{name}",
                "session_id": links[-1]["id"] if links else None, "vendor": known["vendor"] if known else None,
                "spawned_at": one["spawned_at"] or None, "starts": one["starts"], "restarts": len(one["restarts"]),
                "state": WAITING if step.do == START else step.state, "until": step.at or None, "why": step.why,
                "how": self.report(name),
                "needs": waits["message"] if waits else None, "group": member.group,
            }  # fmt: skip
        return found

    def report(self, name: str) -> str:
        """What became of an agent's last start: resumed (verified), fresh (why), refused (why); "" while it is open."""
        one = self.wanted.agent(name)
        if not one["spawned"]:
            return ""
        if one["joined"] < one["spawned"]:
            why = one["refused"] or (self._last_words(name) if name in self._gone else "")
            return f"refused ({why})" if why else ""
        if one["how"] == "resumed":
            return "resumed (verified)" if one["verified"] else "resumed (not verified: nothing was added to it yet)"
        if one["mode"] == "resumed":
            return f"fresh ({one['lost'] or 'nothing could be resumed'})"
        return "fresh (it is new)" if one["starts"] == 1 else "fresh (it begins anew)"

    def _last_words(self, name: str) -> str:
        member = self.wanted.members().get(name)
        lines = self.ways.place(member).output(name).strip().splitlines()
        errors = [line for line in lines if line.startswith("error: ")]
        return (errors or lines or ["its process was gone"])[-1].removeprefix("error: ")[:REASON_LIMIT]

    def read(self) -> None:
        """Fold in what was appended since."""
        records = self.session.store.read(
            self.session.id, after=self._position, kinds=Wanted.KINDS, bodies=Wanted.KINDS
        )  # fmt: skip
        for event in open_records(records):
            if event.session == self.session.id:  # the team of a fork's parent is the parent's
                self.wanted.apply(event)
            self._position = event.position


def _is_there(process: object) -> bool:
    """Whether the process on record lives on this machine. One on another machine has that lane's lease instead."""
    if not isinstance(process, dict) or process.get("host") != machine.identity()["host"]:
        return False
    return not machine.is_gone(process)
