"""Lists can be read in a narrow window: what identifies a row and its status are never cut."""

import json
import re

import pytest

from tests.cli.conftest import Command

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
WINDOWS = (60, 80, 120)
LONG = "fix-intermittent-403-after-invite-acceptance-on-the-read-replica"
"""A session name of 64 characters, the maximum."""
SHORT = "fix-login"
AGENT = "reviewer-of-everything"
HOSTILE = "\x1b[31mred\u202eevil\u200b \x07 tab\there 漢字" * 4
CLAIM = "The membership row is written by the primary but the first request after acceptance reads from a replica"


@pytest.fixture(scope="session")
def story(tmp_path_factory, bytecode) -> Command:
    """Long names, long titles, many findings, attempts with long commands, and hostile text."""
    command = Command(tmp_path_factory.mktemp("story"), bytecode)
    command.environment["ONRECORD_SESSION"] = LONG
    command.ok("open", LONG, "--objective", "Fix the intermittent 403 that some invited users see " * 3, "-p", "bugfix")
    command.ok("open", SHORT, "--objective", HOSTILE)
    command.ok("hold", SHORT, "--reason", "incident 7")
    said = f"{'nothing to see here, ' * 20}then the membership row appears late and {'much more follows ' * 20}"
    items = [{"role": "user", "content": said}, {"role": "assistant", "content": HOSTILE}]
    command.ok("record", "--agent", AGENT, stdin=json.dumps(items))
    command.ok("decide", f"Read from the primary. {CLAIM}", "--agent", AGENT)
    command.ok(
        "attempt", "start", "--", "pytest", "-k", "invite and not slow", "--count", "10", "--" + "long-option-" * 8
    )
    command.ok("attempt", "fail", "1", "--error", f"AssertionError: 403 {HOSTILE}", "--fix", CLAIM)
    command.ok("attempt", "start", "--", "make", "train")
    command.ok("attempt", "succeed", "2", "--metric", "loss=0.25", "--metric", "accuracy=0.875")
    command.ok("run", "--", "true")
    command.ok(
        "evidence", "add", "https://ci.example/runs/17/logs/" + "deep/" * 30, "--kind", "url", "--id", "url-of-ci-run"
    )
    command.ok("evidence", "add", HOSTILE, "--kind", "log", "--id", "hostile-log")
    for number in range(1, 13):
        label = ("verified", "rejected", "open", "blocked")[number % 4]
        command.ok(
            "finding", "state", f"{number}: {CLAIM}", "--label", label, "-e", "url-of-ci-run", "-e", "hostile-log"
        )
    command.ok("next", HOSTILE, "--command", f"pytest {'-k invite ' * 20}")
    return command


LISTS = {
    "overview": ([], [LONG, SHORT], ["active", "open"]),
    "list": (["list"], [LONG, SHORT], ["active", "open (on hold)"]),
    "list --all": (["list", "--all"], [LONG, SHORT], ["active", "open (on hold)"]),
    "search": (["search", "membership"], [LONG], []),
    "log": (["log"], [AGENT, "decision.made", "turn.recorded", "evidence.recorded"], []),
    "finding list": (["finding", "list"], [f"f{n}" for n in range(1, 13)], ["verified", "rejected", "open", "blocked"]),
    "attempt list": (["attempt", "list"], ["1", "2"], ["failed", "succeeded"]),
    "evidence list": (["evidence", "list"], ["url-of-ci-run", "hostile-log"], ["asserted"]),
    "phase": (["phase"], ["Reproduce"], ["pending"]),
    "profile": (["profile"], ["research", "bugfix", "build"], []),
    "profile show": (["profile", "show", "bugfix"], ["Reproduce"], []),
    "note check": (["note", "check"], ["reproduction", '   onrecord reproduction "..." --rate 3/10'], []),
    "verify": (["verify", "--all"], [LONG, SHORT], ["verified"]),
    "doctor": (["doctor"], ["versions", "permissions", "lanes"], ["✓"]),
    "sweep": (["sweep", "--dry-run"], [], []),
    "diff": (["diff", "1"], ["decision"], []),
    "setup": (["setup", "claude", "--dry-run"], ["claude"], ["would be added"]),
    "store": (["store", "status"], ["schema version"], []),
    "attempt show": (["attempt", "show", "1"], ["error"], ["failed"]),
    "finding show": (["finding", "show", "f1"], ["f1"], ["rejected"]),
    "show": (["show"], [LONG], ["active"]),
}


def shown_lines(command, words, columns):
    shown = COLOUR.sub("", command.on_terminal(*words, columns=columns).out)
    return [line for line in re.split(r"[\r\n]+", shown) if not line.startswith(("note: ", "+", "-", "@"))]


def cells(line):
    """The width of a line on a terminal, where a wide letter takes two cells."""
    from rich.cells import cell_len

    return cell_len(line)


