"""No sampled token is lost in silence: what agents really send back, and what becomes of the ids."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onrecord.errors import InvalidInput
from onrecord.rollout.matching import STRICT, Matching
from onrecord.rollout.trajectory import LinearTrajectory, Policy
from onrecord.rollout.turns import Reply
from tests.rollout.world import answer, ask, assistant, calling, letters, say, tool, unmoved, user

THOUGHT = "\nFirst I add, then I look.\n"


def thoughtful(text):
    """A reply with reasoning, and the white space that engines leave around its text."""
    return answer(text, message=assistant(f"\n\n{text}", reasoning_content=THOUGHT))


@pytest.mark.parametrize(
    "returned",
    [
        lambda message: message,
        lambda message: assistant(message["content"]),
        lambda message: assistant(message["content"].strip()),
        lambda message: message | {"reasoning_content": message["reasoning_content"].strip()},
        lambda message: assistant(message["content"].strip(), reasoning_content=None),
        lambda message: assistant(message["content"], reasoning=message["reasoning_content"]),
    ],
)
def test_an_agent_that_drops_the_reasoning_loses_nothing(returned):
    """By default, reasoning that is absent or trimmed is the same message: all sampled ids of five turns stay."""
    trajectory, messages = LinearTrajectory(), [user("q")]
    for number in range(5):
        record = say(trajectory, *messages, reply=thoughtful(f"answer {number}"))
        messages = [*messages, returned(record.message), user(f"q{number}")]
    assert trajectory.num_assistant == 5
    assert sum(len(record.output) for record in trajectory.records) == 5 * len("answer 0.")
    assert trajectory.discarded_tokens == 0
    assert trajectory.messages[1]["reasoning_content"] == THOUGHT, "the stored message is used"


@pytest.mark.parametrize(
    ("returned", "differs"),
    [
        (assistant("answer", reasoning_content="Something else."), "content"),
        (assistant("another answer"), "content"),
        (assistant("\n\nanswer", reasoning_content="Something else."), "reasoning_content"),
        (calling("{}") | {"content": "\n\nanswer", "reasoning_content": THOUGHT}, "tool_calls"),
    ],
)
def test_another_message_where_a_generated_one_was_is_refused(returned, differs):
    """With one generated turn, too, a changed assistant message is refused, with the field; nothing changes."""
    trajectory = LinearTrajectory()
    say(trajectory, user("q"), reply=thoughtful("answer"))
    before = unmoved(trajectory)
    with pytest.raises(InvalidInput, match=rf"message 1 differs in {differs}; 7 sampled tokens would be lost"):
        ask(trajectory, user("q"), returned, user("next"))
    assert unmoved(trajectory) == before


def test_a_changed_system_message_does_not_discard_a_turn_in_silence():
    """A first message with the time of day in it, and the answer after it, is not a new first prompt."""
    trajectory = LinearTrajectory()
    system = {"role": "system", "content": "It is 12:00."}
    say(trajectory, system, user("q"), reply=answer("a"))
    with pytest.raises(InvalidInput, match="message 0 differs in content"):
        ask(trajectory, system | {"content": "It is 12:01."}, user("q"), assistant("a"), user("next"))
    with pytest.raises(InvalidInput, match="message 0 differs"):
        ask(trajectory, user("q"), assistant("a"), user("next"))


FEW_SHOT = [{"role": "system", "content": "Be brief."}, user("1+1?"), assistant("2"), user("2+2?")]


def test_an_agent_that_keeps_the_last_messages_is_refused():
    """An answer in the place of a few-shot example is refused, with what to do: five of five turns were replaced."""
    trajectory = LinearTrajectory()
    say(trajectory, *FEW_SHOT, reply=answer("four"))
    before = unmoved(trajectory)
    with pytest.raises(InvalidInput, match="message 1 differs in content; 5 sampled tokens would be lost") as refused:
        ask(trajectory, FEW_SHOT[0], FEW_SHOT[3], assistant("four"), user("3+3?"))
    assert "with branches" in str(refused.value.hint)
    assert unmoved(trajectory) == before
    other = ask(trajectory, FEW_SHOT[0] | {"content": "Be kind."}, *FEW_SHOT[1:])
    assert other.discards == len("four."), "its own example is not a generated turn"


@pytest.mark.parametrize(
    "rest",
    [
        [user("1+1?"), assistant("2"), user("2+2?"), user("four"), user("3+3?")],
        [user("2+2?"), assistant("Four!"), user("3+3?")],
        [assistant("2"), assistant("2"), user("3+3?")],
    ],
)
def test_a_turn_in_another_role_or_spelling_is_not_discarded(rest):
    """A generated turn that comes back as a user's message, reworded in another place, or unrecognisable is refused."""
    trajectory = LinearTrajectory()
    say(trajectory, *FEW_SHOT, reply=answer("four"))
    with pytest.raises(InvalidInput, match="repeats a generated turn"):
        ask(trajectory, FEW_SHOT[0], *rest)


@given(st.data(), st.integers(0, 2), st.booleans(), st.sampled_from(["", "assistant"]))
def test_whatever_an_agent_drops_or_keeps_no_sampled_turn_is_lost(data, rollback, few_shot, role):
    """Whatever messages it sends again, a turn is on the line, left out of the request on purpose, or it is refused."""
    policy = Policy(max_rollback=rollback)
    trajectory = LinearTrajectory(policy._replace(appended_roles=policy.appended_roles | {role}) if role else policy)
    history = FEW_SHOT[: 4 if few_shot else 2]
    sampled: list[str] = []
    for number in range(6):
        kept = history if data.draw(st.booleans()) else data.draw(st.permutations(history).map(list))
        kept = [message for message in kept if message is history[0] or data.draw(st.integers(0, 3))]
        before = [message["content"] for message in trajectory.messages if message["content"] in sampled]
        try:
            prepared = ask(trajectory, *kept, user(f"question {number}"))
        except InvalidInput:
            continue
        trajectory.update_pretokenized_state(prepared, answer(f"answer {number}"))
        sampled.append(f"answer {number}")
        line = [(record.message or {})["content"] for record in trajectory.records]
        lost = [text for text in before if text not in line]
        assert len(lost) <= rollback
        assert not {message["content"] for message in kept} & set(lost)
        history = [*kept, user(f"question {number}"), assistant(f"answer {number}")]


