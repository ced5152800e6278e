"""An input that no one meant wants a command to crash, to hang, or to print an escape sequence."""

import os
from pathlib import Path

import pytest

from onrecord.machine.files import refuse_special, write_file


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
    refuse_special(file)
    with pytest.raises(OSError, match="not a regular file"):
        refuse_special(pipe)


def test_a_command_that_does_not_exist_prints_no_escape(working):
    """The name of a program is text: a control character in it is written out."""
    done = working.run("run", "--", "\x1b[31mx")
    assert (done.code, "\x1b" in done.err + done.out) == (127, False), done
    assert "\\e[31mx: command not found" in done.err


def test_what_killed_processes_left_is_removed(tmp_path: Path):
    """A part of a file that a killed process left is removed by the next write; that of a living one stays."""
    left, living = tmp_path / ".note.part-999999999", tmp_path / f".note.part-{os.getppid()}"
    other = tmp_path / ".note.part-x"
    for one in (left, living, other):
        one.touch()
    write_file(tmp_path / "note", [b"x"])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([living.name, other.name, "note"])
