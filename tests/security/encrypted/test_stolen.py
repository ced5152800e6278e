"""A thief has the files of a store: the laptop, the disk, a backup. Without the key they say nothing."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import onrecord
from onrecord.connection import glance
from onrecord.errors import StoreBusy, StoreCorrupt, StoreLocked
from onrecord.session.session_store import SessionStore
from onrecord.stores.sqlite import SQLiteStore, reencrypt
from tests.cli.conftest import Command
from tests.security.encrypted.conftest import KEY, OTHER, files

CANARY = "heliotrope-lagoon"


def giving(key: bytes | None) -> Callable[[], bytes | None]:
    return lambda: key


def recorded(path: Path, key: bytes | None = KEY) -> None:
    """A store in which a word is a fact, a message, a search index and a snapshot."""
    with SessionStore(SQLiteStore(str(path), key=lambda: key), project="p") as records:
        session = records.create("work")
        session.decide(CANARY)
        session.record_turn([{"role": "user", "content": CANARY * 3_000}])
        assert records.search(CANARY, project="")
        session.note()


def holding(folder: Path) -> list[str]:
    return [name for name, (content, _mode) in files(folder).items() if CANARY.encode() in content]


def test_no_file_of_the_store_has_a_word_of_it(tmp_path: Path):
    """Database, write-ahead log, shared memory and backup of an encrypted store: the word is in none of them."""
    for name, key in (("encrypted", KEY), ("plain", None)):
        path = tmp_path / name / "store.db"
        store = SQLiteStore(str(path), key=giving(key))
        records = SessionStore(store, project="p")
        session = records.create("work")
        session.decide(CANARY)
        store.backup(str(tmp_path / name / "backup.db"))
        found = holding(tmp_path / name)
        records.close()
        assert bool(found) is (key is None), (name, found)


def test_the_wrong_key_opens_nothing_and_changes_nothing(tmp_path: Path):
    """A wrong key, and no key: one error each, and not even the mode of a file changes."""
    path = tmp_path / "a" / "store.db"
    recorded(path)
    SQLiteStore(str(path), key=lambda: KEY).backup(str(tmp_path / "alone.db"))
    for name in ("a/store.db", "a/store.db.lock", "alone.db"):
        (tmp_path / name).chmod(0o644)
    before = files(tmp_path)
    for key, said in ((OTHER, "the key does not open"), (None, "is encrypted, and no key is configured")):
        for file in (path, tmp_path / "alone.db"):
            with pytest.raises(StoreLocked, match=said):
                SQLiteStore(str(file), key=giving(key))
    assert files(tmp_path) == before
    with SessionStore(SQLiteStore(str(path), key=lambda: KEY)) as records:
        assert records.search(CANARY, project=""), "the control: the right key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_damaged_page_is_damage_not_a_wrong_key(tmp_path: Path):
    """Every page is authenticated: a changed byte is found when the page is read, and named as damage."""
    path = tmp_path / "store.db"
    recorded(path)
    SQLiteStore(str(path), key=lambda: KEY).reencrypt(OTHER, lambda copy: None)  # one file, no write-ahead log
    content = bytearray(path.read_bytes())
    for place in range(2048, len(content), 2048):
        content[place + 700] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt):
        SessionStore(SQLiteStore(str(path), key=lambda: OTHER)).search(CANARY, project="")


def test_the_key_is_in_no_file_and_no_output(command: Command):
    """Commands with a key in the environment print it nowhere and write it nowhere; doctor says only that it is set."""
    key = KEY.hex()
    said = [command.ok("open", "work"), command.ok("store", "status"), command.ok("doctor"), command.ok("export", "work",
            "--format", "jsonl")]  # fmt: skip
    said.append(command.ok("run", "--", "printenv", "ONRECORD_KEY"))
    said.append(command.ok("log", "work"))
    told = [text for text in said if key in text]
    assert told in ([], [said[4]]), "only the command that the person ran prints what it was asked to print"
    assert "ONRECORD_KEY=(set, not shown)" in said[2]
    for name, (content, _mode) in files(command.place).items():
        assert key.encode() not in content, name
    assert "encrypted\tyes" in said[1]


def test_every_way_through_the_command_line(command: Command):
    """Recording, verifying, searching, exporting, importing, copying, backing up and restoring work with a key."""
    command.ok("open", "work")
    command.ok("decide", CANARY)
    assert CANARY in command.ok("search", CANARY)
    command.ok("verify", "--all")
    command.ok("export", "work", "--out", "work.onrecord")
    command.ok("import", "work.onrecord", "--store", "second.db")
    plain = {name: value for name, value in command.environment.items() if name != "ONRECORD_KEY"}
    command.ok("copy", str(command.store), "third.db")
    command.ok("backup", "backup.db")
    for name in ("second.db", "third.db", "backup.db"):
        assert (command.project / name).read_bytes()[:15] != b"SQLite format 3", name
        command.ok("verify", "--all", "--store", name)
    command.ok("backup", "--restore", "backup.db", "--yes")
    assert CANARY in command.ok("log", "work")
    command.environment = plain
    error = command.error("list", code=10, kind="store_locked")
    assert "ONRECORD_KEY" in error["hint"]


def test_the_gate_and_the_hook_read_an_encrypted_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The quick look that hooks take has the key; without it, the hook opens the store and reports what is wrong."""
    monkeypatch.setenv("ONRECORD_KEY", KEY.hex())
    path = str(tmp_path / "store.db")
    with onrecord.connect(path, project="p") as records:
        records.create("work")
    seen = glance(path, "p", "work")
    assert seen is not None
    assert seen.name == "work"
    monkeypatch.delenv("ONRECORD_KEY")
    assert glance(path, "p", "work") is None
    with pytest.raises(StoreLocked):
        onrecord.connect(path, project="p")


