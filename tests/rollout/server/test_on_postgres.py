"""The proxy on a store that many machines share."""

from concurrent.futures import ThreadPoolExecutor

from tests.rollout.server.places import USER, aborts, message_of, says
from tests.stores import url_of


def test_two_proxies_on_postgresql(start, engine, request, tmp_path):
    """Turns, aborts, lanes, lost replies and samples are the same as on a SQLite file."""
    place = url_of("postgres", request, tmp_path)
    here, there = start(store=place), start(store=place)
    session = here.new(metadata={"task": 7})
    engine.script.extend([aborts("Let me"), says("Fine.")])
    first = here.chat(session, [USER])
    messages = [USER, message_of(first), USER]
    assert here.chat(session, [USER]).content == first.content
    assert engine.prompts()[0] == engine.prompts()[1]
    moved = there.chat(session, messages)
    assert moved.status_code == 200
    assert here.chat(session, messages).content == moved.content
    samples = there.http.post(f"/sessions/{session}/samples").json()
    assert samples["samples"][0]["status"] == "COMPLETED"
    assert there.record(session)["head"]["num_assistant"] == 2
    there.http.post(f"/sessions/{session}/samples", json={"acknowledge": samples["digest"]}).raise_for_status()
    assert here.http.get(f"/sessions/{session}").status_code == 410


def test_many_sessions_on_postgresql(start, engine, request, tmp_path, count):
    """Parallel sessions, more than fit into memory, lose nothing."""
    proxy = start(store=url_of("postgres", request, tmp_path), memory_sessions=2)
    sessions = [proxy.new() for _ in range(6)]

    def converse(session):
        messages = [USER]
        for _turn in range(count(3, 30)):
            messages += [message_of(proxy.chat(session, messages)), USER]
        return messages[:-1]

    with ThreadPoolExecutor(6) as threads:
        for session, messages in zip(sessions, threads.map(converse, sessions), strict=True):
            assert proxy.record(session)["messages"] == messages
