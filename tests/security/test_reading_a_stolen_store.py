"""A thief wants to read a store: the attacks themselves are in `encrypted/`, and need the apsw with ciphers."""

import os
import re
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from onrecord.errors import StoreLocked
from onrecord.stores.sqlite import SQLiteStore
from onrecord.stores.sqlite.cipher import is_encrypted

ROOT = Path(__file__).resolve().parent.parent.parent
HEADER = bytes(range(100, 116)) + bytes.fromhex("0800020240402020") + bytes(5_000)
"""As an encrypted database begins: sixteen bytes of salt, then eight of SQLite's header."""


@pytest.fixture(scope="session")
def ciphers() -> str:
    """The directory with the apsw that has ciphers."""
    made = subprocess.run([sys.executable, "tools/ciphers.py"], cwd=ROOT, check=True, capture_output=True, text=True)
    return made.stdout.strip()


@pytest.mark.timeout(600)
def test_encrypted_stores_withstand_the_attacks(ciphers: str):
    """Every test in `encrypted/` passes in a process that has the apsw with ciphers."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "tests/security/encrypted"]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": ciphers}, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-8_000:]
    (passed,) = re.findall(r"(\d+) passed", done.stdout)
    assert int(passed) > 50, "the control: they were collected"


@pytest.mark.skipif(hasattr(apsw, "mc_version"), reason="cannot run here: this apsw has ciphers")
def test_without_ciphers_nothing_is_touched_and_the_reason_is_said(tmp_path: Path):
    """An encrypted file, and a new store that should be encrypted, are refused; no file appears or changes."""
    path = tmp_path / "store.db"
    path.write_bytes(HEADER)
    path.chmod(0o644)
    with pytest.raises(StoreLocked, match="is encrypted, and the installed apsw has no ciphers") as caught:
        SQLiteStore(str(path), key=lambda: bytes(32))
    assert "apsw-sqlite3mc" in caught.value.hint
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (HEADER, 0o644)
    with pytest.raises(StoreLocked, match="should be encrypted"):
        SQLiteStore(str(tmp_path / "deep" / "new.db"), key=lambda: bytes(32))
    assert list(tmp_path.iterdir()) == [path]
    SQLiteStore(str(tmp_path / "plain.db"), key=lambda: None).close()


def test_only_what_looks_encrypted_is_called_so(tmp_path: Path):
    """Text, a plain database, an empty file, a pipe and random bytes are not taken for an encrypted store."""
    path = tmp_path / "file"
    path.write_bytes(HEADER)
    assert is_encrypted(str(path)), "the control"
    for content in (b"", b"notes " * 100, b"SQLite format 3\0" + HEADER[16:], b"\x9c" * 5_000):
        path.write_bytes(content)
        assert not is_encrypted(str(path))
    SQLiteStore(str(tmp_path / "plain.db")).close()
    assert not is_encrypted(str(tmp_path / "plain.db"))
    os.mkfifo(tmp_path / "pipe")
    assert not is_encrypted(str(tmp_path / "pipe"))
    assert not is_encrypted(str(tmp_path / "missing"))