def test_encrypting_in_place_and_back(command: Command):
    """`store encrypt`, `rekey` and `decrypt` keep every event; the old key opens nothing any more."""
    folder = command.store.parent
    with_key, command.environment = command.environment, dict(command.environment)
    del command.environment["ONRECORD_KEY"]
    command.ok("open", "work")
    command.ok("decide", CANARY)
    assert holding(folder)
    head = command.ok("checkpoint", "work")
    key = folder.parent / "old.key"
    command.ok("store", "new-key", "--key-file", str(key))
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    done = command.run("store", "encrypt", "--key-file", str(key))
    assert (done.code, f'write file = "{key}" under [encryption]' in done.err) == (0, True), done
    assert holding(folder) == []
    command.environment["ONRECORD_KEY"] = key.read_text().strip()
    assert command.data("store", "encrypt", kind="store")["state"] == "already_encrypted"
    assert command.ok("checkpoint", "work") == head
    new = folder.parent / "new.key"
    command.ok("store", "new-key", "--key-file", str(new))
    done = command.run("store", "rekey", "--key-file", str(new))
    assert (done.code, "ONRECORD_KEY is set and comes first" in done.err) == (0, True), done
    command.error("list", code=10, kind="store_locked")
    command.environment["ONRECORD_KEY"] = new.read_text().strip()
    assert command.ok("checkpoint", "work") == head
    command.ok("store", "decrypt")
    del command.environment["ONRECORD_KEY"]
    assert command.ok("checkpoint", "work") == head
    assert list(folder.glob("*new-key*")) == []
    error = command.error("store", "rekey", "--key-file", str(new), code=2, kind="usage")
    assert "is not encrypted" in error["message"]
    assert with_key["ONRECORD_KEY"] != new.read_text().strip()


