"""Plays: random sequences of verbs, carried out on a session in memory, so that laws are tried on logs that can exist.

A step that the session refuses changes nothing, and the play continues: refusals are part of every session.
"""

from collections.abc import Callable, Sequence
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

# The text matters little to these laws (others try every text); which verbs are called, in which order, does.
_agents = st.sampled_from(AGENTS)
_texts = st.sampled_from(["", "a\nb", "\x1b[31m", *values.NASTY])
_spoken = st.sampled_from(["fine", "a\nb", *(text for text in values.NASTY if text.strip())])
_values = st.sampled_from(
    [None, True, 0, -0.5, 10**30, "", "x\u2028", [], [1, [2, None]], {}, {"b": {"a": "ü"}, "a": []}]
)
_objects = st.sampled_from([{}, {"b": {"a": "ü"}, "a": []}, {"text": None}, {"text": ["x"], "why": 3}])
_call = {"id": "c1", "name": "bash", "arguments": {"cmd": "pytest -k invite"}}
_items = st.sampled_from(
    [
        {"role": "user", "content": "go on"},
        {"role": "system", "content": "be \x1b[31mbrief"},
        {"role": "assistant", "content": "looking", "tool_calls": [_call]},
        {"role": "assistant", "content": "twice", "tool_calls": [_call, {"id": "c2", "name": "edit", "arguments": {}}]},
        {"role": "tool", "call": "c1", "content": "3 failed"},
        {"role": "tool", "call": "c2", "content": [{"type": "text", "text": "ü"}], "error": True},
    ]
)
_turns = st.lists(_items, min_size=1, max_size=3)
_keys = st.sampled_from(["charge", "mail", "k" * 128])
_labels = st.sampled_from(["verified", "rejected", "open", "blocked"])
_amounts = st.integers(0, 10_000)

working = st.one_of(
    st.tuples(st.just("begin"), _agents),
    st.tuples(st.just("add"), _agents, _items),
    st.tuples(st.just("commit"), _agents),
    st.tuples(st.just("abort"), _agents, _texts),
    st.tuples(st.just("record_turn"), _agents, _turns),
    st.tuples(st.just("record_large_turn"), _agents),
    st.tuples(st.just("roll_back"), _agents, st.integers(1, 3)),
    st.tuples(st.just("crash"), _agents),
    st.tuples(st.just("leave"), _agents),
    st.tuples(st.just("compact"), _agents, _spoken),
    st.tuples(st.just("start_effect"), _agents, _keys),
    st.tuples(st.just("settle_effect"), _agents, _keys, _values),
    st.tuples(st.just("use"), _agents, _amounts, st.none() | st.floats(0, 10)),
)
telling = st.one_of(
    st.tuples(st.just("decide"), _agents, _spoken),
    st.tuples(st.just("state"), _agents, _spoken, _labels),
    st.tuples(st.just("relabel"), _agents, st.integers(1, 12), _labels),
    st.tuples(st.just("challenge"), _agents, st.integers(1, 3), _spoken),
    st.tuples(st.just("uphold"), _agents, st.integers(1, 3), _spoken),
    st.tuples(st.just("reach"), _agents, st.sampled_from(["root_cause", "fix"]), st.none() | st.integers(1, 3)),
    st.tuples(st.just("change_code"), _agents, st.sampled_from(["0", "1"])),
    st.tuples(st.just("set_objective"), _agents, _spoken),
    st.tuples(st.just("set_title"), _agents, _spoken),
    st.tuples(st.just("set_next_action"), _agents, _spoken),
    st.tuples(st.just("set_reproduction"), _agents, _spoken),
    st.tuples(st.just("set_scratch"), _agents, st.sampled_from(["a", "b"]), _values),
    st.tuples(
        st.just("set_budget"),
        _agents,
        st.dictionaries(st.sampled_from(["tokens", "spend", "steps"]), st.integers(1, 99)),
    ),
    st.tuples(st.just("unknown_kind"), _agents, _values),
    st.tuples(st.just("later_version"), _agents, _objects),
)
living = st.one_of(
    st.tuples(st.just("pause"), _texts),
    st.tuples(st.just("resume"), _texts, st.booleans()),
    st.tuples(st.just("close"), _texts),
    st.tuples(st.just("archive"), _texts),
    st.tuples(st.just("rename"), st.sampled_from(["one", "two", "three"])),
    st.tuples(st.just("hold"), _texts),
    st.tuples(st.just("release"), _texts),
    st.tuples(st.just("erase"), st.integers(1, 40)),
)
steps = st.lists(st.one_of(working, working, telling, living), max_size=30) | st.lists(
    st.one_of(working, working, working, telling, living), min_size=10, max_size=40
)
quiet_steps = st.lists(st.one_of(working, working, telling), min_size=6, max_size=40)


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
