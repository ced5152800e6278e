"""The promises of the log, P01 to P16 of docs/internals/promises.md, on every store."""

import hashlib
import json

import pytest

import onrecord
from onrecord.errors import IdReused, IllegalTransition, InvalidInput, LeaseLost
from onrecord.log import codec
from onrecord.log.events import DURABLE, KINDS
from onrecord.session import bundle
from tests.stores import EVERY, url_of


@pytest.fixture(params=EVERY)
def records(request, tmp_path):
    with onrecord.connect(url_of(request.param, request, tmp_path), project="p") as made:
        yield made


@pytest.fixture
def session(records):
    opened = records.open("work", objective="find out")
    opened.record_turn(
        [{"role": "user", "content": "the secret word is plover"}, {"role": "assistant", "content": "noted"}]
    )
    opened.decide("go on", because=3)
    return opened


def raw(session):
    return session.store.read(session.id)


def test_dense(session):
    """Positions are 1, 2, 3 without gaps, and keep their events (P01)."""
    before = raw(session)
    for number in range(20):
        session.decide(f"decision {number}")
    after = raw(session)
    assert [record.position for record in after] == list(range(1, len(before) + 21))
    assert after[: len(before)] == before


def test_all_or_none(session):
    """An append with one bad event leaves nothing; the events of a good one are next to each other and in order (P02)."""
    before = raw(session)
    taken = session.log.draft("decision.made", {"text": "other", "why": None}, id=before[-1].id)
    with pytest.raises(IdReused):
        session.log.append(session.log.draft("decision.made", {"text": "a", "why": None}), taken)
    assert raw(session) == before
    events = session.log.append(*[session.log.draft("decision.made", {"text": str(n), "why": None}) for n in range(5)])
    assert [event.position for event in events] == list(range(len(before) + 1, len(before) + 6))


def test_one_id_one_event(session):
    """The same id again writes nothing and returns the position; the same id with other content is refused (P03)."""
    first = session.decide("once", id="the-id")
    before = raw(session)
    assert session.decide("once", id="the-id").position == first.position
    with pytest.raises(IdReused):
        session.decide("something else", id="the-id")
    assert raw(session) == before


def test_canonical(session):
    """A payload has one form; a value that has none is refused before anything is written (P04)."""
    session.log.record("thing.noted", {"b": [1, {"z": "ü", "a": None}], "a": 1.5})
    assert raw(session)[-1].payload == '{"a":1.5,"b":[1,{"a":null,"z":"ü"}]}'.encode()
    before = raw(session)
    for impossible in (float("nan"), float("inf"), {1, 2}, b"bytes", "\ud800", object()):
        with pytest.raises(InvalidInput):
            session.log.record("thing.noted", {"value": impossible})
    assert raw(session) == before


def test_salted_commitment(session):
    """payload_hash is SHA-256 over tag, salt and payload; equal payloads have different hashes (P05)."""
    session.log.record("worklog.written", {"text": "same"})
    session.log.record("worklog.written", {"text": "same"})
    one, other = raw(session)[-2:]
    assert one.payload == other.payload
    assert one.payload_hash != other.payload_hash
    assert len(one.salt) == 16
    assert one.payload_hash == hashlib.sha256(b"onrecord/payload/1\0" + one.salt + one.payload).digest()


def test_chained(session):
    """Anyone can compute the hash from what the store returns, with only SHA-256 and JSON (P06)."""
    previous = bytes(32)
    for record in raw(session):
        fields = [record.session, record.position, record.id, record.kind, record.v, record.at, record.by, record.run]
        header = json.dumps([*fields, record.because], ensure_ascii=False, separators=(",", ":")).encode()
        chained = b"onrecord/event/1\0" + previous + len(header).to_bytes(4, "big") + header + record.payload_hash
        assert record.hash == hashlib.sha256(chained).digest()
        previous = record.hash


def test_chained_vector():
    """A fixed event has a fixed hash for ever: a change of the format fails this test (P06)."""
    draft = codec.seal("decision.made", {"text": "ja", "why": None}, id="i", at=1, by="a", run=1, salt=bytes(16))
    digest = codec.link(codec.GENESIS, ("S", 1, "i", "decision.made", 1, 1, "a", 1, None), draft.payload_hash)
    assert draft.payload_hash.hex() == "5336106c0245b389e0897f859619c497ea18fdbd02df09aa2941e40eba4414ce"
    assert digest.hex() == "dda3c67ed0258d76b73ccd737e5ed0469480e14dfe2f9ce05d08637981c2e405"


