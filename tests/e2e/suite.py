"""What every coding agent's real program must show. A module per vendor subclasses this and names the program."""

import json
import os
import signal
import sys
from typing import Any, ClassVar

import pytest

from tests.e2e.lab import Done, Lab
from tests.e2e.modelserver import Received, patiently
from tests.e2e.terminal import Terminal
from tests.e2e.wire import FENCED

INSTALLING_TOO_SECONDS = 600
"""A test may have to install the program first."""

UNDER_WAY = "[[shell touch under-way && sleep 600]]"
"""A tool that runs longer than any test looks."""

WIPED = r"(?s)\A(?!.*The word is magenta)"
"""A screen that no longer shows the first conversation."""

SESSION = "paint"
OBJECTIVE = "Find the colour of the shed"


@pytest.mark.timeout(INSTALLING_TOO_SECONDS)
class Laboratory:
    """Tests that need real programs."""

    programs: ClassVar[tuple[str, ...]]


class AgentSuite(Laboratory):
    """The program through onrecord, as a user runs it: set up once, then started, killed and resumed by our name.

    A start of a real program takes seconds, so a test asks several things of one conversation.
    """

    ready: ClassVar[str]
    """What its screen shows when it accepts a prompt."""
    forgets_the_unanswered: ClassVar[bool] = False
    """It cannot resume a conversation in which the model never answered."""
    announced: ClassVar[str] = "onrecord records this conversation"
    """What its screen shows at the start, or with the first prompt, of a conversation that is recorded automatically."""
    plain: ClassVar[tuple[str, ...]] = ()
    """How a user starts it in a terminal, if that takes more than its name."""

    @property
    def name(self) -> str:
        return self.programs[0]

    def set_up(self, lab: Lab, *how: str) -> "Agent":
        # Without our tools, which tests/e2e/test_mcp.py is about: every start would start a server, too.
        done = lab.onrecord("setup", self.name, "--user", "--no-tools", *(how or ("--no-input",)))
        assert done.status == 0, done
        self.accept_hooks(lab)
        return Agent(lab, self.name)

    def accept_hooks(self, lab: Lab) -> None:
        """What a user does once so that the program runs its hooks; for most, nothing."""

    def begin_another(self, terminal: Terminal) -> None:
        """Make it start another conversation, as its users do; most clear the screen then."""
        terminal.say("/clear", WIPED)

    def lose(self, lab: Lab, vendor_id: str) -> None:
        """Delete the vendor's own copy of a conversation."""
        for file in lab.cli(self.name).files(lab.home, vendor_id):
            file.unlink()

    def test_killed_it_is_resumed_by_our_name_and_once_more_when_the_vendor_lost_it(self, lab: Lab):
        """A conversation is recorded, briefed, killed in the middle of a tool with everything around it, and resumed by our name: verified.

        Then the vendor's own copy is gone: the record's copy is restored and resumed; nothing is invented (G05, A21, L04, T07, T23).
        """
        agent = self.set_up(lab)
        agent.killed_under_way("The word is magenta.")
        data = agent.resumed("Which word was it? [[say ochre]]")
        assert (data["state"], data["verified"], data["finished"]) == ("resumed", True, True), data
        first, *_, last = lab.server.conversation()
        assert "The word is magenta." in last.text
        assert "Which word was it?" in last.text
        assert told(first) == told(last) == 1, "the brief is there, once, also after the resume"
        assert OBJECTIVE in first.text
        kept = agent.kept()
        assert "The word is magenta." in kept
        assert "ochre" in kept
        self.lose(lab, agent.vendor_id)
        data = agent.resumed("And once more? [[say teal]]")
        assert (data["state"], data["verified"], data["vendor_id"]) == ("resumed", True, agent.vendor_id), data
        restored = lab.server.conversation()[-1].text
        assert "The word is magenta." in restored
        assert "Which word was it?" in restored
        agent.counted()
        agent.is_told("The word is magenta.", "Which word was it?", "And once more?", answers=("ochre", "teal"))

    def test_set_up_once_it_is_recorded_without_a_start_and_a_new_id_is_followed(self, lab: Lab):
        """After `onrecord setup`, the program as usual: one session, titled by the first prompt; /clear stays in it, and our name leads on."""
        agent = self.set_up(lab, "--yes")
        terminal = Terminal(lab, self.plain or (self.name,))
        terminal.shows(self.ready)
        assert json.loads(lab.onrecord("list", "--json").out)["data"] == [], "nothing was said yet"
        terminal.say("The word is magenta. [[say violet]]", r"(?m)^\W*violet")
        terminal.showed(self.announced)  # a notice may be on the screen for a few seconds only
        self.begin_another(terminal)
        terminal.say("Another day. [[say ochre]]", r"(?m)^\W*ochre")
        assert "The word is magenta." not in FENCED.sub("", lab.server.conversation()[-1].text), "only the brief has it"
        (session,) = json.loads(lab.onrecord("list", "--json").out)["data"]
        assert session["name"].startswith("the-word-is-magenta")
        assert session["title"].startswith("The word is magenta.")
        agent.session = session["name"]
        patiently(lambda: len(agent.chain()) > 1, "the new id is on record")
        lab.keeps(lab.cli(self.name), agent.chain()[1], "ochre")
        lab.room.clear()
        first, second = agent.chain()
        data = agent.resumed("What day was it? [[say done]]")
        assert (data["state"], data["verified"], data["vendor_id"]) == ("resumed", True, second), data
        resumed = lab.server.conversation()[-1]
        assert "Another day." in resumed.text
        assert "The word is magenta." not in FENCED.sub("", resumed.text)
        assert told(resumed) == 1, "the brief is there, once, also after the resume"
        assert agent.chain() == [first, second]
        assert {event["by"] for event in agent.events() if event["kind"] == "agent.located"} == {self.name}
        assert "The word is magenta." in agent.kept()
        patiently(
            lambda: {"violet", "ochre", "done"} <= set(agent.answers()), "both conversations are there to the end"
        )

    def test_after_a_limit_it_continues_and_no_edit_is_allowed_while_an_attempt_is_running(self, lab: Lab):
        """A run that a rate limit stopped is not finished; the limit is on record, and the session continues after it (G01, G09).

        A call that the agent's own attempt forbids is refused with the command that clears it, and allowed once it is settled.
        """
        agent = self.set_up(lab)
        done = agent.start("The word is magenta. [[fail rate_limit]]")
        assert done.status != 0, "a run that stopped is no success"
        stops = [event["data"]["cause"] for event in agent.events() if event["kind"] == "interruption.recorded"]
        assert stops == ["rate_limit"], done
        early, late = lab.project / "early.txt", lab.project / "late.txt"
        data = agent.resumed(
            f"Try it. [[shell onrecord attempt start -- make check]] [[write {early} :: too soon]]"
            f" [[shell onrecord attempt succeed 1]] [[write {late} :: in time]] [[say done]]", "--policy", "allow",
        )  # fmt: skip
        assert data["finished"], data
        last = lab.server.conversation()[-1].text
        if self.forgets_the_unanswered:
            assert data["state"] == "fresh"
            assert data["why"], "not restored, because ..."
        else:
            assert data["state"] == "resumed"
            assert "The word is magenta." in last
        assert not early.exists(), agent.events()
        assert late.read_text().strip() == "in time", data
        decided = [event["data"] for event in agent.events() if event["kind"] == "gate.decided"]
        assert [one["rule"] for one in decided if one["act"] == "edit"] == ["unresolved_attempt"], decided
        assert "To clear it: onrecord attempt" in last
        nudges = [one["rule"] for one in decided if one["act"] == "stop"]
        assert nudges == [], "without a terminal, an answer to a nudge would replace the agent's own"

    def test_a_killed_agent_leaves_nothing_running(self, lab: Lab):
        """When only the agent is killed, its death is on record and the tool it left behind is ended (G05, G09)."""
        agent = self.set_up(lab)
        run = lab.start(agent.command(f"Begin. {UNDER_WAY}"))
        lab.appears("under-way")
        os.kill(agent.process(), signal.SIGKILL)
        done = run.wait()
        assert done.status != 0, "a run that stopped is no success"
        stops = [event["data"] for event in agent.events() if event["kind"] == "interruption.recorded"]
        assert [stop["cause"] for stop in stops] == ["killed"], stops
        assert lab.room.inhabitants() == []


