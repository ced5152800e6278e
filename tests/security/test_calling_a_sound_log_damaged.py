"""An erasure in another process must not make a sound log look damaged to those who read it at that moment."""

import pytest

import onrecord
from onrecord.errors import DamagedLog, LogMoved
from onrecord.session import bundle
from onrecord.session.derived import Rederived
from onrecord.session.kept_views import SNAPSHOT_EVERY
from onrecord.stores.memory import MemoryStore
from tests.stores import EVERY, url_of


@pytest.fixture(params=EVERY)
def records(request, tmp_path):
    with onrecord.connect(url_of(request.param, request, tmp_path), project="/here") as found:
        yield found


@pytest.fixture
def session(records):
    made = records.create("work")
    for number in range(6):
        made.decide(f"number {number}")
    return made


def erase_behind(session: onrecord.Session, monkeypatch: pytest.MonkeyPatch, times: int = 1) -> None:
    """Another process erases after a reader has seen the head, before it reads the events."""
    store, left, read = session.store, [2, 3, 4][:times], session.store.read

    def erasure_then_read(*arguments, **names):
        while left:
            positions = [left.pop()]
            onrecord.Session(store, session.id, agent="other").log.erase("private", positions=positions)
        return read(*arguments, **names)

    monkeypatch.setattr(store, "read", erasure_then_read)


def test_verify_reads_on_to_the_erasure(session, monkeypatch):
    """`verify` reports a sound log as sound while payloads are erased behind its back; a payload that is just gone is found."""
    erase_behind(session, monkeypatch, times=3)
    report = session.verify()
    assert (report.problems, report.erased) == ([], 3)


def test_an_export_that_cannot_be_imported_is_no_success(session, monkeypatch):
    """An export that met an erasure ends with an error, and the next try is a bundle that imports."""
    erase_behind(session, monkeypatch)
    with pytest.raises(LogMoved, match="was erased while it was read"):
        list(bundle.lines_of(session))
    with onrecord.connect("memory:") as there:
        assert bundle.take_in(there, bundle.lines_of(session)).verify().erased == 1


def test_a_copy_arrives_whole(session, records, monkeypatch):
    """A copy that met erasures carries them too, and verifies in the other store."""
    erase_behind(session, monkeypatch, times=3)
    with onrecord.connect("memory:") as there:
        records.copy("work", there)
        report = there.get("work").verify()
        assert (report.problems, report.erased) == ([], 3)


def test_a_payload_that_is_just_gone_is_still_found():
    """The control: without an event that says so, a missing payload is damage for verify, export and copy."""
    with onrecord.connect("memory:") as records:
        session = records.create("work")
        session.decide("x")
        assert isinstance(session.store, MemoryStore)
        log = session.store._own[session.id]
        log[1] = log[1]._replace(salt=None, payload=None)
        assert [problem.cause for problem in session.verify().problems] == ["missing"]
        with pytest.raises(DamagedLog):
            list(bundle.lines_of(session))
        with onrecord.connect("memory:") as there, pytest.raises(DamagedLog):
            records.copy("work", there)


@pytest.mark.parametrize("again", [True, False], ids=["as it is", "the control: believed at once"])
def test_a_view_kept_before_an_erasure_is_no_forgery(records, monkeypatch, again):
    """A snapshot that was read before another process erased something differs from the log; verify reads both again first."""
    session = records.create("long")
    for number in range(SNAPSHOT_EVERY + 1):
        session.decide(f"number {number}")
    store, kept, left = session.store, session.store.snapshot, [1]

    def snapshot_then_erasure(id_, view):
        found = kept(id_, view)
        if found is not None and left:
            left.pop()
            onrecord.Session(store, session.id, agent="other").log.erase("private", positions=[3])
        return found

    monkeypatch.setattr(store, "snapshot", snapshot_then_erasure)
    if not again:
        monkeypatch.setattr(Rederived, "read_again", lambda derived: derived.problems)
    report = session.verify()
    assert not left, "the session is long enough to have a snapshot"
    assert [problem.cause for problem in report.problems] == ([] if again else ["snapshot"])
