"""The story runner: a script in plain words, run on a session, and what people and agents would then read.

A story is a text file. It opens with a sentence or two. `-- log --` is a script, one verb per line; the other sections
are the expected results: `note`, `brief`, `transcript`, `state`, `context`. `pytest --update-stories` writes them again;
review the difference in git.

    open NAME as AGENT: OBJECTIVE      AGENT begins a turn             AGENT records a turn: TEXT | TEXT | ...
    AGENT comes back                   AGENT system|user|assistant: .. AGENT commits
    AGENT is killed                    AGENT tool CALL: TEXT           AGENT aborts: REASON
    AGENT leaves                       AGENT decides: TEXT             AGENT uses N tokens [costing X]
    AGENT states LABEL: CLAIM [E, ..]  AGENT relabels F LABEL: [E, ..] AGENT takes next: TEXT $ COMMAND
    AGENT starts effect KEY            AGENT settles effect KEY: TEXT  AGENT compacts: SUMMARY
    budget: LIMIT=N ...                reproduction: STEPS (RATE)      pause|resume|reopen|close|archive|hold|release: WHY
    wait N days                        sweep                           erase N, N: WHY
    fork NAME at N                     rename NAME                     {"kind": ..., "data": {...}}

An assistant's text may end in `-> CALL NAME {ARGUMENTS}`. A line that ends in `!! CODE` must be refused with that code.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from onrecord.errors import OnrecordError
from onrecord.log.item_values import Item
from onrecord.log.items import text_of
from onrecord.log.store import Store
from onrecord.session.handle import Session
from onrecord.session.session_store import SessionStore
from onrecord.session.turns import Turn
from onrecord.testing import FakeClock
from onrecord.views.render import visible
from onrecord.views.transcript import Turn as Told
from tests.proofs import cite

MARK = re.compile(r"^-- (\w+) --$")
STEP_SECONDS = 60
VERBS: list[tuple[re.Pattern[str], Callable[..., object]]] = []


def parse(text: str) -> dict[str, str]:
    """The sections of a story; the text before the first mark is its introduction."""
    sections, name = {"": ""}, ""
    for line in text.splitlines():
        found = MARK.match(line)
        if found:
            name = found[1]
            sections[name] = ""
        else:
            sections[name] += line + "\n"
    return {name: body.strip("\n") + "\n" for name, body in sections.items()}


def compose(sections: dict[str, str]) -> str:
    """Read a story from its file."""
    return sections[""] + "".join(f"\n-- {name} --\n{body}" for name, body in sections.items() if name)


def verb(pattern: str) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Bind a method of the story to a form of a line."""

    def keep(method: Callable[..., object]) -> Callable[..., object]:
        VERBS.append((re.compile(pattern, re.DOTALL), method))
        return method

    return keep


def words(text: str) -> str:
    r"""Text of a script, with escapes such as \n and \x1b replaced."""
    return re.sub(r"\\(n|t|x[0-9a-f]{2}|u[0-9a-f]{4})", lambda found: json_text(found[1]), text)


def json_text(code: str) -> str:
    return {"n": "\n", "t": "\t"}.get(code) or chr(int(code[1:], 16))


