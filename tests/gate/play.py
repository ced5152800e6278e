"""Sessions with any history: random steps through the verbs, refused ones included, with texts of choice."""

import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from hypothesis import strategies as st

from onrecord.errors import OnrecordError
from onrecord.log.store import Store
from onrecord.rules import EDIT, RUN, ToolRequest, Verdict, commands_of
from onrecord.session.handle import Session
from onrecord.session.session_store import SessionStore
from onrecord.stores.memory import MemoryStore
from onrecord.testing import FakeClock
from onrecord.views.values import Anchor, Worktree
from tests.proofs import cite

AGENTS = ("claude", "codex")
COMMANDS = ("pytest -k invite", "python train.py --l2 0.1", "make", "sed -i s/a/b/ src/auth.py")
WORKTREES: tuple[Worktree | None, ...] = (
    None, {"root": "/p", "host": "here", "git": True}, {"root": "/p/.trees/b", "host": "here", "git": True},
)  # fmt: skip
PATHS = ("src/auth.py", "src/middleware.py")
PROFILE = {
    "name": "small", "title": "small", "about": "", "instructions": "",
    "phases": [{"name": "Plan", "checkpoint": []}, {"name": "Do it", "checkpoint": []}], "sections": [],
}  # fmt: skip
PROCESSES: tuple[dict[str, Any] | None, ...] = (None, {"pid": 1, "alive": True}, {"pid": 2, "alive": False})

Text = Callable[[], str]
Step = tuple[Any, ...]

agents = st.sampled_from(AGENTS)
steps: st.SearchStrategy[Step] = st.one_of(
    st.tuples(
        st.just("start"), agents, st.sampled_from(COMMANDS), st.sampled_from(PROCESSES), st.sampled_from(WORKTREES)
    ),
    st.tuples(st.just("settle"), agents, st.integers(1, 5), st.sampled_from(["succeeded", "failed", "abandoned"])),
    st.tuples(st.just("raw_start"), agents, st.sampled_from(COMMANDS)),
    st.tuples(st.sampled_from(["pause", "resume", "reopen", "close", "archive"]), agents),
    st.tuples(st.sampled_from(["turn", "profile", "usage"]), agents),
    st.tuples(
        st.just("budget"),
        agents,
        st.sampled_from(["steps", "tokens", "seconds", "spend"]),
        st.sampled_from([0.5, 3, 1000]),
    ),
    st.tuples(st.just("wait"), agents, st.sampled_from([1, 2_000])),
    st.tuples(st.sampled_from(["enter", "finish"]), agents, st.sampled_from(["Plan", "Do it"])),
    st.tuples(st.just("state"), agents, st.sampled_from(["open", "rejected", "verified"]), st.sampled_from(PATHS)),
    st.tuples(st.just("relabel"), agents, st.integers(1, 3), st.sampled_from(["open", "rejected"])),
    st.tuples(st.just("change"), agents, st.sampled_from(PATHS), st.sampled_from(["print", "other"])),
    st.tuples(st.just("gate"), agents, st.sampled_from([EDIT, RUN]), st.integers(0, 2)),
    st.tuples(st.just("override"), agents, st.sampled_from(["unresolved_attempt", "session_paused", "budget_spent"])),
    st.tuples(st.just("erase"), agents, st.integers(2, 12)),
)
requests = st.builds(
    lambda agent, act, command, path, worktree: ToolRequest(
        agent, act, paths=[path] if act == EDIT else [], commands=commands_of(command) if act == RUN else [],
        worktree=worktree,
    ),
    agents, st.sampled_from([EDIT, RUN]), st.sampled_from(COMMANDS), st.sampled_from(PATHS), st.sampled_from(WORKTREES),
)  # fmt: skip


def gone(process: Mapping[str, Any]) -> bool:
    """What the tests know of processes: each attempt says it."""
    return not process["alive"]


