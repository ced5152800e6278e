"""What every coding agent's real program must show. A module per vendor subclasses this and names the program."""

import uuid
from typing import ClassVar

import pytest

from tests.e2e.clis import Cli
from tests.e2e.lab import Lab

INSTALLING_TOO_SECONDS = 600
"""A test may have to install the program first."""

UNDER_WAY = "[[shell echo $$ > under-way; exec sleep 600]]"
"""A tool that is running for as long as anybody looks."""


@pytest.mark.timeout(INSTALLING_TOO_SECONDS)
class Laboratory:
    """Tests that need real programs."""

    programs: ClassVar[tuple[str, ...]]


class ProgramSuite(Laboratory):
    """The program by itself, without onrecord: what we believe about it is so."""

    @property
    def name(self) -> str:
        return self.programs[0]

    def test_it_answers_and_keeps_its_conversation(self, lab: Lab):
        """A prompt is answered by our model server, under the id we chose where it can be chosen, and kept where we look."""
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
        """Resuming an id that is not there fails, instead of beginning a new conversation."""
        cli = lab.cli(self.name)
        done = lab.run(cli.resume(unknown_id(cli), "Hello? [[say nobody]]"))
        assert done.status != 0
        assert "nobody" not in done.out
        assert lab.server.conversation() == []


def unknown_id(cli: Cli) -> str:
    return "ses_e20a85b9cffeaC46yu2fbSmIxE" if cli.name == "opencode" else str(uuid.uuid4())
