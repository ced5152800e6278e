"""A project with a store of its own, and the tools called without the protocol around them."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onrecord.connection import connect
from onrecord.surfaces.mcp.calling import Answer, Calls
from onrecord.surfaces.mcp.finding import Caller, Sessions

LEFT_BY_VENDORS = ("CLAUDE_CODE_SESSION_ID", "COPILOT_AGENT_SESSION_ID", "QWEN_CODE_SESSION_ID")


class Tools:
    """The tools as one client calls them."""

    def __init__(self, project: Path, *, local: bool = True) -> None:
        self.project = project
        self.sessions = Sessions()
        self.calls = Calls(self.sessions)
        self.caller = Caller("a-client", local=local)
        self.connection = "connection"
        self.request = 0

    def ask(self, name: str, /, **given: Any) -> Answer:
        self.request += 1
        return self.calls.call(name, given, self.caller, connection=self.connection, request=str(self.request))

    def done(self, name: str, /, **given: Any) -> dict[str, Any]:
        """The data of a call that works."""
        answer = self.ask(name, **given)
        assert answer.error is None, answer
        return answer.data

    def refused(self, name: str, /, **given: Any) -> dict[str, Any]:
        """The error of a call that does not."""
        answer = self.ask(name, **given)
        assert answer.error is not None, answer
        return answer.error

    def records(self):
        return connect()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository, a home and a store that belong to this test; nothing of the person who runs it."""
    folder, home = tmp_path / "project", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    for name in [*os.environ]:
        if name.startswith(("ONRECORD_", "XDG_")) or name in LEFT_BY_VENDORS:
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("ONRECORD_STORE", str(tmp_path / "data" / "store.db"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.chdir(folder)
    (folder / "cache.py").write_text("def get(key):\n    return STORE[key]\n")
    identity = ["-c", "user.name=ada", "-c", "user.email=ada@example.org", "-c", "init.defaultBranch=main"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "begin"]):
        subprocess.run(["git", *identity, *words], cwd=folder, check=True)
    return folder


@pytest.fixture
def tools(project: Path) -> Iterator[Tools]:
    """A client in a project that has one session."""
    with connect() as records:
        records.create("fix-403", agent="ada", objective="Fix the 403 after invite acceptance")
    made = Tools(project)
    yield made
    made.sessions.close()
