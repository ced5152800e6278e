"""Every refusal: its status, its code, and that nothing changed."""

import json
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

import onrecord
from onrecord.errors import InvalidInput, OnrecordError
from onrecord.rollout.server.answers import HINTS, STATUSES, hint_of
from onrecord.rollout.server.settings import Settings
from onrecord.rollout.tokens import TemplateTokenizer
from onrecord.rollout.trajectory import Policy
from tests.rollout.server.places import (
    USER,
    RunningProxy,
    ScriptedEngine,
    answers,
    code_of,
    completes,
    message_of,
    reply,
    says,
    streams,
    waits,
)

UNKNOWN = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
SILENT = "{{ messages[0].content }}"


@pytest.fixture(scope="module")
def steady(tmp_path_factory, tokenizer):
    """A proxy that many small refusals share; each has its own session."""
    engine = ScriptedEngine(tokenizer)
    records = onrecord.connect(str(tmp_path_factory.mktemp("steady") / "store.db"), project="rollouts")
    proxy = RunningProxy(records, tokenizer, engine.url)
    yield proxy, engine
    proxy.stop()
    records.close()
    engine.stop()


@pytest.mark.parametrize("id_", [UNKNOWN, "nothing", "..%2F..", "01ARZ3", "%00", "é"])
def test_what_is_not_there(proxy, id_):
    """An unknown id is 404 on every route; a prefix is not enough, and a request never creates a session."""
    beginning = proxy.new()[:10]
    for path in (id_, beginning):
        for response in (
            proxy.http.get(f"/sessions/{path}"),
            proxy.http.delete(f"/sessions/{path}"),
            proxy.http.post(f"/sessions/{path}/samples"),
            proxy.chat(path, [USER]),
        ):
            assert response.status_code == 404
    assert len(proxy.records.sessions()) == 1


def test_a_deleted_session_stays_deleted(proxy, engine):
    """After DELETE every request gets 410, for good, and the id is never reused; its record is kept."""
    session = proxy.new()
    proxy.chat(session, [USER])
    assert proxy.http.delete(f"/sessions/{session}").status_code == 204
    for _again in range(2):
        assert code_of(proxy.chat(session, [USER])) == (410, "session_retired")
        assert proxy.http.get(f"/sessions/{session}").status_code == 410
        assert proxy.http.delete(f"/sessions/{session}").status_code == 410
    assert len(engine.requests) == 1
    assert proxy.records.find(session).status == "closed"


