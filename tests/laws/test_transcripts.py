"""Laws of the input of a model: always well formed, in every dialect, within its budget, and a partner's words verbatim."""

import json
from itertools import pairwise, takewhile
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from onrecord.errors import InvalidInput
from onrecord.log.codec import encode_payload
from onrecord.log.item_values import Item
from onrecord.log.items import to_items
from onrecord.views.context import count_tokens
from onrecord.views.dialects import to_messages
from onrecord.views.transcript import well_formed
from tests.laws import values
from tests.laws.play import AGENTS, Play, quiet_steps

conversations = st.lists(values.items, max_size=12)


def assert_well_formed(items: list[Item]) -> None:
    """Every call is answered exactly once, directly after the item that made it, and every result answers a call."""
    index = 0
    while index < len(items):
        item = items[index]
        assert item["role"] != "tool", "a result without its call"
        calls = [call["id"] for call in item.get("tool_calls") or ()]
        answers = [answer["call"] for answer in takewhile(lambda one: one["role"] == "tool", items[index + 1 :])]
        assert sorted(answers) == sorted(calls)
        index += 1 + len(answers)


@given(conversations)
def test_a_transcript_for_a_model_is_well_formed(items):
    """Every tool call is answered exactly once, right after it; nothing else is added and nothing but orphans is left out."""
    whole = well_formed(items)
    assert_well_formed(whole)
    assert [item for item in whole if item["role"] != "tool"] == [item for item in items if item["role"] != "tool"]
    assert all(item in items for item in whole if not item.get("synthesised"))
    assert well_formed(whole) == whole


@given(conversations)
def test_no_result_that_is_on_record_is_made_up(items):
    """A result is synthesised, and marked so, only where the record has none for that call."""
    for index, item in enumerate(items):
        for call in item.get("tool_calls") or ():
            rest = items[index + 1 :]
            until = next(
                (
                    n
                    for n, later in enumerate(rest)
                    if any(c["id"] == call["id"] for c in later.get("tool_calls") or ())
                ),
                None,
            )
            recorded = [one for one in rest[:until] if one["role"] == "tool" and one["call"] == call["id"]]
            before = sum(1 for one in items[:index] for c in one.get("tool_calls") or () if c["id"] == call["id"])
            found = [one for one in well_formed(items) if one["role"] == "tool" and one["call"] == call["id"]][before]
            assert found == recorded[0] if recorded else found.get("synthesised")


@given(conversations)
def test_openai_messages_are_well_formed(items):
    """For OpenAI every tool message follows the assistant's message that made the call, and arguments are JSON text."""
    messages = to_messages(items, "openai")
    for index, message in enumerate(messages):
        for call in message.get("tool_calls") or ():
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
        answers = list(takewhile(lambda one: one["role"] == "tool", messages[index + 1 :]))
        if message["role"] != "tool":
            made = [call["id"] for call in message.get("tool_calls") or ()]
            assert sorted(answer["tool_call_id"] for answer in answers) == sorted(made)


def blocks(message: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    content = message["content"] if isinstance(message["content"], list) else []
    return [part for part in content if part.get("type") == kind]


@given(conversations)
def test_anthropic_messages_are_well_formed(items):
    """For Anthropic all results of a message's calls are in the very next message, which is the user's."""
    messages = to_messages(items, "anthropic")
    for index, message in enumerate(messages):
        made = [part["id"] for part in blocks(message, "tool_use")]
        if made:
            answer = messages[index + 1]
            assert answer["role"] == "user"
            assert sorted(part["tool_use_id"] for part in blocks(answer, "tool_result")) == sorted(made)
        elif index and not blocks(messages[index - 1], "tool_use"):
            assert not blocks(message, "tool_result")


# Conversations as partners send them: each call answered, with extra fields that we do not know.
_extra = st.dictionaries(
    st.sampled_from(["name", "refusal", "annotations", "cache_control"]), values.json_values, max_size=2
)
_said = st.builds(
    lambda role, text, extra: {**extra, "role": role, "content": text},
    st.sampled_from(["user", "assistant"]),
    values.texts,
    _extra,
)


@st.composite
def openai_exchanges(draw: Any) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 4))):
        messages.append(draw(_said))
        ids = [f"call_{number}_{n}" for n in range(draw(st.integers(0, 3)))]
        if ids:
            calls = [
                {"id": id_, "type": "function", "function": {"name": "bash", "arguments": draw(values.texts)}}
                for id_ in ids
            ]
            messages.append(
                {**draw(_extra), "role": "assistant", "content": draw(st.none() | values.texts), "tool_calls": calls}
            )
            messages += [
                {**draw(_extra), "role": "tool", "tool_call_id": id_, "content": draw(values.texts)} for id_ in ids
            ]
    return messages


@st.composite
def anthropic_exchanges(draw: Any) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    thought = st.builds(
        lambda text, sign: {"type": "thinking", "thinking": text, "signature": sign}, values.texts, values.texts
    )
    text = st.builds(lambda said: {"type": "text", "text": said}, values.texts)
    for number in range(draw(st.integers(1, 4))):
        messages.append({"role": "user", "content": draw(values.texts | st.lists(text, min_size=1, max_size=2))})
        ids = [f"toolu_{number}_{n}" for n in range(draw(st.integers(0, 3)))]
        uses = [{"type": "tool_use", "id": id_, "name": "bash", "input": draw(values.json_objects)} for id_ in ids]
        said = [*draw(st.lists(thought, max_size=1)), *draw(st.lists(text, max_size=2)), *uses]
        messages.append({"role": "assistant", "content": said or draw(values.texts)})
        if ids:
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": id_,
                    "content": draw(values.texts),
                    "is_error": draw(st.booleans()),
                }
                for id_ in ids
            ]
            messages.append({"role": "user", "content": [*results, *draw(st.lists(text, max_size=1))]})
    return messages


