"""Each rule: what it refuses, on which events, and the one command that clears it."""

import pytest

from onrecord import machine
from onrecord.errors import Conflict, InvalidInput
from onrecord.rules import ALLOW, DENY, ToolRequest, act_of, commands_of
from onrecord.session.handle import Session


def edit(path="src/auth.py", agent="claude", **about):
    return ToolRequest(agent, "edit", paths=[path], tool="Edit", **about)


def run(command="pytest -k invite", agent="claude", **about):
    return ToolRequest(agent, "run", commands=commands_of(command), tool="Bash", **about)


def test_a_session_without_anything_unresolved_allows(session):
    """A plain `allow` writes nothing."""
    before = session.views.position
    assert session.gate.judge(edit()).plain
    assert session.gate.judge(run()).plain
    assert session.views.position == before


def test_no_edit_and_no_run_while_an_attempt_is_unresolved(session):
    """An attempt without an outcome blocks edits and runs; settling it clears that (F08, F09)."""
    started = session.attempts.start("pytest -k invite")
    for request in (edit(), run(), run("make")):
        verdict = session.gate.judge(request)
        assert (verdict.decision, verdict.rule) == (DENY, "unresolved_attempt")
        assert verdict.positions == (started.position,)
        assert verdict.clear.startswith("onrecord attempt fail 1 ")
    session.attempts.settle(1, "failed", error="403", fix="none")
    assert session.gate.judge(edit()).decision == ALLOW


def test_another_agents_attempt_counts_too(session):
    """An attempt keeps every agent of its worktree from editing, not only its own."""
    session.attempts.start("pytest -k invite")
    assert session.gate.judge(edit(agent="codex")).decision == DENY


def test_a_run_in_progress_blocks_only_what_would_disturb_it(session):
    """While the process lives, edits and a second run of itself wait; another run does not."""
    session.attempts.start("python train.py", process=machine.identity())
    assert session.gate.judge(run("ls -l")).plain
    for request in (edit(), run("cd x && python train.py")):
        verdict = session.gate.judge(request)
        assert "is running" in verdict.reason
        assert verdict.clear.startswith("onrecord attempt abandon 1 ")


def test_a_lost_attempt_is_to_be_settled(session):
    """A RUNNING attempt with a dead process blocks everything until its outcome is recorded (F13)."""
    session.attempts.start("python train.py", process=machine.identity() | {"pid": 2**22 + 1})
    verdict = session.gate.judge(run("ls -l"))
    assert verdict.decision == DENY
    assert "is lost" in verdict.reason


def test_a_paused_session_allows_reading_only(session):
    """In a paused session edits and runs wait for resume; reading never does."""
    paused = session.pause("rate limit")
    verdict = session.gate.judge(edit())
    assert (verdict.rule, verdict.positions, verdict.clear) == (
        "session_paused", (paused.position,), "onrecord resume invite-403",
    )  # fmt: skip
    assert "rate limit" in verdict.reason
    assert session.gate.judge(ToolRequest("claude", "read", paths=["src/auth.py"])).plain
    session.resume()
    assert session.gate.judge(edit()).plain


def test_an_ended_session_refuses_and_names_the_way_back(session):
    """A closed session's refusal cannot be recorded in it, and is cleared by reopening it."""
    closed = session.close("done")
    verdict = session.gate.judge(run())
    assert (verdict.rule, verdict.positions) == ("session_closed", (closed.position,))
    assert verdict.clear == "onrecord resume invite-403 --reopen"
    assert session.views.position == closed.position
    session.resume(reopen=True)
    assert session.gate.judge(run()).plain


def test_a_spent_budget_names_all_limits_it_needs(session):
    """The clearing command raises the limit that is spent and keeps the rest."""
    session.budget.set(steps=1, tokens=1_000_000)
    session.record_turn([{"role": "user", "content": "x"}])
    verdict = session.gate.judge(run())
    assert verdict.reason == "the budget is spent: 1 of 1 steps"
    assert verdict.clear == "onrecord open invite-403 --budget steps=2 --budget tokens=1000000"


def test_edits_wait_for_the_phase(session):
    """Where a profile has phases, code changes only inside one; reading is allowed before."""
    session.log.record("profile.chosen", {"profile": {"name": "two", "phases": [{"name": "Plan"}, {"name": "Do it"}]}})
    verdict = session.gate.judge(edit())
    assert (verdict.rule, verdict.clear) == ("phase_not_entered", "onrecord phase enter Plan --session invite-403")
    assert session.gate.judge(run("ls")).plain
    session.phases.enter("Plan")
    assert session.gate.judge(edit()).plain
    session.phases.finish("Plan")
    assert session.gate.judge(edit()).clear == "onrecord phase enter 'Do it' --session invite-403"


def test_a_call_is_decided_once(session):
    """Asking again about the same call repeats the recorded verdict and records nothing, whatever changed since."""
    session.attempts.start("pytest")
    first = session.gate.judge(edit(call="toolu_1"))
    position = session.views.position
    assert session.gate.judge(edit(call="toolu_1")).as_data() == first.as_data()
    assert session.views.position == position
    session.attempts.settle(1, "abandoned", reason="x")
    assert session.gate.judge(edit(call="toolu_1")).decision == DENY
    assert session.gate.judge(edit(call="toolu_2")).plain