@pytest.mark.parametrize("field", ["id", "kind", "v", "at", "by", "run", "because", "payload", "payload_hash", "hash"])
def test_tampering_shows(session, field):
    """A changed field, a dropped and a swapped event are found at their position (P07)."""
    records = raw(session)
    changed = {
        "payload": b"{}",
        "payload_hash": bytes(32),
        "hash": bytes(32),
        "id": "x",
        "kind": "worklog.written",
        "by": "eve",
    }
    bad = records[2]._replace(**{field: changed.get(field, 77)})
    assert problem_of(session, [*records[:2], bad, *records[3:]]).position in (3, 4)
    assert problem_of(session, records[:2] + records[3:]).position == 3
    assert problem_of(session, [*records[:2], records[3], records[2]]).position == 3


def problem_of(session, records):
    report = onrecord.log.verify.Verifier(session.id).feed(records).finish(session.head.position, session.head.hash)
    assert not report.ok
    return report.problems[0]


def test_a_checkpoint_shows_the_rest(session):
    """A checkpoint passes while the log only grew, and fails when it was cut or has another event at that position (P08)."""
    checkpoint = session.log.checkpoint()
    session.decide("later")
    assert session.verify(checkpoint).ok
    assert session.verify(checkpoint | {"hash": "00" * 32}).problems[-1].cause == "checkpoint"
    assert session.verify(checkpoint | {"position": 99}).problems[-1].cause == "checkpoint"


def test_erased_is_not_damaged(session):
    """An erased payload verifies; one that is missing without such an event does not (P09)."""
    session.log.erase("privacy", positions=[3])
    report = session.verify()
    assert (report.ok, report.erased) == (True, 1)
    records = raw(session)
    assert (records[2].payload, records[2].salt) == (None, None)
    gone = records[3]._replace(payload=None, salt=None)
    assert problem_of(session, [*records[:3], gone, *records[4:]]).cause == "missing"


def test_old_payloads_are_lifted(session, monkeypatch):
    """An upcaster changes what is read, not what is stored (P10)."""
    kept = raw(session)
    monkeypatch.setitem(codec.UPCASTERS, ("decision.made", 1), lambda data: data | {"lifted": True})
    event = next(event for event in session.events() if event.kind == "decision.made")
    assert (event.v, event.data["lifted"]) == (2, True)
    assert raw(session) == kept
    assert session.verify().ok


def test_the_future_passes_through(records, session):
    """A kind of a newer version is kept, read, folded over, exported and verified untouched (P11)."""
    session.log.record("mood.sensed", {"mood": "curious"})
    other = onrecord.connect("memory:", project="elsewhere")
    copy = bundle.take_in(other, list(bundle.lines_of(session)))
    assert [event.data for event in copy.events(kinds=["mood.sensed"])] == [{"mood": "curious"}]
    assert copy.verify().ok
    assert records.get("work").views.position == session.views.position


def test_two_tiers(session):
    """Compaction and a sweep leave every durable event word for word (P12)."""
    durable = [kind for kind, about in KINDS.items() if about.tier == DURABLE]
    before = session.store.read(session.id, kinds=durable)
    session.compact("they talked")
    session.close("done")
    records = onrecord.SessionStore(session.store, project="p", clock=lambda: session.clock() + 400 * 86_400)
    swept = list(records.sweep(onrecord.Policy(archive_closed_after=None)))
    assert [entry.action for entry in swept] == ["erase"]
    assert session.store.read(session.id, kinds=durable)[: len(before)] == before
    assert all(event.data is None for event in session.events(kinds=["turn.recorded"]))
    assert session.verify().ok


def test_a_fork_shares(session):
    """A fork reads its parent's events up to its position and chains on from there (P13)."""
    fork = session.fork("other-way", at=3)
    inherited = fork.store.read(fork.id, upto=3)
    assert inherited == raw(session)[:3]
    assert fork.verify().ok
    fork.decide("elsewhere")
    assert [event.kind for event in fork.events(after=3)] == ["session.forked", "decision.made"]
    assert [record.session for record in raw(session)] == [session.id] * 4


def test_legal_steps_only(records, session):
    """The log decides the lifecycle, not what a handle believes (P14)."""
    late = records.get("work")
    session.close("done")
    for step in (late.pause, late.close, late.resume):
        with pytest.raises(IllegalTransition):
            step("too late")
    assert late.refresh().status == "closed"


def test_fenced(records, session):
    """After a takeover of the lane the old holder's turns are refused, and the log has nothing of them (P15)."""
    position = session.head.position
    taker = records.open("work", takeover=True)
    with pytest.raises(LeaseLost):
        session.record_turn([{"role": "user", "content": "from the dead"}])
    assert [event.kind for event in taker.events(after=position)] == ["agent.joined"]


def test_runs_are_told_apart(records, session):
    """Every opening has a run of its own, and events carry it (P16)."""
    session.leave()
    again = records.open("work")
    event = again.decide("second run")
    assert session.log.event(1).run == 1
    assert event.run == again.run == 2
