"""Starting agents: recorded before they run, linked by a chosen id, mirrored, and judged when they end."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from onrecord import machine
from tests.waiting import until, until_gone


def test_a_headless_run_is_on_record_from_its_id_to_its_end(desk):
    """The conversation is linked under an id chosen up front and mirrored, and its run has a number (G12, A21, A25)."""
    done = desk.run("start", "claude", "--name", "fix", "-p", "Find the bug")
    assert done.code == 0, done
    assert done.out == "done\n", "its answer, as the program itself prints it"
    (link,) = desk.links("fix")
    assert (link["vendor"], link["first"]["reason"], link["last"]["cwd"]) == ("claude", "startup", str(desk.project))
    assert link["last"]["transcript"] == str(desk.transcripts()[0])
    session = desk.session("fix")
    joined = [event for event in session.events(kinds=("agent.joined",)) if event.by == "claude"]
    assert len(joined[0].data["spawn"]) == 32
    mirrored = [line for event in session.events(kinds=("payload.kept",)) for line in event.data.get("lines", [])]
    assert mirrored == desk.transcripts()[0].read_text().splitlines()
    assert not session.views.roster.agents["claude"]["here"]
    assert desk.interruptions("fix") == []


def test_what_an_agent_starts_knows_whose_it_is(desk, tmp_path):
    """The environment of an agent has session, agent, spawn token and store, for its hooks and commands."""
    spy = tmp_path / "bin" / "claude"
    spy.write_text(f"#!/bin/sh\nenv > {tmp_path}/seen\n" + 'exec "$(dirname "$0")/real" "$@"\n')
    real = tmp_path / "bin" / "real"
    real.write_bytes(Path(__file__).with_name("pretender.py").read_bytes())
    real.write_text(f"#!{sys.executable}\n" + real.read_text())
    real.chmod(0o755)
    desk.ok("start", "claude", "--name", "fix", "--agent", "worker", "-p", "go")
    seen = dict(line.split("=", 1) for line in (tmp_path / "seen").read_text().splitlines() if "=" in line)
    session = desk.session("fix")
    (joined,) = [event for event in session.events(kinds=("agent.joined",)) if event.by == "worker"]
    assert (seen["ONRECORD_SESSION"], seen["ONRECORD_AGENT"]) == (session.id, "worker")
    assert seen["ONRECORD_SPAWN"] == joined.data["spawn"]
    assert seen["ONRECORD_STORE"].endswith(str(desk.store))


def test_a_doubtful_command_line_is_warned_of_before_it_runs(desk):
    """`start` shows the warnings for its vendor, and none where there is nothing to warn of (I27)."""
    warning = "note: claude -p refuses tools that need a permission: give --allowedTools or --permission-mode\n"
    told = desk.run("start", "claude", "--name", "fix", "-p", "go").err
    assert told.startswith(warning)
    sound = desk.run("start", "claude", "--name", "other", "-p", "go", "--", "--permission-mode", "acceptEdits")
    assert sound.code == 0, sound
    assert "permission" not in sound.err


@pytest.mark.parametrize(
    ("step", "cause", "code"),
    [("limit 3600", "usage_window", 1), ("die", "killed", 137), ("refuse", "refused", 1), ("no-end", "unknown", 1)],
)  # fmt: skip
def test_a_run_that_stopped_is_never_completed(desk, step, cause, code):
    """Why a run stopped is on record with the reset time, and the command fails (G01-G05, G09, G10)."""
    desk.plan(step)
    done = desk.run("start", "claude", "--name", "fix", "-p", "Find the bug")
    assert done.code == code, done
    (stop,) = desk.interruptions("fix")
    assert stop["cause"] == cause
    assert (stop["resets_at"] is not None) is (cause == "usage_window")
    assert stop["prompt"]
    assert "onrecord resume fix" in done.err


def test_an_agent_that_has_used_up_the_budget_is_ended(desk):
    """A running agent is ended when a limit is used up; it cannot be started or resumed until the budget is raised."""
    desk.plan("use 60")
    desk.ok("open", "fix", "--budget", "tokens=100", "--budget", "steps=9000")
    done = desk.run("start", "claude", "--name", "fix", "-p", "go")
    assert done.code != 0
    (stop,) = desk.interruptions("fix")
    assert stop["cause"] == "budget"
    spend = desk.session("fix").views.spend
    assert spend.tokens >= 100
    raising = f"onrecord open fix --budget steps=9000 --budget tokens={spend.tokens + 100}"
    assert f"note: `{raising}` raises it" in done.err
    for words in (["start", "claude", "--name", "fix"], ["resume", "fix"]):
        refused = desk.run(*words, "-p", "go")
        assert (refused.code, "the budget is spent" in refused.err) == (10, True), refused
        assert f"hint: `onrecord open fix --budget tokens={spend.tokens + 100}` raises it" in refused.err
    desk.plan("answer")
    desk.ok(*raising.split()[1:])
    told = desk.run("resume", "fix", "-p", "go")
    assert told.code == 0, told
    assert len(desk.interruptions("fix")) == 1


def test_what_a_killed_agent_left_running_is_ended(desk, tmp_path):
    """A tool's process in its own session does not outlive a killed agent (T12)."""
    desk.plan(f"tool-then-die {tmp_path}/child")
    assert desk.run("start", "claude", "--name", "fix", "-p", "go").code == 137
    until_gone(int((tmp_path / "child").read_text()))


