import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from onrecord.machine import started
from onrecord.testing import VendorContract
from onrecord.vendors.endings import classify
from onrecord.vendors.port import CRASH, FINISHED, USAGE_WINDOW, LaunchOptions, vendor
from tests.vendors.homes import at, copied, lines, processes_file, recorded

CLAUDE = vendor("claude")
KILLED = "aaaaaaaa-0000-4000-8000-00000000000a"
TORN = "aaaaaaaa-0000-4000-8000-00000000000c"


class TestClaude(VendorContract):
    name = "claude"
    conversation = KILLED
    says = ("@@TOOL Bash", "[Tool call interrupted", "MOCK-REPLY")
    stream = lines("claude")
    stream_id = KILLED

    def make_home(self, folder):
        copied("claude", folder / ".claude")
        return {"HOME": str(folder)}

    def payloads(self):
        return recorded("claude")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return copied("claude", tmp_path / ".claude")


@pytest.fixture
def env(home: Path) -> dict[str, str]:
    return {"HOME": str(home.parent)}


def test_a_cut_line_is_counted_and_costs_nothing_else(env):
    """A line cut off by a kill is counted; every record before and after it is read (T09)."""
    chunk = CLAUDE.read(at(CLAUDE, TORN, env))
    assert chunk.torn == 1
    said = [item["content"] for _, item in CLAUDE.items(chunk.entries) if item["role"] in ("user", "assistant")]
    assert len(said) >= 3


def test_the_home_may_be_elsewhere(tmp_path):
    """CLAUDE_CONFIG_DIR moves conversations, settings and the servers file."""
    env = {"HOME": "/nowhere", "CLAUDE_CONFIG_DIR": str(copied("claude", tmp_path / "elsewhere"))}
    assert at(CLAUDE, KILLED, env).home == str(tmp_path / "elsewhere")
    assert all(str(file.path).startswith(str(tmp_path)) for file in CLAUDE.files("user", tmp_path, env))


def test_a_process_is_located_by_its_own_file(home, env):
    """The files of their processes distinguish two agents in one directory, even through a child process (T02)."""
    about = json.loads((home / "sessions" / "1373.json").read_text())
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        processes_file(home, about, pid=child.pid, procStart=started(child.pid), sessionId=TORN)
        assert CLAUDE.locate(child.pid, env) == TORN
        assert CLAUDE.locate(os.getpid(), env) == TORN, "a descendant counts"
        processes_file(home, about, pid=os.getpid(), procStart=started(os.getpid()), sessionId=KILLED)
        assert CLAUDE.locate(os.getpid(), env) == KILLED, "the process itself comes first"
        child.kill()


def test_a_stale_file_names_nobody(home, env):
    """After a kill the file remains; a later process with the same pid is not mistaken for the agent."""
    about = json.loads((home / "sessions" / "1373.json").read_text())
    processes_file(home, about, pid=os.getpid(), procStart="12345")
    assert CLAUDE.locate(os.getpid(), env) is None
    assert CLAUDE.hazards(at(CLAUDE, KILLED, env), env) == []


def test_a_hostile_id_in_a_process_file_is_ignored(home, env):
    """Text that another program wrote into a process's file is an id only if it looks like one (T08)."""
    about = json.loads((home / "sessions" / "1373.json").read_text())
    processes_file(home, about, pid=os.getpid(), procStart=started(os.getpid()), sessionId="../../x")
    assert CLAUDE.locate(os.getpid(), env) is None


def test_a_second_writer_is_a_fatal_hazard(home, env):
    """While a conversation is in use, resuming it is a hazard: it would mix two writers' turns."""
    about = json.loads((home / "sessions" / "1373.json").read_text())
    processes_file(home, about, pid=os.getpid(), procStart=started(os.getpid()), sessionId=KILLED)
    (hazard,) = CLAUDE.hazards(at(CLAUDE, KILLED, env), env)
    assert (hazard.code, hazard.fatal, hazard.touches) == ("in_use", True, ())
    assert str(os.getpid()) in hazard.message


def test_retention_is_told(home, env):
    """Conversations expire 30 days after their last change, or as the settings say; the project's settings win."""
    place = at(CLAUDE, KILLED, env)
    changed = Path(place.path).stat().st_mtime
    assert CLAUDE.expires_at(place, env) == changed + 30 * 86_400
    (home / "settings.json").write_text('{"cleanupPeriodDays": 7}')
    assert CLAUDE.expires_at(place, env) == changed + 7 * 86_400
    (home / "settings.json").write_text("// not plain JSON\n{}")
    assert CLAUDE.expires_at(place, env) == changed + 30 * 86_400


def test_a_directory_is_written_with_dashes(env, tmp_path):
    """Whatever is no letter or digit is a dash in the name of a project's folder, as the program writes it (T06)."""
    place = at(CLAUDE, KILLED, env)
    odd = tmp_path / "my proj.x_y ü"
    odd.mkdir()
    put = CLAUDE.put_back(place, iter(['{"type": "mode"}']), {"HOME": str(tmp_path / "new")}, str(odd))
    assert Path(put.path).parent.name.endswith("-my-proj-x-y--")


