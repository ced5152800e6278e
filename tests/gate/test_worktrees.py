"""The gate is keyed on the worktree: whose attempt it is does not matter, and edits through a shell are edits."""

import pytest

import onrecord
from onrecord import machine
from onrecord.errors import Conflict
from onrecord.rules import ALLOW, ASK, DENY, ToolRequest, commands_of
from onrecord.session.handle import Session
from onrecord.views.values import Worktree

MAIN: Worktree = {"root": "/src/app", "host": "here", "git": True}
LINKED: Worktree = {**MAIN, "root": "/src/app/.worktrees/try"}


@pytest.fixture
def session():
    return onrecord.connect("memory:", project="/src/app").create("invite-403", agent="claude")


def edit(agent="codex", worktree=MAIN, path="src/auth.py"):
    return ToolRequest(agent, "edit", paths=[path], worktree=worktree)


def run(line, agent="codex", worktree=MAIN):
    return ToolRequest(agent, "run", commands=commands_of(line), line=line, worktree=worktree)


def running(session, **about):
    session.attempts.start("python train.py", process=machine.identity(), worktree=MAIN, **about)


def lost(session):
    session.attempts.start("python train.py", process=machine.identity() | {"pid": 2**22 + 1}, worktree=MAIN)


def test_nobody_edits_in_a_worktree_where_an_attempt_runs(session):
    """Edits of every agent in the worktree of a running attempt are refused; the reason names whose attempt it is."""
    running(session)
    verdict = session.gate.judge(edit("codex"))
    assert (verdict.decision, verdict.rule) == (DENY, "unresolved_attempt")
    assert verdict.reason.startswith("attempt 1 of claude (python train.py) is running")
    assert session.gate.judge(edit("claude")).reason.startswith("attempt 1 (python train.py) is running")
    session.attempts.settle(1, "succeeded")
    assert session.gate.judge(edit("codex")).decision == ALLOW


def test_a_lost_attempt_stops_the_agent_that_takes_over(session):
    """After a hand-over the next agent neither edits nor runs anything before the lost attempt has its outcome (F13)."""
    lost(session)
    for request in (edit("codex"), run("make"), run("ls")):
        verdict = session.gate.judge(request)
        assert (verdict.decision, "is lost" in verdict.reason) == (DENY, True)
    codex = Session(session.store, session.id, agent="codex", clock=session.clock)
    with pytest.raises(Conflict, match="attempt 1 of 'claude' is lost"):
        codex.attempts.start("make", worktree=MAIN)
    codex.attempts.settle(1, "interrupted", reason="the machine was rebooted")
    assert session.gate.judge(run("make")).decision == ALLOW
    codex.attempts.start("make", worktree=MAIN)


@pytest.mark.parametrize("worktree", [LINKED, MAIN | {"root": "/src/other"}, MAIN | {"host": "there"}])
def test_agents_in_other_worktrees_are_free(session, worktree):
    """Another worktree of the same repository, another directory and another machine are not held up."""
    lost(session)
    assert session.gate.judge(edit("codex", worktree)).plain
    assert session.gate.judge(run("make", "codex", worktree)).plain
    assert session.gate.judge(edit("claude", worktree)).plain, "an agent of the same name elsewhere"
    session.attempts.start("make", worktree=worktree)
    assert session.gate.judge(edit("codex", worktree)).decision == DENY


@pytest.mark.parametrize(
    ("home", "path"),
    [
        ("/src/other", "../app/src/auth.py"),
        ("/src/other", "/src/app/src/auth.py"),
        (LINKED["root"], "../../src/auth.py"),
    ],
)
def test_a_path_into_the_worktree_of_an_attempt_is_an_edit_in_it(session, home, path):
    """Who works in another worktree cannot edit where an attempt runs: not with a tool, not through a shell."""
    running(session)
    elsewhere: Worktree = {**MAIN, "root": home}
    assert session.gate.judge(edit("codex", elsewhere, path)).decision == DENY
    for line in (f"echo x > {path}", f"cd docs && cd .. && sed -i s/a/b/ {path}", f'python -c \'open("{path}", "w")\''):
        assert session.gate.judge(run(line, "codex", elsewhere)).decision == DENY, line
    for line in (
        f"cat {path}",
        "echo x > src/auth.py",
        "black .",
        'echo x > "$FILE"',
        "cd /tmp && rm notes",
        "tar xf a.tar",
    ):
        assert session.gate.judge(run(line, "codex", elsewhere)).plain, line
    assert session.gate.judge(edit("codex", elsewhere)).plain


def test_a_cd_into_the_worktree_of_an_attempt_is_followed(session):
    """`cd` from another worktree into that of an attempt makes relative paths count; `git -C` too."""
    running(session)
    elsewhere: Worktree = {**MAIN, "root": "/src/other"}
    for line in ("cd ../app && echo x > a.py", "cd /src/app/src && tar xf a.tar", "git -C ../app checkout main"):
        assert session.gate.judge(run(line, "codex", elsewhere)).decision == DENY, line


