"""Real coding agents with our tools: the model calls them, the facts are in the log, and the next agent reads them."""

import json
from typing import ClassVar

import pytest

from tests.e2e.lab import Lab
from tests.e2e.suite import OBJECTIVE, Agent, Laboratory
from tests.e2e.wire import FENCED

ATTEMPT = '[[mcp attempt :: {"action": "start", "command": "make check"}]]'
GATE = '[[mcp gate :: {"paths": ["shed.txt"]}]]'
SETTLE = '[[mcp attempt :: {"action": "settle", "outcome": "failed", "error": "no such colour"}]]'
RECORD = '[[mcp record :: {"kind": "decision", "text": "Paint it magenta", "why": "it was asked for"}]]'
PROMPT = f"[[mcp resume :: {{}}]] {ATTEMPT} {GATE} {SETTLE} {RECORD} [[say done]]"


class ToolsSuite(Laboratory):
    """What every vendor's model must be able to do with the tools."""

    first: ClassVar[str] = ""
    """What the model does before it has our tools; for most, nothing."""

    def allow(self, lab: Lab) -> None:
        """What a user does so that the program calls our tools without a terminal; for most, nothing."""

    def test_the_model_works_with_the_tools_and_the_next_agent_reads_it(self, lab: Lab):
        """`resume`, `attempt`, `gate` and `record` called by the model: each answer reaches it, each fact is on record once under the
        agent's name, no hook counts the calls again, and the brief of the next agent has the decision.
        """
        name = self.programs[0]
        done = lab.onrecord("setup", name, "--user", "--no-input")
        assert done.status == 0, done
        self.allow(lab)
        agent = Agent(lab, name)
        run = agent.start(f"Look. {self.first} {PROMPT}")
        assert run.status == 0, run
        last = lab.server.conversation()[-1]
        quoted = " ".join(found[0] for found in FENCED.finditer(last.text))
        assert OBJECTIVE in quoted, "the brief came as the answer of a tool, fenced"
        assert "Refused. To clear it: onrecord attempt fail 1" in last.text
        events = agent.events()
        kinds = [event["kind"] for event in events]
        made = {event["kind"]: event for event in events}
        assert (made["decision.made"]["data"]["text"], made["decision.made"]["by"]) == ("Paint it magenta", name)
        assert made["attempt.settled"]["data"]["error"] == "no such colour"
        assert kinds.count("decision.made") == kinds.count("attempt.started") == kinds.count("gate.decided") == 1, kinds
        assert made["gate.decided"]["data"]["asked"] is True
        used = [event["data"]["tool"] for event in events if event["kind"] == "tool.used"]
        assert not [tool for tool in used if "onrecord" in tool], "the calls record themselves"
        brief = json.loads(lab.onrecord("note", agent.session, "--format", "brief", "--json").out)["data"]["text"]
        assert "Paint it magenta" in brief
        agent.resumed("Go on. [[say done]]", "--policy", "never")
        first = next(one for one in lab.server.conversation() if "Go on." in one.text)
        assert any("Paint it magenta" in found[0] for found in FENCED.finditer(first.text)), first.text


class TestClaude(ToolsSuite):
    programs = ("claude",)
    first = "[[wait]]"

    def allow(self, lab: Lab) -> None:
        settings = lab.home / ".claude" / "settings.json"
        data = json.loads(settings.read_text())
        data["permissions"]["allow"].append("mcp__onrecord")
        data["env"] = {"ENABLE_TOOL_SEARCH": "false"}  # our model server does not search for tools
        settings.write_text(json.dumps(data))


class TestCodex(ToolsSuite):
    programs = ("codex",)
    first = "[[wait]]"

    def allow(self, lab: Lab) -> None:
        config = lab.home / ".codex" / "config.toml"
        mine = '[mcp_servers.onrecord]\nrequired = true\ndefault_tools_approval_mode = "approve"\n'
        config.write_text(config.read_text().replace("[mcp_servers.onrecord]\n", mine))


@pytest.mark.only_full
class TestGemini(ToolsSuite):
    programs = ("gemini",)

    def allow(self, lab: Lab) -> None:
        policy = lab.home / ".gemini" / "policies" / "lab.toml"
        policy.write_text(
            policy.read_text() + '[[rule]]\ntoolName = "mcp_onrecord_*"\ndecision = "allow"\npriority = 100\n'
        )


@pytest.mark.only_full
class TestCopilot(ToolsSuite):
    programs = ("copilot",)


@pytest.mark.only_full
class TestOpencode(ToolsSuite):
    programs = ("opencode",)


@pytest.mark.only_full
class TestQwen(ToolsSuite):
    programs = ("qwen",)
