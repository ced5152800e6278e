import json
import os
import shutil
import sqlite3
import sys
from pathlib import Path

import pytest

from onrecord.errors import Conflict, InvalidInput, NotFound
from onrecord.testing import VendorContract
from onrecord.vendors.hooks import HookAnswer
from onrecord.vendors.port import CRASH, FINISHED, LaunchOptions, Mark, vendor
from tests.vendors.homes import DATA, at, opencode_database, put_row, recorded, wanted

OPENCODE = vendor("opencode")
LONG = "ses_e22017382ffeyL0CsXQZI1PEZH"
BLOCKED = "ses_e21fb57a2ffeI9tKFYX3qkV4PF"
KILLED = "ses_e21fb180affeHcH89o3LlTkBy6"

SERVER = """
import base64, json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

open("seen", "w").write(str(os.getpid()))

class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        user, _, password = base64.b64decode(self.headers["Authorization"].split()[1]).decode().partition(":")
        known = user == os.environ["OPENCODE_SERVER_USERNAME"] and password == os.environ["OPENCODE_SERVER_PASSWORD"]
        self.send_response(200 if known else 401)
        self.end_headers()
        self.wfile.write(json.dumps({"id": "ses_made1", "title": said.get("title")}).encode())

    def log_message(self, *args):
        pass

server = HTTPServer(("127.0.0.1", 0), Handler)
print("Warning: something else first", flush=True)
print(f"opencode server listening on http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
"""


class TestOpencode(VendorContract):
    name = "opencode"
    conversation = LONG
    says = ("Remember the word PLUM", "MOCK-REPLY turn=1", "what word", "MOCK-REPLY turn=2")
    stream = (json.dumps({"type": "step_start", "sessionID": LONG, "part": {}}),)
    stream_id = LONG
    is_file = False

    def make_home(self, folder):
        opencode_database(folder / ".local" / "share" / "opencode" / "opencode.db", rows=True)
        return {"HOME": str(folder)}

    def empty_home(self, folder):
        opencode_database(folder / ".local" / "share" / "opencode" / "opencode.db", rows=False)
        return {"HOME": str(folder)}

    def payloads(self):
        return recorded("opencode")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    opencode_database(tmp_path / "data" / "opencode" / "opencode.db", rows=True)
    return {"HOME": "/nowhere", "XDG_DATA_HOME": str(tmp_path / "data"), "XDG_CONFIG_HOME": str(tmp_path / "config")}


def open_database(env: dict[str, str]) -> sqlite3.Connection:
    return sqlite3.connect(Path(env["XDG_DATA_HOME"]) / "opencode" / "opencode.db")


def test_tools_and_their_ends_are_read(env):
    """A refused tool has its error; a tool interrupted by a kill is a call without an answer."""
    blocked = [item for _, item in OPENCODE.items(OPENCODE.read(at(OPENCODE, BLOCKED, env)).entries)]
    assert [(item["content"], item["error"]) for item in blocked if item["role"] == "tool"] == [
        ("BLOCKED-BY-orch-plugin bash", True)
    ]
    killed = [item for _, item in OPENCODE.items(OPENCODE.read(at(OPENCODE, KILLED, env)).entries)]
    assert [item["role"] for item in killed] == ["user", "assistant", "user"]
    assert len(killed[1]["tool_calls"]) == 1


def test_a_row_that_changes_comes_again(env):
    """A part that grew since the mark is read again, the rest is not, and its last form counts."""
    place = at(OPENCODE, KILLED, env)
    first = OPENCODE.read(place)
    running = next(one for one in first.entries if one.kind == "part/tool")
    row = json.loads(running.raw)["row"]
    row.pop("role")
    data = json.loads(row["data"])
    data["state"] |= {"status": "completed", "output": "done"}
    database = open_database(env)
    put_row(database, "part", row | {"data": json.dumps(data), "time_updated": first.mark.offset + 5})
    database.commit()
    database.close()
    second = OPENCODE.read(place, Mark(*json.loads(json.dumps(first.mark))))
    assert [one.id for one in second.entries] == [running.id]
    items = [item for _, item in OPENCODE.items([*first.entries, *second.entries])]
    assert [item["content"] for item in items if item["role"] == "tool"] == ["done"]
    assert OPENCODE.read(place, second.mark).entries == []


def test_reading_leaves_the_database_alone(env):
    """The database is opened read-only, and another writer is not blocked."""
    database = open_database(env)
    database.isolation_level = None
    database.execute("BEGIN IMMEDIATE")
    assert OPENCODE.read(at(OPENCODE, LONG, env)).entries
    database.execute("ROLLBACK")
    database.close()


