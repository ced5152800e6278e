"""A rollout on record against a slow, obvious reference: random requests, replies, aborts, failures, races and crashes."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from onrecord.errors import InvalidInput, LeaseLost, TrajectoryMoved, TurnConflict
from onrecord.rollout.recording import Intent, Rollout, open_rollout, read_lane
from onrecord.rollout.samples import assemble
from onrecord.rollout.trajectory import Policy
from onrecord.rollout.turns import ChatRequest, Reply
from onrecord.session.session_store import SessionStore
from onrecord.stores.memory import MemoryStore
from onrecord.testing import FakeClock
from tests.rollout.reference import Asked, Reference, Refused, Turn, merged
from tests.rollout.world import END, LETTERS, Message, aborted, answer, assistant, calling, letters, tool, user

texts = st.sampled_from(["", "a", "ok", "a longer text", "ü", "\n"])
news = st.lists(st.one_of(st.builds(user, texts), st.builds(tool, texts)), min_size=1, max_size=2)
replies = st.one_of(st.builds(assistant, texts), st.sampled_from([calling("{}"), calling('{"q": 1}', index=0)]))


class Rollouts(RuleBasedStateMachine):
    """After any requests, answers, aborts, losses and kills, the rollout on record equals the reference, bit for bit."""

    @initialize(rollback=st.integers(0, 2))
    def start(self, rollback: int) -> None:
        self.records = SessionStore(MemoryStore(), clock=FakeClock())
        self.policy = Policy(max_rollback=rollback)
        self.reference = Reference(rollback)
        self.rollout: Rollout = open_rollout(self.records, "task", policy=self.policy)
        self.zombie: tuple[Rollout, Intent] | None = None
        self.pending: tuple[Intent, Asked] | None = None
        self.stale: tuple[Intent, Asked] | None = None
        self.last: list[Message] = []
        self.begun = self.commits = self.aborts = 0

    # Requests

    @precondition(lambda self: self.pending is None)
    @rule(new=news, respell=st.booleans())
    def go_on(self, new: list[Message], respell: bool) -> None:
        known = [dict(message) for message in self.reference.messages]
        if respell:
            known = [message | {"content": message.get("content") or None, "name": "x"} for message in known]
        self.ask(known + new)

    @precondition(lambda self: self.pending is None)
    @rule(new=news, back=st.integers(1, 3))
    def go_back(self, new: list[Message], back: int) -> None:
        kept = self.reference.states[: -back or None]
        self.ask([*(kept[-1].messages if kept else []), *new])

    @precondition(lambda self: self.pending is None and self.last)
    @rule()
    def ask_again(self) -> None:
        self.ask(self.last)

    @precondition(lambda self: self.pending is None and self.reference.states)
    @rule()
    def start_over(self) -> None:
        self.ask(self.reference.states[0].messages[:-1])

    @precondition(lambda self: self.pending is None)
    @rule(messages=st.lists(st.one_of(st.builds(user, texts), replies), max_size=3))
    def ask_anything(self, messages: list[Message]) -> None:
        self.ask(messages)

    def ask(self, messages: list[Message]) -> None:
        try:
            asked = self.reference.prepare(messages) if messages else None
        except Refused:
            asked = None
        try:
            prepared = self.rollout.prepare(ChatRequest(messages), LETTERS)
        except InvalidInput:
            assert asked is None
            return
        assert asked is not None
        assert list(prepared.prompt_ids) == asked.prompt
        assert (prepared.base, prepared.answer, prepared.expected_version) == (asked.base, asked.answer, asked.version)
        trajectory = self.rollout.trajectory
        for turn, anchor in zip(trajectory.records[: prepared.base], trajectory.anchors, strict=False):
            following = ChatRequest(messages[anchor:], after=turn)
            assert self.rollout.prepare(following, LETTERS) == prepared
        self.last = messages
        if prepared.answer is None:
            self.pending = (self.rollout.intend(prepared), asked)
            self.begun += 1

    # Replies

    @precondition(lambda self: self.pending is not None)
    @rule(message=replies, finish=st.sampled_from(["stop", "tool_calls", "length"]), body=st.booleans())
    def commit(self, message: Message, finish: str, body: bool) -> None:
        assert self.pending is not None
        intent, asked = self.pending
        reply = self.reply(message, finish, "body" if body else "")
        self.rollout.commit(intent, reply)
        status = "TRUNCATED" if finish == "length" else "COMPLETED"
        said = reply.response or self.rollout.prepare(ChatRequest(self.last), LETTERS).answer
        assert said is not None
        turn = Turn(asked.prompt, list(reply.output_ids), list(reply.logprobs), status)
        self.reference.commit(asked, message, turn, said)
        self.commits += 1
        self.settle()

    @precondition(lambda self: self.pending is not None)
    @rule(text=st.none() | texts, call=st.booleans())
    def abort(self, text: str | None, call: bool) -> None:
        assert self.pending is not None
        intent, asked = self.pending
        reply = aborted(text, message=calling("{") if call else None if text is None else assistant(text))
        self.rollout.abort(intent, reply)
        self.reference.abort(asked, Turn(asked.prompt, list(reply.output_ids), list(reply.logprobs), "ABORTED"))
        self.aborts += 1
        self.settle()

    @precondition(lambda self: self.pending is not None)
    @rule()
    def fail(self) -> None:
        assert self.pending is not None
        intent, asked = self.pending
        self.rollout.fail(intent, "connection refused")
        self.reference.fail(asked, "INFRA")
        self.aborts += 1
        self.settle()

    def settle(self) -> None:
        self.stale, self.pending = self.pending, None

    def reply(self, message: Message, finish: str, body: str) -> Reply:
        ids = letters(str(message.get("content") or "call")) + ([END] if finish == "stop" else [])
        return Reply(message, ids, [-0.25 * number for number in range(len(ids))], finish, response=body)

    # What goes wrong

    @precondition(lambda self: self.stale is not None)
    @rule()
    def answer_a_turn_that_is_over(self) -> None:
        assert self.stale is not None
        for step in (self.rollout.commit, self.rollout.abort):
            try:
                step(self.stale[0], answer("late") if step == self.rollout.commit else aborted("late"))
            except (TrajectoryMoved, TurnConflict):
                continue
            raise AssertionError("a turn ended twice")

    @precondition(lambda self: self.pending is not None)
    @rule()
    def intend_twice(self) -> None:
        assert self.pending is not None
        try:
            self.rollout.intend(self.pending[0].prepared)
        except TurnConflict:
            return
        raise AssertionError("two turns under way")

    @rule(politely=st.booleans())
    def another_process_goes_on(self, politely: bool) -> None:
        """The handle is dropped (or leaves), and another one opens the rollout."""
        before, pending = self.rollout, self.pending
        if politely:
            before.leave()
        self.rollout = open_rollout(self.records, "task", policy=self.policy, takeover=True)
        if pending is not None:
            self.reference.fail(pending[1], "INCOMPLETE")
            self.zombie = (before, pending[0])
        self.pending = self.stale = None

    @precondition(lambda self: self.zombie is not None)
    @rule()
    def the_first_process_wakes_up(self) -> None:
        assert self.zombie is not None
        rollout, intent = self.zombie
        try:
            rollout.commit(intent, answer("too late"))
        except (LeaseLost, TurnConflict):
            return
        raise AssertionError("a process that lost the lane wrote to it")

    # What must hold

    @invariant()
    def the_trajectory_is_the_references(self) -> None:
        mine, theirs = self.rollout.trajectory, self.reference
        assert list(mine.token_ids) == theirs.ids
        assert mine.messages == theirs.messages
        assert (mine.version, mine.num_assistant) == (theirs.version, len(theirs.states))
        assert mine.anchors == [len(state.messages) for state in theirs.states]
        assert (mine.provisional is None) == (theirs.provisional is None)
        statuses = [record.status for record in mine.records]
        assert "ABORTED" not in statuses[:-1]

    @invariant()
    def the_samples_are_the_references(self) -> None:
        turns = self.reference.standing()
        if self.pending is not None and self.reference.provisional is None:
            base, prompt = self.pending[1].base, self.pending[1].prompt
            turns = self.reference.turns
            if base == len(turns):  # else it may replace a turn, and has not yet
                turns = [*turns, Turn(prompt, [], [], "INCOMPLETE")]
        if not turns:
            return
        (sample,) = assemble(self.rollout.lane.standing())
        found: Any = (sample.tokens.tolist(), sample.loss_mask.tolist(), sample.logprobs.tolist(), sample.status)
        assert found == merged(turns)

    @invariant()
    def a_replay_of_the_log_is_the_same(self) -> None:
        assert read_lane(self.rollout.session, policy=self.policy) == self.rollout.lane

    @invariant()
    def the_views_agree(self) -> None:
        lane = self.rollout.session.agents.lane()
        transcript = self.rollout.session.transcript("policy")
        assert lane["committed"] == self.rollout.trajectory.num_assistant == len(transcript.committed)
        assert lane["turns"] == self.begun
        assert (lane["open"] is not None) == (self.pending is not None)
        stands = self.rollout.trajectory.provisional or self.rollout.trajectory.failure
        assert bool(lane["provisional"]) == (stands is not None)
        kept = [event.kind for event in self.rollout.session.events(kinds=("turn.committed", "turn.aborted"))]
        assert (kept.count("turn.committed"), kept.count("turn.aborted")) == (self.commits, self.aborts)


TestRollouts = Rollouts.TestCase
TestRollouts.settings = settings(stateful_step_count=25, max_examples=max(400, settings().max_examples))
