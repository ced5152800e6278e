"""The supervisor: observes every agent, asks `next_step` what to do, and does it. It may die at any moment.

Everything it knows is on record or can be observed (does the process run?). So a supervisor that is started again finds
the agents that survived, leaves them alone, and continues. A lease on the supervisor's lane keeps two of them apart;
every start is recorded under that lease first, so that a supervisor that lost it starts no agent.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from onrecord import machine
from onrecord.agents.observing import SCREEN
from onrecord.crew.failures import read_failure
from onrecord.crew.next_step import (
    DEGRADED,
    END,
    NEEDS_PERSON,
    OVER,
    RESTARTING,
    RESTARTS_LIMIT,
    RUNS,
    START,
    Step,
    next_step,
)
from onrecord.crew.runtime_files import RuntimeFiles
from onrecord.crew.team_file import CREW
from onrecord.crew.team_view import TeamView
from onrecord.errors import FromElsewhere, InvalidInput, OnrecordError
from onrecord.machine.ending import end_processes
from onrecord.rules import spent
from onrecord.vendors.endings import cause_of, interruption
from onrecord.vendors.port import USAGE_WINDOW, vendor_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from onrecord.crew.members import Members
    from onrecord.crew.team_file import Member

LOOK_SECONDS = 0.5
"""How often it observes the agents, in seconds."""
END_SECONDS = 15.0
"""How long an agent has between being asked to end and being killed: its wrapper ends it, and records that."""
RENEW_SECONDS = 60.0
"""How often it renews its lease, in seconds."""
REASON_LIMIT = 300
"""The longest reason why an agent did not come up, in characters."""
_DOUBT = "no hook named it, or nothing was added to it yet"
_OURS = ("note: ", "hint: ", "Pane is dead")
"""How lines of a terminal begin that are not the agent's own: ours, and those of tmux."""