def test_another_form_of_the_database_is_refused(env, tmp_path):
    """Rows are inserted only into tables with exactly the same columns; if not, the error names the columns."""
    place = at(OPENCODE, LONG, env)
    raws = [one.raw for one in OPENCODE.read(place).entries]
    there = {"XDG_DATA_HOME": str(tmp_path / "new")}
    opencode_database(tmp_path / "new" / "opencode" / "opencode.db", rows=False)
    database = open_database(there)
    database.execute("ALTER TABLE part ADD COLUMN invented text")
    database.commit()
    with pytest.raises(Conflict, match="invented"):
        OPENCODE.put_back(place, iter(raws), there, str(tmp_path))
    assert database.execute("SELECT count(*) FROM session").fetchone() == (0,)
    database.close()
    with pytest.raises(NotFound, match="does not exist"):
        OPENCODE.put_back(place, iter(raws), {"XDG_DATA_HOME": str(tmp_path / "none")}, str(tmp_path))


def test_rows_of_another_conversation_are_refused(env, tmp_path):
    """A mirrored record can only bring rows of its own conversation."""
    place = at(OPENCODE, LONG, env)
    foreign = [one.raw for one in OPENCODE.read(at(OPENCODE, BLOCKED, env)).entries]
    there = {"XDG_DATA_HOME": str(tmp_path / "new")}
    opencode_database(tmp_path / "new" / "opencode" / "opencode.db", rows=False)
    for raws in (foreign, ['{"table": "sqlite_master", "row": {}}'], ["[]"]):
        with pytest.raises(InvalidInput):
            OPENCODE.put_back(place, iter(raws), there, str(tmp_path))
    assert OPENCODE.find(BLOCKED, there) is None


def test_it_resumes_in_its_own_directory(env):
    """From another directory it would never return, so it always gets its own."""
    launch = OPENCODE.resume(LaunchOptions("/elsewhere", LONG, prompt="two words", headless=True, env=env))
    assert launch.argv[launch.argv.index("--dir") + 1] == launch.cwd == "/home/dev/opencode/proj"
    assert launch.stdin == "two words", "in the arguments it would arrive in quotes"
    assert launch.warnings == []


def test_an_id_is_obtained_from_the_server(tmp_path):
    """The server is asked over loopback with its own password, and is ended afterwards."""
    program = tmp_path / "opencode"
    program.write_text(f"#!{sys.executable}\n{SERVER}")
    program.chmod(0o755)
    assert (
        OPENCODE.obtain_id(LaunchOptions(str(tmp_path), name="n", env=os.environ, program=str(program))) == "ses_made1"
    )
    assert not Path(f"/proc/{(tmp_path / 'seen').read_text()}").exists()


def test_a_program_that_says_nothing_gives_no_id(tmp_path, monkeypatch):
    """After the deadline there is no id; a missing program is named in the error."""
    monkeypatch.setattr("onrecord.vendors.opencode.ID_SECONDS", 1.0)
    program = tmp_path / "opencode"
    program.write_text("#!/bin/sh\nsleep 600\n")
    program.chmod(0o755)
    assert OPENCODE.obtain_id(LaunchOptions(str(tmp_path), env=os.environ, program=str(program))) is None
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o000)
    env = {**os.environ, "PATH": os.pathsep.join([str(closed / "bin"), os.environ["PATH"]])}
    with pytest.raises(NotFound, match="not on PATH"):
        OPENCODE.obtain_id(LaunchOptions(str(tmp_path), env=env, program="no-such-opencode"))


PLAY = """
import { Onrecord } from "./plugin.mjs"
const hooks = await Onrecord({ directory: "/project" })
await hooks.event({ event: { type: "session.created", properties: { info: { id: "ses_1" } } } })
await hooks.event({ event: { type: "session.created", properties: { info: { id: "ses_2", parentID: "ses_1" } } } })
await hooks["chat.message"]({ sessionID: "ses_1" }, { parts: [{ type: "text", text: "go" }] })
const output = { system: ["own"] }
await hooks["experimental.chat.system.transform"]({ sessionID: "ses_1" }, output)
await hooks["experimental.chat.system.transform"]({ sessionID: "ses_1" }, output)
let refused = ""
try {
  await hooks["tool.execute.before"]({ tool: "edit", sessionID: "ses_2", callID: "c1" }, { args: { filePath: "a" } })
} catch (error) { refused = error.message }
const part = { type: "tool", tool: "bash", sessionID: "ses_1", callID: "c2", state: { status: "completed", input: { command: "ls" }, output: "a", metadata: { exit: 0 } } }
await hooks.event({ event: { type: "message.part.updated", properties: { part } } })
await hooks.event({ event: { type: "message.part.updated", properties: { part } } })
await hooks.event({ event: { type: "session.idle", properties: { sessionID: "ses_1" } } })
console.log(JSON.stringify({ system: output.system, refused }))
"""

