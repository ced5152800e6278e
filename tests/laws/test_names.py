"""Laws of names: a legal name is safe wherever names are used, and no hostile name is legal."""

import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onrecord.errors import InvalidName, NotFound, OnrecordError
from onrecord.log.names import NAME_LIMIT, check_name, is_ulid, make_ulid
from tests.laws.play import Play

PIECES = [
    "..", ".", "/", "\\", "\0", "~", "$HOME", "%2e%2e%2f", "\u2025", "\u2024", "\u2215", "\u2044", "\uff0f", "con", "nul", "-", "--", "\n", "\r", " ",
    "a", "b1", "Z", "_", ":", ";", "|", "&", "`id`", "$(id)", "*", "?", "'", '"', "<", ">", "\u202e", "\u200b", "\ufeff",
    "\u00e9", "e\u0301", "\uff41", "\u00df", "\u0130", "\ud800", "x" * 63, "file://", "C:", "=", "@", "#", "{", "}", "[", "]", ",", "+", "\x7f",
]  # fmt: skip
SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def hostile(number: int) -> list[str]:
    """Names as an attacker would compose them, the same in every run."""
    draw = random.Random(17)
    return ["".join(draw.choices(PIECES, k=draw.randint(1, 5))) for _ in range(number)]


def legal(name: str) -> bool:
    try:
        return check_name(name) == name
    except InvalidName:
        return False


def test_no_hostile_name_leaves_its_directory(count):
    """Of very many hostile names, the legal ones are plain file names inside any directory (T08)."""
    found = 0
    for name in hostile(count(20_000, 100_000)):
        if not legal(name):
            continue
        found += 1
        assert SAFE.fullmatch(name)
        assert ".." not in name
        assert Path("/store", name).parent == Path("/store")
        assert Path("/store", name).resolve().is_relative_to("/store")
        assert not name.startswith("-")
    assert found


@given(st.text(max_size=70))
def test_a_legal_name_is_plain(name):
    """A legal name has 1 to 64 plain characters and begins with a letter or digit; any other is InvalidName."""
    if legal(name):
        assert SAFE.fullmatch(name)
        assert len(name) <= NAME_LIMIT
    else:
        assert not SAFE.fullmatch(name) or ".." in name or name.endswith(".") or is_ulid(name.upper())


@pytest.mark.parametrize(
    "name", [None, 7, b"bytes", ["a"], "", "x" * 65, "../up", ".hidden", "a/b", "-rf", "a..b", "a."]
)
def test_every_verb_that_takes_a_name_checks_it(name):
    """Opening, creating, renaming, forking and joining under an illegal name is refused and changes nothing (T08)."""
    play = Play()
    before = play.store.head(play.session.id)
    for call in (
        lambda: play.records.open(name),
        lambda: play.records.create(name),
        lambda: play.session.rename(name),
        lambda: play.session.fork(name, at=1),
        lambda: play.records.open("fine", agent=name),
        lambda: play.records.get("play", agent=name),
    ):
        with pytest.raises(InvalidName):
            call()
    with pytest.raises(NotFound):
        play.records.find(name)
    assert play.store.head(play.session.id) == before
    assert [head.name for head in play.records.sessions()] == ["play"]


@given(st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10), st.integers(0, 2**48 - 1))
def test_ids_sort_by_time(moment, noise, later):
    """Ids are 26 plain characters that sort by creation time (A07)."""
    one, other = make_ulid(moment, noise), make_ulid(later, noise)
    assert is_ulid(one)
    assert (one < other) == (moment < later)


def test_a_name_is_never_mistaken_for_an_id():
    """A name in the form of an id is refused, so that a name always finds its own session (A21)."""
    play = Play()
    lookalike = "abcdefghjkmnpqrstvwxyz0123"
    assert is_ulid(lookalike.upper())
    for call in (lambda: play.records.create(lookalike), lambda: play.session.rename(lookalike)):
        with pytest.raises(InvalidName):
            call()
    with pytest.raises(OnrecordError):
        play.records.open(lookalike)
    assert len(play.records.sessions()) == 1
