"""A scripted rollout, and what a reader must find after each step, computed with the slow reference."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from onrecord.rollout.lane import Frozen
from onrecord.rollout.recording import Intent, Rollout, open_rollout
from onrecord.rollout.samples import digest_of
from onrecord.rollout.turns import ChatRequest, Reply
from onrecord.session.session_store import SessionStore
from tests.rollout.reference import Asked, Reference, Turn
from tests.rollout.world import LETTERS, Message, aborted, answer, calling, tool, user

LONG = "a result too long to be kept inline " * 1_200


class Step(NamedTuple):
    """One step: its verb and its arguments."""

    what: str
    value: Any = None


STEPS = [
    Step("open"),
    Step("ask", [user("task")]), Step("abort", aborted(None)),
    Step("ask", [user("task")]), Step("abort", aborted("half", message=calling('{"q"'))),
    Step("ask", [user("task")]), Step("abort", aborted("")),
    Step("ask", [user("task")]), Step("commit", answer("x", "tool_calls", message=calling('{"q": 1}'), response="body 0")),
    Step("ask", [tool(LONG)]), Step("fail", "connection refused"),
    Step("ask", [tool(LONG)]), Step("commit", answer("second", response="body 1")),
    Step("ask", [user("go on")]), Step("abort", aborted("th")),
    Step("ask", [user("go on")]), Step("commit", answer("third", response='{"body":  2}')),
    Step("back", [user("go on differently")]), Step("commit", answer("third, better", response="body 3")),
    Step("ask", [user("and on")]), Step("leave"),
    Step("open"),
    Step("ask", [user("and on")]), Step("commit", answer("fourth", "length", response="body 4")),
    Step("ask", [user("the end")]), Step("abort", aborted("nev")),
    Step("freeze"), Step("acknowledge"), Step("retire"),
]  # fmt: skip
NEXT = user("what comes next")


@dataclass
class Found:
    """What a reader finds in a rollout."""

    ids: list[int]
    messages: list[Message]
    committed: int
    version: int
    statuses: list[str]
    partial: list[int] | None
    frozen: bool
    acknowledged: bool
    again: tuple[str | None, list[int]] | None
    """What the last request gets if it is repeated: the lost answer, or the same prompt."""
    following: list[int] | None
    """The prompt of the next request."""


def reply_turn(asked: Asked, reply: Reply, status: str) -> Turn:
    return Turn(asked.prompt, list(reply.output_ids), list(reply.logprobs), status)


@cache
def expected_after(steps: int) -> Found | None:
    """The state after so many steps, once the next process has opened the rollout."""
    model = Reference()
    asked: Asked | None = None
    pending = False
    done = [step.what for step in STEPS[:steps]]
    for what, value in STEPS[:steps]:
        if what in ("ask", "back"):
            asked, pending = model.prepare(request_on(model, what, value)), True
            continue
        if asked is not None and pending:
            if what == "commit":
                status = "TRUNCATED" if value.finish == "length" else "COMPLETED"
                model.commit(asked, value.message, reply_turn(asked, value, status), value.response)
            elif what == "abort":
                model.abort(asked, reply_turn(asked, value, "ABORTED"))
            else:
                model.fail(asked, "INFRA" if what == "fail" else "INCOMPLETE")
            pending = False
    if pending and asked is not None:
        model.fail(asked, "INCOMPLETE")
    if "retire" in done:
        return None  # it is over for good
    frozen = "freeze" in done
    again = None
    if asked is not None and not frozen:
        repeated = model.prepare(asked.messages)
        again = (repeated.answer, repeated.prompt)
    return Found(
        model.ids, model.messages, len(model.states), model.version, [turn.status for turn in model.standing()],
        model.provisional[1].outputs if model.provisional else None, frozen, "acknowledge" in done, again,
        None if frozen else model.prepare([*model.messages, NEXT]).prompt,
    )  # fmt: skip


def request_on(model: Reference, what: str, new: list[Message]) -> list[Message]:
    """The messages of a client: the known ones, with or without the last turn, and a new one."""
    if what == "back":
        return [*model.states[-2].messages, *new]
    return [*model.messages, *new]


@cache
def requests() -> list[list[Message] | None]:
    """The messages of each request in the script."""
    model = Reference()
    asked: Asked | None = None
    found: list[list[Message] | None] = []
    for what, value in STEPS:
        found.append(request_on(model, what, value) if what in ("ask", "back") else None)
        if what in ("ask", "back"):
            asked = model.prepare(found[-1] or [])
        elif what == "commit":
            assert asked is not None
            model.commit(asked, value.message, reply_turn(asked, value, "COMPLETED"), value.response)
    return found


def found_in(rollout: Rollout, done: int) -> Found:
    """What the next process finds after these steps of the script."""
    trajectory, lane = rollout.trajectory, rollout.lane
    last = next((messages for messages in reversed(requests()[:done]) if messages is not None), None)
    again = following = None
    if lane.frozen is None:
        if last is not None:
            prepared = rollout.prepare(ChatRequest(last), LETTERS)
            again = (prepared.answer, list(prepared.prompt_ids))
        following = list(rollout.prepare(ChatRequest([*trajectory.messages, NEXT]), LETTERS).prompt_ids)
    else:
        assert digest_of(rollout.samples()) == lane.frozen.digest
    assert rollout.session.agents.lane()["committed"] == trajectory.num_assistant
    return Found(
        list(trajectory.token_ids), trajectory.messages, trajectory.num_assistant, trajectory.version,
        [record.status for record in lane.standing()],
        list(trajectory.provisional.output) if trajectory.provisional else None, lane.frozen is not None,
        bool(lane.acknowledged), again, following,
    )  # fmt: skip


class RolloutPlayer:
    """Plays the script on a store, step by step."""

    def __init__(self, records: SessionStore) -> None:
        self._records = records
        self._rollout: Rollout | None = None
        self._intent: Intent | None = None

    def play(self, done: Callable[[int], None]) -> None:
        """Run all steps; `done` gets the number of each acknowledged one."""
        for number, ((what, value), messages) in enumerate(zip(STEPS, requests(), strict=True), 1):
            if messages is not None:
                self.ask(messages)
            else:
                getattr(self, what)(value)
            done(number)

    @property
    def rollout(self) -> Rollout:
        assert self._rollout is not None
        return self._rollout

    @property
    def intent(self) -> Intent:
        assert self._intent is not None
        return self._intent

    def open(self, _value: None) -> None:
        self._rollout = open_rollout(self._records, "scripted")

    def ask(self, messages: list[Message]) -> None:
        self._intent = self.rollout.intend(self.rollout.prepare(ChatRequest(messages), LETTERS))

    def commit(self, reply: Reply) -> None:
        self.rollout.commit(self.intent, reply)

    def abort(self, reply: Reply) -> None:
        self.rollout.abort(self.intent, reply)

    def fail(self, reason: str) -> None:
        self.rollout.fail(self.intent, reason)

    def leave(self, _value: None) -> None:
        self.rollout.leave()

    def freeze(self, _value: None) -> None:
        self.rollout.freeze()

    def acknowledge(self, _value: None) -> None:
        frozen: Frozen | None = self.rollout.lane.frozen
        assert frozen is not None
        self.rollout.acknowledge(frozen.digest)

    def retire(self, _value: None) -> None:
        self.rollout.retire("handed over")


class Hasty(RolloutPlayer):
    """Wrong on purpose: it answers the client first and commits with the next request."""

    def __init__(self, records: SessionStore) -> None:
        super().__init__(records)
        self._owed: list[Reply] = []

    def commit(self, reply: Reply) -> None:
        self._owed.append(reply)

    def ask(self, messages: list[Message]) -> None:
        for reply in self._owed:
            super().commit(reply)
        self._owed = []
        super().ask(messages)
