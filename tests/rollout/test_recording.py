"""A rollout on record: durable before it is answered, the same after a restart, delivered exactly once."""

import json

import pytest

from onrecord.errors import (
    AssemblyFailed,
    BudgetExhausted,
    DamagedLog,
    InvalidInput,
    LeaseHeld,
    LeaseLost,
    LogMoved,
    OutcomeUnknown,
    PayloadErased,
    SessionPaused,
    TurnConflict,
)
from onrecord.log.packed import pack_floats, unpack_floats
from onrecord.rollout.recording import Rollout, open_rollout, read_lane, share_rollout
from onrecord.rollout.turns import ChatRequest, Reply
from tests.rollout.world import (
    LETTERS,
    Letters,
    aborted,
    answer,
    assistant,
    begin,
    calling,
    letters,
    play,
    user,
    whole,
)


def test_the_intent_is_on_record_before_the_engine_is_called(rollout):
    """After intend, the log has base, fingerprint, new messages and new prompt ids, and repeats no old ones."""
    messages = play(rollout, 2)
    before = rollout.session.head.position
    prepared = rollout.prepare(ChatRequest(messages), LETTERS)
    assert rollout.session.head.position == before, "prepare writes nothing"
    intent = rollout.intend(prepared)
    begun, item, tokens = rollout.session.events(after=before)
    assert (begun.kind, begun.data["base"], begun.data["fingerprint"]) == (
        "turn.begun",
        rollout.lane.commits[-1],
        prepared.fingerprint,
    )
    assert (item.kind, item.data["item"]["content"]) == ("item.added", "result")
    assert (tokens.kind, tokens.data["keep"], intent.position) == ("tokens.recorded", prepared.keep, begun.position)


def test_a_restart_gives_the_identical_rollout(records, rollout):
    """A lane and trajectory read from the log equal the live ones, and the next prompt has the same ids."""
    messages = play(rollout, 3)
    rollout.abort(begin(rollout, messages), aborted("half", weight_versions=[("v2", 4)], side_payloads={"x": [1]}))
    rollout.fail(begin(rollout, messages), "connection refused")
    prompt = rollout.prepare(ChatRequest(messages), LETTERS).prompt_ids
    rollout.leave()
    again = open_rollout(records, "task-17")
    assert again.trajectory == rollout.trajectory
    assert again.lane.standing() == rollout.lane.standing()
    assert again.prepare(ChatRequest(messages), LETTERS).prompt_ids == prompt
    assert again.trajectory.provisional is not None, "the provisional record and the checkpoint are still there"


def test_a_step_is_durable_before_it_is_folded(rollout):
    """A step that was not read yet is on record all the same; reading folds it, as for a process that starts."""
    intent = begin(rollout, [user("a")])
    rollout.end(intent, answer("b"))
    assert read_lane(rollout.session).trajectory.num_assistant == 1
    assert rollout.lane == read_lane(rollout.session)
    rollout.commit(begin(rollout, [user("a"), assistant("b"), user("c")]), answer("d"))
    assert rollout.lane == read_lane(rollout.session)
    assert rollout.session.head == rollout.session.log.head()


def test_a_shared_holder_knows_from_the_log_that_it_was_overtaken(records):
    """Only the process that took the lane last is not overtaken; what the other recorded is then folded."""
    new = open_rollout(records, "task-17")
    play(new, 1)
    new.leave()
    here, there = (share_rollout(records, "task-17").regain() for _ in range(2))
    for last, first in ((here, there), (there, here)) * 2:
        assert last.is_overtaken()
        assert not first.is_overtaken()
        last.regain()
        assert not last.is_overtaken()
        assert first.is_overtaken()
        assert last.lane == first.lane == read_lane(last.session)


def test_an_intent_takes_the_lane_over_in_the_same_step(records):
    """Between turns a shared holder joins with its intent: one durable step, a new run, and the other one is fenced."""
    new = open_rollout(records, "task-17")
    messages = play(new, 1)
    new.leave()
    here, there = (share_rollout(records, "task-17").regain() for _ in range(2))
    for last, first in ((here, there), (there, here)) * 2:
        assert last.is_overtaken()
        assert last.may_join()
        before = last.session.head
        intent = last.intend(last.prepare(ChatRequest(messages), LETTERS), joining=60.0)
        joined, begun = list(last.session.events(after=before.position))[:2]
        assert (joined.kind, begun.kind, begun.id) == ("agent.joined", "turn.begun", intent.id)
        assert joined.run == begun.run == last.session.run == before.run + 1
        last.commit(intent, answer("b"))
        messages = [*messages, assistant("b"), user("c")]
        with pytest.raises(LeaseLost):
            first.freeze()
        assert last.lane == read_lane(last.session)


