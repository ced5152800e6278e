"""Proxies that share a store, and what a client must never get: a wrong answer, a stale one, a damaged one."""

import itertools
import random
from concurrent.futures import ThreadPoolExecutor

import apsw
import pytest

from onrecord.errors import SessionRetired
from onrecord.rollout.recording import open_rollout
from onrecord.rollout.trajectory import Policy
from onrecord.session.retention import Policy as Retention
from onrecord.stores.sqlite import SQLiteStore
from tests.rollout.server.places import CALL, USER, ScriptedEngine, aborts, answers, code_of, ids_of, message_of, says


def texts(record):
    return [one["message"]["content"] for one in record["records"]]


def test_requests_may_go_to_either_proxy(start, engine):
    """Between turns a session moves to the proxy that got the request: no request is refused, and nothing is lost."""
    here, there = start(), start()
    session, messages = here.new(), [USER]
    for number in range(6):
        engine.script.append(says(f"Answer {number}."))
        proxy = (here, there)[number % 2]
        messages += [message_of(proxy.chat(session, messages)), USER]
    assert texts(here.record(session)) == texts(there.record(session)) == [f"Answer {n}." for n in range(6)]
    prompts = engine.prompts()
    assert all(later[: len(prompt)] == prompt for prompt, later in itertools.pairwise(prompts))


def test_a_proxy_does_not_refuse_from_an_old_view(start, engine):
    """Another proxy took over, continued and stopped: the first one reads the record before it judges a request."""
    here, there = start(), start()
    session = here.new()
    one = message_of(here.chat(session, [USER]))
    engine.script.append(says("Second."))
    two = message_of(there.chat(session, [USER, one, USER]))
    there.stop()
    engine.script.append(says("Third."))
    third = here.chat(session, [USER, one, USER, two, USER])
    assert message_of(third)["content"] == "Third."


def test_a_proxy_does_not_replay_what_another_replaced(start, engine):
    """An answer that another proxy replaced is not repeated by the one that remembers it."""
    here, there = start(), start()
    session = here.new()
    engine.script.extend([says("Old."), says("New.")])
    here.chat(session, [USER])
    there.chat(session, [USER], temperature=0.5)
    engine.script.append(says("Asked again."))
    again = here.chat(session, [USER])
    assert message_of(again)["content"] == "Asked again."
    assert texts(here.record(session)) == ["Asked again."]


def test_a_process_of_your_own_keeps_its_lease(start):
    """Only proxies hand sessions to each other: the lease of a trainer's own process is respected."""
    proxy = start()
    session = proxy.new()
    mine = open_rollout(proxy.records, session)
    assert code_of(proxy.chat(session, [USER])) == (409, "lease_held")
    assert mine.is_current


def test_random_routing_with_kills(start, count):
    """Random routing over two proxies, one of which loses its memory now and then: every answer continues its base."""
    proxies = [start(), start()]
    rng = random.Random(7)  # which proxy gets a request, not a secret
    sessions = [proxies[0].new() for _ in range(4)]

    def converse(session):
        messages = [USER]
        for _turn in range(count(12, 250)):
            proxy = rng.choice(proxies)
            messages += [message_of(proxy.chat(session, messages)), {"role": "user", "content": f"{_turn}"}]
            if rng.random() < 0.1:
                proxy.proxy.shelf._live.pop(session, None)  # as after kill -9: the lease is left behind
        return messages[:-1]

    with ThreadPoolExecutor(4) as threads:
        for session, messages in zip(sessions, threads.map(converse, sessions), strict=True):
            assert proxies[0].record(session)["messages"] == messages


def test_the_same_name_gives_the_same_session(proxy):
    """A repeated POST /sessions with a name gets the same session; other metadata, or a retired one, is refused."""
    asked = {"name": "task-1", "metadata": {"seed": 1}}
    first = proxy.http.post("/sessions", json=asked).json()
    again = proxy.http.post("/sessions", json=asked).json()
    assert (first["created"], again["created"], again["session_id"]) == (True, False, first["session_id"])
    assert code_of(proxy.http.post("/sessions", json=asked | {"metadata": {}})) == (409, "name_taken")
    proxy.http.delete(f"/sessions/{first['session_id']}")
    assert code_of(proxy.http.post("/sessions", json=asked)) == (410, "session_retired")


@pytest.mark.parametrize("body", [{"metdata": {}}, {"name": 7}, {"name": "a", "group": "b", "x": 1}])
def test_a_field_without_effect_is_refused(proxy, body):
    """A misspelled field of POST /sessions is refused, and nothing is created."""
    assert code_of(proxy.http.post("/sessions", json=body)) == (400, "invalid_input")
    assert proxy.records.sessions() == []