class Stage:
    """One session on a clock that the test moves, and the steps done to it, one every `pace` seconds."""

    def __init__(
        self, text: Text = lambda: "some words", *, make: Callable[..., Store] = MemoryStore, pace: float = 1
    ) -> None:
        self.clock = FakeClock()
        self.pace = pace
        self.records = SessionStore(make(clock=self.clock), project="/p", clock=self.clock)
        self.session = self.records.create("story", agent="human", objective=text())
        self.text = text
        self.count = 0

    @property
    def now(self) -> int:
        return int(self.clock() * 1e6)

    def play(self, steps: list[Step]) -> Session:
        for step in steps:
            self.clock.advance(self.pace)
            with suppress(OnrecordError):
                self.step(*step)
        return self.session

    def step(self, verb: str, agent: str, *about: Any) -> None:  # noqa: C901, PLR0912 - one branch for each verb
        self.count += 1
        session = Session(self.records.store, self.session.id, agent=agent, clock=self.clock)
        match verb, *about:
            case "start", command, process, worktree:
                session.attempts.start(command, process=process, worktree=worktree)
            case "raw_start", command:
                # What another version, or an import, may have left: a second attempt beside an unresolved one.
                session.log.record(
                    "attempt.started", {"command": self.text(), "signature": shlex.join(shlex.split(command))}
                )
            case "settle", number, outcome:
                said: dict[str, Any] = {"error": self.text()} if outcome == "failed" else {"reason": self.text()}
                number = 1 + number % max(1, session.views.attempts.count)
                session.attempts.settle(number, outcome, evidence=f"run-{number}", **said)
            case "state", label, path:
                anchors: list[Anchor] = [{"path": path, "fingerprint": "print"}]
                proof = cite(session, "run-1")
                late = self.count % 3 == 0
                session.findings.state(
                    f"{self.text()} {self.count}", label, evidence=proof, anchors=anchors, after_change=late
                )
            case "relabel", number, label:
                number = 1 + number % max(1, len(session.views.findings.findings))
                proof = cite(session, f"e{self.count}")
                session.findings.relabel(f"f{number}", label, evidence=proof, why=self.text())
            case "change", path, fingerprint:
                session.log.record("code.changed", {"anchors": {path: fingerprint}})
            case "turn", *_:
                session.record_turn([{"role": "user", "content": self.text()}])
            case "usage", *_:
                session.budget.record_usage("m", input_tokens=2, output_tokens=2, cost=0.4)
            case "budget", limit, amount:
                session.budget.set(**{limit: amount})
            case "wait", seconds:
                self.clock.advance(seconds)
            case "profile", *_:
                session.log.record("profile.chosen", {"profile": PROFILE})
            case "enter", phase:
                session.phases.enter(phase)
            case "finish", phase:
                session.phases.finish(phase)
            case "gate", act, times:
                for _ in range(times * 5):
                    session.gate.judge(ToolRequest(agent, act))
            case "override", rule:
                session.gate.override(rule, self.text())
            case "erase", position:
                session.log.erase(self.text(), positions=[2 + position % max(1, session.views.position - 1)])
            case "reopen", *_:
                session.resume(self.text(), reopen=True)
            case _:
                getattr(session, verb)(self.text())


def obey(session: Session, verdict: Verdict) -> None:
    """Do what the verdict's own command says, through the verbs behind it."""
    words = shlex.split(verdict.clear)
    assert words[0] == "onrecord"
    options = {words[at]: words[at + 1] for at in range(len(words) - 1) if words[at].startswith("--")}
    match words[1:]:
        case ["resume", name, *rest]:
            assert name == session.name
            session.resume(reopen="--reopen" in rest)
        case ["attempt", "fail", number, *_]:
            session.attempts.settle(int(number), "failed", error=options["--error"], fix=options["--fix"])
        case ["attempt", "abandon", number, *_]:
            session.attempts.settle(int(number), "abandoned", reason=options["--reason"])
        case ["open", name, *rest]:
            assert name == session.name
            session.budget.set(**{limit: float(amount) for limit, amount in (one.split("=") for one in rest[1::2])})
        case ["phase", "enter", phase, *_]:
            session.phases.enter(phase)
        case _:
            raise AssertionError(verdict.clear)