@pytest.mark.parametrize(
    ("command", "part"),
    [
        (["claude", "--resume"], "picker"),
        (["claude", "--resume", "my name"], "picker"),
        (["claude", "-p", "hi", "-c"], "--continue"),
        (["claude", "-p", "hi"], "permission"),
        (["claude", "--dangerously-skip-permissions"], "consent"),
    ],
)
def test_doubtful_commands_are_named(command, part):
    """Flags that wait for a person or start another conversation cause a warning before the run (I27)."""
    assert any(part in said for said in CLAUDE.warnings(command, {}))


def test_a_sound_command_has_no_warning():
    """A resume by id with permission flags causes no warning."""
    assert CLAUDE.warnings(["claude", "-p", "--resume", KILLED, "--permission-mode", "acceptEdits"], {}) == []


def test_names_are_one_line():
    """A display name is one printable line, however it was given."""
    argv = CLAUDE.start(LaunchOptions("/", KILLED, name="a\nb\x1b[31m", prompt="x")).argv
    assert argv[argv.index("-n") + 1] == "a b [31m"


@pytest.mark.parametrize(
    ("record", "status", "cause"),
    [
        ({"type": "result", "subtype": "success", "is_error": False, "result": "rate limit is 429"}, 0, FINISHED),
        (
            {"type": "result", "subtype": "success", "is_error": True, "result": "You've hit your limit"},
            1,
            USAGE_WINDOW,
        ),
        ({"type": "result", "subtype": "error_during_execution", "is_error": True}, 1, CRASH),
        ({"type": "assistant", "message": {"content": [{"type": "text", "text": "429 rate limit"}]}}, 1, CRASH),
        (
            {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": 1893456000}},
            1,
            USAGE_WINDOW,
        ),
    ],
)
def test_results_are_read_and_talk_is_not(record, status, cause):
    """The result record decides, not the assistant's words."""
    assert CLAUDE.classify([json.dumps(record)], status).cause == cause


def test_a_failed_request_is_no_success():
    """Claude calls the end of a request that failed a success; the reason on record is what it said, and no more."""
    record = {"type": "result", "subtype": "success", "is_error": True, "result": "API Error: rate limit"}
    assert CLAUDE.classify([json.dumps(record)], 1).message == "API Error: rate limit"


NOON = 1_763_208_000.0
"""2025-11-15, 12:00 UTC."""


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("You've hit your limit · resets 3pm (UTC)", 3 * 3600),
        ("You've hit your limit · resets 11am (UTC)", 23 * 3600),
        ("usage limit · resets 3:30pm (Europe/Berlin)", 2.5 * 3600),
        ("usage limit; resets Nov 17 at 5pm (UTC)", 53 * 3600),
        ("You've hit your usage limit. Try again in 3 days 4 hours 12 minutes.", 3 * 86_400 + 4 * 3600 + 12 * 60),
        ("Quota exceeded. Your quota will reset after 11h13m27s.", 11 * 3600 + 13 * 60 + 27),
        ("usage limit reached|1763211600", 3600),
        ("usage limit reached|1763211600000", 3600),
        ("usage limit reached", None),
        ("usage limit; resets 99pm", None),
    ],
)
def test_the_end_of_a_limit_is_understood(text, after):
    """Reset times are read in the forms vendors print: a time of day in a zone, a date, a span, an epoch (G10)."""
    from onrecord.vendors.endings import End

    found = classify([text], 1, lambda _record: End(), now=NOON)
    assert found.cause == USAGE_WINDOW
    assert found.resets_at == (None if after is None else NOON + after)


@pytest.mark.parametrize(
    ("name", "settings", "warned"),
    [
        ("claude", '{"permissions": {"allow": ["Bash", "Edit"]}}', False),
        ("claude", '{"permissions": {"defaultMode": "acceptEdits"}}', False),
        ("claude", '{"permissions": {"allow": [], "defaultMode": "default"}}', True),
        ("claude", "not json", True),
        ("qwen", '{"tools": {"approvalMode": "yolo"}}', False),
        ("qwen", '{"tools": {"approvalMode": "default"}}', True),
        ("gemini", '{"general": {"defaultApprovalMode": "auto_edit"}}', False),
        ("gemini", '{"tools": {"allowed": ["run_shell_command"]}}', False),
        ("gemini", "{}", True),
    ],
)
def test_what_the_settings_allow_is_no_warning(name, settings, warned, tmp_path):
    """No program is said to refuse tools that the user's or the project's settings allow."""
    for folder in (tmp_path / "home" / f".{name}", tmp_path / "project" / f".{name}"):
        folder.mkdir(parents=True)
        (folder / "settings.json").write_text(settings)
        wanted = LaunchOptions(
            str(tmp_path / "project"), prompt="x", headless=True, env={"HOME": str(tmp_path / "home")}
        )
        assert bool(vendor(name).start(wanted).warnings) == warned
        (folder / "settings.json").unlink()
