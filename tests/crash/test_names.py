"""No name, however hostile, creates a file outside the store; hostile names are refused, legal ones work (P29)."""

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from onrecord.errors import InvalidInput, InvalidName, SessionNotFound
from onrecord.log.names import NAME_LIMIT, check_name, is_ulid
from onrecord.session.session_store import SessionStore
from onrecord.stores.sqlite import SQLiteStore

HOSTILE = [
    "", " ", ".", "..", "../x", "../../etc/passwd", "/etc/passwd", "a/b", "a\\b", "..\\x", "C:\\x", "x\0y", "x\ny", "x\ry",
    "~", "~root", "$HOME", "$(id)", "`id`", "a;b", "a|b", "a&b", "a>b", "a<b", "'", '"', "a b", "-rf", "--help", ".hidden",
    "_x", "a..b", "a.", "a" * (NAME_LIMIT + 1), "a" * 100_000, "é", "\uff41", "a\u202eb", "a\u200bb", "\ufeffa", "a\u0301", "٣",
    "%2e%2e%2f", "a%00", "con:", "a?b", "a*b", "[a]", "{a}", "a=b", "a,b", "a:b", "a@b", "a#b", "a!b", "a+b", "a^b", "x\x1b[2J",
    "\ud800", "a\udcff", "\U000e0001a", "a\u2028b", "a\tb", "a\x7fb",
]  # fmt: skip
LEGAL = ["a", "A", "0", "fix-invite-403", "a.b", "a_b", "a" * NAME_LIMIT, "1.2.3-rc", "CON", "nul", "a-", "a_", "main"]
BRICKS = [
    *"abz09AZ",
    *"._-",
    *"/\\\0\n\r\t ;|&$`'\"<>*?~%:@#!^=+,()[]{}",
    "..",
    "é",
    "٣",
    "\u202e",
    "\u200b",
    "\ud800",
    "\x1b",
    "/../",
]


def hostile_names(chance: random.Random, count: int) -> Iterator[str]:
    """Names that break a rule: the classics, then random ones."""
    yield from HOSTILE
    made = len(HOSTILE)
    while made < count:
        name = "".join(chance.choice(BRICKS) for _ in range(chance.randrange(1, 30)))
        if not is_legal(name):
            made += 1
            yield name


def is_legal(name: str) -> bool:
    """The naming rule, written down a second time."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    return (
        0 < len(name) <= NAME_LIMIT
        and all(letter in letters + "._-" for letter in name)
        and name[0] in letters
        and ".." not in name
        and name[-1] != "."
    )


def files_below(directory: Path) -> set[str]:
    return {str(entry.relative_to(directory)) for entry in directory.rglob("*")}


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SessionStore]:
    """Sessions of a store two directories down; the working directory and the home are below tmp_path, too."""
    for name in ("work", "home", "deep/store"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    store = SQLiteStore(str(tmp_path / "deep" / "store" / "log.db"))
    yield SessionStore(store)
    store.close()


@pytest.mark.timeout(1800)
def test_hostile_names_are_refused_and_make_no_file(
    records: SessionStore, tmp_path: Path, chance: random.Random, count: Callable[[int, int], int]
):
    """Session and agent names that break the rule raise InvalidName in every verb, and no file appears anywhere (P29)."""
    session = records.open("legal")
    before = files_below(tmp_path)
    position = session.views.position
    doors: list[Callable[[str], object]] = [
        records.open,
        records.create,
        session.rename,
        session.fork,
        lambda name: records.open("legal", agent=name),
        lambda name: records.create("another", agent=name),
        lambda name: records.get("legal", agent=name),
    ]
    tried = 0
    for name in hostile_names(chance, count(5_000, 100_000)):
        for door in doors if tried < 500 else (chance.choice(doors),):
            tried += 1
            with pytest.raises(InvalidName):
                door(name)
    assert files_below(tmp_path) == before
    assert session.refresh().views.position == position
    assert len(records.sessions()) == 1


def test_hostile_names_find_nothing(records: SessionStore, tmp_path: Path):
    """Looking up a hostile name finds nothing and creates nothing (P29)."""
    before = files_below(tmp_path)
    for name in HOSTILE:
        with pytest.raises((SessionNotFound, InvalidInput)):
            records.find(name)
    assert files_below(tmp_path) == before


def test_legal_names_work(records: SessionStore, tmp_path: Path, chance: random.Random):
    """Legal names are accepted, found again and verify; the store has the same files as before (P29)."""
    before = files_below(tmp_path)
    names = LEGAL + [f"n{chance.randbytes(8).hex()}" for _ in range(50)]
    for name in names:
        assert is_legal(name)
        session = records.open(name, agent="main")
        session.record_turn([{"role": "user", "content": name}])
        assert records.find(name).name == name
    assert files_below(tmp_path) == before
    assert len(records.sessions(limit=1_000)) == len(names)


def test_the_rule_is_the_rule(chance: random.Random):
    """The code's rule and the rule as it is written down here agree on random names, hostile and legal ones (P29)."""
    for _ in range(5_000):
        name = "".join(chance.choice(BRICKS[:12]) for _ in range(chance.randrange(1, 12)))
        if is_legal(name):
            assert check_name(name) == name
            assert not is_ulid(name)
        else:
            with pytest.raises(InvalidName):
                check_name(name)


def test_control_a_store_of_files_is_caught(tmp_path: Path):
    """Control: a store that names files after sessions creates them outside its directory, and the same check sees it (P29)."""
    store = tmp_path / "deep" / "store"
    store.mkdir(parents=True)
    before = files_below(tmp_path)
    for name in HOSTILE:
        try:
            os.close(os.open(store / f"{name}.jsonl", os.O_CREAT | os.O_WRONLY, 0o600))
        except (OSError, ValueError, UnicodeEncodeError):
            continue
    outside = {name for name in files_below(tmp_path) - before if not name.startswith("deep/store/")}
    assert outside != set()
