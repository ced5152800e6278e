"""Following: what a program without a wrapper writes is on record while it works, and nothing is left running."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from onrecord import machine
from onrecord.agents import following
from onrecord.agents.following import Follower
from onrecord.session.handle import Session
from onrecord.surfaces.hook.following import lock
from tests.hook.conftest import CONVERSATION, Hooks
from tests.waiting import until

NEXT = "bbbbbbbb-0000-4000-8000-0000000000ad"


class Program:
    """A process in the place of Claude Code, and the transcripts it writes."""

    def __init__(self, hooks: Hooks) -> None:
        self.hooks = hooks
        self.process = subprocess.Popen(["sleep", "600"])
        self.env = {"CLAUDE_PID": str(self.process.pid), "ONRECORD_FOLLOW": "1"}

    def path(self, id_: str = CONVERSATION) -> Path:
        return self.hooks.place / ".claude" / "projects" / "-p" / f"{id_}.jsonl"

    def write(self, role: str, text: str, id_: str = CONVERSATION, **about: Any) -> None:
        self.path(id_).parent.mkdir(parents=True, exist_ok=True)
        message = {"role": role, "content": text, **about}
        if role == "assistant":
            message |= {
                "content": [{"type": "text", "text": text}],
                "stop_reason": about.get("stop_reason", "end_turn"),
            }
        record = {"type": role, "uuid": text, "sessionId": id_, "cwd": "/p", "message": message}
        with self.path(id_).open("a") as file:
            file.write(json.dumps(record) + "\n")

    def says(self, event: str, id_: str = CONVERSATION, **about: Any) -> None:
        said = self.hooks.claude(event, self.env, session_id=id_, transcript_path=str(self.path(id_)), **about)
        assert said.code == 0

    def followers(self) -> list[Path]:
        folder = self.hooks.place / ".local" / "state" / "onrecord" / "following"
        return list(folder.glob("*")) if folder.is_dir() else []

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def program(hooks: Hooks) -> Iterator[Program]:
    made = Program(hooks)
    yield made
    made.kill()
    until(lambda: not made.followers())


def said(hooks: Hooks) -> str:
    with hooks.records() as records:
        told = records.get("fix-403").transcript()
        return json.dumps([turn.items for turn in (*told.committed, *told.provisional)])


def test_what_it_writes_is_on_record_while_it_works(hooks, session, program):
    """No hook runs after the prompt: its words are on record all the same, also under a new id, and its end is noticed."""
    program.says("SessionStart", source="startup")
    program.says("UserPromptSubmit", prompt="Why 403?")
    program.write("user", "Why 403?")
    program.write("assistant", "The invite has expired.")
    until(lambda: "The invite has expired." in said(hooks))
    assert len(program.followers()) == 1
    program.says("SessionStart", NEXT, source="clear")
    program.write("user", "Something else", NEXT)
    until(lambda: "Something else" in said(hooks))
    assert len(program.followers()) == 1, "it follows the agent, not one conversation"
    program.kill()
    until(lambda: not program.followers())
    (left,) = hooks.kinds("agent.left")
    assert left.data == {"reason": "gone"}
    assert [event.data["cause"] for event in hooks.kinds("interruption.recorded")] == ["killed"], "in mid-turn"
    assert hooks.trouble() == ""


@pytest.mark.parametrize("how", ["variable", "setting", "wrapped"])
def test_it_is_off_where_it_is_not_wanted(hooks, session, program, how):
    """A variable or a setting switches it off, and an agent that a process of ours wraps needs none."""
    if how == "variable":
        program.env["ONRECORD_FOLLOW"] = "0"
    elif how == "setting":
        del program.env["ONRECORD_FOLLOW"]
        hooks.environment.pop("ONRECORD_FOLLOW")
        (hooks.place / ".config" / "onrecord").mkdir(parents=True)
        (hooks.place / ".config" / "onrecord" / "config.toml").write_text("follow = false\n")
    else:
        program.env |= {"ONRECORD_SESSION": session.id, "ONRECORD_AGENT": "solver", "ONRECORD_SPAWN": "x"}
    program.says("SessionStart", source="startup")
    assert program.followers() == []
    assert hooks.kinds("agent.located")


class Room:
    """A follower in this process, with short intervals."""

    def __init__(self, hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, seconds in (("TICK", 0.02), ("SETTLING", 0.05), ("QUIET", 0.3), ("IDLE", 0.3)):
            monkeypatch.setattr(following, f"{name}_SECONDS", seconds)
        self.hooks, self.told, self.touches = hooks, list[str](), 0
        self.env = hooks.environment

    @contextmanager
    def opened(self) -> Iterator[Session]:
        with self.hooks.records() as records:
            yield records.get("fix-403", agent="solver")

    def run(self) -> int:
        given = following.Hooks(self.opened, lambda: self.touches, lambda session: self.told.append(session.name))
        return Follower(given, self.env).run()


def test_a_limit_is_on_record_and_between_turns_it_ends(hooks, session, program, monkeypatch):
    """An error that no hook reports is recorded once, the person is notified, and an idle follower ends by itself."""
    room = Room(hooks, monkeypatch)
    session.agents.record_start(machine.identity_of(program.process.pid), vendor="claude")
    program.write("user", "Why 403?")
    with program.path().open("a") as file:
        error = {"role": "assistant", "content": [{"type": "text", "text": "Claude AI usage limit reached|1999999999"}]}
        record = {"type": "assistant", "uuid": "e", "sessionId": CONVERSATION, "isApiErrorMessage": True,
                  "error": "rate_limit", "message": error}  # fmt: skip
        file.write(json.dumps(record) + "\n")
    room.run()
    (stop,) = hooks.kinds("interruption.recorded")
    assert (stop.data["cause"], stop.data["resets_at"]) == ("usage_window", 1999999999)
    assert room.told == ["fix-403"]
    room.run()
    assert len(hooks.kinds("interruption.recorded")) == 1


def test_in_the_middle_of_a_turn_it_waits(hooks, session, program, monkeypatch):
    """A tool may run for hours: between its call and its result a follower does not end, however idle it is."""
    room = Room(hooks, monkeypatch)
    session.agents.record_start(machine.identity_of(program.process.pid), vendor="claude")
    program.write("user", "Why 403?")
    monkeypatch.setattr(following, "WORKING_SECONDS", 0.5)
    began = time.monotonic()
    room.run()
    assert time.monotonic() - began >= 0.5


def test_only_one_process_has_the_lock(tmp_path):
    """Two hooks may start a follower at the same moment: the second one finds the lock taken and ends."""
    path = str(tmp_path / "one")
    held = lock(path)
    assert held is not None
    assert lock(path) is None
    os.close(held)
    again = lock(path)
    assert again is not None
    os.close(again)
    assert Path(path).stat().st_mode & 0o777 == 0o600


def test_it_ends_where_a_process_of_ours_wraps_the_agent(hooks, session, program, monkeypatch):
    """A wrapper copies the conversation itself: a follower that is still there leaves that to it."""
    room = Room(hooks, monkeypatch)
    program.write("user", "Why 403?")
    with hooks.records() as records:
        records.get("fix-403", agent="solver").acquire()
        room.run()
    assert hooks.kinds("payload.kept") == []


def test_a_retry_that_lasts_is_a_limit_until_the_turn_ends(hooks, session, program):
    """Opencode retries without end and writes that nowhere: its plugin reports it, also under a wrapper, and it ends with the turn."""
    id_ = "ses_1"
    session.agents.locate("opencode", id_, reason="startup")
    session.acquire()
    said = {
        "session_id": id_,
        "cwd": str(hooks.project),
        "message": "You exceeded your current quota; retry after 40 seconds",
    }
    for _again in range(2):
        assert hooks.send("opencode", "session.retry", said).code == 0
    (stop,) = hooks.kinds("interruption.recorded")
    assert (stop.data["cause"], stop.data["via"]) == ("rate_limit", "retrying")
    assert 30 < stop.data["resets_at"] - time.time() < 45
