"""Matchers: which messages of a request equal the stored ones."""

from collections.abc import Mapping
from typing import Any

import pytest

from onrecord.errors import InvalidInput
from onrecord.rollout.matching import LOOSE_TOOL_CALL, ROLE_CONTENT_ONLY, STRICT, Matching
from onrecord.rollout.trajectory import LinearTrajectory, Policy
from tests.rollout.world import answer, ask, assistant, calling, conversation, say, tool, user, whole

Message = Mapping[str, Any]


def same(one, other, matcher=STRICT) -> bool:
    """Whether the matcher calls the messages equal, whichever of them is stored."""
    verdicts = set()
    for stored, given in ((one, other), (other, one)):
        matching = Matching(matcher)
        matching.replace(0, [stored])
        verdicts.add(matching.length([given]) == 1)
    assert len(verdicts) == 1, "a matcher must not care which side is stored"
    return verdicts.pop()


@pytest.mark.parametrize("matcher", [STRICT, LOOSE_TOOL_CALL, ROLE_CONTENT_ONLY])
@pytest.mark.parametrize("field", ["content", "reasoning_content", "tool_calls"])
def test_nothing_is_said_in_three_ways(matcher, field):
    """None, "" and [] are equal, and equal to a field that is missing."""
    nothings: list[Any] = [None, "", []]
    spellings = [{"role": "assistant", field: nothing} for nothing in nothings] + [{"role": "assistant"}]
    assert all(same(one, other, matcher) for one in spellings for other in spellings)
    assert not same({"role": "assistant", "content": 0}, {"role": "assistant", "content": None}, matcher)
    assert not same({"role": "assistant", "content": False}, {"role": "assistant", "content": ""}, matcher)


@pytest.mark.parametrize("matcher", [STRICT, LOOSE_TOOL_CALL, ROLE_CONTENT_ONLY])
def test_role_and_content_always_count(matcher):
    """Another role, another text or other whitespace is another message, under every matcher."""
    assert not same(user("a"), assistant("a"), matcher)
    assert not same(user("a"), user("b"), matcher)
    assert not same(user("a"), user("a "), matcher)
    assert not same(user("a\n"), user("a\r\n"), matcher)
    assert not same(user("a"), {"role": "user", "content": [{"type": "text", "text": "a"}]}, matcher)


def test_strict_compares_reasoning_and_tool_calls():
    """Strict: reasoning, names, ids and arguments count, to the letter; other fields of a message do not."""
    assert not same(assistant("a", reasoning_content="x"), assistant("a", reasoning_content="y"))
    assert not same(assistant("a", reasoning_content="x"), assistant("a"))
    assert same(assistant("a", reasoning="x"), assistant("a", reasoning_content="x"))
    assert not same(calling('{"a": 1}'), calling('{"a":1}'))
    assert not same(calling("{}", call="c1"), calling("{}", call="c2"))
    assert not same(calling("{}", name="search"), calling("{}", name="find"))
    assert same(assistant("a", refusal=None, name="bot"), assistant("a"))


@pytest.mark.parametrize("matcher", [STRICT, LOOSE_TOOL_CALL])
def test_the_index_of_a_tool_call_is_ignored(matcher):
    """Streaming clients number tool calls; the number is not part of the message."""
    assert same(calling("{}", index=0), calling("{}"), matcher)
    assert same(calling("{}", index=0), calling("{}", index=3), matcher)


@pytest.mark.parametrize("matcher", [STRICT, LOOSE_TOOL_CALL, ROLE_CONTENT_ONLY])
def test_numbers_that_python_calls_equal_are_kept_apart(matcher):
    """1, 1.0 and true inside content are three different messages, though Python calls them equal."""
    parts = [{"role": "user", "content": [{"n": value}]} for value in (1, 1.0, True)]
    assert [[same(one, other, matcher) for other in parts] for one in parts] == [
        [True, False, False],
        [False, True, False],
        [False, False, True],
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a": 1, "b": [1, 2]}', '{"b":[1,2],"a":1}'),
        ('{"a": {"x": "\\u00e9", "y": null}}', '{"a":{"y":null,"x":"é"}}'),
        ('{"a": 1.50}', '{"a": 1.5}'),
        ('{"a": 1e2}', '{"a": 1E+2}'),
        ('{"a": 0.0}', '{"a": 0.00}'),
        ('{"a": NaN}', '{ "a":NaN}'),
        ('{"a": 1e999999999999999999999}', '{"a" :1e999999999999999999999}'),
        ("not json {", "not json {"),
    ],
)
def test_loose_takes_equivalent_arguments_for_the_same(one, other):
    """Loose: arguments that are the same JSON match, however they are spelled; strict distinguishes them."""
    assert same(calling(one), calling(other), LOOSE_TOOL_CALL)
    assert same(calling(one), calling(other), STRICT) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a": 1}', '{"a": 1.0}'),
        ('{"a": 1}', '{"a": true}'),
        ('{"a": 1}', '{"a": "1"}'),
        ('{"a": null}', '{"a": "null"}'),
        ('{"a": null}', "{}"),
        ('{"a": []}', '{"a": {}}'),
        ('{"a": 1, "a": 2}', '{"a": 2}'),
        ('{"a": 1, "a": 2}', '{"a": 2, "a": 1}'),
        ('{"a": NaN}', '{"a": null}'),
        ('{"a": NaN}', '{"a": "NaN"}'),
        ('{"a": Infinity}', '{"a": 1e400}'),
        ('{"a": 1e400}', '{"a": 1e401}'),
        ('{"a": 9007199254740993}', '{"a": 9007199254740992}'),
        ('{"a": 0.1000000000000000000000000000000000001}', '{"a": 0.1}'),
        ('{"a": 123456789012345678901234567890.5}', '{"a": 123456789012345678901234567890.6}'),
        ('{"a": 0.0}', '{"a": -0.0}'),
        ('{"a": [1, 2]}', '{"a": [2, 1]}'),
        ("not json {", "not json {{"),
    ],
)
def test_loose_keeps_different_arguments_apart(one, other):
    """Loose: types, duplicate keys, NaN and big numbers stay distinct; nothing is rounded or overflows."""
    assert not same(calling(one), calling(other), LOOSE_TOOL_CALL)


