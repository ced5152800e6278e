"""Several at once: duplicates, other requests, deletions, hang-ups, evictions, and proxies that share a store."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from onrecord.stores.sqlite.writer import Writer
from tests.rollout.server.places import USER, aborts, code_of, message_of, says, waits
from tests.waiting import until


@pytest.fixture
def at_once():
    """Runs calls on separate threads."""
    with ThreadPoolExecutor(16) as threads:
        yield threads.submit


def test_duplicates_in_flight_get_one_answer(proxy, engine, at_once):
    """The same request sent again while its turn is running joins it: one generation, the same bytes for all."""
    session = proxy.new()
    engine.script.append(waits(says("Fine.")))
    asked = [at_once(proxy.chat, session, [USER]) for _ in range(4)]
    assert engine.arrived.acquire(timeout=90)
    until(lambda: proxy.metric("joined_total") == 3)
    engine.go_on.set()
    assert len({each.result().content for each in asked}) == 1
    assert len(engine.requests) == 1
    assert proxy.record(session)["head"]["num_assistant"] == 1


def test_another_request_meanwhile_is_busy(proxy, engine, at_once):
    """While a turn is running, another request is 409 and does not disturb it; so is a request for samples."""
    session = proxy.new()
    engine.script.append(waits(says("Fine.")))
    first = at_once(proxy.chat, session, [USER])
    assert engine.arrived.acquire(timeout=90)
    assert code_of(proxy.chat(session, [{"role": "user", "content": "Else."}])) == (409, "turn_conflict")
    assert code_of(proxy.http.post(f"/sessions/{session}/samples")) == (409, "turn_conflict")
    assert proxy.record(session)["turn_under_way"] is True
    engine.go_on.set()
    assert message_of(first.result())["content"] == "Fine."


def test_a_session_deleted_during_a_turn(proxy, engine, at_once):
    """DELETE cancels the running turn too: its client gets 410, and nothing is committed."""
    session = proxy.new()
    engine.script.append(waits(says("Too late.")))
    asked = at_once(proxy.chat, session, [USER])
    assert engine.arrived.acquire(timeout=90)
    assert proxy.http.delete(f"/sessions/{session}").status_code == 204
    assert code_of(asked.result()) == (410, "session_retired")
    engine.go_on.set()
    assert code_of(proxy.chat(session, [USER])) == (410, "session_retired")
    assert proxy.records.get(session).agents.lane("policy")["committed"] == 0


def test_a_client_that_hangs_up_finds_its_answer(proxy, engine):
    """A turn continues without its client; the same request later gets the recorded answer."""
    session = proxy.new()
    engine.script.append(waits(says("Fine.")))
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            f"{proxy.url}/sessions/{session}/v1/chat/completions",
            json={"model": "policy", "messages": [USER]},
            timeout=httpx.Timeout(90, read=3),
            trust_env=False,
        )
    engine.go_on.set()
    until(lambda: proxy.record(session)["head"]["num_assistant"] == 1)
    assert message_of(proxy.chat(session, [USER]))["content"] == "Fine."
    assert len(engine.requests) == 1


def test_no_more_turns_than_allowed(start, engine, at_once):
    """A proxy at its limit of turns answers 503 with Retry-After, and still answers /health."""
    proxy = start(turns_limit=1)
    one, two = proxy.new(), proxy.new()
    engine.script.append(waits(says("Fine.")))
    first = at_once(proxy.chat, one, [USER])
    assert engine.arrived.acquire(timeout=90)
    refused = proxy.chat(two, [USER])
    assert code_of(refused) == (503, "proxy_busy")
    assert int(refused.headers["retry-after"]) > 0
    assert proxy.http.get("/health").json()["turns_in_flight"] == 1
    engine.go_on.set()
    assert first.result().status_code == 200
    assert proxy.chat(two, [USER]).status_code == 200


def test_sessions_leave_memory_and_come_back(start, engine, at_once, count):
    """With room for two sessions, many at once are evicted and reloaded all the time, and lose nothing."""
    proxy = start(memory_sessions=2)
    sessions = [proxy.new() for _ in range(8)]
    turns = count(4, 40)

    def converse(session):
        messages = [USER]
        for _turn in range(turns):
            messages += [message_of(proxy.chat(session, messages)), USER]
        return messages[:-1]

    for session, held in [(session, at_once(converse, session)) for session in sessions]:
        messages = held.result()
        assert proxy.record(session)["messages"] == messages
    assert proxy.metric("evicted_total") > 0


def test_what_is_brought_back_is_what_left(start, engine):
    """After eviction the next prompt has the same ids as without it, and a provisional turn is still there."""
    proxy = start(memory_sessions=1, retries=0)
    one, two = proxy.new(), proxy.new()
    message = message_of(proxy.chat(one, [USER]))
    engine.script.append(aborts("Let me"))
    proxy.chat(one, [USER, message, USER])
    before = proxy.record(one)
    proxy.chat(two, [USER])
    until(lambda: proxy.http.get("/health").json()["sessions"] == 1)
    assert proxy.record(one) == before
    assert before["records"][-1]["provisional"] is True
    proxy.chat(one, [USER, message, USER])
    assert engine.prompts()[-1] == engine.prompts()[1]


def test_two_proxies_do_not_write_one_lane(start, engine, at_once):
    """While a proxy runs a turn, another one names the holder, and takes over only if asked to."""
    here, there = start(), start()
    session = here.new()
    message = message_of(here.chat(session, [USER]))
    engine.script.append(waits(says("Fine.")))
    running = at_once(here.chat, session, [USER, message, USER])
    for _request in range(2):
        assert engine.arrived.acquire(timeout=90)
    refused = there.chat(session, [USER, message, USER])
    assert code_of(refused) == (409, "lease_held")
    assert refused.headers["retry-after"]
    assert there.record(session)["head"]["num_assistant"] == 1  # reading takes no lane
    moved = there.chat(session, [USER, message, USER], headers={"onrecord-takeover": "true"})
    assert message_of(moved)["content"] == "Fine."
    engine.go_on.set()
    assert code_of(running.result()) == (409, "lease_lost")
    again = here.chat(session, [USER, message, USER])
    assert again.content == moved.content  # the answer is on record: no second generation


def test_a_takeover_during_a_turn_is_a_conflict(start, engine, at_once):
    """If another proxy takes the lease over during a generation, the late reply is refused and never counts."""
    here, there = start(), start()
    session = here.new()
    engine.script.append(waits(says("Late.")))
    first = at_once(here.chat, session, [USER])
    assert engine.arrived.acquire(timeout=90)
    moved = there.chat(session, [USER], headers={"onrecord-takeover": "true"})
    engine.go_on.set()
    assert code_of(first.result()) == (409, "lease_lost")
    assert message_of(moved)["content"] == "Fine."
    record = there.record(session)
    assert [one["message"]["content"] for one in record["records"]] == ["Fine."]
    assert engine.prompts()[0] == engine.prompts()[1]


def test_a_long_generation_keeps_the_lane(start, engine, at_once):
    """A proxy that waits for its engine renews the lease: other machines see that the turn is alive."""
    proxy = start(lease_seconds=1)
    session = proxy.new()
    engine.script.append(waits(says("Fine.")))
    asked = at_once(proxy.chat, session, [USER])
    assert engine.arrived.acquire(timeout=90)
    (lease,) = proxy.records.store.leases(session)
    until(lambda: proxy.records.store.leases(session)[0].until > lease.until + 1_000_000)
    engine.go_on.set()
    assert message_of(asked.result())["content"] == "Fine."
    assert proxy.records.store.leases(session)[0].epoch == lease.epoch


def test_a_proxy_that_stops_gives_its_sessions_back(start, engine, at_once):
    """When a proxy stops, running turns finish, and another proxy continues at once."""
    here, there = start(), start()
    session = here.new()
    engine.script.append(waits(says("Fine.")))
    asked = at_once(here.chat, session, [USER])
    assert engine.arrived.acquire(timeout=90)
    stopping = threading.Thread(target=here.stop)
    here.server.should_exit = True
    until(lambda: not here.server.servers or not here.server.servers[0].is_serving())
    engine.go_on.set()
    message = message_of(asked.result())
    stopping.start()
    stopping.join()
    assert there.chat(session, [USER, message, USER]).status_code == 200


def test_health_does_not_wait(start, engine, at_once):
    """While every turn waits for its engine, /health and reads still work."""
    proxy = start()
    sessions = [proxy.new() for _ in range(12)]
    engine.script.extend([waits(says("Fine."))] * 12)
    asked = [at_once(proxy.chat, session, [USER]) for session in sessions]
    for _ in sessions:
        assert engine.arrived.acquire(timeout=90)
    assert proxy.http.get("/health").json()["turns_in_flight"] == 12
    assert proxy.record(sessions[3])["turn_under_way"] is True
    engine.go_on.set()
    assert {each.result().status_code for each in asked} == {200}


def test_turns_of_many_sessions_share_commits(start, engine, at_once, monkeypatch):
    """Replies that arrive together are recorded together: fewer transactions than turns."""
    proxy = start()
    sessions = [proxy.new() for _ in range(12)]
    engine.script.extend([waits(says("Fine."))] * 12)
    asked = [at_once(proxy.chat, session, [USER]) for session in sessions]
    for _ in sessions:
        assert engine.arrived.acquire(timeout=90)
    transactions: list[int] = []
    real = Writer._transact

    def slow(self, cursor, batch):
        time.sleep(0.05)  # a slow disk: appends that arrive in the meantime are in the next transaction
        transactions.append(len(batch))
        return real(self, cursor, batch)

    monkeypatch.setattr(Writer, "_transact", slow)
    engine.go_on.set()
    assert {each.result().status_code for each in asked} == {200}
    assert sum(transactions) >= 12
    assert len(transactions) < 12