class Story:
    """One running story."""

    def __init__(self, make_store: Callable[[FakeClock], Store]) -> None:
        self.clock = FakeClock()
        self.records = SessionStore(make_store(self.clock), project="/project", clock=self.clock)
        self.handles: dict[str, Session] = {}
        self.turns: dict[str, Turn] = {}
        self.refused: list[str] = []
        self.swept: list[str] = []
        self.name = ""

    @property
    def session(self) -> Session:
        return self.records.get(self.name)

    def play(self, script: str) -> None:
        for line in script.splitlines():
            if line.strip() and not line.startswith("#"):
                self.clock.advance(STEP_SECONDS)
                self.step(line.strip())

    def step(self, line: str) -> None:
        said, _mark, code = line.partition("  !! ")
        try:
            self.do(said.strip())
        except OnrecordError as refusal:
            if refusal.code != code:
                raise
            self.refused.append(f"{said.strip()}: {refusal.code}: {refusal.message}")
        else:
            assert not code, f"not refused: {line}"

    def do(self, line: str) -> None:
        if line.startswith("{"):
            said = json.loads(line)
            self.agent(said.get("by", "human")).log.record(said["kind"], said["data"])
            return
        for pattern, method in VERBS:
            found = pattern.fullmatch(line)
            if found:
                method(self, *(words(part) if part is not None else None for part in found.groups()))
                return
        raise AssertionError(f"no verb fits the line: {line}")

    def agent(self, name: str) -> Session:
        if name not in self.handles:
            self.handles[name] = Session(self.records.store, self.session.id, agent=name, clock=self.clock)
        return self.handles[name]

    @verb(r"open (\S+) as (\w+)(?:: (.+))?")
    def open(self, name: str, agent: str, objective: str | None) -> None:
        self.handles[agent] = self.records.open(name, agent=agent, objective=objective)
        self.name = name

    @verb(r"(\w+) comes back")
    def come_back(self, agent: str) -> None:
        self.handles[agent] = self.records.open(self.name, agent=agent, takeover=True)

    @verb(r"(\w+) is killed")
    def kill(self, agent: str) -> None:
        self.turns.pop(agent, None)
        del self.handles[agent]

    @verb(r"(\w+) leaves")
    def leave(self, agent: str) -> None:
        self.turns.pop(agent, None)
        self.handles.pop(agent).leave()

    @verb(r"(\w+) begins a turn(?: on (\d+), discarding (\d+))?")
    def begin(self, agent: str, base: str | None, rollback: str | None) -> None:
        options: dict[str, Any] = {"base": int(base), "rollback": int(rollback or 0)} if base else {}
        self.turns[agent] = self.agent(agent).turn(**options)

    @verb(r"(\w+) (system|user): (.*)")
    def say(self, agent: str, role: str, text: str) -> None:
        self.turns[agent].add({"role": role, "content": text})

    @verb(r"(\w+) assistant: (.*?)(?: ?-> (\w+) (\S+) (\{.*\}))?")
    def answer(self, agent: str, text: str, call: str | None, name: str | None, arguments: str | None) -> None:
        made: Any = [{"id": call, "name": name, "arguments": json.loads(arguments or "{}")}] if call else None
        self.turns[agent].assistant(text, tool_calls=made)

    @verb(r"(\w+) tool (\w+): (.*)")
    def result(self, agent: str, call: str, text: str) -> None:
        self.turns[agent].tool(call, text)

    @verb(r"(\w+) commits")
    def commit(self, agent: str) -> None:
        self.turns.pop(agent).commit()

    @verb(r"(\w+) aborts: (.*)")
    def abort(self, agent: str, reason: str) -> None:
        self.turns.pop(agent).abort(reason)

    @verb(r"(\w+) records a turn: (.*)")
    def record_turn(self, agent: str, texts: str) -> None:
        roles = ("user", "assistant")
        said = [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts.split(" | "))]
        self.agent(agent).record_turn(said)

    @verb(r"(\w+) uses (\d+) tokens(?: costing ([\d.]+))?")
    def use(self, agent: str, tokens: str, cost: str | None) -> None:
        self.agent(agent).budget.record_usage("model", output_tokens=int(tokens), cost=float(cost) if cost else None)

    @verb(r"(\w+) decides: (.*)")
    def decide(self, agent: str, text: str) -> None:
        self.agent(agent).decide(text)

    @verb(r"(\w+) states (\w+): (.*?)(?: \[(.*)\])?")
    def finding(self, agent: str, label: str, claim: str, evidence: str | None) -> None:
        session = self.agent(agent)
        session.findings.state(claim, label, evidence=cite(session, *evidence.split(", ")) if evidence else [])

    @verb(r"(\w+) relabels (\w+) (\w+): \[(.*)\]")
    def relabel(self, agent: str, finding: str, label: str, evidence: str) -> None:
        session = self.agent(agent)
        session.findings.relabel(finding, label, evidence=cite(session, *evidence.split(", ")))

    @verb(r"(\w+) takes next: (.*?)(?: \$ (.*))?")
    def next_action(self, agent: str, text: str, command: str | None) -> None:
        self.agent(agent).facts.set_next_action(text, command=command)

    @verb(r"(\w+) starts effect (\S+)")
    def start_effect(self, agent: str, key: str) -> None:
        self.agent(agent).effects.start(key)

    @verb(r"(\w+) settles effect (\S+): (.*)")
    def settle_effect(self, agent: str, key: str, result: str) -> None:
        self.agent(agent).effects.settle(key, result=result)

    @verb(r"(\w+) compacts: (.*)")
    def compact(self, agent: str, summary: str) -> None:
        self.agent(agent).compact(summary)

    @verb(r"budget: (.*)")
    def budget(self, limits: str) -> None:
        self.session.budget.set(
            **{limit: float(amount) for limit, amount in (part.split("=") for part in limits.split())}
        )

    @verb(r"reproduction: (.*?)(?: \((.*)\))?")
    def reproduction(self, steps: str, rate: str | None) -> None:
        self.session.facts.set_reproduction(steps, rate=rate)

    @verb(r"(?:(\w+) )?(pause|resume|reopen|close|archive|hold|release): (.*)")
    def lifecycle(self, agent: str | None, step: str, reason: str) -> None:
        session = self.agent(agent) if agent else self.session
        session.resume(reason, reopen=True) if step == "reopen" else getattr(
            session.log if step in ("hold", "release") else session, step
        )(reason)

    @verb(r"wait (\d+) days")
    def wait(self, days: str) -> None:
        self.clock.advance(int(days) * 86_400)

    @verb(r"sweep")
    def sweep(self) -> None:
        self.swept += [f"{one.name}: {one.action}: {one.reason}" for one in self.records.sweep()]

    @verb(r"erase ([\d, ]+): (.*)")
    def erase(self, positions: str, reason: str) -> None:
        self.session.log.erase(reason, positions=[int(position) for position in positions.split(",")])

    @verb(r"fork (\S+) at (\d+)")
    def fork(self, name: str, position: str) -> None:
        self.session.fork(name, int(position))
        self.name, self.handles, self.turns = name, {}, {}

    @verb(r"rename (\S+)")
    def rename(self, name: str) -> None:
        self.session.rename(name)
        self.name = name

    # The sections

    def show(self, section: str) -> str:
        """The content of a section."""
        made: dict[str, Callable[[], str]] = {
            "note": self.session.note, "brief": self.session.brief, "transcript": self.transcript, "state": self.state,
            "context": self.context,
        }  # fmt: skip
        return made[section]().strip("\n") + "\n"

    def transcript(self) -> str:
        found = self.session.transcript()
        lines = []
        for title, turns in (
            ("", found.committed),
            ("provisional, ", found.provisional),
            ("superseded, ", found.superseded),
        ):
            for turn in turns:
                lines += [f"{title}{told(turn)}", *(f"  {spoken(item)}" for item in turn.items)]
        return "\n".join(lines) or "(empty)"

    def context(self) -> str:
        return "\n".join(
            f"[{message['role']}]\n{visible(str(message['content']), lines=True)}"
            for agent in sorted(self.session.views.lanes.lanes)
            for message in self.agent(agent).context(2_000).messages()
        )

    def state(self) -> str:
        session = self.session
        views, report = session.views, session.verify()
        proof = "verified" if report.ok else str(report.problems)
        lines = [
            f"{session.name} is {session.status} at {session.head.position}, run {session.head.run}, {proof}, {report.erased} erased"
        ]
        for agent, lane in sorted(views.lanes.lanes.items()):
            known = views.roster.agents.get(agent)
            here = "here" if known and known["here"] else "not here"
            lines.append(
                f"{agent} ({here}): {lane['committed']} committed, last at {lane['last_commit']}, "
                f"{len(lane['provisional'])} provisional, {lane['aborted']} aborted, {lane['interrupted']} interrupted"
                + (f", turn open since {lane['open']['position']}" if lane["open"] else "")
            )
        total = views.spend.total
        lines.append(
            f"used: {views.spend.steps} steps, {total['output_tokens']} tokens, cost {total['cost']:g}"
            + (f" and {total['unknown_cost_calls']} unknown" if total["unknown_cost_calls"] else "")
        )
        left = views.spend.remaining(int(self.clock() * 1e6))
        lines += [f"left: {limit} {amount:g}" for limit, amount in left.items() if limit != "seconds"]
        lines += [f"unknown effect: {key}" for key in session.effects.unknown()]
        lines += [f"refused: {refusal}" for refusal in self.refused]
        lines += [f"swept: {swept}" for swept in self.swept]
        return "\n".join(lines)


def told(turn: Told) -> str:
    where = f"{turn.begun} to {turn.ended}" if turn.ended else f"since {turn.begun}"
    return (
        f"{turn.agent}, {turn.status}, {where}"
        + (f": {visible(turn.reason)}" if turn.reason else "")
        + (", erased" if turn.erased else "")
    )


def spoken(item: Item) -> str:
    calls = "".join(
        f" -> {call['id']} {call['name']} {json.dumps(call['arguments'])}" for call in item.get("tool_calls", ())
    )
    call = f" {item['call']}" if "call" in item else ""
    return f"{item['role']}{call}: {visible(text_of(item))}{calls}"


def run(path: Path, make_store: Callable[[FakeClock], Store]) -> tuple[str, str]:
    """A story as in its file, and as it really happens."""
    text = path.read_text(encoding="utf-8")
    sections = parse(text)
    story = Story(make_store)
    story.play(sections["log"])
    shown = {name: body if name in {"", "log"} else story.show(name) for name, body in sections.items()}
    story.records.close()
    return text, compose(shown)
