"""Resuming: the expected conversation comes up and grows, or the answer says why not."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from onrecord.machine import started
from tests.waiting import until, until_gone


@pytest.fixture
def killed(desk):
    """A session with an agent that was killed in the middle of its first prompt."""
    desk.plan("die", "answer")
    assert desk.run("start", "claude", "--name", "fix", "-p", "Find the bug").code == 137
    return desk


def test_a_killed_agent_goes_on_in_the_same_conversation(killed):
    """A conversation is resumed by name and verified by id and growth; its transcript loses nothing (G05, G11, L04, T13)."""
    before = killed.transcripts()[0].read_bytes()
    data = killed.data("resume", "fix", "-p", "Go on", kind="resumption")
    assert (data["state"], data["verified"], data["finished"]) == ("resumed", True, True)
    assert killed.transcripts()[0].read_bytes().startswith(before)
    assert killed.prompts() == ["Find the bug", "Go on"]
    (link,) = killed.links("fix")
    assert (link["last"]["verified"], link["last"]["reason"], link["first"]["reason"]) == (True, "resumed", "startup")
    assert data["saved"]["attempts"] == 0


def test_resuming_says_what_need_not_be_done_again(killed):
    """A resume reports the settled attempts and the finished work, as text and as data (G13)."""
    killed.ok("run", "--session", "fix", "--", "true")
    assert killed.run("run", "--session", "fix", "--", "false").code == 1
    done = killed.run("resume", "fix", "-p", "Go on")
    assert done.code == 0, done
    assert "2 attempts (1 failed, " in done.err
    saved = killed.data("resume", "fix", "-p", "Go on", kind="resumption")["saved"]
    assert (saved["attempts"], saved["failed_attempts"], saved["phases"]) == (2, 1, [])


def test_nothing_is_told_again_to_a_conversation_that_knows_it(killed):
    """A resumed conversation gets the new prompt and nothing else (T23)."""
    killed.ok("decide", "Reproduce first", "--session", "fix")
    killed.ok("resume", "fix", "-p", "Go on")
    assert killed.prompts()[-1] == "Go on"


def test_an_interruption_is_told_until_the_agent_runs_again(desk):
    """The note and the overview say why it stopped and until when; after a resume they no longer do (G09, G10)."""
    desk.plan("limit 7200", "answer")
    desk.run("start", "claude", "--name", "fix", "-p", "Find the bug")
    note = desk.ok("note", "fix")
    assert "usage_window, until 20" in note
    assert "claude was stopped by its usage limit, until 20" in desk.ok()
    desk.ok("resume", "fix", "-p", "Go on")
    assert "usage_window" not in desk.ok("note", "fix")
    assert "stopped" not in desk.ok()


def test_the_command_can_be_printed_instead(killed):
    """--print shows one line for a shell and starts nothing."""
    position = killed.session("fix").head.position
    line = killed.ok("resume", "fix", "--print").strip()
    (link,) = killed.links("fix")
    assert line.startswith(f"cd {killed.project} && ")
    assert line.endswith(f"claude --resume {link['id']}")
    assert killed.session("fix").head.position == position


def test_another_directory_makes_no_difference(killed, tmp_path):
    """Called from another directory, the agent runs where its conversation was (T06)."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    project, killed.project = killed.project, elsewhere
    killed.ok("resume", "fix", "--project", str(project), "-p", "Go on")
    last = json.loads(killed.transcripts()[0].read_text().splitlines()[-1])
    assert last["cwd"] == str(project)


def test_a_directory_that_is_gone_is_said_and_another_one_taken(desk, tmp_path):
    """When a worktree was removed, the agent continues in the project's own directory, and the answer says so."""
    subprocess.run(["git", "init", "-q"], cwd=desk.project, check=True)
    below = desk.project / "part"
    below.mkdir()
    project, desk.project = desk.project, below
    desk.ok("start", "claude", "--name", "fix", "-p", "Find the bug")
    desk.project = project
    shutil.rmtree(below)
    done = desk.run("resume", "fix", "-p", "Go on")
    assert done.code == 0, done
    assert f"its directory {below} is gone" in done.err
    assert desk.links("fix")[0]["last"]["cwd"] == str(project)
    assert desk.links("fix")[0]["last"]["verified"] is True


def test_branch_and_revision_are_known_at_start_and_end(desk):
    """The link says on which revision work began and ended."""
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run([*git, "init", "-q", "-b", "main"], cwd=desk.project, check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "one"], cwd=desk.project, check=True)
    desk.ok("start", "claude", "--name", "fix", "-p", "go")
    subprocess.run([*git, "checkout", "-q", "-b", "work"], cwd=desk.project, check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "two"], cwd=desk.project, check=True)
    desk.ok("resume", "fix", "-p", "Go on")
    (link,) = desk.links("fix")
    assert (link["first"]["branch"], link["last"]["branch"]) == ("main", "work")
    assert link["first"]["revision"] != link["last"]["revision"]
    assert link["last"]["worktree"] == str(desk.project)


