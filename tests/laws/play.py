"""Plays: random sequences of verbs, carried out on a session in memory, so that laws are tried on logs that can exist.

A step that the session refuses changes nothing, and the play continues: refusals are part of every session.
"""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from hypothesis import strategies as st

from onrecord.errors import OnrecordError
from onrecord.log.events import Event
from onrecord.session.handle import Session
from onrecord.session.session_store import SessionStore
from onrecord.session.turns import Turn
from onrecord.stores.memory import MemoryStore
from onrecord.testing import FakeClock
from onrecord.views.values import Anchor
from tests.laws import values
from tests.proofs import cite

AGENTS = ("main", "tester")
Step = tuple[Any, ...]
Choices = tuple[Any, ...]
"""A verb, and for each of its arguments what can be passed."""

# The text matters little to these laws (others try every text); which verbs are called, in which order, does.
_TEXTS = ("", "a\nb", "\x1b[31m", *values.NASTY)
_SPOKEN = ("fine", "a\nb", *(text for text in values.NASTY if text.strip()))
_VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -0.5,
    10**30,
    "",
    "x\u2028",
    [],
    [1, [2, None]],
    {},
    {"b": {"a": "ü"}, "a": []},
)
_OBJECTS: tuple[dict[str, Any], ...] = ({}, {"b": {"a": "ü"}, "a": []}, {"text": None}, {"text": ["x"], "why": 3})
_CALL = {"id": "c1", "name": "bash", "arguments": {"cmd": "pytest -k invite"}}
_ITEMS: tuple[dict[str, Any], ...] = (
    {"role": "user", "content": "go on"},
    {"role": "system", "content": "be \x1b[31mbrief"},
    {"role": "assistant", "content": "looking", "tool_calls": [_CALL]},
    {"role": "assistant", "content": "twice", "tool_calls": [_CALL, {"id": "c2", "name": "edit", "arguments": {}}]},
    {"role": "tool", "call": "c1", "content": "3 failed"},
    {"role": "tool", "call": "c2", "content": [{"type": "text", "text": "ü"}], "error": True},
)
_TURNS = [list(turn) for size in (1, 2, 3) for turn in product(_ITEMS, repeat=size)]
_KEYS = ("charge", "mail", "k" * 128)
_LABELS = ("verified", "rejected", "open", "blocked")
_AMOUNTS = (0, 1, 2, 3, 10, 97, 512, 1_000, 4_095, 6_543, 9_999, 10_000)
_COSTS = (None, 0.0, 5e-324, 1e-9, 0.1, 0.2, 0.3, 1 / 3, 1.0, 2.675, 7.123456789, 9.999999999999998, 10.0)
_LIMITS = [
    {name: limit for name, limit in zip(("tokens", "spend", "steps"), limits, strict=True) if limit}
    for limits in product((0, 1, 2, 50, 99), repeat=3)
]
_FIRST_FINDINGS = range(1, 4)

_WORKING: tuple[Choices, ...] = (
    ("begin", AGENTS),
    ("add", AGENTS, _ITEMS),
    ("commit", AGENTS),
    ("abort", AGENTS, _TEXTS),
    ("record_turn", AGENTS, _TURNS),
    ("record_large_turn", AGENTS),
    ("roll_back", AGENTS, range(1, 4)),
    ("crash", AGENTS),
    ("leave", AGENTS),
    ("compact", AGENTS, _SPOKEN),
    ("start_effect", AGENTS, _KEYS),
    ("settle_effect", AGENTS, _KEYS, _VALUES),
    ("use", AGENTS, _AMOUNTS, _COSTS),
)
_TELLING: tuple[Choices, ...] = (
    ("decide", AGENTS, _SPOKEN),
    ("state", AGENTS, _SPOKEN, _LABELS),
    ("relabel", AGENTS, range(1, 13), _LABELS),
    ("challenge", AGENTS, _FIRST_FINDINGS, _SPOKEN),
    ("uphold", AGENTS, _FIRST_FINDINGS, _SPOKEN),
    ("reach", AGENTS, ("root_cause", "fix"), (None, *_FIRST_FINDINGS)),
    ("change_code", AGENTS, ("0", "1")),
    ("set_objective", AGENTS, _SPOKEN),
    ("set_title", AGENTS, _SPOKEN),
    ("set_next_action", AGENTS, _SPOKEN),
    ("set_reproduction", AGENTS, _SPOKEN),
    ("set_scratch", AGENTS, ("a", "b"), _VALUES),
    ("set_budget", AGENTS, _LIMITS),
    ("unknown_kind", AGENTS, _VALUES),
    ("later_version", AGENTS, _OBJECTS),
)
_LIVING: tuple[Choices, ...] = (
    ("pause", _TEXTS),
    ("resume", _TEXTS, (False, True)),
    ("close", _TEXTS),
    ("archive", _TEXTS),
    ("rename", ("one", "two", "three")),
    ("hold", _TEXTS),
    ("release", _TEXTS),
    ("erase", range(1, 41)),
)


