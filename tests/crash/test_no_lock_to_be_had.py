"""A kernel without room for another file lock (ENOLCK) costs fairness between writers, and nothing else."""

import errno
import fcntl
import os
import subprocess
import sys
import threading
from typing import Any

import pytest

import onrecord
from onrecord.stores.sqlite import write_lock
from onrecord.stores.sqlite.write_lock import WriteLock
from onrecord.surfaces import notifying
from onrecord.surfaces.hook import following


def no_lock(_file: int, _how: int) -> None:
    raise OSError(errno.ENOLCK, "No locks available")


WITHOUT_LOCKS = """
import errno, fcntl

def no_lock(*_arguments):
    raise OSError(errno.ENOLCK, "No locks available")

fcntl.flock = no_lock
"""
COMMANDS = (
    ("open", "work", "--profile", "bugfix"), ("decide", "plain words"), ("run", "--", "true"), ("note", "--write"), ("list",),
    ("show", "work"), ("search", "plain"), ("verify", "--all"), ("export", "work", "--out", "work.onrecord"), ("doctor",),
    ("backup", "copy.db"), ("store", "status"), ("redact", "work", "--dry-run"), ("sweep", "--dry-run"),
    ("close", "work", "--anyway", "done"), ("doctor", "--fix"),
)  # fmt: skip


def test_every_command_works_on_a_system_without_locks(tmp_path):
    """With ENOLCK from every `flock`, each command of a day's work ends as usual, and none shows an error of the system."""
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_LOCKS)
    names = {"HOME": str(tmp_path), "PYTHONPATH": str(tmp_path), "ONRECORD_STORE": str(tmp_path / "kept" / "here.db")}
    env = os.environ | names
    raw = [sys.executable, "-c", "import fcntl; fcntl.flock(0, fcntl.LOCK_EX)"]
    done = subprocess.run(raw, env=env, capture_output=True, text=True, check=False)
    assert "No locks available" in done.stderr, "the control: who does not expect it fails"
    for words in COMMANDS:
        command = [sys.executable, "-m", "onrecord", *words]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (words, done)
        assert "No locks available" not in done.stderr + done.stdout, (words, done)


def test_neither_a_notice_nor_a_follower_needs_a_lock(tmp_path, monkeypatch):
    """A person is notified, at worst twice; a follower is not started. With locks, the control, one is."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = str(tmp_path / "follower")
    held = following.lock(path)
    assert held is not None, "the control"
    os.close(held)
    monkeypatch.setattr(fcntl, "flock", no_lock)
    assert following.lock(path) is None
    notice = notifying.Notice("waits", "work/1", "01", "work", "/here", "claude", "claude waits", "onrecord show work")
    assert notifying._claim(notice, 1.0) == 0


@pytest.fixture
def complaints(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Errors of threads, which would be printed on the user's terminal."""
    found: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", found.append)
    return found


def test_writing_works_without_a_lock(tmp_path, monkeypatch, complaints):
    """Appends are recorded and acknowledged; SQLite's own lock keeps writers apart."""
    with onrecord.connect(f"sqlite:///{tmp_path}/x.db") as records:
        session = records.open("work")
        monkeypatch.setattr(write_lock, "flock", no_lock)
        session.decide("without a lock")
        assert session.verify().ok
    assert complaints == []


def test_a_writer_that_waits_gives_up_in_time(tmp_path, monkeypatch, complaints):
    """One that waits for another process gets no lock and no error; later, with locks again, it gets one."""
    path = str(tmp_path / "x.lock")
    mine, theirs = WriteLock(path), WriteLock(path)
    assert theirs.acquire()
    with monkeypatch.context() as none:
        none.setattr(
            write_lock,
            "flock",
            lambda file, how: no_lock(file, how) if how == fcntl.LOCK_EX else fcntl.flock(file, how),
        )
        assert not mine.acquire(0.1)
    theirs.release()
    assert mine.acquire(5.0), "the control: the same lock, once there is one"
    with monkeypatch.context() as none:
        none.setattr(write_lock, "flock", no_lock)
        mine.release_after_interrupt()
    mine.close()
    assert theirs.acquire(5.0)
    theirs.close()
    assert complaints == []
