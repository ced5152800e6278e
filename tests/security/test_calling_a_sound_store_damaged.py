"""A failing disk, or who controls it, wants a sound store to be called damaged, so that a backup replaces it."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

import onrecord
from onrecord.errors import StoreCorrupt, StoreError
from onrecord.stores.sqlite import SQLiteStore
from onrecord.stores.sqlite.connection import store_error
from tests.crash.disks import READ, Disk, Step


class Unreadable:
    """Every read of the store's file fails as it does with EIO."""

    def __init__(self, file: str) -> None:
        self.file = file

    def __call__(self, step: Step) -> BaseException | None:
        if step.what != READ or step.file != self.file:
            return None
        problem = apsw.IOError("the disk cannot be read")
        problem.extendedresult = apsw.SQLITE_IOERR_CORRUPTFS  # type: ignore[attr-defined]  # apsw reads it
        return problem


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A closed store with some pages."""
    place = str(tmp_path / "store" / "log.db")
    with onrecord.connect(place, project="/p") as records:
        session = records.create("fix")
        for number in range(40):
            session.decide(f"number {number} " * 40)
    file = apsw.Connection(place)
    assert file.execute("PRAGMA user_version; PRAGMA wal_checkpoint(truncate)").fetchall()[1][1] == 0
    file.close()
    return place


def read_all(path: str) -> int:
    store = SQLiteStore(path)
    try:
        return sum(len(store.read(head.session)) for head in store.heads())
    finally:
        store.close()


READER = "import sys; from tests.security.test_calling_a_sound_store_damaged import read_all; read_all(sys.argv[1])"


@pytest.mark.parametrize("number", [2, 6])
def test_a_disk_that_cannot_be_read_is_not_a_damaged_store(path, number):
    """While the system answers reads with EIO, the error names the disk; afterwards everything is there."""
    if shutil.which("strace") is None:
        pytest.skip("cannot run here: strace is not installed")
    command = ["strace", "-f", "-o", os.devnull, "-P", path, "-e", "trace=pread64"]
    command += ["-e", f"inject=pread64:error=EIO:when={number}+", sys.executable, "-c", READER, path]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stderr
    if "ptrace" in told:
        pytest.skip(f"cannot run here: strace may not trace ({told.strip():.100})")
    assert "onrecord.errors.StoreError: the disk returned an input/output error" in told
    assert "StoreCorrupt" not in told
    assert read_all(path) > 40


def test_what_sqlite_calls_damaged_is_read_again(path):
    """An error of SQLite that says "damaged" is believed only where the disk returns the file."""
    said = apsw.CorruptError("database disk image is malformed")
    with Disk(Unreadable("log.db"), errno_=errno.EIO):
        assert type(store_error(said, path)) is StoreError
    assert type(store_error(said, path)) is StoreCorrupt


def test_control_a_damaged_store_is_called_damaged(path):
    """Control: where the disk returns other bytes, the store is damaged, and the error says so."""
    with Path(path).open("r+b") as file:
        file.seek(2048)
        file.write(b"\xff" * (Path(path).stat().st_size - 2048))
    with pytest.raises(StoreCorrupt):
        read_all(path)


def test_asking_the_disk_keeps_the_locks_of_this_process(path):
    """The second look at the file leaves a transaction that this process has open as it is."""
    ours = apsw.Connection(path)
    ours.pragma("journal_mode", "delete")
    ours.execute("BEGIN EXCLUSIVE")
    assert type(store_error(apsw.CorruptError("malformed"), path)) is StoreCorrupt
    held = [line for line in Path("/proc/locks").read_text().splitlines() if f":{Path(path).stat().st_ino} " in line]
    assert held
    ours.close()
