"""Which tool calls are the same: ids that come again, secrets in arguments, results that the model has seen."""

from functools import partial
from typing import Any

import pytest

import onrecord
from onrecord.frameworks.conversation import Conversation
from onrecord.frameworks.openai_items import neutral
from onrecord.views.transcript import Transcript

CALL = "call_0"


@pytest.fixture
def store(tmp_path):
    with onrecord.connect(str(tmp_path / "x.db"), project="p") as found:
        yield found


def talk(store: Any) -> Conversation:
    """The conversation, as another process finds it."""
    return Conversation(store, "test", "talk")


def save_result(kept: Conversation, text: str) -> None:
    item = {"type": "function_call_output", "call_id": CALL, "output": text}
    data = kept.kept(["{}"], [text], [{"line": 0, "id": text, "items": neutral(item)}])
    kept.write(lambda: [kept.draft("payload.kept", data)])


def test_a_resumed_call_does_not_run_and_another_call_with_its_id_does(store):
    """Same name, same arguments and no result among the entries: the same call. Anything else under its id is new."""
    start = talk(store).start_effect
    assert start(CALL, "pay", {"order": 1}) is None
    known = talk(store).start_effect(CALL, "pay", {"order": 1})
    assert known is not None
    assert known.outcome is None
    assert start(CALL, "pay", {"order": True}) is None  # which Python takes for 1
    assert start(CALL, "look", {"order": 1}) is None
    assert talk(store).start_effect(CALL, "look", {"order": 1}) is not None
    assert sorted(store.get("talk").effects.unknown()) == [f"test/{CALL}", f"test/{CALL}#2", f"test/{CALL}#3"]


def test_a_call_whose_result_the_model_has_seen_is_a_new_one(store):
    """A result among the entries, also one that was retracted since, or one that the run has, ends a call."""
    kept = talk(store)
    for number in range(3):
        assert talk(store).start_effect(CALL, "pay", {}) is None
        key = talk(store).finish_effect(CALL, {}, result=f"paid {number}")
        again = talk(store).start_effect(CALL, "pay", {})
        assert again is not None
        assert again.outcome is not None
        assert again.outcome["result"] == f"paid {number}"
        save_result(kept, f"paid {number}")
        kept.write(lambda: [kept.draft("payload.retracted", kept.retracted(all=True))])
    assert kept.start_effect(CALL, "pay", {}, told={key}) is None
    key = kept.finish_effect(CALL, {}, result="paid 3")
    assert kept.start_effect(CALL, "pay", {}) is not None
    assert kept.start_effect(CALL, "pay", {}, told={key}) is None
    assert kept.unanswered() != []
    assert store.get("talk").verify().ok


def test_a_caller_may_know_how_many_calls_with_an_id_were_answered(store):
    """Calls that it passes over are not the one that it means; a replay of an earlier step is."""
    kept = talk(store)
    for number in range(3):
        assert kept.start_effect(CALL, "pay", {}, answered=number) is None
        kept.finish_effect(CALL, {}, result=number)
    save_result(kept, "paid")
    for number in range(3):
        known = kept.start_effect(CALL, "pay", {}, answered=number)
        assert known is not None
        assert known.outcome is not None
        assert known.outcome["result"] == number


def test_a_call_that_failed_may_be_tried_again_under_its_own_key(store):
    """A failure on record is no reason not to run; it is another try of the same effect, and its result counts."""
    kept = talk(store)
    assert kept.start_effect(CALL, "pay", {}) is None
    kept.finish_effect(CALL, {}, error="closed")
    assert talk(store).start_effect(CALL, "pay", {}) is None
    kept.catch_up()
    assert kept.finish_effect(CALL, {}, result="paid") == f"test/{CALL}"
    assert kept.finish_effect(CALL, {}, result="again") == ""  # it has its result
    (effect,) = talk_of(store).calls.uses(CALL)
    assert (effect.number, effect.outcome) == (2, {"key": f"test/{CALL}", "ok": True, "result": "paid", "error": None})


