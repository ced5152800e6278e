"""The endpoints of OpenAI's protocols, used by OpenAI's own client: the same turns, the same exact ids."""

import json
import re
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.rollout.server.places import CALL, USER, code_of, completes, ids_of, says, streams
from tests.waiting import until

TOOL = {"type": "function", "name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {}}}


@pytest.fixture
def connect():
    """OpenAI's client for a session."""
    made = []

    def connect(proxy, session=None):
        session = session or proxy.new()
        url = f"{proxy.url}/sessions/{session}/v1"
        made.append(openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=90))
        return made[-1], session

    yield connect
    for client in made:
        client.close()


def thinks(engine, asked):
    status, headers, body = says("Let me add these.", calls=[CALL], finish="tool_calls")(engine, asked)
    body["choices"][0]["message"]["reasoning_content"] = "I add."
    return status, headers, body


# Completions


def test_text_completions_continue_the_sampled_ids(proxy, engine, tokenizer, connect):
    """A client that sends its prompt, the answer and more text gets a prompt of the recorded ids and the new ones."""
    client, session = connect(proxy)
    engine.script.extend([says("one two"), says("Fine.")])
    first = client.completions.create(model="policy", prompt="Count:", max_tokens=9, temperature=0.5)
    assert (first.object, first.choices[0].text, first.choices[0].finish_reason) == (
        "text_completion",
        "one two",
        "stop",
    )
    assert engine.prompts()[0] == ids_of(tokenizer, "Count:")
    assert (engine.requests[0]["max_tokens"], engine.requests[0]["temperature"]) == (9, 0.5)
    client.completions.create(model="policy", prompt="Count:one two<|im_end|> and three:", max_tokens=9)
    done, then = proxy.record(session)["records"]
    assert engine.prompts()[1] == done["prompt_ids"] + done["output_ids"] + ids_of(tokenizer, " and three:")
    assert then["keep"] == len(done["prompt_ids"] + done["output_ids"])
    assert first.usage.completion_tokens == len(done["output_ids"])


def test_prompts_of_ids(proxy, engine, tokenizer, connect):
    """A prompt of token ids is used as it is; one that repeats the recorded ids continues them."""
    client, session = connect(proxy)
    ids = ids_of(tokenizer, "Count:")
    first = client.completions.create(model="policy", prompt=ids, logprobs=0)
    (done,) = proxy.record(session)["records"]
    assert engine.prompts() == [ids]
    assert first.choices[0].logprobs.tokens == [f"token_id:{id}" for id in done["output_ids"]]
    assert first.choices[0].logprobs.token_logprobs == done["logprobs"]
    more = [*ids, *done["output_ids"], 7, 8]
    client.completions.create(model="policy", prompt=more)
    assert engine.prompts()[1] == more
    assert [one["status"] for one in proxy.record(session)["records"]] == ["COMPLETED", "COMPLETED"]


def test_a_lost_completion_is_given_again(proxy, engine):
    """The same prompt gets the recorded answer, byte for byte; another one replaces the turn."""
    session = proxy.new()
    path = f"/sessions/{session}/v1/completions"
    one, two = (proxy.http.post(path, json={"model": "policy", "prompt": "Count:"}) for _ in range(2))
    assert one.content == two.content
    assert len(engine.requests) == 1
    other = proxy.http.post(path, json={"model": "policy", "prompt": "Sing:"})
    assert other.status_code == 200
    assert proxy.record(session)["discarded"]["turns"] == 1


@pytest.mark.parametrize(
    ("fields", "word"),
    [({"prompt": ""}, "prompt"), ({"prompt": ["a", "b"]}, "one prompt"), ({"prompt": "a", "echo": True}, "echo"),
     ({"prompt": "a", "n": 2}, "n must be 1"), ({"prompt": [-1]}, "negative"), ({}, "prompt"),
     ({"prompt": "\ud800"}, "surrogate")],
)  # fmt: skip
def test_completions_that_cannot_be_turns(proxy, engine, fields, word):
    """They are refused with the reason, and the engine is not asked."""
    body = json.dumps({"model": "policy", **fields})
    refused = proxy.http.post(f"/sessions/{proxy.new()}/v1/completions", content=body)
    assert code_of(refused) == (400, "invalid_input")
    assert word in refused.json()["error"]["message"]
    assert engine.requests == []


