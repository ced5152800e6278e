import fcntl
import json
import os
import sys
from pathlib import Path

import pytest

from onrecord.testing import VendorContract
from onrecord.vendors.port import FINISHED, RATE_LIMIT, LaunchOptions, vendor
from tests.vendors.homes import at, copied, recorded, wanted

CODEX = vendor("codex")
TOOL = "01a1ddec-2375-7ee0-bade-e44cc4ed7f0c"
TORN = "01a1ddec-c0d9-7a73-853b-ba3dbe01a3a6"

APP_SERVER = """
import json, os, sys
open("seen", "w").write(str(os.getpid()))
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "initialize":
        print("a line of chatter is not JSON" if "chatter" in sys.argv else json.dumps({"method": "note", "id": 9}), flush=True)
    result = {"thread/start": {"thread": {"id": "01a1ddec-2375-7ee0-bade-e44cc4ed7f0c", "cwd": "x"}}}.get(asked["method"], {})
    if "silent" in sys.argv and asked["method"] == "thread/start":
        import time; time.sleep(600)
    if "id" in asked:
        print(json.dumps({"id": asked["id"], "result": result}), flush=True)
"""


class TestCodex(VendorContract):
    name = "codex"
    conversation = TOOL
    says = ("<environment_context>", "@@TOOL exec_command", "Command blocked by PreToolUse hook", "MOCK-AFTER-TOOL")
    stream = (json.dumps({"type": "thread.started", "thread_id": TOOL}), json.dumps({"type": "turn.started"}))
    stream_id = TOOL

    def make_home(self, folder):
        copied("codex", folder / ".codex")
        return {"HOME": str(folder)}

    def payloads(self):
        return recorded("codex")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "CODEX_HOME": str(copied("codex", tmp_path / "codex-home"))}


def program(tmp_path: Path, *arguments: str) -> str:
    """A program that speaks as much of the app server's protocol as an id needs."""
    path = tmp_path / "codex"
    script = APP_SERVER.replace('"chatter" in sys.argv', str("chatter" in arguments)).replace(
        '"silent" in sys.argv', str("silent" in arguments)
    )
    path.write_text(f"#!{sys.executable}\n{script}")
    path.chmod(0o755)
    return str(path)


def gone(tmp_path: Path) -> bool:
    return not Path(f"/proc/{(tmp_path / 'seen').read_text()}").exists()


def test_real_file_names_are_found(env):
    """Rollouts are found under the day they were begun, by the id at the end of their names (T03)."""
    place = at(CODEX, TOOL, env)
    assert place.path.endswith(f"sessions/2026/11/15/rollout-2026-11-15T06-36-42-{TOOL}.jsonl")
    assert place.cwd == "/home/dev/codex/proj"
    assert {one.vendor_id for one in CODEX.locations(env)} == {TOOL, TORN}


def test_a_cut_line_is_counted(env):
    """A line cut off by a kill is counted, and the following records are read."""
    chunk = CODEX.read(at(CODEX, TORN, env))
    assert chunk.torn == 1
    assert "after truncation" in [item["content"] for _, item in CODEX.items(chunk.entries)]


def test_a_put_back_thread_keeps_its_day_and_directory(env, tmp_path):
    """The path is of the day it was begun, the words are the same byte for byte, and it resumes from anywhere (T06)."""
    place = at(CODEX, TOOL, env)
    raws = [one.raw for one in CODEX.read(place).entries]
    for path in (place.path, "kept elsewhere"):
        home = tmp_path / f"new-{len(path)}"
        put = CODEX.put_back(place._replace(path=path), iter(raws), {"CODEX_HOME": str(home)}, str(tmp_path))
        assert Path(put.path).relative_to(home) == Path(place.path).relative_to(place.home)
        assert Path(put.path).read_bytes() == Path(place.path).read_bytes()


