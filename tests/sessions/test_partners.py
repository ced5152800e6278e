"""Partners' messages: what OpenAI and Anthropic sent goes back word for word, and can be handed to the other one."""

import copy

import pytest

from onrecord.errors import InvalidInput
from onrecord.log.items import to_items
from onrecord.views.dialects import GOES_ON

OPENAI = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": [{"type": "text", "text": "what is in it?"}, {"type": "image_url", "image_url": {"url": "data:,x"}}]},
    {"role": "assistant", "content": None, "refusal": None, "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": '{"cmd": "ls",  "n": 1.0}'}},
        {"id": "call_2", "type": "function", "function": {"name": "bash", "arguments": "not json"}},
    ]},
    {"role": "tool", "tool_call_id": "call_1", "content": "a.py"},
    {"role": "tool", "tool_call_id": "call_2", "content": "error"},
    {"role": "assistant", "content": "One file.", "annotations": [], "audio": None},
]  # fmt: skip
ANTHROPIC = [
    {"role": "user", "content": "what is in it?"},
    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "let me see", "signature": "EqQB"},
        {"type": "text", "text": "Looking.", "citations": None},
        {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"cmd": "ls"}},
        {"type": "tool_use", "id": "toolu_2", "name": "bash", "input": {"cmd": "pwd"}},
    ]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "a.py"}]},
        {"type": "tool_result", "tool_use_id": "toolu_2", "content": "no", "is_error": True},
        {"type": "text", "text": "and hurry"},
    ]},
    {"role": "assistant", "content": [{"type": "text", "text": "One file."}]},
]  # fmt: skip
GIVEN = {"openai": OPENAI, "anthropic": ANTHROPIC}


@pytest.mark.parametrize(
    ("message", "items"),
    [
        (
            {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"cmd": "ls"}}]},
            [{"role": "assistant", "content": "",
              "tool_calls": [{"id": "toolu_1", "name": "bash", "arguments": {"cmd": "ls"}}]}],
        ),
        (
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.py"}]},
            [{"role": "tool", "call": "toolu_1", "content": "a.py"}],
        ),
        (
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Yes."}]},
            [{"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Yes."}]}],
        ),
    ],
)  # fmt: skip
def test_one_part_is_enough_to_know_the_partner(message, items):
    """A message of Anthropic's is recognised by a tool use, a tool result or thinking alone; the caller need not name the format."""
    verbatim = {"format": "anthropic", "message": message, "spans": 1}
    assert to_items(message) == [items[0] | {"verbatim": verbatim}, *items[1:]]


def messages(session, dialect):
    """The conversation without what the record says: in Anthropic's format that is apart."""
    made = session.context(100_000).messages(dialect)
    first = made[:1] == [{"role": "user", "content": GOES_ON}] if made.system else 1
    return made[first:]


@pytest.mark.parametrize("format", ["openai", "anthropic"])
@pytest.mark.parametrize("way", ["recorded", "streamed", "told"])
def test_verbatim_round_trip(session, format, way):
    """A partner's messages are kept word for word, with the format named or recognised, all at once or one by one."""
    given = copy.deepcopy(GIVEN[format])
    if way == "recorded":
        session.record_turn(given, format=format)
    elif way == "told":
        for message in given:
            session.record_turn([message], format=format)
    else:
        with session.turn() as turn:
            for message in given:
                turn.add(message, format=format)
    assert messages(session, format) == GIVEN[format]
    session.leave()
    assert messages(session, format) == GIVEN[format]
    assert given == GIVEN[format]


@pytest.mark.parametrize("format", ["openai", "anthropic"])
def test_shapes_are_recognised(session, format):
    """Calls and results are recognised without naming the format: the neutral form has them all."""
    session.record_turn(GIVEN[format])
    items = session.transcript().items
    calls = [call for item in items for call in item.get("tool_calls", ())]
    assert [call["name"] for call in calls] == ["bash", "bash"]
    assert calls[0]["arguments"]["cmd"] == "ls"
    assert [item["call"] for item in items if item["role"] == "tool"] == [call["id"] for call in calls]


def test_a_conversation_goes_on_with_the_other_partner(session):
    """Recorded from one partner, handed to the other: same calls, same results, errors marked, text in place (H31)."""
    session.record_turn(ANTHROPIC)
    spoken = messages(session, "openai")
    assert [message["role"] for message in spoken] == ["user", "assistant", "tool", "tool", "user", "assistant"]
    assert spoken[1]["tool_calls"][0]["function"] == {"name": "bash", "arguments": '{"cmd": "ls"}'}
    assert spoken[3] == {"role": "tool", "tool_call_id": "toolu_2", "content": "no"}
    assert spoken[4]["content"] == "and hurry"


