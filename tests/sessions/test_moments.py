"""Time travel: the session at any position, what changed between two, forks, verification, replay of a recorded run."""

import pytest

import onrecord
from onrecord.errors import EventNotFound, InvalidInput
from onrecord.session.session_store import SessionStore
from onrecord.stores.memory import MemoryStore
from tests.proofs import cite

HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture
def session(records):
    session = records.open("work", objective="find it")
    session.record_turn(HELLO)
    session.decide("look at the cookie")
    session.findings.state("the proxy is fine", "open")
    return session


def test_the_past_is_as_it_was(session):
    """The session at a position has the status, transcript, note and brief of that moment, whatever came later (A09, B09)."""
    position = session.head.position
    note, brief = session.note(), session.brief()
    session.record_turn([{"role": "user", "content": "later"}])
    session.findings.relabel("f1", "verified", evidence=cite(session, "run-1"))
    session.close("done")
    past = session.at(position)
    assert (past.position, past.status) == (position, "active")
    assert past.transcript().items == HELLO
    assert (past.note(), past.brief()) == (note, brief)
    assert past.views.findings.findings["f1"]["label"] == "open"
    for nowhere in (0, -1, 10**6):
        with pytest.raises(EventNotFound):
            session.at(nowhere)


def test_a_turn_that_ran_then_is_seen_running(session):
    """At a position in the middle of a turn, the turn is running, with the items it had then (B09)."""
    turn = session.turn()
    turn.user("one")
    middle = session.head.position
    turn.user("two")
    turn.commit()
    (running,) = session.at(middle).transcript().provisional
    assert (running.status, len(running.items)) == ("running", 1)
    assert "was begun at position" in session.at(middle).note()


def test_a_diff_tells_what_changed_in_meaning(session):
    """A diff of two positions has facts, findings, turns, status and usage; it is not a list of events (H40)."""
    before = session.head.position
    session.facts.set_next_action("rerun")
    session.findings.relabel("f1", "rejected", evidence=cite(session, "run-1"))
    session.decide("leave the proxy alone")
    session.facts.set_scratch("n", 1)
    turn = session.turn()
    turn.abort("no")
    session.record_turn(HELLO, usage={"model": "m", "input_tokens": 5})
    session.turn().abort("no")
    session.pause("lunch")
    changed = {change["what"]: (change["before"], change["after"]) for change in session.diff(before)}
    assert changed["next_action"] == (None, "rerun")
    assert changed["finding f1"] == ("open", "rejected")
    assert changed["decision"] == (None, "leave the proxy alone")
    assert changed["scratch n"] == (None, 1)
    assert changed["turn of main"] == (None, "1 item")
    (turned,) = (change for change in session.diff(before) if change["what"] == "turn of main")
    assert turned["about"] == HELLO[0]["content"]
    assert changed["tokens"] == (0, 5)
    assert changed["status"] == ("active", "paused")
    assert changed["provisional turns of main"] == (0, 1)
    assert session.diff(before, before) == []
    with pytest.raises(InvalidInput):
        session.diff(5, 2)


def test_a_diff_sees_a_turn_that_was_open_at_its_beginning(session):
    """A turn that was begun before the first position and committed before the second is a change (H40)."""
    turn = session.turn()
    turn.user("x")
    middle = session.head.position
    turn.user("y")
    turn.commit()
    assert {
        "what": "turn of main",
        "before": None,
        "after": "2 items",
        "about": "x",
        "position": session.head.position,
    } in session.diff(middle)


def test_a_diff_sees_what_a_retry_discarded(session):
    """A diff reports turns that were rolled back between the positions (J13)."""
    base = session.agents.lane()["last_commit"]
    session.record_turn([{"role": "user", "content": "wrong"}])
    before = session.head.position
    with session.turn(base=base, rollback=1) as turn:
        turn.user("right")
    what = [change["what"] for change in session.diff(before)]
    assert "turn of main" in what
    assert session.agents.lane()["committed"] == 2


def test_a_fork_goes_its_own_way(session, records):
    """A fork at a position shares the history up to it, copies nothing, and neither sees later events of the other."""
    middle = session.head.position
    session.record_turn([{"role": "user", "content": "only here"}])
    fork = session.fork("try-b", at=middle, agent="main")
    fork.record_turn([{"role": "user", "content": "only there"}])
    assert [item["content"] for item in fork.transcript().items] == ["hello", "only there"]
    assert [item["content"] for item in session.transcript().items] == ["hello", "only here"]
    assert records.find("try-b").parent == session.id
    assert fork.views.lifecycle.parent["position"] == middle
    assert next(weight.kind for weight in records.store.weigh(fork.id)) == "session.forked"
    assert fork.verify().ok
    assert records.sessions()[0].name == "try-b"
    session.close()
    with pytest.raises(onrecord.OnrecordError):
        session.record_turn(HELLO)
    fork.record_turn(HELLO)


def test_a_fork_of_an_ended_session_is_open(session):
    """A closed session can be continued in a fork (A15)."""
    session.close("fixed, we thought")
    fork = session.fork("again")
    assert fork.status == "open"
    fork.record_turn(HELLO)
    assert fork.status == "active"
    assert session.refresh().status == "closed"


