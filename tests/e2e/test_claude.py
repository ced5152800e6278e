import json
import re
import time

from tests.e2e.lab import Lab
from tests.e2e.modelserver import Fault, patiently
from tests.e2e.suite import SESSION, AgentSuite
from tests.e2e.terminal import Terminal

WINDOW_SECONDS = 8
TRIES = 2
"""How often the program retries before it gives up, in the laboratory's settings."""


class TestClaude(AgentSuite):
    programs = ("claude",)
    ready = "auto mode on"

    def test_it_waits_until_the_usage_window_opens(self, lab: Lab):
        """With --wait the session is parked until the limit ends, and the prompt is issued again, exactly once (G03, G10)."""
        agent = self.set_up(lab)
        opens: list[int] = []

        def closed() -> Fault:
            opens.append(int(time.time()) + WINDOW_SECONDS)  # from now: the program may have started slowly
            return Fault(429, "rate_limit_error", f"Claude AI usage limit reached|{opens[-1]}")

        lab.server.fail(closed, TRIES)
        done = lab.run([*agent.command("The word is magenta. [[say ochre]]"), "--wait"])
        assert done.status == 0, done
        assert time.time() > opens[-1]
        events = agent.events()
        stops = [event["data"] for event in events if event["kind"] == "interruption.recorded"]
        assert [(stop["cause"], stop["resets_at"]) for stop in stops] == [("usage_window", opens[-1])]
        assert {"session.paused", "session.resumed"} <= {event["kind"] for event in events}
        answered = lab.server.conversation()[TRIES:]
        assert len(answered) == 1
        assert "ochre" in json.dumps([event["data"] for event in events], ensure_ascii=False)

    def test_a_subagent_s_transcript_is_mirrored_and_restored(self, lab: Lab):
        """What a subagent says has its own lane, and its file comes back with the conversation."""
        agent = self.set_up(lab)
        done = agent.start("The word is magenta. [[delegate Count the files here.]] [[say ochre]]")
        assert done.status == 0, done
        (file,) = lab.cli(self.name).files(lab.home, agent.vendor_id)
        before = {path.relative_to(file.parent): path.read_bytes() for path in sorted(file.parent.rglob("*.jsonl"))}
        assert len(before) > 1, "a subagent has a file of its own"
        text = lab.onrecord("export", SESSION, "--format", "markdown").out
        assert "**claude:** Count the files here." in text.partition(" claude/agent-")[2], text
        for path in sorted(file.parent.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        data = agent.resumed("Which word was it? [[say teal]]")
        assert (data["state"], data["verified"]) == ("resumed", True), data
        (file,) = lab.cli(self.name).files(lab.home, agent.vendor_id)
        after = {path.relative_to(file.parent): path.read_bytes() for path in sorted(file.parent.rglob("*.jsonl"))}
        assert before.keys() == after.keys()
        assert all(after[name].startswith(content) for name, content in before.items())

    def test_what_its_user_went_back_from_is_provisional_and_a_compaction_is_a_summary(self, lab: Lab):
        """In a terminal: a turn is left by rewinding, the conversation is compacted and continues; the transcript says so."""
        agent = self.set_up(lab)
        terminal = Terminal(lab, agent.command())
        terminal.shows(self.ready)
        terminal.say("The word is magenta. [[say violet]]", r"(?m)^\W*violet")
        terminal.say("A wrong turn. [[say umber]]", r"(?m)^\W*umber")
        terminal.until(r"Restore the code", lambda: terminal.press("Escape", "Escape"))
        terminal.press("Up")
        terminal.until(r"Restore conversation", lambda: terminal.press("Enter"))
        terminal.press("Enter")  # once: a second one would send the prompt that is offered again
        terminal.shows(r"\u276f\sA wrong turn")  # the space may be one that does not break
        terminal.until(r"(?m)^\u276f\s*$", lambda: terminal.press("C-u"))
        terminal.say("A better idea. [[say ochre]]", r"(?m)^\W*ochre")
        terminal.say("/compact", r"Compacted")
        terminal.say("Another day. [[say teal]]", r"(?m)^\W*teal")

        def told() -> list[str]:
            text = lab.onrecord("export", SESSION, "--format", "markdown").out.partition("## Transcript")[2]
            shown = r"(?m)^(?:#### .*\*\*(abandoned): |> \*\*(user:)\*\*( [\w .]+)|> \*(summary of the conversation so far):)"
            return re.findall(shown, text)

        patiently(lambda: len(told()) > 5, "the last prompt is on record")
        assert ["".join(one).strip() for one in told()] == [
            "user: The word is magenta.", "abandoned", "user: A wrong turn.", "user: A better idea.",
            "summary of the conversation so far", "user: Another day.",
        ]  # fmt: skip
