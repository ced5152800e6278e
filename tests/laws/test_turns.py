"""Turns as a machine, with a crash at every step: lanes of committed turns and a provisional tail, against an obvious model.

The model of a lane is the definition: a list of committed turns, a tail of turns that no commit has superseded yet, and
perhaps an open one. A crash drops the handle; the next process that opens the lane takes over.
"""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from onrecord.errors import InvalidInput, LeaseLost, TurnConflict
from onrecord.log.codec import encode_payload
from onrecord.log.events import Event
from onrecord.session.handle import Session
from onrecord.session.session_store import SessionStore
from onrecord.session.turns import Turn
from onrecord.stores.memory import MemoryStore
from onrecord.testing import FakeClock
from onrecord.views.transcript import well_formed
from tests.laws import values

AGENTS = ("main", "tester")
agents = st.sampled_from(AGENTS)


class Model:
    """One lane as it is defined."""

    def __init__(self) -> None:
        self.committed: list[dict[str, Any]] = []
        self.tail: list[dict[str, Any]] = []
        self.superseded: list[dict[str, Any]] = []
        self.open: dict[str, Any] | None = None

    @property
    def last(self) -> int:
        return self.committed[-1]["position"] if self.committed else 0

    def begin(self, base: int, items: list[Any] | None = None) -> None:
        self.open = {"base": base, "items": items or []}

    def end(self, status: str) -> None:
        if self.open is not None:
            self.tail.append({"status": status, "items": self.open["items"]})
            self.open = None

    def commit(self, position: int) -> None:
        assert self.open is not None
        turn, self.open = self.open, None
        self.superseded += self.tail
        self.tail = []
        while self.committed and self.committed[-1]["position"] > turn["base"]:
            self.superseded.append(self.committed.pop())
        self.committed.append({"position": position, "base": turn["base"], "items": turn["items"]})


