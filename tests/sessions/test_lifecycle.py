"""Pausing, resuming, closing, archiving, renaming, holding, erasing: each with its reason, each only where it is legal."""

import pytest

from onrecord.errors import (
    EventNotFound,
    IllegalTransition,
    InvalidInput,
    InvalidName,
    NameTaken,
    SessionClosed,
    SessionErased,
    SessionHeld,
    SessionNotFound,
    SessionPaused,
)

HELLO = [{"role": "user", "content": "hello"}]


def test_every_step_is_told_with_time_actor_and_reason(timed, clock):
    """Open, active, paused, resumed, active, closed, archived, reopened: each step with when, who and why (A11, A12)."""
    session = timed.open("work")
    seen = [session.status]
    for step in (
        lambda: session.record_turn(HELLO),
        lambda: session.pause("rate limit until 14:00"),
        lambda: session.resume("it is 14:00"),
        lambda: session.record_turn(HELLO),
        lambda: session.close("fixed"),
        lambda: session.archive("put away"),
        lambda: session.resume("it came back", reopen=True),
    ):
        clock.advance(60)
        step()
        seen.append(session.status)
    assert seen == ["open", "active", "paused", "resumed", "active", "closed", "archived", "resumed"]
    told = [(step["step"], step["reason"], step["by"]) for step in session.views.lifecycle.steps]
    assert told == [
        ("opened", "", "main"), ("paused", "rate limit until 14:00", "main"), ("resumed", "it is 14:00", "main"),
        ("closed", "fixed", "main"), ("archived", "put away", "main"), ("resumed", "it came back", "main"),
    ]  # fmt: skip
    moments = [step["at"] for step in session.views.lifecycle.steps]
    assert moments == sorted(set(moments))


def test_a_pause_holds_no_process(records):
    """A paused session releases its lane, so that any process can resume it; its agent has left (A13)."""
    session = records.open("work")
    turn = session.turn()
    turn.user("in the middle")
    session.pause("until tomorrow")
    assert records.store.leases(session.id) == []
    assert not session.views.roster.agents["main"]["here"]
    (tail,) = session.transcript().provisional
    assert (tail.status, tail.reason) == ("aborted", "session paused")
    assert session.agents.lane()["open"] is None
    other = records.open("work")
    assert other.status == "paused"
    other.resume("tomorrow is here")
    other.record_turn(HELLO)
    assert other.run == 2


def test_turns_wait_in_a_pause_and_facts_do_not(records):
    """In a pause no turn and no effect begins, and these refusals leave no event; facts can be added (A12)."""
    records.open("work").pause("wait")
    session = records.get("work", agent="main")
    before = session.head
    for work in (
        lambda: session.record_turn(HELLO),
        session.turn,
        lambda: session.once("key", lambda: pytest.fail("it ran")),
        lambda: session.effects.start("key"),
    ):
        with pytest.raises(SessionPaused) as refusal:
            work()
        assert refusal.value.hint == "session.resume() resumes it"
    assert records.store.head(session.id) == before
    assert records.store.leases(session.id) == []
    session.decide("nothing is lost")
    session.facts.set_next_action("go on at 14:00")
    assert session.status == "paused"


def test_a_pause_by_another_hand_ends_in_order(records):
    """When another process pauses a session during a turn, the turn waits, and its agent can still close the session (A12)."""
    agent, human = records.open("work"), records.get("work")
    turn = agent.turn()
    turn.user("working")
    human.pause("stop it")
    with pytest.raises(SessionPaused):
        turn.assistant("more")
    human.resume("go on")
    turn.assistant("and on")
    human.pause("stop it again")
    agent.close("given up")
    assert human.refresh().status == "closed"
    assert [(turn.status, turn.reason) for turn in human.transcript().provisional] == [("aborted", "session closed")]


def test_a_turn_that_a_pause_stopped_is_given_up_in_order(records):
    """An agent that a pause stops inside its block leaves it, and starts again after the resume (A12)."""
    agent, human = records.open("work"), records.get("work")

    def work() -> None:
        with agent.turn() as turn:
            turn.user("working")
            human.pause("stop it")
            turn.assistant("more")

    with pytest.raises(SessionPaused):
        work()
    assert agent.agents.lane()["open"] is None
    assert [turn.status for turn in human.transcript().provisional] == ["aborted"]
    assert human.refresh().status == "paused"
    human.resume("go on")
    agent.record_turn(HELLO)
    assert agent.transcript().items == HELLO


@pytest.mark.parametrize("ending", ["close", "archive", "erase"])
def test_an_ended_session_is_not_made_anew(records, ending):
    """A closed, archived or erased session keeps its name and id; opening it is refused and does not create a new one (T24, A15)."""
    session = records.open("work", objective="find it")
    session.record_turn(HELLO)
    session.close("done")
    if ending == "archive":
        session.archive()
    if ending == "erase":
        session.log.erase("on request")
    refusal = SessionErased if ending == "erase" else SessionClosed
    for name in ("work", session.id):
        with pytest.raises(refusal):
            records.open(name)
    with pytest.raises(NameTaken):
        records.create("work")
    with pytest.raises(refusal):
        session.record_turn(HELLO)
    with pytest.raises(refusal):
        session.decide("one more")
    assert len(records.sessions()) == 1
    assert records.store.leases(session.id) == []
    assert session.verify().ok


def test_an_ended_session_can_be_read(records):
    """Closing keeps the record: everything can be read, and nothing is lost (A15)."""
    session = records.open("work", objective="find it")
    session.record_turn(HELLO)
    session.decide("it was the cookie")
    session.close("fixed")
    kept = records.get("work", agent="main")
    assert kept.transcript().items == HELLO
    assert "it was the cookie" in kept.note()
    assert kept.context(4_000).items == HELLO
    assert kept.at(3).status == "active"