@pytest.mark.parametrize(
    "message",
    [
        {"content": {"text": "a"}},
        {"content": 7},
        {"role": "user", "content": "a"},
        {"content": None, "tool_calls": "add"},
        {"content": None, "tool_calls": [{"function": {"arguments": "{}"}}]},
        {"content": None, "tool_calls": [CALL | {"function": {"name": "add", "arguments": 7}}]},
        {"content": "a", "reasoning_content": ["b"]},
    ],
)
def test_an_odd_message_is_refused_before_it_is_committed(proxy, engine, message):
    """A message that no template renders is a bad reply: the session stays usable, and the next answer counts."""
    session = proxy.new()

    def odd(engine, asked):
        status, headers, body = says("Fine.")(engine, asked)
        body["choices"][0]["message"] = message
        return status, headers, body

    engine.script.append(odd)
    assert code_of(proxy.chat(session, [USER])) == (502, "bad_reply")
    assert message_of(proxy.chat(session, [USER]))["content"] == "Fine."


def test_an_abort_inside_a_character(start, engine, tokenizer):
    """With `continue`, the ids of both halves are decoded together: the client gets the character, not its bytes."""
    proxy = start(abort_policy="continue")
    session, text = proxy.new(), "It costs 5 \N{EURO SIGN}, thanks."
    cut = ids_of(tokenizer, text).index(ids_of(tokenizer, "\N{EURO SIGN}")[0]) + 1

    def part(ids, finish):
        def does(engine, asked):
            said = tokenizer.text_of(ids)
            status, headers, body = says(said, finish=finish)(engine, asked)
            meta = body["choices"][0]["meta_info"]
            meta |= {"completion_tokens": len(ids), "output_token_logprobs": [[-1.0, token, None] for token in ids]}
            meta["weight_versions"] = [{"version": finish, "start": 0, "end": len(ids)}]
            return status, headers, body

        return does

    whole = ids_of(tokenizer, text + "<|im_end|>")
    engine.script.extend([part(whole[:cut], "abort"), part(whole[cut:], "stop")])
    assert message_of(proxy.chat(session, [USER]))["content"] == text
    (record,) = proxy.record(session)["records"]
    assert record["output_ids"] == whole
    assert record["weight_versions"] == [["abort", cut], ["stop", len(whole) - cut]]


def test_weights_that_only_the_trainer_knows(start, engine):
    """An engine that names no version gets the reported one; if it changed during a reply, the version is unknown."""
    proxy = start()
    session = proxy.new()
    assert code_of(proxy.http.post("/weights", json={"version": True})) == (400, "invalid_input")
    assert proxy.http.post("/weights", json={"version": 7}).json() == {"version": "7"}
    engine.script.append(says("Fine.", version=None))
    one = message_of(proxy.chat(session, [USER]))

    def updated(engine, asked):
        proxy.http.post("/weights", json={"version": "8"})
        return says("Fine.", version=None)(engine, asked)

    engine.script.append(updated)
    proxy.chat(session, [USER, one, USER])
    assert [record["weight_versions"][0][0] for record in proxy.record(session)["records"]] == ["7", ""]


def test_an_announced_update_leaves_no_version_unknown(start, engine):
    """While the trainer changes the weights, requests wait in the proxy: a continued turn has both versions."""
    proxy = start(abort_policy="continue")
    session = proxy.new()
    proxy.http.post("/weights", json={"version": "1"})
    assert code_of(proxy.http.post("/weights", json={"updating": "yes"})) == (400, "invalid_input")

    def interrupted(engine, asked):
        assert proxy.http.post("/weights", json={"updating": True}).json() == {"version": "1", "updating": True}
        return aborts("Let me", version=None)(engine, asked)

    engine.script.extend([interrupted, says(" see.", version=None)])
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(proxy.chat, session, [USER])
        assert engine.arrived.acquire(timeout=90)
        assert not engine.arrived.acquire(timeout=0.2), "the engine was asked while its weights were being changed"
        proxy.http.post("/weights", json={"version": "2"})
        assert message_of(running.result())["content"] == "Let me see."
    (record,) = proxy.record(session)["records"]
    assert [version for version, _count in record["weight_versions"]] == ["1", "2"]


