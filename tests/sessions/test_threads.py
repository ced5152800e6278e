"""Threads: many use one handle. Every event is there, the views are right, and no lock is held while a store persists."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event, Thread
from typing import Any

import pytest

from onrecord.errors import TurnConflict
from onrecord.session.handle import Session
from onrecord.views.fold import VIEWS_VERSION, Whole

THREADS = 16


def together(work: Callable[[int], Any], threads: int = THREADS) -> list[Any]:
    """Run work(number) in many threads that start at the same moment."""
    start = Barrier(threads)

    def go(number: int):
        start.wait()
        return work(number)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(go, range(threads)))


def fresh(session) -> Whole:
    return Session(session.store, session.id).views


def test_sixteen_threads_share_a_handle(session, count):
    """Facts, turns, usage and scratch values from sixteen threads are all there, once, and the views agree (T20)."""
    rounds = count(5, 100)

    def work(number: int) -> list[int]:
        positions = []
        for step in range(rounds):
            positions.append(session.decide(f"{number}/{step}").position)
            positions.append(session.record_turn([{"role": "user", "content": f"{number}/{step}"}]).position)
            positions.append(session.budget.record_usage("m", output_tokens=1).position)
            session.facts.set_scratch(f"thread {number}", step)
        return positions

    positions = [position for found in together(work) for position in found]
    assert len(set(positions)) == len(positions) == THREADS * rounds * 3
    session.refresh()
    said = Counter(f"{number}/{step}" for number in range(THREADS) for step in range(rounds))
    assert Counter(decision["text"] for decision in session.views.facts.decisions) == said
    assert Counter(item["content"] for item in session.transcript().items) == said
    assert session.views.spend.total["output_tokens"] == THREADS * rounds
    assert session.views.facts.scratch == {f"thread {number}": rounds - 1 for number in range(THREADS)}
    assert session.agents.lane()["committed"] == THREADS * rounds
    assert session.views.dump() == fresh(session).dump()
    assert session.verify().ok


def test_large_turns_of_many_threads_discard_nothing(session):
    """Turns that are recorded in parts, by many threads at once, are all committed, and none rolls another back (J01)."""
    together(lambda number: session.record_turn([{"role": "user", "content": f"{number}" * 40_000}]))
    transcript = session.transcript()
    assert len(transcript) == THREADS
    assert transcript.superseded == []
    assert session.agents.lane()["committed"] == THREADS


def test_one_turn_at_a_time_also_among_threads(session):
    """Of threads that begin a turn at the same moment one succeeds; the others get an error, and nothing is mixed (J01)."""

    def work(number: int) -> str:
        try:
            turn = session.turn()
        except TurnConflict:
            return "refused"
        for step in range(3):
            turn.user(f"{number}/{step}")
        turn.commit()
        return "done"

    for _ in range(5):
        outcomes = Counter(together(work))
        assert outcomes["done"] >= 1
        assert sum(outcomes.values()) == THREADS
    transcript = session.transcript()
    assert [turn.status for turn in transcript.superseded + transcript.provisional] == []
    for turn in transcript:
        owner = turn.items[0]["content"].partition("/")[0]
        assert [item["content"] for item in turn.items] == [f"{owner}/{step}" for step in range(3)]
    assert session.agents.lane()["committed"] == len(transcript)


def test_a_turn_and_whole_turns_do_not_mix(session):
    """While one thread has a turn open, complete turns of others are refused, or the turn is; no commit is lost (J01)."""

    def work(number: int) -> int:
        done = 0
        for _ in range(5):
            try:
                if number % 2:
                    session.record_turn([{"role": "user", "content": "whole"}])
                else:
                    with session.turn() as turn:
                        turn.user("part")
                done += 1
            except TurnConflict:
                continue
        return done

    done = sum(together(work, 8))
    transcript = session.transcript()
    assert len(transcript) == done == session.agents.lane()["committed"]
    assert transcript.superseded == transcript.provisional == []
    assert session.views.dump() == fresh(session).dump()


def test_no_lock_is_held_while_the_store_persists(session, monkeypatch):
    """While one thread waits for the disk, others read views, name and status, and append (T20)."""
    begun, go = Event(), Event()
    append = session.store.append

    def slow(id_, drafts, **options):
        if drafts[0].data.get("text") == "slow":
            begun.set()
            assert go.wait(90)
        return append(id_, drafts, **options)

    monkeypatch.setattr(session.store, "append", slow)
    waiting = Thread(target=session.decide, args=("slow",))
    waiting.start()
    assert begun.wait(90)
    assert session.name == "fix-invite-403"
    assert session.status == "open"
    assert session.note()
    session.decide("quick")
    assert [decision["text"] for decision in session.views.facts.decisions] == ["quick"]
    go.set()
    waiting.join()
    assert [decision["text"] for decision in session.views.facts.decisions] == ["quick", "slow"]


def test_many_handles_of_one_store(records):
    """Sixteen agents, each with its own handle, write at once; each handle sees everything after a refresh (A23)."""
    handles = together(lambda number: records.open("work", agent=f"agent-{number}"))

    def work(number: int) -> None:
        for step in range(5):
            handles[number].record_turn([{"role": "user", "content": f"{step}"}])
            with handles[number].turn() as turn:
                turn.user(f"{step} again")

    together(work)
    dumps = {handle.refresh().views.dump() for handle in handles}
    assert len(dumps) == 1
    for number in range(THREADS):
        assert handles[0].agents.lane(f"agent-{number}")["committed"] == 10
    assert handles[0].verify().ok


def test_snapshots_while_others_write(records, monkeypatch):
    """Snapshots taken at any moment by any of several handles never change what is read later (B07)."""
    monkeypatch.setattr("onrecord.session.kept_views.SNAPSHOT_EVERY", 3)
    handles = [records.open("work", agent=f"agent-{number}") for number in range(4)]

    def work(number: int) -> None:
        for step in range(20):
            handles[number].decide(f"{number}/{step}")
            handles[number].record_turn([{"role": "user", "content": f"{step}"}])

    together(work, 4)
    loaded = records.get("work")
    assert loaded.views.dump() == handles[0].refresh().views.dump()
    assert len(loaded.views.facts.decisions) == 80
    kept = records.store.snapshot(loaded.id, VIEWS_VERSION)
    assert kept is not None


@pytest.mark.parametrize("threads", [2, 16])
def test_a_session_is_joined_once(records, threads):
    """Threads that start to work in one handle at the same moment take its lane once and are one run (B14)."""
    session = records.create("work", agent="main")
    together(lambda number: session.record_turn([{"role": "user", "content": str(number)}]), threads)
    assert [event.run for event in session.events(kinds=["agent.joined"])] == [1]
    assert len(session.transcript()) == threads
