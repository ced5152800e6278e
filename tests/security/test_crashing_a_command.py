"""An input that no one meant wants a command to crash, to hang, or to print an escape sequence."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from onrecord.errors import NotFound
from onrecord.machine.files import refuse_special, write_file
from onrecord.vendors.known import load
from onrecord.vendors.port import VENDORS, Vendor
from onrecord.vendors.transcripts import Location
from tests.vendors.homes import opencode_database


@pytest.fixture
def working(desk):
    desk.ok("open", "work", "--no-input")
    return desk


def test_no_input_is_an_internal_error(working, tmp_path):
    """Twenty digits, deep JSON, deep TOML and bytes that are no text are usage errors, never exit 70."""
    deep, bad = tmp_path / "deep.toml", tmp_path / "bad.json"
    deep.write_text("a = " + "[" * 50_000 + "]" * 50_000)
    bad.write_text("[" * 100_000)
    digits = "9" * 20
    for words in (
        ("log", "--limit", digits), ("search", "x", "--limit", digits), ("profile", "check", str(deep)),
        ("team", "up", str(deep)), ("verify", "--checkpoint", str(bad)),
    ):  # fmt: skip
        done = working.run(*words)
        assert done.code == 2, (words, done)
        assert "Traceback" not in done.err
    done = working.run("record", stdin="[" * 100_000)
    assert (done.code, "nested too deeply" in done.err) == (2, True), done
    assert working.run("log", "--limit", "3").code == 0, "the control"


def test_a_pipe_without_a_writer_hangs_no_command(working, tmp_path):
    """A named pipe where a file is expected is refused at once; a regular file is read."""
    pipe, file = tmp_path / "pipe", tmp_path / "text"
    os.mkfifo(pipe)
    file.write_text("x")
    for words in (
        ("profile", "check", str(pipe)), ("team", "up", str(pipe)), ("section", "Notes", "--file", str(pipe)),
        ("verify", "--checkpoint", str(pipe)), ("import", str(pipe)),
    ):  # fmt: skip
        done = working.run(*words)
        assert done.code not in (0, 70), (words, done)
    for told, path in (
        ("is not a regular file", pipe), ("is a directory, not a file", tmp_path), ("does not exist", tmp_path / "none"),
    ):  # fmt: skip
        assert f"{path} {told}" in working.run("import", str(path)).err
        assert f"{path} {told}" in working.run("backup", "--restore", str(path)).err
    refuse_special(file)
    with pytest.raises(OSError, match="not a regular file"):
        refuse_special(pipe)


def test_a_pipe_as_settings_hangs_no_command(working, tmp_path):
    """A named pipe or a device in place of the settings is one clear error for every command; no settings are none."""
    pipe = tmp_path / "config.toml"
    os.mkfifo(pipe)
    with pytest.raises(subprocess.TimeoutExpired):  # the control: who opens it waits for ever
        subprocess.run([sys.executable, "-c", f"open({str(pipe)!r})"], timeout=1, check=False)
    for place in (pipe, Path("/dev/zero"), tmp_path):
        for words in (("list",), ("show",), ("decide", "x"), ("web", "--port", "0")):
            done = working.run(*words, env={"ONRECORD_CONFIG": str(place)})
            assert f"{place} is not a regular file" in done.err, (words, done)
            assert done.code not in (0, 70), (words, done)
    for none in ("/dev/null", str(tmp_path / "none")):
        assert working.run("list", env={"ONRECORD_CONFIG": none}).code == 0


ID = "aaaaaaaa-0000-4000-8000-0000000000ad"
RECORDS = {
    "codex": {"type": "session_meta", "timestamp": "2026-11-15T06:36:42Z", "payload": {"id": ID, "cwd": "/"}},
    "cursor": {"role": "user", "message": {"content": "x"}},
}


def placed(of: Vendor, home: Path, env: dict[str, str]) -> tuple[str, Path]:
    """A conversation where its agent keeps it: its id, and its file."""
    if of.name == "opencode":
        database = home / ".local" / "share" / "opencode" / "opencode.db"
        opencode_database(database, rows=True)
        return "ses_e22017382ffeyL0CsXQZI1PEZH", database
    record = json.dumps(RECORDS.get(of.name, {"type": "user", "sessionId": ID, "kind": "main"}))
    if of.name == "cursor":  # it restores none, but it has some
        place = home / ".cursor" / "projects" / "x" / "agent-transcripts" / ID / f"{ID}.jsonl"
        place.parent.mkdir(parents=True)
        place.write_text(f"{record}\n")
        return ID, place
    return ID, Path(of.put_back(Location(ID, "", "", str(home)), iter([record]), env, str(home)).path)


@pytest.mark.parametrize("name", VENDORS)
def test_a_pipe_as_a_transcript_hangs_no_lookup(tmp_path, name):
    """Where a conversation's file became a named pipe, `adopt`, `import` and `resume` say that there is none; a file they find."""
    of, env = load(name), {"HOME": str(tmp_path)}
    id_, place = placed(of, tmp_path, env)
    there = of.find(id_, env)
    assert there is not None, "the control: the file"
    assert of.read(there).entries
    place.unlink()
    os.mkfifo(place)
    known = [there, of.find(id_, env), of.location_at(place, env), *of.locations(env)]
    for found in filter(None, known):
        with pytest.raises(NotFound):
            of.read(found)


