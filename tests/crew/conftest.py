"""A store, a home and a project for each test, with a pretended Claude Code, and teams that are ended whatever happens."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onrecord.machine import started
from tests.agents.conftest import Desk, bytecode
from tests.cli.conftest import PATIENCE
from tests.forking import SCRIPT
from tests.waiting import until

__all__ = ["bytecode"]

SESSION = "invite"


class Squad(Desk):
    """Runs teams of pretended agents; a plan file of each agent says what each of its runs does."""

    def __init__(self, place: Path, bytecode: Path) -> None:
        super().__init__(place, bytecode)
        self.environment["TMUX_TMPDIR"] = str(place)
        self.environment["SHELL"] = "/bin/sh"
        self.file = self.project / "team.toml"
        self.runtime = self.project / "runtime"
        self.processes: list[subprocess.Popen[str]] = []

    def plan_of(self, agent: str, *steps: str) -> Path:
        place = self.place / f"{agent}.plan"
        place.write_text("\n".join(steps))
        return place

    def agent(self, name: str, *steps: str, more: str = "") -> str:
        """An agent in a team file."""
        plan = self.plan_of(name, *steps)
        return (
            f'[[agent]]\nid = "{name}"\ncommand = "claude"\nprompt = "You are {{{{ agent }}}}."\n'
            f'environment = {{ PRETENDER_PLAN = "{plan}" }}\n{more}\n'
        )

    def write(self, *tables: str) -> None:
        self.file.write_text("\n".join([f'[team]\nname = "{SESSION}"', *tables]))

    def team(self, *words: str) -> "subprocess.Popen[str]":
        """A supervisor in a process of its own; its output goes to files, so nothing waits for a reader."""
        with (self.place / "supervisor.out").open("a") as out, (self.place / "supervisor.err").open("a") as err:
            process = subprocess.Popen(
                [SCRIPT, "team", *words], cwd=self.project, env=self.environment, text=True, stdin=subprocess.DEVNULL,
                stdout=out, stderr=err,
            )  # fmt: skip
        self.processes.append(process)
        return process

    def up(self, *words: str) -> "subprocess.Popen[str]":
        return self.team("up", str(self.file), "--headless", *words)

    def shell(self, *words: str) -> None:
        subprocess.run(words, cwd=self.project, env=self.environment, check=True, stdin=subprocess.DEVNULL)

    def told(self) -> str:
        return (self.place / "supervisor.err").read_text()

    def rows(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = self.status()["agents"]
        return found

    def needs(self, session: str) -> list[dict[str, Any]]:
        """Why the session needs a person, as the overview lists it."""
        listed = json.loads(self.run("--json").out)["data"]["sessions"]
        return [need for one in listed if one["name"] == session for need in one["needs_you"]]

    def status(self) -> dict[str, Any]:
        done = self.run("team", "status", SESSION, "--json")
        return json.loads(done.out)["data"] if done.code == 0 else {"agents": {}, "supervisor": None}

    def state(self, agent: str) -> str | None:
        """The files of the runtime folder: reading them is cheaper than calling the command again and again."""
        try:
            known = json.loads((self.runtime / "state.json").read_text())["agents"]
        except (OSError, ValueError):
            return None
        found: str | None = known.get(agent, {}).get("state")
        return found

    def pid(self, name: str) -> int:
        """The process id that a pretended agent wrote."""
        place = self.place / name
        return int(until(lambda: place.exists() and place.read_text().strip()))

    def joined(self, agent: str) -> list[dict[str, Any]]:
        return [event.data for event in self.session(SESSION).events(kinds=("agent.joined",)) if event.by == agent]

    def clear(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait(PATIENCE)
        if self.store.exists():
            for head in self.records().sessions():
                self.run("team", "stop", head.name)


@pytest.fixture
def squad(tmp_path, bytecode) -> Iterator[Squad]:
    made = Squad(tmp_path, bytecode)
    yield made
    made.clear()
    assert belonging(tmp_path) == [], "a test leaves no process behind"


def belonging(place: Path) -> list[int]:
    """Every living process with the test's own home."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "environ").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:
            continue
        if f"HOME={place}".encode() in words and started(int(entry.name)) is not None:
            found.append(int(entry.name))
    return found
