"""Where people and agents meet an encrypted store: hooks, the tools of the MCP server, and the page."""

import json
from pathlib import Path
from urllib.request import HTTPCookieProcessor, build_opener

import pytest

from onrecord.connection import connect
from tests.cli.conftest import Command
from tests.mcp.conftest import Tools, project
from tests.security.encrypted.conftest import KEY

__all__ = ["project"]


def test_the_tools_read_and_write(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The MCP server's tools record into an encrypted store and read it back."""
    monkeypatch.setenv("ONRECORD_KEY", KEY.hex())
    with connect() as records:
        records.create("fix-403", agent="ada", objective="Fix the 403")
    tools = Tools(project)
    try:
        tools.done("record", kind="decision", text="Use the primary", why="replicas lag")
        assert "Use the primary" in tools.done("resume", full=True)["text"]
    finally:
        tools.sessions.close()
    assert (tmp_path / "data" / "store.db").read_bytes()[:15] != b"SQLite format 3"


def test_the_page_shows_the_sessions(command: Command):
    """`onrecord web` serves an encrypted store."""
    command.ok("open", "fix-invite-403")
    server = command.started("web", "--json", "--port", "0")
    try:
        assert server.stdout is not None
        address = json.loads(server.stdout.readline())["data"]["url"]
        with build_opener(HTTPCookieProcessor()).open(address, timeout=90) as page:
            assert "fix-invite-403" in page.read().decode()
    finally:
        server.terminate()
        server.communicate(timeout=90)


def test_a_hook_gives_an_agent_its_context(command: Command):
    """A hook opens the store with the key; without the key it lets the agent work, and changes nothing."""
    command.ok("open", "fix-invite-403")
    command.ok("decide", "Use the primary")
    payload = json.dumps({
        "hook_event_name": "SessionStart", "session_id": "aaaaaaaa-0000-4000-8000-0000000000ad", "source": "startup",
        "cwd": str(command.project), "transcript_path": str(command.place / "none.jsonl"),
    })  # fmt: skip
    environment = {"ONRECORD_SESSION": "fix-invite-403"}
    done = command.run("hook", "claude", stdin=payload, env=environment)
    assert (done.code, "Use the primary" in done.out) == (0, True), done
    before = command.store.read_bytes()
    del command.environment["ONRECORD_KEY"]
    done = command.run("hook", "claude", stdin=payload, env=environment)
    assert done.code == 0, done
    assert "Use the primary" not in done.out
    assert command.store.read_bytes() == before
