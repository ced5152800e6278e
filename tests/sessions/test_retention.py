"""Retention: sessions do not accumulate for ever, nothing is erased before its time, and every erasure is on record."""

import pytest

from onrecord.errors import InvalidInput, SessionErased
from onrecord.session.retention import Policy
from onrecord.session.session_store import SessionStore

DAY = 86_400
HELLO = [{"role": "user", "content": "hello"}]


def make(timed, name: str, *steps: str):
    session = timed.open(name, objective=f"objective of {name}")
    session.record_turn([{"role": "user", "content": f"words of {name}"}])
    session.decide(f"fact of {name}")
    session.leave()
    for step in steps:
        getattr(session, step)()
    return session


def swept(timed, policy: Policy | None = None, *, dry_run: bool = False) -> set[tuple[str, str]]:
    return {(one.name, one.action) for one in timed.sweep(policy, dry_run=dry_run)}


def test_the_default_policy_follows_the_lifecycle(timed, clock):
    """Closed sessions are archived after 30 days and lose their transcript 90 days later; live ones stay, and are named (K04, K05, K07)."""
    for name, steps in (
        ("live", ()),
        ("paused", ("pause",)),
        ("closed", ("close",)),
        ("archived", ("close", "archive")),
    ):
        make(timed, name, *steps)
    assert swept(timed) == set()
    clock.advance(30 * DAY)
    assert swept(timed) == {("closed", "archive")}
    assert timed.find("closed").status == "archived"
    clock.advance(60 * DAY)
    assert swept(timed) == {("archived", "erase"), ("live", "idle")}
    clock.advance(30 * DAY)
    assert swept(timed) == {("closed", "erase"), ("live", "idle")}
    clock.advance(10_000 * DAY)
    assert swept(timed) == {("live", "idle")}
    assert timed.get("live").transcript().items
    assert timed.get("paused").transcript().items
    # Only an explicit policy touches them, and a hold is stronger.
    timed.get("live").log.hold("not understood yet")
    policy = Policy(erase_idle_after=60)
    assert [(one.name, one.action) for one in timed.sweep(policy)] == []
    clock.advance(60 * DAY)
    assert [(one.name, one.action) for one in timed.sweep(policy)] == [("live", "kept")]
    timed.get("live").log.release("understood")
    clock.advance(60 * DAY)
    assert [(one.name, one.action) for one in timed.sweep(policy)] == [("live", "erase")]
    assert timed.get("live").transcript().items == []


def test_facts_outlive_the_transcript(timed, clock):
    """After the sweep the transcript is gone; the facts, the objective and the proof remain (K09, C02)."""
    session = make(timed, "work", "close")
    clock.advance(200 * DAY)
    (done,) = [one for one in timed.sweep() if one.action == "erase"]
    assert done.events == 1
    assert done.size > 0
    assert "closed, idle for 200 days" in done.reason
    kept = timed.get("work")
    assert kept.transcript().committed[0].erased
    assert kept.transcript().items == []
    assert "fact of work" in kept.note()
    assert kept.views.facts.objective["text"] == "objective of work"
    report = kept.verify()
    assert report.ok
    assert report.erased == 1
    (erasure,) = kept.events(kinds=["payload.erased"])
    assert erasure.by == "retention"
    assert erasure.data["reason"].startswith("retention: ")
    assert timed.search("words") == []
    assert timed.search("fact")
    assert session.id == kept.id


def test_a_dry_run_changes_nothing(timed, clock):
    """A dry run reports what would be done and how many bytes that frees, and does nothing (K08)."""
    make(timed, "work", "close")
    clock.advance(200 * DAY)
    heads = timed.sessions()
    planned = list(timed.sweep(dry_run=True))
    assert {one.action for one in planned} == {"archive", "erase"}
    assert timed.sessions() == heads
    done = list(timed.sweep())
    assert [(one.name, one.action, one.events, one.size) for one in done] == [
        (one.name, one.action, one.events, one.size) for one in planned
    ]