HOOK = """
import json, sys
payload = json.loads(sys.stdin.read())
open("calls", "a").write(json.dumps([sys.argv[1:], payload]) + "\\n")
answers = {"session.start": {"context": "BRIEF"}, "tool.execute.before": {"decision": "deny", "reason": "settle it first"}}
print(json.dumps(answers.get(sys.argv[3], {})))
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="cannot run here: no node to run the plugin with")
def test_the_plugin_calls_and_obeys(tmp_path):
    """Run for real: every event reaches the hook once, the brief is in every request, a refusal stops the tool."""
    import subprocess

    (tmp_path / "hook.py").write_text(HOOK)
    plugin = OPENCODE.hook_settings([sys.executable, str(tmp_path / "hook.py")])
    (tmp_path / "plugin.mjs").write_text(plugin)
    (tmp_path / "play.mjs").write_text(PLAY)
    done = subprocess.run(["node", "play.mjs"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout) == {"system": ["own", "BRIEF", "BRIEF"], "refused": "settle it first"}
    calls = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    assert [words for words, _payload in calls] == [
        ["hook", "opencode", event]
        for event in ("session.start", "chat.message", "tool.execute.before", "tool.execute.after", "session.idle")
    ]
    heard = [OPENCODE.parse_hook(payload, {}) for _words, payload in calls]
    assert {call.vendor_id for call in heard} == {"ses_1"}, "a subagent works for the conversation a person sees"
    assert (heard[0].reason, heard[1].prompt, heard[3].exit_code, heard[3].output) == ("startup", "go", 0, "a")
    assert wanted(OPENCODE, heard[2]).paths == ("/project/a",)


def test_a_broken_hook_changes_nothing():
    """An empty answer prints nothing, and the plugin then continues."""
    call = OPENCODE.parse_hook({"hook_event_name": "tool.execute.before", "tool_name": "edit"}, {})
    assert OPENCODE.reply(call, HookAnswer()).stdout == ""
    assert "resolve({})" in (DATA.parents[2] / "src/onrecord/vendors/opencode_plugin.js").read_text()


def test_streams_tell_how_they_ended():
    """A last step that stopped means finished; an error does not."""
    stop = {"type": "step_finish", "sessionID": LONG, "part": {"reason": "stop"}}
    error = {"type": "error", "sessionID": LONG, "error": {"name": "UnknownError", "data": {"message": "broken"}}}
    assert OPENCODE.classify([json.dumps(stop)], 0).cause == FINISHED
    assert OPENCODE.classify([json.dumps(stop), json.dumps(error)], 1).cause == CRASH


def test_doubtful_commands_are_named():
    """Flags that start another conversation, hang or change the prompt cause a warning (I27)."""
    assert any("--continue" in said for said in OPENCODE.warnings(["opencode", "-c"], {}))
    assert any("never returns" in said for said in OPENCODE.warnings(["opencode", "run", "-s", LONG, "x"], {}))
    assert any("quotes" in said for said in OPENCODE.warnings(["opencode", "run", "two words"], {}))


def test_a_conversation_is_moved_within_the_database(env, tmp_path):
    """Only the directory of that conversation changes; one that is not there is an error."""
    place, other = at(OPENCODE, LONG, env), at(OPENCODE, BLOCKED, env)
    assert OPENCODE.move_within(place, env, str(tmp_path)).cwd == str(tmp_path.resolve())
    assert at(OPENCODE, LONG, env).cwd == str(tmp_path.resolve())
    assert at(OPENCODE, BLOCKED, env) == other
    with pytest.raises(NotFound):
        OPENCODE.move_within(place._replace(vendor_id="ses_gone"), env, str(tmp_path))


def test_a_plugin_that_waits_for_npm_is_told(tmp_path):
    """Setup and start warn where opencode would fetch a package first; not where it has it."""
    env = {"HOME": str(tmp_path)}
    project, own = tmp_path / "project", tmp_path / "project" / ".opencode"
    plugin = own / "plugin" / "onrecord.js"
    plugin.parent.mkdir(parents=True)
    assert OPENCODE.start(LaunchOptions(str(project), env=env)).warnings == []
    plugin.touch()
    assert ["npm" in one for one in OPENCODE.setup_warnings(plugin, env)] == [True]
    assert ["npm" in one for one in OPENCODE.start(LaunchOptions(str(project), env=env)).warnings] == [True]
    (own / "node_modules" / "@opencode-ai" / "plugin").mkdir(parents=True)
    assert OPENCODE.setup_warnings(plugin, env) == []