def test_an_update_that_never_ends_is_an_error(start, engine):
    """If the version is not reported in time, the turn fails, and the same request works later."""
    proxy = start(upstream_seconds=0.2)
    session = proxy.new()
    proxy.http.post("/weights", json={"updating": True})
    assert code_of(proxy.chat(session, [USER])) == (502, "upstream_failed")
    assert engine.requests == []
    proxy.http.post("/weights", json={"version": "2"})
    while (again := proxy.chat(session, [USER])).status_code == 502:
        pass  # on a busy machine the engine may need longer than this proxy waits
    message_of(again)


def damage(proxy):
    """Change one character of the last recorded turn on disk; the position of its event."""
    db = apsw.Connection(proxy.records.store.url.removeprefix("sqlite:///"))
    *_earlier, (key, payload) = db.execute(
        "SELECT key, payload FROM events WHERE kind = 'tokens.recorded' AND id LIKE '%/output' ORDER BY key"
    )
    changed = bytes(payload).replace(b"stop", b"stpp", 1)
    assert changed != bytes(payload)
    db.execute("UPDATE events SET payload = ? WHERE key = ?", (changed, key))
    db.close()
    return key & 0xFFFF_FFFF


def test_damage_is_found_before_samples_are_made(start, engine):
    """One changed character on disk, and neither a new freeze nor a second read of frozen samples is answered."""
    proxy = start(memory_sessions=1)
    session = proxy.new()
    proxy.chat(session, [USER])
    position = damage(proxy)
    refused = proxy.http.post(f"/sessions/{session}/samples")
    assert code_of(refused) == (500, "damaged_log")
    assert refused.json()["error"]["position"] == position
    assert proxy.record(session)["frozen"] is None
    session = proxy.new()
    proxy.chat(session, [USER])
    assert proxy.http.post(f"/sessions/{session}/samples").status_code == 200
    damage(proxy)
    assert code_of(proxy.http.post(f"/sessions/{session}/samples")) == (500, "damaged_log")


def test_what_is_discarded_is_counted(proxy, engine):
    """A replaced turn is in the metrics, in the session's record and in the samples."""
    session = proxy.new()
    engine.script.extend([says("One."), says("Two.")])
    proxy.chat(session, [USER])
    proxy.chat(session, [USER], temperature=0.5)
    lost = proxy.record(session)["discarded"]
    assert lost["turns"] == 1
    assert lost["tokens"] == proxy.metric("tokens_total", what="discarded") > 0
    (sample,) = proxy.http.post(f"/sessions/{session}/samples").json()["samples"]
    assert sample["discarded_tokens"] == lost["tokens"]


def test_a_swept_rollout_is_still_gone_for_good(start, engine):
    """A sweep erases the token ids of a retired rollout after its time; late requests still get 410."""
    proxy = start()
    session, live = proxy.new(), proxy.new()
    for one in (session, live):
        proxy.chat(one, [USER])
    proxy.http.delete(f"/sessions/{session}")
    swept = list(proxy.records.sweep(Retention(archive_closed_after=None, erase_retired_after=0)))
    assert [(one.session, one.action) for one in swept] == [(session, "erase")]
    assert code_of(proxy.chat(session, [USER])) == (410, "session_retired")
    with pytest.raises(SessionRetired):
        open_rollout(proxy.records, session)
    assert list(proxy.records.sweep(Retention(archive_closed_after=None, erase_retired_after=0))) == []
    assert proxy.chat(live, [USER]).status_code == 200


def test_a_refused_request_is_not_a_lost_turn(proxy, engine):
    """The engine's own refusal and an abort leave the count of discarded tokens at zero."""
    session = proxy.new()
    engine.script.extend([answers(429, b"{}"), aborts("Let me"), says("Fine.")])
    proxy.chat(session, [USER])
    proxy.chat(session, [USER])
    assert proxy.record(session)["discarded"] == {"turns": 0, "tokens": 0}