@pytest.mark.parametrize("columns", WINDOWS)
@pytest.mark.parametrize("name", LISTS)
def test_keys_and_statuses_are_never_cut(story, name, columns):
    """In a window of 60, 80 or 120 columns each key and each status is there in full, and no line is too long."""
    words, keys, statuses = LISTS[name]
    lines = shown_lines(story, words, columns)
    ours = [line for line in lines if not line.startswith("   onrecord ")]  # a command is left to the terminal to wrap
    assert max(map(cells, ours)) <= columns, "\n".join(lines)
    folded = re.sub(r"\s+", "", "".join(lines))
    for key in keys:
        whole = [line for line in lines if key in line]
        assert whole or (len(key) > columns - 16 and key in folded), (key, lines)
    for status in statuses:
        assert any(re.search(rf"(^|\s){re.escape(status)}(\s|$|,)", line) for line in lines), (status, lines)


@pytest.mark.parametrize("columns", WINDOWS[1:])
def test_the_evidence_of_an_attempt_can_be_cited(story, columns):
    """From 80 columns on, a list of attempts has the id of the captured output on one line: it is what a person copies."""
    (captured,) = (one["evidence"] for one in story.data("attempt", "list", kind="attempts") if one.get("captured"))
    assert any(captured in line for line in shown_lines(story, ["attempt", "list"], columns))


@pytest.mark.parametrize("columns", WINDOWS)
def test_the_matched_word_of_a_search_is_visible(story, columns):
    """However long the text before it and however narrow the window, every result shows the word that matched."""
    lines = shown_lines(story, ["search", "membership"], columns)
    found = [line for line in lines if re.search(r"\s\d+  [a-z]", line)]
    assert len(found) >= 10
    for line in found:
        assert "membership" in line, lines
    for line in shown_lines(story, ["search", "replica"], columns):
        assert "replica" in line or not re.search(r"\s\d+  \S+\.", line), line


@pytest.mark.parametrize("columns", WINDOWS)
def test_hostile_text_does_not_break_a_list(story, columns):
    """Escape sequences and bidi marks in a title, a claim or an error do nothing and keep the columns in place."""
    for words in (["list"], ["attempt", "list"], ["evidence", "list"], []):
        shown = story.on_terminal(*words, columns=columns, env={"NO_COLOR": "1"}).out
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert "\x07" not in shown


@pytest.mark.parametrize("columns", WINDOWS)
def test_the_status_of_a_row_stands_under_its_heading(story, columns):
    """The columns of a list are aligned: every status starts where its heading does; a wrapped cell continues under its own."""
    lines = shown_lines(story, ["finding", "list"], columns)
    place = lines[0].index("label")
    rows = [line for line in lines[1:] if line.startswith("f")]
    assert len(rows) == 12
    for row in rows:
        assert row[place:].startswith(("verified", "rejected", "open", "blocked")), lines
    proof = lines[0].index("evidence")
    further = [line for line in lines[1:] if line.strip() and line not in rows]
    assert {line.strip() for line in further} <= {"hostile-log"}, lines
    assert all(line[proof:] == line.strip() for line in further), lines


def test_a_wide_window_shows_more_of_the_text(story):
    """Long columns shrink first: the claim gets what the window has left."""
    narrow, wide = (shown_lines(story, ["finding", "list"], columns) for columns in (60, 120))
    long = re.search(r"1: The .*?…", "\n".join(wide))
    short = re.search(r"1: .*?…", "\n".join(narrow))
    assert long
    assert short
    assert len(long.group()) > len(short.group())


def test_one_is_singular(command):
    """Commands print `1 session` for one and `2 sessions` for two."""
    command.ok("open", "a")
    command.ok("finding", "state", "No access to the logs", "--label", "blocked")
    assert "1 session needs you" in command.on_terminal().out
    assert "\t2 events\t" in command.ok("verify", "a")
    command.ok("open", "b")
    assert "\t1 event\t" in command.ok("verify", "b")
    command.ok("finding", "state", "No access here either", "--label", "blocked", "--session", "b")
    assert "2 sessions need you" in command.on_terminal().out


def test_nothing_found_is_said_in_a_sentence(story):
    """An empty list says so, and names the command that shows more."""
    assert "no matching sessions; `onrecord list --all`" in story.on_terminal("list", "--status", "erased").out
    assert "no matches; add `--all`" in story.run("search", "nonexistentword").err


def test_a_row_without_a_key_belongs_to_the_one_above_it(capsys, monkeypatch):
    """Where keys have lines of their own, a row that continues the one above it, as a problem of `verify` does, is printed too."""
    from onrecord.surfaces.cli.shared.pretty import print_table

    monkeypatch.setenv("COLUMNS", "60")
    rows = [[LONG, "damaged", "26 events", "553eaa8c", ""], ["", "hash", "position 7", "", "the chain is broken here"]]
    print_table(("#session", "!chain", "!read", "last hash", "~"), rows)
    shown = capsys.readouterr().out
    assert LONG[:40] in shown
    assert "hash" in shown
    assert "the chain is broken" in shown
