"""Sessions move between stores in one file, and whole stores are backed up and restored; tampering is refused."""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard

import onrecord
from tests.cli.conftest import Command

pytestmark = pytest.mark.every_store


@pytest.fixture
def elsewhere(tmp_path_factory, bytecode) -> Command:
    """Another machine."""
    return Command(tmp_path_factory.mktemp("elsewhere"), bytecode)


def export(command, *words):
    file = command.place / "session.onrecord"
    command.ok("export", "fix-invite-403", "--out", str(file), *words)
    return file


def rewritten(file, change):
    """The bundle with its lines changed, compressed again."""
    lines = zstandard.ZstdDecompressor().stream_reader(file.read_bytes()).read().decode().splitlines()
    changed = file.with_name("changed.onrecord")
    changed.write_bytes(zstandard.compress("".join(f"{line}\n" for line in change(lines)).encode()))
    return str(changed)


def test_a_bundle_moves_a_session(working, elsewhere):
    """Exported and imported on another machine, the session has the same events, verifies, and can continue."""
    file = export(working)
    assert file.stat().st_mode & 0o777 == 0o600
    there = elsewhere.data("import", str(file), kind="session")
    assert there["state"] == "imported"
    ours = working.data("log", kind="log")["events"]
    theirs = elsewhere.data("log", kind="log")["events"]
    assert [event["hash"] for event in theirs][: len(ours)] == [event["hash"] for event in ours]
    assert elsewhere.data("verify", kind="verification")["ok"]
    assert elsewhere.data("decide", "on the other machine", kind="event")["position"] == len(theirs) + 1


def test_an_update_brings_it_home(working, elsewhere):
    """A session that continued elsewhere comes back with --update; nothing is merged when both continued."""
    elsewhere.ok("import", str(export(working)))
    elsewhere.ok("decide", "the other store has erased")
    back = elsewhere.place / "back.onrecord"
    elsewhere.ok("export", "--out", str(back))
    working.error("import", str(back), code=10, kind="conflict")
    assert working.data("import", str(back), "--update", kind="session")["state"] == "updated"
    assert working.data("import", str(back), "--update", kind="session")["state"] == "already_imported"
    assert "the other store has erased" in working.ok("log", "fix-invite-403")
    working.ok("decide", "made here", "--session", "fix-invite-403")
    elsewhere.ok("decide", "made there")
    elsewhere.ok("export", "--out", str(back), "--force")
    working.error("import", str(back), "--update", code=10, kind="conflict")


def test_a_taken_name_needs_another(working, elsewhere):
    """Importing next to a session of the same name needs --as."""
    file = export(working)
    elsewhere.ok("open", "fix-invite-403")
    elsewhere.error("import", str(file), code=10, kind="conflict")
    assert elsewhere.data("import", str(file), "--as", "from-afar", kind="session")["name"] == "from-afar"


def test_a_fork_takes_its_history_along(working, elsewhere):
    """The bundle of a fork contains what it inherited, and verifies on another machine."""
    working.ok("fork", "fix-invite-403", "try-b", "--at", "4")
    file = working.place / "fork.onrecord"
    working.ok("export", "try-b", "--out", str(file))
    elsewhere.ok("import", str(file))
    assert elsewhere.data("verify", "try-b", kind="verification")["ok"]


TAMPERINGS = {
    "a word changed": lambda lines: [line.replace("Reproduce", "Rewritten") for line in lines],
    "an event dropped": lambda lines: lines[:3] + lines[4:],
    "the end cut off": lambda lines: lines[:-2],
    "two events swapped": lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]],
    "an event doubled": lambda lines: [*lines[:3], lines[2], *lines[3:]],
    "another heading": lambda lines: [lines[0].replace('"upto":', '"upto":1'), *lines[1:]],
    "not JSON": lambda lines: ["hello", *lines[1:]],
    "nothing": lambda _lines: [],
}


@pytest.mark.parametrize("what", TAMPERINGS)
def test_tampering_is_refused(working, elsewhere, what):
    """A bundle that was changed in any way is refused with 5, and nothing of it is kept."""
    changed = rewritten(export(working), TAMPERINGS[what])
    elsewhere.error("import", changed, code=5, kind="damaged_bundle")
    assert elsewhere.data("list", "--all", kind="sessions") == []


def test_a_cut_or_foreign_file_is_refused(working, elsewhere):
    """A file that was cut, or is not a bundle, is refused with 5; a missing one with 2."""
    file = export(working)
    file.write_bytes(file.read_bytes()[:-40])
    elsewhere.error("import", str(file), code=5, kind="damaged_bundle")
    file.write_text("PK something else")
    elsewhere.error("import", str(file), code=5, kind="damaged_bundle")
    elsewhere.error("import", "nowhere.onrecord", code=2, kind="usage")


