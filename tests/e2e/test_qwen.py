import uuid

from tests.e2e.lab import Lab
from tests.e2e.suite import AgentSuite


class TestQwen(AgentSuite):
    programs = ("qwen",)
    ready = "Type your message"

    def tear(self, lab: Lab, vendor_id: str) -> None:
        """Leave the file as a crash in the middle of a write does."""
        (file,) = lab.cli("qwen").files(lab.home, vendor_id)
        with file.open("a") as torn:
            torn.write('{"uuid":"torn in the mid')

    def test_by_itself_it_forgets_after_a_torn_line(self, lab: Lab):
        """The hazard is real: after a half-written line, the second resume has lost everything before it."""
        cli, ours = lab.cli("qwen"), str(uuid.uuid4())
        lab.run(cli.start(ours, "The word is magenta. [[say noted]]"))
        self.tear(lab, ours)
        for _ in range(2):
            assert lab.run(cli.resume(ours, "Which word was it? [[say ochre]]")).status == 0
        assert "The word is magenta." not in lab.server.conversation()[-1].text

    def test_resumed_by_us_it_forgets_nothing(self, lab: Lab):
        """A torn line is repaired before we resume, so that nothing before it is lost (T13)."""
        agent = self.set_up(lab)
        agent.start("The word is magenta. [[say noted]]")
        self.tear(lab, agent.vendor_id)
        for _ in range(2):
            assert agent.resumed("Which word was it? [[say ochre]]")["verified"]
        assert "The word is magenta." in lab.server.conversation()[-1].text
