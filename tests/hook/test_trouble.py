"""A hook never breaks its agent, whatever its input, the state of the store, and the time things take."""

import json
import resource
import shutil
import stat
import subprocess
import sys
import time
from contextlib import closing

import apsw
import pytest

from onrecord.surfaces.trouble import FILE_BYTES
from onrecord.vendors.hooks import DEADLINE_SECONDS
from tests.hook.conftest import CONVERSATION, PATIENCE

GARBAGE = [
    b"", b"\n", b"\x00\xff\xfe", b"not json", b"[1, 2]", b'"text"', b"null", b"{", b'{"session_id": 7}', b"[" * 100_000,
    b'{"session_id": "../../etc/passwd", "hook_event_name": "SessionStart", "cwd": 5, "source": []}',
    b'{"session_id": "x", "hook_event_name": "PreToolUse", "tool_name": {}, "tool_input": "y"}',
    b'{"session_id": "\\ud800", "hook_event_name": "Stop"}',
    json.dumps({"session_id": "x" * 5_000, "hook_event_name": "PreToolUse", "tool_name": "Edit"}).encode(),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(GARBAGE)))
def test_garbage_is_answered_with_nothing(hooks, session, number):
    """No payload makes a hook fail, print or write anything into a session (P30)."""
    before = session.views.position
    said = hooks.raw("claude", "PreToolUse", GARBAGE[number])
    assert said.is_empty, said
    assert session.views.position == before


