"""A backup under load is a complete store; creating or upgrading a store can be killed at any step; a newer one is refused (P26)."""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from onrecord.errors import InvalidInput, OnrecordError, StoreFull, StoreTooNew
from onrecord.session.session_store import SessionStore
from onrecord.stores import statements
from onrecord.stores.sqlite import SQLiteStore, connection
from tests.crash.disks import WRITE, Disk, Step
from tests.crash.ledger import Ack, acks_in, complaints
from tests.crash.nursery import Nursery
from tests.crash.workers import noise

WRITERS = 4
NEVER = 1 << 60


def settled(path: str, acks: list[Ack]) -> list[str]:
    """What is wrong with a copy, checked in a directory of its own so that no other file helps it."""
    alone = Path(path).parent / f"alone-{Path(path).name}"
    alone.mkdir(mode=0o700)
    shutil.copy(path, alone / "log.db")
    (alone / "log.db").chmod(0o600)
    try:
        return complaints(str(alone / "log.db"), acks)
    except OnrecordError as problem:
        return [f"cannot be opened: {problem}"]
    finally:
        shutil.rmtree(alone)


def copies_under_load(
    nursery: Nursery, path: str, copies: int, copy: Callable[[SQLiteStore, str], object]
) -> Iterator[list[str]]:
    """Copy the store again and again while processes write; return what each copy lacks of what was acknowledged before it."""
    writers = [
        nursery.start("write_turns", path=path, session=f"session-{number}", agent="main", form="recorded")
        for number in range(WRITERS)
    ]
    store = SQLiteStore(path)
    acks: list[Ack] = []
    try:
        for writer in writers:
            assert writer.line() == "ready"
        for number in range(copies):
            before = len(acks)
            while len(acks) < before + WRITERS * 5:
                acks += [ack for writer in writers for ack in acks_in(writer.lines(0.005))]
            known = list(acks)
            target = f"{path}.copy-{number}"
            copy(store, target)
            yield settled(target, known)
            Path(target).unlink()
    finally:
        for writer in writers:
            writer.kill()
        store.close()


@pytest.mark.timeout(900)
def test_a_backup_under_load_has_everything_acknowledged_before(
    nursery: Nursery, tmp_path: Path, count: Callable[[int, int], int]
):
    """Every backup made while processes write opens without other files, verifies, and has what was acknowledged before it (P26)."""
    for number in range(count(1, 30)):
        path = str(tmp_path / str(number) / "log.db")
        for found in copies_under_load(nursery, path, 15, SQLiteStore.backup):
            assert found == []


def test_control_a_plain_copy_under_load_is_caught(nursery: Nursery, path: str):
    """Control: copying the database file alone, as `cp` does, lacks what is still in the write-ahead log, or is torn (P26)."""

    def plain(_store: SQLiteStore, target: str) -> None:
        # In a process of its own: reading the file here would drop the locks of the open store.
        os.spawnlp(os.P_WAIT, "cp", "cp", path, target)

    assert any(copies_under_load(nursery, path, 5, plain))


def test_a_backup_replaces_nothing_and_leaves_nothing_half_done(path: str, tmp_path: Path):
    """A backup never replaces a file, is readable by its owner alone, and a failed one leaves no file behind (P26)."""
    store = SQLiteStore(path)
    SessionStore(store).open("backed-up").record_turn(noise(0))
    target = tmp_path / "backup.db"
    store.backup(str(target))
    assert target.stat().st_mode & 0o777 == 0o600
    before = target.read_bytes()
    with pytest.raises(InvalidInput):
        store.backup(str(target))
    assert target.read_bytes() == before

    def full(step: Step) -> BaseException | None:
        return apsw.FullError("no space left") if step.what == WRITE and ".part-" in step.file else None

    with Disk(full), pytest.raises(StoreFull):
        store.backup(str(tmp_path / "failed.db"))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["backup.db", "store"]
    store.close()


@pytest.mark.timeout(300)
def test_a_restore_can_be_killed_at_any_step(nursery: Nursery, memory_disk: Path):
    """A restore that is killed anywhere leaves the old store or the restored one under the name, complete in either case (P26)."""
    first = memory_disk / "first"
    store = SQLiteStore(str(first / "log.db"))
    with SessionStore(store).open("restored") as session:
        event = session.record_turn(noise(0))
        backup = store.backup(str(memory_disk / "backup.db"))
        later = session.record_turn(noise(1))
    store.close()
    before, after = (Ack(one.session, one.position, one.id) for one in (event, later))
    outcomes = set()
    for kill_at in range(1, 1_000):
        place = memory_disk / str(kill_at)
        shutil.copytree(first, place)
        path = str(place / "log.db")
        lines = nursery.start("restore_a_backup", path=path, backup=backup, kill_at=kill_at).wait()
        assert complaints(path, [before]) == [], f"killed at step {kill_at}"
        outcomes.add("the store of before" if complaints(path, [after]) == [] else "the backup")
        if lines:
            assert lines[0].startswith("steps"), lines
            break
    assert outcomes == {"the store of before", "the backup"}