def test_a_file_is_never_replaced_unasked(working):
    """`export` refuses to overwrite; --force replaces; no half-written file remains."""
    file = export(working)
    before = file.read_bytes()
    working.error("export", "fix-invite-403", "--out", str(file), code=2, kind="usage")
    assert file.read_bytes() == before
    export(working, "--force")
    working.error("export", "fix-invite-403", "--out", str(working.place / "no" / "x"), code=2, kind="usage")
    assert [path.name for path in working.place.iterdir() if "part" in path.name] == []


def test_exported_messages_of_gemini_have_bytes_as_text(working):
    """Signatures and images are bytes for Gemini's SDK; exported they are base64 text, as its API takes them."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAEC"}}
    signed = {"role": "model", "parts": [{"text": "seen", "thought_signature": "_-7-"}]}
    with onrecord.connect(working.url) as records:
        session = records.create("gemini")
        session.record_turn([{"role": "user", "content": [image]}, signed])
    made = json.loads(working.ok("export", session.id, "--format", "messages", "--dialect", "gemini"))
    assert made[0]["parts"] == [{"inline_data": {"mime_type": "image/png", "data": "AAEC"}}]
    assert made[1]["parts"][0]["thought_signature"] == "/+7+"


def test_export_speaks_other_formats(working):
    """The format jsonl has the events, messages the transcript in a partner's dialect, markdown a readable text."""
    events = [json.loads(line) for line in working.ok("export", "--format", "jsonl").splitlines()]
    assert events == working.data("log", kind="log")["events"]
    roles = {}
    for dialect in ("neutral", "openai", "openai-responses", "anthropic", "gemini"):
        messages = json.loads(working.ok("export", "--format", "messages", "--dialect", dialect))
        roles[dialect] = [message.get("role") or message["type"] for message in messages]
    assert roles == {
        "neutral": ["user", "assistant", "tool"], "openai": ["user", "assistant", "tool"],
        "anthropic": ["user", "assistant", "user"], "gemini": ["user", "model", "user"],
        "openai-responses": ["user", "assistant", "function_call", "function_call_output"],
    }  # fmt: skip
    text = working.ok("export", "--format", "markdown")
    assert "## Transcript" in text
    assert "3 failed\n" in text.partition("#### ")[2]
    assert working.data("export", "--format", "markdown", kind="export")["content"] == text
    file = working.place / "out.onrecord"
    assert working.data("export", "--out", str(file), kind="export")["bytes"] == file.stat().st_size
    working.error("export", "--dialect", "openai", code=2, kind="usage")


def test_a_bundle_may_go_through_a_pipe(working, elsewhere):
    """Piped, `export` writes the bundle itself."""
    done = subprocess.run(
        [sys.executable, "-m", "onrecord", "export"], cwd=working.project, env=working.environment, capture_output=True,
        check=True,
    )  # fmt: skip
    file = elsewhere.place / "piped.onrecord"
    file.write_bytes(done.stdout)
    assert elsewhere.data("import", str(file), kind="session")["state"] == "imported"


@pytest.mark.on_file
def test_backup_and_restore(working):
    """A backup is a complete store; restored, it is as it was, and the previous store is kept next to it."""
    file = working.place / "monday.db"
    made = working.data("backup", str(file), kind="backup")
    assert made["bytes"] == file.stat().st_size
    assert file.stat().st_mode & 0o777 == 0o600
    working.ok("decide", "after the backup")
    restored = working.data("backup", "--restore", str(file), "--yes", kind="restore")
    assert (restored["sessions"], restored["state"]) == (1, "restored")
    assert "after the backup" not in working.ok("log")
    assert "after the backup" in working.ok("log", "fix-invite-403", "--store", restored["aside"])
    assert working.data("verify", "--all", kind="verification")["ok"]
    assert working.data("decide", "life goes on", kind="event")["state"] == "recorded"
    assert sorted(path.name for path in working.place.glob("monday*")) == ["monday.db"]


@pytest.mark.on_file
def test_a_backup_replaces_no_file_unasked(working):
    """`backup` refuses an existing file; --force replaces it."""
    file = working.place / "b.db"
    file.write_text("mine")
    working.error("backup", str(file), code=2, kind="invalid_input")
    assert file.read_text() == "mine"
    working.ok("backup", str(file), "--force")
    assert working.data("list", "--store", str(file), kind="sessions")


@pytest.mark.on_file
def test_a_file_goes_into_a_directory_that_exists(working):
    """Neither `backup` nor `export` makes directories: both name the command that does, and it works when typed."""
    missing = working.place / "not yet" / "here"
    for words in (
        ["backup", str(missing / "b.db")],
        ["export", "fix-invite-403", "--out", str(missing / "b.onrecord")],
    ):
        error = working.error(*words, code=2, kind="usage")
        assert error["hint"] == f"`mkdir -p '{missing}'`"
        assert not missing.exists()
    subprocess.run(["/bin/sh", "-c", error["hint"].strip("`")], check=True)
    working.ok("backup", str(missing / "b.db"))


