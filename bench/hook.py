"""A hook before a tool call: a new process on a long session, against a bare interpreter with the same driver."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import onrecord
from bench.gate import AGENT, EVENTS, fill
from bench.report import Figure, ratio, timed
from onrecord.vendors.port import VENDORS, vendor

CONVERSATION = "aaaaaaaa-0000-4000-8000-0000000000ad"
COMMAND = [sys.executable, "-P", "-m", "onrecord", "hook", "claude"]
"""As `onrecord setup` writes it, without `-I`: the benchmark may run from a checkout that only PYTHONPATH names."""


def payload(event: str, number: int = 0, **about: Any) -> bytes:
    """A payload of Claude Code."""
    said = {"session_id": CONVERSATION, "hook_event_name": event, "tool_use_id": f"toolu_{number:06}"} | about
    return json.dumps(said).encode()


def calls(place: Path, *, quick: bool) -> list[Figure]:
    """A plain allow, by the conversation's id and by the environment; and hooks that write, for comparison."""
    rounds = 15 if quick else 61
    store = place / "hook.db"
    fill(store, EVENTS)
    with onrecord.connect(str(store), project="bench") as records:
        records.get("long", agent=AGENT).agents.locate("claude", CONVERSATION, reason="startup", cwd=str(place))
    linked = {
        "ONRECORD_STORE": str(store), "ONRECORD_PROJECT": "bench", "PATH": "/usr/bin:/bin", "HOME": str(place),
        "PYTHONPATH": ":".join(path for path in sys.path if path.endswith("src")),
    }  # fmt: skip
    named = linked | {"ONRECORD_SESSION": "long", "ONRECORD_AGENT": AGENT}
    here = str(place)
    edit: dict[str, Any] = {"tool_name": "Edit", "tool_input": {"file_path": f"{here}/src/auth.py"}, "cwd": here}
    run: dict[str, Any] = {"tool_name": "Bash", "tool_input": {"command": "pytest -k new"}, "cwd": here}

    def hook(event: str, number: int, env: dict[str, str] = linked, **about: Any) -> float:
        sent = payload(event, number, **about)

        def go() -> None:
            done = subprocess.run([*COMMAND, event], input=sent, capture_output=True, env=env, check=False)
            assert (done.returncode, done.stdout) == (0, b""), done

        return timed(go)

    def bare() -> None:
        subprocess.run(
            [sys.executable, "-c", "import apsw, json"], input=b"", capture_output=True, env=linked, check=True
        )

    samples: dict[str, list[float]] = {name: [] for name in ("bare", "edit", "run", "named", "unlinked", "after")}
    for number in range(rounds + 2):
        samples["bare"].append(timed(bare))
        samples["edit"].append(hook("PreToolUse", number, **edit))
        samples["run"].append(hook("PreToolUse", number, **run))
        samples["named"].append(hook("PreToolUse", number, named, **edit))
        samples["unlinked"].append(
            hook("PreToolUse", number, **edit, session_id=f"bbbbbbbb-0000-4000-8000-{number:012}")
        )
        samples["after"].append(hook("PostToolUse", number, **run, tool_response={"stdout": "", "stderr": ""}))
    dialects = {name: _dialect(place, name, linked, rounds // 3) for name in VENDORS}
    slowest = max(dialects, key=lambda name: statistics.median(dialects[name]))
    detail = ", ".join(f"{name} {statistics.median(found) * 1e3:.1f} ms" for name, found in samples.items())

    def against(name: str) -> float:
        return ratio(samples[name][2:], samples["bare"][2:])

    what = f"hook, plain allow of an edit, {EVENTS:,} events, against import apsw, json"
    return [
        Figure(what, against("edit"), "x", 2.0, detail=detail),
        Figure("hook, plain allow of a run, the same", against("run"), "x", 2.0),
        Figure("hook, agent named by its environment, the same", against("named"), "x", 2.0),
        Figure("hook, a conversation without a session, the same", against("unlinked"), "x", 2.0),
        Figure(f"hook, the slowest of {len(VENDORS)} vendors", ratio(dialects[slowest], samples["bare"][2:]), "x", 2.0,
               detail=slowest),
        Figure("hook, after a tool, durably on record, the same", against("after"), "x"),
    ]  # fmt: skip


def _dialect(place: Path, name: str, env: dict[str, str], rounds: int) -> list[float]:
    """A plain allow in one vendor's dialect."""
    of = vendor(name)
    event, sample = of.sample_hook("cccccccc-0000-4000-8000-0000000000ad")
    sent = json.dumps(sample | {"cwd": str(place)}).encode()
    with onrecord.connect(env["ONRECORD_STORE"], project="bench") as records:
        call = of.parse_hook({"hook_event_name": event} | sample, {})
        records.get("long", agent=AGENT).agents.locate(name, call.vendor_id)

    def go() -> None:
        done = subprocess.run([*COMMAND[:-1], name, event], input=sent, capture_output=True, env=env, check=False)
        assert (done.returncode, done.stdout) == (0, b""), done

    return [timed(go) for _ in range(rounds + 2)][2:]
