import json
import os
import time
from pathlib import Path

import pytest

from onrecord.testing import VendorContract
from onrecord.vendors.hooks import HookAnswer
from onrecord.vendors.port import CRASH, FINISHED, LaunchOptions, vendor
from tests.vendors.homes import at, copied, lines, recorded, wanted

COPILOT = vendor("copilot")
DENIED = "0cb916db-26aa-40f2-86b5-1ba81b225f00"
REPAIRED = "1cb916db-26aa-40f2-86b5-1ba81b225f0b"


class TestCopilot(VendorContract):
    name = "copilot"
    conversation = DENIED
    says = ("@@TOOL bash", "Denied by preToolUse hook", "MOCK-AFTER-TOOL")
    stream = lines("copilot")
    stream_id = "0cb916db-26aa-40f2-86b5-1ba81b225fd2"

    def make_home(self, folder):
        copied("copilot", folder / ".copilot")
        return {"HOME": str(folder)}

    def payloads(self):
        return recorded("copilot")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return copied("copilot", tmp_path / "copilot-home")


@pytest.fixture
def env(home: Path) -> dict[str, str]:
    return {"HOME": "/nowhere", "COPILOT_HOME": str(home)}


def test_a_process_is_located_by_its_lock_file(home, env):
    """The lock file in a conversation's folder names the process that has it; one older than the process does not (T02)."""
    lock = home / "session-state" / REPAIRED / f"inuse.{os.getpid()}.lock"
    lock.write_text("")
    assert COPILOT.locate(os.getpid(), env) == REPAIRED
    assert [one.fatal for one in COPILOT.hazards(at(COPILOT, REPAIRED, env), env)] == [True]
    os.utime(lock, (time.time() - 10**8, time.time() - 10**8))
    assert COPILOT.locate(os.getpid(), env) is None
    assert COPILOT.hazards(at(COPILOT, REPAIRED, env), env) == []


def test_two_lock_files_name_neither(home, env):
    """After /clear the lock moves to the new conversation; with two locks, the id is ambiguous."""
    for vendor_id in (REPAIRED, DENIED):
        (home / "session-state" / vendor_id / f"inuse.{os.getpid()}.lock").write_text("")
    assert COPILOT.locate(os.getpid(), env) is None


def test_a_resume_never_creates():
    """--session-id would silently create what is missing; a resume says --resume."""
    argv = COPILOT.resume(LaunchOptions("/", DENIED, prompt="x", headless=True)).argv
    assert f"--resume={DENIED}" in argv
    assert not any(word.startswith(("--session-id", "--name")) for word in argv)


def test_the_workspace_says_where_it_began(env, home):
    """The directory comes from its small YAML file, however the value is quoted."""
    assert at(COPILOT, DENIED, env).cwd == "/home/dev/copilot/proj"
    for written, read in (("'it''s here'", "it's here"), ('"a\\tb"', "a\tb"), ("/plain: x", "/plain: x")):
        (home / "session-state" / DENIED / "workspace.yaml").write_text(f"id: x\ncwd: {written}\n")
        assert at(COPILOT, DENIED, env).cwd == read


def test_answers_stand_at_the_top_level():
    """Copilot does not inject nested context; context, permission and reason are at the top level."""
    start = COPILOT.parse_hook({"hook_event_name": "sessionStart", "source": "new"}, {})
    assert json.loads(COPILOT.reply(start, HookAnswer(context="c")).stdout) == {"additionalContext": "c"}
    tool = COPILOT.parse_hook({"hook_event_name": "preToolUse", "toolName": "edit", "toolArgs": '{"path": "a"}'}, {})
    said = json.loads(COPILOT.reply(tool, HookAnswer(decision="deny", reason="r")).stdout)
    assert said == {"permissionDecision": "deny", "permissionDecisionReason": "r"}
    assert wanted(COPILOT, tool).paths == ("a",)


def test_a_line_for_the_person_comes_before_the_answer():
    """Copilot shows it as the progress of the hook; the answer is the rest."""
    start = COPILOT.parse_hook({"hook_event_name": "sessionStart", "source": "new"}, {})
    shown, answered = COPILOT.reply(start, HookAnswer(context="c", notice="recorded")).stdout.splitlines()
    assert json.loads(shown) == {"type": "progress", "message": "recorded"}
    assert json.loads(answered) == {"additionalContext": "c"}


def test_an_event_without_its_name_is_known_by_its_fields():
    """Its own payloads do not name their event; their fields identify it."""
    moments = {COPILOT.parse_hook(payload, {}).moment for _event, payload, _env in recorded("copilot")}
    assert {"start", "prompt", "before_tool", "stop", "end"} <= moments


@pytest.mark.parametrize("code", [0, 3])
def test_exit_codes_are_read(code):
    """A command's exit code is at the end of the text for the model."""
    result = {"resultType": "success", "textResultForLlm": f"hello\n<shellId: 0 completed with exit code {code}>"}
    call = COPILOT.parse_hook({"hook_event_name": "postToolUse", "toolName": "bash", "toolResult": result}, {})
    assert (call.moment, call.exit_code) == ("after_tool", code)


def test_results_are_read():
    """The exit code in the result record decides, not the text of the conversation."""
    assert COPILOT.classify(lines("copilot"), 0).cause == FINISHED
    assert COPILOT.classify([json.dumps({"type": "result", "exitCode": 1})], 1).cause == CRASH


def test_doubtful_commands_are_named():
    """Flags that stop for permissions or resume the last conversation of any directory cause a warning (I27)."""
    assert any("--allow-all-tools" in said for said in COPILOT.warnings(["copilot"], {}))
    assert any("any directory" in said for said in COPILOT.warnings(["copilot", "--yolo", "--continue"], {}))
    assert any("picks one by name" in said for said in COPILOT.warnings(["copilot", "--yolo", "--resume=my name"], {}))
    assert COPILOT.warnings(["copilot"], {"COPILOT_ALLOW_ALL": "true"}) == []
