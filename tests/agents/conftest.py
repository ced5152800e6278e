"""A store, a home and a directory for each test, with a program on PATH that behaves like Claude Code."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from onrecord.connection import connect
from onrecord.session.handle import Session
from onrecord.session.session_store import SessionStore
from tests.cli.conftest import Command

PRETENDER = Path(__file__).with_name("pretender.py")


class Desk(Command):
    """Runs `onrecord` beside a pretended Claude Code."""

    def __init__(self, place: Path, bytecode: Path) -> None:
        super().__init__(place, bytecode)
        bin_ = place / "bin"
        bin_.mkdir()
        program = bin_ / "claude"
        program.write_text(f"#!{sys.executable}\n" + PRETENDER.read_text())
        program.chmod(0o755)
        self.home = place / ".claude"
        self.plan_file = place / "plan"
        self.environment["PATH"] = f"{bin_}{os.pathsep}{self.environment['PATH']}"
        self.environment["PRETENDER_PLAN"] = str(self.plan_file)
        self.plan("answer")

    def plan(self, *steps: str) -> None:
        """The steps of the next runs of the pretender; the last step also serves all further runs."""
        self.plan_file.write_text("\n".join(steps))

    def records(self) -> SessionStore:
        return connect(str(self.store), project=str(self.project))

    def session(self, name: str) -> Session:
        return self.records().get(name)

    def links(self, name: str, agent: str = "claude") -> list[Any]:
        return list(self.session(name).views.roster.agents[agent]["links"])

    def transcripts(self) -> list[Path]:
        return sorted(self.home.glob("projects/*/*.jsonl"))

    def prompts(self) -> list[str]:
        """Every prompt that reached a conversation, in order."""
        return [prompt for path in self.transcripts() for prompt in self.prompts_of(path)]

    def prompts_of(self, transcript: Path) -> list[str]:
        """Every prompt that reached one conversation, in order."""
        said = [json.loads(line) for line in transcript.read_text().splitlines()]
        return [one["message"]["content"] for one in said if one["type"] == "user"]

    def interruptions(self, name: str) -> list[dict[str, Any]]:
        return [event.data for event in self.session(name).events(kinds=("interruption.recorded",))]


@pytest.fixture(scope="session")
def bytecode(tmp_path_factory) -> Path:
    """Compiled modules, shared by the whole run."""
    place: Path = tmp_path_factory.mktemp("bytecode")
    return place


@pytest.fixture
def desk(tmp_path, bytecode) -> Desk:
    return Desk(tmp_path, bytecode)
