"""Hooks: a new process on a long session, run as setup installs it, against a bare interpreter with the same driver."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onrecord
from bench.gate import AGENT, EVENTS, fill, installed
from bench.report import Figure, ratio, timed
from bench.workload import turns
from onrecord.setup.commands import HOOK_COMMAND
from onrecord.vendors.port import VENDORS, vendor

CONVERSATION = "aaaaaaaa-0000-4000-8000-0000000000ad"
PROGRAMS = Path(sys.executable).parent
COMMAND = (
    [*HOOK_COMMAND, "hook"]
    if (PROGRAMS / "onrecord").exists()
    else [sys.executable, "-P", "-m", "onrecord", "hook"]  # a checkout that only PYTHONPATH names
)
ALLOWED, RECORDED = 1.4, 2.2
"""The aims: of a hook that only reads, and of one that puts something on record."""


class Agent:
    """A conversation of Claude Code on a long session, and its hooks."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.store = place / "hook.db"
        fill(self.store, EVENTS)
        self.records = onrecord.connect(str(self.store), project="bench")
        self.session = self.records.get("long", agent=AGENT)
        self.transcript = place / ".claude" / "projects" / "bench" / f"{CONVERSATION}.jsonl"
        self.transcript.parent.mkdir(parents=True)
        self.session.agents.locate(
            "claude", CONVERSATION, reason="startup", cwd=str(place), via="hook", transcript=str(self.transcript)
        )
        self.linked = {
            "ONRECORD_STORE": str(self.store), "ONRECORD_PROJECT": "bench",
            "PATH": f"{Path(installed(place)).parent}:/usr/bin:/bin",
            "HOME": str(place), "PYTHONPATH": ":".join(path for path in sys.path if path.endswith("src")),
        }  # fmt: skip
        self.named = self.linked | {"ONRECORD_SESSION": "long", "ONRECORD_AGENT": AGENT}
        self._turns = turns(50)

    def hook(self, event: str, number: int, env: dict[str, str] | None = None, **about: Any) -> float:
        """The time of one hook, in seconds."""
        said: dict[str, Any] = {
            "session_id": CONVERSATION, "hook_event_name": event, "tool_use_id": f"toolu_{number:06}",
            "cwd": str(self.place), "transcript_path": str(self.transcript),
        }  # fmt: skip
        return run("claude", event, said | about, env or self.linked)

    def prompt(self, number: int) -> float:
        """A prompt after a wait for a person: the wait is over."""
        self.session.agents.record_attention_needed(f"permission {number}")
        return self.hook("UserPromptSubmit", number, prompt="go ahead")

    def stop(self, number: int) -> float:
        """The end of a turn, whose messages are copied."""
        with self.transcript.open("a") as file:
            for part, item in enumerate(self._turns[number % 50]):
                message = {"role": "user" if item["role"] == "user" else "assistant", "content": item["content"]}
                record = {"type": message["role"], "uuid": f"{number}-{part}", "sessionId": CONVERSATION}
                file.write(json.dumps(record | {"message": message}) + "\n")
        return self.hook("Stop", number, stop_hook_active=True)

    def start(self, number: int) -> float:
        """A resumed conversation: where it is now is recorded."""
        return self.hook("SessionStart", number, source=("resume", "startup")[number % 2])


def run(name: str, event: str, payload: dict[str, Any], env: dict[str, str]) -> float:
    """The time of a hook process."""
    sent = json.dumps(payload).encode()

    def go() -> None:
        done = subprocess.run([*COMMAND, name, event], input=sent, capture_output=True, env=env, check=False)
        assert done.returncode == 0, done
        assert not done.stdout or event == "SessionStart", done

    return timed(go)


def calls(place: Path, *, quick: bool) -> list[Figure]:
    """A plain allow, by the conversation's id and by the environment; and every hook that puts something on record."""
    rounds = 15 if quick else 61
    agent = Agent(place)
    hook, here = agent.hook, str(place)
    edit: dict[str, Any] = {"tool_name": "Edit", "tool_input": {"file_path": f"{here}/src/auth.py"}}
    ran: dict[str, Any] = {"tool_name": "Bash", "tool_input": {"command": "pytest -k new"}}

    def bare(_number: int) -> float:
        command = [sys.executable, "-c", "import apsw, json"]
        return timed(lambda: subprocess.run(command, input=b"", capture_output=True, env=agent.linked, check=True))

    cases: dict[str, Callable[[int], float]] = {
        "bare": bare,
        "edit": lambda number: hook("PreToolUse", number, **edit),
        "run": lambda number: hook("PreToolUse", number, **ran),
        "named": lambda number: hook("PreToolUse", number, agent.named, **edit),
        "unlinked": lambda number: hook("PreToolUse", number, **edit, session_id=f"{number:08}{CONVERSATION[8:]}"),
        "after": lambda number: hook("PostToolUse", number, **ran, tool_response={"stdout": "", "stderr": ""}),
        "prompt": agent.prompt, "stop": agent.stop, "start": agent.start,
    }  # fmt: skip
    samples = _in_turn(cases, rounds)
    detail = ", ".join(f"{name} {statistics.median(found) * 1e3:.1f} ms" for name, found in samples.items())

    def figure(what: str, name: str, aim: float, detail: str = "") -> Figure:
        return Figure(f"hook, {what}", ratio(samples[name], samples["bare"]), "x", aim, detail=detail)

    dialects = _in_turn({"bare": bare} | {name: _dialect(agent, name) for name in VENDORS}, rounds // 3)
    slowest = max(VENDORS, key=lambda name: statistics.median(dialects[name]))
    slow = Figure(f"hook, plain allow, the slowest of {len(VENDORS)} vendors",
                  ratio(dialects[slowest], dialects["bare"]), "x", ALLOWED, detail=slowest)  # fmt: skip
    return [
        figure(f"plain allow of an edit, {EVENTS:,} events, against import apsw, json", "edit", ALLOWED, detail),
        figure("plain allow of a run, the same", "run", ALLOWED),
        figure("agent named by its environment, the same", "named", ALLOWED),
        figure("a conversation without a session, the same", "unlinked", ALLOWED),
        slow,
        figure("after a tool, durably on record, the same", "after", RECORDED),
        figure("a prompt that ends a wait, durably on record, the same", "prompt", RECORDED),
        figure("the end of a turn, copied durably, the same", "stop", RECORDED),
        figure("the start of a resumed conversation, durably on record, the same", "start", RECORDED),
    ]


def _in_turn(cases: dict[str, Callable[[int], float]], rounds: int) -> dict[str, list[float]]:
    """The times of each case, one of each in every round; two rounds before them warm the machine."""
    samples: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(rounds + 2):
        for name, case in cases.items():
            samples[name].append(case(number))
    return {name: found[2:] for name, found in samples.items()}


def _dialect(agent: Agent, name: str) -> Callable[[int], float]:
    """A plain allow in one vendor's dialect."""
    of = vendor(name)
    event, sample = of.sample_hook("cccccccc-0000-4000-8000-0000000000ad")
    call = of.parse_hook({"hook_event_name": event} | sample, {})
    agent.session.agents.locate(name, call.vendor_id)
    return lambda _number: run(name, event, sample | {"cwd": str(agent.place)}, agent.linked)
