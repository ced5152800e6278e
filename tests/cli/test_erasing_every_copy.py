"""`onrecord store session-keys` and `onrecord erase --certify`: a session that no copy of the store keeps."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Command

pytestmark = pytest.mark.on_file


def data(command: Command, *words: str) -> Any:
    """The data that a command prints, whatever it is."""
    return json.loads(command.run(*words, "--json").out)["data"]


def name_key(command: Command) -> None:
    """Make a store key, and name it in the settings."""
    place = command.place / ".config" / "onrecord"
    place.mkdir(parents=True)
    command.ok("store", "new-key", "--key-file", str(place / "store.key"))
    (place / "config.toml").write_text(f'[session_keys]\nfile = "{place}/store.key"\n')


@pytest.fixture
def keyed(command: Command) -> Command:
    """A store that gives every new session a key of its own, with one session from before."""
    command.ok("open", "older", "--objective", "before that")
    name_key(command)
    command.ok("store", "session-keys")
    return command


def test_it_needs_a_store_key_and_no_session(command: Command, tmp_path: Path):
    """The refusal says what to do. A store that is not there is made, so that its first session has a key already."""
    done = command.run("store", "session-keys")
    assert done.code == 10
    assert "none is configured" in done.err
    assert "`onrecord store new-key` makes one" in done.err
    name_key(command)
    assert data(command, "store", "session-keys")["state"] == "session_keys"
    again = data(command, "store", "session-keys")
    assert (again["state"], again["keys"]) == ("already_session_keys", f"{command.store}.keys")
    command.ok("open", "first")
    assert len(list(Path(again["keys"]).iterdir())) == 1


def test_an_erasure_is_certified_and_checked(keyed: Command, tmp_path: Path):
    """Against the store and against a backup that was made before; signed, and found changed when it was changed."""
    keyed.ok("open", "secret-work", "--objective", "find the leak")
    key, statement, backup = tmp_path / "id", tmp_path / "erased.json", tmp_path / "backup.db"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    (tmp_path / "signers").write_text(f"alice@example.com {Path(f'{key}.pub').read_text()}")
    assert "not in the backup" in keyed.run("backup", str(backup)).err
    assert "does not reach it" in keyed.run("export", "secret-work", "--out", str(tmp_path / "bundle")).err
    reason = ("--reason", "asked by its author", "--yes")
    said = data(keyed,
        "erase", "secret-work", "--all", *reason, "--certify", str(statement), "--sign", str(key)
    )  # fmt: skip
    assert (said["state"], said["signed"], said["statement"]["erasure"]["reason"]) == ("erased", True, reason[1])
    signers = ("--signers", str(tmp_path / "signers"))
    for where in ((), ("--store", str(backup))):
        found = data(keyed, "erase", "--check", str(statement), *signers, *where)
        assert found["ok"], found
        assert found["signature"].startswith("signed by alice@example.com")
    shown = keyed.run("erase", "--check", str(statement))
    assert shown.out.splitlines()[-1].startswith("the erasure of secret-work with its key")
    content = json.loads(statement.read_text())
    content["data"]["erasure"]["reason"] = "another"
    statement.write_text(json.dumps(content))
    assert "was changed after it was signed" in keyed.run("erase", "--check", str(statement)).err
    del content["signature"]
    content["data"]["key"]["id"] = "0" * 16
    statement.write_text(json.dumps(content))
    wrong = keyed.run("erase", "--check", str(statement))
    assert (wrong.code, "does not hold" in wrong.out) == (1, True), wrong
    content["data"]["name"] = content["data"]["key"]["id"] = "\x1b]52;c;aGk=\x07"
    statement.write_text(json.dumps(content))
    shown = keyed.run("erase", "--check", str(statement))
    assert ("\x1b" in shown.out + shown.err, "\\e]52" in shown.out) == (False, True), shown


def test_what_cannot_be_certified_is_not_erased(keyed: Command, tmp_path: Path):
    """A session without a key, single events, a file that exists, no statement at all."""
    taken = tmp_path / "taken"
    taken.write_text("mine")
    keyed.ok("open", "work")
    erase = ("--reason", "x", "--yes", "--certify")
    for words, told in (
        (("older", "--all", *erase, str(tmp_path / "s")), "has no key of its own"),
        (("work", "--position", "1", *erase, str(tmp_path / "s")), "--certify goes with --all"),
        (("work", "--all", *erase, str(taken)), "already exists"),
        (("work", "--all", *erase, str(tmp_path / "no" / "s")), "there is no directory"),
        (("--check", str(taken)), "is not a statement of an erasure"),
    ):
        done = keyed.run("erase", *words)
        assert (done.code, told in done.err) == (2, True), (words, done)
    assert {row["status"] for row in data(keyed, "list")} == {"open"}
    assert taken.read_text() == "mine"


def test_a_restored_backup_does_not_bring_an_erased_session_back(keyed: Command, tmp_path: Path):
    """The session is erased in it, too; verification and doctor find nothing wrong."""
    keyed.ok("open", "work", "--objective", "find the leak")
    keyed.ok("backup", str(tmp_path / "backup.db"))
    keyed.ok("erase", "work", "--all", "--reason", "asked", "--yes")
    done = data(keyed, "backup", "--restore", str(tmp_path / "backup.db"), "--yes")
    assert done["erased"] == ["work"]
    assert {row["name"]: row["status"] for row in data(keyed, "list", "--all")}["work"] == "erased"
    assert data(keyed, "verify", "--all")["ok"]
    assert "session keys" in keyed.run("doctor").out