def test_rewards_over_http(proxy):
    """Rewards of sessions and turns, groups and late rewards; wrong ones are 400, changed ones 409."""
    session = proxy.new(group="g1", metadata={"seed": 3})
    proxy.chat(session, [USER])

    def reward(**asked):
        return proxy.http.post(f"/sessions/{session}/reward", json=asked)

    assert reward(reward=1.0).json()["recorded"] is True
    assert reward(reward=1).json()["recorded"] is False
    assert code_of(reward(reward=0.5)) == (409, "conflict")
    huge = proxy.http.post(f"/sessions/{session}/reward", content=b'{"reward": %s}' % (b"9" * 400))
    assert code_of(huge) == (400, "invalid_input")
    nobody = proxy.http.post("/sessions/01ARZ3NDEKTSV4RRFFQ69G5FAV/reward", json={"reward": 1})
    assert (nobody.status_code, nobody.json()["error"]["hint"]) == (404, "POST /sessions creates one")
    for wrong in ({"reward": "1"}, {"reward": 1, "turn": 7}, {"rewards": 1}, {"reward": 1, "name": 7}, {}):
        assert code_of(reward(**wrong)) == (400, "invalid_input")
    proxy.http.post(f"/sessions/{session}/samples")
    assert reward(reward=0.25, turn=0).json()["recorded"] is True
    answer = proxy.http.post(f"/sessions/{session}/samples").json()
    (sample,) = answer["samples"]
    assert (sample["reward"], sample["turn_rewards"], sample["group"]) == (1.0, [0.25], "g1")
    assert (sample["metadata"]["seed"], sample["prompt_length"] > 0) == (3, True)
    proxy.http.post(f"/sessions/{session}/samples", json={"acknowledge": answer["digest"]})
    assert code_of(reward(reward=2.0, name="late")) == (410, "session_retired")


def test_a_session_that_another_proxy_retired_is_gone(start):
    """A proxy that still has the session in memory answers 410 too: to reads and to turns."""
    here, there = start(), start()
    session = here.new()
    here.chat(session, [USER])
    assert there.http.delete(f"/sessions/{session}").status_code == 204
    assert code_of(here.http.get(f"/sessions/{session}")) == (410, "session_retired")
    assert code_of(here.chat(session, [USER])) == (410, "session_retired")


def test_samples_may_be_acknowledged_at_another_proxy(start):
    """A proxy that had the session before the samples were frozen acknowledges them, and both know that it is gone."""
    here, there = start(), start()
    session = here.new()
    messages = [USER, message_of(here.chat(session, [USER])), USER]
    there.chat(session, messages)
    frozen = there.http.post(f"/sessions/{session}/samples").json()
    acknowledged = here.http.post(f"/sessions/{session}/samples", json={"acknowledge": frozen["digest"]})
    assert acknowledged.json()["retired"] is True
    for proxy in (here, there):
        assert code_of(proxy.http.post(f"/sessions/{session}/samples")) == (410, "session_retired")


def test_the_first_turn_of_a_session_has_two_durable_steps(proxy, monkeypatch):
    """The lease is taken in the same step as the intent; a session that is only read takes none."""
    steps: list[str] = []

    def counting(name, usual):
        def counted(*given, **more):
            steps.append(name)
            return usual(*given, **more)

        return counted

    for name in ("append", "join", "acquire"):
        monkeypatch.setattr(SQLiteStore, name, counting(name, getattr(SQLiteStore, name)))
    session = proxy.new()
    proxy.record(session)
    assert steps == []
    proxy.chat(session, [USER])
    assert steps == ["join", "append"]


def test_a_turn_is_sampled_again_on_purpose(proxy, engine):
    """With `onrecord-resample: true` the same request is generated again; the new answer replaces the recorded one."""
    session = proxy.new()
    engine.script.extend([says("One."), says("Two.")])
    proxy.chat(session, [USER])
    again = proxy.chat(session, [USER], headers={"onrecord-resample": "true"})
    assert message_of(again)["content"] == "Two."
    assert proxy.chat(session, [USER]).content == again.content, "without the header, the recorded answer"
    assert engine.prompts()[0] == engine.prompts()[1]
    assert texts(proxy.record(session)) == ["Two."]


def test_the_engines_models_are_passed_on(start, engine):
    """`/v1/models`, also below a session, is the engine's own answer; without an engine it is 502."""
    engine.server.RequestHandlerClass.do_GET = lambda handler: (
        handler.send_response(200), handler.send_header("content-length", "2"), handler.end_headers(),
        handler.wfile.write(b"{}"),
    )  # fmt: skip
    proxy = start()
    for path in ("/v1/models", f"/sessions/{proxy.new()}/v1/models"):
        assert proxy.http.get(path).json() == {}
    assert code_of(start(upstream="http://127.0.0.1:9").http.get("/v1/models")) == (502, "upstream_failed")