def test_a_session_closed_elsewhere_is_over_here(proxy):
    """A session that another program closed is 410 too."""
    session = proxy.new()
    proxy.records.get(session).close()
    assert code_of(proxy.chat(session, [USER])) == (410, "session_closed")


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b"{}", b'{"messages": []}', b'{"messages": [{"role": "user", "content": NaN}]}',
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}', b'{"messages": [{"content": "hi"}]}',
        b'{"messages": [{"role": "user", "content": 7}]}', b'{"messages": [{"role": "user", "content": [{}]}]}',
        json.dumps({"messages": [USER], "n": 2}).encode(), json.dumps({"messages": [USER], "tools": 1}).encode(),
        json.dumps({"messages": [USER], "max_tokens": -1}).encode(), b"[" * 100_000, b"\xff\xfe",
        json.dumps({"messages": [USER], "temperature": 1}).encode().replace(b": 1}", b": 1e999}"),
        json.dumps({"messages": [USER], "prompt": "Count:"}).encode(),
        json.dumps({"messages": [{**USER, "x": 1}]}).encode().replace(b": 1}", b": " + b"[" * 600 + b"]" * 600 + b"}"),
    ],
    ids=lambda body: body[:40],
)  # fmt: skip
def test_what_is_no_request(steady, body):
    """A request that is not a valid turn is 400 with a reason, and reaches no engine."""
    proxy, engine = steady
    seen = len(engine.requests)
    session = proxy.new()
    response = proxy.http.post(f"/sessions/{session}/v1/chat/completions", content=body)
    assert code_of(response) == (400, "invalid_input")
    assert response.json()["error"]["message"]
    assert len(engine.requests) == seen
    assert proxy.chat(session, [USER]).status_code == 200


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("chat/completions", {"messages": [USER], "tools": [{"type": "function", "function": {"name": "\ud83d"}}]}),
        ("chat/completions", {"messages": [USER], "documents": [{"text": "cut \ud83d"}]}),
        ("chat/completions", {"messages": [USER], "chat_template_kwargs": {"\ud83d": 1}}),
        ("responses", {"input": "hello", "metadata": {"a": "cut \ud83d"}}),
        ("responses", {"input": "hello", "text": {"format": {"type": "text", "x": "\ud83d"}}}),
        ("messages", {"max_tokens": 5, "messages": [USER], "tools": [{"name": "\ud83d", "input_schema": {}}]}),
    ],
)
@pytest.mark.parametrize("raw", [False, True])
def test_half_a_character_is_refused_wherever_it_is(steady, path, fields, raw):
    """Text that a client cut in the middle of an emoji is 400 before the turn begins; a whole emoji is not."""
    proxy, engine = steady
    seen, session = len(engine.requests), proxy.new()
    body = json.dumps({"model": "policy", **fields}, ensure_ascii=not raw).encode(errors="surrogatepass")
    refused = proxy.http.post(f"/sessions/{session}/v1/{path}", content=body)
    assert (refused.status_code, len(engine.requests)) == (400, seen)
    assert "lone surrogate" in refused.json()["error"]["message"]
    assert proxy.record(session)["head"] == proxy.record(proxy.new())["head"]
    whole = json.dumps({"messages": [{**USER, "content": "\N{GRINNING FACE}"}]}).encode()
    assert proxy.http.post(f"/sessions/{session}/v1/chat/completions", content=whole).status_code == 200


class Raising:
    """A tokenizer one of whose methods raises."""

    def __init__(self, tokenizer, method):
        self.tokenizer, self.method = tokenizer, method

    def __getattr__(self, name):
        return _raises if name == self.method else getattr(self.tokenizer, name)


def _raises(*_given, **_named):
    raise KeyError("odd \ud800")


@pytest.mark.parametrize("stream", [False, True])
def test_a_parser_that_raises(start, engine, stream):
    """The turn fails with an error that names the parser, on record and counted, like a reply without ids."""
    proxy = start(dialect="vllm-completions", parse=_raises)
    session = proxy.new()
    engine.script.append(streams("Hi ", "there") if stream else completes("Hi there"))
    refused = proxy.chat(session, [USER], stream=stream)
    assert "the parser raised KeyError" in refused.text
    assert stream or code_of(refused) == (502, "bad_reply")
    assert proxy.record(session)["turn_under_way"] is False
    assert proxy.metric("turns_total", finish="error") == 1
    (sample,) = proxy.http.post(f"/sessions/{session}/samples").json()["samples"]
    assert (sample["status"], "the parser raised KeyError" in sample["cause"]) == ("INFRA", True)


@pytest.mark.parametrize("method", ["prompt", "suffix", "repair", "with_arguments"])
def test_a_tokenizer_that_raises(start, engine, tokenizer, method):
    """The request is 400 with an error that names the tokenizer, and no turn begins."""
    session = start().new()
    proxy = start(with_tokenizer=Raising(tokenizer, method))
    messages = [USER]
    if method != "prompt":
        messages = [USER, message_of(proxy.chat(session, [USER])), USER]
    before, seen = proxy.record(session), len(engine.requests)
    refused = proxy.chat(session, messages, chat_template_kwargs={"x": 1} if method == "with_arguments" else {})
    assert code_of(refused) == (400, "tokenization_failed")
    assert "the tokenizer raised KeyError" in refused.json()["error"]["message"]
    assert (proxy.record(session), len(engine.requests)) == (before, seen)