def test_text_and_chat_do_not_mix(proxy):
    """A session has chat turns or text turns: the ids of one make no sense behind the other."""
    session = proxy.new()
    proxy.chat(session, [USER])
    refused = proxy.http.post(f"/sessions/{session}/v1/completions", json={"model": "policy", "prompt": "Count:"})
    assert code_of(refused) == (400, "invalid_input")
    other = proxy.new()
    proxy.http.post(f"/sessions/{other}/v1/completions", json={"model": "policy", "prompt": "Count:"})
    assert code_of(proxy.chat(other, [USER])) == (400, "invalid_input")


@pytest.mark.parametrize(
    ("path", "said"),
    [("chat/completions", {"messages": [USER]}), ("responses", {"input": "Hello"}),
     ("messages", {"messages": [USER], "max_tokens": 9})],
)  # fmt: skip
def test_a_prompt_does_not_replace_messages(proxy, engine, path, said):
    """A request with messages and a prompt is refused in every protocol; a prompt that is null means none."""
    url = f"/sessions/{proxy.new()}/v1/{path}"
    refused = proxy.http.post(url, json={"model": "policy", "prompt": "Count:", **said})
    assert refused.status_code == 400
    assert engine.requests == []
    assert proxy.http.post(url, json={"model": "policy", "prompt": None, **said}).status_code == 200
    assert "form" not in proxy.record(url.split("/")[2])["messages"][0]


def test_a_text_that_looks_like_a_call_stays_text(start, engine, connect):
    """A completion is the text that was sampled, calls and thinking included."""
    client, _session = connect(start(dialect="vllm-completions"))
    text = '<tool_call>{"name": "add", "arguments": {}}</tool_call>'
    engine.script.append(streams("So: ", text))
    chunks = list(client.completions.create(model="policy", prompt="Call:", stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == "So: " + text
    assert chunks[-1].choices[0].finish_reason == "stop"


# Chat, with OpenAI's client


def test_a_chat_stream_in_openais_client(start, engine, connect):
    """OpenAI's client reads the chunks while the engine generates."""
    proxy = start(dialect="vllm")
    client, session = connect(proxy)
    engine.script.append(streams("Let me", " add.", wait=1))
    stream = client.chat.completions.create(
        model="policy", messages=[USER], stream=True, stream_options={"include_usage": True}
    )
    text, chunks = "", []
    for chunk in stream:
        chunks.append(chunk)
        text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
        if text == "Let me":
            until(lambda: proxy.record(session)["tokens_so_far"])
            engine.go_on.set()
    assert text == "Let me add."
    assert chunks[-1].usage.completion_tokens == len(proxy.record(session)["records"][0]["output_ids"])


def test_an_error_in_a_stream_is_raised_by_openais_client(start, engine, connect):
    """A stream that breaks is an exception for the agent, not a short answer."""
    client, _session = connect(start(dialect="vllm"))
    engine.script.append(streams("Let me", end=False))
    with pytest.raises(openai.APIError, match="stream ended"):
        list(client.chat.completions.create(model="policy", messages=[USER], stream=True))


# Responses


def test_a_conversation_of_responses(proxy, engine, connect):
    """Reasoning, text, calls and results go both ways, and every prompt continues the sampled ids."""
    client, session = connect(proxy)
    engine.script.extend([thinks, says("The result is 42."), says("Bye.")])
    asked = [{"role": "user", "content": USER["content"]}]
    first = client.responses.create(
        model="policy", input=asked, instructions="Be brief.", tools=[TOOL], max_output_tokens=99, tool_choice="auto"
    )
    assert [item.type for item in first.output] == ["reasoning", "message", "function_call"]
    assert (first.status, first.output_text) == ("completed", "Let me add these.")
    call = first.output[2]
    assert (call.name, json.loads(call.arguments), call.call_id) == ("add", {"a": 17, "b": 25}, CALL["id"])
    assert engine.requests[0]["max_completion_tokens"] == 99
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "42"}
    asked += [*[item.model_dump(exclude_none=True) for item in first.output], result]
    second = client.responses.create(model="policy", input=asked, instructions="Be brief.", tools=[TOOL])
    assert second.output_text == "The result is 42."
    third = client.responses.create(model="policy", input="Bye", previous_response_id=second.id, tools=[TOOL])
    assert third.output_text == "Bye."
    records = proxy.record(session)["records"]
    assert [one["base"] for one in records] == [0, 1, 2]
    ids: list[int] = []
    for record, prompt in zip(records, engine.prompts(), strict=True):
        ids = ids[: record["keep"]] + record["prompt_ids"]
        assert ids == prompt
        ids = ids + record["output_ids"]
    assert second.usage.output_tokens == len(records[1]["output_ids"])


def test_a_stream_of_responses(start, engine, connect):
    """OpenAI's client reads the events while the engine generates; the last one has the whole response."""
    proxy = start(dialect="vllm")
    client, session = connect(proxy)
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    engine.script.append(streams("Let me", " add.", wait=1, calls=[call]))
    events, text = [], ""
    with client.responses.stream(model="policy", input="What is 17 plus 25?") as stream:
        for event in stream:
            events.append(event)
            if event.type == "response.output_text.delta":
                text += event.delta
            if text == "Let me" and not engine.go_on.is_set():
                until(lambda: proxy.record(session)["tokens_so_far"])
                engine.go_on.set()
        whole = stream.get_final_response()
    assert (text, whole.output_text) == ("Let me add.", "Let me add.")
    assert [item.type for item in whole.output] == ["message", "function_call"]
    assert whole.output[1].arguments == '{"a": 1}'
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].type == "response.completed"
    assert events[-1].response.usage.output_tokens == len(proxy.record(session)["records"][0]["output_ids"])