@pytest.fixture
def next_version(tmp_path: Path) -> str:
    """The SQL files of an onrecord that is one schema ahead of this one."""
    sql = tmp_path / "sql"
    shutil.copytree(Path(statements.SQL) / "sqlite", sql / "sqlite")
    migration = (
        "CREATE TABLE novelties (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;\n"
        "INSERT INTO novelties SELECT id, name FROM sessions;\n"
        "ALTER TABLE sessions ADD COLUMN novelty TEXT;\n"
        "UPDATE sessions SET novelty = 'new';\n"
        "CREATE INDEX sessions_by_novelty ON sessions (novelty);\n"
    )
    (sql / "sqlite" / "migrations" / f"{connection.SCHEMA_VERSION + 1:04}_novelty.sql").write_text(migration)
    with (sql / "sqlite" / "schema.sql").open("a") as schema:
        schema.write("\n" + migration.replace("INSERT INTO novelties SELECT id, name FROM sessions;\n", ""))
    return str(sql)


@pytest.fixture
def older_store(tmp_path: Path) -> tuple[Path, list[Ack]]:
    """A closed store of the current version, and what it acknowledged."""
    path = tmp_path / "older" / "log.db"
    store = SQLiteStore(str(path))
    with SessionStore(store).open("upgraded") as session:
        acks = [Ack(e.session, e.position, e.id) for e in (session.record_turn(noise(number)) for number in range(5))]
    store.close()
    return path.parent, acks


class Upgrade:
    """Runs processes that create or upgrade a store until they are killed, and checks what they left."""

    def __init__(self, nursery: Nursery, place: Path, sql: str, version: int, *, careless: bool = False) -> None:
        self._nursery = nursery
        self._place = place
        self._sql = sql
        self._version = version
        self._careless = careless

    def run(self, path: str, kill_at: int, level: str) -> list[str]:
        return self._nursery.start(
            "make_or_upgrade",
            path=path, sql=self._sql, version=self._version, kill_at=kill_at, level=level, careless=self._careless,
        ).wait()  # fmt: skip

    def troubles(self, start: Path | None, acks: list[Ack], level: str, stride: int) -> Iterator[str]:
        """For a kill at every `stride`-th step: why the next process cannot open the store, or what it lacks."""
        (whole,) = self.run(self._copy(start, "whole"), NEVER, level)
        for kill_at in range(1, int(whole.removeprefix("steps ")) + 1, stride):
            path = self._copy(start, str(kill_at))
            assert self.run(path, kill_at, level) == []
            lines = self.run(path, NEVER, level)
            if len(lines) != 1 or not lines[0].startswith("steps"):
                yield f"killed at {level} {kill_at}: {lines}"
                continue
            file = apsw.Connection(path)
            if file.pragma("user_version") != self._version or file.pragma("integrity_check") != "ok":
                yield f"killed at {level} {kill_at}: version {file.pragma('user_version')}"
            there = {row[0] for row in file.execute("SELECT id FROM events")}
            if not {ack.id for ack in acks} <= there:
                yield f"killed at {level} {kill_at}: events are lost"
            file.close()

    def _copy(self, start: Path | None, name: str) -> str:
        directory = self._place / f"{self._version}-{name}"
        if start is None:
            directory.mkdir(mode=0o700)
        else:
            shutil.copytree(start, directory)
        return str(directory / "log.db")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("level", ["statement", "disk"])
def test_making_a_store_can_be_killed_at_any_step(
    nursery: Nursery, memory_disk: Path, count: Callable[[int, int], int], level: str
):
    """When the first opener of a store is killed at any statement or write, the next one opens it, complete (P26)."""
    upgrade = Upgrade(nursery, memory_disk, "", connection.SCHEMA_VERSION)
    assert list(upgrade.troubles(None, [], level, count(2 if level == "disk" else 1, 1))) == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize("level", ["statement", "disk"])
def test_an_upgrade_can_be_killed_at_any_step(
    nursery: Nursery, memory_disk: Path, older_store: tuple[Path, list[Ack]], next_version: str, level: str
):
    """When an upgrade is killed at any statement or write, the next opener upgrades the store, with all its events (P26)."""
    upgrade = Upgrade(nursery, memory_disk, next_version, connection.SCHEMA_VERSION + 1)
    assert list(upgrade.troubles(*older_store, level, 1)) == []


def test_control_an_upgrade_without_a_transaction_is_caught(
    nursery: Nursery, memory_disk: Path, older_store: tuple[Path, list[Ack]], next_version: str
):
    """Control: a migration whose steps are not one transaction leaves stores that do not open (P26)."""
    upgrade = Upgrade(nursery, memory_disk, next_version, connection.SCHEMA_VERSION + 1, careless=True)
    assert list(upgrade.troubles(*older_store, "disk", 1)) != []


def test_a_newer_store_is_refused_and_left_alone(
    nursery: Nursery, older_store: tuple[Path, list[Ack]], next_version: str
):
    """An older onrecord refuses a newer store with StoreTooNew, whatever the command, and changes no byte of it (P26)."""
    directory, acks = older_store
    path = str(directory / "log.db")
    lines = nursery.start(
        "make_or_upgrade",
        path=path, sql=next_version, version=connection.SCHEMA_VERSION + 1, kill_at=NEVER, level="disk", careless=False,
    ).wait()  # fmt: skip
    assert lines[-1].startswith("steps")
    before = {name: hashlib.sha256((directory / name).read_bytes()).digest() for name in ("log.db", "log.db-wal")}
    for _ in range(3):
        with pytest.raises(StoreTooNew) as refused:
            SQLiteStore(path)
        assert refused.value.hint == "upgrade onrecord"
    after = {name: hashlib.sha256((directory / name).read_bytes()).digest() for name in before}
    assert after == before
    assert acks
