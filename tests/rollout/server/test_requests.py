"""Fields of a request that change the prompt or the sampling: honoured, passed on, or refused; never left out."""

import pytest

from onrecord.rollout.engines import LLAMA, SGLANG_COMPLETIONS, VLLM_COMPLETIONS, VLLM_GENERATE
from onrecord.rollout.tokens import TemplateTokenizer
from onrecord.rollout.trajectory import Policy
from tests.rollout.server.places import USER, code_of, completes, message_of

JSON = {"response_format": {"type": "json_object"}}
NAMED = {"type": "function", "function": {"name": "add"}}
CALLING = {"role": "assistant", "content": None}
SHOWS = (
    "{% if reasoning_effort %}Effort: {{ reasoning_effort }}\n{% endif %}"
    "{% for document in documents or [] %}Document: {{ document.text }}\n{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture
def shown(start, tokenizer_place, engine, tokenizer):
    """A proxy whose template shows what it gets, and what the engine has read last."""
    made = TemplateTokenizer((tokenizer_place / "tokenizer.json").read_text(), SHOWS)
    return start(with_tokenizer=made), lambda: tokenizer.decode(engine.prompts()[-1])


def ask(proxy, session, path="chat/completions", **body):
    body = {"messages": [USER]} | body if path != "responses" else body
    return proxy.http.post(f"/sessions/{session}/v1/{path}", json={"model": "policy", "max_tokens": 9, **body})


@pytest.mark.parametrize("dialect", [VLLM_COMPLETIONS, SGLANG_COMPLETIONS])
def test_a_response_format_reaches_the_engine(start, engine, dialect):
    """The completions of vLLM and SGLang take it, so they get it."""
    engine.script.append(completes("{}"))
    proxy = start(dialect=dialect)
    assert ask(proxy, proxy.new(), **JSON).status_code == 200
    assert engine.requests[-1]["response_format"] == {"type": "json_object"}


@pytest.mark.parametrize(
    ("dialect", "asked"),
    [
        (VLLM_GENERATE, JSON), (LLAMA, JSON), (VLLM_COMPLETIONS, {"tool_choice": "required"}),
        (SGLANG_COMPLETIONS, {"tool_choice": NAMED}), (LLAMA, {"tool_choice": "required"}),
    ],
)  # fmt: skip
def test_what_the_engine_does_not_take_is_refused(start, engine, dialect, asked):
    """A field that the engine's endpoint does not have is 400 with a hint, and no turn begins."""
    proxy = start(dialect=dialect)
    session = proxy.new()
    refused = ask(proxy, session, **asked)
    assert code_of(refused) == (400, "invalid_input")
    assert refused.json()["error"]["hint"]
    assert (engine.requests, proxy.record(session)["head"]["version"]) == ([], 0)


@pytest.mark.parametrize(
    "asked",
    [
        {"add_generation_prompt": False}, {"continue_final_message": True}, {"chat_template": "{{ messages }}"},
        {"chat_template_kwargs": {"chat_template": "x"}}, {"documents": "x"}, {"documents": ["x"]},
        {"chat_template_kwargs": {"documents": 5}},
    ],
)  # fmt: skip
def test_another_way_to_render_is_refused(proxy, engine, asked):
    """What would change how messages are rendered is 400, unless it says what is done anyway."""
    assert code_of(ask(proxy, proxy.new(), **asked)) == (400, "invalid_input")
    usual = {"add_generation_prompt": True, "continue_final_message": False, "chat_template": None}
    assert ask(proxy, proxy.new(), **usual, tool_choice="auto", response_format={"type": "text"}).status_code == 200
    assert len(engine.requests) == 1


def test_effort_and_documents_reach_the_template(shown):
    """`reasoning_effort`, that of the Responses protocol, and `documents` are arguments of the template."""
    proxy, read = shown
    ask(proxy, proxy.new(), reasoning_effort="high")
    assert read().startswith("Effort: high\n")
    ask(proxy, proxy.new(), "responses", input="Hi", reasoning={"effort": "low"}, max_tokens=None)
    assert read().startswith("Effort: low\n")
    for asked in ({"documents": [{"text": "X"}]}, {"chat_template_kwargs": {"documents": [{"text": "X"}]}}):
        session = proxy.new()
        message = message_of(ask(proxy, session, **asked))
        assert read().startswith("Document: X\n")
        ask(proxy, session, messages=[USER, message, USER], **asked)
        assert read().count("Document: X") == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"reasoning_effort": "low"}), ({"reasoning_effort": "high"}, {"reasoning_effort": "low"}),
        ({"chat_template_kwargs": {"x": 1}}, {}), ({"documents": [{"text": "X"}]}, {"documents": [{"text": "Y"}]}),
    ],
)  # fmt: skip
def test_arguments_of_the_template_do_not_change_in_a_session(shown, start, tokenizer_place, before, after):
    """Other arguments than those of the turns on record are refused like other tools, also by another proxy."""
    proxy, _read = shown
    session = proxy.new()
    messages = [USER, message_of(ask(proxy, session, **before)), USER]
    made = TemplateTokenizer((tokenizer_place / "tokenizer.json").read_text(), SHOWS)
    other = start(with_tokenizer=made)
    for one in (proxy, other):
        assert code_of(ask(one, session, messages=messages, **after)) == (400, "invalid_input")
    assert ask(other, session, messages=messages, **before).status_code == 200
    lenient = start(with_tokenizer=made, policy=Policy(new_tools=True), store="lenient.db")
    session = lenient.new()
    messages = [USER, message_of(ask(lenient, session, **before)), USER]
    assert ask(lenient, session, messages=messages, **after).status_code == 200


