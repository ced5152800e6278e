"""Findings and evidence from the command line: captured or asserted, stale and fresh again, recheck."""

import pytest


@pytest.fixture
def bug(command):
    """A project with a file and an open session."""
    (command.project / "auth.py").write_text("def accept():\n    return 403\n")
    (command.project / "check.sh").write_text("cat result; exit $(cat code)\n")
    (command.project / "result").write_text("3 failed\n")
    (command.project / "code").write_text("1\n")
    command.ok("open", "bug")
    return command


def verified(bug, *options):
    run = bug.data("evidence", "run", "--", "sh", "check.sh", kind="evidence")["id"]
    return bug.data("finding", "state", "It is the row", "-l", "verified", "-e", run, *options, kind="finding")


def test_captured_and_asserted_are_told_apart_everywhere(bug):
    """Ids resolve; captured evidence, asserted evidence and a bare name are three different things (H18, H19, H20)."""
    run = bug.data("evidence", "run", "--", "sh", "-c", "echo seen; exit 5", kind="evidence")
    assert (run["how"], run["exit_code"], run["output"], run["captured"]) == ("captured", 5, "seen\n", True)
    assert run["id"].startswith("run-")
    assert run["id"].endswith("-a")
    file = bug.data("evidence", "file", "auth.py:1-2", "--id", "auth-lines", kind="evidence")
    assert (file["how"], file["excerpt"]) == ("captured", "def accept():\n    return 403")
    assert file["anchor"]["fingerprint"]
    log = bug.data("evidence", "add", "acceptance 17", "--kind", "log", "--id", "log-acceptance-17", kind="evidence")
    assert (log["how"], log["reference"]) == ("asserted", "acceptance 17")
    finding = bug.data(
        "finding",
        "state",
        "It is the row",
        "-l",
        "verified",
        "-e",
        run["id"],
        "-e",
        "log-acceptance-17",
        "-e",
        "INV-1",
        kind="finding",
    )
    assert [proof["how"] for proof in finding["proof"]] == ["captured", "asserted", "named"]
    listed = bug.ok("finding", "list")
    for part in (f"{run['id']} (captured)", "log-acceptance-17 (asserted)", "INV-1 (not on record)"):
        assert part in listed
    assert f"{run['id']}\tcaptured\trun\tsh -c 'echo seen; exit 5'\tf1" in bug.ok("evidence", "list")
    assert "how\tasserted" in bug.ok("evidence", "show", "log-acceptance-17")
    assert [one["how"] for one in bug.data("evidence", "list", kind="evidence_list")] == [
        "captured",
        "captured",
        "asserted",
    ]


def test_nobody_asserts_what_is_captured(bug):
    """A run or a file cannot be asserted; it is captured. An id names one piece of evidence."""
    bug.error("evidence", "add", "x", "--kind", "run", code=2, kind="usage")
    bug.error("evidence", "add", "x", code=2, kind="usage")
    bug.ok("evidence", "add", "x", "--kind", "url", "--id", "u")
    bug.error("evidence", "add", "y", "--kind", "url", "--id", "u", code=10, kind="id_reused")
    bug.error("evidence", "show", "nothing", code=4, kind="not_found")
    bug.error("evidence", "run", "--", "no-such-command", code=4, kind="not_found")
    bug.error("evidence", "file", "../outside", code=2, kind="invalid_input")


def test_the_life_of_a_finding(bug):
    """Labels need evidence, a challenge adds, an outcome settles, reopening needs new evidence (H16, H23, H24, H25)."""
    bug.error("finding", "state", "It is the proxy", "-l", "rejected", code=2, kind="invalid_input")
    bug.ok("finding", "state", "It is the proxy", "--hypothesis")
    bug.error("finding", "state", "it is the proxy.", code=2, kind="invalid_input")
    bug.ok("finding", "relabel", "f1", "rejected", "-e", "trace-1", "--why", "the header arrives")
    bug.ok("finding", "challenge", "f1", "not under load", "-e", "trace-2")
    bug.ok("finding", "uphold", "f1", "--why", "also under load", "-e", "trace-4")
    bug.error("finding", "relabel", "f1", "open", "-e", "trace-1", code=2, kind="invalid_input")
    bug.ok("finding", "relabel", "f1", "open", "-e", "trace-3", "--why", "seen again")
    bug.ok("finding", "pursue", "f1")
    data = bug.data("finding", "show", "f1", kind="finding")
    assert [change["label"] for change in data["history"]] == ["open", "rejected", "open"]
    (challenge,) = data["challenges"]
    assert (challenge["argument"], challenge["outcome"]) == ("not under load", "upheld")
    assert challenge["evidence"] == ["trace-2"]
    assert data["evidence"] == ["trace-1", "trace-2", "trace-4", "trace-3"]
    assert data["active"]
    text = bug.ok("finding", "show", "f1")
    assert "not under load (upheld: also under load)" in text
    bug.error("finding", "relabel", "f9", "open", code=4, kind="not_found")
    bug.error("finding", "relabel", "f1", "sure", code=2, kind="usage")


