"""Laws of bundles: a session moves whole or not at all. A bundle changed on the way is refused, and nothing is written."""

import io
import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from onrecord.errors import Conflict, DamagedBundle, OnrecordError
from onrecord.log import codec
from onrecord.session import bundle, unpacking
from onrecord.session.handle import Session
from onrecord.session.session_store import SessionStore
from onrecord.stores.memory import MemoryStore
from tests.laws import values
from tests.laws.play import Play, steps

positions = st.integers(0, 10**6)


def packed(session: Session) -> str:
    return "".join(bundle.lines_of(session))


def elsewhere() -> SessionStore:
    return SessionStore(MemoryStore(), project="/elsewhere")


def read(data: bytes) -> Iterator[str]:
    """A bundle as it is read from a file."""
    return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", newline="\n")


def take_in(data: bytes | str, **options: Any) -> tuple[SessionStore, Session]:
    there = elsewhere()
    return there, bundle.take_in(there, read(data.encode() if isinstance(data, str) else data), **options)


def refused(data: bytes) -> None:
    there = elsewhere()
    with pytest.raises((DamagedBundle, Conflict)):
        bundle.take_in(there, read(data))
    assert there.sessions(project="") == []
    assert there.store.search("the") == []


@given(steps)
def test_a_bundle_is_the_session(played):
    """A session that was moved has the same events, hashes, payloads and erasures, and nothing else (A19)."""
    play = Play().run(played)
    here = play.store.read(play.session.id)
    there, moved = take_in(packed(play.session))
    assert there.store.read(moved.id) == here
    assert moved.verify().ok
    assert there.store.head(moved.id) == Session(there.store, moved.id).head
    assert there.store.head(moved.id)._replace(project="") == play.store.head(moved.id)._replace(project="")
    assert there.find(play.session.name).session == moved.id


@given(steps)
def test_a_bundle_of_a_bundle_is_the_same(played):
    """Exporting an imported session gives the same lines (A19)."""
    play = Play().run(played)
    first = list(bundle.lines_of(play.session))
    _there, moved = take_in(packed(play.session))
    assert list(bundle.lines_of(moved))[1:-1] == first[1:-1]


@given(steps, positions, st.integers(1, 255))
@example([], 30, 1)
def test_a_changed_byte_is_refused(played, where, mask):
    """Flipping any byte of a bundle, in heading, events or end, is noticed before anything is written (A19)."""
    data = bytearray(packed(Play().run(played).session).encode())
    data[where % len(data)] ^= mask
    refused(bytes(data))


def test_every_byte_of_a_small_bundle_is_covered(count):
    """No byte of a bundle can be changed unnoticed (A19)."""
    data = packed(Play().run([("record_turn", "main", [{"role": "user", "content": "hi"}])]).session).encode()
    for where in range(0, len(data), count(3, 1)):
        for mask in (1, 0x20):
            refused(data[:where] + bytes([data[where] ^ mask]) + data[where + 1 :])


@given(steps, positions, positions, st.sampled_from(["swap", "drop", "double"]))
def test_a_changed_line_is_refused(played, one, other, how):
    """Lines that are swapped, dropped or doubled are noticed (A19)."""
    lines = list(bundle.lines_of(Play().run(played).session))
    first, second = one % len(lines), other % len(lines)
    if how == "swap":
        assume(first != second)
        lines[first], lines[second] = lines[second], lines[first]
    elif how == "drop":
        del lines[first]
    else:
        lines.insert(second, lines[first])
    refused("".join(lines).encode())


@given(steps, positions)
def test_a_cut_bundle_is_refused(played, where):
    """A bundle that was cut off anywhere is noticed; only the last line break may be missing (T09)."""
    data = packed(Play().run(played).session).encode()
    refused(data[: where % (len(data) - 1)])
    assert take_in(data[:-1])[1].verify().ok


@given(st.binary(max_size=200) | values.json_values.map(lambda value: json.dumps(value).encode() + b"\n"))
@example(b"")
@example(b"[" * 100_000)
@example(b'{"format":"onrecord-bundle","version":1}\n{"end":true}\n')
@example(b'{"format":"onrecord-bundle","version":2}\n')
def test_anything_else_is_no_bundle(data):
    """A file that is not a bundle is refused as one, whatever its content."""
    refused(data)