@pytest.mark.parametrize("step", ["_alone", "_copy", "check", "_settle", "before rename", "_take_place"])
def test_a_crash_while_encrypting_leaves_a_whole_store(tmp_path: Path, step: str):
    """Killed after any step: the old store or the new one is there, complete, and the next run cleans up."""
    path = tmp_path / "store.db"
    recorded(path, None)
    script = f"""
import os, sys
from onrecord.stores.sqlite import SQLiteStore, reencrypt
step = {step!r}
def dying(call):
    def run(*given):
        call(*given)
        os.kill(os.getpid(), 9)
    return run
check = lambda copy: None
if step == "check":
    check = dying(check)
elif step == "before rename":
    reencrypt.os.rename = lambda *given: os.kill(os.getpid(), 9)
else:
    setattr(reencrypt, step, dying(getattr(reencrypt, step)))
SQLiteStore({str(path)!r}).reencrypt({KEY!r}, check)
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, timeout=60)
    assert done.returncode == -9
    key = KEY if step == "_take_place" else None
    assert CANARY in path.read_bytes().decode(errors="replace") or key, "the control: the store was plain"
    with SessionStore(SQLiteStore(str(path), key=lambda: key), project="p") as records:
        assert records.get("work").verify().ok
        assert records.search(CANARY, project="")
    SQLiteStore(str(path), key=lambda: key).reencrypt(OTHER, lambda copy: None)
    assert list(tmp_path.glob("*new-key*")) == []
    with SessionStore(SQLiteStore(str(path), key=lambda: OTHER), project="p") as records:
        assert records.get("work").verify().ok


def test_a_store_in_use_is_not_encrypted(tmp_path: Path):
    """While another process has the store open, encrypting is refused, and what both have written stays."""
    path = tmp_path / "store.db"
    recorded(path, None)
    script = f"""
import sys
from onrecord.session.session_store import SessionStore
from onrecord.stores.sqlite import SQLiteStore
records = SessionStore(SQLiteStore({str(path)!r}), project="p")
session = records.get("work")
print("open", flush=True)
sys.stdin.read()
session.decide("late")
"""
    with subprocess.Popen([sys.executable, "-c", script], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        with pytest.raises(StoreBusy, match="another process uses"):
            SQLiteStore(str(path)).reencrypt(KEY, lambda copy: None)
        other.communicate("")
        assert other.returncode == 0
    with SessionStore(SQLiteStore(str(path)), project="p") as records:
        assert records.get("work").verify().ok
        assert records.search("late", project="")
    SQLiteStore(str(path)).reencrypt(KEY, lambda copy: None)


def test_a_copy_by_another_name_is_not_overwritten(tmp_path: Path):
    """A hard link to the plain store is someone's copy: encrypting leaves its bytes alone."""
    path, link = tmp_path / "store.db", tmp_path / "mine.db"
    recorded(path, None)
    store = SQLiteStore(str(path))
    os.link(path, link)
    store.reencrypt(KEY, lambda copy: None)
    assert link.read_bytes()[:15] == b"SQLite format 3"


def test_a_copy_that_is_not_encrypted_takes_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """If the copy came out in plain text, the store stays as it was."""
    path = tmp_path / "store.db"
    recorded(path, None)
    monkeypatch.setattr(reencrypt, "is_encrypted", lambda copy: False)
    with pytest.raises(Exception, match="is not encrypted as it should be"):
        SQLiteStore(str(path)).reencrypt(KEY, lambda copy: None)
    with SessionStore(SQLiteStore(str(path)), project="p") as records:
        assert records.get("work").verify().ok


def test_a_plain_backup_does_not_come_back_in_silence(command: Command):
    """Restoring a backup from before the encryption says that the store is plain now; doctor says so, too."""
    key = command.environment.pop("ONRECORD_KEY")
    command.ok("open", "work")
    command.ok("backup", "old.db")
    command.environment["ONRECORD_KEY"] = key
    command.ok("store", "encrypt")
    done = command.run("backup", "--restore", "old.db", "--yes")
    assert (done.code, "this backup is not encrypted" in done.err) == (0, True), done
    done = command.run("doctor")
    assert (done.code, "this store is not encrypted" in done.out) == (1, True), done
    command.ok("store", "encrypt")
    assert "the file is encrypted at rest" in command.ok("doctor")