def test_stale_and_back_again(bug):
    """Changed code makes the finding stale, "1 file changed since"; a revert makes it fresh; no change, no event (H28, T22)."""
    verified(bug, "--on", "auth.py::accept")
    bug.ok("finding", "state", "Elsewhere", "-l", "verified", "-e", "e", "--on", "result")
    assert bug.data("survey", kind="survey")["state"] == "nothing_new"
    original = (bug.project / "auth.py").read_text()
    (bug.project / "auth.py").write_text(original.replace("403", "200"))
    survey = bug.data("survey", kind="survey")
    assert (survey["state"], survey["turned_stale"]) == ("recorded", ["f1"])
    assert bug.data("survey", kind="survey")["state"] == "nothing_new"
    assert "f1\tstale\tIt is the row\t1 file changed since\t" in bug.ok("finding", "list")
    assert "unchanged" not in bug.ok("finding", "list") + bug.ok("finding", "show", "f2")
    assert [one["current"] for one in bug.data("finding", "list", kind="findings")] == ["stale", "verified"]
    assert [one["id"] for one in bug.data("finding", "list", "--label", "stale", kind="findings")] == ["f1"]
    bug.error("reached", "root-cause", "--finding", "f1", code=2, kind="invalid_input")
    (bug.project / "auth.py").write_text(original)
    assert bug.data("survey", kind="survey")["turned_fresh"] == ["f1"]
    assert bug.data("finding", "show", "f1", kind="finding")["current"] == "verified"


def test_resume_surveys(bug):
    """A resume compares the worktree and reports which findings became stale."""
    verified(bug, "--on", "auth.py")
    bug.ok("pause")
    (bug.project / "auth.py").write_text("gone = 1\n")
    assert "f1 is stale: 1 file changed since" in bug.run("resume").err
    assert bug.data("finding", "show", "f1", kind="finding")["current"] == "stale"


def test_recheck_proposes_and_applies(bug):
    """A recheck captures the command again: the same outcome proposes the same label, another outcome `open` (H29)."""
    verified(bug, "--on", "auth.py")
    (bug.project / "auth.py").write_text("def accept():\n    return 500\n")
    bug.ok("survey")
    again = bug.data("finding", "recheck", "f1", kind="recheck")
    assert (again["agrees"], again["proposed"], again["applied"]) == (True, "verified", None)
    assert bug.data("finding", "show", "f1", kind="finding")["current"] == "stale"
    applied = bug.data("finding", "recheck", "f1", "--apply", kind="recheck")
    assert applied["applied"]
    assert bug.data("finding", "show", "f1", kind="finding")["current"] == "verified"
    (bug.project / "code").write_text("0\n")
    (bug.project / "result").write_text("10 passed\n")
    other = bug.data("finding", "recheck", "f1", "--apply", kind="recheck")
    assert (other["agrees"], other["proposed"]) == (False, "open")
    now = bug.data("finding", "show", "f1", kind="finding")
    assert (now["current"], len(now["evidence"])) == ("open", 3)


def test_what_was_only_asserted_cannot_be_rechecked(bug):
    """A finding without a captured command is not rechecked; the error names the way to capture one."""
    bug.ok("finding", "state", "It is the row", "-l", "verified", "-e", "log-1")
    assert "evidence run" in bug.error("finding", "recheck", "f1", code=2, kind="invalid_input")["hint"]


def test_root_cause_and_fix_are_two_things(bug):
    """The root cause is a verified finding; the fix is another milestone (H45)."""
    bug.error("reached", "root-cause", code=2, kind="invalid_input")
    verified(bug)
    assert bug.data("reached", "root-cause", "--finding", "f1", kind="milestone")["what"] == "root_cause"
    reached = bug.data("reached", "fix", "--evidence", "commit-abc", kind="milestone")
    assert (reached["what"], reached["evidence"]) == ("fix", ["commit-abc"])
    bug.error("reached", "nirvana", code=2, kind="invalid_input")


def test_an_anchor_in_a_subdirectory(bug):
    """Anchors that cannot be found are refused when the finding is stated, and nothing is recorded."""
    bug.error("finding", "state", "x", "--on", "gone.py", code=2, kind="invalid_input")
    bug.error("finding", "state", "x", "--on", "auth.py:80-90", code=2, kind="invalid_input")
    assert bug.data("finding", "list", kind="findings") == []
