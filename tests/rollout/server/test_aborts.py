"""Aborted turns: retried, continued, passed on or refused; never history, never lost."""

import json

import httpx
import pytest

from examples.rollout import running
from onrecord.session.handle import Session
from tests.rollout.server.places import CALL, USER, aborts, code_of, hangs_up, ids_of, message_of, says


def events(proxy, session, kind):
    return list(Session(proxy.records.store, session).events(kinds=(kind,)))


@pytest.mark.parametrize(
    "cut_short",
    [aborts(), aborts("Let me"), aborts("Let me add.", calls=[CALL])],
    ids=["nothing sampled", "some tokens", "a call that could be parsed"],
)
def test_an_aborted_turn_is_asked_again(proxy, engine, cut_short):
    """On the first turn and on later ones, the client sees only the whole answer, from the same prompt ids."""
    session, messages = proxy.new(), [USER]
    for _turn in range(2):
        engine.script.extend([cut_short, says("Fine.")])
        messages += [message_of(proxy.chat(session, messages)), USER]
    prompts = engine.prompts()
    assert prompts[0] == prompts[1]
    assert prompts[2] == prompts[3]
    record = proxy.record(session)
    assert [(one["status"], one["provisional"]) for one in record["records"]] == [("COMPLETED", False)] * 2
    assert len(events(proxy, session, "turn.aborted")) == 2
    assert proxy.metric("retries_total") == 2
    assert all(message.get("content") != "Let me" for message in record["messages"])


def test_three_aborts_and_then_success(proxy, engine):
    """After any number of aborts in a row, the view has at most one and the log has all."""
    session = proxy.new()
    engine.script.extend([aborts("One"), aborts(), aborts("Three"), says("Fine.")])
    assert message_of(proxy.chat(session, [USER]))["content"] == "Fine."
    assert len({tuple(prompt) for prompt in engine.prompts()}) == 1
    assert len(events(proxy, session, "turn.aborted")) == 3
    assert proxy.record(session)["head"]["provisional"] is False
    used = [event.data["output_tokens"] for event in events(proxy, session, "usage.recorded")]
    assert len(used) == 4
    assert used[0] > 0


@pytest.mark.parametrize("partial", ["", "Let me"])
def test_retries_run_out(start, engine, partial):
    """When the retries run out, the last abort remains as the honest last turn: flagged, and ABORTED in the samples."""
    proxy = start(retries=2)
    session = proxy.new()
    message = message_of(proxy.chat(session, [USER]))
    engine.script.extend([aborts("a"), aborts("b"), aborts(partial, calls=[CALL] if partial else None)])
    answer = proxy.chat(session, [USER, message, USER])
    assert answer.json()["choices"][0]["finish_reason"] == "abort"
    assert answer.json()["choices"][0]["message"].get("tool_calls") == ([CALL] if partial else None)
    done, last = proxy.record(session)["records"]
    assert (last["status"], last["provisional"], last["cause"]) == ("ABORTED", True, "weights changed")
    assert proxy.record(session)["head"]["num_assistant"] == 1
    (sample,) = proxy.http.post(f"/sessions/{session}/samples").json()["samples"]
    assert sample["status"] == "ABORTED"
    assert sum(sample["loss_mask"]) == len(done["output_ids"]) + len(last["output_ids"])
    assert sample["tokens"] == engine.prompts()[-1] + last["output_ids"]


def test_an_abort_that_stands_can_still_be_asked_again(start, engine):
    """If the agent repeats the request later, the abort is superseded."""
    proxy = start(retries=0)
    session = proxy.new()
    engine.script.append(aborts("Let"))
    assert proxy.chat(session, [USER]).json()["choices"][0]["finish_reason"] == "abort"
    assert message_of(proxy.chat(session, [USER]))["content"] == "Fine."
    assert [one["status"] for one in proxy.record(session)["records"]] == ["COMPLETED"]


def test_an_abort_is_passed_on(start, engine):
    """Policy `pass`: the client gets 200 with the partial reply and finish_reason abort, also as a stream."""
    proxy = start(abort_policy="pass")
    session = proxy.new()
    engine.script.extend([aborts("Let me"), aborts("Let us")])
    answer = proxy.chat(session, [USER]).json()["choices"][0]
    assert (answer["finish_reason"], answer["message"]["content"]) == ("abort", "Let me")
    assert '"finish_reason":"abort"' in proxy.chat(session, [USER], stream=True).text
    assert len(engine.requests) == 2
    assert proxy.record(session)["head"]["num_assistant"] == 0


