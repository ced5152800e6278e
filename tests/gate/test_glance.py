"""A glance at the store: it gives the answer of the whole log, or none."""

import tempfile
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import onrecord
from onrecord import machine
from onrecord.connection import glance, glance_linked
from onrecord.log.names import link_id
from onrecord.rules import ToolRequest, Verdict, commands_of, decide
from onrecord.session.handle import Session
from onrecord.session.kept_views import SNAPSHOT_EVERY
from onrecord.stores.sqlite import SQLiteStore
from onrecord.views.present import PRESENT_VERSION, Present
from onrecord.views.values import Anchor
from tests import stores
from tests.gate.play import Stage, gone, requests, steps
from tests.proofs import cite

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
    """So many events and a bit of everything that the gate reads, before and after snapshots."""
    for number in range(count):
        handle = Session(session.store, session.id, agent="claude", clock=session.clock)
        if number % 40 == 7:
            handle.attempts.start(f"pytest -k case{number % 3}")
            handle.attempts.settle(None, "failed", error="403 " + "x" * 400, fix="none", evidence=f"run-{number}")
        elif number % 60 == 11:
            anchors: list[Anchor] = [{"path": f"src/{number}.py", "fingerprint": "x"}]
            handle.findings.state(
                f"claim {number} of {handle.name}", "rejected", evidence=cite(handle, f"run-{number}"), anchors=anchors
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
    """Handles that live for one event each, as commands do, leave a snapshot now and then."""
    work(session, SNAPSHOT_EVERY + 20)
    kept = session.store.snapshot(session.id, PRESENT_VERSION)
    assert kept is not None
    assert kept.position >= SNAPSHOT_EVERY


@pytest.mark.parametrize("count", [1, 100, SNAPSHOT_EVERY + 60, 700])
def test_a_glance_decides_like_the_whole_way(session, place, count):
    """With and without a snapshot, whatever follows it, the verdicts are those from all views."""
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
    """A glance finds a name in its project, an id anywhere, or the only live session; never the beginning of a name."""
    for name in ("invite-403", session.id, session.id.lower(), None):
        assert glance(place, "/project", name) is not None
    assert glance(place, "/project", "invite") is None
    assert glance(place, "/elsewhere", "invite-403") is None
    assert glance(place, "/elsewhere", None) is None
    onrecord.connect(place, project="/project").create("second")
    assert glance(place, "/project", None) is None


def test_after_an_erasure_a_glance_leaves_it_to_others(session, place):
    """Erased text is not folded from an earlier snapshot."""
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
    """Without a file, without a directory, or on another program's database, a glance answers nothing and creates nothing."""
    assert glance(str(tmp_path / "missing" / "x.db"), "/project", None) is None
    assert list(tmp_path.iterdir()) == []
    assert glance("memory:", "/project", None) is None


def test_what_was_erased_stands_in_no_snapshot(session, place, tmp_path):
    """A snapshot that is stored uncompressed has claims in plain words; after an erasure those words are in no file."""
    session.findings.state(
        "The canary sings", "rejected", evidence=cite(session, "run-a"), anchors=[{"path": "a.py", "fingerprint": "x"}]
    )
    work(session, SNAPSHOT_EVERY + 5)

    def files():
        return [path.name for path in (tmp_path / "data").iterdir() if b"canary" in path.read_bytes()]

    assert session.store.snapshot(session.id, PRESENT_VERSION) is not None
    assert files() != []
    session.log.erase("a person asked for it")
    assert files() == []


VENDOR, CONVERSATION = "claude", "11111111-2222-3333-4444-555555555555"
LINK = link_id(VENDOR, CONVERSATION)


class Linked(Stage):
    """A stage where the agent's conversation is on record, and one handle records all of its turns."""

    def __init__(self, make: Any, pace: float) -> None:
        super().__init__(make=make, pace=pace)
        self.agent = Session(self.records.store, self.session.id, agent="claude", clock=self.clock)
        self.agent.agents.locate(VENDOR, CONVERSATION)

    def step(self, verb: str, agent: str, *about: Any) -> None:
        if (verb, agent) == ("turn", "claude"):
            self.agent.record_turn([{"role": "user", "content": "go"}])
        else:
            super().step(verb, agent, *about)


def verdicts(stage: Stage, url: str, request: ToolRequest) -> dict[str, Verdict]:
    """The gate's answer by each way to a session: by a glance where it knows, else by the whole log."""

    def whole(session: str) -> Present:
        return Present.of(Session(stage.records.store, session, clock=stage.clock).views)

    id_ = stage.session.id
    glances = {
        "name": glance(url, "/p", stage.session.name),
        "id": glance(url, "/p", id_),
        "link": found.present if (found := glance_linked(url, LINK)) else None,
    }
    (by_link,) = stage.records.store.linked(LINK)
    ways = {way: present or whole(id_) for way, present in glances.items()}
    ways |= {"the whole log": whole(id_), "the whole log, by link": whole(by_link)}
    return {way: decide(request, present, stage.now, gone) for way, present in ways.items()}


@pytest.mark.parametrize("kind", stores.EVERY)
def test_turns_of_one_moment_count_however_the_session_is_found(kind, request, tmp_path):
    """Three steps are spent at once, so the gate denies a fourth: by name, by id and by the link of a hook."""
    stage = Linked(partial(stores.timed_store, kind, request, tmp_path), pace=0)
    stage.session.budget.set(steps=3)
    stage.play([("turn", "claude")] * 3)
    found = verdicts(stage, stage.records.store.url, ToolRequest("claude", "edit", paths=["a.py"]))
    assert {way: verdict.decision for way, verdict in found.items()} == dict.fromkeys(found, "deny")
    assert {verdict.rule for verdict in found.values()} == {"budget_spent"}
    stage.records.store.close()


TURN, BUDGET = ("turn", "claude"), ("budget", "claude", "steps", 3)
more_turns = st.lists(st.one_of(st.just(TURN), st.just(TURN), steps), max_size=20)
on_a_budget = more_turns.map(lambda more: [BUDGET, *more])


@given(st.one_of(more_turns, on_a_budget), st.sampled_from([0, 0.001, 0.05, 1]), requests)
@example([BUDGET, TURN, TURN, TURN], 0, ToolRequest("claude", "edit", paths=["a.py"]))
def test_a_glance_decides_like_the_whole_log_however_the_session_is_found(done: Any, pace: float, request: Any):
    """Whatever happened and however quickly, name, id and link lead to the verdict of the whole log."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/store.db"
        stage = Linked(partial(SQLiteStore, path, durability="fast"), pace)
        stage.play(done)
        found = verdicts(stage, path, request)
        expected = found["the whole log"].as_data()
        assert {way: verdict.as_data() for way, verdict in found.items()} == dict.fromkeys(found, expected)
        stage.records.store.close()
