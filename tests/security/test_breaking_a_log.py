"""An attacker, or a mistake, wants a log that is acknowledged and never verifies again."""

import enum
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import onrecord
from onrecord.errors import InvalidInput, OnrecordError
from onrecord.log.events import Draft
from onrecord.session import bundle
from onrecord.session.session_store import SessionStore


class Number(enum.IntEnum):
    ONE = 1


class Word(enum.StrEnum):
    KIND = "note.kept"


def kept_well(session: onrecord.Session) -> None:
    """What was accepted verifies, and can be exported, imported and copied."""
    report = session.verify()
    assert report.ok, report.problems
    with onrecord.connect("memory:") as there:
        moved = bundle.take_in(there, bundle.lines_of(session))
        assert moved.verify().hash == report.hash
    with onrecord.connect("memory:") as there:
        SessionStore(session.store).copy(session.id, there)
        assert there.get(session.id).verify().hash == report.hash


@pytest.fixture(params=["memory", "sqlite"])
def session(request, tmp_path):
    url = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/here.db"
    with onrecord.connect(url) as records:
        yield records.create("work")


WRONG = [
    ("because", 1.0), ("because", True), ("because", 1.5), ("because", Number.ONE), ("because", 2**70), ("because", -1),
    ("because", "1"), ("at", 1.0), ("at", True), ("at", 10**18), ("at", -1), ("at", 2**63), ("v", 1.0), ("v", True),
    ("v", 0), ("run", 1.0), ("run", True), ("run", 2**64), ("by", Word.KIND), ("by", ""), ("by", "x" * 65), ("by", 5),
    ("id", Word.KIND), ("id", ""), ("id", "x" * 201), ("id", None), ("kind", Word.KIND), ("kind", "k" * 100_000),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), WRONG, ids=lambda value: f"{value!r:.20}")
def test_no_field_of_an_envelope_comes_back_changed(session, field, value):
    """A value that a column would return differently, or that no reader could show, is refused; the log stays whole."""
    draft = session.log.draft("note.kept", {"text": "x"})
    with pytest.raises(InvalidInput):
        session.log.append(draft._replace(**{field: value}))
    session.log.append(draft)
    kept_well(session)


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=300), st.binary(max_size=5),
    st.just(Number.ONE), st.just(Word.KIND), st.just(Fraction(1, 2)),
)  # fmt: skip
JSON = st.recursive(
    VALUES, lambda part: st.lists(part, max_size=3) | st.dictionaries(VALUES, part, max_size=3), max_leaves=6
)


@given(
    st.lists(st.tuples(st.sampled_from(Draft._fields[:7]), VALUES), max_size=2),
    JSON,
    st.sampled_from(["note.kept", "decision.made", "objective.set"]),
)
def test_what_is_accepted_is_kept_well(changes, data, kind):
    """Whatever is given as payload or as any field of an envelope: it is refused, or the log verifies, exports, imports and copies."""
    with onrecord.connect("memory:") as records:
        session = records.create("work")
        for make in (lambda: session.log.draft(kind, data), lambda: session.log.draft(kind, {"text": data})):
            try:
                session.log.append(make()._replace(**dict(changes)))
            except (OnrecordError, UnicodeEncodeError, TypeError):
                continue
        kept_well(session)
