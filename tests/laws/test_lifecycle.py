"""The lifecycle as a machine: random verbs against an obvious model. What the model forbids is refused and changes nothing."""

from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from onrecord.errors import (
    Conflict,
    IllegalTransition,
    OnrecordError,
    SessionClosed,
    SessionErased,
    SessionHeld,
    SessionPaused,
)
from onrecord.log import head as heads
from onrecord.session.handle import Session
from onrecord.session.session_store import SessionStore
from onrecord.stores.memory import MemoryStore
from onrecord.testing import FakeClock

LIVE = {"open", "active", "paused", "resumed"}
# verb -> (from which states it is legal, the state it leads to)
STEPS = {
    "pause": ({"open", "active", "resumed"}, "paused"),
    "resume": ({"paused"}, "resumed"),
    "reopen": ({"closed", "archived"}, "resumed"),
    "close": (LIVE, "closed"),
    "archive": ({"closed"}, "archived"),
}


class Lifecycle(RuleBasedStateMachine):
    """One session, one agent, one human (A11, A12)."""

    @initialize()
    def open(self):
        self.clock = FakeClock()
        self.store = MemoryStore(clock=self.clock)
        self.records = SessionStore(self.store, project="/p", clock=self.clock)
        self.human = self.records.create("machine")
        self.agent = Session(self.store, self.human.id, agent="main", clock=self.clock)
        self.status, self.held, self.name, self.taken = "open", False, "machine", {"machine"}
        self.told: list[tuple[str, str]] = [("opened", "")]

    def attempt(self, legal: bool, refusals: tuple[type[OnrecordError], ...], call: Callable[[], Any]) -> bool:
        """Do it if the model allows it; if not, check that it is refused in the right way, with nothing changed."""
        self.clock.advance(60)
        before = self.store.read(self.human.id), self.store.head(self.human.id)
        refusal: OnrecordError | None = None
        try:
            call()
        except OnrecordError as problem:
            refusal = problem
        assert legal == (refusal is None), f"{refusal!r} in a session that is {self.status}"
        if refusal is not None:
            assert isinstance(refusal, refusals), f"{refusal!r} in a session that is {self.status}"
            assert isinstance(refusal, Conflict)
            assert refusal.message
            assert (self.store.read(self.human.id), self.store.head(self.human.id)) == before
        return legal

    def over(self) -> type[OnrecordError]:
        return SessionErased if self.status == "erased" else SessionClosed

    @rule(
        verb=st.sampled_from(sorted(STEPS)),
        reason=st.sampled_from(["", "rate limit until 14:00", "a\nb"]),
        who=st.booleans(),
    )
    def step(self, verb, reason, who):
        session = self.agent if who else self.human
        allowed, result = STEPS[verb]
        call = (
            (lambda: session.resume(reason, reopen=True))
            if verb == "reopen"
            else lambda: getattr(session, verb)(reason)
        )
        if self.attempt(self.status in allowed, (IllegalTransition, self.over()), call):
            self.status = result
            self.told.append((heads_word(verb), reason))

    @rule()
    def work(self):
        legal = self.status in LIVE - {"paused"}
        refusals = (SessionPaused,) if self.status == "paused" else (self.over(),)
        if self.attempt(legal, refusals, lambda: self.agent.record_turn([{"role": "user", "content": "hi"}])):
            self.status = "active"

    @rule(text=st.sampled_from(["one thing", "another"]))
    def tell(self, text):
        self.attempt(self.status in LIVE, (self.over(),), lambda: self.human.decide(text))

    @rule(name=st.sampled_from(["machine", "engine", "taken"]))
    def rename(self, name):
        if self.attempt(self.status != "erased", (SessionErased,), lambda: self.human.rename(name)):
            self.name = name
            self.taken.add(name)

    @rule()
    def hold(self):
        if self.attempt(self.status != "erased", (SessionErased,), lambda: self.human.log.hold("incident 17")):
            self.held = True

    @rule()
    def let_go(self):
        if self.attempt(self.status != "erased", (SessionErased,), lambda: self.human.log.release("understood")):
            self.held = False

    @rule()
    def erase(self):
        legal = self.status != "erased" and not self.held
        if self.attempt(legal, (SessionErased, SessionHeld), lambda: self.human.log.erase("on request")):
            self.status = "erased"
            self.told = []

    @rule()
    def open_again(self):
        """A closed, archived or erased session is never silently created again (T24)."""
        legal = self.status in LIVE

        def call() -> None:
            self.agent = self.records.open(self.name, agent="main")

        self.agent.leave()
        count = len(self.records.sessions(project=""))
        self.attempt(legal, (self.over(),), call)
        assert len(self.records.sessions(project="")) == count

    @rule()
    def crash(self):
        self.agent = Session(self.store, self.human.id, agent="main", clock=self.clock)
        if self.status in LIVE:
            self.agent.acquire(takeover=True)

    @invariant()
    def agrees(self):
        head = self.store.head(self.human.id)
        assert (head.status, head.held, head.name) == (self.status, self.held, self.name)
        assert self.human.refresh().status == self.agent.refresh().status == self.status
        assert Session(self.store, self.human.id).head == head
        assert self.human.verify().ok
        if self.status != "erased":
            told = [(s["step"], s["reason"]) for s in self.human.views.lifecycle.steps if s["step"] in WORDS]
            assert told == self.told
            assert all(step["at"] and step["by"] for step in self.human.views.lifecycle.steps)


WORDS = {"opened", "paused", "resumed", "closed", "archived"}


def heads_word(verb: str) -> str:
    return {"pause": "paused", "resume": "resumed", "reopen": "resumed", "close": "closed", "archive": "archived"}[verb]


def test_every_status_is_in_the_model():
    """The machine above knows every state a session can be in (A11)."""
    assert set(heads.STATUSES) == LIVE | {"closed", "archived", "erased"}


TestLifecycle = Lifecycle.TestCase
TestLifecycle.settings = settings(stateful_step_count=20)