@pytest.mark.parametrize(
    "words", [(), ("nobody", "X"), ("../port", "X"), ("claude_shaped", "X"), ("claude", "NoSuchEvent")]
)
def test_unknown_vendors_and_events_are_answered_with_nothing(hooks, session, words):
    """A malformed command line does not stop an agent (P30)."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "onrecord", "hook", *words], input=b'{"session_id": "x"}', env=hooks.environment,
        cwd=hooks.project, capture_output=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def _too_new(hooks):
    with closing(apsw.Connection(str(hooks.store))) as connection:
        connection.execute("PRAGMA user_version = 9999")


def _damaged(hooks):
    for beside in hooks.store.parent.glob("store.db*"):
        beside.unlink()
    hooks.store.write_bytes(b"not a database at all" * 1_000)
    hooks.store.chmod(0o600)


def _missing(hooks):
    shutil.rmtree(hooks.store.parent)


def _directory(hooks):
    _missing(hooks)
    hooks.store.mkdir(parents=True)


def _unsafe(hooks):
    hooks.store.parent.chmod(0o777)


def _empty(hooks):
    _missing(hooks)
    hooks.store.parent.mkdir()
    hooks.store.touch(0o600)


@pytest.mark.parametrize("spoil", [_too_new, _damaged, _missing, _directory, _unsafe, _empty])
def test_a_store_in_trouble_is_answered_with_nothing(hooks, session, spoil):
    """With a store that is newer, damaged, missing, not a file or unsafe, the agent continues, and no file is created (P30)."""
    session.store.close()
    spoil(hooks)
    there = hooks.store.exists()
    for event in ("SessionStart", "UserPromptSubmit", "PreCompact", "Stop", "Notification", "SessionEnd"):
        assert hooks.claude(event, source="resume").is_empty
    assert hooks.edit().is_empty
    assert hooks.ran("make").is_empty
    assert hooks.store.exists() is there


def test_what_went_wrong_is_noted_beside_the_store(hooks, session):
    """The note of a failure is short, private and bounded, and no line of it acts on a terminal."""
    session.store.close()
    _too_new(hooks)
    hooks.edit()
    file = hooks.store.parent / "hook-trouble.log"
    assert "claude PreToolUse: StoreTooNew" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_bytes(b"x" * (FILE_BYTES + 1))
    hooks.raw("claude", "\x1b[31m\n", b"garbage \x1b[31m")
    assert file.stat().st_size < 1_000
    assert "\x1b" not in file.read_text()


def test_a_strict_gate_denies_when_it_fails(hooks, session):
    """A user who prefers to stop an unchecked agent can choose that."""
    session.store.close()
    _too_new(hooks)
    assert "the gate itself failed" in hooks.edit(env={"ONRECORD_STRICT_GATE": "1"}).refusal
    assert hooks.claude("Stop", {"ONRECORD_STRICT_GATE": "1"}).is_empty


def test_a_refusal_stands_while_the_store_is_locked(hooks, session):
    """When another process keeps the store locked for too long, a hook answers in time, and with the refusal (P30)."""
    session.attempts.start("pytest")
    with closing(apsw.Connection(str(hooks.store))) as holder:
        holder.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        said = hooks.edit()
        waited = time.monotonic() - began
        holder.execute("ROLLBACK")
    assert "attempt 1" in said.refusal
    assert waited < DEADLINE_SECONDS * 3


def test_a_hook_that_is_sent_nothing_ends_by_itself(hooks, session):
    """Standard input that is never closed does not block an agent: at its deadline the hook ends, with status 0 (P30)."""
    with hooks.start("claude", "PreToolUse") as process:
        assert process.wait(timeout=PATIENCE) == 0
        assert process.stdout is not None
        assert process.stdout.read() == b""
    assert "time ran out" in hooks.trouble()


def test_an_answer_nobody_reads_is_no_failure(hooks, session):
    """A hook succeeds although its agent has ended and reads no answer."""
    session.attempts.start("pytest")
    with hooks.start("claude", "PreToolUse") as process:
        assert process.stdout is not None
        process.stdout.close()
        payload = {"session_id": CONVERSATION, "hook_event_name": "PreToolUse", "tool_name": "Edit",
                   "tool_input": {"file_path": "a.py"}}  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(json.dumps(payload).encode())
        process.stdin.close()
        assert process.wait(timeout=PATIENCE) == 0


def test_hooks_at_the_same_moment_lose_nothing(hooks, session, count):
    """With many hooks at once, each call is on record, the same call once, and the chain verifies."""
    many = count(8, 60)
    payloads = [
        json.dumps(
            {"session_id": CONVERSATION, "cwd": str(hooks.project), "hook_event_name": "PostToolUse", "tool_name": "Bash",
             "tool_input": {"command": f"make {number // 2}"}, "tool_use_id": f"call-{number // 2}",
             "tool_response": {"stdout": ""}}
        ).encode()
        for number in range(many)
    ]  # fmt: skip
    running = [hooks.start("claude", "PostToolUse") for _ in payloads]
    for process, payload in zip(running, payloads, strict=True):
        assert process.stdin is not None
        process.stdin.write(payload)
        process.stdin.close()
    for process in running:
        with process:
            assert process.wait(timeout=PATIENCE) == 0
    assert sorted(event.data["command"] for event in hooks.kinds("tool.used")) == sorted(
        f"make {number}" for number in range(many // 2)
    )
    assert session.verify().ok


def test_two_starts_at_the_same_moment_are_one(hooks, session, count):
    """A vendor that calls the same hook from two settings files gets one run, one link, and no error."""
    payload = {"session_id": "bbbbbbbb-0000-4000-8000-0000000000ad", "cwd": str(hooks.project), "source": "startup"}
    env = {"ONRECORD_SESSION": "fix-403", "ONRECORD_AGENT": "twin"}
    for _round in range(count(2, 20)):
        running = [hooks.start("claude", "SessionStart", env) for _ in range(3)]
        for process in running:
            assert process.stdin is not None
            process.stdin.write(json.dumps(payload).encode())
            process.stdin.close()
        for process in running:
            with process:
                assert process.wait(timeout=PATIENCE) == 0
    agent = hooks.session().views.roster.agents["twin"]
    assert (agent["runs"], len(agent["links"])) == (1, 1)
    assert hooks.trouble() == ""


def test_a_full_disk_is_answered_like_any_other_trouble(hooks, session):
    """On a full disk a refusal is still given, though it is not on record; nothing is damaged (P30)."""
    session.attempts.start("pytest")
    full = 64 * 1024  # enough to read, and less than the schema alone takes up in the write-ahead log

    def no_file_may_grow() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (full, full))

    sent = {
        "session_id": CONVERSATION,
        "cwd": str(hooks.project),
        "tool_name": "Edit",
        "tool_input": {"file_path": "a"},
    }
    done = subprocess.run(
        [sys.executable, "-P", "-m", "onrecord", "hook", "claude", "PreToolUse"], input=json.dumps(sent), text=True,
        env=hooks.environment, cwd=hooks.project, capture_output=True, check=False, preexec_fn=no_file_may_grow,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "attempt 1" in done.stdout
    assert hooks.kinds("gate.decided") == []
    assert "could not be recorded" in hooks.trouble()
    assert session.verify().ok


def test_the_agents_directory_cannot_change_the_hook(hooks, session):
    """A hook does not run modules of a project that are named like ours or Python's."""
    for name in ("json.py", "onrecord.py", "apsw.py", "sitecustomize.py"):
        (hooks.project / name).write_text("import os\nos._exit(3)\n")
    session.attempts.start("pytest")
    assert "attempt 1" in hooks.edit().refusal


def test_our_own_commands_are_never_in_the_way(hooks, session):
    """While everything else waits, the commands that clear it run, and are not recorded as work."""
    session.attempts.start("pytest")
    about = {"tool_name": "Bash", "tool_use_id": "o1"}
    clear = {"command": "cd src && onrecord attempt fail 1 --error 'x' --fix 'y'"}
    assert hooks.claude("PreToolUse", tool_input=clear, **about).is_empty
    assert "attempt 1" in hooks.claude("PreToolUse", tool_input={"command": "pytest"}, tool_name="Bash").refusal