def test_openai_results_become_one_anthropic_message(session):
    """The results of one message's calls are together in the next message, the user's."""
    session.record_turn(OPENAI[2:])
    spoken = messages(session, "anthropic")
    assert [message["role"] for message in spoken] == ["assistant", "user", "assistant"]
    assert [part["tool_use_id"] for part in spoken[1]["content"]] == ["call_1", "call_2"]
    assert spoken[0]["content"][1]["input"] == {"arguments": "not json"}


def test_what_the_process_did_not_live_to_answer_is_marked(records):
    """Every tool call has a result: where the process died, one that says so, in every dialect."""
    session = records.open("work")
    session.record_turn(ANTHROPIC[:2])
    for dialect, found in (
        ("neutral", lambda spoken: [item for item in spoken if item["role"] == "tool"]),
        ("openai", lambda spoken: [message for message in spoken if message["role"] == "tool"]),
        ("anthropic", lambda spoken: spoken[2]["content"]),
    ):
        results = found(messages(session, dialect))
        assert len(results) == 2
        assert all("no result on record" in str(result) for result in results)
    assert [item["synthesised"] for item in session.context(9_000).items if item["role"] == "tool"] == [True, True]
    assert messages(session, "anthropic")[:2] == ANTHROPIC[:2]


def test_a_result_that_came_late_is_used(session):
    """A result that comes after another item is moved to its call, not replaced by one that says there is none."""
    session.record_turn([OPENAI[2], {"role": "user", "content": "hurry"}, OPENAI[3], OPENAI[4]])
    spoken = messages(session, "openai")
    assert [message.get("tool_call_id") for message in spoken] == [None, "call_1", "call_2", None]
    assert "no result on record" not in str(spoken)


@pytest.mark.parametrize(
    ("message", "format"),
    [({"role": "user", "content": "x"}, "gemini"), ({"role": "wizard", "content": "x"}, "openai"),
     ({"role": "assistant", "tool_calls": [{"function": {}}]}, "openai"), ({"role": "tool", "content": "x"}, "openai"),
     ({"role": "user", "content": [{"type": "tool_result"}]}, "anthropic"), ("text", "openai"), (None, "anthropic"),
     ({"role": "assistant", "content": [{"type": "tool_use", "id": "x"}]}, "anthropic")],
)  # fmt: skip
def test_what_is_no_message_is_refused(session, message, format):
    """A message that does not have its format is refused, and nothing is recorded."""
    before = session.head
    with pytest.raises(InvalidInput):
        session.record_turn([message], format=format)
    assert session.refresh().head == before


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "{",
        "NaN",
        '{"x": Infinity}',
        '{"x": 1e999}',
        '"\\ud800"',
        "[" * 5_000,
        "[" * 500 + "]" * 500,
        "9" * 5_000,
        '{"a": 1, "a": 2}',
    ],
    ids=lambda arguments: arguments[:8],
)
def test_whatever_a_model_writes_as_arguments_is_kept(session, arguments):
    """A model may write arguments that are invalid JSON, or JSON that cannot be stored: its words are still recorded."""
    call = {"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": arguments}}
    given = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "no"},
    ]
    session.record_turn(given)
    assert messages(session, "openai") == given
    spoken = messages(session, "anthropic")
    assert isinstance(spoken[0]["content"][0]["input"], dict)


def test_the_developer_speaks_as_the_system(session):
    """OpenAI's developer role is the neutral system role, and developer again when it goes back."""
    session.record_turn([{"role": "developer", "content": "be brief"}], format="openai")
    assert session.transcript().items[0]["role"] == "system"
    assert messages(session, "openai") == [{"role": "developer", "content": "be brief"}]


@pytest.mark.parametrize(
    "forged",
    [
        "text",
        5,
        {"format": "openai"},
        {"format": "openai", "message": "x", "spans": 1},
        {"format": "openai", "message": {"role": "user", "content": "other"}, "spans": 9**9},
    ],
)
def test_a_forged_verbatim_says_nothing_else(session, forged):
    """An item cannot claim to be another message than its content (T17)."""
    try:
        session.record_turn([{"role": "user", "content": "real", "verbatim": forged}])
    except InvalidInput:
        return
    for dialect in ("openai", "anthropic", "neutral"):
        assert "real" in str(messages(session, dialect))
        assert "other" not in str(
            [{key: value for key, value in m.items() if key != "verbatim"} for m in messages(session, dialect)]
        )
