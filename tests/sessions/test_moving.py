"""Moving a session: out into one file, into another machine, back again; nothing is merged silently."""

import json
from operator import attrgetter

import pytest

import onrecord
from onrecord.errors import Conflict, DamagedBundle, InvalidName, SessionErased
from onrecord.session import bundle
from onrecord.session.session_store import SessionStore
from tests.stores import url_of

HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture
def elsewhere(kind, request, tmp_path):
    """Another machine's store, of the same kind."""
    with onrecord.connect(url_of(kind, request, tmp_path, "elsewhere"), project="/elsewhere") as records:
        yield records


def filed(session, path):
    path.write_text("".join(bundle.lines_of(session)), encoding="utf-8")
    return path


def test_a_session_is_taken_up_on_another_machine(session, elsewhere, tmp_path):
    """Exported to a file and imported on another machine, a session continues: same id, history, facts, and a new run (A19)."""
    session.record_turn([{"role": "user", "content": "line one\u2028line two\x85\r\n✓"}])
    session.decide("it is the cookie")
    session.leave()
    with filed(session, tmp_path / "work.bundle").open(encoding="utf-8") as file:
        moved = bundle.take_in(elsewhere, file)
    assert (moved.id, moved.name) == (session.id, session.name)
    assert moved.head.project == "/elsewhere"
    assert moved.transcript().items == session.transcript().items
    assert [event.hash for event in moved.events()] == [event.hash for event in session.events()]
    there = elsewhere.open("fix-invite-403")
    assert there.run == 2
    there.record_turn(HELLO)
    assert there.verify().ok
    assert elsewhere.search("cookie")


def test_it_comes_back_with_what_was_added(session, elsewhere, records):
    """A bundle that continued elsewhere extends the session here; if both continued, it is refused (A19)."""
    session.leave()
    moved = bundle.take_in(elsewhere, bundle.lines_of(session))
    with elsewhere.open(moved.name) as there:
        there.record_turn(HELLO)
        there.decide("found it there")
    back = bundle.take_in(records, bundle.lines_of(there), update=True)
    assert back.transcript().items == HELLO
    assert (back.name, back.head.project) == ("fix-invite-403", "/project")
    assert back.views.facts.decisions[-1]["text"] == "found it there"
    there.decide("and more there")
    assert len(list(bundle.take_in(records, bundle.lines_of(there), update=True).events(kinds=["decision.made"]))) == 2
    there.decide("and yet more there")
    back.decide("something else here")
    before = records.store.head(back.id)
    with pytest.raises(Conflict, match="has a different history here"):
        bundle.take_in(records, bundle.lines_of(there), update=True)
    assert records.store.head(back.id) == before


def test_nothing_is_overwritten(session, elsewhere, records):
    """An existing session, a taken name and an illegal name are refused; another name is accepted (A19)."""
    data = list(bundle.lines_of(session))
    with pytest.raises(Conflict, match="is already in this store"):
        bundle.take_in(records, data)
    elsewhere.create("fix-invite-403")
    with pytest.raises(Conflict) as refusal:
        bundle.take_in(elsewhere, data)
    assert "another name" in refusal.value.hint
    for name in ("../up", "", "a b"):
        with pytest.raises((InvalidName, Conflict)):
            bundle.take_in(elsewhere, data, name=name)
    assert len(elsewhere.sessions()) == 1
    assert bundle.take_in(elsewhere, data, name="second").name == "second"
    assert elsewhere.get("second").name == "second"


def test_an_erased_session_is_not_brought_back(session, records):
    """An older bundle does not bring back what was erased here (T24)."""
    session.record_turn([{"role": "user", "content": "plover"}])
    session.close()
    data = list(bundle.lines_of(session))
    session.log.erase("the customer asked")
    for update in (False, True):
        with pytest.raises((Conflict, SessionErased)):
            bundle.take_in(records, data, update=update)
    assert records.search("plover") == []