def test_a_fork_in_the_middle_of_a_turn_has_it_as_interrupted(session):
    """A turn that was running where the fork begins is not committed there by later events of the parent (J12)."""
    turn = session.turn()
    turn.user("half")
    fork = session.fork("half-way")
    turn.commit()
    fork.record_turn(HELLO)
    assert [item["content"] for item in fork.transcript().items] == ["hello", "hello"]
    assert [turn.status for turn in fork.transcript().superseded] == ["interrupted"]


def test_verification_tells_where_and_why(records, session):
    """An untouched log verifies, with position and hash to compare with a checkpoint kept elsewhere (B13)."""
    checkpoint = session.log.checkpoint()
    report = session.verify(checkpoint)
    assert report.ok
    assert (report.position, report.hash.hex()) == (checkpoint["position"], checkpoint["hash"])
    session.record_turn(HELLO)
    assert session.verify(checkpoint).ok
    for wrong in ({"position": 99}, {"hash": "00" * 32}, {"session": "x"}):
        report = session.verify(checkpoint | wrong)
        assert [problem.cause for problem in report.problems] == ["checkpoint"]


def test_a_damaged_payload_is_told(records, session, kind):
    """When a store returns something else than was stored, verification reports the position (B13)."""
    if kind == "memory":
        own = records.store._own[session.id]
        own[2] = own[2]._replace(payload=b'{"items":[]}')
        assert [(problem.position, problem.cause) for problem in session.verify().problems] == [(3, "payload")]


def worker(session) -> None:
    """An agent's code: calls a tool once, decides by its answer."""
    with session.turn() as turn:
        turn.user("what is the weather?")
        weather = session.once("weather", lambda: {"sky": "grey"})
        turn.assistant(f"It is {weather['sky']}.")
    session.decide("take an umbrella" if weather["sky"] == "grey" else "stay")


@pytest.fixture
def scratch():
    return SessionStore(MemoryStore())


def test_the_same_code_replays_the_same(records, scratch):
    """Replayed against its own record, the same code does exactly the same, and no side effect happens again (A09)."""
    session = records.open("work")
    worker(session)
    session.budget.record_usage("m", input_tokens=5)
    before = session.head
    replay = onrecord.replay(session, worker, scratch)
    assert replay.same
    assert (replay.matched, replay.recorded, replay.replayed, replay.unrecorded) == (7, 7, 7, [])
    assert session.refresh().head == before


def test_other_code_diverges_where_it_differs(records, scratch):
    """New code is compared event by event, and the first difference is shown from both sides (A09)."""
    session = records.open("work")
    worker(session)

    def other(replayed) -> None:
        with replayed.turn() as turn:
            turn.user("what is the weather?")
            replayed.once("weather", lambda: pytest.fail("it ran"))
            turn.assistant("Grey, I think.")

    replay = onrecord.replay(session, other, scratch)
    assert not replay.same
    assert replay.matched == 4
    assert replay.divergence is not None
    position, recorded, replayed = replay.divergence
    assert (recorded or {})["data"]["item"]["content"] == "It is grey."
    assert (replayed or {})["data"]["item"]["content"] == "Grey, I think."
    assert session.log.event(position).kind == "item.added"


def test_an_effect_that_was_not_recorded_is_not_run(records, scratch):
    """Code that asks for something the recording does not have stops there; the effect is named, not run (A09)."""
    session = records.open("work")
    worker(session)
    replay = onrecord.replay(session, lambda s: s.once("launch", lambda: pytest.fail("it ran")), scratch)
    assert replay.unrecorded == ["launch"]

    def careless(replayed) -> None:
        try:
            replayed.once("launch", lambda: pytest.fail("it ran"))
        except Exception:  # noqa: BLE001 - the code under replay is as careless as code is
            replayed.decide("never mind")

    assert onrecord.replay(session, careless, SessionStore(MemoryStore())).error == replay.error
    assert replay.error == "effect launch has no recorded result"
    assert not replay.same


def test_code_that_fails_in_a_replay_is_a_result(records, scratch):
    """An exception of the replayed code is reported, with the progress it had made (A09)."""
    session = records.open("work")
    worker(session)

    def broken(replayed) -> None:
        with replayed.turn() as turn:
            turn.user("what is the weather?")
            raise RuntimeError("new bug")

    replay = onrecord.replay(session, broken, scratch)
    assert replay.error == "RuntimeError: new bug"
    assert replay.matched == 2


def test_failures_are_replayed_too(records, scratch):
    """An effect that failed when it was recorded fails in the replay, and its later success succeeds there too (A09)."""
    session = records.open("work")
    answers = [OSError("no route"), "sent"]

    def send():
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    def stubborn(session) -> None:
        for _ in range(3):
            try:
                session.decide(session.once("mail", send))
            except Exception as problem:  # noqa: BLE001 - the code under replay is as careless as code is
                session.decide(f"again, after {str(problem)[-8:]}")

    stubborn(session)
    assert [decision["text"] for decision in session.views.facts.decisions] == ["again, after no route", "sent", "sent"]
    replay = onrecord.replay(session, stubborn, scratch)
    assert replay.same, replay
    assert answers == []


def test_a_later_run_can_be_replayed_by_itself(records, scratch):
    """One run of a session is compared with one run of the code, whatever turns came before it (A25)."""
    with records.open("work") as first:
        first.record_turn(HELLO)
        first.record_turn(HELLO)
    second = records.open("work")
    worker(second)
    assert onrecord.replay(second, worker, scratch, run=second.run).same
