"""Copying a session from store to store: all or what is new, both ways, and nothing is merged silently."""

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import pytest

import onrecord
from onrecord.errors import Conflict, DamagedLog, InvalidName, LogMoved, NameTaken, SessionHeld
from onrecord.log.codec import link_record
from onrecord.log.events import Record
from onrecord.session import copying
from onrecord.session.copying import Copier
from onrecord.session.session_store import SessionStore
from onrecord.stores.memory import MemoryStore
from tests.stores import url_of

HELLO = [{"role": "user", "content": "hello"}]


OTHER = {"memory": "sqlite", "sqlite": "postgres", "postgres": "sqlite"}


@pytest.fixture
def team(kind, request, tmp_path) -> Iterator[SessionStore]:
    """The other store, of another kind: a laptop's file and a team's database exchange sessions both ways."""
    with onrecord.connect(url_of(OTHER[kind], request, tmp_path, "team"), project="/team") as records:
        yield records


@pytest.fixture
def small_pages(monkeypatch):
    """Few events become durable at a time, so that a short log has many pages."""
    monkeypatch.setattr(copying, "COPY_PAGE", 3)


def hashes(session):
    return [event.hash for event in session.events()]


def states(copied):
    return [(one.name, one.state, one.events) for one in copied]


def test_a_session_is_copied_to_the_last_bit(session, records, team, small_pages):
    """The copy has every event, hash, fact and word of the session, verifies, and work can continue in it (A19)."""
    session.record_turn([{"role": "user", "content": "plover\u2028✓"}])
    for number in range(8):
        session.decide(f"decision {number}")
    session.leave()
    (copied,) = records.copy("fix-invite-403", team)
    assert (copied.state, copied.position, copied.events) == ("copied", session.head.position, session.head.position)
    there = team.get(session.id)
    assert team.store.head(session.id) == records.store.head(session.id)
    assert hashes(there) == hashes(session)
    assert there.verify().ok
    assert there.views.facts.decisions == session.views.facts.decisions
    assert team.search("plover", project="")
    with SessionStore(team.store, project="/project").open("fix-invite-403") as opened:
        assert opened.run == 2
        opened.record_turn(HELLO)


def test_copying_again_changes_nothing(session, records, team):
    """The same copy again finds nothing new and writes nothing (A19)."""
    records.copy("fix-invite-403", team)
    before = team.store.head(session.id)
    assert states(records.copy("fix-invite-403", team)) == [("fix-invite-403", "already_there", 0)]
    assert team.store.head(session.id) == before


def test_what_grew_on_one_side_extends_the_other_both_ways(session, records, team, small_pages):
    """Laptop and team take turns; each copy carries what is new, and both logs stay the same (A19)."""
    session.leave()
    records.copy(session.id, team)
    for here, other in ((records, team), (team, records), (records, team)):
        with SessionStore(here.store, project="/project").open("fix-invite-403") as working:
            for number in range(4):
                working.decide(f"and {number}")
        assert states(other.copy(session.id, here))[0][1] == "ahead"
        ((_name, state, events),) = states(here.copy(session.id, other))
        assert (state, events) == ("extended", 6)
        assert here.store.head(session.id) == other.store.head(session.id)
        assert other.get(session.id).verify().ok


def test_what_went_on_in_both_places_is_refused(session, records, team):
    """A log with different events is refused with the position of the first difference; nothing is changed (A19)."""
    session.leave()
    records.copy(session.id, team)
    parted = session.head.position
    team.get(session.id).decide("there")
    for text in ("here", "and here"):
        session.decide(text)
    before = team.store.head(session.id)
    with pytest.raises(Conflict, match=f"after position {parted}\n") as refusal:
        records.copy(session.id, team)
    assert refusal.value.hint
    assert team.store.head(session.id) == before
    with pytest.raises(Conflict):
        team.copy(session.id, records)


