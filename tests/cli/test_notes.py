"""The note, its check, the continuation report, instructions, and a close that needs more than a summary."""

import json

import pytest


@pytest.fixture
def told(command):
    """A session with a note from which work can continue."""
    command.ok("open", "bug", "--objective", "Fix the intermittent 403 after an invite")
    command.ok("reproduction", "pytest -k invite", "--rate", "3/10", "--scenario", "fresh database")
    command.ok("run", "--", "true")
    name = json.loads(command.data("note", "--format", "json", kind="note")["text"])["evidence"][0]["id"]
    command.ok("finding", "state", "The middleware is the cause", "-l", "rejected", "-e", name)
    command.ok("finding", "state", "The row is written late", "-l", "verified", "-e", name)
    command.ok("next", "Look at the order", "--command", "pytest -k commit")
    return command


def test_the_note_has_five_forms(told):
    """Markdown, terminal, pull request, issue comment and JSON have the same facts in their own form."""
    assert "**Reproduction:** pytest -k invite (rate 3/10) (in fresh database)" in told.ok("note")
    assert told.ok("note", "bug") == told.ok("note", "--format", "terminal")
    assert "## Ruled out" in told.ok("note", "--format", "pr")
    assert "<details>" in told.ok("note", "--format", "issue")
    task = json.loads(told.ok("note", "--format", "json"))
    assert [finding["label"] for finding in task["findings"]] == ["rejected", "verified"]
    told.error("note", "nowhere", code=4, kind="session_not_found")


def test_a_pull_request_lists_the_evidence_that_commands_recorded(command):
    """Each evidence has its id, its kind and its location; only captured evidence has the mark (H37)."""
    command.ok("open", "bug", "--objective", "Fix the intermittent 403")
    (command.project / "auth.py").write_text("def check():\n    return 403\n")
    command.ok("evidence", "run", "--id", "run-a", "--", "printf", "403")
    command.ok("evidence", "file", "--id", "file-b", "auth.py:1-2")
    command.ok("evidence", "add", "acceptance 17", "--kind", "log", "--id", "log-c")
    command.ok(
        "evidence", "add", "https://ci.example.org/17", "--kind", "url", "--id", "url-d", "--text", "three of ten"
    )
    cited = [word for name in ("run-a", "file-b", "log-c", "url-d") for word in ("-e", name)]
    command.ok("finding", "state", "The row is written late", "-l", "verified", *cited)
    body = command.ok("note", "--format", "pr")
    _before, _title, listed = body.partition("## Evidence (✓ was captured by onrecord, the rest is asserted)\n\n")
    assert listed.partition("\n\n")[0].split("\n") == [
        "- run-a✓: run printf 403, exit code 0",
        "- file-b✓: file auth.py:1-2",
        "- log-c: log acceptance 17",
        "- url-d: url https://ci.example.org/17: three of ten",
    ]


def test_the_note_file_is_headed_with_its_position(told):
    """.onrecord/NOTE.md is written whole, says what it was made from, and is kept current afterwards (H35, H42)."""
    data = told.data("note", "--write", kind="note_file")
    file = told.project / ".onrecord" / "NOTE.md"
    assert data["file"] == str(file)
    assert file.read_text().startswith(
        f"<!-- onrecord:note session={data['session']} position={data['position']} -->\n# bug"
    )
    told.ok("pause", "--reason", "later")
    assert "*paused; from position" in file.read_text()
    assert sorted(path.name for path in (told.project / ".onrecord").iterdir()) == [".gitignore", "NOTE.md", "project"]


def test_a_foreign_file_is_not_replaced(told):
    """A NOTE.md or --out file that is not ours is unchanged without --force."""
    folder = told.project / ".onrecord"
    folder.mkdir(exist_ok=True)
    (folder / "NOTE.md").write_text("mine")
    told.error("note", "--write", code=10, kind="conflict")
    out = told.place / "body.md"
    out.write_text("mine")
    told.error("note", "--out", str(out), "--format", "pr", code=2, kind="usage")
    told.ok("note", "--out", str(out), "--format", "pr", "--force")
    told.ok("note", "--out", str(out), "--format", "pr")
    assert "## Ruled out" in out.read_text()
    assert (folder / "NOTE.md").read_text() == "mine"


def test_the_check_names_what_is_missing(command, told):
    """A complete note passes; each gap is named with the command that fills it, and an essential one fails (H47)."""
    assert told.data("note", "check", kind="note_check") == {
        "session": told.data("show", kind="session")["id"], "grade": "complete", "closable": True, "gaps": [],
    }  # fmt: skip
    told.ok("next", "continue")
    found = told.data("note", "check", "bug", kind="note_check", code=1)
    assert (found["grade"], [gap["field"] for gap in found["gaps"]]) == ("insufficient", ["next action"])
    done = told.run("note", "check")
    assert done.code == 1
    assert "next action\tis vague" in done.out