def test_a_lost_transcript_is_put_back_from_the_record(killed):
    """When the vendor's file is gone, the record's copy is written back, and the conversation continues (T07)."""
    path = killed.transcripts()[0]
    before = path.read_bytes()
    path.unlink()
    data = killed.data("resume", "fix", "-p", "Go on", kind="resumption")
    assert (data["state"], data["verified"]) == ("resumed", True)
    assert path.read_bytes().startswith(before)


def test_without_any_copy_it_begins_anew_from_the_note_or_not_at_all(killed):
    """`must` stops and says why; `allow` starts a new conversation with the note, fenced as data (T07)."""
    (link,) = killed.links("fix")
    session = killed.session("fix")
    kept = [event.position for event in session.events(kinds=("payload.kept",))]
    session.log.erase("a password", positions=kept)
    killed.transcripts()[0].unlink()
    killed.ok("decide", "Reproduce first", "--session", "fix")
    error = killed.error("resume", "fix", "--policy", "must", "-p", "Go on", code=10, kind="not_restored")
    assert error["message"].startswith("not restored, because its transcript is gone")
    killed.error(
        "resume", "fix", "-p", "Go on", code=10, kind="not_restored"
    )  # without a terminal, that is the default
    assert killed.transcripts() == []
    done = killed.run("resume", "fix", "--policy", "allow", "-p", "Go on")
    assert done.code == 0, done
    assert "not restored, because" in done.err
    (prompt,) = killed.prompts()
    assert "Reproduce first" in prompt
    assert prompt.endswith("Go on")
    opening, closing = [line for line in prompt.splitlines() if "onrecord-data nonce=" in line]
    assert opening[1:] == closing[2:]
    first, _second = killed.links("fix")
    assert first["id"] == link["id"]


def test_a_silent_fresh_start_is_noticed(killed):
    """Exit code 0 proves nothing: another conversation came up, so the expected one was not restored."""
    killed.plan("silently-fresh", "answer")
    error = killed.run("resume", "fix", "--policy", "must", "-p", "Go on", "--json")
    assert error.code == 10, error
    told = json.loads(error.err)["error"]
    assert "another conversation came up" in told["message"]
    expected = min(killed.links("fix"), key=lambda link: link["position"])["id"]
    assert killed.links("fix")[-1]["id"] == expected, "the next resume does not continue with the stray"
    killed.plan("silently-fresh", "answer")
    done = killed.run("resume", "fix", "--policy", "allow", "-p", "Go on")
    assert done.code == 0, done
    assert "not restored, because another conversation came up" in done.err
    links = sorted(killed.links("fix"), key=lambda link: link["position"])
    was, *strays, fresh = [link["id"] for link in links]
    written = {path.stem: killed.prompts_of(path) for path in killed.transcripts()}
    assert written.keys() <= {was, *strays, fresh}, "every conversation that came up is on record"
    assert written[was] == ["Find the bug"], "the expected conversation was told nothing more"
    # A stray is ended as soon as it is seen, perhaps before it has written anything.
    assert all(written[one] == ["Go on"] for one in strays if one in written)
    (given,) = written[fresh]
    fences = [line for line in given.splitlines() if "onrecord-data nonce=" in line]
    assert [line[1:] for line in fences[::2]] == [line[2:] for line in fences[1::2]], "note and extract are data"
    assert "user: Find the bug" in given, "the fresh conversation is given the end of the lost one"
    assert given.endswith("Go on")


def test_a_transcript_that_was_cut_on_resume_is_noticed_and_not_lost(killed):
    """A resume by a program that empties the file is not called verified, and the earlier content stays on record (T13)."""
    before = killed.transcripts()[0].read_text().splitlines()
    killed.plan("truncate")
    data = killed.data("resume", "fix", "-p", "Go on", kind="resumption")
    assert (data["state"], data["verified"]) == ("resumed", False)
    assert "replaced its transcript" in data["why"]
    kept = [
        line for event in killed.session("fix").events(kinds=("payload.kept",)) for line in event.data.get("lines", ())
    ]
    assert all(line in kept for line in before)


def test_never_means_a_fresh_one(killed):
    """--policy never starts a new conversation from the note, though the old one could be resumed."""
    data = killed.data("resume", "fix", "--policy", "never", "-p", "Go on", kind="resumption")
    assert data["state"] == "fresh"
    assert len(killed.transcripts()) == 2


