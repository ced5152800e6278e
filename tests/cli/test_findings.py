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
    """Ids resolve, by their short names too; captured and asserted evidence are two different things (H18, H19, H20)."""
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
        kind="finding",
    )
    assert [proof["how"] for proof in finding["proof"]] == ["captured", "asserted"]
    listed = bug.ok("finding", "list")
    for part in (f"{run['id']} (captured)", "log-acceptance-17 (asserted)"):
        assert part in listed
    assert f"{run['id']}\tcaptured\trun\tsh -c 'echo seen; exit 5'\tf1" in bug.ok("evidence", "list")
    assert "how\tasserted" in bug.ok("evidence", "show", "log-acceptance-17")
    assert [one["how"] for one in bug.data("evidence", "list", kind="evidence_list")] == [
        "captured",
        "captured",
        "asserted",
    ]


def test_what_resolves_to_nothing_is_not_cited(bug):
    """An id that is not on record is refused with the way to list what is; short names resolve to full ids (H18)."""
    for words in (
        ["finding", "state", "It is the row", "-l", "verified", "-e", "nothing-there"],
        ["reached", "fix", "-e", "nothing-there"], ["evidence", "show", "nothing-there"],
    ):  # fmt: skip
        problem = bug.error(*words, code=4, kind="not_found")
        assert (problem["message"], "evidence list" in problem["hint"]) == (
            "there is no evidence 'nothing-there'",
            True,
        )
    run = bug.data("evidence", "run", "--", "true", kind="evidence")["id"]
    assert bug.data("evidence", "show", "a", kind="evidence")["id"] == run
    assert bug.data("finding", "state", "It is the row", "-l", "verified", "-e", "last", kind="finding")[
        "evidence"
    ] == [run]
    row = bug.data("evidence", "add", "memberships 17", "--kind", "row", kind="evidence")
    assert (row["kind"], row["how"]) == ("row", "asserted")
    assert "`--evidence ID`" in bug.error("finding", "challenge", "f1", "no", code=2, kind="invalid_input")["hint"]
    assert "`--evidence ID`" in bug.error("reached", "fix", code=2, kind="invalid_input")["hint"]
    assert "--finding f2" in bug.error("reached", "root-cause", "f1", code=2, kind="usage")["hint"]


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
    for name in ("trace-1", "trace-2", "trace-4"):
        bug.ok("evidence", "add", "spans", "--kind", "trace", "--id", name)
    bug.ok("finding", "relabel", "f1", "rejected", "-e", "trace-1", "--why", "the header arrives")
    bug.ok("finding", "challenge", "f1", "not under load", "-e", "trace-2")
    bug.ok("finding", "uphold", "f1", "--why", "also under load", "-e", "trace-4")
    bug.error("finding", "relabel", "f1", "open", "-e", "trace-1", code=2, kind="invalid_input")
    bug.error("finding", "relabel", "f1", "open", "--because", "1", code=2, kind="invalid_input")
    bug.ok("evidence", "add", "spans", "--kind", "trace", "--id", "trace-3")
    bug.ok("finding", "relabel", "f1", "open", "-e", "trace-3", "--why", "seen again")
    bug.error("finding", "relabel", "f1", "verified", "-e", "trace-1", code=2, kind="invalid_input")
    bug.ok("finding", "pursue", "f1")
    data = bug.data("finding", "show", "f1", kind="finding")
    assert [change["label"] for change in data["history"]] == ["open", "rejected", "open"]
    (challenge,) = data["challenges"]
    assert (challenge["argument"], challenge["outcome"]) == ("not under load", "upheld")
    assert challenge["evidence"] == ["trace-2"]
    assert data["evidence"] == ["trace-1", "trace-2", "trace-4", "trace-3"]
    assert data["active"]
    text = bug.ok("finding", "show", "f1")
    lines = [line for line in text.splitlines() if line.startswith("history")]
    for line, part in zip(lines, ("stated open", "rejected [trace-1]: the header arrives", "challenged [trace-2]: not under load",
                                  "upheld [trace-4]: also under load", "open [trace-3]: seen again"), strict=True):  # fmt: skip
        assert part in line
    bug.error("finding", "relabel", "f9", "open", code=4, kind="not_found")
    bug.error("finding", "relabel", "f1", "sure", code=2, kind="usage")


