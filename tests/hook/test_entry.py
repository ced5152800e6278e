"""The entry into the process: a hook never loads the command line, and the options before it count."""

import json
import subprocess
import sys

import pytest

from tests.hook.conftest import CONVERSATION

HEAVY = {
    "asyncio", "contextlib", "dataclasses", "datetime", "hashlib", "importlib.machinery", "inspect", "json", "logging",
    "math", "pathlib", "platform", "shlex", "socket", "ssl", "subprocess", "tempfile", "threading", "tomllib",
    "traceback", "typing", "urllib.parse", "weakref", "zstandard",
}  # fmt: skip
"""Modules of the standard library that would cost a hook more than what it is for."""
NO_PATTERNS = {"enum", "functools", "re", "types"}
"""What patterns need. A text that may have a secret needs them, and so does a brief of what happened."""
ENTRY = "import sys; from onrecord.surfaces.entry import main; sys.exit(main())"
"""What installers write into the program `onrecord`."""
NO_COPY = {
    "onrecord.agents.mirroring", "onrecord.agents.generations", "onrecord.vendors.transcripts", "zstandard.backend_c",
}  # fmt: skip
"""What copies a transcript."""
NO_SESSION = {"onrecord.session.handle", "onrecord.views.fold"}
NO_COUNT = {"onrecord.agents.counting", "onrecord.agents.costing", "onrecord.agents.pricing"}
NO_PORT = {
    "onrecord.vendors.port",
    "onrecord.agents.importing",
    "onrecord.work.surveying",
    "onrecord.workspace.syncing",
}
NOT_LOADED = {
    "PreToolUse": NO_SESSION | NO_COPY | NO_COUNT | NO_PATTERNS,
    "PostToolUse": {"onrecord.views.fold", "onrecord.views.note"} | NO_COPY | NO_COUNT | NO_PATTERNS,
    "UserPromptSubmit": {"onrecord.rules", "onrecord.views.note"} | NO_COPY | NO_COUNT | NO_PATTERNS,
    "Stop": {"onrecord.rules", "onrecord.views.note", "onrecord.machine.files"} | NO_COUNT,
    "SessionStart": {"onrecord.rules"} | NO_COPY | NO_COUNT,
}
"""What each hook does without, besides `HEAVY` and `NO_PORT`."""


def run(hooks, *words, env=None, **about):
    edit = {"tool_name": "Edit", "tool_input": {"file_path": str(hooks.project / "a.py")}, "tool_use_id": "t"}
    payload = {"session_id": CONVERSATION, "cwd": str(hooks.project), **edit, **about}
    return subprocess.run(
        [sys.executable, "-P", *words], input=json.dumps(payload), capture_output=True, text=True, check=False,
        env=hooks.environment | (env or {}), cwd=hooks.project, timeout=60,
    )  # fmt: skip


def test_the_store_may_be_named_before_the_hook(hooks, session):
    """`onrecord --store URL --project NAME hook ...` answers from that store, whatever the environment says."""
    session.attempts.start("pytest")
    elsewhere = {"ONRECORD_STORE": str(hooks.place / "other.db")}
    plain = run(hooks, "-m", "onrecord", "hook", "claude", "PreToolUse", env=elsewhere)
    assert (plain.returncode, plain.stdout) == (0, "")
    named = ("--store", str(hooks.store), "--project", str(hooks.project))
    said = run(hooks, "-m", "onrecord", *named, "hook", "claude", "PreToolUse", env=elsewhere)
    assert "attempt 1" in said.stdout, said


def test_other_options_before_a_hook_are_a_clear_error(hooks):
    """When a hook gets options that it does not accept, the command line says so, with the usage."""
    done = run(hooks, "-m", "onrecord", "--json", "hook", "claude", "PreToolUse")
    assert done.returncode == 2
    assert "only --store and --project may precede `hook`" in done.stderr


def test_a_hook_loads_no_command_line(hooks, session):
    """Whatever the event, answering a hook imports nothing of surfaces/cli."""
    assert session.name
    for event in ("PreToolUse", "PostToolUse", "SessionStart", "UserPromptSubmit", "PreCompact", "Stop", "SessionEnd"):
        done = run(hooks, "-X", "importtime", "-m", "onrecord", "hook", "claude", event)
        loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "import time" in line}
        assert "onrecord.surfaces.hook.process" in loaded
        assert not {name for name in loaded if name.startswith("onrecord.surfaces.cli")}, event


@pytest.mark.parametrize("event", NOT_LOADED)
def test_a_hook_loads_only_what_its_event_needs(hooks, session, event):
    """A hook of a conversation on record imports neither the port nor a costly module that its event can do without."""
    transcript = hooks.project / f"{CONVERSATION}.jsonl"
    message = {"role": "user", "content": "go on"}
    record = {"type": "user", "uuid": "u1", "sessionId": CONVERSATION, "message": message}
    transcript.write_text(json.dumps(record) + "\n")
    about = {"home": str(hooks.place), "cwd": str(hooks.project), "transcript": str(transcript)}
    session.agents.locate("claude", CONVERSATION, reason="startup", via="hook", **about)
    before = session.views.position
    done = run(hooks, "-X", "importtime", "-c", ENTRY, "hook", "claude", event, transcript_path=str(transcript))
    assert (session.views.position > before) is (event in ("PostToolUse", "Stop", "SessionStart")), done
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "import time" in line}
    assert "onrecord.surfaces.hook.process" in loaded
    assert sorted(loaded & (HEAVY | NO_PORT | NOT_LOADED[event])) == []