def test_an_intent_joins_only_what_it_has_read(records):
    """If anything was recorded since, an intent that would join is refused, and the other one keeps the lane."""
    new = open_rollout(records, "task-17")
    messages = play(new, 1)
    new.leave()
    here, there = (share_rollout(records, "task-17").regain() for _ in range(2))
    assert here.is_overtaken()
    assert here.may_join()
    prepared = here.prepare(ChatRequest(messages), LETTERS)
    intent = there.intend(there.prepare(ChatRequest(messages), LETTERS))
    with pytest.raises(LogMoved):
        here.intend(prepared, joining=60.0)
    assert here.session.lease is None
    assert here.is_overtaken()
    assert not here.may_join(), "a turn is running"
    there.commit(intent, answer("b"))
    assert there.is_current


def test_logprobs_come_back_with_the_same_bits(rollout):
    """Single-precision logprobs survive the log bit for bit, the smallest and the largest ones included."""
    values = [-1e-45, -3.4028235e38, 3.4028235e38, -0.0, 0.1, -17.123456789]
    intent = begin(rollout, [user("a")])
    record = rollout.commit(intent, Reply(assistant("b"), list(range(6)), values, "stop"))
    assert read_lane(rollout.session).trajectory.records[0].logprobs.tobytes() == record.logprobs.tobytes()
    assert unpack_floats(pack_floats(values)).tobytes() == record.logprobs.tobytes()


def test_a_prompt_of_a_hundred_thousand_tokens_is_recorded(rollout):
    """Long prompts need no special care, and search skips ids."""
    text = "x" * 100_000
    messages = play(rollout, 1, [user(text)])
    begin(rollout, messages)
    again = read_lane(rollout.session)
    assert len(again.trajectory.token_ids) > 100_000
    assert again.trajectory == rollout.trajectory
    assert rollout.session.store.search("i32le") == []


def test_only_what_is_new_is_recorded(rollout):
    """The bytes of a turn do not grow with the turns before it."""
    messages, sizes = [user("question")], []
    for _ in range(12):
        before = sum(weight.size for weight in rollout.session.store.weigh(rollout.session.id))
        messages = play(rollout, 1, messages)
        sizes.append(sum(weight.size for weight in rollout.session.store.weigh(rollout.session.id)) - before)
    assert max(sizes[2:]) < 1.05 * min(sizes[2:])


def test_what_was_aborted_stays_on_record_and_is_paid_for(rollout):
    """Superseded aborts stay in the log with their ids, and all tokens count in usage."""
    messages = play(rollout, 1)
    for _ in range(3):
        rollout.abort(begin(rollout, messages), aborted("half", message=calling('{"q": 1')))
    assert len(rollout.session.agents.lane()["provisional"]) == 3
    play(rollout, 1, messages)
    assert rollout.session.agents.lane()["provisional"] == []
    assert [record.status for record in rollout.trajectory.records] == ["COMPLETED", "COMPLETED"]
    outputs = [event.data for event in rollout.session.events(kinds=("tokens.recorded",)) if "finish" in event.data]
    assert [data["finish"] for data in outputs] == ["stop", "abort", "abort", "abort", "stop"]
    total = rollout.session.views.spend.total
    assert (total["calls"], total["output_tokens"]) == (5, 3 * 4 + 2 * len("answer 0.")), "aborted tokens too"
    assert total["input_tokens"] == len(whole([user("question")])) + 4 * len(whole(messages))
    superseded = rollout.session.transcript().superseded
    assert [turn.items[-1]["verbatim"]["message"]["tool_calls"][0]["id"] for turn in superseded] == ["c1"] * 3


