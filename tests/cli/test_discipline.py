"""STATE.md, the note, its check and closing, as strict as their guide says. The command runs in the test's own process."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from onrecord.surfaces.cli.main import main
from tests.waiting import until_gone

GIT = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]


class Said(NamedTuple):
    out: str
    err: str


class Here:
    """A project with its own store, and the command in it."""

    def __init__(self, place, capfd) -> None:
        self.project = place / "project"
        self.project.mkdir()
        self._capfd = capfd

    def __call__(self, *words: str, code: int = 0) -> Said:
        self._capfd.readouterr()
        status = main(words)
        told = Said(*self._capfd.readouterr())
        assert status == code, told
        return told

    def data(self, *words: str, code: int = 0) -> Any:
        return json.loads(self(*words, "--json", code=code).out)["data"]

    def commit(self, name: str, text: str, subject: str) -> str:
        (self.project / name).write_text(text)
        for words in (["add", "-A"], ["commit", "-q", "-m", subject]):
            subprocess.run([*GIT, *words], cwd=self.project, check=True)
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=self.project, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    @property
    def state(self) -> Any:
        return (self.project / "STATE.md").read_text()


@pytest.fixture
def here(tmp_path, monkeypatch, capfd) -> Here:
    made = Here(tmp_path, capfd)
    monkeypatch.chdir(made.project)
    monkeypatch.setenv("ONRECORD_STORE", str(tmp_path / "store.db"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.delenv("ONRECORD_SESSION", raising=False)
    monkeypatch.delenv("ONRECORD_AGENT", raising=False)
    return made


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


# STATE.md around a run


def test_running_stands_in_the_files_before_the_process_starts(here):
    """The command itself reads `Status: RUNNING` in STATE.md and NOTE.md; right after it, both have the outcome."""
    here("open", "l2", "--profile", "research", "--objective", "Does L2 help on small data")
    look = "import shutil; shutil.copy('STATE.md', 'seen.md'); shutil.copy('.onrecord/NOTE.md', 'seen-note.md')"
    here("run", "--", *python(look))
    assert "attempt 1 Status: RUNNING: `" in (here.project / "seen.md").read_text()
    assert "attempt 1 running; unresolved" in (here.project / "seen-note.md").read_text()
    assert "attempt 1 Status: SUCCESS: `" in here.state
    here("run", "--", *python("raise SystemExit('it broke')"), code=1)
    assert "Status: FAILED" in here.state


@pytest.mark.parametrize("look", [["continue"], ["show"], ["attempt", "list"]])
def test_a_lost_run_is_lost_in_state_md(here, look):
    """A run whose processes are gone is LOST in STATE.md and NOTE.md after the next command, not RUNNING."""
    here("open", "l2", "--profile", "research", "--objective", "Does L2 help on small data")
    dying = (
        "import os, signal, sys; from onrecord.surfaces.cli.main import main; "
        "from onrecord.work.running import SuspendedCommand; "
        "SuspendedCommand.go = lambda it, **_o: print(it.pid, flush=True) or os.kill(os.getpid(), signal.SIGKILL); "
        "main(sys.argv[1:])"
    )
    killed = subprocess.run([*python(dying), "run", "--", "true"], check=False, stdout=subprocess.PIPE)
    assert "Status: RUNNING" in here.state, "it was written before the process started"
    until_gone(int(killed.stdout))  # the suspended process ends with the one that suspended it
    here(*look)
    assert "attempt 1 Status: LOST: `true`" in here.state
    assert "attempt 1 lost; unresolved" in (here.project / ".onrecord" / "NOTE.md").read_text()


def test_a_long_command_hides_neither_error_nor_fix(here):
    """With a command of 3,000 characters, error and fix are still in STATE.md, brief, note and report."""
    here("open", "l2", "--profile", "research", "--objective", "Does L2 help on small data")
    here("run", "--", *python(f"raise SystemExit('Singular matrix') # {'x' * 3_000}"), code=1)
    here("attempt", "correct", "1", "--fix", "l2 above zero")
    for text in (here.state, here("note").out, here("note", "--format", "brief").out):
        assert "error: Singular matrix" in text
        assert "fix: l2 above zero" in text


# The note


def test_the_note_says_where_everything_is(here, monkeypatch):
    """Brief, note, STATE.md and report have reproduction, branch, revision and new commits; the note has cited evidence."""
    subprocess.run([*GIT, "init", "-q"], check=True)
    here.commit("invites.py", "def probe(): ...\n", "begin")
    here("open", "bug", "--profile", "bugfix", "--objective", "Fix the intermittent 403 after an invite")
    early = here.commit("early.py", "1\n", "Before anything else")
    here("reproduction", "pytest -k invite", "--rate", "3/10")
    here("evidence", "run", "--id", "run-a", "--", *python("print(403)"))
    here("evidence", "file", "--id", "file-b", "invites.py:1-1")
    here("evidence", "add", "https://ci.example.org/17", "--kind", "url", "--id", "url-c", "--text", "three of ten")
    here("evidence", "run", "--id", "run-unused", "--", "true")
    assert "run-unused: captured" in here.state, "every command that records something renders the file"
    here("finding", "state", "The middleware is the cause", "-l", "rejected", "-e", "run-a", "-e", "url-c")
    here("finding", "state", "The row is written late", "-l", "verified", "-e", "file-b", "--on", "invites.py")
    here("finding", "state", "The test database is shared", "-l", "blocked")
    second = here.commit("invites.py", "def probe(): return 200\n", "Write the row first")
    brief, note = here("note", "--format", "brief").out, here("note").out
    for text in (brief, note, here.state, here("continue").out):
        assert f"branch main at {second[:10]}" in text
        assert "pytest -k invite" in text
    for text in (brief, note, here("continue").out):
        assert f"{second[:10]} Write the row first (invites.py)" in text
    assert f"{early[:10]} Before anything else (early.py)" in note
    outside = here.project.parent / "elsewhere"
    outside.mkdir()
    subprocess.run([*GIT, "init", "-q"], cwd=outside, check=True)
    subprocess.run([*GIT, "commit", "-q", "--allow-empty", "-m", "Another repository"], cwd=outside, check=True)
    monkeypatch.chdir(outside)
    assert f"branch main at {second[:10]}" in here("note", "bug", "--project", str(here.project)).out
    monkeypatch.chdir(here.project)
    listed = note.partition("## Evidence")[2]
    assert "- run-a✓: run " in listed
    assert "- file-b✓: file invites.py:1-1" in listed
    assert "- url-c: url https://ci.example.org/17: three of ten" in listed
    assert "run-unused" not in note + here("note", "--format", "pr").out
    assert "https://ci.example.org/17" in here("note", "--format", "pr").out
    for heading, entry in (("Blocked", "f3: "), ("Stale", "f2: "), ("Evidence", "run-unused: captured")):
        assert entry in here.state.partition(f"\n# {heading}\n")[2].partition("\n# ")[0]


def test_the_research_note_has_results_learnings_and_metrics(here):
    """Written sections and metrics are in the note, which points to STATE.md; no figure of saved tokens is invented."""
    here("open", "l2", "--profile", "research", "--objective", "Does L2 help on small data")
    here("run", "--metric-pattern", r"mse=mse (\S+)", "--", "echo", "mse 0.0663")
    here("section", "Experiment Results", "--text", "mse 0.0663 with l2 = 0.1 (attempt 1)")
    here("section", "Learnings", "--text", "Seeds matter more than depth")
    note = here("note").out
    for part in ("Experiment Results: mse 0.0663 with l2 = 0.1", "Learnings: Seeds matter", "mse=0.0663", "STATE.md"):
        assert part in note
    told = here("continue").out
    assert "Already done: 1 attempt (" in told
    assert "token" not in told


def test_a_failed_fix_is_in_the_brief(here):
    """What failed, its error and the fix that did not help are in the brief, the note and the report."""
    here("open", "bug", "--objective", "Fix the intermittent 403 after an invite")
    probe = python("raise SystemExit('403: membership row missing')")
    here("run", "--", *probe, code=1)
    here("run", "--fix", "raise the session timeout", "--", *probe, code=1)
    here("run", "--", "true")
    for words in (["note", "--format", "brief"], ["note"], ["continue"]):
        text = here(*words).out
        assert "403: membership row missing" in text
        assert "did not help: raise the session timeout" in text


def test_continue_names_what_is_reused_and_diff_covers_it_all(here):
    """The report begins with the reproduction; a diff has phases, sections, attempts, evidence, challenges, milestones, title."""
    here("open", "bug", "--profile", "bugfix", "--objective", "Fix the intermittent 403 after an invite")
    here("reproduction", "pytest -k invite", "--rate", "3/10")
    start = here.data("show")["position"]
    here("phase", "enter", "Reproduce")
    here("phase", "finish")
    here("section", "Fix", "--text", "The row is written first")
    here("run", "--", "true")
    proof = here.data("evidence", "list")[0]["id"]
    here("finding", "state", "The row is written late", "-l", "verified", "-e", proof)
    here("finding", "challenge", "f1", "It also fails with the row there", "-e", proof)
    here("reached", "root-cause", "--finding", "f1")
    here("title", "403 after an invite")
    changed = {one["what"] for one in here.data("diff", str(start))["changes"]}
    assert {
        "phase Reproduce", "section Fix", "attempt 1", f"evidence {proof}", "challenge of f1", "milestone root_cause", "title",
    } <= changed  # fmt: skip
    told = here.data("continue")
    assert told["reused"][0] == "reproduction: pytest -k invite (rate 3/10)"
    assert (
        "Reuse the reproduction:\n- pytest -k invite (rate 3/10)\nVerified (reuse it):\n- f1:" in here("continue").out
    )


# Titles


def test_titles_agree_everywhere(here):
    """`title`, the Session Title of STATE.md and `list` are the same text, whichever was written; an objective keeps it."""
    here("open", "l2", "--profile", "research", "--objective", "Does L2 help on small data")
    here("section", "Session Title", "--text", "L2 on small data")
    assert here.data("list")[0]["title"] == "L2 on small data"
    here("title", "Ridge on small data")
    here("objective", "Does ridge regression help on fifty rows")
    assert here.data("list")[0]["title"] == "Ridge on small data"
    assert "Ridge on small data" in here.state.partition("\n# Session Title\n")[2].partition("\n# ")[0]


# Check and close


@pytest.mark.parametrize("text", ["x", "banana", "looks like a race", "403", "foo bar baz", "maybe something"])
def test_empty_words_are_not_usable(here, text):
    """An objective, reproduction, next action or finding that says nothing leaves the note insufficient, field by field."""
    here("open", "bug", "--objective", text)
    here("reproduction", text, "--rate", "3/10")
    here("next", text)
    here("evidence", "add", "somewhere", "--kind", "log", "--id", "log-a")
    here("finding", "state", text, "-l", "verified", "-e", "log-a")
    found = here.data("note", "check", code=1)
    assert (found["grade"], found["closable"]) == ("insufficient", False)
    fields = [gap["field"] for gap in found["gaps"] if gap["essential"]]
    assert fields == ["objective", "next action", "reproduction", "verified", "rejected"]
    here("note", "none", "rejected", "--why", "x", code=2)


def test_check_and_close_name_the_same_gaps_with_a_command_each(here):
    """What `note check` calls essential is what `close` refuses for; the refusal has every command, and they parse."""
    here("open", "bug", "--objective", "Fix the intermittent 403 after an invite")
    here("finding", "state", "It is probably the cache")
    gaps = [gap for gap in here.data("note", "check", code=1)["gaps"] if gap["essential"]]
    refused = here("close", "bug", code=10).err
    assert f"its note lacks: {', '.join(gap['field'] for gap in gaps)}" in refused
    for gap in gaps:
        assert f"`{gap['clear']}`" in refused
        here(*shlex.split(gap["clear"].replace('"..."', '"The row is written late"'))[1:])
    here("close", "bug")


def test_a_fixed_bug_closes_with_two_commands(here):
    """After the cause is verified, `reached fix` and `close` are enough: no next action, nothing rejected is needed."""
    (here.project / "invites.py").write_text("raise SystemExit('403')\n")
    here("open", "bug", "--profile", "bugfix", "--objective", "Fix the intermittent 403 after an invite")
    here("reproduction", "python invites.py", "--rate", "10/10")
    here("evidence", "run", "--id", "run-a", "--", sys.executable, "invites.py")
    here("finding", "state", "The row is written late", "-l", "verified", "-e", "run-a", "--on", "invites.py")
    here("reached", "root-cause", "--finding", "f1")
    (here.project / "invites.py").write_text("print(200)\n")
    here("evidence", "run", "--id", "run-b", "--", sys.executable, "invites.py")
    here("reached", "fix", "--finding", "f1", "-e", "run-b")
    here("close")


# Phases, opening, running


def test_finishing_a_phase_enters_the_next(here):
    """`open --profile` says what it wrote and what comes first; `phase finish` enters the next phase and says what it needs."""
    told = here("open", "bug", "--profile", "bugfix", "--objective", "Fix the intermittent 403 after an invite").err
    assert str(here.project / "STATE.md") in told
    assert "the first phase is Reproduce, which needs Reproduction: `onrecord phase enter Reproduce`" in told
    here("phase", "enter", "Reproduce")
    here("reproduction", "pytest -k invite", "--rate", "3/10")
    assert "entered Investigate, which needs Verified, Next Action" in here("phase", "finish").out
    assert [one["status"] for one in here.data("phase", "list")["phases"]][:3] == ["DONE", "in progress", "pending"]


def test_a_run_without_a_session_offers_one(here):
    """The error of a run without a session is the command that opens one for it, and that command works."""
    for _store in ("missing", "empty"):
        refused = here("run", "--", "echo", "a b", code=3 if _store == "missing" else 4).err
        assert "hint: open a session for it: `onrecord run --open echo -- echo 'a b'`" in refused
        if _store == "missing":
            here("open", "other")
            here("close", "other")
    here("run", "--open", "echo", "--", "echo", "a b")
    here("run", "--open", "echo", "--", "echo", "a b")
    assert [one["number"] for one in here.data("attempt", "list", "--session", "echo")] == [1, 2]


@pytest.mark.parametrize(
    "words", [["show"], ["continue"], ["finding", "list"], ["finding", "show", "f1"]], ids=" ".join
)
def test_what_shows_findings_surveys_first(here, words):
    """A finding is stale where it is shown, without a `survey` before it."""
    (here.project / "cache.py").write_text("size = 1\n")
    here("open", "bug", "--objective", "Fix the intermittent 403 after an invite")
    here("evidence", "run", "--id", "run-a", "--", "true")
    here("finding", "state", "The cache is too small", "-l", "verified", "-e", "run-a", "--on", "cache.py")
    (here.project / "cache.py").write_text("size = 2\n")
    assert "stale" in here(*words).out.casefold()


# Compaction


@pytest.fixture
def summariser(here) -> Callable[[str], str]:
    """Makes a command that answers as told; it writes what it read to a file."""

    def make(answer: str) -> str:
        script = here.project.parent / "summarise.py"
        script.write_text(
            "import sys\nread = sys.stdin.read()\nopen(sys.argv[1], 'a').write(read)\n"
            f"print({answer!r} if 'KIND' in read else 'They looked at the cache.')\n"
        )
        return shlex.join([sys.executable, str(script), str(here.project.parent / "read it.txt")])

    return make


def test_compaction_by_a_command_proposes_and_records_nothing_unasked(here, summariser):
    """The command reads the transcript, its summary covers it; proposals cite messages, and only accepted ones are facts."""
    here("open", "bug")
    here("record", "--user", "Why the 403?", "--assistant", "The cache is cold; use the row instead.")
    here("record", "--user", "And now?", "--assistant", "$(touch pwned) done")
    turns = [event["position"] for event in here.data("log", "--kind", "turn.recorded")["events"]]
    command = summariser(
        f"decision [{turns[0]}] Use the row instead of the cache\nfinding [{turns[0]},{turns[1]}]: The cache is cold\n"
        "decision [999] Invented\nSure, here are the facts"
    )
    made = here.data("compact", "--with", command, "--propose")
    assert (made["turns"], made["summary"]) == (2, "They looked at the cache.")
    assert "Why the 403?" in (here.project.parent / "read it.txt").read_text()
    assert not (here.project / "pwned").exists()
    kinds = {event["kind"] for event in here.data("log")["events"]}
    assert not kinds & {"decision.made", "finding.stated"}, "nothing is recorded unasked"
    assert [one["text"] for one in here.data("compact", "list")["proposals"]] == [
        "Use the row instead of the cache", "The cache is cold",
    ]  # fmt: skip
    here("compact", "accept", "2")
    here("compact", "accept", "2")
    (stated,) = here.data("log", "--kind", "finding.stated")["events"]
    assert (stated["data"]["cites"], stated["because"]) == (turns, turns[0])
    assert here.data("log", "--kind", "decision.made")["events"] == []
    assert here.data("compact", "list")["proposals"][0]["state"] == "proposed"


def test_a_summariser_that_fails_changes_nothing(here):
    """A missing command, an exit code or no output is an error with the reason; transcript and facts stay as they were."""
    here("open", "bug")
    here("record", "--user", "Why the 403?", "--assistant", "Looking.")
    for command, why in (("no-such-program", "command not found"), (shlex.join(python("exit(3)")), "exit code 3")):
        assert why in here("compact", "--with", command, code=1).err
    assert here("compact", code=2).err
    assert "transcript.compacted" not in here("log").out
    here("compact", "--text", "They looked.")
