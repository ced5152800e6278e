"""The entry into the process: a hook never loads the command line, and the options before it count."""

import json
import subprocess
import sys

from tests.hook.conftest import CONVERSATION


def run(hooks, *words, env=None):
    edit = {"tool_name": "Edit", "tool_input": {"file_path": str(hooks.project / "a.py")}, "tool_use_id": "t"}
    payload = {"session_id": CONVERSATION, "cwd": str(hooks.project), **edit}
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