@pytest.mark.parametrize("method", ["encode", "decode"])
def test_a_tokenizer_that_raises_for_text(start, tokenizer, method):
    """The same for text completions."""
    proxy = start(with_tokenizer=Raising(tokenizer, method))
    prompt = "Count:" if method == "encode" else [1, 2]
    path = f"/sessions/{proxy.new()}/v1/completions"
    refused = proxy.http.post(path, json={"model": "policy", "prompt": prompt})
    assert code_of(refused) == (400, "tokenization_failed")


def test_ids_that_cannot_be_decoded(start, engine, tokenizer):
    """A turn that is continued needs their text: it fails, and the error names the tokenizer."""
    proxy = start(dialect="vllm-completions", abort_policy="continue", with_tokenizer=Raising(tokenizer, "text_of"))
    session = proxy.new()
    engine.script.append(streams("Hi ", "there", end=False))
    proxy.chat(session, [USER], stream=True)
    refused = proxy.chat(session, [USER])
    assert code_of(refused) == (502, "bad_reply")
    assert "the tokenizer raised KeyError" in refused.json()["error"]["message"]


def test_a_matcher_that_raises(start):
    """The request is 400 with an error that names the matcher, and nothing changes."""
    proxy = start(policy=Policy(matcher=_raises))
    session = proxy.new()
    message = message_of(proxy.chat(session, [USER]))
    before = proxy.record(session)
    refused = proxy.chat(session, [USER, message, USER])
    assert code_of(refused) == (400, "invalid_input")
    assert "the matcher raised KeyError" in refused.json()["error"]["message"]
    assert proxy.record(session) == before


def test_a_conversation_that_was_never_held(start, engine):
    """A request that would discard more turns than allowed, or appends a foreign answer, is 400; nothing changes."""
    proxy = start(policy=Policy(max_rollback=0))
    session = proxy.new()
    message = message_of(proxy.chat(session, [USER]))
    proxy.chat(session, [USER, message, USER])
    before = proxy.record(session)
    other = {"role": "assistant", "content": "I never said this."}
    for messages in ([USER, other, USER], [USER, message, USER, other, USER], [USER, message]):
        assert code_of(proxy.chat(session, messages))[0] == 400
    assert proxy.record(session) == before
    assert len(engine.requests) == 2


def test_a_body_has_a_limit(start, engine):
    """A body over the limit is 413, even if its length was not announced; the proxy keeps serving."""
    proxy = start(body_limit=2_000)
    session = proxy.new()
    path = f"/sessions/{session}/v1/chat/completions"
    refused = proxy.http.post(path, content=b"x" * 2_001)
    assert code_of(refused) == (413, "too_large")
    assert "messages" in refused.json()["error"]["hint"]
    assert code_of(proxy.http.post(path, content=iter([b"x" * 1_500] * 2))) == (413, "too_large")
    assert proxy.chat(session, [USER]).status_code == 200


def test_there_is_nothing_to_make_samples_of(proxy):
    """Samples of a session without turns are 422; unknown options and wrong values are 400."""
    session = proxy.new()
    assert code_of(proxy.http.post(f"/sessions/{session}/samples")) == (422, "assembly_failed")
    for options in ({"merged": True}, {"max_seq_len": 0}):
        assert proxy.http.post(f"/sessions/{session}/samples", json=options).status_code == 400


def test_a_template_that_hides_answers(start, tokenizer_place):
    """If new ids cannot follow the old ones, the answer is 500 with the reason; the turn before does not change."""
    odd = TemplateTokenizer((tokenizer_place / "tokenizer.json").read_text(), SILENT)
    proxy = start(with_tokenizer=odd)
    session = proxy.new()
    message = message_of(proxy.chat(session, [USER]))
    before = proxy.record(session)
    assert code_of(proxy.chat(session, [USER, message, USER])) == (500, "tokenization_failed")
    assert proxy.record(session) == before