def test_stale_and_back_again(bug):
    """Changed code makes the finding stale and is named; a revert makes it fresh; no change, no event (H28, T22)."""
    verified(bug, "--on", "auth.py::accept")
    bug.ok("finding", "state", "Elsewhere", "-l", "verified", "-e", "a", "--on", "result")
    assert bug.data("survey", kind="survey")["state"] == "nothing_new"
    original = (bug.project / "auth.py").read_text()
    (bug.project / "auth.py").write_text(original.replace("403", "200"))
    survey = bug.data("survey", kind="survey")
    assert (survey["state"], survey["turned_stale"]) == ("recorded", ["f1"])
    assert bug.data("survey", kind="survey")["state"] == "nothing_new"
    assert "f1\tstale\tIt is the row\tauth.py::accept changed since\t" in bug.ok("finding", "list")
    assert "turned stale: auth.py::accept changed" in bug.ok("finding", "show", "f1")
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
    assert "f1 is stale: auth.py (accept) changed since" in bug.run("resume").err
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
    bug.ok("evidence", "add", "line 7", "--kind", "log")
    bug.ok("finding", "state", "It is the row", "-l", "verified", "-e", "last")
    assert "evidence run" in bug.error("finding", "recheck", "f1", code=2, kind="invalid_input")["hint"]


def test_root_cause_and_fix_are_two_things(bug):
    """The root cause is a verified finding; the fix is another milestone (H45)."""
    bug.error("reached", "root-cause", code=2, kind="invalid_input")
    verified(bug)
    assert bug.data("reached", "root-cause", "--finding", "f1", kind="milestone")["what"] == "root_cause"
    bug.ok("evidence", "add", "abcdef0", "--kind", "commit", "--id", "commit-abc")
    reached = bug.data("reached", "fix", "--evidence", "commit-abc", kind="milestone")
    assert (reached["what"], reached["evidence"], reached["finding"]) == ("fix", ["commit-abc"], "f1")
    assert reached["settled"] == "verified, fixed by abcdef0"
    bug.error("reached", "nirvana", code=2, kind="invalid_input")


def test_an_anchor_in_a_subdirectory(bug):
    """Anchors that cannot be found are refused when the finding is stated, and nothing is recorded."""
    bug.error("finding", "state", "x", "--on", "gone.py", code=2, kind="invalid_input")
    bug.error("finding", "state", "x", "--on", "auth.py:80-90", code=2, kind="invalid_input")
    assert bug.data("finding", "list", kind="findings") == []


def test_a_fix_settles_its_cause(bug):
    """After the fix the cause is settled everywhere, and its recheck expects another outcome (H29, H45)."""
    verified(bug, "--on", "auth.py::accept")
    bug.ok("reached", "root-cause", "--finding", "f1")
    (bug.project / "auth.py").write_text("def accept():\n    return 200\n")
    (bug.project / "code").write_text("0\n")
    (bug.project / "result").write_text("passed\n")
    bug.ok("evidence", "run", "--", "sh", "check.sh")
    said = bug.run("reached", "fix", "-e", "last")
    assert "f1 is settled: verified, then fixed" in said.out
    assert "f1\tsettled\tIt is the row\tverified, then fixed\t" in bug.ok("finding", "list")
    assert "label\tsettled (verified, then fixed)" in bug.ok("finding", "show", "f1")
    assert bug.data("survey", kind="survey")["turned_stale"] == []
    again = bug.data("finding", "recheck", "f1", "--apply", kind="recheck")
    assert (again["fixed"], again["proposed"], again["agrees"]) == (True, "settled", False)
    assert again["why"].startswith("fixed: fails, passes (")
    assert bug.data("finding", "show", "f1", kind="finding")["current"] == "settled"
    (bug.project / "code").write_text("1\n")
    (bug.project / "result").write_text("3 failed\n")
    again = bug.data("finding", "recheck", "f1", "--apply", kind="recheck")
    assert (again["fixed"], again["proposed"]) == (False, "verified")
    assert bug.data("finding", "show", "f1", kind="finding")["current"] == "verified"


def test_contradictions_are_shown_together(bug):
    """Findings that exclude each other stand together in the list; code that two findings share is pointed out."""
    verified(bug, "--on", "auth.py::accept")
    done = bug.run("finding", "state", "It is the cache", "--on", "auth.py::accept")
    assert "f1 rests on auth.py::accept too" in done.err
    bug.ok("finding", "relabel", "f2", "open", "--contradicts", "f1")
    listed = bug.run("finding", "list").err
    assert "f1 and f2 exclude each other until one gives way: f1: It is the row" in listed
    assert "f2: It is the cache (contradicts f1)" in listed
    assert bug.data("finding", "show", "f2", kind="finding")["contradicts"] == ["f1"]
    bug.ok("finding", "relabel", "f2", "rejected", "-e", "a")
    assert "exclude each other" not in bug.run("finding", "list").err


def test_a_judgement_looks_at_the_code_first(bug):
    """A label is not confirmed with old evidence when the code has changed, even before a survey."""
    name = verified(bug, "--on", "auth.py")["evidence"][0]
    (bug.project / "auth.py").write_text("def accept():\n    return 500\n")
    bug.error("finding", "relabel", "f1", "verified", "-e", name, code=2, kind="invalid_input")
    assert bug.data("finding", "show", "f1", kind="finding")["current"] == "stale"