def test_a_terminal_never_works_in_the_daemon():
    """The shared server would survive a kill, so every start and resume disables it."""
    for launch in (CODEX.start(LaunchOptions("/", prompt="x")), CODEX.resume(LaunchOptions("/", TOOL, prompt="x"))):
        assert "--no-daemon" in launch.argv
    assert CODEX.warnings(["codex"], {}) == [], "a team file need not name what we always pass"
    assert CODEX.warnings(["codex", "--no-daemon"], {}) == []
    assert any(
        "by name picks the newest" in said for said in CODEX.warnings(["codex", "exec", "resume", "my name"], {})
    )
    assert any("--last" in said for said in CODEX.warnings(["codex", "exec", "resume", "--last"], {}))


def test_untrusted_hooks_are_warned_of(env):
    """Without a terminal, Codex silently skips untrusted hooks; the launch warns until one is trusted."""
    request = LaunchOptions("/", TOOL, prompt="x", headless=True, env=env)
    assert any("trust" in said for said in CODEX.resume(request).warnings)
    state = '[hooks.state."hooks.json:PreToolUse:0:0"]\ntrusted_hash = "sha256:x"\n'
    Path(env["CODEX_HOME"], "config.toml").write_text(state)
    assert not any("trust" in said for said in CODEX.resume(request).warnings)


def test_a_process_is_located_by_its_lock(env, tmp_path):
    """The lock that a process holds names its thread; two locks are ambiguous, and a free lock names none (T02)."""
    locks = Path(env["CODEX_HOME"], "thread-writer-locks")
    locks.mkdir()
    with (locks / f"{TOOL}.lock").open("w") as one, (locks / f"{TORN}.lock").open("w") as other:
        assert CODEX.locate(os.getpid(), env) is None
        fcntl.flock(one, fcntl.LOCK_EX)
        assert CODEX.locate(os.getpid(), env) == TOOL
        (hazard,) = CODEX.hazards(at(CODEX, TOOL, env), env)
        assert (hazard.code, hazard.fatal) == ("in_use", True)
        assert CODEX.hazards(at(CODEX, TORN, env), env) == []
        fcntl.flock(other, fcntl.LOCK_EX)
        assert CODEX.locate(os.getpid(), env) is None


@pytest.mark.parametrize(("mood", "expected"), [((), TOOL), (("chatter",), None)])
def test_an_id_is_obtained_from_the_app_server(tmp_path, mood, expected):
    """A thread is obtained and named over JSON-RPC; the server is ended afterwards, even after invalid answers."""
    request = LaunchOptions(str(tmp_path), name="n", env=os.environ, program=program(tmp_path, *mood))
    assert CODEX.obtain_id(request) == expected
    assert gone(tmp_path)


def test_a_silent_app_server_does_not_hang_us(tmp_path, monkeypatch):
    """After the deadline there is no id, and no process remains."""
    monkeypatch.setattr("onrecord.vendors.codex.ID_SECONDS", 2.0)
    assert CODEX.obtain_id(LaunchOptions(str(tmp_path), env=os.environ, program=program(tmp_path, "silent"))) is None
    assert gone(tmp_path)


def test_turns_tell_how_they_ended():
    """A completed turn means finished; a failed one is classified by its error."""
    failed = json.dumps({"type": "turn.failed", "error": {"message": "exceeded retry limit, last status: 429"}})
    assert CODEX.classify([json.dumps({"type": "turn.completed"})], 0).cause == FINISHED
    assert CODEX.classify([failed], 1).cause == RATE_LIMIT


def test_a_patch_names_its_files():
    """An edit by patch is an edit of every file in the patch."""
    patch = "*** Begin Patch\n*** Update File: a.py\n*** Move to: b.py\n*** Delete File: sub/c d.py\n*** End Patch\n"
    call = CODEX.parse_hook(
        {"hook_event_name": "PreToolUse", "cwd": "/p", "tool_name": "apply_patch", "tool_input": {"command": patch}}, {}
    )
    patched = wanted(CODEX, call)
    assert (patched.act, patched.paths, patched.commands) == ("edit", ("/p/a.py", "/p/b.py", "/p/sub/c d.py"), ())
