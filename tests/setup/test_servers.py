"""Our MCP server in the vendors' files: added, recognised, updated, and removed without a trace."""

import json
import tomllib
from pathlib import Path

import pytest

from onrecord.errors import Conflict, InvalidInput
from onrecord.setup import installing
from onrecord.setup.commands import HOOK_COMMAND, SERVER_COMMAND
from onrecord.setup.servers import registered, with_server, without_server
from onrecord.vendors.mcp_servers import PASSED_ON
from onrecord.vendors.port import PROJECT_SCOPE, USER_SCOPE, VENDORS, vendor

JSON_FILES = {
    "claude": ".mcp.json", "copilot": "mcp-config.json", "cursor": "mcp.json", "gemini": "settings.json",
    "opencode": "opencode.json", "qwen": "settings.json",
}  # fmt: skip
TEXTS = [
    "{}",
    "{}\n",
    "{\n}\n",
    '{"a": 1}',
    '{\n  "a": [1, 2],\n  "b": {"c": null}\n}\n',
    '{\n\t"mcpServers": {}\n}\n',
    '{\r\n    "mcpServers": {\r\n        "other": {"command": "x"}\r\n    }\r\n}\r\n',
    '{"mcp": {"other": {"type": "local", "command": ["x"]}}, "mcpServers": {"other": {"command": "x"}}}',
    '\ufeff{\n  "mcpServers": {\n  }\n}',
]


@pytest.mark.parametrize("name", JSON_FILES)
@pytest.mark.parametrize("text", TEXTS)
def test_a_json_file_is_the_same_after_removal(name, text):
    """Whatever the file looked like, adding our server and removing it again changes no byte; adding it twice changes nothing more."""
    path = Path(JSON_FILES[name])
    added = with_server(name, path, text, SERVER_COMMAND)
    assert registered(name, path, added) == list(SERVER_COMMAND)
    assert with_server(name, path, added, SERVER_COMMAND) == added
    assert without_server(name, path, added, SERVER_COMMAND) == text
    before, after = json.loads(text.removeprefix("\ufeff")), json.loads(added.removeprefix("\ufeff"))
    for key in before:
        left = {one: value for one, value in after[key].items() if one != "onrecord"} if "mcp" in key else after[key]
        assert left == before[key], "everything of the user's is still there"


@pytest.mark.parametrize(
    "text", ["", "a = 1", "a = 1\n", '[mcp_servers.other]\ncommand = "x"\n', "a = 1\r\n\r\n[b]\r\n"]
)
def test_a_toml_file_is_the_same_after_removal(text):
    """The same for Codex; the variables that lead to the session are passed on."""
    path = Path("config.toml")
    added = with_server("codex", path, text or None, SERVER_COMMAND)
    assert registered("codex", path, added) == list(SERVER_COMMAND)
    assert with_server("codex", path, added, SERVER_COMMAND) == added
    assert (without_server("codex", path, added, SERVER_COMMAND) or "") == text
    assert tomllib.loads(added)["mcp_servers"]["onrecord"]["env_vars"] == list(PASSED_ON)


def test_what_a_user_changed_is_left_alone():
    """An entry that was tuned by hand, or another server of our name, is neither replaced nor removed without --force."""
    path = Path(".mcp.json")
    added = with_server("claude", path, None, SERVER_COMMAND)
    tuned = added.replace('"type": "stdio"', '"type": "stdio", "timeout": 9')
    for change in (with_server, without_server):
        with pytest.raises(Conflict, match="changed by hand"):
            change("claude", path, tuned, SERVER_COMMAND)
    assert with_server("claude", path, tuned, SERVER_COMMAND, force=True) == added
    assert without_server("claude", path, tuned, SERVER_COMMAND, force=True) is None
    foreign = '{"mcpServers": {"onrecord": {"command": "other"}}}'
    with pytest.raises(Conflict, match="another MCP server named"):
        with_server("claude", path, foreign, SERVER_COMMAND)
    assert without_server("claude", path, foreign, SERVER_COMMAND) == foreign
    toml = with_server("codex", Path("config.toml"), None, SERVER_COMMAND).replace(
        "env_vars", "required = true\nenv_vars"
    )
    with pytest.raises(Conflict, match="changed by hand"):
        without_server("codex", Path("config.toml"), toml, SERVER_COMMAND)
    with pytest.raises(InvalidInput, match="not valid TOML"):
        with_server("codex", Path("config.toml"), "a = = 1\n", SERVER_COMMAND)


@pytest.mark.parametrize("scope", [USER_SCOPE, PROJECT_SCOPE])
@pytest.mark.parametrize("name", VENDORS)
def test_setting_up_and_removing_leaves_no_trace(name, scope, tmp_path):
    """Hooks, instructions and server of every vendor, in the user's and in the project's files: removed without a trace.

    Two parts may be in one file; each is planned on what the other leaves.
    """
    of, target = vendor(name), installing.Target(scope, tmp_path / "project", {"HOME": str(tmp_path / "home")})
    kept = {file.path for file in of.files(scope, target.root, target.env) if file.path.suffix == ".json"}
    for path in kept:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{\n  "theme": "dark"\n}\n')
    for _again in range(2):
        for change in installing.plan(of, target, HOOK_COMMAND, "block\n", server=SERVER_COMMAND):
            assert not change.problem, change
            installing.apply(change, target.env)
    assert installing.registered_server(of, target) == list(SERVER_COMMAND)
    for change in installing.plan_removal(of, target, HOOK_COMMAND, server=SERVER_COMMAND):
        if change.what != "instructions":
            installing.apply(change, target.env)
    left = {
        path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".md" and ".local" not in path.parts
    }
    assert left == kept
    assert {path.read_text() for path in left} <= {'{\n  "theme": "dark"\n}\n'}


def test_without_the_package_nothing_is_registered(tmp_path):
    """If this onrecord cannot serve, setup does not register a server that would fail at every start."""
    target = installing.Target(PROJECT_SCOPE, tmp_path, {"HOME": str(tmp_path)})
    planned = installing.plan(vendor("claude"), target, HOOK_COMMAND, "block\n")
    assert [change.what for change in planned] == ["hooks", "instructions"]
