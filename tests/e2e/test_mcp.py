"""Real coding agents with our hooks and our tools, as `onrecord setup` leaves them: one session that passes through all of them."""

import json
import sys
from collections.abc import Callable

from tests.e2e.lab import Lab
from tests.e2e.suite import OBJECTIVE, SESSION, Agent, Laboratory
from tests.e2e.wire import FENCED

FORESEE = '[[mcp attempt :: {"action": "foresee", "command": "make check"}]]'
ATTEMPT = '[[mcp attempt :: {"action": "start", "command": "make check"}]]'
GATE = '[[mcp gate :: {"paths": ["shed.txt"]}]]'
SETTLE = '[[mcp attempt :: {"action": "settle", "outcome": "failed", "error": "no such colour"}]]'
SEARCH = '[[mcp search :: {"query": "shed"}]]'
READ = '[[mcp read :: {"first": 1}]]'
LEG_SECONDS = 300.0
"""Eight answers of the model, and three processes around most of them; on a busy machine that takes minutes."""
WAITS = ("claude", "codex")
"""Programs that start their first turn while their servers start."""


def allow_claude(lab: Lab) -> None:
    settings = lab.home / ".claude" / "settings.json"
    data = json.loads(settings.read_text())
    data["permissions"]["allow"].append("mcp__onrecord")
    data["env"] = {"ENABLE_TOOL_SEARCH": "false"}  # our model server does not search for tools
    settings.write_text(json.dumps(data))


def allow_codex(lab: Lab) -> None:
    config = lab.home / ".codex" / "config.toml"
    mine = '[mcp_servers.onrecord]\nrequired = true\ndefault_tools_approval_mode = "approve"\n'
    config.write_text(config.read_text().replace("[mcp_servers.onrecord]\n", mine))


def allow_gemini(lab: Lab) -> None:
    policy = lab.home / ".gemini" / "policies" / "lab.toml"
    policy.write_text(
        policy.read_text() + '[[rule]]\ntoolName = "mcp_onrecord_*"\ndecision = "allow"\npriority = 100\n'
    )


ALLOW: dict[str, Callable[[Lab], None]] = {"claude": allow_claude, "codex": allow_codex, "gemini": allow_gemini}
"""What a user does once so that a program calls our tools without a terminal; for the others, nothing."""


def prompt_for(name: str) -> str:
    """All six tools, one of them refused, a fact, and one tool of the program's own."""
    fact = json.dumps({"kind": "decision", "text": f"Paint it as {name} says", "why": "it was asked for"})
    wait = "[[wait]] " if name in WAITS else ""
    return (
        f"This is for {name}. {wait}[[mcp resume :: {{}}]] {FORESEE} {ATTEMPT} {GATE} {SETTLE} {SEARCH} {READ} "
        f"[[mcp record :: {fact}]] [[shell touch {name}.txt]] [[say done]]"
    )


class TestRelay(Laboratory):
    programs = ("claude", "codex", "gemini", "copilot", "opencode", "qwen")

    def leg(self, lab: Lab, name: str, before: str) -> None:
        """One agent's part: what its program sends to its model shows what the hooks and the tools said."""
        which = ["--session", SESSION] if before else ["--name", SESSION, "-o", OBJECTIVE]
        # Codex runs no hook that its user has not looked at in a terminal; tests/e2e/test_codex.py does that.
        more = ["--argument", "--dangerously-bypass-hook-trust"] if name == "codex" else []
        start = [sys.executable, "-m", "onrecord", "start", name, *which, *more, "--no-input", "-p", prompt_for(name)]
        run = lab.run(start, seconds=LEG_SECONDS)
        assert run.status == 0, (name, run)
        mine = [one for one in lab.server.conversation() if f"This is for {name}." in one.said]
        quoted = [" ".join(found[0] for found in FENCED.finditer(one.text)) for one in (mine[0], mine[-1])]
        assert OBJECTIVE in quoted[0], f"{name} gets the brief with its first prompt"
        assert not before or f"Paint it as {before} says" in quoted[0], f"{name} reads what {before} recorded"
        answers = mine[-1].text
        assert f"You work in the onrecord session {SESSION} as {name}, at position" in answers, (name, answers)
        known = "It failed before: attempt" if before else "No failure of this command is on record."
        assert known in answers, (name, answers)
        assert "Refused. To clear it: onrecord attempt fail" in answers, (name, answers)
        assert "found in this project" in answers, (name, answers)
        assert f"Events of {SESSION}." in answers, (name, answers)

    def test_a_session_passes_through_every_agent_with_hooks_and_tools(self, lab: Lab):
        """With the default setup, each of six real programs gets the brief, calls all six tools, and reads what the one before it
        recorded; every fact is on record once under its agent's name, and every use of a tool once, although hooks see the calls too.
        """
        done = lab.onrecord("setup", *self.programs, "--user", "--no-input")
        assert done.status == 0, done
        for allow in ALLOW.values():
            allow(lab)
        before = ""
        for name in self.programs:
            self.leg(lab, name, before)
            before = name
        events = Agent(lab, before).events()
        for name in self.programs:
            own = [event for event in events if event["by"] == name]
            made = [event["data"]["text"] for event in own if event["kind"] == "decision.made"]
            assert made == [f"Paint it as {name} says"], (name, own)
            settled = [event["data"]["error"] for event in own if event["kind"] == "attempt.settled"]
            assert settled == ["no such colour"], (name, own)
            asked = [event["data"]["asked"] for event in own if event["kind"] == "gate.decided"]
            assert asked == [True], (name, own)
            used = [event["data"] for event in own if event["kind"] == "tool.used"]
            assert [one["command"] for one in used if "touch" in str(one.get("command"))] == [f"touch {name}.txt"], used
            assert not [one for one in used if "onrecord" in one["tool"]], "the calls of our tools record themselves"
