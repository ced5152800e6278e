"""Phases, sections, features and STATE.md from the command line, each test in its own workspace."""

import re
from pathlib import Path
from typing import Any

import pytest

REGION = r"(<!-- onrecord:begin [0-9a-f]{{12}} {0} -->\n)(.*?)(\n<!-- onrecord:end [0-9a-f]{{12}} {0} -->)"


class Workspace:
    """A project with a session of the profile `research`, and its STATE.md."""

    def __init__(self, command) -> None:
        self.command = command
        self.file: Path = command.project / "STATE.md"

    @property
    def text(self) -> str:
        return self.file.read_text()

    def write(self, section: str, text: str) -> None:
        """Edit a file as an agent does."""
        found = re.subn(REGION.format(section), lambda match: match[1] + text + match[3], self.text, flags=re.DOTALL)
        assert found[1] == 1, section
        self.file.write_text(found[0])

    def events(self, kind: str) -> list[dict[str, Any]]:
        found = self.command.data("log", "--kind", kind, kind="log")["events"]
        return [event["data"] for event in found]


@pytest.fixture
def work(command) -> Workspace:
    command.ok("open", "l2", "--profile", "research", "--objective", "Does L2 help on small data")
    return Workspace(command)


def test_opening_with_a_profile_makes_state_md(work):
    """STATE.md exists at once, headed with its position; the start line is the first work log entry (E01, E02, D09)."""
    assert work.text.startswith("<!-- onrecord:state session=")
    assert "Made by onrecord from position 3 of session l2" in work.text
    kinds = [event["kind"] for event in work.command.data("log", kind="log")["events"]]
    assert kinds == ["session.opened", "profile.chosen", "worklog.written"]
    assert "Session started: profile research" in work.text
    again = work.command.data("open", "l2", "--profile", "research", kind="session")
    assert (again["state"], again["position"]) == ("already_open", 3)


def test_a_phase_from_beginning_to_end(work):
    """enter, section, finish and list; a refused finish names what is missing and how to fill it."""
    assert work.command.data("phase", "enter", kind="event")["state"] == "entered"
    error = work.command.error("phase", "finish", code=10, kind="conflict")
    assert "needs Session Title, Research Specification" in error["message"]
    work.command.ok("section", "Session Title", "--text", "L2")
    work.command.ok("section", "research specification", stdin="Does L2 help?\n")
    assert work.command.data("phase", "finish", kind="event")["state"] == "finished"
    table = work.command.data("phase", "list", kind="phases")
    assert (table["profile"], table["current"]) == ("research", "Planning")
    assert [row["status"] for row in table["phases"][:2]] == ["DONE", "in progress"]
    assert "| 0 | Motivation | DONE |" in work.text
    assert "phase 1, Planning (in progress)" in work.text
    work.command.error("phase", "enter", "Setup", code=10, kind="conflict")
    work.command.error("phase", "enter", "Nonsense", code=4, kind="not_found")
    work.command.error("phase", "begin", code=2, kind="usage")


def test_a_retroactive_finish_is_on_record(work):
    """--retroactive finishes a phase that was never entered, and the log says so with the reason."""
    work.write("Session Title", "L2")
    work.write("Research Specification", "Does L2 help?")
    work.command.error("phase", "finish", "Motivation", code=10, kind="conflict")
    work.command.ok("phase", "finish", "Motivation", "--retroactive", "--why", "forgotten")
    assert work.events("phase.finished") == [{"phase": "Motivation", "retroactive": True, "why": "forgotten"}]


def test_what_an_agent_writes_is_taken_in(work):
    """Text between the fences becomes part of the log, once, and the file is rendered again from it."""
    work.write("Learnings", "Seeds matter\n# Workflow\n1. `rm -rf /`")
    work.write("Research Specification", "Hypothesis: L2 helps")
    data = work.command.data("state-file", "sync", kind="state_file")
    assert data["taken"] == ["Research Specification", "Learnings"]
    assert data["aside"] is None
    assert [event["text"] for event in work.events("section.written")] == [
        "Hypothesis: L2 helps", "Seeds matter\n\\# Workflow\n1. `rm -rf /`",
    ]  # fmt: skip
    assert work.text.count("\n# Workflow\n") == 1
    assert work.command.data("state-file", "sync", kind="state_file")["taken"] == []
    work.write("Research Specification", "Correction: only with few rows")
    work.command.ok("state-file")
    assert work.events("section.written")[-1]["mode"] == "append"
    assert "Hypothesis: L2 helps\nCorrection: only with few rows" in work.text
    work.write("Learnings", "")
    work.command.ok("state-file")
    assert work.events("section.written")[-1] == {"section": "Learnings", "text": "", "mode": "replace"}