def test_files_outside_of_the_worktree_are_no_edits(session):
    """A tool that writes outside of every worktree, such as into /tmp, is free while an attempt runs."""
    running(session)
    assert session.gate.judge(edit(path="../../tmp/plan.md")).plain
    assert session.gate.judge(edit(path="/tmp/plan.md")).plain
    assert session.gate.judge(run("cd /tmp && tar xf a.tar")).plain
    assert session.gate.judge(ToolRequest("codex", "edit", worktree=MAIN)).decision == DENY, "no path: not known"


def test_without_git_a_directory_below_counts_as_the_same(session):
    """Where git does not say where a worktree ends, an agent in a subdirectory works in the same one."""
    session.attempts.start("make", worktree=MAIN | {"git": False})
    assert session.gate.judge(edit("codex", MAIN | {"git": False, "root": "/src/app/sub"})).decision == DENY
    assert session.gate.judge(edit("codex", MAIN | {"git": False, "root": "/src"})).decision == DENY
    assert session.gate.judge(edit("codex", MAIN | {"git": False, "root": "/src/app2"})).plain
    below: Worktree = {**MAIN, "git": False, "root": "/src/app/sub"}
    assert session.gate.judge(edit("codex", below, "../main.py")).decision == DENY


def test_an_attempt_that_does_not_say_where_it_runs_counts_everywhere(session):
    """In logs from before, and for callers that name no worktree, every worktree is the same one."""
    session.log.record("attempt.started", {"command": "make", "signature": "make"})
    assert session.gate.judge(edit("codex", LINKED)).decision == DENY
    session.attempts.settle(1, "abandoned", reason="x")
    running(session)
    assert session.gate.judge(edit("codex", None)).decision == DENY


def test_an_attempt_that_nobody_watches_stops_edits_of_all_and_runs_of_its_agent(session):
    """A job that was started by hand may run for days: other agents may run commands, but no agent edits under it."""
    session.attempts.start("sbatch train.sh", worktree=MAIN)
    assert session.gate.judge(run("squeue", "codex")).plain
    assert session.gate.judge(edit("codex")).decision == DENY
    assert session.gate.judge(run("squeue", "claude")).decision == DENY


def test_while_an_attempt_runs_other_commands_run(session):
    """The same command and a run that names no command are refused; `ls` and tests are not."""
    running(session)
    assert session.gate.judge(run("pytest -k invite")).plain
    assert session.gate.judge(run("python train.py")).decision == DENY
    assert session.gate.judge(ToolRequest("codex", "run", worktree=MAIN)).decision == DENY


@pytest.mark.parametrize(
    ("line", "decision"),
    [
        ("sed -i s/a/b/ src/auth.py", DENY), ("echo x | tee src/auth.py", DENY), ("echo x > src/auth.py", DENY),
        ("git apply fix.patch", DENY), ("python -c \"open('src/auth.py', 'w').write('')\"", DENY), ("black src", ASK),
        ("echo x > $OUT", ASK), ("sed -n p src/auth.py", ALLOW), ("echo x > /tmp/notes", ALLOW), ("grep '>' a.py", ALLOW),
        ("echo x > STATE.md", ALLOW), ("onrecord attempt list > /dev/null", ALLOW),
    ],
)  # fmt: skip
def test_edits_through_a_shell_are_recognised(session, line, decision):
    """While an attempt runs, a command line that edits for certain is refused, one that is likely to is asked about."""
    running(session)
    assert session.gate.judge(run(line)).decision == decision
    assert session.gate.judge(run(line, worktree=LINKED)).decision == ALLOW


def test_a_question_does_not_hide_a_refusal(session):
    """Where one attempt asks and another one refuses, the refusal is the verdict."""
    running(session)
    codex = Session(session.store, session.id, agent="codex", clock=session.clock)
    codex.attempts.start("make", worktree=MAIN)
    assert session.gate.judge(run("black src", "codex")).decision == DENY


def test_an_edit_through_a_shell_waits_for_the_phase(session):
    """Before a phase is entered, `sed -i` is refused as an edit is; looking around is not."""
    session.log.record("profile.chosen", {"profile": {"name": "one", "phases": [{"name": "Plan"}]}})
    assert session.gate.judge(run("sed -i s/a/b/ a.py")).rule == "phase_not_entered"
    assert session.gate.judge(run("sed -n p a.py")).plain
    session.phases.enter("Plan")
    assert session.gate.judge(run("sed -i s/a/b/ a.py")).plain


def test_an_override_counts_in_its_own_worktree(session):
    """What is overridden is the refusal here, not one of another worktree that comes first."""
    lost(session)
    session.attempts.start("make", worktree=LINKED)
    event = session.gate.override("unresolved_attempt", "it hangs on purpose", worktree=LINKED)
    assert event.data["positions"] == [session.views.attempts.get(2)["position"]]
    assert session.gate.judge(edit("claude", LINKED)).plain
    assert session.gate.judge(edit("claude", MAIN)).decision == DENY


def test_starting_looks_at_the_worktree_too(session):
    """An agent may run one attempt in each worktree, and a second one in none of them."""
    running(session)
    session.attempts.start("make", worktree=LINKED)
    for worktree in (MAIN, LINKED, None):
        with pytest.raises(Conflict, match="has no outcome yet"):
            session.attempts.start("make test", worktree=worktree)
