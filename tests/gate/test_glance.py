"""A glance at the store: it knows what the whole way knows, or it says nothing."""

import pytest

import onrecord
from onrecord import machine
from onrecord.connect import glance
from onrecord.rules import ToolRequest, commands_of, decide
from onrecord.session.handle import Session
from onrecord.session.kept_views import SNAPSHOT_EVERY
from onrecord.views.present import PRESENT_VERSION, Present
from onrecord.views.values import Anchor

REQUESTS = (
    ToolRequest("claude", "edit", paths=["src/auth.py"]),
    ToolRequest("claude", "run", commands=commands_of("pytest -k invite")),
    ToolRequest("codex", "run", commands=commands_of("pytest -k invite")),
)


@pytest.fixture
def place(tmp_path):
    return str(tmp_path / "data" / "store.db")


@pytest.fixture
def session(place):
    with onrecord.connect(place, project="/project") as records:
        yield records.create("invite-403", agent="claude")


def work(session, count):
    """So many events and a bit of everything the gate looks at, on both sides of snapshots."""
    for number in range(count):
        handle = Session(session.store, session.id, agent="claude", clock=session.clock)
        if number % 40 == 7:
            handle.attempts.start(f"pytest -k case{number % 3}")
            handle.attempts.settle(None, "failed", error="403 " + "x" * 400, fix="none", evidence=f"run-{number}")
        elif number % 60 == 11:
            anchors: list[Anchor] = [{"path": f"src/{number}.py", "fingerprint": "x"}]
            handle.findings.state(
                f"claim {number} of {handle.name}", "rejected", evidence=[f"run-{number}"], anchors=anchors
            )
        else:
            handle.decide(f"decision {number} " + "y" * 3_000 * (number % 100 == 3))


def same(session, place, name="invite-403"):
    present = glance(place, "/project", name)
    assert present is not None
    now, whole = int(session.clock() * 1e6), Present.of(session.views)
    for request in REQUESTS:
        seen = decide(request, present, now, machine.is_gone).as_data()
        assert seen == decide(request, whole, now, machine.is_gone).as_data()
    return present


def test_short_lived_processes_keep_snapshots_too(session):
    """Handles that live for one event each, as commands do, leave a snapshot behind now and then."""
    work(session, SNAPSHOT_EVERY + 20)
    kept = session.store.snapshot(session.id, PRESENT_VERSION)
    assert kept is not None
    assert kept.position >= SNAPSHOT_EVERY


@pytest.mark.parametrize("count", [1, 100, SNAPSHOT_EVERY + 60, 700])
def test_a_glance_decides_like_the_whole_way(session, place, count):
    """With and without a snapshot, whatever follows it: the same verdicts as from all views."""
    work(session, count)
    same(session, place)
    session.attempts.start("pytest -k invite")
    assert decide(REQUESTS[0], same(session, place), 0, machine.is_gone).decision == "deny"
    session.pause("why not")
    assert decide(REQUESTS[2], same(session, place), 0, machine.is_gone).rule == "session_paused"
    session.resume()
    session.attempts.settle(1 + session.views.attempts.count - 1, "failed", error="x")
    same(session, place)


def test_a_session_is_found_by_name_by_id_and_alone(session, place):
    """A name in its project, an id anywhere, or no name where one session is live; never the beginning of a name."""
    for name in ("invite-403", session.id, session.id.lower(), None):
        assert glance(place, "/project", name) is not None
    assert glance(place, "/project", "invite") is None
    assert glance(place, "/elsewhere", "invite-403") is None
    assert glance(place, "/elsewhere", None) is None
    onrecord.connect(place, project="/project").create("second")
    assert glance(place, "/project", None) is None


def test_after_an_erasure_a_glance_leaves_it_to_others(session, place):
    """What was erased is not folded from a snapshot of before."""
    work(session, SNAPSHOT_EVERY + 20)
    session.log.erase("a password", positions=[5])
    present = glance(place, "/project", "invite-403")
    assert present is None


def test_a_fork_is_seen_once_it_has_a_snapshot_of_its_own(session, place):
    """The history of a fork is its parent's, which a glance does not follow."""
    work(session, 50)
    fork = session.fork("try-b")
    assert glance(place, "/project", "try-b") is None
    work(fork, SNAPSHOT_EVERY + 5)
    same(fork, place, "try-b")


def test_what_is_not_a_store_is_left_to_others(tmp_path):
    """No file, no directory, another program's database: a glance says nothing and makes nothing."""
    assert glance(str(tmp_path / "missing" / "x.db"), "/project", None) is None
    assert list(tmp_path.iterdir()) == []
    assert glance("memory:", "/project", None) is None


def test_what_was_erased_stands_in_no_snapshot(session, place, tmp_path):
    """Snapshots kept as they are hold claims in plain words; after an erasure those words are in no file."""
    session.findings.state(
        "The canary sings", "rejected", evidence=["run-a"], anchors=[{"path": "a.py", "fingerprint": "x"}]
    )
    work(session, SNAPSHOT_EVERY + 5)

    def files():
        return [path.name for path in (tmp_path / "data").iterdir() if b"canary" in path.read_bytes()]

    assert session.store.snapshot(session.id, PRESENT_VERSION) is not None
    assert files() != []
    session.log.erase("a person asked for it")
    assert files() == []