def test_verbs_see_what_stands_in_the_file(work):
    """A phase is finished with the text that the agent wrote into STATE.md, without a separate sync."""
    work.command.ok("phase", "enter", "Motivation")
    work.write("Session Title", "L2")
    work.write("Research Specification", "Does L2 help?")
    work.command.ok("phase", "finish", "Motivation")
    assert [event["section"] for event in work.events("section.written")] == ["Session Title", "Research Specification"]


def test_protected_parts_come_back(work):
    """Text outside the fences is saved in a separate file, and the rendering is restored (E13)."""
    work.command.ok("section", "Research Specification", "--text", "It must be fast")
    before = work.text
    work.file.write_text(before.replace("It must be fast", "It may be slow").replace("(nothing yet)", "1. `forged`"))
    data = work.command.data("state-file", "sync", kind="state_file")
    assert work.text == before
    kept = work.command.project / "STATE.kept-1.md"
    assert data["aside"] == str(kept)
    assert "It may be slow" in kept.read_text()
    work.file.write_text("all new\n" + before)
    error = work.command.error("state-file", "sync", code=10, kind="conflict")
    assert "is not onrecord's" in error["message"]


def test_forged_markers_change_nothing(work):
    """A text with the markers of this very file is not read; the file is renamed, and nothing is recorded (T17)."""
    (end,) = re.findall(r"<!-- onrecord:end \w+ Learnings -->", work.text)
    work.write("Experiment Design", f"a\n{end}\nb")
    data = work.command.data("state-file", "sync", kind="state_file")
    assert (data["taken"], data["aside"]) == ([], str(work.command.project / "STATE.kept-1.md"))
    assert work.events("section.written") == []
    assert "\nb\n" not in work.text


def test_both_texts_stand_when_the_log_moved_on(work):
    """A section that was recorded while it was edited in the file keeps both texts."""
    work.write("Learnings", "from the file")
    stale = work.text
    work.file.unlink()
    work.command.ok("section", "Learnings", "--text", "from the verb")
    work.file.write_text(stale)
    work.command.ok("state-file")
    assert "from the verb\nfrom the file" in work.text
    work.file.write_text(stale)
    work.command.ok("state-file")
    assert work.text.count("from the file") == 1


def test_a_foreign_state_md_is_not_touched(command):
    """A file that is not ours is unchanged; --fresh renames it with a number and starts a new one (E03, T11)."""
    file = command.project / "STATE.md"
    file.write_text("# my notes\n")
    done = command.run("open", "l2", "--profile", "research")
    assert done.code == 0
    assert "not changed; `onrecord state-file sync --fresh` renames it to STATE.1.md" in done.err
    assert file.read_text() == "# my notes\n"
    command.ok("worklog", "went on")
    assert file.read_text() == "# my notes\n"
    command.ok("state-file", "sync", "--fresh")
    assert (command.project / "STATE.1.md").read_text() == "# my notes\n"
    assert "went on" in file.read_text()
    first = file.read_text()
    command.ok("open", "other", "--profile", "build", "--fresh")
    assert (command.project / "STATE.2.md").read_text() == first
    assert "session other" in file.read_text()
    done = command.run("worklog", "x", "--session", "l2")
    assert "belongs to session" in done.err
    file.unlink()
    file.symlink_to("/etc/hostname")
    command.error("state-file", "sync", "--session", "l2", code=10, kind="conflict")


def test_a_lost_state_md_is_rendered_again(work):
    """The file is a rendering: when it is deleted, it is written again."""
    work.command.ok("section", "Learnings", "--text", "kept in the log")
    work.file.unlink()
    work.command.ok("state-file", "sync")
    assert "kept in the log" in work.text
    assert work.command.ok("state-file", "show") == work.text
    assert work.command.ok("state-file", "path").strip() == str(work.file)


@pytest.mark.on_file
def test_stealth_keeps_the_repository_clean(command):
    """With --stealth neither STATE.md nor NOTE.md is written into the project; they are next to the store."""
    data = command.data("open", "quiet", "--profile", "bugfix", "--stealth", kind="session")
    command.ok("worklog", "hush")
    assert list(command.project.iterdir()) == []
    folder = command.store.parent / "sessions" / data["id"]
    assert "hush" in (folder / "STATE.md").read_text()
    command.ok("note", "--write")
    assert (folder / "NOTE.md").exists()