def test_a_turn_is_committed_once_though_the_outcome_was_unknown(rollout, monkeypatch):
    """If the acknowledgement of an append was lost, a repeated append is the same step: one commit, one answer."""
    intent = begin(rollout, [user("a")])
    append = rollout.session.store.append

    def landed_unheard(*given, **named):
        append(*given, **named)
        raise OutcomeUnknown("the connection broke")

    monkeypatch.setattr(rollout.session.store, "append", landed_unheard)
    with pytest.raises(OutcomeUnknown):
        rollout.commit(intent, answer("b", response="body"))
    monkeypatch.undo()
    assert rollout.trajectory.num_assistant == 0
    rollout.commit(intent, answer("b", response="body"))
    assert rollout.trajectory.num_assistant == 1
    assert read_lane(rollout.session) == rollout.lane
    assert rollout.prepare(ChatRequest([user("a")]), LETTERS).answer == "body"


def test_refresh_finds_what_landed_unheard(rollout, monkeypatch):
    """Instead of repeating, a process may refresh: it sees the commit, and the same request gets its answer."""
    intent = begin(rollout, [user("a")])
    append = rollout.session.store.append

    def landed_unheard(*given, **named):
        append(*given, **named)
        raise OutcomeUnknown("the connection broke")

    monkeypatch.setattr(rollout.session.store, "append", landed_unheard)
    with pytest.raises(OutcomeUnknown):
        rollout.commit(intent, answer("b", response="body"))
    monkeypatch.undo()
    assert rollout.refresh().prepare(ChatRequest([user("a")]), LETTERS).answer == "body"


def test_a_lost_reply_survives_a_restart_byte_for_byte(records, rollout):
    """After a crash between commit and answer, the same request gets the same body, and no turn can begin for it."""
    messages = play(rollout, 2)
    body = '{"id":"r-1",  "created": 17.0, "choices":[{"message":{"content":"ü \\u00fc"}}]}\n'
    rollout.commit(begin(rollout, messages), answer("x", response=body))
    again = open_rollout(records, "task-17", takeover=True)
    prepared = again.prepare(ChatRequest(messages), LETTERS)
    assert prepared.answer == body
    with pytest.raises(TurnConflict, match="already has an answer"):
        again.intend(prepared)


def test_a_turn_whose_process_died_is_incomplete(records, rollout):
    """Once another process has the lease, an intent without an end is INCOMPLETE; the next commit supersedes it."""
    messages = play(rollout, 1)
    begin(rollout, messages)
    assert read_lane(rollout.session).standing()[-1].status == "INCOMPLETE", "its end is not on record"
    again = open_rollout(records, "task-17", takeover=True)
    assert [record.status for record in again.lane.standing()] == ["COMPLETED", "INCOMPLETE"]
    assert again.trajectory.version == rollout.trajectory.version
    play(again, 1, messages)
    assert [record.status for record in again.lane.standing()] == ["COMPLETED", "COMPLETED"]


def test_one_process_has_the_lane(records, rollout):
    """A second opener learns who holds the lease; after a takeover the first can no longer write."""
    messages = play(rollout, 1)
    intent = begin(rollout, messages)
    with pytest.raises(LeaseHeld):
        open_rollout(records, "task-17")
    again = open_rollout(records, "task-17", takeover=True)
    for step in (
        lambda: rollout.commit(intent, answer("late")),
        lambda: rollout.abort(intent, aborted("late")),
        lambda: rollout.fail(intent, "late"),
        rollout.freeze,
    ):
        with pytest.raises((LeaseLost, TurnConflict)):
            step()
    assert again.refresh().trajectory.num_assistant == 1


def test_a_refused_request_writes_nothing(rollout):
    """Validation comes first: a forbidden rollback or wrong lengths leave no trace."""
    messages = play(rollout, 3)
    before = rollout.session.store.head(rollout.session.id).position
    with pytest.raises(InvalidInput):
        rollout.prepare(ChatRequest([user("other")]), LETTERS)
    stale = rollout.prepare(ChatRequest(messages), LETTERS)
    rollout.fail(rollout.intend(stale), "down")
    with pytest.raises(InvalidInput):
        rollout.commit(begin(rollout, messages), Reply(assistant("x"), [1, 2], [-1.0], "stop"))
    kinds = [event.kind for event in rollout.session.events(after=before)]
    assert kinds.count("turn.begun") == 2
    assert kinds.count("turn.committed") == 0


