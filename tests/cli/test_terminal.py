"""On a terminal there are tables and colour where attention is needed; anywhere else there is plain data."""

import fcntl
import json
import os
import re
import signal
import struct
import subprocess
import termios
import time
from typing import IO

import pytest
from rich.cells import cell_len

from onrecord.surfaces.cli.shared.wrapping import wrapped

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def test_a_pipe_gets_plain_data(working):
    """Piped output has no escape sequence and no heading: tab-separated columns that scripts can cut."""
    out = working.ok("list")
    assert "\x1b" not in out
    name, status, title, position, at, id_, agent, vendor, prompt, needs = out.rstrip("\n").split("\t")
    assert (name, status, title) == ("fix-invite-403", "active", "Fix intermittent 403")
    assert (agent, vendor, prompt, needs) == ("main", "", "Why the 403?", "")
    assert position.isdigit()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", at)
    assert len(id_) == 26


def test_a_terminal_gets_a_table(working):
    """On a terminal the list has headings, shapes and relative times."""
    shown = COLOUR.sub("", working.on_terminal("list", columns=120).out)
    assert re.search(r"session +status +title +agent +last prompt +active", shown)
    assert re.search(r"○ +fix-invite-403 +active +Fix intermittent 403 +main +Why the 403\?", shown)
    assert "just now" in shown or "ago" in shown


def test_a_search_shows_a_fact_as_the_log_does(working):
    """On a terminal a fact is a sentence, without the ids and fingerprints around it; a pipe has the text as it is kept."""
    working.run("run", "--", "sh", "-c", "echo the replica lags; exit 3")
    shown = COLOUR.sub("", working.on_terminal("search", "replica", "lags").out)
    assert re.search(r"attempt +attempt 1 failed: .*the replica lags", shown), shown
    assert "attempt.settled" in working.ok("search", "replica", "lags")


def test_colour_only_where_attention_is_needed(working):
    """A list of sessions that are fine has no colour; one that needs a person is marked in yellow."""
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", working.on_terminal().out)
    working.ok("finding", "state", "No access to the logs", "--label", "blocked")
    shown = working.on_terminal().out
    assert re.search(r"\x1b\[[0-9;]*33m!", shown)
    assert "1 session needs you" in shown


def test_no_color_means_none(working):
    """With NO_COLOR no escape sequence is written, also on a terminal."""
    working.ok("finding", "state", "No access to the logs", "--label", "blocked")
    for words in ([], ["list"], ["show"], ["log"], ["doctor"], ["verify"]):
        assert "\x1b" not in working.on_terminal(*words, env={"NO_COLOR": "1"}).out, words
    assert "\x1b" not in working.on_terminal("list", env={"TERM": "dumb"}).out


@pytest.mark.parametrize("words", [["log"], ["list"], ["show"], ["help"]])
def test_a_terminal_that_does_not_say_its_width_counts_as_an_ordinary_one(working, words):
    """Below `script`, or in a container, a terminal may have 0 columns: nothing fails, and lines are not cut to nothing."""
    done = working.on_terminal(*words, columns=0)
    assert done.code == 0, done
    assert "error" not in done.out
    assert max(map(len, done.out.splitlines())) > 40


def test_lines_fit_the_window(working):
    """Whatever the names and texts, no line of a table is wider than COLUMNS."""
    working.ok("open", "n" * 64, "--objective", "long " * 50)
    for columns in (60, 80, 120):
        for words in ([], ["list", "--all"], ["log", "fix-invite-403"], ["verify", "--all"], ["doctor"]):
            shown = COLOUR.sub("", working.on_terminal(*words, columns=columns).out)
            assert max(map(len, re.split(r"[\r\n]+", shown))) <= columns, (columns, words, shown)


def test_a_message_is_wrapped_between_words_and_its_commands_are_whole(monkeypatch):
    """A note continues under its text; a command in backquotes stays on one line, so that it can be copied."""
    monkeypatch.setenv("COLUMNS", "40")
    text = "note: two sessions are live; `onrecord use fix-invite-403` chooses one, `onrecord list` lists both"
    lines = wrapped(text, 6).split("\n")
    assert lines == [
        "note: two sessions are live;",
        "      `onrecord use fix-invite-403`",
        "      chooses one, `onrecord list` lists",
        "      both",
    ]
    assert wrapped("error: /" + "a" * 60, 7) == "error:\n       /" + "a" * 60
    assert max(map(cell_len, wrapped("hint: " + "日本語 " * 20, 6).split("\n"))) <= 40
    monkeypatch.setenv("COLUMNS", "10")
    assert wrapped(text, 6) == text