@pytest.mark.parametrize(
    ("start", "verb"),
    [("new", "resume"), ("new", "archive"), ("new", "reopen"), ("paused", "pause"), ("paused", "archive"),
     ("paused", "reopen"), ("closed", "close"), ("closed", "pause"), ("closed", "resume"), ("archived", "archive"),
     ("archived", "close"), ("archived", "pause"), ("archived", "resume")],
)  # fmt: skip
def test_an_illegal_step_is_refused(records, start, verb):
    """A transition that the lifecycle does not allow is refused with the legal ones, and changes nothing (A12)."""
    session = records.create("work")
    if start == "paused":
        session.pause()
    elif start in {"closed", "archived"}:
        session.close()
    if start == "archived":
        session.archive()
    before = records.store.head(session.id)
    with pytest.raises((IllegalTransition, SessionClosed)) as refusal:
        session.resume(reopen=True) if verb == "reopen" else getattr(session, verb)()
    assert refusal.value.hint
    assert records.store.head(session.id) == before


def test_a_rename_keeps_id_and_history(records):
    """A session can be renamed at any time; id, history and the old names stay, and the old name is free again (A21)."""
    session = records.open("work")
    session.record_turn(HELLO)
    session.rename("login-cookie")
    assert session.name == "login-cookie"
    assert records.find("login-cookie").session == session.id
    with pytest.raises(SessionNotFound):
        records.find("work")
    assert session.views.lifecycle.names == ["work", "login-cookie"]
    other = records.create("work")
    with pytest.raises(NameTaken):
        session.rename("work")
    with pytest.raises(InvalidName):
        session.rename("../work")
    other.close()
    with pytest.raises(NameTaken):
        session.rename("work")
    assert session.refresh().name == "login-cookie"
    session.close()
    session.rename("found")
    assert records.find("found").session == session.id


def test_a_hold_protects_until_it_is_released(records):
    """Nothing of a held session is erased, by hand or by sweep, until it is released, both with a reason (K06)."""
    session = records.open("work")
    session.record_turn(HELLO)
    session.log.hold("incident 17")
    assert records.sessions()[0].held
    for positions in (None, [3]):
        with pytest.raises(SessionHeld):
            session.log.erase("on request", positions=positions)
    assert session.transcript().items == HELLO
    session.log.release("understood")
    session.log.erase("on request", positions=[3])
    assert session.transcript().committed[0].erased
    steps = [(step["step"], step["reason"]) for step in session.views.lifecycle.steps]
    assert ("held", "incident 17") in steps
    assert ("released", "understood") in steps


def test_erasing_a_position_takes_its_words_everywhere(records):
    """Erased text is gone from events, transcript, facts, search, lists, snapshots and every open handle (K08)."""
    session = records.open("work", objective="the canary is plover")
    session.record_turn([{"role": "user", "content": "canary plover"}])
    decided = session.decide("canary plover must go")
    other = records.get("work")
    assert "plover" in other.note()
    assert len(records.search("canary plover")) == 3
    told = session.log.erase("a secret", positions=[1, 3, decided.position])
    assert told.data["reason"] == "a secret"
    assert told.data["ranges"] == [[1, 1], [3, 4]]
    for handle in (session, other.refresh(), records.get("work")):
        everything = [
            handle.note(),
            handle.brief(),
            str(list(handle.events())),
            str(handle.transcript().committed),
            repr(handle.head),
        ]
        assert "plover" not in "".join(everything)
    assert "plover" not in str(records.sessions())
    assert records.search("canary plover") == []
    report = session.verify()
    assert report.ok
    assert report.erased == 3
    assert session.status == "active"
    session.record_turn(HELLO)


def test_erasing_everything_leaves_the_proof(records):
    """Of an erased session only headers, hashes, its name and the erasure itself remain, and they verify (K08, T24)."""
    session = records.open("work", objective="secret plover", metadata={"who": "plover"})
    session.record_turn([{"role": "user", "content": "plover"}])
    session.close("plover")
    session.log.erase("the customer asked")
    assert session.status == "erased"
    assert [event.data for event in session.events() if event.kind != "payload.erased"] == [None] * 5
    assert "plover" not in session.note() + str(records.sessions()) + str(list(session.events()))
    assert session.verify().erased == 5
    with pytest.raises(SessionErased):
        session.log.erase("again")
    with pytest.raises(SessionErased):
        session.resume(reopen=True)


@pytest.mark.parametrize("positions", [[], [0], [99], [-1]])
def test_only_what_is_there_can_be_erased(records, positions):
    """An erasure names positions that exist; anything else is refused and erases nothing (K08)."""
    session = records.open("work")
    session.record_turn(HELLO)
    before = records.store.read(session.id)
    with pytest.raises((InvalidInput, EventNotFound)):
        session.log.erase("typo", positions=positions)
    with pytest.raises(InvalidInput):
        session.log.erase("   ", positions=[3])
    assert records.store.read(session.id) == before


def test_reopening_by_erasure_of_its_reason_stays_open(records):
    """Erasing the payload of a lifecycle step does not undo the step (B07)."""
    session = records.open("work")
    session.close("a secret reason")
    session.resume("secret too", reopen=True)
    session.rename("other")
    session.log.erase(
        "reasons", positions=[event.position for event in session.events() if event.kind.startswith("session.")]
    )
    again = records.get("other")
    assert again.status == "resumed"
    assert again.head == records.store.head(session.id)
    assert records.open("other").status == "resumed"