class Turns(RuleBasedStateMachine):
    """Turns of one lane, begun, committed, aborted and retried in any order, against a plain model of them (J01-J14, J16, J17)."""

    @initialize()
    def open(self):
        self.clock = FakeClock()
        self.store = MemoryStore(clock=self.clock)
        self.records = SessionStore(self.store, project="/p", clock=self.clock)
        self.id = self.records.create("machine").id
        self.lanes = {agent: Model() for agent in AGENTS}
        self.handles: dict[str, Session] = {}
        self.zombies: list[tuple[Session, Turn | None]] = []
        self.turns: dict[str, Turn] = {}
        self.tokens = 0
        self.said: list[Any] = []
        for agent in AGENTS:
            self.take(agent)

    def take(self, agent: str) -> None:
        self.handles[agent] = self.records.open("machine", agent=agent, takeover=True)

    def log(self) -> list[Any]:
        return self.store.read(self.id)

    # What an agent does

    @rule(agent=agents)
    def begin(self, agent):
        lane = self.lanes[agent]
        if lane.open is not None:
            before = self.log()
            with pytest.raises(TurnConflict):
                self.handles[agent].turn()
            assert self.log() == before
            return
        self.turns[agent] = self.handles[agent].turn()
        lane.begin(lane.last)

    @rule(agent=agents, item=values.items, tokens=st.integers(0, 50))
    def add(self, agent, item, tokens):
        running = self.lanes[agent].open
        if running is not None:
            self.turns[agent].add(item)
            self.turns[agent].record_usage("m", output_tokens=tokens)
            running["items"].append(item)
            self.said.append(item)
            self.tokens += tokens

    @rule(agent=agents)
    def commit(self, agent):
        if self.lanes[agent].open is not None:
            event = self.turns[agent].commit()
            self.lanes[agent].commit(event.position)
            self.refuses_more(self.turns.pop(agent))

    @rule(agent=agents, partial=st.lists(values.items, max_size=2))
    def abort(self, agent, partial):
        running = self.lanes[agent].open
        if running is not None:
            self.turns[agent].abort("finish_reason == abort", partial=partial)
            running["items"] += partial
            self.said += partial
            self.lanes[agent].end("aborted")
            self.refuses_more(self.turns.pop(agent))

    def refuses_more(self, turn: Turn) -> None:
        before = self.log()
        for step in (turn.commit, lambda: turn.abort("again"), lambda: turn.user("more")):
            with pytest.raises(TurnConflict):
                step()
        assert self.log() == before

    @rule(agent=agents, items=values.turns, large=st.booleans())
    def record_turn(self, agent, items, large):
        lane = self.lanes[agent]
        said = [*items, {"role": "user", "content": "x" * 33_000}] if large else items
        if lane.open is not None:
            before = self.log()
            with pytest.raises(TurnConflict):
                self.handles[agent].record_turn(said)
            assert self.log() == before
            return
        event = self.handles[agent].record_turn(said, usage={"model": "m", "input_tokens": 7})
        lane.begin(lane.last, said)
        lane.commit(event.position)
        self.said += said
        self.tokens += 7

    @rule(agent=agents, back=st.integers(1, 9), allowed=st.integers(0, 9))
    def roll_back(self, agent, back, allowed):
        """A retry from an earlier base is checked before anything moves, and discards only when it commits (T16)."""
        lane = self.lanes[agent]
        if lane.open is not None or len(lane.committed) < back:
            return
        base = lane.committed[-back]["base"]
        discarded = sum(turn["position"] > base for turn in lane.committed)
        before = self.log()
        if allowed < discarded or allowed > 8:
            with pytest.raises((TurnConflict, InvalidInput)):
                self.handles[agent].turn(base=base, rollback=allowed)
            assert self.log() == before
            return
        self.turns[agent] = self.handles[agent].turn(base=base, rollback=allowed)
        lane.begin(base)

    @rule(agent=agents, base=st.integers(1, 200))
    def build_on_nothing(self, agent, base):
        """A turn on a base that is not a committed position of its lane is refused, whatever rollback allows (T16)."""
        lane = self.lanes[agent]
        known = {turn["position"] for turn in lane.committed} | {turn["base"] for turn in lane.committed} | {lane.last}
        if lane.open is None and base not in known:
            before = self.log()
            with pytest.raises(TurnConflict):
                self.handles[agent].turn(base=base, rollback=8)
            assert self.log() == before

    @rule(agent=agents, items=values.turns, crash=st.booleans())
    def lose_the_reply(self, agent, items, crash):
        """The same request on the same base, after its commit, gets the committed answer, and nothing is written (J05)."""
        lane = self.lanes[agent]
        if lane.open is not None:
            return
        base, request = lane.last, {"prompt": len(self.said)}
        with self.handles[agent].turn(request=request, base=base) as turn:
            for item in items:
                turn.add(item)
        assert isinstance(turn.committed, Event)
        lane.begin(base, list(items))
        lane.commit(turn.committed.position)
        self.said += items
        if crash:
            self.crash(agent)
        before = self.log()
        with self.handles[agent].turn(request=request, base=base) as again:
            assert again.answered
            assert again.answer == items
            with pytest.raises(TurnConflict):
                again.user("more")
        assert self.log() == before

    # What happens to the agent

    @rule(agent=agents)
    def crash(self, agent):
        """After the process died, the next one finds the base and the provisional turn (J12)."""
        self.zombies.append((self.handles[agent], self.turns.pop(agent, None)))
        self.take(agent)
        self.lanes[agent].end("interrupted")

    @rule(agent=agents)
    def leave(self, agent):
        self.turns.pop(agent, None)
        self.handles[agent].leave()
        self.lanes[agent].end("interrupted")
        self.take(agent)

    @precondition(lambda self: self.zombies)
    @rule(data=st.data())
    def wake_a_zombie(self, data):
        """A process that lost its lane writes nothing to it."""
        session, turn = data.draw(st.sampled_from(self.zombies))
        before = self.log()
        with pytest.raises((LeaseLost, TurnConflict)):
            session.record_turn([{"role": "user", "content": "I am back"}])
        for step in (turn.commit, lambda: turn.user("more"), lambda: turn.abort("late")) if turn else ():
            with pytest.raises((LeaseLost, TurnConflict)):
                step()
        with pytest.raises((LeaseLost, TurnConflict)):
            session.turn()
        assert self.log() == before

    # What must hold after each step, read by a process that knows only the store

    @invariant()
    def tells_what_the_model_tells(self):
        fresh = Session(self.store, self.id)
        transcript = fresh.transcript()
        assert {turn.status for turn in transcript.committed} <= {"committed"}
        for agent, lane in self.lanes.items():
            committed = [turn for turn in transcript.committed if turn.agent == agent]
            assert [(turn.ended, turn.base, turn.items) for turn in committed] == [
                (turn["position"], turn["base"], turn["items"]) for turn in lane.committed
            ]
            tail = [(turn.status, turn.items) for turn in transcript.provisional if turn.agent == agent]
            running = [("running", lane.open["items"])] if lane.open is not None else []
            assert tail == [(turn["status"], turn["items"]) for turn in lane.tail] + running
            gone = sorted(encode_payload(turn.items) for turn in transcript.superseded if turn.agent == agent)
            assert gone == sorted(encode_payload(turn["items"]) for turn in lane.superseded)
            counted = fresh.agents.lane(agent)
            assert (counted["committed"], counted["last_commit"]) == (len(lane.committed), lane.last)
            assert [turn["how"] for turn in counted["provisional"]] == [turn["status"] for turn in lane.tail]
            assert (counted["open"] is not None) == (lane.open is not None)
            # The next model call does not see what was aborted.
            seen = Session(self.store, self.id, agent=agent).context(10**9).items
            assert seen == well_formed(item for turn in lane.committed for item in turn["items"])

    @invariant()
    def forgets_nothing(self):
        """The log has all items ever recorded, and all usage is counted (J16, J17)."""
        session = Session(self.store, self.id)
        logged = [
            item
            for event in session.events(kinds=["item.added", "turn.recorded"])
            for item in (event.data["items"] if event.kind == "turn.recorded" else [event.data["item"]])
        ]
        assert logged == self.said
        total = session.views.spend.total
        assert total["input_tokens"] + total["output_tokens"] == self.tokens
        assert session.verify().ok
        assert session.head == self.store.head(self.id)


TestTurns = Turns.TestCase
TestTurns.settings = settings(stateful_step_count=25)