def test_a_verdict_is_on_record_with_what_it_rests_on(session):
    """Every verdict but a plain `allow` is an event that names rule, ground, positions and the call."""
    started = session.attempts.start("pytest")
    session.gate.judge(edit(call="c1"))
    (event,) = session.events(kinds=["gate.decided"])
    assert event.data["ground"] == f"unresolved_attempt/claude/{started.position}"
    assert (event.data["decision"], event.data["rule"]) == ("deny", "unresolved_attempt")
    assert event.data["reason"] == "attempt 1 (pytest) is unresolved; say how it ended first"
    assert event.data["clear"].startswith("onrecord attempt fail 1 --session invite-403 ")
    assert (event.data["call"], event.data["tool"], event.data["positions"]) == ("c1", "Edit", [started.position])


def test_a_refusal_asks_a_person_in_the_end(session):
    """After eight identical refusals the ninth verdict is `ask`, and stays `ask`."""
    session.attempts.start("pytest")
    assert [session.gate.judge(edit()).decision for _ in range(10)] == ["deny"] * 8 + ["ask"] * 2


def test_an_override_lets_one_ground_pass(session):
    """An override needs a reason, is on record, and counts for this attempt only."""
    session.attempts.start("pytest")
    with pytest.raises(InvalidInput):
        session.gate.override("unresolved_attempt", " ")
    event = session.gate.override("unresolved_attempt", "the run hangs on purpose")
    assert (event.data["reason"], event.because) == ("the run hangs on purpose", 2)
    assert session.gate.judge(edit()).plain
    session.attempts.settle(1, "abandoned", reason="x")
    session.attempts.start("pytest")
    assert session.gate.judge(edit()).decision == DENY


def test_there_must_be_something_to_override(session):
    """Overriding a rule that refuses nothing is refused; so is an unknown rule."""
    for rule in ("session_closed", "session_paused", "unresolved_attempt", "budget_spent", "phase_not_entered"):
        with pytest.raises(Conflict):
            session.gate.override(rule, "just in case")
    with pytest.raises(InvalidInput):
        session.gate.override("everything", "please")


def test_a_decision_sees_what_others_appended(session):
    """The gate decides on fresh views, not on what its handle knew."""
    other = Session(session.store, session.id, agent="human", clock=session.clock)
    assert session.gate.judge(edit()).plain
    other.pause()
    assert session.gate.judge(edit()).decision == DENY


@pytest.mark.parametrize(
    "line",
    [
        "onrecord show; pytest", "pytest && onrecord show", "cat > src/auth.py && onrecord show", "echo onrecord",
        "onrecord show > src/auth.py", "./onrecord.sh", "python -m onrecord_fake", "cat <<EOF > x\nonrecord\nEOF",
    ],
)  # fmt: skip
def test_only_real_commands_of_onrecord_pass(session, line):
    """A command line that also does something else is judged like any other."""
    session.pause()
    assert session.gate.judge(run(line)).decision == DENY


@pytest.mark.parametrize(
    "line",
    [
        "onrecord decide 'keep a > b' --why 'c << d'", "onrecord note 2> /dev/null", "onrecord show 2>&1 | grep -c x",
        "LANG=C /usr/bin/onrecord show", "python3 -m onrecord show",
    ],
)  # fmt: skip
def test_a_text_that_looks_like_a_redirection_is_only_text(session, line):
    """A command of onrecord passes, also with `>` inside a quoted text, and when only its messages are redirected."""
    session.pause()
    assert session.gate.judge(run(line)).plain


@pytest.mark.parametrize("path", ["STATE.md.py", "src/STATE.md", ".onrecord/../src/auth.py", ".onrecordx/a"])
def test_only_real_own_files_pass(session, path):
    """A path that only looks like one of our files is judged like any other."""
    session.pause()
    assert session.gate.judge(edit(path)).decision == DENY


@pytest.mark.parametrize(
    ("act", "tools"),
    [
        ("edit", "Edit Write MultiEdit NotebookEdit apply_patch str_replace create insert replace write_file edit_file str_replace_editor str_replace_based_edit_tool"),
        ("run", "Bash shell run exec run_shell_command local_shell terminal exec_command"),
        ("read", "Read Grep Glob LS view read_file list_directory search_file_content WebFetch WebSearch TodoWrite"),
    ],
)  # fmt: skip
def test_tools_of_agents_are_known_by_their_names(act, tools):
    """A vendor's tool is known by its name in upper or lower case, whatever its arguments."""
    assert {act_of(tool, has_path=False, has_command=False) for tool in tools.split()} == {act}


def test_acts_are_told_by_tool_then_by_what_is_given():
    """A known tool counts by its name, an unknown one by its path or command."""
    assert [act_of(tool, has_path=True, has_command=False) for tool in ("Read", "MultiEdit", "Mystery")] == [
        "read",
        "edit",
        "edit",
    ]
    assert act_of("Mystery", has_path=False, has_command=True) == "run"
    assert act_of("Mystery", has_path=False, has_command=False) == "other"


def test_an_erased_session_refuses_nothing(session):
    """Erased text no longer counts."""
    session.close()
    session.log.erase("privacy")
    assert session.gate.judge(edit()).plain