def test_an_abort_is_unavailability(start, engine):
    """Policy `503`: the client gets 503 with Retry-After, the partial is on record, and the retry has the same ids."""
    proxy = start(abort_policy="503")
    session = proxy.new()
    engine.script.append(aborts("Let me"))
    refused = proxy.chat(session, [USER])
    assert code_of(refused) == (503, "turn_aborted")
    assert int(refused.headers["retry-after"]) > 0
    assert proxy.record(session)["records"][0]["provisional"] is True
    assert message_of(proxy.chat(session, [USER]))["content"] == "Fine."
    assert engine.prompts()[0] == engine.prompts()[1]


def test_an_aborted_turn_is_gone_on_with(start, engine, tokenizer):
    """Policy `continue`: the engine gets prompt and partial ids, and each token keeps the weights that sampled it."""
    proxy = start(abort_policy="continue")
    session = proxy.new()
    engine.script.extend([aborts("Let me", version="1"), aborts(" add", version="2"), says(" these.", version="3")])
    message = message_of(proxy.chat(session, [USER], max_tokens=50))
    assert message["content"] == "Let me add these."
    parts = [ids_of(tokenizer, text) for text in ("Let me", " add", " these.<|im_end|>")]
    first = engine.prompts()[0]
    assert engine.prompts() == [first, first + parts[0], first + parts[0] + parts[1]]
    assert [asked["max_tokens"] for asked in engine.requests] == [50, 50 - len(parts[0]), 50 - len(parts[0] + parts[1])]
    (record,) = proxy.record(session)["records"]
    assert record["prompt_ids"] == first
    assert record["output_ids"] == parts[0] + parts[1] + parts[2]
    assert record["weight_versions"] == [["1", len(parts[0])], ["2", len(parts[1])], ["3", len(parts[2])]]


def test_halves_that_the_engine_mangled_are_whole(start, engine):
    """Policy `continue`: space that the engine trimmed, and thinking that it took for text, come from the ids."""
    proxy = start(abort_policy="continue")

    def told(entry, **message):
        def does(engine, asked):
            status, headers, body = entry(engine, asked)
            body["choices"][0]["message"] = {"role": "assistant", **message}
            return status, headers, body

        return does

    engine.script.extend([told(aborts("Let me "), content="Let me"), says("add.")])
    assert message_of(proxy.chat(proxy.new(), [USER]))["content"] == "Let me add."
    thinking = told(aborts("I think"), content=None, reasoning_content="I think")
    engine.script.extend([thinking, says(" so.</think>\n42.")])
    whole = message_of(proxy.chat(proxy.new(), [USER]))
    assert (whole["reasoning_content"], whole["content"]) == ("I think so.", "42.")


def test_a_turn_that_is_gone_on_with_ends_at_its_limit(start, engine, tokenizer):
    """Tokens sampled before an abort count: if they reach the limit, the turn ends with `length`."""
    proxy = start(abort_policy="continue")
    session = proxy.new()
    size = len(ids_of(tokenizer, "Let me"))
    engine.script.append(aborts("Let me"))
    choice = proxy.chat(session, [USER], max_tokens=size).json()["choices"][0]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("length", "Let me")
    assert len(engine.requests) == 1


def test_going_on_survives_the_proxy(start, engine, tokenizer):
    """Policy `continue`: the next proxy continues a recorded partial too."""
    first = start(abort_policy="continue", retries=0)
    session = first.new()
    engine.script.append(aborts("Let me", version="1"))
    first.chat(session, [USER])
    first.stop()
    second = start(abort_policy="continue")
    engine.script.append(says(" add.", version="2"))
    assert message_of(second.chat(session, [USER]))["content"] == "Let me add."
    assert engine.prompts()[1] == engine.prompts()[0] + ids_of(tokenizer, "Let me")


def test_a_failed_engine_leaves_the_record_where_it_was(proxy, engine):
    """A broken connection is 502 and no turn; the next request has the same prompt ids, and succeeds."""
    session = proxy.new()
    message = message_of(proxy.chat(session, [USER]))
    before = proxy.record(session)
    engine.script.append(hangs_up)
    assert code_of(proxy.chat(session, [USER, message, USER])) == (502, "upstream_failed")
    after = proxy.record(session)
    assert (after["head"], after["records"], after["messages"]) == (
        before["head"],
        before["records"],
        before["messages"],
    )
    assert proxy.chat(session, [USER, message, USER]).status_code == 200
    assert engine.prompts()[1] == engine.prompts()[2]