class Agent:
    """A vendor's agent in a session of ours."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.lab = lab
        self.name = name
        self.vendor_id = ""
        self.session = SESSION

    def command(self, prompt: str = "") -> list[str]:
        """Our command that starts it: headless with a prompt, else for a terminal."""
        start = [sys.executable, "-m", "onrecord", "start", self.name, "--name", SESSION, "-o", OBJECTIVE]
        start += ["--no-input"]  # nothing is asked before the program's own screen
        return [*start, "-p", prompt] if prompt else start

    def start(self, prompt: str) -> Done:
        done = self.lab.run(self.command(prompt))
        self.vendor_id = self.links()[-1]["vendor_id"]
        return done

    def killed_under_way(self, prompt: str) -> None:
        """Start it with a tool that keeps running, and kill everything: the agent, its tool, and onrecord."""
        run = self.lab.start(self.command(f"{prompt} {UNDER_WAY}"))
        self.lab.appears("under-way")
        self.vendor_id = self.links()[-1]["vendor_id"]
        self.lab.keeps(self.lab.cli(self.name), self.vendor_id, prompt)
        self.lab.room.clear()
        run.process.wait()

    def resumed(self, prompt: str, *more: str) -> dict[str, Any]:
        done = self.lab.onrecord("resume", self.session, "-p", prompt, "--yes", "--json", *more)
        assert done.status == 0, done
        data: dict[str, Any] = json.loads(done.out)["data"]
        return data

    def events(self) -> list[dict[str, Any]]:
        done = self.lab.onrecord("log", self.session, "--json", "--limit", "0")
        assert done.status == 0, done
        found: list[dict[str, Any]] = json.loads(done.out)["data"]["events"]
        return found

    def links(self) -> list[dict[str, Any]]:
        return [event["data"] for event in self.events() if event["kind"] == "agent.located"]

    def chain(self) -> list[str]:
        """The ids of its conversations, in the order they came up."""
        return list(dict.fromkeys(link["vendor_id"] for link in self.links()))

    def process(self) -> int:
        """The agent's own process, as recorded."""
        return int([link["process"] for link in self.links() if "process" in link][-1]["pid"])

    def counted(self) -> None:
        """Every answer of the model server is counted once, with the numbers that each answer states."""
        done = self.lab.onrecord("usage", "--session", self.session, "--json")
        total = json.loads(done.out)["data"]["total"]
        calls = total["calls"]
        assert 1 < calls <= len(self.lab.server.received), total
        stated = {"input_tokens": 123, "cache_read_tokens": 100, "output_tokens": 50, "reasoning_tokens": 30}
        assert {name: total[name] for name in stated} == {name: calls * one for name, one in stated.items()}

    def is_told(self, *prompts: str, answers: tuple[str, ...]) -> None:
        """The conversation is the record's transcript: each prompt once and first in its turn, with its answer."""
        done = self.lab.onrecord("export", self.session, "--format", "messages")
        messages = json.loads(done.out)
        asked = [message["content"] for message in messages if message["role"] == "user"]
        assert [sum(prompt in text for text in asked) for prompt in prompts] == [1] * len(prompts), asked
        assert not [text for text in asked if FENCED.search(text)], "what onrecord injects is not what a user said"
        said = [message["content"] for message in messages if message["role"] == "assistant"]
        assert all(any(answer in str(text) for text in said) for answer in answers), said
        markdown = self.lab.onrecord("export", self.session, "--format", "markdown").out
        assert all(f"**user:** {prompt}" in markdown for prompt in prompts), markdown
        note = self.lab.onrecord("note", SESSION).out
        assert f"asked last: {prompts[-1]}" in note, note
        assert f"last words: {answers[-1]}" in note, note
        found = json.loads(self.lab.onrecord("search", "magenta", "--json").out)["data"]["results"]
        assert any("The word is magenta." in hit["snippet"] for hit in found), found

    def answers(self) -> list[str]:
        """What the model said, as the record's transcript has it."""
        messages = json.loads(self.lab.onrecord("export", self.session, "--format", "messages").out)
        return [str(one["content"]).strip() for one in messages if one["role"] == "assistant"]

    def kept(self) -> str:
        """What the record has of the conversation."""
        return json.dumps(
            [event["data"] for event in self.events() if event["kind"] == "payload.kept"], ensure_ascii=False
        )


def told(received: Received) -> int:
    """How often the brief is in a request."""
    return len(FENCED.findall(received.text))