@pytest.mark.parametrize(
    ("format", "exchanges"), [("openai", openai_exchanges()), ("anthropic", anthropic_exchanges())]
)
def test_what_a_partner_gave_goes_back_word_for_word(format, exchanges):
    """A partner's messages, recorded in any split into turns, come back in its dialect exactly as they were."""

    @given(exchanges, st.sets(st.integers(1, 20)), st.booleans())
    def law(messages: list[dict[str, Any]], cuts: set[int], told: bool) -> None:
        play = Play()
        edges = [0, *sorted(cut for cut in cuts if cut < len(messages)), len(messages)]
        for start, end in pairwise(edges):
            play.session.record_turn(messages[start:end], format=format)
        given_back = to_messages(play.session.transcript().items, format)
        assert given_back == messages
        assert json.dumps(given_back, sort_keys=True) == json.dumps(messages, sort_keys=True)

    law()


@given(anthropic_exchanges())
def test_a_conversation_can_change_its_partner(messages):
    """One partner's messages can be handed to the other, well formed, with every call and every text (H31)."""
    items = [item for message in messages for item in to_items(message, "anthropic")]
    spoken = to_messages(items, "openai")
    calls = [call["id"] for message in spoken for call in message.get("tool_calls") or ()]
    assert calls == [part["id"] for message in messages for part in blocks(message, "tool_use")]
    assert calls == [message["tool_call_id"] for message in spoken if message["role"] == "tool"]


def said(messages: list[dict[str, Any]]) -> str:
    """All text, without the line breaks that join its parts."""
    texts = [message["content"] for message in messages if isinstance(message["content"], str)]
    texts += [part["text"] for message in messages for part in blocks(message, "text")]
    return "".join(sorted("".join(texts).replace("\n", "")))


@given(anthropic_exchanges(), st.data())
def test_a_torn_exchange_is_still_well_formed(messages, data):
    """The rest of an exchange after a lost call or message is well formed; nothing is repeated or dropped."""
    lost = data.draw(st.integers(0, len(messages) - 1))
    rest = messages[:lost] + messages[lost + 1 :]
    calling = [index for index, message in enumerate(rest) if blocks(message, "tool_use")]
    if calling:
        torn = data.draw(st.sampled_from(calling))
        lost_call = blocks(rest[torn], "tool_use")[0]
        rest[torn] = {**rest[torn], "content": [part for part in rest[torn]["content"] if part != lost_call]}
        assume(rest[torn]["content"])
    spoken = to_messages([item for message in rest for item in to_items(message, "anthropic")], "anthropic")
    for index, message in enumerate(spoken):
        made = [part["id"] for part in blocks(message, "tool_use")]
        after = blocks(spoken[index + 1], "tool_result") if index + 1 < len(spoken) else []
        assert sorted(part["tool_use_id"] for part in after) == sorted(made)
    assert said(spoken) == said(rest)


@given(quiet_steps, st.integers(1, 3_000), st.sampled_from([count_tokens, len, lambda text: len(text.split()) + 1]))
def test_a_context_keeps_to_its_budget(played, tokens, count):
    """A context has no more tokens than allowed, or the error says that not even the brief fits (C12, C13)."""
    play = Play().run(played)
    for agent in AGENTS:
        handle = play.handles.get(agent, play.session)
        try:
            context = handle.context(tokens, count=count)
        except InvalidInput:
            assert tokens < 100
            continue
        assert context.tokens <= tokens
        known, *items = context.messages()
        counted = count(known["content"]) + sum(
            count(encode_payload({k: v for k, v in item.items() if k != "verbatim"}).decode()) for item in items
        )
        assert counted <= tokens
        assert_well_formed(context.items)


@given(quiet_steps, st.integers(200, 4_000))
def test_a_context_is_the_end_of_what_was_committed(played, tokens):
    """The items of a context are the last committed ones, unbroken, and it says how many turns are missing (C12, J14)."""
    play = Play().run(played)
    for agent in set(AGENTS) & set(play.handles):
        handle = play.handles[agent]
        context = handle.context(tokens)
        transcript = handle.transcript(agent)
        committed = transcript.committed
        assert 0 <= context.left_out <= len(committed)
        now = [turn.items for turn in transcript.provisional if turn.status == "running"] if handle.lease else []
        whole = well_formed(item for turn in committed for item in turn.items) + [
            i for n in now for i in well_formed(n)
        ]
        assume(not handle.agents.lane()["compacted"] and not context.left_out_steps)
        assert context.items == whole[len(whole) - len(context.items) :]
        inside = len(committed) - context.left_out
        assert len(context.items) >= len(
            [i for t in committed[len(committed) - inside :] for i in t.items if i["role"] != "tool"]
        )


@given(values.hostile_texts, values.hostile_texts)
def test_text_from_the_record_cannot_leave_its_place(objective, summary):
    """In the message to a model, text from the record cannot close its element or open another (T17)."""
    assume(objective.strip() and summary.strip())
    play = Play()
    play.session.facts.set_objective(objective)
    play.session.record_turn([{"role": "user", "content": "hi"}])
    play.session.compact(summary)
    content = play.session.context(100_000).messages()[0]["content"]
    assert content.count("<record") == content.count("</record>") == 1
    assert content.count("<summary>") == content.count("</summary>") == 1
    assert content.count("<") == content.count(">") == 4