def test_an_engine_that_failed_last_makes_an_infra_sample(proxy, engine):
    """If the engine broke in the last turn, the rollout is INFRA: neither completed nor aborted."""
    session = proxy.new()
    message = message_of(proxy.chat(session, [USER]))
    engine.script.append(hangs_up)
    proxy.chat(session, [USER, message, USER])
    (sample,) = proxy.http.post(f"/sessions/{session}/samples").json()["samples"]
    assert sample["status"] == "INFRA"


def says_parts(tokenizer, ids, begin, end):
    """A script entry: an engine that knows the ids of its prompt says a part of a reply, without half characters."""

    def read(until):
        text = tokenizer.text_of(ids[:until])
        return "" if text.endswith("\ufffd") else text[len(tokenizer.text_of(ids[:begin])) :]

    def do(_engine, asked):
        def choice(part, text, finish):
            scores = {"tokens": ["x"] * len(part), "token_logprobs": [-0.5] * len(part)}
            made = {"index": 0, "text": text, "finish_reason": finish, "token_ids": part, "logprobs": scores}
            return {"id": "c", "choices": [made | {"prompt_token_ids": asked["prompt"]}]}

        finish = "stop" if end == len(ids) else "abort"

        def chunks():
            had = ""
            for at in range(begin, end):
                now = read(at + 1) or had
                yield choice([ids[at]], now[len(had) :], finish if at == end - 1 else None)
                had = now
            yield b"[DONE]"

        return 200, {}, chunks() if asked.get("stream") else choice(ids[begin:end], read(end), finish)

    return do


@pytest.mark.parametrize("path", ["chat/completions", "completions"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_character_that_aborts_cut_is_not_lost(start, engine, tokenizer, stream, path):
    """Wherever a generation was cut and continued, stream and record have the text of all its ids."""
    proxy = start(dialect="vllm-completions", abort_policy="continue")
    ids = ids_of(tokenizer, "Let \U0001f600 me add<|im_end|>")
    for cuts in [*((cut,) for cut in range(1, 6)), (2, 4), (3, 4), (2, 3, 5)]:
        session = proxy.new()
        for begin, end in zip((0, *cuts), (*cuts, len(ids)), strict=True):
            engine.script.append(says_parts(tokenizer, ids, begin, end))
        asked = {"messages": [USER]} if "chat" in path else {"prompt": "Go."}
        response = proxy.http.post(f"/sessions/{session}/v1/{path}", json={"max_tokens": 99, "stream": stream, **asked})
        (turn,) = proxy.record(session)["records"]
        assert turn["output_ids"] == ids
        assert turn["message"]["content"] == "Let \U0001f600 me add", cuts
        if stream:
            parts = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")]
            choices = [choice for part in parts for choice in part["choices"]]
            said = [(one["delta"].get("content") if "delta" in one else one["text"]) or "" for one in choices]
            assert "".join(said) == "Let \U0001f600 me add", cuts


def test_the_example_engine_goes_on_with_any_ids(start, tokenizer_place):
    """The mock engine of the example may be hit again where a turn is continued: its prompt ends with any id then."""
    with running.engine(tokenizer_place, "--abort-every", "0", "--update-every", "0") as mock:
        proxy = start(upstream=mock.url, abort_policy="continue")
        for number in range(6):
            httpx.post(f"{mock.url}/update_weights", json={"hits": 3}, timeout=90)
            answer = proxy.chat(proxy.new(), [{"role": "user", "content": f"Tell me {number}"}])
            assert answer.json()["choices"][0]["finish_reason"] == "stop", answer.text


@pytest.mark.parametrize("fails", [hangs_up, aborts()], ids=["failed", "aborted"])
def test_an_answer_stays_if_it_cannot_be_generated_again(start, engine, fails):
    """While the proxy answers with a recorded turn, the turn is in the samples, and no count says it was discarded."""
    proxy = start(abort_policy="503")
    session = proxy.new()
    first = proxy.chat(session, [USER])
    engine.script.append(fails)
    again = proxy.chat(session, [USER], headers={"onrecord-resample": "true"})
    assert again.status_code in (502, 503)
    assert proxy.chat(session, [USER]).content == first.content
    (sample,) = proxy.http.post(f"/sessions/{session}/samples").json()["samples"]
    assert (sample["status"], sample["discarded_tokens"]) == ("COMPLETED", 0)
    assert sum(sample["loss_mask"]) == len(proxy.record(session)["records"][0]["output_ids"])
    assert proxy.record(session)["discarded"] == {"turns": 0, "tokens": 0}
    assert not proxy.metric("tokens_total", what="discarded")
