"""An agent on a person's terminal: Ctrl-C goes to the agent, and the terminal is restored."""

import os
import pty
import re
import select
import shlex
import signal
import termios
import time

import pytest

from onrecord.agents.mirroring import kept
from onrecord.machine import started
from tests.forking import SCRIPT
from tests.waiting import until


class Terminal:
    """`onrecord` on its own terminal, with a person at the keys."""

    def __init__(self, desk, *words, shell=False):
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            os.chdir(desk.project)
            if shell:
                bash = ["bash", "--norc", "--noprofile", "-i"]
                os.execve("/bin/bash", bash, desk.environment | {"PS1": "$ ", "HISTFILE": ""})
            os.execve(SCRIPT, [str(SCRIPT), *words], desk.environment)
        self.shown = ""
        if shell:
            self.keys(shlex.join([str(SCRIPT), *words]) + "\n")

    def wait_for(self, text, patience=90.0):
        deadline = time.monotonic() + patience
        anywhere = re.compile(r"\s+".join(re.escape(word) for word in text.split(" ")))  # messages wrap at the edge
        while (found := anywhere.search(self.shown)) is None:
            assert time.monotonic() < deadline, self.shown
            self._read(0.2)
        self.shown = self.shown[found.end() :]

    def _read(self, seconds):
        if select.select([self.file], [], [], seconds)[0]:
            try:
                self.shown += os.read(self.file, 65_536).decode(errors="replace")
            except OSError:
                return False
        return True

    def keys(self, text):
        os.write(self.file, text.encode())

    def end(self):
        """Its exit status."""
        deadline = time.monotonic() + 90
        while self._read(0.2) and time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                break
        else:
            _pid, status = os.waitpid(self.pid, 0)
        os.close(self.file)
        return os.waitstatus_to_exitcode(status)


def test_a_person_talks_to_the_agent_and_it_is_on_record(desk):
    """Interactive: keys reach the agent, Ctrl-C interrupts its turn and not the wrapper, and everything is mirrored."""
    terminal = Terminal(desk, "start", "claude", "--name", "fix")
    terminal.wait_for("ready")
    terminal.keys("hello\n")
    terminal.wait_for("HEARD")
    terminal.keys("\x03")
    terminal.wait_for("INTERRUPTED")
    terminal.keys("still here\n")
    terminal.wait_for("HEARD")
    terminal.keys("exit\n")
    assert terminal.end() == 0
    assert desk.prompts() == ["hello", "still here"]
    assert desk.interruptions("fix") == []
    (link,) = desk.links("fix")
    session = desk.session("fix")
    mirrored = [line for event in session.events(kinds=("payload.kept",)) for line in event.data["lines"]]
    assert len(mirrored) == 4
    assert link["last"]["transcript"] == str(desk.transcripts()[0])


def test_a_limit_is_on_record_while_the_program_is_open_and_until_it_works_again(desk):
    """The program stays open at a limit: the stop has its time and the typed prompt, and ends when a person continues."""
    terminal = Terminal(desk, "start", "claude", "--name", "fix", "--no-input")
    terminal.wait_for("ready")
    terminal.keys("limit 3600\n")
    terminal.wait_for("LIMITED")
    (stop,) = until(lambda: desk.interruptions("fix"))
    assert (stop["cause"], stop["terminal"], stop["answered"]) == ("usage_window", True, False)
    assert 3500 < stop["resets_at"] - time.time() <= 3600
    session = desk.session("fix")
    assert session.log.event(stop["prompt"]).data["prompt"] == "limit 3600"
    assert session.views.interruption()["cause"] == "usage_window"
    terminal.keys("hello\n")
    terminal.wait_for("HEARD")
    until(lambda: desk.session("fix").views.interruption() is None)
    terminal.keys("exit\n")
    assert terminal.end() == 0
    assert len(desk.interruptions("fix")) == 1


def test_a_program_that_was_closed_at_its_limit_did_not_finish(desk):
    """Exit status 0 after a limit is no success, and one that was left in the middle of a turn was ended by a person."""
    terminal = Terminal(desk, "start", "claude", "--name", "fix", "--no-input", "--opening", "Find the bug")
    terminal.wait_for("ready")
    terminal.keys("exit\n")
    assert terminal.end() == 1
    terminal = Terminal(desk, "resume", "fix")
    terminal.wait_for("ready")
    terminal.keys("limit 3600\n")
    terminal.wait_for("LIMITED")
    terminal.keys("exit\n")
    terminal.wait_for("claude was stopped by its usage limit, until")
    assert terminal.end() == 1
    assert [stop["cause"] for stop in desk.interruptions("fix")] == ["user", "usage_window"]


