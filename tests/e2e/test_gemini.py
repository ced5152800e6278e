import re
import uuid
from pathlib import Path

from tests.e2e.lab import Lab
from tests.e2e.modelserver import patiently
from tests.e2e.suite import AgentSuite
from tests.e2e.terminal import Terminal


class TestGemini(AgentSuite):
    programs = ("gemini",)
    ready = "Type your message"
    forgets_the_unanswered = True

    def aged(self, lab: Lab, vendor_id: str) -> None:
        """Move the start of the conversation to long before this minute, which is part of its file's name."""
        (file,) = lab.cli("gemini").files(lab.home, vendor_id)
        file.rename(file.with_name(re.sub(r"\d{4}-\d\d-\d\dT\d\d-\d\d", "2026-01-01T00-00", file.name)))

    def kept_files(self, lab: Lab, vendor_id: str) -> list[Path]:
        files = lab.cli("gemini").files(lab.home, vendor_id)
        return [file for file in files if "The word is magenta." in file.read_text()]

    def test_by_itself_it_deletes_what_it_resumed(self, lab: Lab):
        """The hazard is real: after a resume, the next start of another conversation deletes the resumed one."""
        cli, ours, other = lab.cli("gemini"), str(uuid.uuid4()), str(uuid.uuid4())
        lab.run(cli.start(ours, "The word is magenta. [[say noted]]"))
        self.aged(lab, ours)
        assert lab.run(cli.resume(ours, "Which word was it? [[say ochre]]")).status == 0
        assert lab.run(cli.start(other, "Hello. [[say hello]]")).status == 0
        assert self.kept_files(lab, ours) == []

    def test_resumed_by_us_it_deletes_nothing(self, lab: Lab):
        """A conversation that we resume is still there after the next start of another one (T13)."""
        agent = self.set_up(lab)
        agent.start("The word is magenta. [[say noted]]")
        self.aged(lab, agent.vendor_id)
        assert agent.resumed("Which word was it? [[say ochre]]")["verified"]
        assert lab.run(lab.cli("gemini").start(str(uuid.uuid4()), "Hello. [[say hello]]")).status == 0
        assert self.kept_files(lab, agent.vendor_id)

    def test_another_start_beside_it_loses_nothing(self, lab: Lab):
        """A start in the same directory deletes the new file of an idle one; the conversation is recorded and resumed all the same."""
        agent, cli = self.set_up(lab), lab.cli("gemini")
        terminal = Terminal(lab, agent.command())
        terminal.shows(self.ready)
        patiently(lambda: bool(agent.links()), "the conversation is linked")
        vendor_id = agent.links()[-1]["vendor_id"]
        patiently(lambda: bool(cli.files(lab.home, vendor_id)), "gemini wrote its file")
        assert lab.run(cli.start(str(uuid.uuid4()), "Hello. [[say hello]]")).status == 0
        assert cli.files(lab.home, vendor_id) == [], "the other start did not delete it: the hazard is gone"
        terminal.say("The word is magenta. [[say violet]]", r"(?m)^\W*violet")
        patiently(lambda: "The word is magenta." in agent.kept(), "the conversation is on record")
        lab.room.clear()
        data = agent.resumed("Which word was it? [[say ochre]]")
        assert (data["state"], data["verified"], data["vendor_id"]) == ("resumed", True, vendor_id), data
        assert "The word is magenta." in lab.server.conversation()[-1].text
