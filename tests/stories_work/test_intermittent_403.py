"""The intermittent 403, investigated in three sessions by three agents of different vendors."""

import sys

FOCUSED = f"{sys.executable} -c 'import invites; invites.probe()'"


def write(agent, name, text):
    (agent.command.project / name).write_text(text)


def test_the_middleware_theory_stays_rejected_and_the_note_leads_to_the_focused_test(agent):
    """The next agent does not try what another ruled out, and runs the focused test at once (H22, H23, H31, H46)."""
    claude, codex, gemini = agent("claude"), agent("codex"), agent("gemini")
    write(claude, "middleware.py", "def handle(): ...\n")
    write(claude, "invites.py", "def probe():\n    raise SystemExit('403: membership row missing')\n")

    # The first agent reproduces, rules the middleware out, and is cut off.
    claude.do("open", "invite-403", "--objective", "Fix the intermittent 403 after accepting an invitation")
    claude.do("reproduction", "accept an invitation ten times", "--rate", "3/10")
    claude.do("evidence", "run", "--id", "run-a", "--", sys.executable, "-c", "print('bypassed: still 403')")
    claude.do(
        "finding",
        "state",
        "The middleware drops the header",
        "--label",
        "rejected",
        "-e",
        "run-a",
        "--on",
        "middleware.py",
    )
    claude.do("finding", "state", "The membership row is written late", "--hypothesis", "--on", "invites.py")
    claude.do("next", "Run the focused test", "--command", FOCUSED)
    claude.do("pause", "--reason", "usage limit")

    # The second agent knows only the record: it is led to the focused test and kept off the middleware.
    codex.do("resume", "invite-403")
    brief = codex.do("note", "--format", "brief")
    assert "3/10" in codex.do("note")
    assert FOCUSED in brief
    assert "The middleware drops the header" in brief
    advice = codex.do("gate", "--tool", "Edit", "--path", "middleware.py")
    assert "[run-a] f1 was rejected: The middleware drops the header" in advice
    assert codex.do("gate", "--tool", "Edit", "--path", "middleware.py") == "allow\n"
    assert codex.try_to("finding", "relabel", "f1", "open", "--why", "a feeling").code != 0
    codex.do("run", "--", sys.executable, "-c", "import invites; invites.probe()", code=1)
    codex.do("finding", "relabel", "f2", "verified", "-e", "last", "--why", "the focused test shows it")
    codex.do("reached", "root_cause", "--finding", "f2")

    # The third agent fixes the bug. Repeating a failed run shows its error.
    told = gemini.do("continue")
    assert "f1: The middleware drops the header" in told
    assert "root cause verified (f2); fix not implemented" in told
    line = f"{sys.executable} -c 'import invites; invites.probe()'"
    assert "403: membership row missing" in gemini.do("gate", "--tool", "Bash", "--command", line)
    write(gemini, "invites.py", "def probe():\n    print('200')\n")
    assert "f2" in gemini.do("survey")
    gemini.do("run", "--", sys.executable, "-c", "import invites; invites.probe()")
    gemini.do("reached", "fix", "--finding", "f2", "-e", "last")
    note = gemini.do("note")
    assert "f2: The membership row is written late (verified, then fixed)" in note
    assert "## Stale" not in note
    assert "fix implemented" in note
    assert "The middleware drops the header" in note
    labels = {row["id"]: row["current"] for row in gemini.command.data("finding", "list", kind="findings")}
    assert labels == {"f1": "rejected", "f2": "settled"}
    assert "fixed: fails, passes" in gemini.do("finding", "recheck", "f2")
    gemini.do("close")
    assert "Next action: (none: the work has ended)" in gemini.do("note", "invite-403", "--format", "brief")


def test_reopening_a_rejected_theory_needs_new_evidence(agent):
    """The evidence of a rejection does not reopen it; new evidence does, and the history keeps both (H23)."""
    claude = agent("claude")
    claude.do("open", "invite-403")

    def capture(name):
        claude.do("evidence", "run", "--id", name, "--", sys.executable, "-c", "print(1)")

    capture("run-0")
    capture("run-a")
    claude.do("finding", "state", "The middleware drops the header", "--label", "rejected", "-e", "run-a")
    for old in (["-e", "run-a"], ["-e", "run-0"], ["--because", "1"]):
        assert "new evidence" in claude.try_to("finding", "relabel", "f1", "open", *old).err
    capture("run-b")
    claude.do("finding", "relabel", "f1", "open", "-e", "run-b", "--why", "it happened with the new proxy")
    assert [row["label"] for row in claude.command.data("finding", "show", "f1", kind="finding")["history"]] == [
        "rejected",
        "open",
    ]