def test_what_was_said_is_kept_however_odd(rollout):
    """Calls without ids, a repeated id, results without a call, unknown roles: all are recorded and read back unchanged."""
    messages = [user("a"), {"role": "function", "name": "f", "content": "3"}, {"role": "tool", "content": "whose?"}]
    messages += [{"role": "tool", "content": None, "tool_call_id": 7}, {"role": "user"}]
    odd = [
        assistant(None, tool_calls=[{"function": {"name": "f", "arguments": "{"}}]),
        assistant("x", tool_calls=[*calling("{}")["tool_calls"], *calling("{}")["tool_calls"]]),
        assistant(None, reasoning_content="hm", audio={"z": 1, "a": [{"y": 2, "b": 1}]}),
        {"role": "assistant", "content": {"not": "text"}},
    ]
    for said in odd:
        rollout.commit(begin(rollout, messages), answer("x", message=said))
        messages = [*messages, said, user("go on")]
    again = read_lane(rollout.session)
    assert again == rollout.lane
    assert [message for message in again.trajectory.messages if message["role"] == "assistant"] == odd
    assert again.trajectory.messages[:5] == messages[:5]


def test_the_order_inside_a_message_survives_a_restart(records, rollout):
    """Arguments are rendered in the client's order, before and after a restart, in a first request and a retry."""
    shots = [
        user("a"),
        assistant(None, tool_calls=[{"id": "c", "function": {"z": 1, "a": {"y": 1, "b": 2}}}]),
        user("b"),
    ]
    prompt = rollout.prepare(ChatRequest(shots), LETTERS).prompt_ids
    messages = play(rollout, 3, shots)
    assert rollout.prepare(ChatRequest(shots), LETTERS).prompt_ids == prompt
    again = open_rollout(records, "task-17", takeover=True)
    assert again.prepare(ChatRequest(shots), LETTERS).prompt_ids == prompt
    assert (
        again.prepare(ChatRequest(messages), LETTERS).prompt_ids
        == rollout.prepare(ChatRequest(messages), LETTERS).prompt_ids
    )


class WholeMessages(Letters):
    """A template that renders every message verbatim."""

    def message(self, message):
        return letters(json.dumps(message))


def test_whatever_a_template_writes_out_is_the_same_in_every_try(records, rollout):
    """Even the order of a message's fields is the same for a first request, a retry and the next process."""
    first = [{"role": "user", "name": "b", "content": "a"}, {"tool_call_id": "c", "content": "d", "role": "tool"}]
    prompt = rollout.prepare(ChatRequest(first), WholeMessages()).prompt_ids
    play(rollout, 3, first)
    assert rollout.prepare(ChatRequest(first), WholeMessages()).prompt_ids == prompt
    again = open_rollout(records, "task-17", takeover=True)
    assert again.prepare(ChatRequest(first), WholeMessages()).prompt_ids == prompt


def test_a_failed_call_on_record_leaves_the_view_where_it_was(rollout):
    """An unreachable engine changes neither version nor records; the failure is on record, as INFRA if nothing follows."""
    messages = play(rollout, 1)
    before = rollout.trajectory.head
    rollout.fail(begin(rollout, messages), "connection refused")
    assert rollout.trajectory.head == before
    assert [(record.status, record.cause) for record in rollout.lane.standing()][1:] == [
        ("INFRA", "connection refused")
    ]
    rollout.abort(begin(rollout, messages), aborted("half"))
    rollout.fail(begin(rollout, messages), "connection refused")
    assert [record.status for record in rollout.lane.standing()] == ["COMPLETED", "ABORTED"]
    assert len(rollout.session.agents.lane()["provisional"]) == 3, "the lane tells of every try"


def test_starting_over_after_many_turns_agrees_with_the_lane(rollout):
    """After discarding more turns than a lane lists, lane, transcript and trajectory still agree."""
    first = [user("question")]
    play(rollout, 12, first)
    play(rollout, 2, first)
    assert rollout.trajectory.num_assistant == rollout.session.agents.lane()["committed"] == 2
    assert len(rollout.session.transcript("policy").committed) == 2
    assert rollout.session._reload().agents.lane()["committed"] == 2