def test_messages_are_wrapped_only_on_a_terminal(working):
    """In a pipe an error is one line and its hint another; on a terminal both fit the window."""
    done = working.run("show", "nothing-of-this-name")
    assert [line.partition(":")[0] for line in done.err.splitlines()] == ["error", "hint"]
    shown = working.on_terminal("show", "nothing-of-this-name", columns=40).out.replace("\r", "")
    assert max(map(len, shown.split("\n"))) <= 40
    assert " ".join(shown.split()) == " ".join(done.err.split())


def test_json_on_a_terminal_is_json(working):
    """--json wins over the terminal: the envelope, indented for reading, and nothing else."""
    shown = working.on_terminal("list", "--json").out
    assert shown.startswith('{\r\n  "schema_version": 1')
    assert "\x1b" not in shown


def test_a_person_is_asked_and_may_say_no(working):
    """On a terminal an erasure asks; anything but yes changes nothing and exits with 10."""
    no = working.on_terminal("erase", "--all", "--reason", "r", keys="n\n")
    assert no.code == 10
    assert "[y/N]" in no.out
    silent = working.on_terminal("erase", "--all", "--reason", "r", keys="\x04")
    assert silent.code == 10
    assert "[y/N] \r\nerror: nothing was changed" in silent.out, "the error starts on a line of its own"
    assert working.data("list", kind="sessions")[0]["status"] == "active"
    refused = working.on_terminal("erase", "--all", "--reason", "r", "--no-input")
    assert refused.code == 2
    assert working.on_terminal("erase", "--all", "--reason", "r", keys="y\n").code == 0
    assert working.data("list", kind="sessions")[0]["status"] == "erased"


def test_a_bundle_is_not_written_to_a_terminal(working):
    """`export` refuses to write compressed bytes to a terminal and says what to do."""
    shown = working.on_terminal("export")
    assert shown.code == 2
    assert "--out FILE" in shown.out


def test_follow_prints_what_comes_and_ends_with_ctrl_c(working):
    """`log --follow` prints events as they are appended; Ctrl-C ends it with 130 and without a message."""
    with working.started("log", "--follow") as process:
        first = process.stdout.readline()
        assert first.startswith("1\t")
        working.ok("decide", "while you watched")
        lines = iter(process.stdout.readline, "")
        assert any("while you watched" in line for line in lines)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=90)
    assert process.returncode == 130
    assert (out, err) == ("", "")


def test_follow_stops_at_a_position(working):
    """`log --follow --upto N` ends when N is reached."""
    end = working.data("show", kind="session")["position"] + 1
    with working.started("log", "--follow", "--jsonl", "--upto", str(end)) as process:
        working.ok("decide", "the last one")
        out, _err = process.communicate(timeout=90)
    assert process.returncode == 0
    assert len(out.splitlines()) == end


def test_a_closed_pipe_is_silent(working):
    """A reader that stops early (`| head -1`) stops the command, without a message on stderr."""
    for number in range(3):
        working.ok("record", stdin=json.dumps({"role": "user", "content": f"{number} " + "x" * 200_000}))
    with working.started("log", "--jsonl", "--limit", "0") as process:
        process.stdout.readline()
        process.stdout.close()
        process.wait(timeout=90)
        assert process.stderr.read() == ""
    assert process.returncode == 141


def test_a_closed_pipe_is_silent_in_a_real_shell(working):
    """The same in bash, with the pipe made by the shell."""
    environment = working.environment | {"PATH": f"{working_directory()}:{working.environment['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", "for i in 1 2 3; do onrecord log --jsonl; done | head -1"],
        cwd=working.project, env=environment, capture_output=True, text=True, check=False, timeout=90,
    )  # fmt: skip
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""


def working_directory() -> str:
    from tests.forking import SCRIPT

    return str(SCRIPT.parent)


def unread(pipe: IO[str]) -> int:
    """How many bytes in a pipe are still unread."""
    (found,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
    return int(found)


def test_ctrl_c_is_clean_anywhere(working):
    """Ctrl-C while a verb waits for input prints no traceback."""
    with working.started("record", stdin=subprocess.PIPE) as process:
        assert process.stdin
        process.stdin.write("a turn")
        process.stdin.flush()
        while unread(process.stdin):
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGINT)
        _out, err = process.communicate(timeout=90)
    assert process.returncode == 130
    assert err == ""