# What a forger with a chain of his own writes: every hash is right, and the content makes no sense.
@given(
    st.sampled_from(
        ["session.opened", "item.added", "turn.recorded", "objective.set", "payload.erased", "session.renamed"]
    ),
    values.json_values,
    st.sampled_from(
        [("at", "noon"), ("run", None), ("v", "1"), ("by", 7), ("because", "x"), ("kind", 5), ("id", None), None]
    ),
)
def test_a_forged_chain_cannot_break_the_store(kind, data, field):
    """A bundle with a correct chain and nonsense content is refused, or is a session that can be read."""
    lines = forged(kind, data, field)
    there = elsewhere()
    try:
        moved = bundle.take_in(there, lines)
    except OnrecordError:
        assert there.sessions(project="") == []
        return
    session = Session(there.store, moved.id)
    assert session.note()
    assert session.brief()
    assert len(session.transcript()) >= 0
    assert session.context(4_000).messages("anthropic").system
    session.record_turn([{"role": "user", "content": "go on"}])
    assert there.sessions(project="")
    assert session.verify().ok


def forged(kind: str, data: Any, field: tuple[str, Any] | None) -> list[str]:
    """A bundle of one honest event and one of the forger's choice, chained as the codec says."""
    play = Play()
    lines = list(bundle.lines_of(play.session))
    first, session = json.loads(lines[1]), play.session.id
    header: dict[str, Any] = {
        "session": session, "position": 2, "id": "forged", "kind": kind, "v": 1, "at": first["at"], "by": "main",
        "run": 1, "because": None,
    }  # fmt: skip
    if field:
        header[field[0]] = field[1]
    payload, salt = codec.encode_payload(data), bytes(16)
    commitment = codec.commit_to(salt, payload)
    digest = codec.link(bytes.fromhex(first["hash"]), tuple(header.values()), commitment)
    made = header | {
        "payload_hash": commitment.hex(),
        "hash": digest.hex(),
        "salt": salt.hex(),
        "payload": payload.decode(),
    }
    heading = json.loads(lines[0])
    heading["lineage"][-1]["upto"] = 2
    body = [unpacking.line_of(heading), lines[1], unpacking.line_of(made)]
    return [*body, unpacking.end_line(sha256("".join(body).encode()).hexdigest(), 2, digest)]


@given(steps, steps)
def test_what_went_on_can_be_brought_back(played, later):
    """A session that moved, continued there and comes back extends the one here, and nothing is merged silently (A19)."""
    play = Play().run(played)
    there, moved = take_in(packed(play.session))
    away = Play.__new__(Play)
    away.__dict__.update(
        play.__dict__ | {"store": there.store, "records": there, "session": moved, "handles": {}, "turns": {}}
    )
    away.run(later)
    assume(not play.store.head(play.session.id).held and not there.store.head(moved.id).held)
    name = play.store.head(play.session.id).name
    back = bundle.take_in(play.records, bundle.lines_of(moved), update=True)
    gone_on = there.store.read(moved.id)
    here = play.store.read(back.id)
    assert [record.hash for record in here[: len(gone_on)]] == [record.hash for record in gone_on]
    assert [record for record in here[: len(gone_on)] if record.payload] == [
        record for record in gone_on if record.payload
    ]
    assert play.store.head(back.id) == Session(play.store, back.id).head
    assert play.store.head(back.id).project == "/project"
    assert play.records.find(back.id).name == back.name == name
    assert back.verify().ok


@given(steps)
def test_what_is_here_already_is_not_taken_twice(played):
    """Importing an existing session, or one with a taken name, is refused and changes nothing (A19)."""
    play = Play().run(played)
    data = packed(play.session)
    before = play.store.read(play.session.id), play.store.heads()
    with pytest.raises(Conflict):
        bundle.take_in(play.records, read(data.encode()))
    assert (play.store.read(play.session.id), play.store.heads()) == before
    again = bundle.take_in(play.records, read(data.encode()), update=True)
    assert again.id == play.session.id
    assert (play.store.read(play.session.id), play.store.heads()) == before
    other = Play(name=play.session.name)
    with pytest.raises(Conflict):
        bundle.take_in(other.records, read(data.encode()))
    assert len(other.records.sessions()) == 1
    assert bundle.take_in(other.records, read(data.encode()), name="another").name == "another"


@given(steps, steps)
def test_two_that_went_apart_are_not_joined(played, later):
    """A session that continued differently in both stores is refused, and nothing is changed (A19)."""
    play = Play().run(played)
    there, moved = take_in(packed(play.session))
    assume(play.store.head(play.session.id).status != "erased")
    if play.session.refresh().status in {"closed", "archived"}:
        play.session.resume(reopen=True)
    play.session.decide("something else")
    if moved.refresh().status in {"closed", "archived"}:
        moved.resume(reopen=True)
    moved.decide("something of its own")
    before = there.store.read(moved.id)
    with pytest.raises(Conflict):
        bundle.take_in(there, bundle.lines_of(play.session), update=True)
    assert there.store.read(moved.id) == before