def test_a_response_that_ran_out_of_tokens(proxy, engine, connect):
    """It is incomplete, and says why."""
    client, _session = connect(proxy)
    engine.script.append(says("Let me", finish="length"))
    made = client.responses.create(model="policy", input="Count", max_output_tokens=1)
    assert (made.status, made.incomplete_details.reason) == ("incomplete", "max_output_tokens")


@pytest.mark.parametrize(
    ("fields", "word"),
    [({"input": 3}, "items"), ({"input": "a", "background": True}, "background"),
     ({"input": "a", "previous_response_id": "resp_x"}, "no response"),
     ({"input": [{"type": "image"}]}, "type 'image'"),
     ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "text"),
     ({"input": "a", "tools": [{"type": "web_search"}]}, "function")],
)  # fmt: skip
def test_responses_that_cannot_be_turns(proxy, engine, fields, word):
    """They are refused with the reason, and the engine is not asked."""
    refused = proxy.http.post(f"/sessions/{proxy.new()}/v1/responses", json={"model": "policy", **fields})
    assert code_of(refused) == (400, "invalid_input")
    assert word in refused.json()["error"]["message"]
    assert engine.requests == []


def test_a_stream_in_anthropics_protocol(start, engine):
    """Its events come while the engine generates, too, and add up to the message."""
    import anthropic

    proxy = start(dialect="vllm")
    session = proxy.new()
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    engine.script.append(streams("Let me", " add.", wait=1, calls=[call]))
    url = f"{proxy.url}/sessions/{session}"
    with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client:
        asked: dict[str, Any] = {"model": "policy", "max_tokens": 64, "messages": [USER]}
        with client.messages.stream(**asked) as stream:
            for text in stream.text_stream:
                if text == "Let me":
                    until(lambda: proxy.record(session)["tokens_so_far"])
                    engine.go_on.set()
            made = stream.get_final_message()
    told, called = (block.model_dump() for block in made.content)
    assert told["text"] == "Let me add."
    assert (called["name"], called["input"]) == ("add", {"a": 1})
    assert made.stop_reason == "tool_use"
    assert made.usage.output_tokens == len(proxy.record(session)["records"][0]["output_ids"])


def test_the_base_urls_of_the_guide(proxy, engine):
    """The guide names the base URL for each vendor's client, and each client works with its own."""
    import anthropic

    guide = (Path(__file__).parents[3] / "docs/guide/rollout-proxy.md").read_text(encoding="utf-8")
    bases = re.findall(r"`http://127\.0\.0\.1:8700(/sessions/\{id\}\S*)`", guide)
    assert bases == ["/sessions/{id}/v1", "/sessions/{id}"]
    ours, theirs = (proxy.url + base.replace("{id}", proxy.new()) for base in bases)
    with openai.OpenAI(base_url=ours, api_key="none", max_retries=0) as client:
        answer = client.chat.completions.create(model="policy", messages=[{"role": "user", "content": "Hi"}])
        assert answer.choices[0].message.content == "Fine."
    with anthropic.Anthropic(base_url=theirs, api_key="none", max_retries=0) as other:
        asked: dict[str, Any] = {"model": "policy", "max_tokens": 9, "messages": [USER]}
        assert other.messages.create(**asked).content[0].model_dump()["text"] == "Fine."