def test_models_come_from_an_engine_that_works(start, engine, tokenizer):
    """With several engines, one that is down or not ready does not hide the models of the others."""

    def lists_models(one, status):
        def get(handler):
            handler.send_response(status)
            handler.send_header("content-length", "2")
            handler.end_headers()
            handler.wfile.write(b"{}")

        one.server.RequestHandlerClass.do_GET = get

    ready = ScriptedEngine(tokenizer)
    lists_models(engine, 503)
    lists_models(ready, 200)
    dead = "http://127.0.0.1:9"
    try:
        for others, status in ([(engine.url, ready.url), 200], [(ready.url, engine.url), 200], [(engine.url,), 503]):
            assert start(upstream=dead, more_upstreams=others).http.get("/v1/models").status_code == status
    finally:
        ready.stop()


def test_branches_go_to_the_engine_of_their_root(start, engine, tokenizer):
    """All lines of a tree share a prefix, so they ask one engine, also when they were branched by hand."""
    others = [ScriptedEngine(tokenizer) for _ in range(3)]
    try:
        proxy = start(branches=True, policy=Policy(max_rollback=0), more_upstreams=tuple(one.url for one in others))
        session = proxy.new()
        assert proxy.chat(session, [USER], n=6).status_code == 200
        other = proxy.http.post(f"/sessions/{session}/branches", json={}).json()["session_id"]
        assert proxy.chat(other, [USER, {"role": "assistant", "content": "Fine."}, USER]).status_code == 200
        assert sorted(len(one.requests) for one in (engine, *others)) == [0, 0, 0, 7]
    finally:
        for one in others:
            one.stop()


def test_after_a_turn_that_ran_out_of_tokens(start, engine):
    """Such a turn may be refused as a base; or samples may be merged past it. By default they end with it, counted."""
    strict, loose = start(policy=Policy(refuse_after_length=True)), start()
    for proxy, status in ((strict, 400), (loose, 200)):
        session = proxy.new()
        engine.script.append(says("Let me add", finish="length"))
        message = message_of(proxy.chat(session, [USER]))
        assert proxy.chat(session, [USER, message, USER]).status_code == status
    other = loose.new()
    engine.script.append(says("Let me add", finish="length"))
    message = message_of(loose.chat(other, [USER]))
    loose.chat(other, [USER, message, USER])
    (ends,) = loose.http.post(f"/sessions/{session}/samples").json()["samples"]
    (continues,) = loose.http.post(f"/sessions/{other}/samples", json={"past_length": True}).json()["samples"]
    assert (ends["status"], len(ends["turn_ends"]), ends["discarded_tokens"] > 0) == ("TRUNCATED", 1, True)
    assert (continues["status"], len(continues["turn_ends"]), continues["discarded_tokens"]) == ("COMPLETED", 2, 0)


def test_sessions_stay_with_their_engine(start, engine, tokenizer):
    """With several engines a session stays with one; an engine that refuses connections is passed over."""
    other = ScriptedEngine(tokenizer)
    proxy = start(more_upstreams=(other.url, "http://127.0.0.1:9"))
    sessions = [proxy.new() for _ in range(12)]
    for session in sessions:
        message = message_of(proxy.chat(session, [USER]))
        proxy.chat(session, [USER, message, USER])
    other.stop()
    asked = [len(each.requests) for each in (engine, other)]
    assert sum(asked) == 24
    assert len({proxy.proxy.upstream.order(f"session {number}")[0] for number in range(100)}) > 1
    turns = [len(prompt) for each in (engine, other) for prompt in each.prompts()]
    assert all(first < second for first, second in zip(turns[::2], turns[1::2], strict=True)), "two turns, one engine"


def test_branches_over_http(proxy, engine):
    """An edit deeper than the rollback limit is 400 on the session itself, but not on a branch of it."""
    session, messages = proxy.new(), [USER]
    for number in range(3):
        engine.script.append(says(f"Answer {number}."))
        messages += [message_of(proxy.chat(session, messages)), USER]
    edited = [*messages[:2], {"role": "user", "content": "Something else."}]
    assert proxy.chat(session, edited).status_code == 400
    made = proxy.http.post(f"/sessions/{session}/branches", json={"turns": 1, "name": "other"}).json()
    assert (made["turns"], made["branch_of"], made["name"]) == (1, session, "other")
    assert proxy.chat(made["session_id"], edited).status_code == 200
    (sample,) = proxy.http.post(f"/sessions/{made['session_id']}/samples").json()["samples"]
    assert sample["shared_length"] == sample["turn_ends"][0]
    assert len(proxy.record(session)["records"]) == 3, "the session itself is as it was"
    for wrong in ({"turns": 9}, {"turns": "1"}, {"name": 7}, {"turn": 1}):
        assert code_of(proxy.http.post(f"/sessions/{session}/branches", json=wrong)) == (400, "invalid_input")