@pytest.mark.parametrize("name", VENDORS)
def test_a_pipe_as_an_agents_settings_hangs_no_setup(working, name):
    """Every file that setup would change is a named pipe: each is left alone by name, and the command ends."""
    (known,) = working.data("setup", "--print", name, kind="setup_text")["vendors"]
    made = {Path(one["path"]) for one in known["files"]}
    working.ok("setup", name, "--yes")
    assert all(path.is_file() for path in made), "the control: setup writes them"
    for path in made:
        path.unlink()
        os.mkfifo(path)
    for words in (
        ("setup", name, "--yes"),
        ("setup", name, "--remove", "--yes"),
        ("doctor",),
        ("setup", "--print", name),
    ):
        done = working.run(*words)
        assert done.code != 70, (words, done)
    done = working.run("setup", name, "--yes")
    assert done.code != 0
    for path in made:
        assert f"{path}: cannot be read: not a regular file" in done.err, done


def test_a_pipe_in_a_worktree_hangs_no_command(working, tmp_path):
    """STATE.md, NOTE.md, a file of evidence, the target of a note and a project's marker: no pipe stops work on the record."""
    root = working.project
    working.ok("profile", "choose", "bugfix")
    working.ok("note", "--write")
    assert (root / ".onrecord" / "NOTE.md").exists(), "the control: they are files"
    for place in (root / "STATE.md", root / ".onrecord" / "NOTE.md"):
        place.unlink()
        os.mkfifo(place)
        done = working.run("decide", "goes on")
        assert (done.code, f"{place} is not a regular file; it was not changed" in done.err) == (0, True), done
        place.unlink()
    pipe = root / "pipe"
    os.mkfifo(pipe)
    for words in (("evidence", "file", "pipe"), ("note", "--out", "pipe"), ("note", "--out", "pipe", "--force")):
        done = working.run(*words)
        assert done.code == 2, (words, done)
    marker = root / ".onrecord" / "project"
    marker.unlink(missing_ok=True)
    os.mkfifo(marker)
    assert working.run("list").code == 0


def test_a_command_that_does_not_exist_prints_no_escape(working):
    """The name of a program is text: a control character in it is written out."""
    done = working.run("run", "--", "\x1b[31mx")
    assert (done.code, "\x1b" in done.err + done.out) == (127, False), done
    assert "\\e[31mx: command not found" in done.err


def test_what_killed_processes_left_is_removed(tmp_path: Path):
    """A part of a file that a killed process left is removed by the next write; that of a living one, the control, stays."""
    left, living = tmp_path / ".note.part-999999999", tmp_path / f".note.part-{os.getppid()}"
    other = tmp_path / ".note.part-x"
    for one in (left, living, other):
        one.touch()
    write_file(tmp_path / "note", [b"x"])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([living.name, other.name, "note"])
