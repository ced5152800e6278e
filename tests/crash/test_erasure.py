"""Erased text is in no file of the store, in no form, and the log still verifies (P27)."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import apsw
import pytest

from onrecord.errors import StoreBusy
from onrecord.session import kept_views
from onrecord.session.handle import Session
from onrecord.session.session_store import SessionStore
from onrecord.stores import payloads
from onrecord.stores.sqlite import SQLiteStore, connection, scrub
from tests.crash.disks import LOST, Disk, images
from tests.crash.nursery import Nursery

SLICE = 16
"""So many equal bytes in a row are not a coincidence."""


class Needle(NamedTuple):
    """Bytes that must be nowhere once they were erased."""

    what: str
    content: bytes


def canary(chance: random.Random, what: str) -> str:
    """A word that nothing else contains."""
    return f"q{what}{chance.randbytes(12).hex()}"


def files_with(directory: Path, needles: list[Needle]) -> dict[str, set[str]]:
    """Which files contain each needle: all files of a directory, whatever their names."""
    found: dict[str, set[str]] = {}
    for file in sorted(entry for entry in directory.rglob("*") if entry.is_file()):
        content = file.read_bytes()
        for needle in needles:
            if needle.content in content:
                found.setdefault(needle.what, set()).add(file.name)
    return found


def slices(what: str, stored: bytes) -> list[Needle]:
    """Pieces of stored bytes from beginning to end: a page may hold any part of a long value."""
    return [
        Needle(what, stored[start : start + SLICE])
        for start in range(0, len(stored) - SLICE, max(1, len(stored) // 40))
    ]


class Secret:
    """A session that holds canaries in every form a store knows, and the bytes to look for."""

    def __init__(self, path: str, chance: random.Random) -> None:
        self.path = path
        self.directory = Path(path).parent
        self.store = SQLiteStore(path)
        self.records = SessionStore(self.store)
        for number in range(5):
            neighbour = self.records.open(f"neighbour-{number}")
            neighbour.record_turn([{"role": "user", "content": f"kept {number} " * 30}])
        self.words = {what: canary(chance, what) for what in ("short", "packed", "large", "fact", "title")}
        self.session: Session = self.records.open("secret", objective=f"Keep {self.words['title']} secret")
        self.fill(chance)
        self.records.search("kept")

    def fill(self, chance: random.Random) -> None:
        large = chance.randbytes(40_000).hex()
        self.session.record_turn([{"role": "user", "content": self.words["short"]}])
        self.session.record_turn([{"role": "user", "content": f"{self.words['packed']} in a longer text " * 20}])
        with self.session.turn() as turn:
            turn.user(f"{self.words['large']} {large}")
        for number in range(12):
            self.session.decide(f"decision {number} about {self.words['fact']}")
        self.session.refresh()

    def needles(self) -> list[Needle]:
        """The canaries as they are, and the stored form of everything that holds one."""
        # An index keeps only what a word does not share with the one before it: the end of a canary is all its own.
        found = [Needle(f"word {what}", word[-2 * SLICE + 10 :].encode()) for what, word in self.words.items()]
        file = apsw.Connection(self.path, flags=apsw.SQLITE_OPEN_READONLY)
        for (payload,) in file.execute(
            "SELECT payload FROM events JOIN sessions ON number = events.key >> 32 WHERE name = 'secret' AND encoding = 1"
        ):
            found += slices("compressed payload", payload)
        for (body,) in file.execute("SELECT body FROM blobs"):
            found += slices("payload out of line", body)
        for (body,) in file.execute(
            "SELECT body FROM snapshots JOIN sessions ON number = session WHERE name = 'secret'"
        ):
            found += slices("snapshot", body)
        file.close()
        return found


EVERYWHERE = {
    "word short", "word packed", "word large", "word fact", "word title",
    "compressed payload", "payload out of line", "snapshot",
}  # fmt: skip


@pytest.fixture(autouse=True)
def frequent_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot after a few events, so that there is one to inspect; compressed, so that its bytes are its own.

    (For a snapshot stored as it is, the test searches for the words; its other bytes may also be in the next snapshot.)
    """
    monkeypatch.setattr(kept_views, "SNAPSHOT_EVERY", 4)
    monkeypatch.setattr(payloads, "SNAPSHOT_FROM", 0)


@pytest.fixture
def secret(path: str, chance: random.Random) -> Iterator[Secret]:
    made = Secret(path, chance)
    yield made
    made.store.close()


def erase_and_look(secret: Secret) -> dict[str, set[str]]:
    needles = secret.needles()
    assert set(files_with(secret.directory, needles)) == EVERYWHERE, (
        "what is not there before proves nothing afterwards"
    )
    secret.session.log.erase("a person asked for it")
    return files_with(secret.directory, needles)