def test_a_paused_or_spent_session_takes_no_turn(records, rollout):
    """Pause and budget stop a rollout like any session, before anything is written."""
    messages = play(rollout, 1)
    rollout.session.budget.set(tokens=1)
    prepared = rollout.prepare(ChatRequest(messages), LETTERS)
    with pytest.raises(BudgetExhausted):
        rollout.intend(prepared)
    rollout.session.budget.set(tokens=10_000_000)
    again = Rollout(records.open("task-17", agent="policy"))
    with pytest.raises(SessionPaused):
        play(again, 1, messages)
    again.session.resume()
    play(again, 1, messages)
    assert again.trajectory.num_assistant == 2


def test_a_pause_ends_the_turn_under_way(rollout):
    """Paused in the middle of a turn, the rollout continues after the resume: the turn is aborted, with no tokens."""
    messages = play(rollout, 1)
    begin(rollout, messages)
    rollout.session.pause("weights are on their way")
    rollout.session.resume()
    rollout.session.acquire()
    prepared = rollout.prepare(ChatRequest(messages), LETTERS)
    assert rollout.trajectory.provisional is not None
    assert (rollout.trajectory.provisional.status, len(rollout.trajectory.provisional.output)) == ("ABORTED", 0)
    rollout.commit(rollout.intend(prepared), answer("x"))
    assert read_lane(rollout.session) == rollout.lane


def test_facts_of_others_do_not_disturb_a_rollout(records, rollout):
    """Facts added to the session between the steps of a turn change nothing about the turn."""
    messages = play(rollout, 1)
    person = records.get("task-17")
    prepared = rollout.prepare(ChatRequest(messages), LETTERS)
    person.decide("look at this one")
    intent = rollout.intend(prepared)
    person.decide("and at that")
    rollout.renew()
    rollout.commit(intent, answer("x"))
    assert rollout.trajectory.num_assistant == 2
    assert read_lane(rollout.session) == rollout.lane


def test_a_fork_goes_on_by_itself(records, rollout):
    """A fork of a rollout starts from its ids, whatever happens to the first one."""
    messages = play(rollout, 2)
    rollout.freeze()
    rollout.session.fork("branch", agent="policy")
    branch = open_rollout(records, "branch")
    assert branch.trajectory == rollout.trajectory
    play(branch, 1, messages)
    rollout.retire("given up", unacknowledged=True)
    assert open_rollout(records, "branch", takeover=True).trajectory.num_assistant == 3


def test_a_lane_of_plain_turns_is_no_rollout(records):
    """Turns without token ids are an error, not a trajectory."""
    session = records.open("plain", agent="policy")
    session.record_turn([user("a")])
    with pytest.raises(AssemblyFailed, match="has no token ids"):
        read_lane(session)
    with records.open("begun", agent="policy") as other, other.turn() as turn:
        turn.user("a")
    with pytest.raises(AssemblyFailed, match="has no token ids"):
        read_lane(other)


def test_erased_ids_are_told_and_not_guessed(rollout):
    """If retention erased the ids of a committed turn, reading says so."""
    play(rollout, 2)
    position = next(event.position for event in rollout.session.events(kinds=("tokens.recorded",)))
    rollout.session.log.erase("privacy", positions=[position])
    with pytest.raises(PayloadErased):
        read_lane(rollout.session)


@pytest.mark.parametrize(
    "data",
    [
        {"part": "prompt", "keep": 0, "ids": "i32le:AAAA", "origins": []},
        {"part": "prompt", "keep": 0, "ids": "f32le:AAAAAA==", "origins": []},
        {"part": "prompt", "keep": 0, "ids": "i32le:!", "origins": []},
        {"part": "prompt", "keep": 0, "ids": [1, 2], "origins": []},
        {"part": "prompt", "ids": "i32le:"},
        {"part": "prompt", "keep": 0, "ids": "i32le:", "origins": [3]},
    ],
)
def test_nonsense_on_record_is_told_as_damage(rollout, data):
    """Ids that are cut off, of another type or missing are an error with their position; nothing is guessed."""
    session = rollout.session
    session.log.append(
        session.log.draft("turn.begun", {"base": 0}),
        session.log.draft("tokens.recorded", data),
        session.log.draft("agent.left", {}),
    )
    with pytest.raises(DamagedLog):
        read_lane(session)