def test_a_taken_name_is_refused_and_another_name_helps(session, records, team):
    """A name that another session of the project has is refused; under another name the same log arrives (A19)."""
    SessionStore(team.store, project="/project").create("fix-invite-403")
    with pytest.raises(NameTaken) as refusal:
        records.copy(session.id, team)
    assert "under another name" in refusal.value.hint
    assert len(team.sessions(project="")) == 1
    with pytest.raises(InvalidName):
        records.copy(session.id, team, rename="../up")
    (copied,) = records.copy(session.id, team, rename="second")
    assert copied.name == team.store.head(session.id).name == "second"
    session.decide("more")
    (copied,) = records.copy(session.id, team)
    assert (copied.name, copied.state) == ("second", "extended")


def test_project_and_later_names(session, records, team):
    """A copy may be kept in another project; a later name is copied too, and a name given there stays."""
    records.copy(session.id, team, into="/team")
    assert team.find("fix-invite-403").project == "/team"
    session.rename("renamed")
    (copied,) = records.copy(session.id, team)
    assert (copied.name, copied.project) == ("renamed", "/team")
    assert team.find("renamed").session == session.id


def test_a_fork_brings_its_ancestors(session, records, team, small_pages):
    """A fork of a fork is copied with its ancestors, each once and under its own name (A19)."""
    for number in range(4):
        session.decide(f"before {number}")
    child = session.fork("child")
    child.decide("in the child")
    grandchild = child.fork("grandchild")
    grandchild.decide("in the grandchild")
    names = [one.name for one in records.copy("grandchild", team)]
    assert names == ["fix-invite-403", "child", "grandchild"]
    for one in (session, child, grandchild):
        assert hashes(team.get(one.id)) == hashes(one)
        assert team.get(one.id).verify().ok
    assert states(records.copy("grandchild", team)) == [("grandchild", "already_there", 0)]
    twin = session.fork("twin", 2)
    assert [one.name for one in records.copy("twin", team)] == ["twin"]
    assert hashes(team.get(twin.id)) == hashes(twin)


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_was_erased_is_erased_there_too(session, records, team, when, small_pages):
    """An erasure arrives as an erasure: the text is erased there as well, and both logs stay the same, forks included (K08)."""
    secret = session.record_turn([{"role": "user", "content": "plover"}])
    fork = session.fork("fork")
    fork.decide("in the fork")
    own = None
    if when == "after":
        records.copy("fork", team)
        assert team.search("plover", project="")
        own = team.get("fork").fork("only-there")
    session.log.erase("a secret", positions=[secret.position])
    for number in range(5):
        session.decide(f"later {number}")
        fork.decide(f"later {number}")
    for name in ("fix-invite-403", "fork"):
        records.copy(name, team)
    assert team.search("plover", project="") == []
    for one in (session, fork):
        assert team.store.head(one.id) == records.store.head(one.id)
        report = team.get(one.id).verify()
        assert report.ok
        assert report.erased == 1
    if own is not None:
        assert SessionStore(team.store).get(own.id).verify().ok
    assert states(records.copy("fork", team))[0][1] == "already_there"


def test_a_hold_there_keeps_an_erasure_out(session, records, team):
    """A copy does not erase what a held fork there still needs; the copy is refused and nothing is changed (K08)."""
    secret = session.record_turn([{"role": "user", "content": "plover"}])
    records.copy(session.id, team)
    team.get(session.id).fork("needed").log.hold("an incident")
    before = team.store.head(session.id)
    session.decide("and then")
    session.log.erase("a secret", positions=[secret.position])
    with pytest.raises(SessionHeld):
        records.copy(session.id, team)
    assert team.store.head(session.id) == before
    assert team.search("plover", project="")