def test_an_erased_canary_is_in_no_file(secret: Secret):
    """Text that was short, compressed, large, indexed, in a snapshot or in the title is in no file after its erasure (P27)."""
    found = [hit.event.position for hit in secret.records.search(secret.words["short"])]
    assert len(found) == 1
    assert erase_and_look(secret) == {}
    report = secret.session.verify()
    assert report.ok
    assert report.erased > 10
    assert secret.records.search(secret.words["short"]) == []
    assert secret.records.search("kept") != []


def test_single_positions_are_erased_from_every_file(secret: Secret):
    """Erasing one event erases it alone: its bytes are in no file, and its neighbours are unchanged (P27)."""
    secret.records.search(secret.words["packed"])
    (short,) = (e for e in secret.session.events(kinds=["turn.recorded"]) if secret.words["short"] in str(e.data))
    secret.session.log.erase("only this", positions=[short.position])
    words = [needle for needle in secret.needles() if needle.what.startswith("word")]
    assert set(files_with(secret.directory, words)) >= {"word fact", "word title"}
    assert "word short" not in files_with(secret.directory, words)
    assert secret.session.verify().ok
    assert len(secret.records.search(secret.words["packed"])) == 1


def test_an_erasure_survives_a_power_cut(path: str, tmp_path: Path, chance: random.Random):
    """After a power cut right after the erasure was acknowledged, the canary is in no file, and the log verifies (P27)."""
    with Disk() as disk:
        secret = Secret(path, chance)
        needles = secret.needles()
        erased = secret.session.log.erase("a person asked for it")
        cut = len(disk.steps)
        secret.store.close()
    (image,) = list(images(disk.steps[:cut], chance, (LOST,), first=cut - 1))[-1:]
    directory = tmp_path / "after"
    directory.mkdir(mode=0o700)
    database = image.write(directory)
    assert files_with(directory, needles) == {}
    store = SQLiteStore(database)
    session = SessionStore(store).get("secret")
    assert session.head.position >= erased.position
    assert session.verify().ok
    assert not any(word in str(event.data) for event in session.events() for word in secret.words.values())
    store.close()


def test_an_erasure_that_cannot_be_completed_says_so(nursery: Nursery, secret: Secret, monkeypatch: pytest.MonkeyPatch):
    """While a reader still has old pages open, the erasure raises StoreBusy; repeated without the reader, it is complete (P27)."""
    monkeypatch.setattr(scrub, "SCRUB_SECONDS", 0.3)
    needles = secret.needles()
    reader = nursery.start("read_and_stay", path=secret.path)
    assert reader.line() == "reading"
    draft = secret.session.log.draft(
        "payload.erased", {"ranges": [[1, 8]], "count": 8, "reason": "r", "scope": "positions"}
    )
    with pytest.raises(StoreBusy):
        secret.store.erase(secret.session.id, range(1, 9), draft)
    reader.kill()
    secret.store.erase(secret.session.id, range(1, 9), draft)
    gone = {"word short", "word packed", "word large", "payload out of line"}
    assert not gone & set(files_with(secret.directory, needles))
    assert secret.session._reload().verify().ok


WEAKENED: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "without secure_delete": lambda patch: patch.setattr(
        connection, "_PRAGMAS", connection._PRAGMAS.replace("secure_delete = ON", "secure_delete = OFF")
    ),
    "without scrubbing": lambda patch: patch.setattr("onrecord.stores.sqlite.scrub.scrub", lambda *_arguments: None),
}


@pytest.mark.parametrize("how", WEAKENED)
def test_control_a_plain_delete_is_caught(path: str, chance: random.Random, monkeypatch: pytest.MonkeyPatch, how: str):
    """Control: a store that only deletes leaves the canary in its files, and the same search finds it (P27)."""
    WEAKENED[how](monkeypatch)
    secret = Secret(path, chance)
    assert erase_and_look(secret) != {}
    secret.store.close()


def test_control_a_guess_cannot_be_confirmed(secret: Secret):
    """Only a salted hash of an erased short secret remains: the file has nothing with which a guess can be confirmed (P27)."""
    (event,) = (e for e in secret.session.events(kinds=["turn.recorded"]) if secret.words["short"] in str(e.data))
    secret.session.log.erase("a person asked for it")
    (record,) = secret.store.read(secret.session.id, after=event.position - 1, upto=event.position)
    assert record.salt is None
    assert record.payload is None
    assert (
        Path(f"{secret.path}-wal").stat().st_size == 0
        or b"turn.recorded" not in Path(f"{secret.path}-wal").read_bytes()
    )
