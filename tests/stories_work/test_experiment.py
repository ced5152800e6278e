"""The L2 experiment: two failures, a kill between RUNNING and the result, and a success at the right phase."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.waiting import until, until_gone

TRAIN = """
import json, os, sys, time
l2 = float(sys.argv[1])
if l2 == 0: raise ArithmeticError("Singular matrix")
if len(sys.argv) > 2:
    open("started", "w").close()
    time.sleep(60)
json.dump({"mse": float("nan") if l2 < 0 else 0.0663}, open("metrics.json", "w"))
"""
KILLED_BEFORE_THE_RUN = """
import os, signal, sys
from onrecord.surfaces.cli.main import main
from onrecord.work.running import SuspendedCommand
SuspendedCommand.go = lambda *_words, **_options: os.kill(os.getpid(), signal.SIGKILL)
sys.exit(main(sys.argv[1:]))
"""
"""The command line, in a process that kills itself where it would release the suspended command."""
RUN = ("run", "--metrics-file", "metrics.json", "--", sys.executable, "train.py")


def prepare(agent):
    """A research session in its fourth phase."""
    (agent.command.project / "train.py").write_text(TRAIN)
    agent.do("open", "l2", "--objective", "Does L2 help?", "--profile", "research")
    for phase, sections in {
        "Motivation": ("Session Title", "Research Specification"), "Planning": ("Experiment Design",),
        "Setup": ("Files and Resources",),
    }.items():  # fmt: skip
        agent.do("phase", "enter", phase)
        for section in sections:
            agent.do("section", section, "--text", f"{section} of the L2 study")
        agent.do("phase", "finish", phase)
    agent.do("phase", "enter", "Implementation")


def killed_in_the_middle(agent):
    """Start a run and kill onrecord and its command with SIGKILL while it runs."""
    process = agent.command.started(*RUN, "0.1", "slow", env={"ONRECORD_AGENT": agent.name}, start_new_session=True)
    until((agent.command.project / "started").exists)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(process.pid, signal.SIGKILL)
    for child in map(int, children):
        os.killpg(os.getpgid(child), signal.SIGKILL)
    process.communicate()


def test_two_failures_a_kill_and_a_success_at_the_right_phase(agent):
    """Errors and metrics are exact and in time; after the kill, work continues in the same phase (L01-L03)."""
    first = agent("claude")
    prepare(first)
    first.do(*RUN, "0", code=1)
    first.do("attempt", "correct", "1", "--fix", "l2 above zero")
    first.do(*RUN, "-1", code=1)
    killed_in_the_middle(first)

    # Another agent takes over in the same worktree.
    again = agent("codex")
    told = again.do("continue")
    assert "phase Implementation" in told
    assert "3 phases (Motivation, Planning, Setup)" in told
    assert "attempt 3 is lost" in told
    attempts = again.command.data("attempt", "list", kind="attempts")
    assert [one["status"] for one in attempts] == ["failed", "failed", "lost"]
    assert [one["error"] for one in attempts[:2]] == ["ArithmeticError: Singular matrix", "metric mse is nan"]

    # Nothing is edited, run or finished until the outcome of the lost run is recorded.
    assert again.do("gate", "--tool", "Edit", "--path", "train.py", code=10).startswith("deny: attempt 3 ")
    assert again.do("gate", "--tool", "Bash", "--command", "make", code=10).startswith("deny: attempt 3 ")
    assert again.try_to("phase", "finish", "Implementation").code == 10
    assert again.try_to(*RUN, "0.1").code == 10, "nor does onrecord run anything"
    again.do("attempt", "interrupt", "3", "--reason", "killed with the machine")
    assert again.do("gate", "--tool", "Edit", "--path", "train.py") == "allow\n"

    again.do(*RUN, "0.1")
    attempts = again.command.data("attempt", "list", kind="attempts")
    assert (attempts[3]["number"], attempts[3]["status"], attempts[3]["metrics"]) == (4, "succeeded", {"mse": 0.0663})
    again.do("phase", "finish", "Implementation")
    again.do("phase", "enter", "Analysis")
    assert again.try_to("phase", "enter", "Implementation").code == 10, "a finished phase is not repeated"
    assert "phase Analysis" in again.do("continue", "--dry-run")


def test_killed_between_the_write_and_the_run(agent):
    """Killed after RUNNING is durable and before the command is released, the attempt never ran, is lost, and must be settled (T01)."""
    claude = agent("claude")
    claude.do("open", "l2")
    words = ("run", "--", sys.executable, "-c", "open('ran', 'w')")
    claude.do(*words)
    ran = claude.command.project / "ran"
    ran.unlink()  # this is what the command does when it runs
    with subprocess.Popen(
        [sys.executable, "-c", KILLED_BEFORE_THE_RUN, *words], cwd=claude.command.project,
        env=claude.command.environment | {"ONRECORD_AGENT": claude.name},
    ) as process:  # fmt: skip
        assert process.wait(90) == -signal.SIGKILL
    (_first, attempt) = claude.command.data("attempt", "list", kind="attempts")
    until_gone(attempt["process"]["pid"])  # the suspended process ends with the one that suspended it
    assert not ran.exists()
    (_first, attempt) = claude.command.data("attempt", "list", kind="attempts")
    assert (attempt["number"], attempt["status"]) == (2, "lost")
    verdict = json.loads(claude.do("gate", "--tool", "Edit", "--path", "a.py", "--json", code=10))["data"]
    assert verdict["rule"] == "unresolved_attempt"
    claude.do("attempt", "abandon", "2", "--reason", "it never ran")
    claude.do("gate", "--tool", "Edit", "--path", "a.py")
