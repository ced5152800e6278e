"""Opening: one name, one id, one lease holder; a second opener is refused, and nothing is created twice."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from onrecord.errors import (
    AmbiguousName,
    InvalidInput,
    LeaseHeld,
    LeaseLost,
    NameTaken,
    SessionNotFound,
    TooLarge,
    TurnConflict,
)
from onrecord.session.session_store import SessionStore

HELLO = [{"role": "user", "content": "hello"}]


def test_a_new_session_has_its_whole_record(records):
    """History, scratch values, metadata and budget exist from the first moment, under a stable id (A01-A06)."""
    session = records.open("work", objective="find it", metadata={"ticket": 403}, budget={"steps": 5})
    session.facts.set_scratch("seed", 17)
    views = session.views
    assert views.facts.objective["text"] == "find it"
    assert views.facts.metadata == {"ticket": 403}
    assert views.facts.scratch == {"seed": 17}
    assert views.spend.budget == {"steps": 5}
    assert [event.kind for event in session.events()][:2] == ["session.opened", "agent.joined"]
    assert len(session.id) == 26
    assert session.status == "open"


def test_a_session_outlives_its_process(records, again):
    """Opened again by name, it is the same session, as its last lease holder left it (A08, A17, A18, A20, B04)."""
    with records.open("work", objective="find it") as session:
        session.record_turn(HELLO)
        session.facts.set_scratch("step", 3)
    later = again.open("work")
    assert later.id == session.id
    assert later.transcript().items == HELLO
    assert later.views.facts.scratch == {"step": 3}
    assert later.status == "active"


def test_each_run_is_told_apart(records):
    """Every opening has its own run number, and every event says which run it belongs to (A25)."""
    runs = []
    for _ in range(3):
        with records.open("work") as session:
            session.decide("something")
            runs.append(session.run)
    assert runs == [1, 2, 3]
    decided = [event.run for event in session.events(kinds=["decision.made"])]
    assert decided == runs
    assert session.views.roster.agents["main"]["runs"] == 3


def test_two_openers_are_told(records, again):
    """The second opener of a lane learns the lease holder, since when, until when and how to take over; nothing changes (B14, T10)."""
    before = datetime.now(UTC)
    session = records.open("work")
    position = session.head.position
    for opener in (records, again):
        with pytest.raises(LeaseHeld) as refusal:
            opener.open("work")
        held = refusal.value
        assert held.retryable
        assert "'main'" in held.message
        assert "'work'" in held.message
        assert f"process {held.holder['pid']}" in held.message
        since = datetime.fromtimestamp(held.details["since"] / 1e6, UTC)  # type: ignore[operator]  # details hold any object
        assert abs((since - before).total_seconds()) < 60
        assert "takeover" in held.hint
    assert records.get("work").head.position == position


def test_other_lanes_are_free(records):
    """One name covers many agents, each with its own lane, at the same time (A23)."""
    main, tester = records.open("work"), records.open("work", agent="tester")
    assert main.id == tester.id
    main.record_turn(HELLO)
    tester.record_turn([{"role": "user", "content": "and I test"}])
    assert {turn.agent for turn in main.transcript()} == {"main", "tester"}
    assert len(main.transcript("tester")) == 1
    assert set(main.views.roster.agents) == {"main", "tester"}


def test_whoever_takes_over_shuts_the_other_out(records):
    """After a takeover all turns of the old lease holder are refused; its facts are still accepted (B14)."""
    old = records.open("work")
    turn = old.turn()
    turn.user("I was here first")
    new = records.open("work", takeover=True)
    for step in (lambda: turn.user("more"), turn.commit, lambda: turn.abort("x"), lambda: old.record_turn(HELLO)):
        with pytest.raises((LeaseLost, TurnConflict)):
            step()
    old.decide("this I still know")
    old.leave()
    new.record_turn(HELLO)
    transcript = new.transcript()
    assert transcript.items == HELLO
    assert [turn.status for turn in transcript.superseded] == ["interrupted"]
    assert new.refresh().views.facts.decisions[-1]["text"] == "this I still know"


def test_a_silent_holder_loses_its_lane_after_its_time(timed, clock):
    """A lease lasts its seconds and no longer; every append of its holder renews it (B14)."""
    first = timed.open("work", lease_seconds=100)
    clock.advance(99)
    with pytest.raises(LeaseHeld):
        timed.open("work", lease_seconds=100)
    first.record_turn(HELLO)
    clock.advance(99)
    with pytest.raises(LeaseHeld):
        timed.open("work", lease_seconds=100)
    clock.advance(1_000)
    second = timed.open("work")
    assert second.run == 2
    with pytest.raises(LeaseLost):
        first.record_turn(HELLO)


def test_leaving_gives_the_lane_back(records):
    """An agent that leaves in order frees its lane at once; leaving twice does nothing more (A18)."""
    session = records.open("work")
    session.leave()
    session.leave()
    assert records.get("work").store.leases(session.id) == []
    assert not session.views.roster.agents["main"]["here"]
    records.open("work").leave()


def test_looking_takes_nothing(records):
    """A session can be read while an agent works in it, and reading leaves no event (A24)."""
    working = records.open("work")
    looking = records.get("work")
    assert looking.note().startswith("# work")
    assert looking.transcript().items == []
    working.record_turn(HELLO)
    assert looking.refresh().transcript().items == HELLO
    assert looking.head == working.head


@pytest.mark.parametrize("way", ["name", "id", "lower", "prefix", "id prefix"])
def test_a_session_is_found_by_what_one_knows_of_it(records, way):
    """The name, the id, or the beginning of either finds a session, if it is unique (A21)."""
    session = records.create("fix-invite-403")
    known = {
        "name": session.name,
        "id": session.id,
        "lower": session.id.lower(),
        "prefix": "fix-inv",
        "id prefix": session.id[:20],
    }
    assert records.find(known[way]).session == session.id
    assert records.get(known[way]).name == "fix-invite-403"


def test_what_fits_two_is_not_guessed(records):
    """A beginning that matches several sessions is refused with all of them; an unknown name creates none (A21)."""
    records.create("fix-a")
    records.create("fix-b")
    with pytest.raises(AmbiguousName, match=r"fix-a .*fix-b|fix-b .*fix-a"):
        records.find("fix")
    for unknown in ("nothing", "", "01J0000000000000000000000A"):
        with pytest.raises(SessionNotFound):
            records.find(unknown)
    with pytest.raises(SessionNotFound):
        records.open("01J0000000000000000000000A")
    assert len(records.sessions()) == 2


def test_names_belong_to_a_project(records):
    """A name is unique in its project; the same name in another project is another session (A21)."""
    here = records.create("work")
    elsewhere = SessionStore(records.store, project="/elsewhere")
    there = elsewhere.create("work")
    assert here.id != there.id
    assert records.find("work").session == here.id
    assert elsewhere.find("work").session == there.id
    with pytest.raises(NameTaken):
        records.create("work")
    with pytest.raises(AmbiguousName):
        SessionStore(records.store, project="/third").find("work")


def test_sessions_are_listed_by_last_activity(timed, clock):
    """Lists are newest first, by project and status, in pages that miss nothing and repeat nothing (A24)."""
    made = []
    for number in range(7):
        clock.advance(10)
        made.append(timed.create(f"work-{number}"))
    clock.advance(10)
    made[2].close("done")
    clock.advance(10)
    made[0].decide("something")
    names = [head.name for head in timed.sessions()]
    assert names == ["work-0", "work-2", "work-6", "work-5", "work-4", "work-3", "work-1"]
    assert [head.name for head in timed.sessions(status="closed")] == ["work-2"]
    assert len(timed.sessions(status=["open", "active"])) == 6
    seen, last = [], None
    while page := timed.sessions(limit=3, before=last):
        seen += [head.name for head in page]
        last = page[-1]
    assert seen == names
    assert timed.sessions(project="/elsewhere") == []
    assert len(timed.sessions(project="")) == 7
    for wrong in ({"limit": 0}, {"limit": 10**6}, {"status": "asleep"}):
        with pytest.raises(InvalidInput):
            timed.sessions(**wrong)


def test_a_list_shows_title_and_status(records):
    """A list shows what a session is about, updated as the work continues, and its status (A22, A24)."""
    session = records.open("work", objective="Fix the login\nand nothing else")
    assert records.sessions()[0].title == "Fix the login"
    session.facts.set_title("Login: it is the cookie")
    head = records.sessions()[0]
    assert (head.title, head.status, head.name) == ("Login: it is the cookie", "open", "work")
    session.facts.set_objective("x" * 300)
    assert records.sessions()[0].title == "Login: it is the cookie", "a title that was set stays"
    records.open("other", objective="y" * 300)
    assert len(records.find("other").title) == 120


def test_opening_again_updates_objective_and_budget_once(records):
    """What an opener changes is recorded, and what is already on record is not repeated (A06)."""
    for objective, steps in (("one", 5), ("one", 5), ("two", 5), ("two", 9), (None, None)):
        budget = {"steps": steps} if steps else None
        records.open("work", objective=objective, budget=budget, metadata={"n": steps}, takeover=True)
    kinds = [event.kind for event in records.get("work").events()]
    assert kinds.count("objective.set") == 1
    assert kinds.count("budget.set") == 1
    views = records.get("work").views
    assert (views.facts.objective["text"], views.spend.budget, views.facts.metadata) == ("two", {"steps": 9}, {"n": 5})


@pytest.mark.parametrize(
    "options",
    [{"metadata": {"x": "y" * 20_000}}, {"budget": {"patience": 3}}, {"budget": {"steps": 0}}, {"budget": {"steps": True}},
     {"budget": {"tokens": float("inf")}}, {"metadata": {"x": object()}}, {"agent": "no/way"}, {"objective": "x" * 5_000}],
)  # fmt: skip
def test_a_bad_opening_makes_no_session(records, options):
    """Invalid arguments are refused before a session exists (A12)."""
    with pytest.raises(InvalidInput):
        records.open("work", **options)
    assert records.sessions() == []


def test_many_openers_of_a_new_name_make_one_session(records):
    """Sixteen agents that open one new name at once are all in the same session (T10)."""
    with ThreadPoolExecutor(16) as pool:
        opened = list(pool.map(lambda number: records.open("work", agent=f"agent-{number}"), range(16)))
    assert len({session.id for session in opened}) == 1
    assert len(records.sessions()) == 1
    assert sorted(session.run for session in opened) == list(range(1, 17))
    assert opened[0].verify().ok


def test_a_payload_over_the_limit_is_refused(records, monkeypatch):
    """A payload that is too large for one event is refused as such, and nothing of it is kept (B08)."""
    monkeypatch.setattr("onrecord.log.codec.PAYLOAD_LIMIT", 10_000)
    session = records.open("work")
    with pytest.raises(TooLarge):
        session.record_turn([{"role": "user", "content": "x" * 20_000}])
    with pytest.raises(TooLarge), session.turn() as turn:
        turn.user("x" * 20_000)
    assert session.transcript().items == []
    assert [turn.status for turn in session.transcript().provisional] == ["aborted"]
