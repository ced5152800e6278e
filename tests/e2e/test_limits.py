import json
import sys
import time
from typing import Any

from tests.e2e.lab import Lab
from tests.e2e.modelserver import Fault, patiently
from tests.e2e.suite import SESSION, Agent, Laboratory
from tests.e2e.terminal import Terminal

WINDOW_SECONDS = 20
TRIES = 2
"""How often the programs try before they give up, in the laboratory's settings."""
ONRECORD = [sys.executable, "-m", "onrecord"]


class TestLimitsOnATerminal(Laboratory):
    programs = ("claude",)

    def test_a_limit_in_a_terminal_is_seen_waited_for_and_outlived(self, lab: Lab):
        """A typed prompt hits a usage window: it is on record with its time, and is issued again, once, also after two deaths."""
        assert lab.onrecord("setup", "claude", "--user", "--no-input").status == 0
        agent = Agent(lab, "claude")
        opens = int(time.time()) + WINDOW_SECONDS
        lab.server.fail(Fault(429, "rate_limit_error", f"Claude AI usage limit reached|{opens}"), TRIES)
        terminal = Terminal(lab, agent.command())
        terminal.shows("auto mode on")
        terminal.say("The word is magenta. [[say ochre]]", "usage limit reached")
        patiently(lambda: bool(stops_of(agent)), "the limit is on record")
        (stop,) = stops_of(agent)
        assert (stop["cause"], stop["resets_at"], stop["terminal"]) == ("usage_window", opens, True), stop
        shown = json.loads(lab.onrecord("show", SESSION, "--json").out)["data"]
        assert shown["interruption"]["cause"] == "usage_window", "a person is told while the program is still open"
        lab.room.clear()

        terminal = Terminal(lab, [*ONRECORD, "resume", SESSION, "--wait"])
        terminal.shows("waiting until")
        patiently(lambda: "session.paused" in kinds_of(agent), "the session is parked")
        lab.room.clear()

        terminal = Terminal(lab, [*ONRECORD, "resume", SESSION, "--wait"])
        terminal.shows(r"(?m)^\W*ochre")
        assert time.time() > opens
        answered = [one for one in lab.server.conversation()[TRIES:] if "magenta" in one.text]
        assert len(answered) == 1
        assert len(stops_of(agent)) == 1


def stops_of(agent: Agent) -> list[dict[str, Any]]:
    return [event["data"] for event in agent.events() if event["kind"] == "interruption.recorded"]


def kinds_of(agent: Agent) -> list[str]:
    return [event["kind"] for event in agent.events()]