def talk_of(store: Any) -> Conversation:
    kept = talk(store)
    kept.catch_up()
    return kept


def test_calls_with_one_id_that_run_at_once_get_their_own_results(store):
    """The arguments say which call a result belongs to, in whatever order they end."""
    kept = talk(store)
    for order in (1, 2):
        assert kept.start_effect(CALL, "pay", {"order": order}) is None
    for order in (1, 2):
        kept.finish_effect(CALL, {"order": order}, result=f"paid {order}")
    found = {one.arguments["order"]: one.outcome for one in talk_of(store).calls.uses(CALL)}
    assert [(found[order] or {})["result"] for order in (1, 2)] == ["paid 1", "paid 2"]


def test_a_call_with_a_secret_runs_once(store):
    """A secret is not recorded: the call still runs, and is known again after a crash; another secret is another call."""
    arguments = [{"key": f"AKIAIOSFODNN7EXAMPL{letter}"} for letter in "EF"]
    start = partial(talk(store).start_effect, CALL, "pay")
    assert start(arguments[0]) is None
    assert talk(store).start_effect(CALL, "pay", arguments[0]) is not None
    assert start(arguments[1]) is None
    assert "AKIA" not in str([event.data for event in store.get("talk").events()])


@pytest.mark.parametrize("call", ["x" * 300, "line\nbreak", "call#2", "a/b"])
def test_any_text_may_be_the_id_of_a_call(store, call):
    """Long, unprintable and odd ids: the record says the id itself, and no two calls share a key."""
    for number in range(3):
        assert talk(store).start_effect(call, "pay", {"n": number}) is None
        assert talk(store).start_effect("call", "pay", {"n": number}) is None
        assert talk(store).start_effect(call, "pay", {"n": number}) is not None
    kept = talk_of(store)
    assert [one.call for one in kept.calls.uses(call)] == [call] * 3
    assert len({one.key for one in [*kept.calls.uses(call), *kept.calls.uses("call")]}) == 6


def test_a_log_from_before_ids_could_come_again_is_read_as_it_was(store):
    """Effects without the id of their call, numbered by tries: the last try counts, and a resumed call does not run."""
    session = store.create("talk", agent="main", metadata={})
    for number, ok in ((1, False), (2, True)):
        data = {"key": "test/c", "name": "pay", "arguments": {}}
        session.log.append(session.log.draft("effect.started", data, id=f"effect/{number}/started/test/c"))
        ended = {"key": "test/c", "ok": ok, "result": "paid", "error": None}
        session.log.append(session.log.draft("effect.finished", ended, id=f"effect/{number}/finished/test/c"))
    known = talk(store).start_effect("c", "pay", {})
    assert known is not None
    assert (known.call, known.number, known.position) == ("c", 2, 4)


def test_a_turn_with_one_id_twice_has_both_results(store):
    """In the transcript, and in what a model is handed, each call has its own result, also if they share an id."""
    kept = talk(store)
    call = {"type": "function_call", "call_id": CALL, "name": "pay", "arguments": "{}"}
    said: list[Any] = [{"role": "user", "content": "pay"}]
    for result in ("one", "two"):
        said += [call, {"type": "function_call_output", "call_id": CALL, "output": result}]
    said += [{"role": "assistant", "content": "done"}]
    keys = [str(number) for number in range(len(said))]
    rows: list[Any] = [
        {"line": number, "id": keys[number], "items": neutral(item)} | ({"turn": "begins"} if not number else {})
        for number, item in enumerate(said)
    ]
    kept.write(lambda: [kept.draft("payload.kept", kept.kept(["{}"] * len(said), keys, rows))])
    assert [item["content"] for item in Transcript().fold(store.get("talk").events()).items] == [
        "pay", "", "one", "", "two", "done",
    ]  # fmt: skip
    told = store.get("talk", agent="main").messages("openai")
    assert [one["content"] for one in told if one["role"] == "tool"] == ["one", "two"]