def test_a_hold_keeps_everything(timed, clock):
    """A held session is kept and reported as held, until its hold is released (K06)."""
    session = make(timed, "work", "close")
    session.log.hold("incident 17")
    clock.advance(500 * DAY)
    assert ("work", "kept") in swept(timed, dry_run=True)
    assert ("work", "kept") in swept(timed)
    assert session.refresh().transcript().items
    session.log.release("understood")
    clock.advance(500 * DAY)
    assert ("work", "erase") in swept(timed)


def test_a_living_fork_protects_its_history(timed, clock):
    """A transcript that a fork still needs, however deep, is not erased (K06)."""
    parent = make(timed, "parent", "close")
    fork = parent.fork("fork")
    deeper = fork.fork("deeper")
    fork.close()
    clock.advance(500 * DAY)
    kept = [one for one in timed.sweep() if one.name == "parent" and one.action == "kept"]
    assert kept[0].reason.startswith("its fork ")
    assert deeper.transcript().items
    deeper.close()
    clock.advance(500 * DAY)
    assert swept(timed, dry_run=True) == swept(timed) == {("deeper", "archive"), ("parent", "erase")}
    assert deeper.verify().ok


def test_a_fork_whose_time_has_not_come_protects_its_history(timed, clock):
    """A fork that was closed a day ago keeps what it inherited for as long as its own policy says (K06)."""
    parent = make(timed, "parent", "close")
    clock.advance(300 * DAY)
    fork = parent.fork("fork")
    fork.close()
    clock.advance(1 * DAY)
    assert ("parent", "erase") not in swept(timed)
    assert fork.transcript().items
    clock.advance(181 * DAY)
    assert ("parent", "erase") in swept(timed)


@pytest.mark.parametrize(
    ("policy", "status", "days", "action"),
    [
        (Policy(erase_paused_after=10), "pause", 10, "erase"),
        (Policy(erase_paused_after=10), "pause", 9, None),
        (Policy(archive_closed_after=None, erase_closed_after=None), "close", 10_000, None),
        (Policy(archive_closed_after=0, erase_closed_after=None), "close", 0, "archive"),
        (Policy(archive_closed_after=None, erase_closed_after=1.5), "close", 1.5, "erase"),
    ],
)
def test_a_policy_is_explicit(timed, clock, *, policy, status, days, action):
    """Each state has its own time, or none at all (K04)."""
    make(timed, "work", status)
    clock.advance(days * DAY)
    assert swept(timed, policy) == ({("work", action)} if action else set())


def test_a_sweep_reaches_every_session(timed, clock):
    """However many sessions there are, of any project, each is checked once (K05)."""
    elsewhere = SessionStore(timed.store, project="/elsewhere", clock=clock)
    for number in range(30):
        clock.advance(1)
        make(timed if number % 2 else elsewhere, f"work-{number}", "close")
    clock.advance(200 * DAY)
    done = list(timed.sweep())
    assert sorted(one.name for one in done if one.action == "erase") == sorted(f"work-{number}" for number in range(30))
    assert len(done) == 60
    assert list(timed.sweep()) == []


def test_nothing_is_erased_twice(timed, clock):
    """A session without its transcript is not swept again; erasing what was erased is refused (K08)."""
    session = make(timed, "work", "close")
    clock.advance(200 * DAY)
    list(timed.sweep())
    clock.advance(200 * DAY)
    assert list(timed.sweep()) == []
    session.refresh().log.erase("all of it")
    with pytest.raises(SessionErased):
        session.log.erase("again")
    clock.advance(200 * DAY)
    assert list(timed.sweep()) == []


def test_a_shared_history_is_not_erased_whole(timed):
    """A session with forks cannot be erased as a whole before them; single positions can, and the forks say so (K06)."""
    parent = make(timed, "parent")
    fork = parent.fork("fork")
    with pytest.raises(InvalidInput, match="fork"):
        parent.log.erase("all of it")
    parent.log.erase("one secret", positions=[3])
    assert fork.refresh().transcript().committed[0].erased
    assert fork.verify().ok
    assert fork.verify().erased == 1
    fork.log.erase("the fork first")
    parent.log.erase("then the rest")
    assert parent.verify().ok