@pytest.mark.on_file
def test_a_restore_asks_and_refuses_damage(working):
    """Without a terminal a restore needs --yes; it refuses a file that is not a backup or does not verify."""
    file = working.place / "b.db"
    working.ok("backup", str(file))
    working.error("backup", "--restore", str(file), code=2, kind="usage")
    working.error("backup", "--restore", "nowhere.db", code=2, kind="usage")
    working.error("backup", str(file), "--restore", str(file), code=2, kind="usage")
    empty, junk = working.place / "empty.db", working.place / "junk.db"
    empty.write_bytes(b"")
    junk.write_bytes(os.urandom(5000))
    for bad in (empty, junk):
        working.error("backup", "--restore", str(bad), "--yes", code=5, kind="store_corrupt")
    change = (
        "import apsw, sys; apsw.Connection(sys.argv[1]).execute('UPDATE events SET by = ? WHERE key & 7 = 4', ['x'])"
    )
    subprocess.run([sys.executable, "-c", change, str(file)], check=True)
    error = working.error("backup", "--restore", str(file), "--yes", code=5, kind="damaged_log")
    assert "position 4" in error["message"]
    assert working.data("verify", "--all", kind="verification")["ok"]
    assert [path.name for path in working.store.parent.iterdir() if "restor" in path.name] == []


@pytest.mark.on_file
def test_a_store_in_use_is_not_replaced(working):
    """While another process has the store open, a restore is refused with 7 and nothing changes."""
    file = working.place / "b.db"
    working.ok("backup", str(file))
    code = "import onrecord, sys; r = onrecord.connect(); r.sessions(); print('here', flush=True); sys.stdin.read()"
    user = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=working.environment
    )
    with user:
        assert user.stdout is not None
        user.stdout.readline()
        working.error("backup", "--restore", str(file), "--yes", code=7, kind="store_busy")
        user.kill()
    assert working.data("verify", "--all", kind="verification")["ok"]
    assert working.data("backup", "--restore", str(file), "--yes", kind="restore")["state"] == "restored"


@pytest.mark.on_file
def test_a_damaged_store_can_be_replaced(working):
    """A store that cannot be opened is renamed, and the backup replaces it."""
    file = working.place / "b.db"
    working.ok("backup", str(file))
    for beside in ("-wal", "-shm"):
        working.store.with_name(working.store.name + beside).unlink(missing_ok=True)
    working.store.write_bytes(b"damaged" * 2000)
    working.error("list", code=5, kind="store_corrupt")
    restored = working.data("backup", "--restore", str(file), "--yes", kind="restore")
    assert Path(restored["aside"]).read_bytes().startswith(b"damaged")
    assert working.data("verify", "--all", kind="verification")["ok"]


@pytest.mark.on_file
def test_a_restore_into_nothing_needs_no_question(working, elsewhere):
    """Where there is no store yet, the backup becomes the store."""
    file = working.place / "b.db"
    working.ok("backup", str(file))
    assert elsewhere.data("backup", "--restore", str(file), kind="restore")["aside"] is None
    assert elsewhere.data("list", "--all", kind="sessions")[0]["name"] == "fix-invite-403"


def test_the_file_of_a_framework_is_imported_once(command, tmp_path):
    """`onrecord import openai-agents FILE` imports its conversations; again, only what is new; wrong words say so."""
    path = tmp_path / "agents.db"
    with sqlite3.connect(path) as database:
        database.executescript(
            "CREATE TABLE agent_sessions (session_id TEXT PRIMARY KEY, created_at TEXT);"
            "CREATE TABLE agent_messages (id INTEGER PRIMARY KEY, session_id TEXT, message_data TEXT);"
            "INSERT INTO agent_sessions VALUES ('talk', '2026');"
            """INSERT INTO agent_messages VALUES (1, 'talk', '{"role":"user","content":"where is the zebra"}');"""
        )
    database.close()
    assert command.ok("import", "openai-agents", f"sqlite:///{path}") == "imported: talk, 1 new item\n"
    assert command.ok("import", "openai-agents", str(path)) == "already imported: talk, 0 new items\n"
    (found,) = command.data("import", "openai-agents", str(path), kind="imports")
    assert found == {
        "conversation": "talk", "session": "talk", "new": 0, "there": 1, "fork_of": None, "gone": 0, "why_not": None,
        "framework": "openai-agents", "state": "already_imported",
    }  # fmt: skip
    assert "where is the zebra" in command.ok("show", "talk")
    command.error("import", "openai-agents", code=2, kind="usage")
    command.error("import", "openai-agents", str(path), "--as", "x", code=2, kind="usage")