def test_ending_the_wrapper_ends_the_agent_and_says_so(desk, tmp_path):
    """SIGTERM to `onrecord start` ends the agent too, and the interruption is on record."""
    desk.plan(f"hang {tmp_path}/pid")
    with desk.started("start", "claude", "--name", "fix", "-p", "go", stdin=subprocess.DEVNULL) as wrapper:
        pid = int(until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text()))
        wrapper.send_signal(signal.SIGTERM)
        wrapper.communicate(timeout=90)
    until_gone(pid)
    assert [stop["cause"] for stop in desk.interruptions("fix")] == ["killed"]


def test_a_flood_of_output_is_passed_on_whole_and_a_deaf_reader_stops_nobody(desk):
    """All output arrives in order; when the reader is gone, the agent still runs to its end (T12)."""
    desk.plan("flood 3000")
    done = desk.run("start", "claude", "--name", "fix", "--jsonl", "-p", "go")
    assert len(done.out.splitlines()) == 3002
    with desk.started("start", "claude", "--name", "other", "-p", "go", stdin=subprocess.DEVNULL) as wrapper:
        wrapper.stdout.close()
        assert wrapper.wait(90) == 0
        wrapper.stderr.read()
    assert desk.interruptions("other") == []


def test_two_agents_of_one_vendor_in_one_directory_are_told_apart(desk):
    """Two agents in one directory at the same time have a conversation each (T02)."""
    pair = [
        desk.started("start", "claude", "--name", "team", "--agent", agent, "-p", f"I am {agent}", stdin=subprocess.DEVNULL)
        for agent in ("one", "two")
    ]  # fmt: skip
    for wrapper in pair:
        out, err = wrapper.communicate(timeout=60)
        assert wrapper.returncode == 0, (out, err)
    for agent in ("one", "two"):
        (link,) = desk.links("team", agent)
        assert f"I am {agent}" in Path(link["last"]["transcript"]).read_text()
    assert len(desk.transcripts()) == 2


def test_two_terminals_do_not_have_one_agent(desk, tmp_path):
    """A second start of the same agent is refused while the first one runs."""
    desk.plan(f"hang {tmp_path}/pid")
    with desk.started("start", "claude", "--name", "fix", "-p", "go", stdin=subprocess.DEVNULL) as wrapper:
        until((tmp_path / "pid").exists)
        error = desk.error("start", "claude", "--name", "fix", "-p", "again", code=7, kind="lease_held")
        assert "fix" in error["message"] or "claude" in error["message"]
        wrapper.send_signal(signal.SIGINT)
        wrapper.communicate(timeout=90)
    assert [stop["cause"] for stop in desk.interruptions("fix")] == ["user"]


