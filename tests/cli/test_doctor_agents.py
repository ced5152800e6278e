"""The doctor on agents: which are installed, which hooks fire, what a vendor will delete and when."""

import json
import os
import time

import pytest

from onrecord.surfaces.cli.upkeep.doctor_agents import CONVERSATIONS_SHOWN
from tests.cli.test_doctor import checks

pytestmark = pytest.mark.on_file  # the server of the tests is not durable, and the doctor would say so
CONVERSATION = "aaaaaaaa-0000-4000-8000-0000000000ad"


def install(command, name, version="1.2.3"):
    """A program as npm installs it: a link on PATH to a file of a package."""
    package = command.place / "lib" / name
    (package / "bin").mkdir(parents=True)
    (package / "package.json").write_text(json.dumps({"name": name, "version": version}))
    (package / "bin" / name).write_text("#!/bin/sh\nexit 70\n")
    (package / "bin" / name).chmod(0o755)
    programs = command.place / "programs"
    programs.mkdir(exist_ok=True)
    (programs / name).symlink_to(package / "bin" / name)
    command.environment["PATH"] = f"{programs}:/usr/bin:/bin"


def test_nobody_is_installed(command):
    """Where no agent is installed, the doctor says so in one line."""
    command.environment["PATH"] = "/usr/bin:/bin"
    found, _data = checks(command)
    assert found["agents"]["value"] == "no coding agent is installed"


def test_installed_set_up_and_seen(command):
    """The report has the version without running the program, hooks per scope, the last call of one, and the size of a brief."""
    install(command, "claude")
    found, _data = checks(command)
    assert found["agent claude"]["value"].startswith("Claude Code 1.2.3; no hooks; briefs of up to ")
    assert found["agent claude"]["advice"] == "`onrecord setup claude` installs them"
    command.ok("setup", "claude")
    found, _data = checks(command)
    assert "hooks: 10 for this project; never used" in found["agent claude"]["value"]
    command.ok("open", "fix")
    payload = {"session_id": CONVERSATION, "cwd": str(command.project), "source": "startup"}
    env = {"ONRECORD_SESSION": "fix", "ONRECORD_AGENT": "solver"}
    command.ok("hook", "claude", "SessionStart", stdin=json.dumps(payload), env=env)
    found, _data = checks(command)
    assert "; last used " in found["agent claude"]["value"]
    assert "never" not in found["agent claude"]["value"]


def test_hooks_that_nobody_trusts_are_wrong(command):
    """Codex would skip untrusted hooks silently, so the doctor reports a problem and its remedy."""
    install(command, "codex")
    command.ok("setup", "codex")
    found, _data = checks(command, code=1)
    assert found["agent codex"]["state"] == "wrong"
    assert "accept them" in found["agent codex"]["advice"]


def test_a_cursor_that_was_never_tried_is_named_so(command):
    """Support that is built from documentation alone is not claimed to work."""
    (command.place / ".cursor").mkdir()
    found, _data = checks(command)
    assert "supported from its documentation" in found["agent cursor"]["value"]


def test_transcripts_that_the_vendor_will_delete(command):
    """Each transcript has the day of its deletion, the next one first, and whether it is on record; the rest is counted."""
    command.ok("open", "fix")
    folder = command.place / ".claude" / "projects" / "-project"
    folder.mkdir(parents=True)
    ids = [f"aaaaaaaa-0000-4000-8000-00000000000{number}" for number in range(CONVERSATIONS_SHOWN + 2)]
    env = {"ONRECORD_SESSION": "fix", "ONRECORD_AGENT": "solver", "CLAUDE_PID": str(os.getpid())}
    for age, id_ in enumerate(ids):
        file = folder / f"{id_}.jsonl"
        record = {"type": "user", "uuid": "u", "sessionId": id_, "message": {"role": "user", "content": "hello"}}
        file.write_text(json.dumps(record) + "\n")
        then = time.time() - age * 86_400
        os.utime(file, (then, then))
        payload = {"session_id": id_, "cwd": str(command.project), "source": "clear", "transcript_path": str(file)}
        command.ok("hook", "claude", "SessionStart", stdin=json.dumps(payload), env=env)
    command.ok("hook", "claude", "Stop", stdin=json.dumps(payload), env=env)
    data = command.data("doctor", kind="doctor")
    told = [check["value"] for check in data["checks"] if check["name"] == "transcript"]
    assert len(told) == CONVERSATIONS_SHOWN + 1
    assert told[0].startswith(f"Claude Code deletes {ids[-1]} of fix on ")
    assert told[0].endswith("it is mirrored")
    assert told[1].endswith("it is not mirrored yet")
    assert told[-1] == "2 more transcripts will be deleted later"


def test_trouble_of_hooks_is_shown(command):
    """The doctor reports failures of hooks, because no other command shows them."""
    command.ok("open", "fix")
    command.ok("hook", "claude", "SessionStart", stdin="garbage")
    found, _data = checks(command)
    assert "JSONDecodeError" in found["hook trouble"]["value"]