def test_an_erasure_elsewhere_is_made_here_too(session, elsewhere, records):
    """When a returning bundle has an erasure, the text is erased here as well, and the log says so (K08)."""
    secret = session.record_turn([{"role": "user", "content": "plover"}])
    session.leave()
    moved = bundle.take_in(elsewhere, bundle.lines_of(session))
    moved.log.erase("a secret", positions=[secret.position])
    back = bundle.take_in(records, bundle.lines_of(moved), update=True)
    assert back.transcript().committed[0].erased
    assert records.search("plover") == []
    assert back.verify().ok
    assert back.verify().erased == 1


def test_a_bundle_without_erased_words(session, elsewhere):
    """A bundle has no erased payloads, and the session verifies where it arrives, as erased and not as damaged (K08)."""
    session.record_turn([{"role": "user", "content": "plover"}])
    session.log.erase("a secret", positions=[3])
    data = list(bundle.lines_of(session))
    assert "plover" not in "".join(data)
    report = bundle.take_in(elsewhere, data).verify()
    assert report.ok
    assert report.erased == 1


@pytest.mark.parametrize("status", ["paused", "closed", "archived", "erased"])
def test_a_session_arrives_as_it_left(session, elsewhere, status):
    """A session arrives in the state it had (A11)."""
    steps = {
        "paused": ["pause"],
        "closed": ["close"],
        "archived": ["close", "archive"],
        "erased": ["close", "log.erase"],
    }
    for step in steps[status]:
        attrgetter(step)(session)("for a reason")
    assert bundle.take_in(elsewhere, bundle.lines_of(session)).status == status
    assert elsewhere.sessions()[0].status == status


def test_a_fork_brings_its_ancestors(session, elsewhere):
    """A fork can be moved alone: the history it shares is included, once (A19)."""
    session.record_turn(HELLO)
    fork, twin = session.fork("fork"), session.fork("twin")
    fork.record_turn([{"role": "user", "content": "in the fork"}])
    moved = bundle.take_in(elsewhere, bundle.lines_of(fork))
    assert [item["content"] for item in moved.transcript().items] == ["hello", "in the fork"]
    second = bundle.take_in(elsewhere, bundle.lines_of(twin))
    assert second.verify().ok
    assert len(elsewhere.sessions(limit=10)) == 3


def test_events_from_a_newer_version_pass_through(session, elsewhere):
    """Kinds and versions this code does not know are kept, moved and read untouched (B15)."""
    session.log.record("mood.sensed", {"mood": ["curious", None, 1.5]})
    session.log.append(session.log.draft("decision.made", {"text": "new shape", "options": {"a": 1}})._replace(v=7))
    moved = bundle.take_in(elsewhere, bundle.lines_of(session))
    mood, decided = list(moved.events())[-2:]
    assert (mood.kind, mood.data) == ("mood.sensed", {"mood": ["curious", None, 1.5]})
    assert (decided.v, decided.data["options"]) == (7, {"a": 1})
    assert moved.note()
    assert moved.verify().ok


def test_a_bundle_of_a_newer_version_is_refused(session, elsewhere):
    """A bundle of a newer onrecord is refused with the advice to upgrade (B15)."""
    first, *rest = bundle.lines_of(session)
    newer = json.dumps(json.loads(first) | {"version": 2}) + "\n"
    with pytest.raises(DamagedBundle) as refusal:
        bundle.take_in(elsewhere, [newer, *rest])
    assert refusal.value.hint == "upgrade onrecord"
    assert elsewhere.sessions() == []


def test_a_long_session_moves_whole(records, elsewhere):
    """A bundle may have more events than one page (A19)."""
    session = records.open("long")
    for number in range(600):
        session.decide(f"decision {number}")
    moved = bundle.take_in(elsewhere, bundle.lines_of(session))
    assert len(moved.views.facts.decisions) == 600
    assert SessionStore(elsewhere.store, project="/elsewhere").get("long").verify().ok