def test_with_wait_the_agent_is_ended_at_the_limit_and_gets_its_prompt_again(desk):
    """On a terminal `--wait` parks until the reset and resumes there; the typed prompt is issued again, exactly once (G10)."""
    terminal = Terminal(desk, "start", "claude", "--name", "fix", "--no-input", "--wait")
    terminal.wait_for("ready")
    terminal.keys("limit 5\n")
    terminal.wait_for("LIMITED")
    terminal.wait_for("waiting until")
    terminal.wait_for("ready")
    until(lambda: desk.prompts() == ["limit 5", "limit 5"])
    terminal.keys("hello\n")
    terminal.wait_for("HEARD")
    terminal.keys("exit\n")
    assert terminal.end() == 0
    assert desk.prompts() == ["limit 5", "limit 5", "hello"]
    assert [stop["cause"] for stop in desk.interruptions("fix")] == ["usage_window"]


def test_resumed_on_a_terminal_it_is_verified_by_its_pid_file_and_growth(desk):
    """The id is read from the agent's own pid file while it runs, and the transcript grows: the resume is verified."""
    desk.ok("start", "claude", "--name", "fix", "-p", "go")
    terminal = Terminal(desk, "resume", "fix")
    terminal.wait_for("ready")
    time.sleep(0.5)
    terminal.keys("hello\n")
    terminal.wait_for("HEARD")
    terminal.keys("exit\n")
    terminal.wait_for("Confirmed that it is the same conversation")
    assert terminal.end() == 0
    assert desk.prompts() == ["go", "hello"]
    assert desk.links("fix")[0]["last"]["verified"] is True


def test_a_conversation_in_which_nothing_was_said_is_begun_anew(desk):
    """When a person leaves before the first prompt, the vendor has written nothing, and the reason says so."""
    terminal = Terminal(desk, "start", "claude", "--name", "fix")
    terminal.wait_for("ready")
    terminal.keys("exit\n")
    assert terminal.end() == 0
    error = desk.error("resume", "fix", "--policy", "must", "-p", "go", code=10, kind="not_restored")
    assert error["message"] == "not restored, because no transcript of it was ever seen"
    assert desk.data("resume", "fix", "--policy", "allow", "-p", "go", kind="resumption")["state"] == "fresh"


def test_a_terminal_that_a_killed_agent_left_raw_is_restored(desk):
    """After SIGKILL in raw mode the terminal is as it was before, and the kill is on record."""
    terminal = Terminal(desk, "start", "claude", "--name", "fix")
    terminal.wait_for("ready")
    before = termios.tcgetattr(terminal.file)
    terminal.keys("raw\n")
    terminal.wait_for("RAW")
    terminal.wait_for("claude was killed")
    assert termios.tcgetattr(terminal.file)[3] == before[3]
    assert terminal.end() == 128 + signal.SIGKILL
    assert [stop["cause"] for stop in desk.interruptions("fix")] == ["killed"]


def test_a_closed_terminal_ends_the_agent_with_it(desk):
    """When the window is closed, no process of the agent remains, and the reason is on record."""
    terminal = Terminal(desk, "start", "claude", "--name", "fix")
    terminal.wait_for("ready")
    pid = until(lambda: desk.links("fix")[0]["last"].get("process"))["pid"]
    os.close(terminal.file)
    until(lambda: started(pid) is None)
    os.waitpid(terminal.pid, 0)
    assert [stop["cause"] for stop in desk.interruptions("fix")] == ["killed"]


def test_an_agent_that_stops_itself_is_continued_with_the_wrapper(desk):
    """After Ctrl-Z, an agent that suspended itself continues at once if no shell could bring it back."""
    terminal = Terminal(desk, "start", "claude", "--name", "fix")
    terminal.wait_for("ready")
    terminal.keys("stop\n")
    time.sleep(0.5)
    terminal.keys("hello\n")
    terminal.wait_for("HEARD")
    terminal.keys("exit\n")
    assert terminal.end() == 0


def test_in_a_shell_a_stopped_agent_is_brought_back_with_fg(desk):
    """Ctrl-Z under job control returns to the shell, and `fg` brings back wrapper and agent."""
    terminal = Terminal(desk, "start", "claude", "--name", "fix", shell=True)
    terminal.wait_for("ready")
    terminal.keys("stop\n")
    terminal.wait_for("Stopped")
    terminal.keys("echo here-$((40 + 2))\n")
    terminal.wait_for("here-42")
    terminal.keys("fg\n")
    time.sleep(0.5)
    terminal.keys("hello\n")
    terminal.wait_for("HEARD")
    terminal.keys("exit\n")
    terminal.keys("exit\n")
    assert terminal.end() == 0
    assert desk.prompts() == ["hello"]