def test_a_strict_matcher_names_the_lost_reasoning():
    """`strict` refuses a message without its reasoning, on the first turn and later ones, and names the field."""
    trajectory = LinearTrajectory(Policy(matcher=STRICT))
    first = say(trajectory, user("q"), reply=thoughtful("one")).message or {}
    with pytest.raises(InvalidInput, match="differs in reasoning_content"):
        ask(trajectory, user("q"), assistant("\n\none"), user("r"))
    say(trajectory, user("q"), first, user("r"), reply=thoughtful("two"))
    with pytest.raises(InvalidInput, match="message 3 is a generated turn, but not as it was answered") as refused:
        ask(trajectory, user("q"), first, user("r"), assistant("\n\ntwo"), user("s"))
    assert "reasoning_content" in str(refused.value)


def test_another_first_prompt_may_still_replace_the_turn():
    """Without an assistant message of its own, another first prompt discards the turn, and the ids are counted."""
    trajectory = LinearTrajectory()
    few_shot = [user("1"), assistant("one"), user("2")]
    say(trajectory, *few_shot, reply=answer("two"))
    prepared = ask(trajectory, user("1"), assistant("one"), user("3"))
    assert prepared.discards == len("two.")
    trajectory.update_pretokenized_state(prepared, answer("three"))
    assert (trajectory.discarded_turns, trajectory.discarded_tokens) == (1, len("two."))
    again = ask(trajectory, user("1"), assistant("one"), user("3"))
    assert (again.answer is not None, again.discards) == (True, 0)


def test_what_a_rollback_discards_is_counted():
    """Each discarded turn and its sampled ids count once."""
    trajectory = LinearTrajectory()
    say(trajectory, user("q"), reply=answer("one"))
    say(trajectory, user("q"), assistant("one"), tool("r"), reply=answer("four"))
    say(trajectory, user("q"), assistant("one"), tool("s"), reply=answer("five"))
    assert (trajectory.discarded_turns, trajectory.discarded_tokens) == (1, len("four."))


@pytest.mark.parametrize("arguments", ["", "{}", " {} ", "null", None, {}])
def test_a_call_without_arguments_has_many_spellings(arguments):
    """For `loose_tool_call`, empty text, null and an empty object are the same arguments, and so is none at all."""
    matching = Matching("loose_tool_call")
    spellings: list[Any] = ["", "{}", "null", None, {}]
    for stored in spellings:
        matching.replace(0, [calling(stored)])
        assert matching.length([calling(arguments)]) == 1
        assert matching.length([calling('{"a": 1}')]) == 0
    missing = calling("")
    del missing["tool_calls"][0]["function"]["arguments"]
    assert matching.length([missing]) == 1


def test_a_matcher_of_your_own_cannot_change_the_record():
    """A callable gets copies: whatever it does to them, the stored messages and the request stay."""

    def rude(stored, given):
        same = stored == given
        stored["content"] = given["content"] = "changed"
        stored.setdefault("tool_calls", []).append("changed")
        return same

    trajectory = LinearTrajectory(Policy(matcher=rude))
    say(trajectory, user("q"), reply=answer("a"))
    asked = [user("q"), assistant("a"), user("r")]
    ask(trajectory, *asked)
    assert trajectory.messages == [user("q"), assistant("a")]
    assert asked[1] == assistant("a")


@pytest.mark.parametrize("logprobs", [[float("inf")], [float("-inf")], [float("nan")], [1e39], [-1e39]])
def test_a_logprob_that_float32_cannot_hold_is_refused(logprobs):
    """Infinity, NaN and numbers beyond float32 are refused before anything is committed: no sample could hold them."""
    trajectory = LinearTrajectory()
    with pytest.raises(InvalidInput, match="finite"):
        say(trajectory, user("q"), reply=Reply(assistant("a"), [5], logprobs, "stop"))
    assert trajectory.version == 0


def test_true_is_not_a_token_id():
    """A truth value where an id belongs is an error of the caller, not id 1."""
    with pytest.raises(InvalidInput, match="output ids must be integers"):
        say(LinearTrajectory(), user("q"), reply=Reply(assistant("a"), [5, True], [-1.0, -1.0], "stop"))
    assert letters("a")


def test_true_is_no_number_of_a_reply():
    """Nor is it a logprob, or an id of the prompt that an engine reports."""
    trajectory = LinearTrajectory()
    with pytest.raises(InvalidInput, match="logprobs must be numbers"):
        say(trajectory, user("q"), reply=Reply(assistant("a"), [5], [True], "stop"))
    prompt: Any = list(ask(trajectory, user("q")).prompt_ids)
    wrongs: list[Any] = [[True, *prompt[1:]], [-5, *prompt], ["a"]]
    for wrong in wrongs:
        with pytest.raises(InvalidInput, match="prompt ids must"):
            say(trajectory, user("q"), reply=Reply(assistant("a"), [5], [-1.0], "stop", prompt_ids=wrong))
    assert trajectory.version == 0