@pytest.mark.parametrize("name", ["../../etc", "a/b", "-x", "a b", "x" * 65, "\x1b[2J"])
def test_hostile_names_start_nothing(desk, name):
    """A name that could be a path, an option or a terminal sequence is refused before anything runs (T08)."""
    for words in (["--name", name], ["--name", "fix", "--agent", name]):
        done = desk.run("start", "claude", f"{words[0]}={words[1]}", *words[2:], "-p", "go")
        assert done.code == 2, done
    assert desk.transcripts() == []


def test_a_missing_program_is_one_clear_error_and_nothing_is_opened(desk):
    """Where the vendor's program is not installed, no session is created."""
    (desk.place / "bin" / "claude").unlink()
    desk.environment["PATH"] = "/usr/bin:/bin"
    error = desk.error("start", "claude", "--name", "fix", "-p", "go", code=4, kind="not_found")
    assert "Claude Code" in error["message"]
    assert desk.run("list").out == ""


def test_without_a_terminal_an_interactive_start_says_what_to_do(desk):
    """An interactive agent needs a terminal; the error names -p."""
    error = desk.error("start", "claude", "--name", "fix", code=2, kind="usage")
    assert "-p" in error["hint"]


def test_the_answer_as_json_is_one_envelope(desk):
    """With --json the agent's stream is not mixed into the answer."""
    data = desk.data("start", "claude", "--name", "fix", "-p", "go", kind="agent_run")
    assert (data["state"], data["finished"], data["cause"], data["agent"]) == ("started", True, "finished", "claude")
    assert json.dumps(data["vendor_id"]) in desk.transcripts()[0].read_text()


def test_a_process_that_ended_before_it_was_looked_at_holds_nothing():
    """An agent that ended before its start time could be read is gone, and no process waits for it."""
    with subprocess.Popen(["true"]) as process:
        process.wait()
        about = machine.identity_of(process.pid)
    assert about["started"] is None
    assert machine.is_gone(about)


CODEX = """
import json, os, sys
from pathlib import Path
if sys.argv[1] != "exec":
    sys.exit(1)  # no app server: an older program, or one that is not allowed to
id_ = "01a1dde8-02a1-7892-85d5-b605ca9d0f82"
print(json.dumps({"type": "thread.started", "thread_id": id_}), flush=True)
said = {"timestamp": "2026-11-15T06:32:12.000Z", "type": "session_meta",
        "payload": {"id": id_, "session_id": id_, "cwd": os.getcwd(), "timestamp": "2026-11-15T06:32:12.000Z"}}
home = Path(os.environ["HOME"]) / ".codex/sessions/2026/11/15"
home.mkdir(parents=True, exist_ok=True)
with (home / f"rollout-2026-11-15T06-32-12-{id_}.jsonl").open("a") as file:
    file.write(json.dumps(said) + "\\n")
print(json.dumps({"type": "turn.completed", "usage": {}}), flush=True)
"""


def test_an_id_that_cannot_be_had_before_is_learned_from_the_stream(desk):
    """Where neither we nor the vendor can name the conversation first, its stream does; never the newest file (T03)."""
    decoy = (
        desk.place / ".codex/sessions/2027/01/01/rollout-2027-01-01T00-00-00-01a1ddec-2375-7ee0-bade-e44cc4ed7f0c.jsonl"
    )
    decoy.parent.mkdir(parents=True)
    decoy.write_text('{"type": "session_meta", "payload": {}}\n')
    program = desk.place / "bin" / "codex"
    program.write_text(f"#!{sys.executable}\n{CODEX}")
    program.chmod(0o755)
    data = desk.data("start", "codex", "--name", "fix", "-p", "go", kind="agent_run")
    assert (data["vendor_id"], data["finished"]) == ("01a1dde8-02a1-7892-85d5-b605ca9d0f82", True)
    (link,) = desk.links("fix", "codex")
    assert Path(link["last"]["transcript"]).name.endswith(f"{link['id']}.jsonl")
    assert (link["first"]["cwd"], link["first"]["reason"]) == (str(desk.project), "startup")
