import json
import time

from tests.e2e.lab import Lab
from tests.e2e.modelserver import Fault
from tests.e2e.suite import AgentSuite

WINDOW_SECONDS = 8
TRIES = 2
"""How often the program retries before it gives up, in the laboratory's settings."""


class TestClaude(AgentSuite):
    programs = ("claude",)
    ready = "auto mode on"

    def test_it_waits_until_the_usage_window_opens(self, lab: Lab):
        """With --wait the session is parked until the limit ends, and the prompt is issued again, exactly once (G03, G10)."""
        agent = self.set_up(lab)
        opens = int(time.time()) + WINDOW_SECONDS
        lab.server.fail(Fault(429, "rate_limit_error", f"Claude AI usage limit reached|{opens}"), TRIES)
        done = lab.run([*agent.command("The word is magenta. [[say ochre]]"), "--wait"])
        assert done.status == 0, done
        assert time.time() > opens
        events = agent.events()
        stops = [event["data"] for event in events if event["kind"] == "interruption.recorded"]
        assert [(stop["cause"], stop["resets_at"]) for stop in stops] == [("usage_window", opens)]
        assert {"session.paused", "session.resumed"} <= {event["kind"] for event in events}
        answered = lab.server.conversation()[TRIES:]
        assert len(answered) == 1
        assert "ochre" in json.dumps([event["data"] for event in events], ensure_ascii=False)