def broken(change):
    """A script entry: a corrupted reply."""

    def does(engine, asked):
        made = reply(engine, "Fine.", prompt=asked["input_ids"])
        change(made, made["choices"][0], made["choices"][0]["meta_info"])
        return 200, {}, made

    return does


@pytest.mark.parametrize(
    "does",
    [
        answers(200, b"<html>"),
        answers(200, b"{}"),
        answers(200, b'{"choices": [{"finish_reason": NaN}]}'),
        broken(lambda _made, _choice, meta: meta.pop("output_token_logprobs")),
        broken(lambda _made, _choice, meta: meta["output_token_logprobs"].pop()),
        broken(lambda _made, choice, _meta: choice.update(message=None)),
        broken(lambda _made, choice, _meta: choice.update(finish_reason="dunno")),
        broken(lambda _made, _choice, meta: meta.update(prompt_tokens=1)),
        broken(lambda _made, choice, _meta: choice["message"].update(content="\ud800")),
        broken(lambda _made, choice, _meta: choice["message"].update(x=json.loads("[" * 600 + "]" * 600))),
    ],
    ids=["no JSON", "nothing", "NaN", "no ids", "a logprob short", "null message", "unknown end", "other prompt", "half a letter",
         "brackets"],
)  # fmt: skip
def test_a_reply_that_cannot_be_recorded(steady, does):
    """A bad reply is 502 and no turn; the session continues with the same prompt ids."""
    proxy, engine = steady
    session = proxy.new()
    engine.script.append(does)
    assert code_of(proxy.chat(session, [USER])) == (502, "bad_reply")
    record = proxy.record(session)
    assert (record["records"], record["head"]["version"], record["turn_under_way"]) == ([], 0, False)
    assert message_of(proxy.chat(session, [USER]))["content"] == "Fine."
    assert engine.prompts()[-2] == engine.prompts()[-1]


def test_an_engine_that_ends_with_an_error(proxy, engine):
    """A generation that the engine itself calls an error is 502."""
    session = proxy.new()
    engine.script.append(says("Fi", finish="error"))
    assert code_of(proxy.chat(session, [USER])) == (502, "upstream_failed")


def test_an_engine_that_is_not_there(start):
    """No engine at all is 502, and says so."""
    proxy = start(upstream="http://127.0.0.1:9")
    response = proxy.chat(proxy.new(), [USER])
    assert code_of(response) == (502, "upstream_failed")
    said = "the engine accepts no connection at 127.0.0.1:9: Connection refused"
    assert response.json()["error"]["message"] == said


def test_an_engine_that_takes_too_long(start, engine):
    """An engine that does not answer in time is 502."""
    proxy = start(upstream_seconds=0.2)

    def sleeps(engine, asked):
        engine.go_on.wait(5)
        return says("Late.")(engine, asked)

    engine.script.append(sleeps)
    assert code_of(proxy.chat(proxy.new(), [USER])) == (502, "upstream_failed")


def test_routes_that_do_not_exist(proxy):
    """An unknown path is 404 and a wrong method 405, in the same form as every refusal."""
    assert code_of(proxy.http.get("/nothing")) == (404, "no_such_route")
    without = proxy.http.post("/v1/chat/completions", json={"messages": [USER]})
    assert code_of(without) == (404, "no_such_route"), "a base URL without a session"
    assert "POST /sessions" in without.json()["error"]["hint"]
    assert proxy.http.get("/sessions").status_code == 405
    assert proxy.http.put("/health").status_code == 405


@pytest.mark.parametrize("body", [{"metadata": 7}, {"name": "no/good"}, {"name": 7}, {"metadata": {"x": "y" * 20_000}}])
def test_a_session_that_cannot_be_made(steady, body):
    """Invalid names and metadata are 400, and create nothing."""
    proxy, _engine = steady
    before = len(proxy.records.sessions())
    assert proxy.http.post("/sessions", json=body).status_code == 400
    assert len(proxy.records.sessions()) == before