def _one_of(*groups: tuple[Choices, ...]) -> st.SearchStrategy[Step]:
    """One step of a group, each group as likely as the next, and each verb within it.

    A play has many steps, and Hypothesis takes its time for each choice it makes. So a step is one choice: of the place of its verb, and of
    the place of its arguments among all that the verb can have.
    """
    every = {
        verb: [(verb, *arguments) for arguments in product(*choices)] for group in groups for verb, *choices in group
    }
    verbs = [every[verb] for group in groups for verb, *_choices in group * (_MOST_VERBS // len(group))]

    def step(drawn: bytes) -> Step:
        steps = verbs[(drawn[0] << 8 | drawn[1]) % len(verbs)]
        return steps[(drawn[2] << 8 | drawn[3]) % len(steps)]

    return st.binary(min_size=4, max_size=4).map(
        step
    )  # Bytes are drawn evenly; of numbers, the small ones are preferred.


_MOST_VERBS = 2 * max(len(_WORKING), len(_TELLING), len(_LIVING))
_any_step = _one_of(_WORKING, _WORKING, _TELLING, _LIVING)
_working_step = _one_of(_WORKING, _WORKING, _WORKING, _TELLING, _LIVING)
_quiet_step = _one_of(_WORKING, _WORKING, _TELLING)
steps = st.lists(_any_step, max_size=30) | st.lists(_working_step, min_size=10, max_size=40)
quiet_steps = st.lists(_quiet_step, min_size=6, max_size=40)


class Play:
    """One session, the handles of its agents, and a clock that moves a second per step."""

    def __init__(self, *, name: str = "play", budget: dict[str, float] | None = None) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(clock=self.clock)
        self.records = SessionStore(self.store, project="/project", clock=self.clock)
        self.session = self.records.create(name, objective="see what happens", budget=budget)
        self.handles: dict[str, Session] = {}
        self.turns: dict[str, Turn] = {}

    def run(self, steps: Sequence[Step]) -> "Play":
        """Carry out the steps."""
        for step in steps:
            self.clock.advance(1)
            verb: Callable[..., object] = getattr(self, f"do_{step[0]}")
            try:
                verb(*step[1:])
            except OnrecordError:
                continue
        return self

    def events(self) -> list[Event]:
        """The log as a reader gets it."""
        return list(self.session.events())

    def agent(self, name: str) -> Session:
        """The handle of an agent that has its lane."""
        if name not in self.handles:
            self.handles[name] = Session(self.store, self.session.id, agent=name, clock=self.clock)
        return self.handles[name].acquire(takeover=True)

    def do_begin(self, agent: str) -> None:
        self.turns[agent] = self.agent(agent).turn()

    def do_add(self, agent: str, item: dict[str, Any]) -> None:
        if agent in self.turns:
            self.turns[agent].add(item)

    def do_commit(self, agent: str) -> None:
        if agent in self.turns:
            self.turns.pop(agent).commit()

    def do_abort(self, agent: str, reason: str) -> None:
        if agent in self.turns:
            self.turns.pop(agent).abort(reason, partial=[{"role": "assistant", "content": reason}])

    def do_record_turn(self, agent: str, items: list[dict[str, Any]]) -> None:
        self.agent(agent).record_turn(items, usage={"model": "m", "input_tokens": 3})

    def do_record_large_turn(self, agent: str) -> None:
        said = [{"role": "user", "content": "x" * 40_000}, {"role": "assistant", "content": "y"}]
        self.agent(agent).record_turn(said)

    def do_roll_back(self, agent: str, count: int) -> None:
        commits = self.agent(agent).agents.lane()["commits"]
        base = commits[-count]["base"] if len(commits) >= count else 0
        turn = self.agent(agent).turn(base=base, rollback=count)
        turn.user("again, otherwise")
        turn.commit()

    def do_crash(self, agent: str) -> None:
        self.handles.pop(agent, None)
        self.turns.pop(agent, None)
        self.agent(agent)

    def do_leave(self, agent: str) -> None:
        self.turns.pop(agent, None)
        self.agent(agent).leave()

    def do_compact(self, agent: str, summary: str) -> None:
        self.agent(agent).compact(summary)

    def do_start_effect(self, agent: str, key: str) -> None:
        self.agent(agent).effects.start(key, "tool", {"x": 1})

    def do_settle_effect(self, agent: str, key: str, result: Any) -> None:
        self.agent(agent).effects.settle(key, result=result)

    def do_use(self, agent: str, tokens: int, cost: float | None) -> None:
        self.agent(agent).budget.record_usage("m", input_tokens=tokens, cost=cost)

    def do_decide(self, agent: str, text: str) -> None:
        self.agent(agent).decide(text, because=1)

    def do_state(self, agent: str, claim: str, label: str) -> None:
        session = self.agent(agent)
        anchors: list[Anchor] = [{"path": "auth.py", "fingerprint": "0"}] if label != "open" else []
        session.findings.state(claim, label, evidence=self.new_proof(session), anchors=anchors)

    def do_relabel(self, agent: str, number: int, label: str) -> None:
        session = self.agent(agent)
        session.findings.relabel(f"f{number}", label, evidence=self.new_proof(session), contradicts=["f1"])

    def do_challenge(self, agent: str, number: int, text: str) -> None:
        session = self.agent(agent)
        session.findings.challenge(f"f{number}", text, evidence=self.new_proof(session))

    def do_uphold(self, agent: str, number: int, text: str) -> None:
        self.agent(agent).findings.uphold(f"f{number}", text)

    def do_reach(self, agent: str, what: str, number: int | None) -> None:
        session = self.agent(agent)
        finding = f"f{number}" if number else None
        session.findings.record_milestone(what, finding=finding, evidence=self.new_proof(session))

    def do_change_code(self, agent: str, fingerprint: str) -> None:
        self.agent(agent).log.record("code.changed", {"anchors": {"auth.py": fingerprint}})

    def new_proof(self, session: Session) -> list[str]:
        """Evidence that was not cited before."""
        return cite(session, f"run-{session.head.position}")

    def do_set_objective(self, agent: str, text: str) -> None:
        self.agent(agent).facts.set_objective(text)

    def do_set_title(self, agent: str, text: str) -> None:
        self.agent(agent).facts.set_title(text)

    def do_set_next_action(self, agent: str, text: str) -> None:
        self.agent(agent).facts.set_next_action(text, command=text)

    def do_set_reproduction(self, agent: str, text: str) -> None:
        self.agent(agent).facts.set_reproduction(text, rate=text)

    def do_set_scratch(self, agent: str, key: str, value: Any) -> None:
        self.agent(agent).facts.set_scratch(key, value)

    def do_set_budget(self, agent: str, limits: dict[str, float]) -> None:
        self.agent(agent).budget.set(**{name: amount * 1e6 for name, amount in limits.items()})

    def do_unknown_kind(self, agent: str, data: Any) -> None:
        self.agent(agent).log.record("weather.changed", data)

    def do_later_version(self, agent: str, data: dict[str, Any]) -> None:
        session = self.agent(agent)
        session.log.append(session.log.draft("decision.made", {"text": "x", **data})._replace(v=99))

    def do_pause(self, reason: str) -> None:
        self.session.pause(reason)

    def do_resume(self, reason: str, reopen: bool) -> None:
        self.session.resume(reason, reopen=reopen)

    def do_close(self, reason: str) -> None:
        self.session.close(reason)

    def do_archive(self, reason: str) -> None:
        self.session.archive(reason)

    def do_rename(self, name: str) -> None:
        self.session.rename(name)

    def do_hold(self, reason: str) -> None:
        self.session.log.hold(reason)

    def do_release(self, reason: str) -> None:
        self.session.log.release(reason)

    def do_erase(self, position: int) -> None:
        self.session.log.erase("on request", positions=[position])