def test_a_refusal_of_the_program_is_the_reason(killed):
    """A person reads the vendor's own error message."""
    killed.plan("refuse")
    error = killed.run("resume", "fix", "--policy", "must", "-p", "Go on")
    assert error.code == 10, error
    assert "not restored, because Invalid API key" in error.err


def test_a_second_writer_is_refused(desk, tmp_path):
    """Claude Code would let two processes write one conversation; onrecord does not, even when its wrapper was killed."""
    desk.plan(f"hang {tmp_path}/pid", "answer")
    with desk.started("start", "claude", "--name", "fix", "-p", "go", stdin=subprocess.DEVNULL) as wrapper:
        pid = int(until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text()))
        wrapper.kill()
        wrapper.communicate(timeout=90)
    try:
        error = desk.error("resume", "fix", "-p", "Go on", code=7, kind="conversation_in_use")
        assert str(pid) in error["message"]
        assert "resumes" not in desk.run("resume", "fix", "-p", "Go on").err, "no note says the opposite of the error"
    finally:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{pid}").exists())
    assert desk.data("resume", "fix", "-p", "Go on", kind="resumption")["verified"] is True


def test_a_foreign_process_on_the_conversation_is_a_second_writer_too(killed, tmp_path):
    """A conversation that a person resumed by hand, without onrecord, is left alone."""
    (link,) = killed.links("fix")
    killed.plan(f"hang {tmp_path}/pid")
    words = [killed.place / "bin" / "claude", "-p", "--resume", link["id"]]
    with subprocess.Popen(
        words, env=killed.environment, cwd=killed.project, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as other:
        until((tmp_path / "pid").exists)
        killed.error("resume", "fix", "-p", "Go on", code=7, kind="conversation_in_use")
        other.kill()


def test_several_agents_are_planned_and_one_must_be_named(desk):
    """With many agents under one name, each plan is shown, and the person chooses who continues (A23)."""
    for agent in ("one", "two"):
        desk.ok("start", "claude", "--name", "team", "--agent", agent, "-p", f"I am {agent}")
    done = desk.run("resume", "team", "-p", "Go on")
    assert done.code == 4, done
    assert all(f"{agent}: Claude Code resumes" in done.err for agent in ("one", "two"))
    desk.ok("resume", "team", "--agent", "two", "-p", "Go on")
    (link,) = desk.links("team", "two")
    assert "Go on" in Path(link["last"]["transcript"]).read_text()


def test_a_paused_session_goes_on_with_its_agent_and_a_closed_one_needs_reopening(desk):
    """A paused session is resumed with its agent; a closed one needs --reopen."""
    desk.ok("start", "claude", "--name", "fix", "-p", "go")
    desk.ok("pause", "fix")
    desk.ok("resume", "fix", "-p", "Go on")
    assert desk.session("fix").status == "resumed"
    desk.ok("close", "fix", "--anyway", "a test")
    desk.error("resume", "fix", "-p", "Go on", code=10, kind="illegal_transition")
    desk.ok("resume", "fix", "--reopen", "-p", "Go on")
    assert len(desk.prompts()) == 3


def test_a_session_without_agents_has_no_agents_options(desk):
    """Options that only an agent can follow are refused where there is none."""
    desk.ok("open", "plain")
    desk.ok("pause", "plain")
    desk.error("resume", "plain", "--wait", code=2, kind="usage")
    desk.ok("resume", "plain")


def test_another_home_is_found_again(desk, tmp_path):
    """A conversation of another config home is resumed there, though the variable is no longer set."""
    other = tmp_path / "other-home"
    desk.ok("start", "claude", "--name", "fix", "-p", "go", env={"CLAUDE_CONFIG_DIR": str(other)})
    assert desk.data("resume", "fix", "-p", "Go on", kind="resumption")["verified"] is True
    assert len(list(other.glob("projects/*/*.jsonl"))) == 1
    assert desk.transcripts() == []


def test_what_a_killed_run_left_running_is_ended_before_the_next(desk, tmp_path):
    """Agent and wrapper are killed, a tool in a session of its own survives: the resume ends it, by its token (G05)."""
    desk.plan(f"tool-then-hang {tmp_path}/tool", "answer")
    with desk.started("start", "claude", "--name", "fix", "-p", "go", stdin=subprocess.DEVNULL) as wrapper:
        tool = int(until(lambda: (tmp_path / "tool").exists() and (tmp_path / "tool").read_text()))
        agent = until(lambda: desk.links("fix")[0]["last"].get("process"))["pid"]
        wrapper.kill()
        wrapper.communicate(timeout=90)
    os.kill(agent, signal.SIGKILL)
    until(lambda: started(agent) is None)
    assert started(tool) is not None, "it outlived both"
    done = desk.run("resume", "fix", "-p", "Go on")
    assert done.code == 0, done
    assert "left running" in done.err
    until_gone(tool)
