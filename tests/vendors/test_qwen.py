import json
import os
from pathlib import Path

import pytest

from onrecord.machine import boot_id, started
from onrecord.testing import VendorContract
from onrecord.vendors.hooks import OTHER, PROMPT
from onrecord.vendors.port import LaunchOptions, vendor
from tests.vendors.homes import at, copied, processes_file, recorded

QWEN = vendor("qwen")
TOOLS = "33333334-bbbb-4333-8444-555555555555"
GLUED = "55555555-bbbb-4333-8444-555555555555"


class TestQwen(VendorContract):
    name = "qwen"
    conversation = TOOLS
    says = ("@@TOOL run_shell_command", "BLOCKED-BY-PreToolUse", "MOCK-AFTER-TOOL", "@@TOOL write_file")

    def make_home(self, folder):
        copied("qwen", folder / ".qwen")
        return {"HOME": str(folder)}

    def payloads(self):
        return recorded("qwen")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return copied("qwen", tmp_path / "qwen-home")


@pytest.fixture
def env(home: Path) -> dict[str, str]:
    return {"HOME": "/nowhere", "QWEN_HOME": str(home)}


def test_a_glued_record_is_put_on_its_own_line(env):
    """A record that follows half a line would cut off the history; after the fix every parent is there again."""
    place = at(QWEN, GLUED, env)
    before = QWEN.read(place)
    assert before.torn == 1
    (hazard,) = QWEN.hazards(place, env)
    assert (hazard.code, hazard.fatal, hazard.touches) == ("glued", True, (place.path,))
    QWEN.mend(hazard, place, env)
    after = QWEN.read(place)
    assert after.torn == 0
    assert [one.raw for one in after.entries] == [one.raw for one in before.entries]
    ids = {one.id for one in after.entries}
    assert all(one.parent in ids for one in after.entries if one.parent)
    assert QWEN.hazards(place, env) == []
    (kept,) = Path(place.path).parent.glob("*.onrecord-before-repair")
    assert b'"parentUuid":"0b6270ea-645e-424e-b12b-b6627b51dd8e","{"uuid"' in kept.read_bytes()


def test_a_torn_tail_is_fatal_until_it_is_mended(env):
    """Half a line at the end would lose the whole history later, so it is removed first."""
    place = at(QWEN, TOOLS, env)
    path = Path(place.path)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"uuid":"34b8')
    (hazard,) = QWEN.hazards(place, env)
    assert (hazard.code, hazard.fatal) == ("torn_tail", True)
    QWEN.mend(hazard, place, env)
    assert path.read_bytes() == whole
    path.write_bytes(whole.rstrip(b"\n"))
    (hazard,) = QWEN.hazards(place, env)
    QWEN.mend(hazard, place, env)
    assert path.read_bytes() == whole, "a whole record only gets its line end"


def test_a_process_is_located_by_its_own_file(home, env):
    """By process, boot and start time; a file from another boot names no process (T02)."""
    about = json.loads((home / "sessions" / "639.json").read_text())
    mine = {"pid": os.getpid(), "sessionId": TOOLS}
    processes_file(home, about, procStart=f"{boot_id()}:{started(os.getpid())}", **mine)
    assert QWEN.locate(os.getpid(), env) == TOOLS
    assert [one.code for one in QWEN.hazards(at(QWEN, TOOLS, env), env)] == ["in_use"]
    processes_file(home, about, procStart=f"another-boot:{started(os.getpid())}", **mine)
    assert QWEN.locate(os.getpid(), env) is None


def test_it_resumes_where_it_began(env, tmp_path):
    """It is not found from another directory, so it is run in its own; put back elsewhere, its records move along (T06)."""
    place = at(QWEN, TOOLS, env)
    launch = QWEN.resume(LaunchOptions(str(tmp_path), TOOLS, prompt="x", env=env))
    assert (launch.cwd, launch.env) == ("/home/dev/qwen/proj", {"QWEN_CODE_NO_RELAUNCH": "true"})
    raws = [one.raw for one in QWEN.read(place).entries]
    put = QWEN.put_back(place, iter(raws), {"QWEN_HOME": str(tmp_path / "new")}, str(tmp_path))
    assert put.cwd == str(tmp_path)
    assert {json.loads(one.raw)["cwd"] for one in QWEN.read(put).entries} == {str(tmp_path)}


def test_only_what_a_person_submitted_is_a_prompt():
    """Its prompt hook is also called after tools, without a prompt."""
    event = {"hook_event_name": "UserPromptSubmit"}
    assert QWEN.parse_hook({**event, "prompt": ""}, {}).moment == OTHER
    call = QWEN.parse_hook({**event, "prompt": "do it @", "submitted_prompt": "do it"}, {})
    assert (call.moment, call.prompt) == (PROMPT, "do it")


def test_doubtful_commands_are_named():
    """Flags that stop for permissions or start another conversation cause a warning (I27)."""
    assert any("permissions" in said for said in QWEN.warnings(["qwen"], {}))
    assert any("--continue" in said for said in QWEN.warnings(["qwen", "-y", "-c"], {}))
    assert QWEN.warnings(["qwen", "-y"], {}) == []


def test_an_error_that_is_given_as_the_answer_is_no_success():
    """Qwen Code 0.15 ends a headless run that a limit stopped with status 0 and the error as its result."""
    said = (
        "[API Error: 429 Rate limit reached, try again later.]\n"
        "Possible quota limitations in place or slow response times detected. Please wait and try again later."
    )
    record = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": said}
    why = QWEN.classify([json.dumps(record)], 0)
    assert (why.cause, why.message) == ("rate_limit", "[API Error: 429 Rate limit reached, try again later.]")
    assert (
        QWEN.classify([json.dumps(record | {"result": "An API Error: is what you ask about"})], 0).cause == "finished"
    )