def every_error():
    """All kinds of errors, by their code."""
    found, seen = [OnrecordError], dict[str, type[OnrecordError]]()
    while found:
        error = found.pop()
        seen.setdefault(error.code, error)
        found += error.__subclasses__()
    return seen


def test_every_status_is_of_an_error_there_is():
    """The table of statuses has only codes of existing errors, so that a renamed error does not become a 500."""
    assert set(STATUSES) | set(HINTS) <= set(every_error())


def test_hints_are_for_clients_over_http(start, engine):
    """No hint names a call in Python; one to a proxy that is not the writer names the header that takes over."""
    known = every_error()
    for code in (*STATUSES, "damaged_log"):
        assert "session." not in hint_of(known[code]("x")), code
    first, second = start(), start()
    session = first.new()
    engine.script.append(waits(says("Fine.")))
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(first.chat, session, [USER])
        assert engine.arrived.acquire(timeout=90)
        try:
            path, body = f"/sessions/{session}/v1/messages", {"messages": [USER], "max_tokens": 9}
            for busy in (second.chat(session, [USER]), second.http.post(path, json=body)):
                assert busy.status_code == 409
                assert "`onrecord-takeover: true`" in busy.json()["error"]["hint"]
        finally:
            engine.go_on.set()
        assert asked.result().status_code == 200


# Access


def test_a_page_of_elsewhere_may_not_come(proxy):
    """On loopback a foreign Host (DNS rebinding) or Origin is refused; the machine's own names are accepted."""
    session = proxy.new()
    path = f"/sessions/{session}"
    for headers in (
        {"host": "evil.example"}, {"host": "evil.example:80"}, {"host": ""}, {"host": "[::1"},
        {"origin": "http://evil.example"}, {"origin": "null"}, {"origin": "http://127.0.0.1:3000"},
    ):  # fmt: skip
        refused = proxy.http.get(path, headers=headers)
        assert code_of(refused) == (403, "forbidden")
    for headers in ({"host": "localhost:1"}, {"host": "[::1]:8700"}):
        assert proxy.http.get(path, headers=headers).status_code == 200
    assert proxy.http.get("/health", headers={"host": "evil.example"}).status_code == 200


def test_a_name_can_be_allowed(start):
    """An allowed host name is accepted."""
    proxy = start(hosts=("trainer.internal",))
    assert proxy.http.get("/metrics", headers={"host": "trainer.internal:8700"}).status_code == 200


def test_a_token_is_asked_for(start):
    """With a token, every route but /health requires exactly that token."""
    proxy = start(token="open-sesame")
    for value in (None, "open-sesame", "Bearer", "Bearer open-sesam", "Basic open-sesame", "Bearer \xe9"):
        headers = httpx.Headers({} if value is None else {"authorization": value}, encoding="latin-1")
        refused = httpx.post(f"{proxy.url}/sessions", headers=headers, trust_env=False)
        assert code_of(refused) == (401, "unauthorized")
        assert refused.headers["www-authenticate"] == "Bearer"
    assert proxy.http.get("/health").status_code == 200
    assert proxy.http.get("/metrics").status_code == 401
    allowed = proxy.http.post("/sessions", headers={"authorization": "Bearer open-sesame"})
    assert allowed.status_code == 200


@pytest.mark.parametrize(
    "settings",
    [
        {"host": "0.0.0.0"}, {"host": "192.0.2.1"}, {"upstream": "ftp://x"}, {"dialect": "tgi"},
        {"abort_policy": "hope"}, {"retries": -1}, {"turns_limit": 0}, {"memory_sessions": 0}, {"body_limit": 0},
    ],
)  # fmt: skip
def test_settings_that_do_not_go_together(settings):
    """A proxy that others could reach without a token does not start, nor does one with unknown settings."""
    with pytest.raises(InvalidInput):
        Settings(**{"upstream": "http://127.0.0.1:1", **settings}).checked()
    assert Settings("http://127.0.0.1:1", host="0.0.0.0", token="x").checked().token == "x"
