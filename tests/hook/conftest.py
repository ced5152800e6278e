"""Hooks as agents run them: a separate process with the payload on standard input, on a separate store."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import onrecord
from onrecord.session.handle import Session
from onrecord.vendors.port import vendor
from tests import forking
from tests.cli.conftest import bytecode

__all__ = ["bytecode"]

PAYLOADS = Path(__file__).parent / "payloads"
PATIENCE = 90
CONVERSATION = "aaaaaaaa-0000-4000-8000-0000000000ad"
VENDORS = tuple(sorted(path.stem for path in PAYLOADS.glob("*.jsonl")))


class Said(NamedTuple):
    """The answer of a hook."""

    code: int
    out: str
    err: str

    @property
    def context(self) -> str:
        """The text for the model, wherever the vendor wants it."""
        names = ("additionalContext", "additional_context", "context")
        return next((said for name in names if (said := _found(self._json(), name))), "")

    @property
    def refusal(self) -> str:
        """The reason, if it is a refusal."""
        said = self._json()
        decision = _found(said, "permissionDecision") or _found(said, "decision") or _found(said, "permission")
        if decision not in ("deny", "block", "ask"):
            return self.err if self.code == 2 else ""
        return (
            _found(said, "permissionDecisionReason") or _found(said, "reason") or _found(said, "agent_message") or "no"
        )

    @property
    def is_empty(self) -> bool:
        return self == (0, "", "")

    def _json(self) -> Any:
        return json.loads(self.out) if self.out else {}


def _found(said: Any, name: str) -> str:
    if not isinstance(said, dict):
        return ""
    return str(said.get(name) or next((one for value in said.values() if (one := _found(value, name))), ""))


class Hooks:
    """Calls `onrecord hook` the way a vendor does."""

    def __init__(self, place: Path, bytecode: Path) -> None:
        self.place = place
        self.store = place / "data" / "store.db"
        self.project = place / "project"
        (self.project / ".git").mkdir(parents=True)
        keep = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG", "TMPDIR") if name in os.environ}
        self.environment = keep | {
            "HOME": str(place), "ONRECORD_STORE": str(self.store), "CLAUDE_PID": str(os.getpid()), "ONRECORD_FOLLOW": "0",
        }  # fmt: skip
        if sys.dont_write_bytecode:
            self.environment["PYTHONPYCACHEPREFIX"] = str(bytecode)

    def start(self, name: str, event: str, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "onrecord", "hook", name, event], cwd=self.project,
            env=self.environment | (env or {}), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def raw(self, name: str, event: str, sent: bytes, env: dict[str, str] | None = None) -> Said:
        environment = self.environment | (env or {})
        if not forking.needs_its_own_interpreter(environment):
            return Said(*forking.run(["hook", name, event], environment, self.project, sent, PATIENCE))
        with self.start(name, event, env) as process:
            out, err = process.communicate(sent, timeout=PATIENCE)
        return Said(process.returncode, out.decode(), err.decode())

    def send(self, name: str, event: str, payload: dict[str, Any], env: dict[str, str] | None = None) -> Said:
        return self.raw(name, event, json.dumps(payload).encode(), env)

    def claude(self, event: str, env: dict[str, str] | None = None, **about: Any) -> Said:
        """A hook of Claude Code in this project."""
        said = {"session_id": CONVERSATION, "cwd": str(self.project), "hook_event_name": event} | about
        return self.send("claude", event, said, env)

    def edit(self, path: str = "a.py", call: str = "toolu_1", env: dict[str, str] | None = None) -> Said:
        about = {"tool_name": "Edit", "tool_input": {"file_path": str(self.project / path)}, "tool_use_id": call}
        return self.claude("PreToolUse", env, **about)

    def ran(self, command: str, call: str = "toolu_2", **about: Any) -> Said:
        response = {"stdout": "", "stderr": "", "interrupted": False}
        said = {"tool_name": "Bash", "tool_input": {"command": command}, "tool_use_id": call, "tool_response": response}
        return self.claude("PostToolUse", **(said | about))

    def of(self, name: str, moment: str) -> tuple[str, dict[str, Any]]:
        """The first recorded payload of a vendor's event, as if it came from this project."""
        for event, payload in payloads(name):
            here = payload | ({"cwd": str(self.project)} if "cwd" in payload else {})
            if vendor(name).parse_hook({"hook_event_name": event} | here, {}).moment == moment:
                return event, here
        raise LookupError(f"{name} has no recorded payload at {moment}")

    def records(self) -> onrecord.SessionStore:
        return onrecord.connect(str(self.store), project=str(self.project))

    def session(self, name: str = "fix-403") -> Session:
        return self.records().get(name)

    def kinds(self, *kinds: str) -> list[Any]:
        with self.records() as records:
            return list(records.get("fix-403").events(kinds=kinds or None))

    def trouble(self) -> str:
        file = self.store.parent / "hook-trouble.log"
        return file.read_text() if file.exists() else ""


def payloads(name: str) -> list[tuple[str, dict[str, Any]]]:
    """Everything a vendor's program sent, in order: event and payload."""
    lines = (PAYLOADS / f"{name}.jsonl").read_text().splitlines()
    return [(one["event"], one["payload"]) for one in map(json.loads, lines)]


@pytest.fixture
def hooks(tmp_path, bytecode) -> Hooks:
    return Hooks(tmp_path, bytecode)


@pytest.fixture
def session(hooks) -> Session:
    """A session that has the conversation of `hooks.claude` on record as the agent `solver`."""
    made: Session = hooks.records().create("fix-403", agent="solver", objective="Fix the 403 after invite acceptance")
    made.agents.locate("claude", CONVERSATION, reason="startup")
    return made
