"""Laws of forks: a fork shares its history up to a position, continues separately from there, and both verify."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onrecord.errors import EventNotFound, NameTaken, OnrecordError
from onrecord.session import bundle
from onrecord.session.handle import Session
from onrecord.session.session_store import SessionStore
from onrecord.stores.memory import MemoryStore
from tests.laws.play import Play, Step, quiet_steps, steps

places = st.integers(0, 10**6)


def go_on(play: Play, session: Session, later: list[Step]) -> Play:
    """The same world, with another session in it to continue with."""
    other = Play.__new__(Play)
    other.__dict__.update(play.__dict__ | {"session": session, "handles": {}, "turns": {}})
    return other.run(later)


@given(steps, places, steps, steps)
def test_a_fork_shares_its_history_and_goes_its_own_way(played, where, here, there):
    """A fork at any position has that history, event for event, and later events of one are not in the other."""
    play = Play().run(played)
    before = play.store.read(play.session.id)
    at = where % len(before) + 1
    fork = play.session.fork("fork", at)
    assert play.store.read(fork.id)[:at] == before[:at]
    assert play.store.weigh(fork.id) == play.store.weigh(fork.id, ["session.forked"])
    go_on(play, fork, there)
    play.run(here)
    own, other = play.store.read(play.session.id), play.store.read(fork.id)
    assert [record.position for record in other] == list(range(1, len(other) + 1))
    assert {record.hash for record in own[at:]}.isdisjoint(record.hash for record in other[at:])
    assert [record.hash for record in other[:at]] == [record.hash for record in before[:at]]
    for id_ in (play.session.id, fork.id):
        assert Session(play.store, id_).verify().problems == []
        assert Session(play.store, id_).head == play.store.head(id_)
    parent = Session(play.store, fork.id).views.lifecycle.parent
    assert parent is None or parent["position"] == at


@given(quiet_steps, places)
def test_a_fork_means_what_the_session_meant_then(played, where):
    """The transcript, facts and findings of a fork are those of the session at that position; its usage is its own (B09)."""
    play = Play().run(played)
    at = where % play.store.head(play.session.id).position + 1
    past, fork = play.session.at(at), play.session.fork("fork", at)
    assert fork.transcript().committed == past.transcript().committed
    assert fork.views.facts.dump() == past.views.facts.dump()
    assert fork.views.findings.dump() == past.views.findings.dump()
    assert fork.views.lanes.dump() == past.views.lanes.dump()
    assert fork.views.spend.total["calls"] == 0
    assert fork.status == "open"


@given(st.lists(places, min_size=1, max_size=4), quiet_steps)
def test_forks_of_forks_verify(wheres, played):
    """A fork of a fork, however deep and wherever it begins, reads and verifies through all its ancestors."""
    play = Play().run(played)
    session = play.session
    for number, where in enumerate(wheres):
        at = where % play.store.head(session.id).position + 1
        expected = play.store.read(session.id)[:at]
        session = session.fork(f"fork-{number}", at)
        assert play.store.read(session.id)[:at] == expected
        go_on(
            play,
            session,
            [("decide", "main", f"step {number}"), ("record_turn", "main", [{"role": "user", "content": "x"}])],
        )
    assert Session(play.store, session.id).verify().ok
    assert Session(play.store, session.id).head == play.store.head(session.id)


@given(quiet_steps, places, st.sets(st.integers(1, 40), min_size=1))
def test_erasing_what_a_fork_inherited_breaks_neither(played, where, chosen):
    """Erasing payloads of a forked session leaves both verifying, and the erasure is reported in both (K08)."""
    play = Play().run(played)
    at = where % play.store.head(play.session.id).position + 1
    fork = play.session.fork("fork", at)
    deeper = fork.fork("deeper", min(at, 2))
    there = [position for position in chosen if position <= play.store.head(play.session.id).position]
    if there:
        play.session.log.erase("on request", positions=there)
    for id_ in (play.session.id, fork.id, deeper.id):
        session = Session(play.store, id_)
        report = session.verify()
        assert report.problems == []
        assert report.erased == sum(record.salt is None for record in play.store.read(id_))
        assert session.head == play.store.head(id_)


@given(quiet_steps, places, quiet_steps)
def test_a_fork_moves_with_its_history(played, where, later):
    """The bundle of a fork contains its ancestors; where they are known already, they must be the very same (A19)."""
    play = Play().run(played)
    fork = play.session.fork("fork", where % play.store.head(play.session.id).position + 1)
    go_on(play, fork, later)
    there = SessionStore(MemoryStore(), project="/elsewhere")
    moved = bundle.take_in(there, bundle.lines_of(fork))
    assert there.store.read(moved.id) == play.store.read(fork.id)
    assert moved.verify().ok
    assert Session(there.store, moved.id).head == there.store.head(moved.id)
    assert [child.session for child in there.store.children(play.session.id)] == [moved.id]
    twin = play.session.fork("twin", play.store.head(fork.id).forked_at)
    second = bundle.take_in(there, bundle.lines_of(twin))
    assert second.verify().ok
    assert Session(there.store, second.id).head == there.store.head(second.id)
    assert len(there.sessions(project="")) == 3


@pytest.mark.parametrize("at", [0, -1, 2, 10**9])
def test_a_fork_needs_a_position_that_is_there(at):
    """A fork at a position that does not exist is refused, and no session is created."""
    play = Play()
    with pytest.raises(EventNotFound):
        play.session.fork("fork", at)
    with pytest.raises(NameTaken):
        play.session.fork("play", 1)
    with pytest.raises(OnrecordError):
        play.session.at(at)
    assert len(play.records.sessions()) == 1