@pytest.mark.parametrize("status", ["paused", "closed", "archived", "erased"])
def test_a_session_arrives_as_it_stands(session, records, team, status, small_pages):
    """A session arrives in the state it has, complete or extended (A11)."""
    steps = {
        "paused": ["pause"],
        "closed": ["close"],
        "archived": ["close", "archive"],
        "erased": ["close", "log.erase"],
    }
    twin = session.fork("twin")
    records.copy("twin", team)
    for one in (session, twin):
        for step in steps[status]:
            if (one, step) != (session, "log.erase"):
                attrgetter(step)(one)("for a reason")
    for one in (twin, session):
        records.copy(one.id, team)
        assert team.store.head(one.id).status == records.store.head(one.id).status
    assert team.store.head(twin.id).status == status


class Tampered(MemoryStore):
    """Wrong on purpose: returns one record changed."""

    def __init__(self, whole: MemoryStore, position: int, change: dict[str, Any]) -> None:
        self.__dict__ = whole.__dict__
        self._change = (position, change)

    def read(self, session: str, **options: Any) -> list[Record]:
        position, change = self._change
        found = super().read(session, **options)
        return [one._replace(**change) if one.position == position else one for one in found]


@pytest.mark.parametrize(
    "change",
    [{"payload": b'{"text":"forged"}'}, {"kind": "objective.set"}, {"at": 1}, {"id": "other"}, {"hash": bytes(32)},
     {"payload": None}, {"position": 9}, {"session": "01ARZ3NDEKTSV4RRFFQ69G5FAV"}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("when", ["whole", "extended"])
def test_a_tampered_source_is_refused(change, when, team, small_pages):
    """A source that was tampered with is refused before anything is written; also where only its end is new (B12)."""
    memory = MemoryStore()
    session = SessionStore(memory, project="/project").create("work")
    for number in range(3):
        session.decide(f"decision {number}")
    if when == "extended":
        Copier(memory, team.store).copy(session.id)
    for number in range(6):
        session.decide(f"later {number}")
    before = team.sessions(project="")
    with pytest.raises((DamagedLog, LogMoved)):
        Copier(Tampered(memory, 8, change), team.store).copy(session.id)
    assert team.sessions(project="") == before
    Copier(memory, team.store).copy(session.id)
    assert team.get(session.id).verify().ok


def test_a_source_that_makes_no_sense_is_refused(team):
    """A chain that verifies but has impossible content is refused: malformed items, work after the end (B12)."""
    for kind, data in (("turn.recorded", {"items": [7]}), ("session.archived", {})):
        memory = MemoryStore()
        session = SessionStore(memory, project="/project").create("work")
        draft = session.log.draft("decision.made", {"text": "harmless", **data})
        memory.append(session.id, [draft])
        (record,) = memory.read(session.id, after=1)
        _rewrite(memory, session.id, record._replace(kind=kind))
        with pytest.raises(DamagedLog):
            Copier(memory, team.store).copy(session.id)
        assert team.sessions(project="") == []


def _rewrite(memory: MemoryStore, session: str, record: Record) -> None:
    """What a forger who knows the format does: a record that no verb wrote, with a hash that fits."""
    (first,) = memory.read(session, upto=1)
    forged = record._replace(hash=link_record(first.hash, record))
    memory._own[session] = [first, forged]
    memory._heads[session] = memory.head(session)._replace(hash=forged.hash)


def test_a_copy_that_others_write_to_meanwhile_is_refused(session, records, team, small_pages, monkeypatch):
    """When the target continues on its own during the copy, the copy ends with an error and both logs verify (A19)."""
    for number in range(10):
        session.decide(f"decision {number}")
    install = team.store.install

    def interfere(head, found, *, extend=False):
        install(head, found, extend=extend)
        if head.position == 6:
            team.get(session.id).decide("somebody was quicker")

    monkeypatch.setattr(team.store, "install", interfere)
    with pytest.raises((LogMoved, Conflict)):
        records.copy(session.id, team)
    assert team.get(session.id).verify().ok
    assert team.store.head(session.id).position == 7