def test_arguments_a_thousand_brackets_deep_do_no_harm():
    """A hostile tool call matches or does not match; it never breaks the comparison."""
    deep = "[" * 5_000 + "]" * 5_000
    assert same(calling(deep), calling(deep), LOOSE_TOOL_CALL)
    assert not same(calling(deep), calling(deep + " "), LOOSE_TOOL_CALL)


def test_role_content_only_ignores_the_rest():
    """Role and content only: tool calls and reasoning do not count."""
    assert same(calling('{"a": 1}'), assistant(None, reasoning_content="hm"), ROLE_CONTENT_ONLY)
    assert not same(assistant("a"), assistant("b"), ROLE_CONTENT_ONLY)


def test_role_content_only_forgives_space_around_an_answer():
    """An agent that trims answers continues also with an engine that returns no reasoning, as the hint says."""
    for generated in (assistant("  Fine.\n"), assistant("  Fine.\n", reasoning_content="Hm.")):
        for turns in (1, 2):
            sent = [user("a"), assistant("Fine.")] * turns + [user("b")]
            refused, allowed = (LinearTrajectory(Policy(matcher=name)) for name in (STRICT, ROLE_CONTENT_ONLY))
            for trajectory in (refused, allowed):
                for before in range(turns):
                    say(trajectory, *[user("a"), generated] * before, user("a"), reply=answer("x", message=generated))
            with pytest.raises(InvalidInput) as problem:
                ask(refused, *[user("a"), generated] * (turns - 1), *sent[-3:])
            assert "use the matcher role_content_only" in str(problem.value.hint)
            assert ask(allowed, *sent).base == turns
    assert not same(user("a"), user("a "), ROLE_CONTENT_ONLY)
    assert same(assistant(" "), assistant(None), ROLE_CONTENT_ONLY)


@pytest.mark.parametrize("turns", [1, 2])
def test_a_hint_names_a_matcher_only_if_it_would_help(turns):
    """An answer that the agent reworded equals the recorded one with no matcher, so the hint names none."""
    trajectory = LinearTrajectory()
    for before in range(turns):
        say(trajectory, *[user("a"), assistant("Fine.")] * before, user("a"), reply=answer("Fine."))
    with pytest.raises(InvalidInput) as problem:
        ask(trajectory, *[user("a"), assistant("Fine.")] * (turns - 1), user("a"), assistant("Good."), user("b"))
    assert "as it was answered" in str(problem.value.hint)
    assert "matcher" not in str(problem.value.hint)


def test_a_given_matcher_decides_and_must_return_a_bool():
    """A callable gets every pair, stored first; any result but a bool is refused and nothing changes."""
    pairs = []

    def by_role(stored, given):
        pairs.append((stored, given))
        return bool(stored["role"] == given["role"])

    trajectory, messages = conversation(1, Policy(matcher=by_role))
    spelled = [user("QUESTION 0"), assistant("ANSWER 0"), user("next")]
    prepared = ask(trajectory, *spelled)
    assert pairs[-2:] == [(messages[0], spelled[0]), (messages[1], spelled[1])]
    assert list(prepared.prompt_ids) == whole([*messages[:2], user("next")])
    verdicts: list[Any] = [1, 0, "yes", None]
    for verdict in verdicts:

        def odd(_stored: Message, _given: Message, verdict: Any = verdict) -> Any:
            return verdict

        broken = LinearTrajectory(Policy(matcher=odd))
        say(broken, user("a"), reply=answer("b"))
        before = broken.head
        with pytest.raises(InvalidInput, match="must return a bool"):
            ask(broken, user("a"), assistant("b"), user("c"))
        assert broken.head == before


def test_an_unknown_matcher_is_refused():
    """A matcher's name is checked when the trajectory is created."""
    with pytest.raises(InvalidInput, match="strict, loose_reasoning, loose_tool_call, role_content_only"):
        LinearTrajectory(Policy(matcher="fuzzy"))


@pytest.mark.parametrize("matcher", [LOOSE_TOOL_CALL, ROLE_CONTENT_ONLY])
def test_on_a_match_the_stored_spelling_wins(matcher):
    """A client that spells an answer differently continues from the stored ids and messages, not from its spelling."""
    trajectory = LinearTrajectory(Policy(matcher=matcher))
    stored = calling('{"q": 1}')
    say(trajectory, user("find"), reply=answer("x", message=stored))
    ids = trajectory.token_ids
    say(trajectory, user("find"), calling('{"q":1}'), tool("found"), reply=answer("done"))
    assert trajectory.messages[1] == stored
    assert trajectory.token_ids[: len(ids)] == ids


def test_what_is_matched_does_not_change_under_a_clients_hands():
    """If a client changes a message object after the turn, neither the stored message nor the matching changes."""
    trajectory = LinearTrajectory()
    message: dict[str, Any] = {"role": "user", "content": [{"type": "text", "text": "a"}]}
    say(trajectory, message, reply=answer("b"))
    message["content"][0]["text"] = "changed"
    assert trajectory.messages[0]["content"][0]["text"] == "a"
    assert ask(trajectory, message).base == 0
    message["content"][0]["text"] = "a"
    assert ask(trajectory, message, assistant("b"), user("c")).base == 1