BAD_CALLS = [
    5,
    ["x"],
    [{"id": "c"}],
    [{"function": {"arguments": "{}"}}],
    [{"function": {"name": "f", "arguments": 7}}],
]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("messages", {"tools": 5}), ("messages", {"tools": ["add"]}), ("responses", {"input": "hi", "tools": True}),
        ("chat/completions", {"tools": {"name": "add"}}), ("chat/completions", {"tools": [7]}),
        ("responses", {"input": [{"type": "function_call", "call_id": "c", "arguments": "{}"}, {"content": "x", "role": "user"}]}),
        ("messages", {"messages": [USER, {"role": "assistant", "content": [{"type": "tool_use", "id": "c"}]}, USER]}),
        *(("chat/completions", {"messages": [USER, CALLING | {"tool_calls": calls}, USER]}) for calls in BAD_CALLS),
    ],
)  # fmt: skip
@pytest.mark.parametrize("branches", [False, True])
def test_what_a_client_got_wrong_is_its_own_error(start, engine, path, body, branches):
    """Tools and calls that are no objects, or lack a name, are 400 with a hint; no branch is begun for them."""
    proxy = start(branches=branches)
    session = proxy.new()
    refused = ask(proxy, session, path, **body)
    assert code_of(refused) == (400, "invalid_input")
    assert refused.json()["error"]["hint"]
    assert engine.requests == []
    assert len(proxy.records.sessions()) == 1


@pytest.mark.parametrize("branches", [False, True])
def test_messages_that_are_none_are_refused(start, branches):
    """A request without messages is 400, with branches as well."""
    proxy = start(branches=branches)
    for body in ({}, {"messages": 5}, {"messages": ["x"]}, {"messages": [{"role": 1}]}):
        response = proxy.http.post(f"/sessions/{proxy.new()}/v1/chat/completions", json=body)
        assert code_of(response) == (400, "invalid_input")


def test_what_the_template_cannot_render_is_refused(start, tokenizer_place):
    """What a client sent and the template cannot render is 400 with a hint, in the first prompt and after a turn."""
    strict = SHOWS.replace("{{ m.content }}", "{{ m.content }}{{ m.place.at.all if m.role == 'tool' }}")
    made = TemplateTokenizer((tokenizer_place / "tokenizer.json").read_text(), strict)
    proxy = start(with_tokenizer=made)
    tool = {"role": "tool", "tool_call_id": "c", "content": "42"}
    session = proxy.new()
    refused = [ask(proxy, session, messages=[USER, tool])]
    message = message_of(ask(proxy, session))
    refused.append(ask(proxy, session, messages=[USER, message, tool]))
    for response in refused:
        assert code_of(response) == (400, "tokenization_failed")
        assert response.json()["error"]["hint"]
    assert ask(proxy, session, messages=[USER, message, USER]).status_code == 200


def test_a_session_of_an_earlier_version_continues(shown):
    """Its record does not say what its requests gave to the template, so nothing that follows is refused for it."""
    proxy, _read = shown
    session = proxy.new()
    messages = [USER, message_of(ask(proxy, session)), USER]
    proxy.proxy.shelf.peek(session).rollout.trajectory.records[0].template = ""
    assert ask(proxy, session, messages=messages, reasoning_effort="low").status_code == 200


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ({"type": "auto"}, {"tool_choice": "auto"}), ({"type": "any"}, {"tool_choice": "required"}),
        ({"type": "tool", "name": "add"}, {"tool_choice": NAMED}),
        ({"type": "auto", "disable_parallel_tool_use": True}, {"tool_choice": "auto", "parallel_tool_calls": False}),
    ],
)  # fmt: skip
def test_anthropics_tool_choice_reaches_the_engine(proxy, engine, choice, sent):
    """Each choice has a name in the engine's protocol, and so has one call at a time."""
    assert ask(proxy, proxy.new(), "messages", tool_choice=choice).status_code == 200
    got = engine.requests[-1]
    assert {name: got[name] for name in ("tool_choice", "parallel_tool_calls") if name in got} == sent


@pytest.mark.parametrize("choice", ["auto", {"type": "some"}, {"type": ["auto"]}, {}])
def test_an_unknown_tool_choice_of_anthropics_is_refused(proxy, engine, choice):
    """It is not taken for `auto`: the model would not know of it."""
    refused = ask(proxy, proxy.new(), "messages", tool_choice=choice)
    assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")
    assert not engine.requests