class Supervisor:
    """Keeps the agents of one session's team running."""

    def __init__(self, members: Members, tell: Callable[[str], None] = lambda _line: None) -> None:
        """`tell` gets lines for the person at the terminal."""
        self.members = members
        self.session = members.session
        self.files = RuntimeFiles(members.folder)
        self.view = TeamView()
        self._tell = tell
        self.steps: dict[str, Step] = {}
        self._position = 0
        self._agreed = 0
        self._seen_alive: set[str] = set()
        self._gone: dict[str, float] = {}
        self._asking: dict[str, str] = {}
        self._renewed = time.monotonic()
        self._trouble = ""

    def look(self, now: float) -> dict[str, Step]:
        """Observe every agent and decide its next step; changes nothing."""
        self.read()
        members = self.view.members()
        roster = self.session.refresh().views.roster.agents
        self.steps = {}
        out = self.session.views.spend.exhausted(int(now * 1e6))
        for name in [*members, *(name for name in self.view.agents if name not in members and name != CREW)]:
            alive = self.alive(name, members.get(name))
            if alive:
                self._seen_alive.add(name)
                self._gone.pop(name, None)
            else:
                self.read()  # it recorded its end before it was gone, perhaps after the log was read above
                if name in self._seen_alive:
                    self._gone.setdefault(name, now)
            doing, trouble = self.members.doing(members.get(name), roster.get(name)) if alive else ("", "")
            gone_at = self._gone.get(name, 0.0)
            seen = self.view.observed(
                name, members.get(name), alive=alive, gone_at=gone_at, doing=doing, trouble=trouble
            )  # fmt: skip
            if len(seen.restarts) >= RESTARTS_LIMIT and not (alive or seen.last):
                seen = seen._replace(last=self._last_words(name))
            if name in members or (alive and self.view.agent(name)["spawned"]):
                self.steps[name] = next_step(seen._replace(spent=spent(out)) if out else seen, now)
        return self.steps

    def alive(self, name: str, member: Member | None = None) -> bool:
        """Whether an agent's wrapper runs: its host knows it, it is on record, or its environment carries the mark."""
        if self.members.host(member).pid(name) is not None:
            return True
        one = self.view.agent(name)
        if not one["spawned"]:
            return False
        if one["left"] is None and one["joined"] > one["spawned"] and _is_there(one["process"]):
            return True
        return bool(self.members.wrappers(name))

    def act(self) -> None:
        """Take the steps that were decided last."""
        members = self.view.members()
        leaving = {name: step for name, step in self.steps.items() if step.do == END}
        for name, step in leaving.items():
            self._tell(f"{name} is being stopped: {step.why}")
        self.end(list(leaving))
        for name, step in self.steps.items():
            if step.do == START:
                self._start(members[name], step)

    def _start(self, member: Member, step: Step) -> None:
        """End what is left of its last run; record the start under the lease; then start it."""
        self.end([member.id])
        about = {"agent": member.id, "mode": step.mode, "why": step.why}
        try:
            spawn = self.members.spawn(member, step.mode, self.view)
        except (OnrecordError, OSError) as problem:  # its directory is gone, git refuses: it counts like a crash
            spawn, about["refused"] = None, str(problem)[:REASON_LIMIT]
        self.session.log.append(self.session.log.draft("agent.spawned", about), fenced=True)
        self._seen_alive.add(member.id)
        self._gone.pop(member.id, None)
        if spawn is not None:
            self.members.failure_file(member.id).unlink(missing_ok=True)
            self._tell(f"{member.id} is started ({step.mode}){': ' + step.why if step.why else ''}")
            self.members.host(member).start(spawn)

    def end(self, names: list[str]) -> list[int]:
        """End agents with everything they started, whatever group or session it is in; what had to be killed."""
        if not names:
            return []
        members = self.view.members()
        heads = {pid for name in names for pid in self._heads(name, members.get(name))}
        killed = end_processes(heads, lambda: self.belonging(names, heads), grace=END_SECONDS)
        for name in names:
            self.members.host(members.get(name)).clear(name)
        return killed

    def belonging(self, names: list[str], heads: Iterable[int] = ()) -> list[int]:
        """Every living process of these agents."""
        tokens = {self.view.agent(name)["spawn"] for name in names} - {None}
        return self.members.belonging(names, tokens, heads)

    def _heads(self, name: str, member: Member | None) -> list[int]:
        one = self.view.agent(name)
        found = [*self.members.wrappers(name), self.members.host(member).pid(name) or 0]
        if _is_there(one["process"]) and one["joined"] > one["spawned"] > 0:
            found.append(int(one["process"]["pid"]))
        return [pid for pid in found if pid]

    def end_all(self) -> list[int]:
        """End every agent that was ever started here."""
        self.read()
        return self.end([name for name, one in self.view.agents.items() if one["spawned"]])

    def run(self, stopped: Callable[[], bool], changed: Callable[[dict[str, dict[str, Any]]], None]) -> str:
        """Supervise until stopped, or until the team is dismissed or done; why it ended."""
        before: Any = None
        while not stopped():
            now = self.session.clock()
            steps = self.look(now)
            if self.view.dismissed:
                self.end_all()
                self.look(now)
                self.write_files(self.rows())
                return "dismissed"
            self._refuse_foreign()
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

    def is_foreign(self) -> bool:
        """Whether the team on record came from another store: then no person here agreed to what it runs."""
        return 0 < self.view.decided <= self.session.log.arrived()

    def _refuse_foreign(self) -> None:
        """Run nothing that came from another store, not even while an import or a copy extends this session."""
        if self.view.decided > self._agreed:
            if self.is_foreign():
                raise FromElsewhere(
                    f"the team of {self.session.name} came from another store",
                    hint="resume it: you are shown what it runs, and asked",
                    step="resume_team",
                    name=self.session.name,
                )
            self._agreed = self.view.decided

    def _renew(self) -> None:
        if time.monotonic() - self._renewed > RENEW_SECONDS:
            self.session.renew()
            self._renewed = time.monotonic()

    def _notice(self) -> None:
        """Record what needs a person: what a screen asks, until it stops asking, and that an agent keeps ending.

        A limit that only the screen shows is recorded too.
        """
        roster = self.session.views.roster.agents
        for name, member in self.view.members().items():
            step = self.steps.get(name)
            if step is not None and step.state in RUNS and (said := self.members.limit(member)):
                self._limit(name, member, said)
            asks = self._asks(member, step)
            recorded = name in roster and roster[name]["waits"] is not None  # by the supervisor before this one
            if asks != self._asking.setdefault(name, asks if recorded else ""):
                self._asking[name] = asks
                kind, about = ("attention.needed", {"message": asks}) if asks else ("attention.given", {})
                self.session.log.append(self.session.log.draft(kind, about)._replace(by=name))
                if asks:
                    self._tell(f"{name} needs a person: {asks}")

    def _asks(self, member: Member, step: Step | None) -> str:
        if step is None or step.state not in (*RUNS, DEGRADED):
            return ""
        return step.why if step.state == DEGRADED else self.members.question(member)

    def _limit(self, name: str, member: Member, said: str) -> None:
        """Record a limit for an agent; its wrapper reads that, ends it, waits, and resumes it with its prompt."""
        now, turn, log = self.session.clock(), self.members.present_turn(name), self.session.log
        why = interruption(cause_of(said) or USAGE_WINDOW, said, now)
        asked = {"prompt": turn.prompt, "agent": name, "typed": True} if turn is not None and turn.prompt else None
        prompt = log.append(log.draft("payload.kept", asked)._replace(by=name))[0].position if asked else None
        known = self.session.views.roster.agents[name]["links"]
        about = {
            "cause": why.cause, "message": why.message, "agent": name, "resets_at": why.resets_at, "prompt": prompt,
            "vendor": vendor_of(member.command[0]), "vendor_id": known[-1]["id"] if known else None, "terminal": True,
            "answered": turn is not None and turn.answered, "via": SCREEN,
        }  # fmt: skip
        log.append(log.draft("interruption.recorded", about)._replace(by=name))
        self._tell(f"{name} is limited: {why.message}")

    def write_files(self, rows: dict[str, dict[str, Any]]) -> None:
        """Bring the runtime folder up to date. A problem there is reported once and ends no agent."""
        try:
            for line in self.files.write(self.session.name, rows):
                self._tell(line)
            self._trouble = ""
        except InvalidInput as problem:
            if str(problem) != self._trouble:
                self._trouble = str(problem)
                self._tell(f"the runtime files are not up to date: {problem}")

    def rows(self) -> dict[str, dict[str, Any]]:
        """Every agent, as other tools and people see it."""
        roster = self.session.refresh().views.roster.agents
        found = {}
        for name, member in self.view.members().items():
            one, known = self.view.agent(name), roster.get(name)
            links, waits = (known["links"], known["waits"]) if known else ([], None)
            step = self.steps.get(name) or Step("", "")
            found[name] = {
                "command": " ".join(member.command), "session_name": f"{self.session.name}:{name}",
                "session_id": links[-1]["id"] if links else None, "vendor": known["vendor"] if known else None,
                "spawned_at": one["spawned_at"] or None, "starts": one["starts"], "restarts": len(one["restarts"]),
                "state": RESTARTING if step.do == START else step.state, "until": step.at or None, "why": step.why,
                "how": self.report(name),
                "needs": waits["message"] if waits and step.state == NEEDS_PERSON else None, "group": member.group,
            }  # fmt: skip
        return found

    def report(self, name: str) -> str:
        """The result of an agent's last start: resumed (verified), fresh (why), refused (why); "" while unknown."""
        one = self.view.agent(name)
        if not one["spawned"]:
            return ""
        if one["joined"] < one["spawned"]:
            why = one["refused"] or (self._last_words(name) if name in self._gone else "")
            return f"refused ({why})" if why else ""
        if one["how"] == "resumed":
            return "resumed (verified)" if one["verified"] else f"resumed (not verified: {_DOUBT})"
        if one["mode"] == "resumed":
            return f"fresh ({one['lost'] or 'nothing could be resumed'})"
        return "fresh (it is new)" if one["starts"] == 1 else "fresh (it starts a new conversation)"

    def _last_words(self, name: str) -> str:
        """Why its command did not run it: as it said itself; else the last line it printed."""
        said = read_failure(self.members.failure_file(name))
        shown = self.members.host(self.view.members().get(name)).output(name).splitlines()
        lines = [line.strip() for line in shown if line.strip() and not line.startswith(_OURS)]
        return (said or (lines or ["its process was gone"])[-1])[:REASON_LIMIT]

    def read(self) -> None:
        """Fold in what was appended since."""
        for event in self.session.events(after=self._position, kinds=TeamView.KINDS):
            if event.session == self.session.id:  # the team of a fork's parent is the parent's
                self.view.apply(event)
            self._position = event.position


def _is_there(process: object) -> bool:
    """Whether the process on record runs on this machine. One on another machine has the lane's lease instead."""
    if not isinstance(process, dict) or process.get("host") != machine.identity()["host"]:
        return False
    return not machine.is_gone(process)
