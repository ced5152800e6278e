"""What every coding agent's real program must show. A module per vendor subclasses this and names the program."""

import json
import os
import signal
import sys
import uuid
from typing import Any, ClassVar

import pytest

from tests.e2e.clis import Cli
from tests.e2e.lab import Done, Lab
from tests.e2e.modelserver import Received, patiently
from tests.e2e.terminal import Terminal
from tests.e2e.wire import FENCED

INSTALLING_TOO_SECONDS = 600
"""A test may have to install the program first."""

UNDER_WAY = "[[shell touch under-way && sleep 600]]"
"""A tool that runs longer than any test looks."""

WIPED = r"(?s)\A(?!.*magenta)"
"""A screen that no longer shows the first conversation."""

SESSION = "paint"
OBJECTIVE = "Find the colour of the shed"


@pytest.mark.timeout(INSTALLING_TOO_SECONDS)
class Laboratory:
    """Tests that need real programs."""

    programs: ClassVar[tuple[str, ...]]


class ProgramSuite(Laboratory):
    """The program alone, without onrecord: our assumptions about it are true."""

    @property
    def name(self) -> str:
        return self.programs[0]

    def test_it_answers_and_keeps_its_conversation(self, lab: Lab):
        """Our model server answers a prompt, under the id we chose where that is possible, and the file is where we expect it."""
        cli = lab.cli(self.name)
        chosen = str(uuid.uuid4())
        done = lab.run(cli.start(chosen, "Good morning. [[say violet]]"))
        assert done.status == 0, done
        assert "violet" in done.out
        told = cli.streamed_id(done.out)
        if cli.chooses_id:
            assert told == chosen
        assert cli.files(lab.home, told), sorted(lab.home.rglob("*"))

    def test_killed_in_a_tool_it_goes_on_by_id(self, lab: Lab):
        """After `kill -9` in the middle of a tool, resuming by id sends the first turn again, and the second with it."""
        cli = lab.cli(self.name)
        chosen = str(uuid.uuid4())
        run = lab.start(cli.start(chosen, f"The word is magenta. {UNDER_WAY}"))
        lab.appears("under-way")
        vendor_id = chosen if cli.chooses_id else cli.streamed_id(run.out)
        lab.keeps(cli, vendor_id, "The word is magenta.")
        run.kill()
        before = len(lab.server.conversation())
        done = lab.run(cli.resume(vendor_id, "Which word was it? [[say ochre]]"))
        assert done.status == 0, done
        assert "ochre" in done.out
        first, *_ = lab.server.conversation()[before:]
        assert "The word is magenta." in first.text
        assert "Which word was it?" in first.text
        assert cli.streamed_id(done.out) == vendor_id

    def test_an_unknown_conversation_is_refused(self, lab: Lab):
        """Resuming an unknown id fails, instead of starting a new conversation."""
        cli = lab.cli(self.name)
        done = lab.run(cli.resume(unknown_id(cli), "Hello? [[say nobody]]"))
        assert done.status != 0
        assert "nobody" not in done.out
        assert lab.server.conversation() == []


def unknown_id(cli: Cli) -> str:
    return "ses_e20a85b9cffeaC46yu2fbSmIxE" if cli.name == "opencode" else str(uuid.uuid4())