def test_a_hook_tells_the_conversation_where_no_file_does(desk):
    """For a program without pid files the hook records the id, and that verifies the resume."""
    desk.ok("start", "claude", "--name", "fix", "-p", "go")
    desk.environment |= {"PRETENDER_SECRETIVE": "1", "PRETENDER_HOOK": str(SCRIPT)}
    terminal = Terminal(desk, "resume", "fix")
    terminal.wait_for("ready")
    terminal.keys("hello\n")
    terminal.wait_for("HEARD")
    terminal.keys("exit\n")
    terminal.wait_for("Confirmed that it is the same conversation")
    assert terminal.end() == 0
    assert desk.links("fix")[0]["last"]["via"] == "hook"


def test_without_file_and_hook_it_is_said_to_be_unverified(desk):
    """Where only the transcript grew, the conversation is resumed and not called verified."""
    desk.ok("start", "claude", "--name", "fix", "-p", "go")
    desk.environment |= {"PRETENDER_SECRETIVE": "1"}
    terminal = Terminal(desk, "resume", "fix")
    terminal.wait_for("ready")
    terminal.keys("hello\n")
    terminal.wait_for("HEARD")
    terminal.keys("exit\n")
    terminal.wait_for(
        "Could not confirm that it is the same conversation: no stream, hook or lock file named it, and its transcript grew"
    )
    assert terminal.end() == 0
    assert desk.links("fix")[0]["last"]["verified"] is False


@pytest.mark.parametrize("hooked", [True, False])
def test_ids_rotate_and_the_chain_follows(desk, hooked):
    """`/clear` starts another conversation in the same process: both are linked in order, and both are mirrored."""
    if hooked:
        desk.environment |= {"PRETENDER_HOOK": str(SCRIPT)}
    terminal = Terminal(desk, "start", "claude", "--name", "fix")
    terminal.wait_for("ready")
    terminal.keys("before\n")
    terminal.wait_for("HEARD")
    terminal.keys("/clear\n")
    terminal.wait_for("CLEARED")
    until(lambda: len(desk.links("fix")) == 2)
    terminal.keys("after\n")
    terminal.wait_for("HEARD")
    terminal.keys("exit\n")
    assert terminal.end() == 0
    first, second = desk.links("fix")
    assert (first["first"]["reason"], second["first"]["reason"]) == ("startup", "cleared")
    session = desk.session("fix")
    said = [[one.raw for one in kept(session, "claude", link["id"])] for link in (first, second)]
    assert [len(lines) for lines in said] == [2, 2]
    assert "after" in said[1][0]
    line = desk.ok("resume", "fix", "--print")
    assert second["id"] in line


@pytest.mark.parametrize("hooked", [True, False])
def test_cleared_after_a_resume_the_new_conversation_is_the_present_one(desk, hooked):
    """The end of a resumed run confirms the conversation it began with; the next resume continues the one it ended with."""
    if hooked:
        desk.environment |= {"PRETENDER_HOOK": str(SCRIPT)}
    assert desk.run("start", "claude", "--name", "fix", "-p", "before").code == 0
    terminal = Terminal(desk, "resume", "fix")
    terminal.wait_for("ready")
    terminal.keys("again\n")
    terminal.wait_for("HEARD")
    until(lambda: desk.links("fix")[0]["last"].get("verified"))
    terminal.keys("/clear\n")
    terminal.wait_for("CLEARED")
    until(lambda: len(desk.links("fix")) == 2)
    terminal.keys("after\n")
    terminal.wait_for("HEARD")
    terminal.keys("exit\n")
    assert terminal.end() == 0
    _first, second = desk.links("fix")
    assert second["first"]["reason"] == "cleared"
    assert second["id"] in desk.ok("resume", "fix", "--print")


def test_a_program_that_ends_before_it_has_a_conversation_is_not_waited_for(desk):
    """With --wait, the last word is the program's own error: nothing is resumed, and nothing says that it could be."""
    program = desk.place / "bin" / "codex"
    program.write_text("#!/bin/sh\necho 'Error loading configuration' >&2\nexit 1\n")
    program.chmod(0o755)
    terminal = Terminal(desk, "start", "codex", "--name", "fix", "--wait", "--no-input")
    terminal.wait_for("Error loading configuration")
    terminal.wait_for("resumes it")
    assert terminal.end() == 1
    assert "there is no conversation" not in terminal.shown
