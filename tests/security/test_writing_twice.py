"""Two writers where there must be one: a forked child, an effect that still runs, a store that was moved away."""

import os
import shutil
import threading
import time

import pytest

import onrecord
from onrecord import machine
from onrecord.errors import EffectUnknown, LeaseHeld, LeaseLost, StoreMoved
from onrecord.stores.sqlite import SQLiteStore
from tests.stores import url_of


@pytest.fixture
def records(tmp_path):
    with onrecord.connect(f"sqlite:///{tmp_path}/here.db") as found:
        yield found


def in_child(work) -> str:
    """What happens in a forked child: the name of its error, or what it returns."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            said = str(work())
        except BaseException as problem:  # noqa: BLE001  # whatever it is, the parent must see it
            said = type(problem).__name__
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    said = os.read(reader, 1_000).decode()
    os.close(reader)
    return said


def test_a_forked_child_cannot_commit_its_parents_turn(records):
    """The child gets LeaseLost with the inherited handle, cannot release the lane, and leaves the parent's turn alone."""
    session = records.open("work")
    turn = session.turn(request="x")
    assert in_child(lambda: turn.add({"role": "assistant", "content": "from the child"})) == "LeaseLost"
    assert in_child(turn.commit) == "LeaseLost"
    assert in_child(session.leave) == "None"
    assert in_child(session.acquire) == "LeaseHeld"
    turn.add({"role": "assistant", "content": "from the parent"})
    turn.commit()
    assert [item["content"] for item in session.transcript().items] == ["from the parent"]


def test_an_effect_is_not_run_again_while_it_runs(records):
    """`rerun_unknown` refuses while the first run is alive in another thread; after a run that was cut off it runs."""
    session = records.open("work")
    begun, over, ran = threading.Event(), threading.Event(), []

    def slow() -> str:
        ran.append("first")
        begun.set()
        over.wait(90)
        return "done"

    first = threading.Thread(target=lambda: session.once("pay", slow))
    first.start()
    assert begun.wait(90)
    with pytest.raises(EffectUnknown, match="is running"):
        records.get("work", agent="main").once("pay", lambda: ran.append("again"), rerun_unknown=True)
    over.set()
    first.join()
    assert (session.once("pay", slow), ran) == ("done", ["first"])

    def cut_off() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        session.once("send", cut_off)
    assert session.once("send", lambda: "sent", rerun_unknown=True) == "sent", "the control: nothing runs any more"


@pytest.mark.parametrize("how", ["deleted", "moved", "replaced"])
def test_no_append_vanishes_with_a_store_that_is_gone(tmp_path, how):
    """The first append after the store's file was deleted, moved or replaced is a typed error; a new handle works."""
    path = tmp_path / "here.db"
    with onrecord.connect(f"sqlite:///{path}") as records:
        session = records.open("work")
        session.decide("kept")
        if how == "deleted":
            path.unlink()
        else:
            path.rename(tmp_path / "there.db")
            if how == "replaced":
                shutil.copy(tmp_path / "there.db", path)
        for _again in range(2):
            with pytest.raises(StoreMoved, match="was deleted, moved or replaced"):
                session.decide("lost")
        assert path.exists() is (how == "replaced"), "no empty store is made in its stead"
    with onrecord.connect(f"sqlite:///{tmp_path}/other.db") as other:
        other.create("work").decide("the control")


def test_closing_the_store_releases_its_lanes(tmp_path, request):
    """After `close`, another process, or this one, can take the lanes at once; those of a session that was left stay free."""
    url = url_of("sqlite", request, tmp_path)
    with onrecord.connect(url) as records:
        session = records.open("work")
        session.decide("x")
    with onrecord.connect(url) as again:
        assert again.leases(session.id) == []
        assert again.open("work").run == 2


@pytest.mark.timeout(20)
def test_search_ends_where_the_head_is_past_the_last_event(tmp_path):
    """A head that names events that are not there does not make search run for ever."""
    import apsw

    path = tmp_path / "here.db"
    with onrecord.connect(f"sqlite:///{path}") as records:
        records.create("work").decide("a needle")
    plain = apsw.Connection(str(path))
    plain.execute("UPDATE sessions SET position = position + 5")
    plain.close()
    with onrecord.connect(f"sqlite:///{path}") as records:
        assert [hit.event.position for hit in records.search("needle", project="")] == [2]
        assert not records.get("work").verify().ok, "the control: the head is past the last event"


@pytest.mark.parametrize("whose", ["the other process", "the machine"])
def test_a_clock_that_is_a_day_ahead_takes_no_lane(tmp_path, monkeypatch, whose):
    """A holder that lives keeps its lane although another process, or the machine, believes that it is tomorrow."""
    url = f"sqlite:///{tmp_path}/here.db"
    tomorrow = time.time() + 86_400
    with onrecord.connect(url) as mine:
        session = mine.open("work", lease_seconds=30)
        if whose == "the machine":
            monkeypatch.setattr(time, "time", lambda: tomorrow)
            session.record_turn([{"role": "user", "content": "after the jump"}])
        with monkeypatch.context() as jump:
            jump.setattr(time, "time", lambda: tomorrow)
            with onrecord.connect(url) as other:
                with pytest.raises(LeaseHeld) as refusal:
                    other.open("work")
                assert tomorrow < float(str(refusal.value.details["until"])) / 1e6 < tomorrow + 31, (
                    "it says when in the time of who asks"
                )
                assert other.open("work", takeover=True).lease is not None, "the control: by force"
        with pytest.raises(LeaseLost):
            session.record_turn([{"role": "user", "content": "too late"}])


def test_a_holder_that_is_silent_too_long_loses_its_lane(tmp_path, monkeypatch):
    """The control: a lease expires by the time that passes, on any clock; one of an older version by the time of day."""
    url = f"sqlite:///{tmp_path}/here.db"
    with onrecord.connect(url) as mine, onrecord.connect(url) as other:
        mine.open("work", lease_seconds=0.2)
        time.sleep(0.3)
        assert other.open("work", lease_seconds=30).lease is not None
        old = SQLiteStore(str(tmp_path / "here.db"), clock=time.time)  # its leases say nothing about the clock
        session = mine.open("older", lease_seconds=30).id
        assert old.acquire(session, "main", machine.identity(), takeover=True)
        tomorrow = time.time() + 86_400
        monkeypatch.setattr(time, "time", lambda: tomorrow)
        with onrecord.connect(url) as later:
            assert later.open("older").lease is not None
        old.close()