def test_a_session_with_findings_is_not_closed_by_a_summary(command):
    """Without reproduction, verified, rejected and next action a session stays open, or the override is on record (H43)."""
    command.ok("open", "bug", "--objective", "Fix the intermittent 403 after an invite")
    command.ok("finding", "state", "It is probably the cache")
    error = command.error("close", "bug", "--reason", "all done, trust me", code=10, kind="conflict")
    assert "next action, reproduction, verified, rejected" in error["message"]
    shown = command.data("show", "bug", kind="session")
    assert shown["status"] == "open"
    assert command.data("log", "bug", kind="log")["events"][-1]["kind"] == "finding.stated", "nothing was recorded"
    command.ok("note", "none", "rejected", "--why", "only one theory so far")
    assert "rejected" not in command.error("close", "bug", code=10, kind="conflict")["message"]
    command.error("note", "none", "objective", "--why", "x", code=2, kind="usage")
    assert command.data("close", "bug", "--anyway", "the customer left", kind="session")["state"] == "closed"
    decision = command.data("log", "bug", "--kind", "decision.made", kind="log")["events"][0]["data"]
    assert decision["why"] == "the customer left"
    assert "verified" in decision["text"]


def test_a_complete_session_and_a_plain_one_close(told):
    """With a complete note, or without any finding, attempt or profile, closing needs nothing more."""
    told.ok("close", "bug")
    told.ok("open", "plain")
    told.ok("decide", "nothing to see here")
    told.ok("close", "plain")


def test_continue_names_the_run_that_failed_last(told):
    """What failed is in the report also if it was the newest attempt; what succeeded since is not."""
    told.run("run", "--", "python3", "-c", "raise SystemExit('Singular matrix')")
    assert "Failed (do not repeat it):\n- attempt 2 failed: python3 -c" in told.ok("continue")
    assert any("Singular matrix" in line for line in told.data("continue", kind="continuation")["failed"])


def test_continue_reports_and_marks_the_start(told):
    """The report has reused, rejected, new since the last start, unresolved, saved; the work log notes the resume (H44, G13)."""
    first = told.data("continue", kind="continuation")
    assert (len(first["reused"]), len(first["rejected"]), first["new"], first["saved"]["attempts"]) == (2, 1, [], 1)
    told.ok("finding", "state", "The cache is cold")
    dry = told.data("continue", "--dry-run", kind="continuation")
    second = told.data("continue", "bug", kind="continuation")
    assert [change["what"] for change in second["new"]] == ["finding f3"]
    assert dry["position"] == second["position"]
    assert told.data("continue", kind="continuation")["new"] == []
    text = told.ok("continue")
    assert "Rejected (do not retry):\n- f1: The middleware is the cause" in text
    starts = told.data("log", "--kind", "worklog.written", kind="log")["events"]
    assert len(starts) == 4


def test_resume_says_where_to_go_on(command):
    """A resumed session with a profile starts at the first unfinished phase, and says what is skipped (D04, G13)."""
    command.ok("open", "l2", "--profile", "research", "--objective", "Does L2 help on small data")
    command.ok("phase", "enter", "Motivation")
    command.ok("section", "Session Title", "--text", "L2")
    command.ok("section", "Research Specification", "--text", "Does L2 help?")
    command.ok("phase", "finish", "Motivation")
    command.ok("pause")
    done = command.run("resume")
    assert "the current phase is Planning" in done.err
    assert "1 phase (Motivation)" in done.err
    command.ok("pause")
    data = command.data("resume", kind="session")
    assert (data["phase"], data["saved"]["phases"]) == ("Planning", ["Motivation"])
    assert "Session resumed at phase 1 Planning" in (command.project / "STATE.md").read_text()
    assert "at phase 1 Planning" in command.data("log", kind="log")["events"][-1]["data"]["text"]


def test_a_session_with_a_profile_ends_with_nothing_pending(command):
    """When every phase is done, closing needs no next action and the work log ends with `nothing pending` (D10)."""
    (command.place / "one.toml").write_text('name = "one"\n[[phases]]\nname = "Do"\ncheckpoint = ["Log"]\n'
                                            '[[sections]]\nname = "Log"\n[[sections]]\nname = "Work"\n'
                                            'rule = "generated"\nfrom = "worklog"\n')  # fmt: skip
    command.ok("open", "w", "--profile", str(command.place / "one.toml"), "--objective", "Do the one thing")
    for words in (["phase", "enter"], ["section", "Log", "--text", "did it"], ["phase", "finish"]):
        command.ok(*words)
    for field in ("verified", "rejected"):
        command.ok("note", "none", field, "--why", "nothing to find out")
    command.ok("close", "w")
    assert "Session complete: nothing pending" in (command.project / "STATE.md").read_text()


def test_instructions_follow_the_session(command):
    """`instructions` prints the general block, that of a profile, or that of the session's own profile; it is short."""
    general = command.ok("instructions")
    assert "Profile" not in general
    research = command.ok("instructions", "--profile", "research")
    assert "Profile research: 0 Motivation" in research
    assert len(research.encode()) < 2_048
    command.ok("open", "l2", "--profile", "research")
    assert command.ok("instructions") == research
    command.error("instructions", "--profile", "nothing", code=4, kind="not_found")
