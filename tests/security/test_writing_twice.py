"""Two writers where there must be one: a forked child, an effect that still runs, a store that was moved away."""

import os
import shutil
import threading

import pytest

import onrecord
from onrecord.errors import EffectUnknown, StoreMoved
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
        over.wait(20)
        return "done"

    first = threading.Thread(target=lambda: session.once("pay", slow))
    first.start()
    assert begun.wait(20)
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