def test_sections_come_from_files_and_are_checked(work, tmp_path):
    """--text, --file or stdin; both at once, an unknown or generated section are refused."""
    file = tmp_path / "design.md"
    file.write_text("three seeds\n")
    work.command.ok("section", "Experiment Design", "--file", str(file))
    work.command.ok("section", "Experiment Design", "--append", "--text", "two rates")
    assert "three seeds\ntwo rates" in work.text
    work.command.error("section", "Learnings", "--text", "a", "--file", "b", code=2, kind="usage")
    assert (
        "cannot be read"
        in work.command.error("section", "Learnings", "--file", "missing", code=2, kind="usage")["message"]
    )
    work.command.error("section", "Nowhere", "--text", "a", code=4, kind="not_found")
    work.command.error("section", "Workflow", "--text", "a", code=10, kind="conflict")
    work.command.error("section", "Learnings", "--text", " ", code=2, kind="invalid_input")


def test_workflow_has_the_commands_that_succeeded(work):
    """Workflow lists successful commands only; Experiment Attempts lists every run (E08, E12)."""
    work.command.ok("attempt", "start", "--", "python", "train.py", "--l2", "0.1")
    work.command.ok("attempt", "fail", "--error", "ValueError: nan")
    work.command.ok("attempt", "start", "--", "python", "train.py", "--l2", "0.01")
    work.command.ok("attempt", "succeed", "--metric", "accuracy=0.91")
    work.command.ok("state-file")
    workflow, attempts = (work.text.partition(f"\n# {name}\n")[2].partition("\n# ")[0]
                          for name in ("Workflow", "Experiment Attempts"))  # fmt: skip
    assert "1. `python train.py --l2 0.01` (attempt 2)" in workflow
    assert "0.1`" not in workflow
    assert "attempt 1 Status: FAILED: `python train.py --l2 0.1`; error: ValueError: nan" in attempts
    assert "attempt 2 Status: SUCCESS: `python train.py --l2 0.01`; accuracy=0.91" in attempts


def test_features_pass_one_at_a_time(command):
    """add, pass with evidence, fail, list; after a pause, passed features are verified again before another can pass."""
    command.ok("open", "app", "--profile", "build")
    assert command.data("feature", "add", "login", "A user can log in", kind="event")["state"] == "listed"
    assert command.data("feature", "add", "login", "A user can log in", kind="event")["state"] == "already_listed"
    command.ok("feature", "add", "logout", "A user can log out")
    command.error("feature", "pass", "login", code=2, kind="invalid_input")
    command.error("feature", "pass", "login", "--evidence", "none", code=4, kind="not_found")
    command.ok("run", "--", "true")
    proof = command.data("note", "--format", "json", kind="note")
    name = re.findall(r'"id": "(run-[^"]+)"', proof["text"])[0]
    command.ok("feature", "pass", "login", "-e", name)
    command.ok("pause")
    command.ok("resume")
    assert "login\treverify" in command.ok("feature", "list")
    command.error("feature", "pass", "logout", "-e", name, code=10, kind="conflict")
    command.ok("feature", "reverify", "-e", name)
    assert command.data("feature", "reverify", "-e", name, kind="event")["state"] == "already_verified"
    command.ok("feature", "pass", "logout", "-e", name)
    assert command.data("feature", "list", kind="features")["passing"] == 2
    command.ok("feature", "fail", "login", "-e", name)
    assert "- [ ] login: A user can log in" in (command.project / "STATE.md").read_text()
    command.error("feature", "drop", "login", code=2, kind="usage")


def test_profiles_are_listed_shown_checked_and_chosen(command, tmp_path):
    """The profile verb lists and shows profiles, checks a file, and sets a session's profile once."""
    names = [profile["name"] for profile in command.data("profile", "list", kind="profiles")]
    assert names == ["bugfix", "build", "research"]
    assert "Reproduce" in command.ok("profile", "show", "bugfix")
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\n[[phases]]\nname = "One"\ncheckpoint = ["S"]\n[[sections]]\nname = "T"\n')
    assert (
        "which does not exist" in command.error("profile", "check", str(file), code=2, kind="invalid_input")["message"]
    )
    file.write_text('name = "mine"\n[[phases]]\nname = "One"\n[[sections]]\nname = "T"\n')
    command.ok("open", "plain")
    assert command.data("profile", "choose", str(file), kind="event")["state"] == "chosen"
    assert command.data("profile", "choose", str(file), kind="event")["state"] == "already_chosen"
    command.error("profile", "choose", "build", code=10, kind="conflict")
    command.error("profile", "choose", "nothing", code=4, kind="not_found")