@pytest.mark.parametrize("stop", ["\nWhat:", "\nObservation: so far,"], ids=["few ids", "many ids"])
@pytest.mark.parametrize("sampled", ["as tokenized", "other ids", "and more"])
def test_an_engine_reads_a_stop_word_once(start, engine, tokenizer, stop, sampled):
    """A stop word is in the sampled ids; a client that writes it again behind its text does not double it."""
    proxy = start(dialect="vllm-completions")
    session, path = proxy.new(), "Count:\n"
    ids = ids_of(tokenizer, "Let me add" + stop)
    if sampled == "other ids":
        ids = ids_of(tokenizer, "Let me add") + [id for letter in stop for id in ids_of(tokenizer, letter)]
    ids += ids_of(tokenizer, "\n") if sampled == "and more" else []

    def ask(prompt):
        asked = {"prompt": prompt, "max_tokens": 50, "stop": [stop]}
        return proxy.http.post(f"/sessions/{session}/v1/completions", json=asked).json()["choices"][0]["text"]

    engine.script.extend([completes("", shown="Let me add", ids=ids), completes("Fine."), completes("Fine.")])
    prompt = path + ask(path) + stop + " 3\n"
    said = ask(prompt)
    read = engine.prompts()[-1]
    assert read[: -len(ids_of(tokenizer, " 3\n"))] == engine.prompts()[0] + ids
    if sampled != "and more":
        assert tokenizer.decode(read) == prompt
    ask(prompt + said + "Next")
    assert engine.prompts()[-1][: len(read)] == read


def test_text_that_only_looks_repeated_is_kept(start, engine, tokenizer):
    """A new text that begins like the end of the last one is new: nothing of it is left out."""
    proxy = start(dialect="vllm-completions")
    path = f"/sessions/{proxy.new()}/v1/completions"
    ids = ids_of(tokenizer, "Fine.\n")
    engine.script.extend([completes("Fine.\n", ids=ids, finish_reason="length"), completes("So.")])
    proxy.http.post(path, json={"prompt": "Go.", "max_tokens": 50})
    proxy.http.post(path, json={"prompt": "Go.Fine.\n\nNext", "max_tokens": 50})
    assert tokenizer.decode(engine.prompts()[-1]) == "Go.Fine.\n\nNext"


@pytest.mark.parametrize("stream", [False, True])
def test_an_engine_that_gives_every_answer_the_same_id(start, engine, connect, stream):
    """The second answer gets an id of the proxy's own, so `previous_response_id` names one turn."""
    proxy = start(dialect="vllm-completions" if stream else "sglang")

    def same(does):
        def do(engine, asked):
            status, headers, body = does(engine, asked)
            if stream:
                return status, headers, (one if isinstance(one, bytes) else {**one, "id": "r"} for one in body)
            return status, headers, body | {"id": "r"}

        return do

    client, session = connect(proxy)
    texts, previous, ids = ["A.", "B.", "C."], None, []
    engine.script.extend([same(streams(text) if stream else says(text)) for text in texts])
    for text in texts:
        asked = {"model": "policy", "input": text, **({"previous_response_id": previous} if previous else {})}
        if stream:
            with client.responses.stream(**asked) as events:
                events.until_done()
                previous = events.get_final_response().id
        else:
            previous = client.responses.create(**asked).id
        ids.append(previous)
    assert ids[0] == "resp_r"
    assert len(set(ids)) == 3
    assert [message["content"] for message in proxy.record(session)["messages"][::2]] == texts
    assert proxy.record(session)["discarded"]["turns"] == 0


def test_an_id_that_two_lines_have_is_refused(start, engine):
    """Two lines of a tree may have answers with the same id of the engine: it is not guessed which one is meant."""
    proxy = start(branches=True)
    path = f"/sessions/{proxy.new()}/v1/responses"
    for text in ("One", "Two"):
        engine.script.append(lambda engine, asked: (200, {}, says("Fine.")(engine, asked)[2] | {"id": "r"}))
        proxy.http.post(path, json={"model": "policy", "input": text})
    refused = proxy.http.post(path, json={"model": "policy", "input": "Go on", "previous_response_id": "resp_r"})
    assert code_of(refused) == (400, "invalid_input")
    assert "2 answers on record" in refused.json()["error"]["message"]