class AgentSuite(ProgramSuite):
    """The program through onrecord, as a user runs it: set up once, then started, killed and resumed by our name."""

    ready: ClassVar[str]
    """What its screen shows when it accepts a prompt."""
    forgets_the_unanswered: ClassVar[bool] = False
    """It cannot resume a conversation in which the model never answered."""
    hears_nudges: ClassVar[bool] = True
    """Its hook can prevent it from stopping."""

    def test_killed_in_a_tool_it_goes_on_by_id(self, lab: Lab):
        """The same program with `onrecord setup` before it: all of it is one session, titled by its prompt, though no command started it."""
        self.set_up(lab, "--yes")
        super().test_killed_in_a_tool_it_goes_on_by_id(lab)
        (session,) = json.loads(lab.onrecord("list", "--json").out)["data"]
        assert session["name"].startswith("the-word-is-magenta")
        assert session["title"].startswith("The word is magenta.")
        events = json.loads(lab.onrecord("log", session["name"], "--json", "--limit", "0").out)["data"]["events"]
        assert {event["by"] for event in events} == {self.name}
        links = [event["data"] for event in events if event["kind"] == "agent.located"]
        assert len({link["vendor_id"] for link in links}) == 1
        kept = json.dumps([event["data"] for event in events if event["kind"] == "payload.kept"])
        assert "The word is magenta." in kept
        assert "ochre" in kept

    def set_up(self, lab: Lab, *how: str) -> "Agent":
        done = lab.onrecord("setup", self.name, "--user", *(how or ("--no-input",)))
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

    def test_killed_it_is_resumed_by_our_name(self, lab: Lab):
        """A conversation is recorded, briefed, killed with everything around it, and resumed by our name: verified (G05, A21, L04, T23)."""
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

    def test_no_edit_while_an_attempt_is_running(self, lab: Lab):
        """A call that the agent's own attempt forbids is refused with the command that clears it, and allowed once it is settled."""
        agent = self.set_up(lab)
        early, late = lab.project / "early.txt", lab.project / "late.txt"
        done = agent.start(
            f"Try it. [[shell onrecord attempt start -- make check]] [[write {early} :: too soon]]"
            f" [[shell onrecord attempt succeed 1]] [[write {late} :: in time]] [[say done]]"
        )
        assert done.status == 0, done
        assert not early.exists(), agent.events()
        assert late.read_text().strip() == "in time", done
        decided = [event["data"] for event in agent.events() if event["kind"] == "gate.decided"]
        assert [one["rule"] for one in decided if one["act"] == "edit"] == ["unresolved_attempt"], decided
        last = lab.server.conversation()[-1].text
        assert "To clear it: onrecord attempt" in last
        nudges = [one["rule"] for one in decided if one["act"] == "stop"]
        assert nudges == (["note"] if self.hears_nudges else []), "once, and it may stop then"

    def test_a_lost_conversation_is_put_back_from_the_record(self, lab: Lab):
        """When the vendor's own copy is gone, the record's copy is restored and resumed; nothing is invented (T07)."""
        agent = self.set_up(lab)
        done = agent.start("The word is magenta. [[say noted]]")
        assert done.status == 0, done
        self.lose(lab, agent.vendor_id)
        data = agent.resumed("Which word was it? [[say ochre]]")
        assert (data["state"], data["verified"]) == ("resumed", True), data
        assert "The word is magenta." in lab.server.conversation()[-1].text

    def test_a_new_id_in_the_same_terminal_is_followed(self, lab: Lab):
        """After the program changed its own id, our name leads to the new conversation."""
        agent = self.set_up(lab)
        terminal = Terminal(lab, agent.command())
        terminal.shows(self.ready)
        terminal.say("The word is magenta. [[say violet]]", r"(?m)^\W*violet")
        self.begin_another(terminal)
        terminal.say("Another day. [[say ochre]]", r"(?m)^\W*ochre")
        assert "magenta" not in lab.server.conversation()[-1].text
        patiently(lambda: len(agent.chain()) > 1, "the new id is on record")
        lab.keeps(lab.cli(self.name), agent.chain()[1], "ochre")
        lab.room.clear()
        first, second = agent.chain()
        data = agent.resumed("What day was it? [[say done]]")
        assert (data["state"], data["verified"], data["vendor_id"]) == ("resumed", True, second), data
        last = lab.server.conversation()[-1].text
        assert "Another day." in last
        assert "magenta" not in last
        assert agent.chain() == [first, second]

    def test_a_limit_is_recorded_as_one(self, lab: Lab):
        """A run that a rate limit stopped is not finished; the limit is on record, and the session continues after it (G01, G09)."""
        agent = self.set_up(lab)
        done = agent.start("The word is magenta. [[fail rate_limit]]")
        assert done.status != 0, "a run that stopped is no success"
        stops = [event["data"]["cause"] for event in agent.events() if event["kind"] == "interruption.recorded"]
        assert stops == ["rate_limit"], done
        data = agent.resumed("Try again. [[say ochre]]")
        assert data["finished"], data
        if self.forgets_the_unanswered:
            assert data["state"] == "fresh"
            assert data["why"], "not restored, because ..."
        else:
            assert data["state"] == "resumed"
            assert "The word is magenta." in lab.server.conversation()[-1].text

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

    def command(self, prompt: str = "") -> list[str]:
        """Our command that starts it: headless with a prompt, else for a terminal."""
        start = [sys.executable, "-m", "onrecord", "start", self.name, "--name", SESSION, "-o", OBJECTIVE]
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
        done = self.lab.onrecord("resume", SESSION, "-p", prompt, "--yes", "--json", *more)
        assert done.status == 0, done
        data: dict[str, Any] = json.loads(done.out)["data"]
        return data

    def events(self) -> list[dict[str, Any]]:
        done = self.lab.onrecord("log", SESSION, "--json", "--limit", "0")
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

    def kept(self) -> str:
        """What the record has of the conversation."""
        return json.dumps(
            [event["data"] for event in self.events() if event["kind"] == "payload.kept"], ensure_ascii=False
        )


def told(received: Received) -> int:
    """How often the brief is in a request."""
    return len(FENCED.findall(received.text))
